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
        let mut frames = FrameCounter::new(1, 1).with_priorities();
        let read = bytes.chunks(piece.max(1)).try_for_each(|piece| frames.count_received_frames(piece, now));
        (read, frames.take_priorities())
    };
    let (whole, updates) = read(bytes.len());
    assert_eq!(whole, expected(bytes));
    let (in_pieces, of_pieces) = read(piece.into());
    assert_eq!(whole.is_err(), in_pieces.is_err());
    assert!(whole.is_err() || updates == of_pieces);
});

/// RFC 9113 §4.1, behind the preface of §3.4.
fn expected(bytes: &[u8]) -> Result<(), FrameFlood> {
    let (mut control, mut small) = (0, 0);
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let &[a, b, c, kind, _, _, _, _, _, ref payload @ ..] = rest {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            0 => small += usize::from(length < 64),
            1 => {}
            _ => control += 1,
        }
        rest = payload.get(length..).unwrap_or_default();
    }
    match () {
        () if control > ALLOWED => Err(FrameFlood::Control),
        () if small > ALLOWED => Err(FrameFlood::Small),
        () => Ok(()),
    }
}
