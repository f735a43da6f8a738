//! How an ACK_FREQUENCY frame gets into a packet of an s2n-quic that does not know it: in the place of empty DATAGRAM
//! frames (docs/adr/0013-adaptive-ack-frequency.md). Pure; one end writes them, the other replaces them before the packet
//! is encrypted.

use super::super::frame::Frames;
use s2n_codec::{Encoder, EncoderBuffer, EncoderValue};
use s2n_quic_core::varint::VarInt;
use std::{
    ops::{Range, RangeInclusive},
    time::Duration,
};

/// ACK_FREQUENCY of draft-ietf-quic-ack-frequency-12.
const ACK_FREQUENCY: u64 = 0xaf;
/// DATAGRAM, the second with a length (RFC 9221 §4).
const DATAGRAM: RangeInclusive<u64> = 0x30..=0x31;
/// Octets of an empty DATAGRAM frame: `31 00`.
const DATAGRAM_LEN: usize = 2;
/// What a client is to let pass before it acknowledges out of turn: what s2n-quic lets pass before it takes a packet
/// for lost (RFC 9002 §6.1.1), as the draft's section on that value asks.
const REORDERING_THRESHOLD: u64 = 3;

/// Empty DATAGRAM frames that stand for a frame.
pub(super) const DATAGRAMS: usize = 8;
/// Octets of a placeholder: 2 for the type, 1 for the reordering threshold, and 13 for three numbers of which none
/// needs more than 4 here.
pub(in super::super) const LEN: usize = DATAGRAMS * DATAGRAM_LEN;

/// What a client is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Packets that one acknowledgement is for.
    pub(super) threshold: u32,
    /// The longest that it may delay one.
    pub(super) max_ack_delay: Duration,
}

