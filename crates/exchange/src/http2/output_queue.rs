//! Queues the bytes that an HTTP/2 connection has to write. Frames are collected in one buffer; a large piece of a body
//! is not copied, but stands between two such buffers.

use bytes::{Buf, Bytes};
use std::{collections::VecDeque, io::IoSlice, mem};

/// Shortest piece of a body that is queued without a copy, in bytes: below this, the copy costs less than a part of its
/// own.
const MIN_SHARED: usize = 2048;
/// Capacity in bytes up to which the empty buffer is kept.
const MAX_KEPT: usize = 16 * 1024;

/// Bytes to be written, in order.
#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    /// Complete parts, in front of `tail`.
    parts: VecDeque<Bytes>,
    /// Frames behind the last part.
    pub(super) tail: Vec<u8>,
    /// Number of bytes of `tail` that are written already.
    written: usize,
    /// Number of bytes in `parts`.
    part_bytes: usize,
}

impl OutputQueue {
    /// Appends a piece of a body.
    pub(super) fn push_body_piece(&mut self, piece: Bytes) {
        if piece.len() < MIN_SHARED {
            self.tail.extend_from_slice(&piece);
            return;
        }
        let mut frames = Bytes::from(mem::take(&mut self.tail));
        frames.advance(mem::take(&mut self.written));
        for part in [frames, piece].into_iter().filter(|part| !part.is_empty()) {
            self.part_bytes = self.part_bytes.saturating_add(part.len());
            self.parts.push_back(part);
        }
    }

    /// Number of bytes in the queue.
    pub(super) fn len(&self) -> usize {
        self.part_bytes.saturating_add(self.tail.len()).saturating_sub(self.written)
    }

    /// Fills `slices` with the beginning of the queue, and returns the number of slices that are filled.
    pub(super) fn fill_slices<'q>(&'q self, slices: &mut [IoSlice<'q>]) -> usize {
        let tail = self.tail.get(self.written..).unwrap_or_default();
        let parts = self.parts.iter().map(|part| &**part).chain([tail]).filter(|part| !part.is_empty());
        parts.zip(slices).map(|(part, slot)| *slot = IoSlice::new(part)).count()
    }

    /// Removes the first `bytes`, which were written.
    pub(super) fn skip_written(&mut self, mut bytes: usize) {
        while let Some(part) = self.parts.front_mut() {
            let taken = bytes.min(part.len());
            part.advance(taken);
            self.part_bytes = self.part_bytes.saturating_sub(taken);
            bytes = bytes.saturating_sub(taken);
            if !part.is_empty() {
                return;
            }
            self.parts.pop_front();
        }
        self.written = self.written.saturating_add(bytes);
        if self.written >= self.tail.len() {
            self.written = 0;
            self.tail.clear();
            self.tail.shrink_to(MAX_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_whatever_their_size() {
        let (mut queue, mut expected) = (OutputQueue::default(), Vec::new());
        let mut written = Vec::new();
        for size in [0, 1, MIN_SHARED - 1, MIN_SHARED, 50_000, 3] {
            queue.tail.extend_from_slice(b"frame");
            let piece = Bytes::from(vec![u8::try_from(size % 251).unwrap(); size]);
            queue.push_body_piece(piece.clone());
            expected.extend_from_slice(b"frame");
            expected.extend_from_slice(&piece);
            let mut slices = [IoSlice::new(&[]); 2];
            let count = queue.fill_slices(&mut slices);
            let some: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(1000).collect();
            written.extend_from_slice(&some);
            queue.skip_written(some.len());
        }
        while queue.len() > 0 {
            let mut slices = [IoSlice::new(&[]); 1];
            assert_eq!(queue.fill_slices(&mut slices), 1);
            let first = slices[0].to_vec();
            written.extend_from_slice(&first);
            queue.skip_written(first.len());
        }
        assert_eq!(written, expected);
    }
}
