//! Finds the first rows of a list without sorting the whole list.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Collection of the values with the largest keys, up to a limit.
#[derive(Debug)]
pub struct TopN<T> {
    limit: usize,
    /// Heap with the smallest key on top.
    heap: BinaryHeap<Reverse<RankedValue<T>>>,
}

#[derive(Debug)]
struct RankedValue<T> {
    /// Key and tie-breaker: of values with the same key, the smaller `order` is first.
    key: (u64, Reverse<(usize, u64)>),
    value: T,
}

impl<T> PartialEq for RankedValue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for RankedValue<T> {}

impl<T> PartialOrd for RankedValue<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for RankedValue<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> TopN<T> {
    /// A collection of at most `limit` values.
    pub const fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new() }
    }

    /// Adds the value that `value` makes, unless `limit` values have larger keys. Of values with the same key, the
    /// smaller `order` is first.
    pub fn offer_value(&mut self, key: u64, order: (usize, u64), value: impl FnOnce() -> T) {
        let key = (key, Reverse(order));
        if self.heap.len() >= self.limit {
            if self.heap.peek().is_none_or(|Reverse(least)| least.key >= key) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Reverse(RankedValue { key, value: value() }));
    }

    /// The values, the one with the largest key first.
    pub fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(RankedValue { value, .. })| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn top_values_are_the_first_of_the_sorted_list(keys in prop::collection::vec(0..20_u64, 0..60), limit in 0..20_usize) {
            let mut best = TopN::new(limit);
            for (nth, key) in keys.iter().enumerate() {
                best.offer_value(*key, (nth % 2, nth as u64), || (*key, nth));
            }
            let mut all: Vec<(u64, usize)> = keys.iter().copied().zip(0..).collect();
            all.sort_by_key(|(key, nth)| (Reverse(*key), nth % 2, *nth));
            all.truncate(limit);
            prop_assert_eq!(best.into_sorted(), all);
        }
    }
}
