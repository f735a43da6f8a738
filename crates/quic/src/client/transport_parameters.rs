//! Reads transport parameters (RFC 9000 §18.2) of both ends of a client's connection, and formats them for people.
//! Pure.

use crate::wire::parameters::{self, INTEGER_PARAMETERS, MIGRATION_DISABLED_ID};
use s2n_quic::provider::event::events;

/// The transport parameters that one end sent; `None` is an unknown value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransportParameters([Option<u64>; INTEGER_PARAMETERS.len()]);

impl TransportParameters {
    /// Reads the parameters in `encoded`, up to the first malformed one; the others have their defaults.
    pub(super) fn from_encoded(mut encoded: &[u8]) -> Self {
        let mut found = Self(INTEGER_PARAMETERS.map(|(.., default)| Some(default)));
        while let Some((id, value)) = parameters::next_parameter(&mut encoded) {
            let place = INTEGER_PARAMETERS.iter().position(|(known, ..)| *known == id);
            let number = match id {
                MIGRATION_DISABLED_ID => Some(1),
                _ => parameters::parse_integer(value),
            };
            if let (Some(slot), Some(number)) = (place.and_then(|place| found.0.get_mut(place)), number) {
                *slot = Some(number);
            }
        }
        found
    }

    /// The server's parameters, as s2n-quic reports them: without `initial_max_data`.
    pub(super) fn from_event(event: &events::TransportParameters<'_>) -> Self {
        let milliseconds = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self([
            Some(milliseconds(event.max_idle_timeout)),
            Some(event.max_udp_payload_size),
            None,
            Some(event.initial_max_stream_data_bidi_local),
            Some(event.initial_max_stream_data_bidi_remote),
            Some(event.initial_max_stream_data_uni),
            Some(event.initial_max_streams_bidi),
            Some(event.initial_max_streams_uni),
            Some(event.ack_delay_exponent.into()),
            Some(milliseconds(event.max_ack_delay)),
            Some(u64::from(!event.migration_support)),
            Some(event.active_connection_id_limit),
            Some(event.max_datagram_frame_size),
        ])
    }

    /// Iterates over the parameters as text: name, the value here, and the value in `other`.
    pub fn compare_with(&self, other: &Self) -> impl Iterator<Item = (&'static str, String, String)> {
        let pairs = INTEGER_PARAMETERS.into_iter().zip(self.0).zip(other.0);
        pairs.map(|(((_, name, unit, _), one), other)| {
            let text = |value: Option<u64>| value.map_or_else(|| "?".into(), |value| format!("{value}{unit}"));
            (name, text(one), text(other))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use s2n_codec::EncoderValue;
    use s2n_quic_core::transport::parameters::ClientTransportParameters;

    #[test]
    fn absent_parameters_have_their_defaults() {
        let encoded = [0x01, 0x02, 0x47, 0xd0, 0x0b, 0x01, 0x01, 0x0c, 0x00, 0x40, 0x7f, 0x01, 0xff];
        let read = TransportParameters::from_encoded(&encoded);
        let text = |name: &str| {
            let found = read.compare_with(&TransportParameters::default()).find(|(known, ..)| *known == name).unwrap();
            assert_eq!(found.2, "?");
            found.1
        };
        for (name, expected) in [
            ("max_idle_timeout", "2000 ms"),
            ("max_ack_delay", "1 ms"),
            ("ack_delay_exponent", "3"),
            ("disable_active_migration", "1"),
            ("max_udp_payload_size", "65527 bytes"),
        ] {
            assert_eq!(text(name), expected, "{name}");
        }
    }

    #[test]
    fn s2n_quics_own_defaults_are_those_of_the_rfc() {
        let encoded = ClientTransportParameters::default().encode_to_vec();
        assert_eq!(TransportParameters::from_encoded(&encoded), TransportParameters::from_encoded(&[]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(encoded in proptest::collection::vec(any::<u8>(), 0..100)) {
            let read = TransportParameters::from_encoded(&encoded);
            prop_assert!(read.0.iter().all(Option::is_some));
        }
    }
}
