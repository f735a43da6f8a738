//! Remembers the packet numbers that s2n-quic has seen acknowledged.

use crate::wire::frame::{BelowZero, NumberRange};

/// Ranges remembered of a connection: 2 KiB. Clients report 32 to 255 in a frame, the newest first, and a download
/// without loss has two or three. A forgotten range costs only a merge.
pub const MAX_ACKNOWLEDGED_RANGES: usize = 128;

/// Packet numbers that one connection's client has acknowledged. Ranges are in order, with at least one unacknowledged
/// number between two of them: s2n-quic skips numbers on purpose, and closes the connection of a client that
/// acknowledges one (RFC 9000 §21.4), so a frame with a skipped number must never count as an old one.
#[derive(Debug, Clone, Default)]
pub struct AcknowledgedNumbers(Vec<NumberRange>);

impl AcknowledgedNumbers {
    /// Whether an ACK frame acknowledges a new number, or is invalid. Remembers the acknowledged numbers, but not those
    /// behind [`BelowZero`]: s2n-quic closes the connection.
    pub fn is_news(&mut self, ack: impl Iterator<Item = Result<NumberRange, BelowZero>>) -> bool {
        let mut news = false;
        for range in ack {
            let Ok(range) = range else { return true };
            news |= self.insert_range(range);
        }
        news
    }

    /// Adds `range`, joined with ranges that it overlaps or touches. True if any number is new.
    fn insert_range(&mut self, mut range: NumberRange) -> bool {
        // Nearly always the newest range repeats or grows.
        if let Some(newest) = self.0.last_mut()
            && newest.low <= range.low
            && range.low <= newest.high.saturating_add(1)
        {
            let grows = newest.high < range.high;
            newest.high = newest.high.max(range.high);
            return grows;
        }
        // The ranges from `begin` to `end` overlap or touch `range`. Only the first can contain all of it.
        let begin = self.0.partition_point(|known| known.high.saturating_add(1) < range.low);
        if self.0.get(begin).is_some_and(|known| known.low <= range.low && range.high <= known.high) {
            return false;
        }
        let end = self.0.partition_point(|known| known.low <= range.high.saturating_add(1));
        if let Some(joined @ [first, ..]) = self.0.get(begin..end)
            && let [.., last] = joined
        {
            range = NumberRange { low: range.low.min(first.low), high: range.high.max(last.high) };
            if let Some(place) = self.0.get_mut(begin) {
                *place = range;
            }
            self.0.drain(begin + 1..end);
            return true;
        }
        if self.0.len() < MAX_ACKNOWLEDGED_RANGES {
            self.0.insert(begin, range);
        } else if let Some(older) = self.0.get_mut(..begin)
            && let Some(place) = older.len().checked_sub(1)
        {
            // The oldest range is forgotten.
            older.rotate_left(1);
            if let Some(place) = older.get_mut(place) {
                *place = range;
            }
        }
        true
    }

    /// Remembered ranges, the oldest first.
    pub fn known_ranges(&self) -> &[NumberRange] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::collections::BTreeSet;

    fn numbers(low: u64, high: u64) -> NumberRange {
        NumberRange { low, high }
    }

    fn is_news(acknowledged: &mut AcknowledgedNumbers, ranges: &[(u64, u64)]) -> bool {
        acknowledged.is_news(ranges.iter().map(|&(low, high)| Ok(numbers(low, high))))
    }

    #[test]
    fn repeated_acknowledgements_are_no_news() {
        let mut acknowledged = AcknowledgedNumbers::default();
        assert!(is_news(&mut acknowledged, &[(5, 9)]));
        assert!(!is_news(&mut acknowledged, &[(5, 9)]));
        assert!(!is_news(&mut acknowledged, &[(9, 9), (5, 6)]));
        assert!(is_news(&mut acknowledged, &[(9, 10)]));
        assert!(is_news(&mut acknowledged, &[(11, 11)]), "side by side");
        assert!(!is_news(&mut acknowledged, &[(5, 11)]));
        assert!(is_news(&mut acknowledged, &[(4, 11)]));
        assert_eq!(acknowledged.known_ranges(), [numbers(4, 11)]);
    }

    #[test]
    fn a_gap_of_one_stays_a_gap_until_it_is_acknowledged() {
        let mut acknowledged = AcknowledgedNumbers::default();
        assert!(is_news(&mut acknowledged, &[(6, 9), (1, 4)]));
        assert_eq!(acknowledged.known_ranges(), [numbers(1, 4), numbers(6, 9)]);
        assert!(!is_news(&mut acknowledged, &[(6, 9), (1, 4)]));
        assert!(is_news(&mut acknowledged, &[(1, 9)]), "which acknowledges 5");
        assert_eq!(acknowledged.known_ranges(), [numbers(1, 9)]);
    }

