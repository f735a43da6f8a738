//! Chooses the claims that are evicted first when a shared resource without slots is short: memory, or connections of
//! several pools. Pure.

use super::client_source::{ClientSource, MAX_SOURCE_NETWORKS, SourceKey};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::RandomState,
};

/// Claims of clients, as an iterator over the claims to evict: each time one of the source that holds most by then. On
/// each level the network with the largest sum is chosen, the widest first, and in a source the claim that was added
/// first.
#[derive(Debug)]
pub struct EvictionOrder<T> {
    /// Amount that each network holds, and each connection that is a source of its own. Clients choose their addresses,
    /// so the hash has a random seed.
    totals: HashMap<SourceKey, u64, RandomState>,
    numbers: HashMap<SourceKey, usize, RandomState>,
    sources: Vec<SourceClaims<T>>,
    /// Sources that have a claim left, with the amounts that their networks held when last read: amounts only shrink.
    order: BinaryHeap<(LevelTotals, Reverse<usize>)>,
}

/// Amounts that the networks of a source hold, from the widest down.
type LevelTotals = [u64; MAX_SOURCE_NETWORKS];

/// Claims of one source that may be evicted.
#[derive(Debug)]
struct SourceClaims<T> {
    levels: [Option<SourceKey>; MAX_SOURCE_NETWORKS],
    left: VecDeque<(u64, T)>,
}

impl<T> Default for EvictionOrder<T> {
    fn default() -> Self {
        Self { totals: HashMap::default(), numbers: HashMap::default(), sources: Vec::new(), order: BinaryHeap::new() }
    }
}

impl<T> EvictionOrder<T> {
    /// Counts `amount` for `source`, which cannot be evicted.
    pub fn add_fixed_amount(&mut self, source: &ClientSource, amount: u64) {
        for key in source.network_keys().into_iter().flatten() {
            let total = self.totals.entry(key).or_default();
            *total = total.saturating_add(amount);
        }
    }

    /// Counts `amount` for `source`, which the eviction of `claim` frees.
    pub fn add_claim(&mut self, source: &ClientSource, amount: u64, claim: T) {
        self.add_fixed_amount(source, amount);
        let levels = source.network_keys();
        let Some(own) = levels.into_iter().flatten().last() else { return };
        let sources = &mut self.sources;
        let number = *self.numbers.entry(own).or_insert_with(|| {
            sources.push(SourceClaims { levels, left: VecDeque::new() });
            sources.len().saturating_sub(1)
        });
        if let Some(claims) = sources.get_mut(number) {
            claims.left.push_back((amount, claim));
            if claims.left.len() == 1 {
                // An upper bound; the real amounts are read when this source is next.
                self.order.push(([u64::MAX; MAX_SOURCE_NETWORKS], Reverse(number)));
            }
        }
    }

    fn network_totals(&self, levels: &[Option<SourceKey>; MAX_SOURCE_NETWORKS]) -> LevelTotals {
        levels.map(|key| key.and_then(|key| self.totals.get(&key)).copied().unwrap_or(0))
    }
}

impl<T> Iterator for EvictionOrder<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            let (before, Reverse(number)) = self.order.pop()?;
            let levels = self.sources.get(number)?.levels;
            let held = self.network_totals(&levels);
            if held < before {
                self.order.push((held, Reverse(number)));
                continue;
            }
            let left = &mut self.sources.get_mut(number)?.left;
            let (amount, claim) = left.pop_front()?;
            if !left.is_empty() {
                self.order.push((held, Reverse(number)));
            }
            for key in levels.into_iter().flatten() {
                if let Some(total) = self.totals.get_mut(&key) {
                    *total = total.saturating_sub(amount);
                }
            }
            return Some(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(network: u8, host: u8, connection: u64) -> ClientSource {
        ClientSource::new(Some(([192, 0, network, host].into(), 32)), connection)
    }

    #[test]
    fn the_largest_source_loses_claims_until_another_is_larger() {
        let mut victims = EvictionOrder::default();
        for (name, claimant, amount) in [
            ("one large claim", source(1, 1, 1), 50),
            ("first of many", source(2, 1, 2), 30),
            ("second of many", source(2, 1, 3), 30),
            ("third of many", source(2, 1, 4), 30),
            ("its own source", ClientSource::new(None, 5), 40),
            ("another that is", ClientSource::new(None, 6), 5),
        ] {
            victims.add_claim(&claimant, amount, name);
        }
        victims.add_fixed_amount(&source(1, 2, 7), 1);
        let order: Vec<&str> = victims.collect();
        assert_eq!(
            order,
            [
                "first of many",
                "second of many",
                "one large claim",
                "its own source",
                "third of many",
                "another that is"
            ]
        );
    }

    #[test]
    fn a_network_that_is_split_over_many_sources_counts_as_one() {
        let mut victims = EvictionOrder::default();
        (0..100).for_each(|host| victims.add_claim(&source(1, host, host.into()), 1, "split"));
        (0..40).for_each(|nth| victims.add_claim(&source(2, 1, 100 + nth), 1, "whole"));
        assert!(victims.by_ref().take(60).all(|name| name == "split"));
        let even: Vec<&str> = victims.take(40).collect();
        assert_eq!(even.iter().filter(|name| **name == "split").count(), 20);
    }

    proptest! {
        #[test]
        fn no_claim_of_a_smaller_source_is_evicted_first(
            claims in prop::collection::vec((0_u8..3, 0_u8..3, 0_u64..100), 0..40),
        ) {
            let (mut victims, mut left) = (EvictionOrder::default(), Vec::new());
            for (nth, (network, host, amount)) in (0_u64..).zip(claims) {
                victims.add_claim(&source(network, host, nth), amount, nth);
                left.push((nth, network, host, amount));
            }
            let sum = |left: &[(u64, u8, u8, u64)], of: &dyn Fn(u8, u8) -> bool| -> u64 {
                left.iter().filter(|(_, network, host, _)| of(*network, *host)).map(|(.., amount)| amount).sum()
            };
            for nth in victims {
                let at = left.iter().position(|(other, ..)| *other == nth).unwrap();
                let (_, network, host, _) = left[at];
                let first = left.iter().position(|(_, n, h, _)| (*n, *h) == (network, host)).unwrap();
                prop_assert_eq!(first, at, "the first of its source");
                for (_, other, other_host, _) in &left {
                    let held = |network: u8| sum(&left, &|n, _| n == network);
                    prop_assert!(held(*other) <= held(network));
                    if *other == network {
                        let held = |host: u8| sum(&left, &|n, h| (n, h) == (network, host));
                        prop_assert!(held(*other_host) <= held(host));
                    }
                }
                left.remove(at);
            }
            prop_assert!(left.is_empty());
        }
    }
}
