//! Finds the first rows of a list without sorting the whole list.

use std::{cmp::Reverse, collections::BTreeMap};

/// Collection of the values with the largest keys, up to a limit.
#[derive(Debug)]
pub struct TopN<T> {
    limit: usize,
    /// Values by their key and tie-breaker: of values with the same key, the smaller `order` is first.
    values: BTreeMap<(u64, Reverse<(usize, u64)>), T>,
}

impl<T> TopN<T> {
    /// A collection of at most `limit` values.
    pub const fn new(limit: usize) -> Self {
        Self { limit, values: BTreeMap::new() }
    }

    /// Adds the value that `value` makes, unless `limit` values have larger keys. Of values with the same key, the
    /// smaller `order`, which no two values share, is first.
    pub fn offer_value(&mut self, key: u64, order: (usize, u64), value: impl FnOnce() -> T) {
        let key = (key, Reverse(order));
        if self.values.len() >= self.limit {
            if self.values.first_key_value().is_none_or(|(least, _)| *least >= key) {
                return;
            }
            self.values.pop_first();
        }
        self.values.insert(key, value());
    }

    /// The values, the one with the largest key first.
    pub fn into_sorted(self) -> Vec<T> {
        self.values.into_values().rev().collect()
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
