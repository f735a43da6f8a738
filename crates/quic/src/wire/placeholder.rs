//! Puts a frame of litequic's own into a packet of s2n-quic, in the place of empty DATAGRAM frames
//! (docs/adr/0013-adaptive-ack-frequency.md). Pure; `quic::endpoint::frame_slot` writes them, and the module that
//! marked the packet replaces them before it is encrypted.

use super::frame::FrameIter;
use std::ops::{Range, RangeInclusive};

/// Types of DATAGRAM frames, the second with a length (RFC 9221 §4).
const DATAGRAM_TYPES: RangeInclusive<u64> = 0x30..=0x31;
/// Bytes of an empty DATAGRAM frame: `31 00`.
const EMPTY_DATAGRAM_LEN: usize = 2;

/// Empty DATAGRAM frames in a placeholder.
pub(crate) const PLACEHOLDER_DATAGRAMS: usize = 8;
/// Bytes of a placeholder.
pub(crate) const PLACEHOLDER_LEN: usize = PLACEHOLDER_DATAGRAMS * EMPTY_DATAGRAM_LEN;

/// A placeholder as written by s2n-quic.
#[cfg(test)]
pub(crate) const PLACEHOLDER_BYTES: [u8; PLACEHOLDER_LEN] =
    [0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0, 0x31, 0];

/// Replaces the placeholder in an unencrypted payload by `frame`. False without a whole placeholder, or without a
/// frame. PADDING replaces all DATAGRAM frames in either case.
pub(crate) fn replace_placeholder(payload: &mut [u8], frame: Option<[u8; PLACEHOLDER_LEN]>) -> bool {
    let datagrams: Vec<Range<usize>> =
        FrameIter::new(payload).filter(|frame| DATAGRAM_TYPES.contains(&frame.kind)).map(|frame| frame.range).collect();
    for range in &datagrams {
        if let Some(datagram) = payload.get_mut(range.clone()) {
            datagram.fill(0);
        }
    }
    let (Some(first), Some(last), Some(frame)) = (datagrams.first(), datagrams.last(), frame) else { return false };
    let whole = datagrams.len() == PLACEHOLDER_DATAGRAMS && last.end - first.start == PLACEHOLDER_LEN;
    let place = payload.get_mut(first.start..last.end).filter(|_| whole);
    place.map(|place| place.copy_from_slice(&frame)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    const KIND: u64 = 0xaf;
    /// An ACK_FREQUENCY frame, filled up with PADDING.
    const FRAME: [u8; PLACEHOLDER_LEN] = [0x40, 0xaf, 1, 9, 25, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn kinds(payload: &[u8]) -> (Vec<u64>, bool) {
        let mut frames = FrameIter::new(payload);
        (frames.by_ref().map(|frame| frame.kind).collect(), frames.is_fully_parsed())
    }

    #[test]
    fn a_placeholder_is_replaced_wherever_s2n_quic_put_it() {
        let frame = Some(FRAME);
        // An ACK frame and control frames precede the placeholder; stream data that looks like one follows.
        let before = [0x02, 9, 0, 0, 2, 0x1e, 0x10, 0x40, 0x64];
        let behind = [&[0x08, 0][..], &PLACEHOLDER_BYTES].concat();
        let mut payload = [&before[..], &PLACEHOLDER_BYTES, &behind].concat();
        assert!(replace_placeholder(&mut payload, frame));
        assert_eq!(payload, [&before[..], &FRAME, &behind].concat());
    }

    #[test]
    fn an_incomplete_placeholder_becomes_padding() {
        let frame = Some(FRAME);
        let table: &[(&str, Vec<u8>)] = &[
            ("one too few", PLACEHOLDER_BYTES[2..].to_vec()),
            ("one too many", [&PLACEHOLDER_BYTES[..], &[0x31, 0]].concat()),
            ("in two pieces", [&PLACEHOLDER_BYTES[..6], &[1], &PLACEHOLDER_BYTES[6..]].concat()),
            ("with something in it", [&PLACEHOLDER_BYTES[..14], &[0x31, 1, 7]].concat()),
            ("the last without a length", [&PLACEHOLDER_BYTES[..14], &[0x30]].concat()),
        ];
        for (what, place) in table {
            let mut payload = [&[0x1e][..], place].concat();
            assert!(!replace_placeholder(&mut payload, frame), "{what}");
            assert!(kinds(&payload).0.iter().all(|kind| !DATAGRAM_TYPES.contains(kind)), "{what}: {payload:x?}");
            assert_eq!(payload[0], 0x1e, "{what}");
        }
        let mut payload = PLACEHOLDER_BYTES.to_vec();
        assert!(!replace_placeholder(&mut payload, None), "a frame that could not be encoded");
        assert_eq!(payload, [0; PLACEHOLDER_LEN]);
        assert!(!replace_placeholder(&mut [0x01, 0x1e], frame), "no placeholder at all");
    }

    proptest! {
        #[test]
        fn no_datagram_frame_is_left_and_other_frames_are_unchanged(
            before in vec(
                select(vec![vec![0x02, 9, 0, 0, 2], vec![0x1e], vec![0x19, 1], vec![0, 0], vec![0x31, 0]]),
                0..5,
            ),
            behind in vec(select(vec![vec![0x0a, 0, 2, 0x31, 0], vec![0x31, 0], vec![0x31, 1, 9], vec![1]]), 0..5),
        ) {
            let original = [&before.concat()[..], &PLACEHOLDER_BYTES, &behind.concat()].concat();
            let mut payload = original.clone();
            let alone = !before.iter().chain(&behind).any(|frame| frame[0] == 0x31);
            prop_assert_eq!(replace_placeholder(&mut payload, Some(FRAME)), alone);
            let (kinds, done) = kinds(&payload);
            prop_assert!(done && !kinds.iter().any(|kind| DATAGRAM_TYPES.contains(kind)));
            prop_assert_eq!(kinds.contains(&KIND), alone);
            let (at, others) = (before.concat().len(), [&before[..], &behind].concat());
            let kept = others.iter().filter(|frame| !matches!(frame[0], 0 | 0x31)).map(|frame| u64::from(frame[0]));
            prop_assert_eq!(
                kinds.into_iter().filter(|&kind| kind != KIND).collect::<Vec<_>>(),
                kept.collect::<Vec<_>>()
            );
            if alone {
                prop_assert_eq!(&payload[..at], &original[..at]);
                prop_assert_eq!(&payload[at + PLACEHOLDER_LEN..], &original[at + PLACEHOLDER_LEN..]);
            }
        }
    }
}
