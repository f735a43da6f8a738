//! Keeps the generations of other processes that have connections on the same addresses: a predecessor that drains, a
//! successor that takes over (docs/adr/0020-upgrade.md). All have the same stateless reset tokens, so a reset from this
//! process would end a connection of another one (RFC 9000 §21.11): none is sent as long as they run.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A set of generations. Written by the control thread; workers read it for packets without a connection.
#[derive(Debug)]
pub struct Generations([AtomicBool; 256]);

impl Default for Generations {
    fn default() -> Self {
        Self([const { AtomicBool::new(false) }; 256])
    }
}

impl Generations {
    /// A set of exactly `generations`.
    pub fn from_numbers(generations: impl IntoIterator<Item = u8>) -> Self {
        let this = Self::default();
        this.replace_generations(generations);
        this
    }

    /// Replaces the set by `generations`.
    pub fn replace_generations(&self, generations: impl IntoIterator<Item = u8>) {
        let generations: HashSet<u8> = generations.into_iter().collect();
        for (number, member) in (0..=u8::MAX).zip(&self.0) {
            member.store(generations.contains(&number), Relaxed);
        }
    }

    /// Replaces the set by all generations: another process serves, or soon will, and tracks the others.
    pub fn include_all(&self) {
        self.replace_generations(0..=u8::MAX);
    }

    pub(super) fn contains(&self, generation: u8) -> bool {
        self.0.get(usize::from(generation)).is_some_and(|member| member.load(Relaxed))
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
