//! How many slots of a pool each source holds; a source is an address or a network. Pure but for the lock, and the log,
//! of [`Pool`].
//!
//! While a pool has room, a source may have as many slots as it likes: many clients may be behind one address. Once more
//! than half of it is taken, a source may have an eighth of it.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The share of a pool that is taken before sources are limited: a half.
const FREE: u64 = 2;
/// The share of a pool that one source may have then: an eighth.
const SHARE: u64 = 8;
/// How often a source is logged.
const LOGGED: Duration = Duration::from_secs(60);

/// Which sources hold slots of one pool. Sources that hold none are removed, so that there are as many as slots at
/// most.
#[derive(Debug)]
pub struct Shares<S> {
    held: HashMap<S, Held>,
}

#[derive(Debug, Default)]
struct Held {
    slots: u64,
    /// When it was refused, and that was logged.
    logged: Option<Instant>,
}

/// Whether a source that holds so many slots may have another, in a pool of `limit`, of which `taken` are taken. How many it
/// holds is asked only of a pool that is more than half full.
pub fn admits(held: impl FnOnce() -> u64, taken: u64, limit: u64) -> bool {
    taken.saturating_mul(FREE) <= limit || held() < (limit / SHARE).max(1)
}

impl<S> Default for Shares<S> {
    fn default() -> Self {
        Self { held: HashMap::new() }
    }
}

impl<S: Copy + Eq + Hash> Shares<S> {
    /// Whether `source` may have another slot in a pool of `limit`, of which `taken` are taken. One that is exempt may.
    pub fn admits(&self, source: Option<S>, taken: u64, limit: u64) -> bool {
        source.is_none_or(|source| admits(|| self.slots(source), taken, limit))
    }

    /// `source` has another slot.
    pub fn take(&mut self, source: Option<S>) {
        if let Some(source) = source {
            let held = self.held.entry(source).or_default();
            held.slots = held.slots.saturating_add(1);
        }
    }

    /// It has one less.
    pub fn give_back(&mut self, source: Option<S>) {
        if let Some(source) = source
            && let Entry::Occupied(mut held) = self.held.entry(source)
        {
            let left = held.get().slots.saturating_sub(1);
            if left == 0 {
                held.remove();
            } else {
                held.get_mut().slots = left;
            }
        }
    }

    /// `source` was rejected by `pool`, which is logged at most once a minute for each source; returns whether it was
    /// now.
    pub fn refused(&mut self, source: S, pool: &str, now: Instant) -> bool
    where
        S: fmt::Display,
    {
        // One that holds nothing is not limited.
        let Some(held) = self.held.get_mut(&source) else { return false };
        let due = held.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOGGED);
        if due {
            held.logged = Some(now);
            tracing::warn!(%source, pool, "a source has reached its share of a pool that is more than half full; rejecting more");
        }
        due
    }

    fn slots(&self, source: S) -> u64 {
        self.held.get(&source).map_or(0, |held| held.slots)
    }
}

/// One pool's, for slots that are given back on their own. One thread alone takes the lock, which is there because
/// s2n-quic's providers must be `Send`.
#[derive(Debug)]
pub struct Pool<S> {
    /// As the log has it.
    name: &'static str,
    shares: Arc<Mutex<Shares<S>>>,
}

/// A slot of a pool that a source holds, given back when dropped.
#[derive(Debug)]
pub struct SourceSlot<S: Copy + Eq + Hash> {
    pool: Pool<S>,
    source: Option<S>,
}

impl<S> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Self { name: self.name, shares: Arc::clone(&self.shares) }
    }
}

impl<S: Copy + Eq + Hash + fmt::Display> Pool<S> {
    /// One of which nothing is taken.
    pub fn new(name: &'static str) -> Self {
        Self { name, shares: Arc::default() }
    }

    /// [`Shares::admits`]; a rejection is logged.
    pub fn admits(&self, source: Option<S>, taken: u64, limit: u64) -> bool {
        self.with(|shares| {
            let admitted = shares.admits(source, taken, limit);
            if let Some(source) = source.filter(|_| !admitted) {
                shares.refused(source, self.name, Instant::now());
            }
            admitted
        })
    }

    /// Whether `source` has a slot, and another that it may be about to give back. One that is exempt is many clients, and counts
    /// as if it had none.
    pub fn has(&self, source: Option<S>) -> bool {
        source.is_some_and(|source| self.with(|shares| shares.slots(source) > 1))
    }

    /// A slot for `source`.
    pub fn take(&self, source: Option<S>) -> SourceSlot<S> {
        self.with(|shares| shares.take(source));
        SourceSlot { pool: self.clone(), source }
    }
}

impl<S> Pool<S> {
    fn with<T>(&self, act: impl FnOnce(&mut Shares<S>) -> T) -> T {
        act(&mut self.shares.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Copy + Eq + Hash> Drop for SourceSlot<S> {
    fn drop(&mut self) {
        self.pool.with(|shares| shares.give_back(self.source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_source_is_limited_to_an_eighth_once_more_than_half_is_taken() {
        for (taken, held, limit, admitted) in [
            (0, 0, 512, true),
            (256, 256, 512, true),
            (257, 256, 512, false),
            (257, 64, 512, false),
            (257, 63, 512, true),
            (511, 0, 512, true),
            (4, 0, 4, true),
            (4, 1, 4, false),
            (0, 0, 0, true),
        ] {
            let mut shares = Shares::default();
            (0..held).for_each(|_| shares.take(Some(1)));
            assert_eq!(shares.admits(Some(1), taken, limit), admitted, "{held} of {taken} of {limit}");
            assert!(shares.admits(None, taken, limit), "exempt");
            assert!(shares.admits(Some(2), taken, limit), "another one");
        }
    }

    #[test]
    fn a_refusal_is_logged_once_a_minute() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        assert!(!shares.refused(1, "pool", now));
        shares.take(Some(1));
        let logged = [0, 1, 59, 60, 61, 120].map(|second| shares.refused(1, "pool", now + Duration::from_secs(second)));
        assert_eq!(logged, [true, false, false, true, false, true]);
    }

    proptest! {
        /// 2,000 clients behind one address are served while there is room; beside an attacker no other source is
        /// rejected.
        #[test]
        fn whatever_a_source_takes_others_find_a_place(
            limit in 16_u64..2_000,
            takes in prop::collection::vec((0_u32..4, any::<bool>()), 0..3_000),
        ) {
            let pool = Pool::new("pool");
            let mut slots: Vec<Vec<SourceSlot<u32>>> = (0..4).map(|_| Vec::new()).collect();
            for (source, takes) in takes {
                let taken = slots.iter().map(Vec::len).sum::<usize>() as u64;
                let held = &mut slots[source as usize];
                if !takes {
                    held.pop();
                } else if taken < limit && pool.admits(Some(source), taken, limit) {
                    held.push(pool.take(Some(source)));
                }
            }
            let taken = slots.iter().map(Vec::len).sum::<usize>() as u64;
            // Four sources at most: a half and four eighths.
            prop_assert!(taken <= limit / 2 + 1 + 3 * (limit / 8 + 1), "{taken} of {limit}");
            prop_assert!(pool.admits(Some(9), taken, limit));
            drop(slots);
            prop_assert!(pool.with(|shares| shares.held.is_empty()));
        }
    }
}