impl Request {
    /// The frame, filled up with PADDING; `None` if it takes more room.
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

/// Puts `frame` where a placeholder stands in an unencrypted payload. False if there is no whole one, or nothing to put
/// there. No DATAGRAM frame is left in either case: PADDING stands in its place.
pub(in super::super) fn replace(payload: &mut [u8], frame: Option<[u8; LEN]>) -> bool {
    let datagrams: Vec<Range<usize>> =
        Frames::new(payload).filter(|frame| DATAGRAM.contains(&frame.kind)).map(|frame| frame.range).collect();
    for range in &datagrams {
        if let Some(datagram) = payload.get_mut(range.clone()) {
            datagram.fill(0);
        }
    }
    let (Some(first), Some(last), Some(frame)) = (datagrams.first(), datagrams.last(), frame) else { return false };
    let whole = datagrams.len() == DATAGRAMS && last.end - first.start == LEN;
    let place = payload.get_mut(first.start..last.end).filter(|_| whole);
    place.map(|place| place.copy_from_slice(&frame)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    const PLACE: [u8; LEN] = [0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0];

    fn request(threshold: u32) -> Request {
        Request { threshold, max_ack_delay: Duration::from_millis(25) }
    }

    #[test]
    fn the_frame_is_the_drafts_and_asks_for_one_packet_less() {
        let frame = request(10).encode(70).unwrap();
        // Type, sequence number, 9 packets without an ACK, 25,000 µs, reordering threshold, PADDING.
        assert_eq!(frame, [0x40, 0xaf, 0x40, 70, 9, 0x80, 0, 0x61, 0xa8, 3, 0, 0, 0, 0, 0, 0]);
        let (kinds, done) = kinds(&frame);
        assert_eq!((kinds, done), (vec![ACK_FREQUENCY], true));
    }

    #[test]
    fn a_frame_that_does_not_fit_is_none() {
        assert!(request(2).encode((1 << 30) - 1).is_some());
        let longest = Request { threshold: u32::MAX, max_ack_delay: Duration::from_secs(5000) };
        assert_eq!(longest.encode(1 << 30), None);
        assert_eq!(request(2).encode(u64::MAX), None);
        assert_eq!(Request { threshold: 2, max_ack_delay: Duration::MAX }.encode(0), None);
    }

    fn kinds(payload: &[u8]) -> (Vec<u64>, bool) {
        let mut frames = Frames::new(payload);
        (frames.by_ref().map(|frame| frame.kind).collect(), frames.is_done())
    }

    #[test]
    fn a_placeholder_is_replaced_wherever_s2n_quic_put_it() {
        let frame = request(32).encode(1);
        // An ACK before, control frames before, stream data behind that looks like a placeholder.
        let before = [0x02, 9, 0, 0, 2, 0x1e, 0x10, 0x40, 0x64];
        let behind = [&[0x08, 0][..], &PLACE].concat();
        let mut payload = [&before[..], &PLACE, &behind].concat();
        assert!(replace(&mut payload, frame));
        assert_eq!(payload, [&before[..], &frame.unwrap(), &behind].concat());
    }

    #[test]
    fn what_is_no_whole_placeholder_becomes_padding() {
        let frame = request(32).encode(1);
        let table: &[(&str, Vec<u8>)] = &[
            ("one too few", PLACE[2..].to_vec()),
            ("one too many", [&PLACE[..], &[0x31, 0]].concat()),
            ("in two pieces", [&PLACE[..6], &[1], &PLACE[6..]].concat()),
            ("with something in it", [&PLACE[..14], &[0x31, 1, 7]].concat()),
            ("the last without a length", [&PLACE[..14], &[0x30]].concat()),
        ];
        for (what, place) in table {
            let mut payload = [&[0x1e][..], place].concat();
            assert!(!replace(&mut payload, frame), "{what}");
            assert!(kinds(&payload).0.iter().all(|kind| !DATAGRAM.contains(kind)), "{what}: {payload:x?}");
            assert_eq!(payload[0], 0x1e, "{what}");
        }
        let mut payload = PLACE.to_vec();
        assert!(!replace(&mut payload, None), "a frame that could not be encoded");
        assert_eq!(payload, [0; LEN]);
        assert!(!replace(&mut [0x01, 0x1e], frame), "no placeholder at all");
    }

    proptest! {
        #[test]
        fn no_datagram_frame_is_left_and_nothing_else_is_touched(
            before in vec(select(vec![vec![0x02, 9, 0, 0, 2], vec![0x1e], vec![0x19, 1], vec![0, 0], vec![0x31, 0]]), 0..5),
            behind in vec(select(vec![vec![0x0a, 0, 2, 0x31, 0], vec![0x31, 0], vec![0x31, 1, 9], vec![1]]), 0..5),
            sequence in 0..1u64 << 30,
            threshold in 2..10_000u32,
        ) {
            let original = [&before.concat()[..], &PLACE, &behind.concat()].concat();
            let mut payload = original.clone();
            let frame = request(threshold).encode(sequence);
            prop_assert!(frame.is_some());
            let alone = !before.iter().chain(&behind).any(|frame| frame[0] == 0x31);
            prop_assert_eq!(replace(&mut payload, frame), alone);
            let (kinds, done) = kinds(&payload);
            prop_assert!(done && !kinds.iter().any(|kind| DATAGRAM.contains(kind)));
            prop_assert_eq!(kinds.contains(&ACK_FREQUENCY), alone);
            let (at, others) = (before.concat().len(), [&before[..], &behind].concat());
            let kept = others.iter().filter(|frame| !matches!(frame[0], 0 | 0x31)).map(|frame| u64::from(frame[0]));
            prop_assert_eq!(
                kinds.into_iter().filter(|&kind| kind != ACK_FREQUENCY).collect::<Vec<_>>(),
                kept.collect::<Vec<_>>()
            );
            if alone {
                prop_assert_eq!(&payload[..at], &original[..at]);
                prop_assert_eq!(&payload[at + LEN..], &original[at + LEN..]);
            }
        }
    }
}
