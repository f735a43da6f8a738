//! Decodes and filters transport parameters (RFC 9000 §18). Pure.

use s2n_codec::{DecoderBuffer, EncoderValue};
use s2n_quic_core::varint::VarInt;

/// Identifier of max_udp_payload_size (RFC 9000 §18.2), in bytes.
pub(crate) const MAX_UDP_PAYLOAD_SIZE_ID: u8 = 0x03;
/// Identifier of max_ack_delay (RFC 9000 §18.2), in milliseconds.
pub(crate) const MAX_ACK_DELAY_ID: u64 = 0x0b;

/// Identifier of disable_active_migration (RFC 9000 §18.2), a parameter without a value.
pub(crate) const MIGRATION_DISABLED_ID: u64 = 0x0c;

/// Transport parameters that are integers (RFC 9000 §18.2): identifier, name, unit, default.
pub(crate) const INTEGER_PARAMETERS: [(u64, &str, &str, u64); 13] = [
    (0x01, "max_idle_timeout", " ms", 0),
    (0x03, "max_udp_payload_size", " bytes", 65527),
    (0x04, "initial_max_data", " bytes", 0),
    (0x05, "initial_max_stream_data_bidi_local", " bytes", 0),
    (0x06, "initial_max_stream_data_bidi_remote", " bytes", 0),
    (0x07, "initial_max_stream_data_uni", " bytes", 0),
    (0x08, "initial_max_streams_bidi", "", 0),
    (0x09, "initial_max_streams_uni", "", 0),
    (0x0a, "ack_delay_exponent", "", 3),
    (MAX_ACK_DELAY_ID, "max_ack_delay", " ms", 25),
    // A parameter without a value counts as 1.
    (MIGRATION_DISABLED_ID, "disable_active_migration", "", 0),
    (0x0e, "active_connection_id_limit", "", 2),
    // RFC 9221 §3
    (0x20, "max_datagram_frame_size", " bytes", 0),
];

/// Takes identifier and value of the next parameter from `encoded`. `None` at the end, and at a malformed one, which is
/// not taken.
pub(crate) fn next_parameter<'a>(encoded: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let (id, after) = DecoderBuffer::new(encoded).decode::<VarInt>().ok()?;
    let (length, after) = after.decode::<VarInt>().ok()?;
    let (value, rest) = after.into_less_safe_slice().split_at_checked(usize::try_from(length.as_u64()).ok()?)?;
    *encoded = rest;
    Some((id.as_u64(), value))
}

/// Parses `value` as an integer; `None` if malformed, or followed by other bytes.
pub(crate) fn parse_integer(value: &[u8]) -> Option<u64> {
    let (number, nothing) = DecoderBuffer::new(value).decode::<VarInt>().ok()?;
    nothing.is_empty().then(|| number.as_u64())
}

/// Copies `encoded` without the parameters with the identifier `unwanted`.
pub(crate) fn without_parameter(unwanted: u64, mut encoded: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(encoded.len());
    loop {
        let rest = encoded;
        match next_parameter(&mut encoded) {
            Some((id, _)) if id == unwanted => {}
            Some(_) => kept.extend_from_slice(rest.get(..rest.len() - encoded.len()).unwrap_or_default()),
            None => break,
        }
    }
    kept.extend_from_slice(encoded);
    kept
}

/// Appends the parameter `id`, an identifier below 64 that `encoded` has not, with an integer value.
#[expect(clippy::cast_possible_truncation, reason = "a varint has eight bytes at most (RFC 9000 §16)")]
pub(crate) fn append_integer(encoded: &mut Vec<u8>, id: u8, value: VarInt) {
    let value = value.encode_to_vec();
    encoded.extend([id, value.len() as u8]);
    encoded.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use s2n_quic_core::transport::parameters::ServerTransportParameters;
    use std::time::Duration;

    #[test]
    fn a_malformed_parameter_is_not_taken() {
        let mut encoded = &[0x0b, 1, 2, 0x40, 0x7f, 3, 1, 2, 3, 0x0c, 0, 0x04, 9, 1][..];
        assert_eq!(next_parameter(&mut encoded), Some((0x0b, &[2][..])));
        assert_eq!(next_parameter(&mut encoded), Some((0x7f, &[1, 2, 3][..])));
        assert_eq!(next_parameter(&mut encoded), Some((0x0c, &[][..])));
        assert_eq!((next_parameter(&mut encoded), encoded), (None, &[0x04, 9, 1][..]));
    }

    #[test]
    fn an_integer_is_the_whole_value() {
        let table: [(&[u8], Option<u64>); 5] =
            [(&[], None), (&[9], Some(9)), (&[0x80, 0, 0x75, 0x30], Some(30_000)), (&[9, 9], None), (&[0x40], None)];
        for (value, expected) in table {
            assert_eq!(parse_integer(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_removed_parameter_has_its_default() {
        let mut parameters = ServerTransportParameters::default();
        let default = parameters.max_ack_delay;
        parameters.max_ack_delay = Duration::from_millis(2).try_into().unwrap();
        parameters.max_idle_timeout = Duration::from_secs(7).try_into().unwrap();
        let encoded = without_parameter(MAX_ACK_DELAY_ID, &parameters.encode_to_vec());
        let (decoded, _) = DecoderBuffer::new(&encoded).decode::<ServerTransportParameters>().unwrap();
        parameters.max_ack_delay = default;
        assert_eq!(encoded, parameters.encode_to_vec());
        assert_eq!(decoded.max_ack_delay.as_duration(), Duration::from_millis(25));
    }

    #[test]
    fn an_appended_integer_is_a_parameter_of_the_server() {
        for value in [1_200, 1_412, 16_384] {
            let mut encoded = ServerTransportParameters::default().encode_to_vec();
            append_integer(&mut encoded, MAX_UDP_PAYLOAD_SIZE_ID, VarInt::from_u16(value));
            let (decoded, _) = DecoderBuffer::new(&encoded).decode::<ServerTransportParameters>().unwrap();
            assert_eq!(decoded.max_udp_payload_size.as_u64(), u64::from(value));
        }
    }

    proptest! {
        #[test]
        fn removing_an_absent_parameter_changes_nothing(encoded in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(&without_parameter(u64::MAX, &encoded), &encoded);
            let (mut rest, kept) = (&encoded[..], without_parameter(MAX_ACK_DELAY_ID, &encoded));
            let mut kept = &kept[..];
            while let Some(parameter) = next_parameter(&mut rest) {
                if parameter.0 != MAX_ACK_DELAY_ID {
                    prop_assert_eq!(next_parameter(&mut kept), Some(parameter));
                }
            }
            prop_assert_eq!(kept, rest);
        }
    }
}
