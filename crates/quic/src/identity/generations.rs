//! Keeps the generations of other processes that have connections on the same addresses: a predecessor that drains, a
//! successor that takes over (docs/adr/0020-upgrade.md). All have the same stateless reset tokens, so a reset from this
//! process would end a connection of another one (RFC 9000 §21.11): none is sent as long as they run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD_BITS: usize = u64::BITS as usize;
/// Words of the set: a bit for each of the 256 generations.
const SET_WORDS: usize = 256 / WORD_BITS;

/// A set of generations. Written by the control thread; workers read it for packets without a connection.
#[derive(Debug, Default)]
pub struct Generations([AtomicU64; SET_WORDS]);

impl Generations {
    /// A set of exactly `generations`.
    pub fn from_numbers(generations: impl IntoIterator<Item = u8>) -> Self {
        let this = Self::default();
        this.replace_generations(generations);
        this
    }

    /// Replaces the set by `generations`.
    pub fn replace_generations(&self, generations: impl IntoIterator<Item = u8>) {
        let mut words = [0; SET_WORDS];
        for generation in generations.into_iter().map(usize::from) {
            if let Some(word) = words.get_mut(generation / WORD_BITS) {
                *word |= 1 << (generation % WORD_BITS);
            }
        }
        self.store_words(words);
    }

    /// Replaces the set by all generations: another process serves, or soon will, and tracks the others.
    pub fn include_all(&self) {
        self.store_words([u64::MAX; SET_WORDS]);
    }

    pub(super) fn contains(&self, generation: u8) -> bool {
        let generation = usize::from(generation);
        self.0.get(generation / WORD_BITS).is_some_and(|word| word.load(Relaxed) >> (generation % WORD_BITS) & 1 == 1)
    }

    fn store_words(&self, words: [u64; SET_WORDS]) {
        self.0.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_generations_set_last() {
        let all = |generations: &Generations| (0..=u8::MAX).filter(|n| generations.contains(*n)).collect::<Vec<_>>();
        let generations = Generations::from_numbers([0, 63, 64, 255]);
        assert_eq!(all(&generations), [0, 63, 64, 255]);
        generations.replace_generations([7]);
        assert_eq!(all(&generations), [7]);
        generations.include_all();
        assert_eq!(all(&generations).len(), 256);
        generations.replace_generations([]);
        assert!(all(&generations).is_empty());
    }
}
