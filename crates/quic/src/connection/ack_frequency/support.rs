//! Reads a client's transport parameters (RFC 9000 §18) about acknowledgements. s2n-quic skips `min_ack_delay`, which
//! it does not support. Pure; the bytes are the client's.

use crate::wire::parameters::{self, MAX_ACK_DELAY_ID};
use std::time::Duration;

/// Identifier of min_ack_delay, in microseconds, of draft-ietf-quic-ack-frequency-12; unchanged since draft 07.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;
/// Identifier of min_ack_delay, in microseconds, of draft-ietf-quic-ack-frequency-00, which Firefox sends.
const MIN_ACK_DELAY_00: u64 = 0xff02_de1a;
/// Default of max_ack_delay (RFC 9000 §18.2), in milliseconds.
const DEFAULT_MAX_ACK_DELAY: u64 = 25;
/// Smallest invalid max_ack_delay, in milliseconds (RFC 9000 §18.2).
const INVALID_MAX_ACK_DELAY: u64 = 1 << 14;

/// Draft that a client's ACK_FREQUENCY frames follow, determined by the client's transport parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftVersion {
    /// draft-ietf-quic-ack-frequency-00: Firefox.
    AckFrequency00,
    /// draft-ietf-quic-ack-frequency-12: quinn, msquic, picoquic, Chromium if enabled.
    AckFrequency12,
}

/// A client's support of ACK_FREQUENCY frames. `min_ack_delay` is at most `max_ack_delay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequencySupport {
    /// The draft by which the client reads the frame.
    pub draft: DraftVersion,
    /// Smallest acknowledgement delay that the client accepts.
    pub min_ack_delay: Duration,
    /// Longest acknowledgement delay that the client uses without a request.
    pub max_ack_delay: Duration,
}

impl AckFrequencySupport {
    /// Reads a client's support from encoded transport parameters, by the newest draft of several. `None` without
    /// support, or if it is invalid: malformed parameters, one that occurs twice, or a minimum above the maximum. For
    /// the last the drafts require closing the connection; litequic serves it without the extension.
    pub fn from_parameters(mut encoded: &[u8]) -> Option<Self> {
        let (mut min, mut min_00, mut max) = (None, None, None);
        while let Some((id, value)) = parameters::next_parameter(&mut encoded) {
            let known = match id {
                MIN_ACK_DELAY => &mut min,
                MIN_ACK_DELAY_00 => &mut min_00,
                MAX_ACK_DELAY_ID => &mut max,
                _ => continue,
            };
            if known.replace(parameters::parse_integer(value)?).is_some() {
                return None;
            }
        }
        if !encoded.is_empty() {
            return None;
        }
        let max = max.unwrap_or(DEFAULT_MAX_ACK_DELAY);
        let (draft, min) = match min {
            Some(min) => (DraftVersion::AckFrequency12, min),
            None => (DraftVersion::AckFrequency00, min_00?),
        };
        let support =
            Self { draft, min_ack_delay: Duration::from_micros(min), max_ack_delay: Duration::from_millis(max) };
        (max < INVALID_MAX_ACK_DELAY && support.min_ack_delay <= support.max_ack_delay).then_some(support)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use s2n_codec::EncoderValue;
    use s2n_quic_core::varint::VarInt;

    fn number(value: u64) -> Vec<u8> {
        VarInt::new(value).unwrap().encode_to_vec()
    }

    fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
        [&number(id), &number(value.len() as u64), value].concat()
    }

    fn support(min_us: u64, max_ms: u64) -> Option<AckFrequencySupport> {
        let (min_ack_delay, max_ack_delay) = (Duration::from_micros(min_us), Duration::from_millis(max_ms));
        Some(AckFrequencySupport { draft: DraftVersion::AckFrequency12, min_ack_delay, max_ack_delay })
    }

    fn support_00(min_us: u64, max_ms: u64) -> Option<AckFrequencySupport> {
        support(min_us, max_ms).map(|support| AckFrequencySupport { draft: DraftVersion::AckFrequency00, ..support })
    }

    #[test]
    fn only_a_valid_min_ack_delay_is_support() {
        let min = |us| parameter(MIN_ACK_DELAY, &number(us));
        let max = |ms| parameter(MAX_ACK_DELAY_ID, &number(ms));
        let min_00 = |us| parameter(MIN_ACK_DELAY_00, &number(us));
        let other = parameter(0x04, &number(1 << 20));
        let grease = parameter(27 + 31 * 7, &[1, 2, 3]);
        let table: &[(&str, Vec<u8>, Option<AckFrequencySupport>)] = &[
            ("nothing", vec![], None),
            ("max_ack_delay alone", max(25), None),
            ("quinn's", [&grease[..], &min(1000), &other].concat(), support(1000, 25)),
            ("Chromium's", [&max(25)[..], &min(5000), &grease].concat(), support(5000, 25)),
            ("Firefox's", [&max(20)[..], &other, &min_00(1000)].concat(), support_00(1000, 20)),
            ("two drafts'", [&min_00(2000)[..], &min(1000)].concat(), support(1000, 25)),
            ("two drafts', the newest unsound", [&min_00(1000)[..], &min(25_001)].concat(), None),
            ("the older draft's twice", [min_00(1000), min_00(1000)].concat(), None),
            ("the older draft's longer than the maximum", [min_00(20_001), max(20)].concat(), None),
            ("as long as the maximum", [min(25_000), max(25)].concat(), support(25_000, 25)),
            ("longer than the maximum", [min(25_001), max(25)].concat(), None),
            ("longer than the maximum that is not named", min(25_001), None),
            ("none at all", min(0), support(0, 25)),
            ("the longest", [min(1), max((1 << 14) - 1)].concat(), support(1, (1 << 14) - 1)),
            ("too long", [min(1), max(1 << 14)].concat(), None),
            ("absurd", min((1 << 62) - 1), None),
            ("twice", [min(1000), min(1000)].concat(), None),
            ("empty", parameter(MIN_ACK_DELAY, &[]), None),
            ("cut short", min(1000)[..9].to_vec(), None),
            ("with something behind it", parameter(MIN_ACK_DELAY, &[1, 1]), None),
            ("followed by half a parameter", [&min(1000)[..], &[0x04, 9, 1]].concat(), None),
        ];
        for (what, parameters, expected) in table {
            assert_eq!(AckFrequencySupport::from_parameters(parameters), *expected, "{what}");
        }
    }

    proptest! {
        #[test]
        fn the_minimum_is_never_above_the_maximum(
            noise in vec(any::<u8>(), 0..40),
            min in 0..1u64 << 62,
            max in 0..1u64 << 62,
        ) {
            let min = parameter(MIN_ACK_DELAY, &number(min >> (min % 60)));
            let max = parameter(MAX_ACK_DELAY_ID, &number(max >> (max % 60)));
            for parameters in [[&min[..], &max].concat(), [&min[..], &max, &noise].concat(), noise] {
                if let Some(support) = AckFrequencySupport::from_parameters(&parameters) {
                    prop_assert!(support.min_ack_delay <= support.max_ack_delay);
                    prop_assert!(support.max_ack_delay < Duration::from_millis(1 << 14));
                }
            }
        }
    }
}