    #[test]
    fn the_smallest_and_largest_numbers_are_remembered() {
        let most = (1 << 62) - 1;
        let mut acknowledged = AcknowledgedNumbers::default();
        assert!(is_news(&mut acknowledged, &[(most, most), (0, 0)]));
        assert!(!is_news(&mut acknowledged, &[(most, most), (0, 0)]));
        assert!(is_news(&mut acknowledged, &[(u64::MAX, u64::MAX)]), "which no frame can say");
        assert!(is_news(&mut acknowledged, &[(0, u64::MAX)]));
        assert!(!is_news(&mut acknowledged, &[(0, u64::MAX)]));
    }

    #[test]
    fn only_the_newest_ranges_are_remembered() {
        let mut acknowledged = AcknowledgedNumbers::default();
        let ranges: Vec<(u64, u64)> = (0..10_000).rev().map(|n| (3 * n, 3 * n + 1)).collect();
        assert!(is_news(&mut acknowledged, &ranges));
        let kept =
            |from| (10_000 - MAX_ACKNOWLEDGED_RANGES as u64 + from..10_000 + from).map(|n| numbers(3 * n, 3 * n + 1));
        assert!(acknowledged.known_ranges().iter().copied().eq(kept(0)));
        assert!(!is_news(&mut acknowledged, &ranges[..MAX_ACKNOWLEDGED_RANGES]));
        assert!(is_news(&mut acknowledged, &ranges), "those forgotten are news, and pass");
        // For a newer range the oldest is forgotten.
        assert!(is_news(&mut acknowledged, &[(30_000, 30_001)]));
        assert!(acknowledged.known_ranges().iter().copied().eq(kept(1)));
        assert!(acknowledged.0.capacity() <= 2 * MAX_ACKNOWLEDGED_RANGES);
    }

    #[test]
    fn a_frame_below_zero_is_always_news() {
        let mut acknowledged = AcknowledgedNumbers::default();
        for _ in 0..2 {
            assert!(acknowledged.is_news([Ok(numbers(5, 9)), Err(BelowZero), Ok(numbers(1, 2))].into_iter()));
        }
        assert_eq!(acknowledged.known_ranges(), [numbers(5, 9)]);
    }

    proptest! {
        /// No range is forgotten here.
        #[test]
        fn only_a_frame_with_a_new_number_is_news(
            frames in vec(vec((0u64..200, 0u64..8), 1..8), 1..40),
        ) {
            let (mut acknowledged, mut oracle) = (AcknowledgedNumbers::default(), BTreeSet::new());
            for frame in frames {
                let ranges: Vec<(u64, u64)> = frame.iter().map(|(low, len)| (*low, low + len)).collect();
                let mut news = false;
                for number in ranges.iter().flat_map(|(low, high)| *low..=*high) {
                    news |= oracle.insert(number);
                }
                prop_assert_eq!(is_news(&mut acknowledged, &ranges), news);
                let all: Vec<u64> = acknowledged.known_ranges().iter().flat_map(|range| range.low..=range.high).collect();
                prop_assert!(all.iter().eq(oracle.iter()), "{:?}", all);
                prop_assert!(acknowledged.0.is_sorted_by(|one, next| one.high + 1 < next.low));
            }
        }

        /// Forgotten ranges cause no wrong blanking: a blanked frame had no new number.
        #[test]
        fn what_was_not_acknowledged_is_always_news(frames in vec(vec((0u64..4000, 0u64..3), 1..200), 1..20)) {
            let (mut acknowledged, mut oracle) = (AcknowledgedNumbers::default(), BTreeSet::new());
            for frame in frames {
                let ranges: Vec<(u64, u64)> = frame.iter().map(|(low, len)| (*low, low + len)).collect();
                let mut numbers = ranges.iter().flat_map(|(low, high)| *low..=*high);
                let all_known = numbers.all(|number| oracle.contains(&number));
                prop_assert!(is_news(&mut acknowledged, &ranges) || all_known);
                oracle.extend(ranges.iter().flat_map(|(low, high)| *low..=*high));
                prop_assert!(acknowledged.0.len() <= MAX_ACKNOWLEDGED_RANGES);
                prop_assert!(acknowledged.0.is_sorted_by(|one, next| one.high + 1 < next.low));
                let mut remembered = acknowledged.known_ranges().iter().flat_map(|range| range.low..=range.high);
                prop_assert!(remembered.all(|n| oracle.contains(&n)));
            }
        }
    }
}
