//! The content of uploads: byte `i` is `i % 251`, so that the receiver can check it without further information.

use bytes::Bytes;

/// 251 is prime: a byte lost or doubled anywhere shifts all that follow.
const PERIOD: usize = 251;

/// A multiple of the period, and long enough to be written in few pieces.
const BLOCK: usize = PERIOD * 256;

/// Pieces of an upload, cut from one block that is never copied.
pub(super) struct Content {
    block: Bytes,
}

impl Content {
    pub(super) fn new() -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of 251 is a byte")]
        Self { block: (0..BLOCK).map(|index| (index % PERIOD) as u8).collect() }
    }

    /// What stands at `offset`: as much as is at hand, `left` bytes at most, nothing if none are left.
    pub(super) fn piece(&self, offset: u64, left: u64) -> Bytes {
        let start = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK - start);
        self.block.slice(start..start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_make_the_same_content() {
        let content = Content::new();
        let total = 3 * BLOCK as u64 + 17;
        let mut offset = 0;
        while offset < total {
            let piece = content.piece(offset, (total - offset).min(7919));
            for (index, byte) in piece.iter().enumerate() {
                assert_eq!(u64::from(*byte), (offset + index as u64) % 251);
            }
            offset += piece.len() as u64;
        }
        assert_eq!(offset, total);
        assert!(content.piece(total, 0).is_empty());
    }
}
