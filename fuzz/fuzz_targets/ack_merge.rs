//! ACK frames one after the other: what each acknowledges is what s2n-quic reads, and one is merged only if each number
//! of it was acknowledged before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_quic::{
    AcknowledgedNumbers, MAX_ACKNOWLEDGED_RANGES,
    frame::{AckRanges, FrameIter, NumberRange},
};
use s2n_codec::DecoderBufferMut;
use s2n_quic_core::frame::FrameMut;

/// Merges ranges until none overlap or touch, whatever that costs.
fn union(mut all: Vec<NumberRange>) -> Vec<NumberRange> {
    all.sort_by_key(|range| range.low);
    let mut union: Vec<NumberRange> = Vec::new();
    for range in all {
        match union.last_mut() {
            Some(last) if range.low <= last.high.saturating_add(1) => last.high = last.high.max(range.high),
            _ => union.push(range),
        }
    }
    union
}

fuzz_target!(|payload: &[u8]| {
    let mut acknowledged = AcknowledgedNumbers::default();
    let mut oracle: Vec<NumberRange> = Vec::new();
    // Whether there were ever so many ranges that some may have been forgotten.
    let mut forgets = false;
    let mut copy = payload.to_vec();
    let mut rest = DecoderBufferMut::new(&mut copy);
    let mut frames = FrameIter::new(payload);
    while let Ok((frame, next)) = rest.decode::<FrameMut>() {
        rest = next;
        match frame {
            FrameMut::Padding(_) => continue,
            // litequic's s2n-quic closes the connection at these.
            FrameMut::DcStatelessResetTokens(_) => return,
            _ => {}
        }
        let found = frames.next().expect("a frame that s2n-quic reads");
        let FrameMut::Ack(frame) = frame else { continue };
        let ranges = AckRanges::new(found.body).expect("an ACK frame");
        let read: Vec<NumberRange> = ranges.clone().map(|range| range.expect("numbers")).collect();
        let expected =
            frame.ack_ranges().map(|range| NumberRange { low: range.start().as_u64(), high: range.end().as_u64() });
        assert!(read.iter().copied().eq(expected));

        let known =
            read.iter().all(|range| oracle.iter().any(|known| known.low <= range.low && range.high <= known.high));
        let news = acknowledged.is_news(ranges);
        // What is forgotten is news again.
        assert!(news || known);
        if !forgets {
            assert_eq!(news, !known);
        }
        oracle.extend(read);
        forgets |= oracle.len() > MAX_ACKNOWLEDGED_RANGES;
        oracle = union(oracle);
        assert!(acknowledged.known_ranges().len() <= MAX_ACKNOWLEDGED_RANGES);
    }
});
