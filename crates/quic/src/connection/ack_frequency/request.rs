//! Encodes a request to a client as an ACK_FREQUENCY frame of the client's draft: the drafts agree on the frame's type
//! and on two of its four fields. Pure.

use super::support::DraftVersion;
use crate::wire::placeholder::PLACEHOLDER_LEN;
use s2n_codec::{Encoder, EncoderBuffer, EncoderValue};
use s2n_quic_core::varint::VarInt;
use std::time::Duration;

const ACK_FREQUENCY_TYPE: u64 = 0xaf;
/// Reordering after which the client acknowledges at once: the one after which s2n-quic declares a packet lost (RFC
/// 9002 §6.1.1), as the draft recommends.
const REORDERING_THRESHOLD: u64 = 3;
/// Ignore Order of draft-ietf-quic-ack-frequency-00, a byte of 0 or 1. With 0 a client acknowledges each packet that is
/// out of order at once: a gap that it does not report is a loss that is found late.
const IGNORE_ORDER: u64 = 0;

/// Request to a client for an ACK frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AckFrequencyRequest {
    pub(super) threshold: u32,
    /// Longest delay of an acknowledgement.
    pub(super) max_ack_delay: Duration,
}

impl AckFrequencyRequest {
    /// Encodes the frame, filled up with PADDING; `None` if it is larger than a placeholder: 2 bytes for the type, 1
    /// for the last field, and 13 for three numbers, none of which needs more than 4 here.
    pub(super) fn encode_frame(&self, draft: DraftVersion, sequence: u64) -> Option<[u8; PLACEHOLDER_LEN]> {
        let delay = u64::try_from(self.max_ack_delay.as_micros()).ok()?;
        let threshold = u64::from(self.threshold);
        let (packets, order) = match draft {
            // Packet Tolerance: packets that may arrive before an acknowledgement; 0 is a FRAME_ENCODING_ERROR.
            DraftVersion::AckFrequency00 => (threshold.max(1), IGNORE_ORDER),
            // "The maximum number of ack-eliciting packets" that may arrive *without* an acknowledgement.
            DraftVersion::AckFrequency12 => (threshold.saturating_sub(1), REORDERING_THRESHOLD),
        };
        let mut numbers = [VarInt::ZERO; 5];
        for (number, value) in numbers.iter_mut().zip([ACK_FREQUENCY_TYPE, sequence, packets, delay, order]) {
            *number = VarInt::new(value).ok()?;
        }
        let mut frame = [0; PLACEHOLDER_LEN];
        if numbers.iter().map(VarInt::encoding_size).sum::<usize>() > PLACEHOLDER_LEN {
            return None;
        }
        let mut encoder = EncoderBuffer::new(&mut frame);
        numbers.iter().for_each(|number| encoder.encode(number));
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::FrameIter;
    use DraftVersion::{AckFrequency00, AckFrequency12};

    fn request(threshold: u32) -> AckFrequencyRequest {
        AckFrequencyRequest { threshold, max_ack_delay: Duration::from_millis(25) }
    }

    #[test]
    fn the_frame_of_draft_12_has_one_packet_less() {
        let frame = request(10).encode_frame(AckFrequency12, 70).unwrap();
        // Type, sequence number, 9 packets without an ACK, 25,000 µs, reordering threshold, PADDING.
        assert_eq!(frame, [0x40, 0xaf, 0x40, 70, 9, 0x80, 0, 0x61, 0xa8, 3, 0, 0, 0, 0, 0, 0]);
        let mut frames = FrameIter::new(&frame);
        assert_eq!(frames.by_ref().map(|frame| frame.kind).collect::<Vec<_>>(), [ACK_FREQUENCY_TYPE]);
        assert!(frames.is_fully_parsed());
    }

    /// neqo's own test vector, 40af0a0547d001, but for the last byte: sequence number 10, 5 packets, 2000 µs.
    #[test]
    fn the_frame_of_draft_00_has_the_number_of_packets() {
        let request = AckFrequencyRequest { threshold: 5, max_ack_delay: Duration::from_millis(2) };
        let frame = request.encode_frame(AckFrequency00, 10).unwrap();
        assert_eq!(frame, [0x40, 0xaf, 10, 5, 0x47, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_older_drafts_tolerance_is_never_0() {
        for (threshold, tolerance) in [(0, 1), (1, 1), (2, 2), (32, 32)] {
            assert_eq!(request(threshold).encode_frame(AckFrequency00, 0).unwrap()[3], tolerance);
        }
    }

    #[test]
    fn a_frame_that_does_not_fit_is_none() {
        for draft in [AckFrequency12, AckFrequency00] {
            assert!(request(2).encode_frame(draft, (1 << 30) - 1).is_some());
            let longest = AckFrequencyRequest { threshold: u32::MAX, max_ack_delay: Duration::from_secs(5000) };
            assert_eq!(longest.encode_frame(draft, 1 << 30), None);
            assert_eq!(request(2).encode_frame(draft, u64::MAX), None);
            assert_eq!(AckFrequencyRequest { threshold: 2, max_ack_delay: Duration::MAX }.encode_frame(draft, 0), None);
        }
    }
}
