//! Random draws by a seed: the same seed gives the same draws on every machine.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): passes the usual tests, and any seed is a good one.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Draws that begin at `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws for one use of several: independent of those for other uses of the same seed.
    pub(crate) fn stream(seed: u64, stream: u64) -> Self {
        Self(Self(seed ^ Self(stream).next()).next())
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than a million.
    pub(crate) fn millionth(&mut self) -> u32 {
        u32::try_from(self.next() % 1_000_000).unwrap_or_default()
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Less than `limit`, evenly.
    pub(crate) fn within(&mut self, limit: Duration) -> Duration {
        limit.mul_f64(self.unit())
    }

    /// From 0 to less than 1: the 53 bits that a double has.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_and_stream_alone() {
        let draws = |mut random: Random| [random.next(), random.next(), random.next()];
        assert_eq!(draws(Random::stream(1, 2)), draws(Random::stream(1, 2)));
        assert_ne!(draws(Random::stream(1, 2)), draws(Random::stream(2, 2)));
        assert_ne!(draws(Random::stream(1, 2)), draws(Random::stream(1, 3)));
        assert_ne!(draws(Random::new(1)), draws(Random::new(2)));
    }

    #[test]
    fn nothing_is_certain_but_0_and_1() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        let half = (0..10_000).filter(|_| random.chance(0.5)).count();
        assert!((4_700..5_300).contains(&half), "{half}");
        assert!((0..1000).all(|_| random.within(Duration::from_millis(3)) < Duration::from_millis(3)));
    }
}
