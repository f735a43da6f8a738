//! The frames of an HTTP/2 connection in any pieces: as many are counted of each kind as a reader of the whole finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_tcp::http2::{FrameCounter, FrameFlood};
use std::time::Instant;

/// What [`Frames`] allows at once of a kind of which it allows one a second.
const ALLOWED: usize = 10;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let now = Instant::now();
    let read = |piece: usize| {
        let mut frames = FrameCounter::new(1);
        frames.updates = Some(Vec::new());
        let read = bytes.chunks(piece.max(1)).try_for_each(|piece| frames.count_received_frames(piece, now));
        (read, frames.updates, frames.small)
    };
    let (whole, updates, small) = read(bytes.len());
    let (expected, expected_small) = expected(bytes);
    assert_eq!((whole, small), (expected, expected_small));
    let (in_pieces, of_pieces, small_of_pieces) = read(piece.into());
    assert_eq!(whole.is_err(), in_pieces.is_err());
    assert!(whole.is_err() || updates == of_pieces && small == small_of_pieces);
});

/// RFC 9113 §4.1, behind the preface of §3.4.
fn expected(bytes: &[u8]) -> (Result<(), FrameFlood>, u32) {
    let (mut control, mut small, mut first) = (0, 0, 0_u32);
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let &[a, b, c, kind, _, _, _, _, _, ref payload @ ..] = rest {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            0 if length < 64 && first > 0 => first -= 1,
            0 => small += u32::from(length < 64),
            1 => first += 1,
            _ => control += 1,
        }
        rest = payload.get(length..).unwrap_or_default();
    }
    (if control > ALLOWED { Err(FrameFlood) } else { Ok(()) }, small)
}
