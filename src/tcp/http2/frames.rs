//! Counts the frames of an HTTP/2 connection by kind: only their headers are read (RFC 9113 §4.1). h2 bounds what it
//! buffers; this bounds how often. Pure.

use crate::rate::Bucket;
use std::time::Instant;

/// Bytes of the client's connection preface (§3.4), which is not a frame.
const PREFACE: usize = 24;
/// Bytes of a frame's header.
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// A DATA frame of fewer bytes moves next to nothing.
const SMALL: u32 = 64;

/// More frames of a kind than are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Neither DATA nor HEADERS.
    Control,
    /// DATA with next to nothing in them.
    Small,
}

/// Counts the frames of one connection.
#[derive(Debug)]
pub struct Frames {
    /// Bytes to skip: the preface, then payloads.
    skip: u64,
    /// The header that is not whole yet.
    header: [u8; HEADER],
    have: usize,
    control: Bucket,
    small: Bucket,
    /// Bytes of DATA frames, padding included, since the last call.
    data: u64,
    /// HEADERS frames since the last call.
    heads: u32,
}

impl Frames {
    /// From the preface on, with so many frames of each kind a second.
    pub fn new(control: u32, small: u32) -> Self {
        let (control, small) = (Bucket::new(control), Bucket::new(small));
        Self { skip: PREFACE as u64, header: [0; HEADER], have: 0, control, small, data: 0, heads: 0 }
    }

    /// Bytes of the DATA frames whose headers came since the last call, as flow control counts them (§6.9.1).
    pub fn take_data(&mut self) -> u64 {
        std::mem::take(&mut self.data)
    }

    /// HEADERS frames whose headers came since the last call.
    pub fn take_heads(&mut self) -> u32 {
        std::mem::take(&mut self.heads)
    }

    /// Counts received bytes.
    ///
    /// # Errors
    ///
    /// [`Flood`]: the connection is to be closed.
    pub fn read(&mut self, bytes: &[u8], now: Instant) -> Result<(), Flood> {
        let mut rest = bytes;
        let (mut control, mut small) = (0_u32, 0_u32);
        while !rest.is_empty() {
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(rest.len());
                self.skip = self.skip.saturating_sub(skipped as u64);
                rest = rest.get(skipped..).unwrap_or_default();
                continue;
            }
            let (room, wanted) =
                (self.header.get_mut(self.have..).unwrap_or_default(), HEADER.saturating_sub(self.have));
            let taken = wanted.min(rest.len());
            for (to, from) in room.iter_mut().zip(rest) {
                *to = *from;
            }
            rest = rest.get(taken..).unwrap_or_default();
            self.have = self.have.saturating_add(taken);
            if self.have < HEADER {
                break;
            }
            self.have = 0;
            let [a, b, c, kind, ..] = self.header;
            let length = u32::from_be_bytes([0, a, b, c]);
            self.skip = length.into();
            if kind == DATA {
                self.data = self.data.saturating_add(length.into());
            }
            match kind {
                HEADERS => self.heads = self.heads.saturating_add(1),
                DATA if length >= SMALL => {}
                DATA => small = small.saturating_add(1),
                _ => control = control.saturating_add(1),
            }
        }
        if control > 0 && !self.control.take(control, now) {
            return Err(Flood::Control);
        }
        if small > 0 && !self.small.take(small, now) {
            return Err(Flood::Small);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    fn frame(kind: u8, length: u32) -> Vec<u8> {
        let [_, a, b, c] = length.to_be_bytes();
        [&[a, b, c, kind, 0, 0, 0, 0, 1][..], &vec![6; length as usize]].concat()
    }

    /// A connection of those frames, shown in pieces of `step` bytes.
    fn read(frames: &[(u8, u32)], step: usize) -> Result<(), Flood> {
        let mut all = vec![b'P'; PREFACE];
        all.extend(frames.iter().flat_map(|(kind, length)| frame(*kind, *length)));
        // Ten seconds' worth of one a second.
        let mut counted = Frames::new(1, 1);
        let now = Instant::now();
        all.chunks(step).try_for_each(|piece| counted.read(piece, now))
    }

    #[test]
    fn each_kind_has_its_own_account() {
        for step in [1, 5, 10_000] {
            for kind in [2, 3, 4, 6, 8, 9, 77] {
                assert_eq!(read(&[(kind, 8); 10], step), Ok(()), "kind {kind}");
                assert_eq!(read(&[(kind, 8); 11], step), Err(Flood::Control), "kind {kind}");
            }
            assert_eq!(read(&[(DATA, 63); 10], step), Ok(()));
            assert_eq!(read(&[(DATA, 0); 11], step), Err(Flood::Small));
            assert_eq!(read(&vec![(DATA, 64); 100], step), Ok(()));
            assert_eq!(read(&vec![(HEADERS, 3); 100], step), Ok(()));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..20) {
            let mut counted = Frames::new(1, 1);
            for piece in bytes.chunks(step) {
                let _ = counted.read(piece, Instant::now());
            }
        }
    }
}
