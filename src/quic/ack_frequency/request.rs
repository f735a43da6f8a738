//! What a client is asked for, and the ACK_FREQUENCY frame that asks (draft-ietf-quic-ack-frequency-12). Pure.

use crate::quic::placeholder::LEN;
use s2n_codec::{Encoder, EncoderBuffer, EncoderValue};
use s2n_quic_core::varint::VarInt;
use std::time::Duration;

/// The frame's type.
const ACK_FREQUENCY: u64 = 0xaf;
/// What a client is to let pass before it acknowledges out of turn: what s2n-quic lets pass before it takes a packet
/// for lost (RFC 9002 §6.1.1), as the draft's section on that value asks.
const REORDERING_THRESHOLD: u64 = 3;

/// What a client is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Packets that one acknowledgement is for.
    pub(super) threshold: u32,
    /// The longest that it may delay one.
    pub(super) max_ack_delay: Duration,
}

impl Request {
    /// The frame, filled up with PADDING; `None` if it takes more room than a placeholder: 2 octets for the type, 1 for the
    /// reordering threshold, and 13 for three numbers of which none needs more than 4 here.
    pub(super) fn encode(&self, sequence: u64) -> Option<[u8; LEN]> {
        let delay = u64::try_from(self.max_ack_delay.as_micros()).ok()?;
        // "The maximum number of ack-eliciting packets" that may come *without* an acknowledgement.
        let passed = u64::from(self.threshold).saturating_sub(1);
        let mut numbers = [VarInt::ZERO; 5];
        for (number, value) in numbers.iter_mut().zip([ACK_FREQUENCY, sequence, passed, delay, REORDERING_THRESHOLD]) {
            *number = VarInt::new(value).ok()?;
        }
        let mut frame = [0; LEN];
        if numbers.iter().map(VarInt::encoding_size).sum::<usize>() > LEN {
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
    use crate::quic::frame::Frames;

    fn request(threshold: u32) -> Request {
        Request { threshold, max_ack_delay: Duration::from_millis(25) }
    }

    #[test]
    fn the_frame_is_the_drafts_and_asks_for_one_packet_less() {
        let frame = request(10).encode(70).unwrap();
        // Type, sequence number, 9 packets without an ACK, 25,000 µs, reordering threshold, PADDING.
        assert_eq!(frame, [0x40, 0xaf, 0x40, 70, 9, 0x80, 0, 0x61, 0xa8, 3, 0, 0, 0, 0, 0, 0]);
        let mut frames = Frames::new(&frame);
        assert_eq!(frames.by_ref().map(|frame| frame.kind).collect::<Vec<_>>(), [ACK_FREQUENCY]);
        assert!(frames.is_done());
    }

    #[test]
    fn a_frame_that_does_not_fit_is_none() {
        assert!(request(2).encode((1 << 30) - 1).is_some());
        let longest = Request { threshold: u32::MAX, max_ack_delay: Duration::from_secs(5000) };
        assert_eq!(longest.encode(1 << 30), None);
        assert_eq!(request(2).encode(u64::MAX), None);
        assert_eq!(Request { threshold: 2, max_ack_delay: Duration::MAX }.encode(0), None);
    }
}
