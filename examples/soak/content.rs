//! Bodies that can be generated and checked from a seed, at any place, and random numbers that are the same for one
//! seed.
//! Pure. Two bodies differ everywhere, so that bytes of another stream, or of another place, do not pass.

use bytes::Bytes;

/// Of one word of a body.
const WORD: u64 = 8;

/// One body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) seed: u64,
    /// In bytes.
    pub(crate) length: u64,
}

impl Content {
    /// The bytes from `offset` on: `most`, or fewer at the body's end.
    pub(crate) fn piece(self, offset: u64, most: usize) -> Bytes {
        let end = self.length.min(offset.saturating_add(most as u64)).max(offset);
        let mut bytes = Vec::with_capacity(most.saturating_add(size_of::<[u64; 2]>()));
        for index in offset / WORD..end.div_ceil(WORD) {
            bytes.extend_from_slice(&self.word(index));
        }
        bytes.truncate(usize::try_from(end - offset / WORD * WORD).unwrap_or(usize::MAX));
        let skipped = usize::try_from(offset % WORD).unwrap_or_default().min(bytes.len());
        Bytes::from(bytes).slice(skipped..)
    }

    /// Whether `found` is what stands at `offset`.
    ///
    /// # Errors
    ///
    /// The place of the first byte that is not.
    pub(crate) fn check(self, offset: u64, found: &[u8]) -> Result<(), u64> {
        let due = self.piece(offset, found.len());
        if due == found {
            return Ok(());
        }
        Err(offset + due.iter().zip(found).take_while(|(due, found)| due == found).count() as u64)
    }

    fn word(self, index: u64) -> [u8; size_of::<u64>()] {
        mix(mix(self.seed) ^ index).to_le_bytes()
    }
}

/// Numbers that look random (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Those of the player `number` in the run `seed`.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(mix(seed ^ mix(number)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low) + 1)
    }

    /// The same, with each order of magnitude as likely as the others.
    pub(crate) fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let doublings = (high / low.max(1)).max(1).ilog2();
        let low = low << self.between(0, u64::from(doublings));
        self.between(low, high.min(2 * low))
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_any_place_make_the_body() {
        let content = Content { seed: 7, length: 1003 };
        let whole = content.piece(0, 5000);
        assert_eq!(whole.len(), 1003);
        for offset in 0..=1003 {
            let piece = content.piece(offset, 21);
            let end = 1003.min(offset + 21);
            assert_eq!(piece, whole[usize::try_from(offset).unwrap()..usize::try_from(end).unwrap()]);
            assert_eq!(content.check(offset, &piece), Ok(()));
        }
    }

    #[test]
    fn another_place_another_body_and_a_byte_too_many_are_told() {
        let (content, other) = (Content { seed: 7, length: 1000 }, Content { seed: 8, length: 1000 });
        assert_eq!(content.check(8, &content.piece(16, 100)), Err(8));
        assert!(content.check(0, &other.piece(0, 100)).is_err());
        let mut long = content.piece(0, 1000).to_vec();
        long.push(0);
        assert_eq!(content.check(0, &long), Err(1000));
        long.truncate(1000);
        long[503] ^= 1;
        assert_eq!(content.check(0, &long), Err(503));
    }

    #[test]
    fn dice_keep_their_bounds_and_repeat_with_their_seed() {
        let (mut dice, mut again) = (Dice::new(1, 2), Dice::new(1, 2));
        for _ in 0..10_000 {
            let (between, magnitude) = (dice.between(3, 5), dice.magnitude(1_000, 50_000));
            assert!((3..=5).contains(&between) && (1_000..=50_000).contains(&magnitude));
            assert_eq!((between, magnitude), (again.between(3, 5), again.magnitude(1_000, 50_000)));
        }
    }
}
