//! Limits the lines that one place in the sources may log. Pure; the caller passes the time. Each place has a limit for
//! each window of time, and so has each origin and server that a line names: a flood of one server's failures does not
//! hide the first failure of another. Lines beyond the limit are counted, and reported at the end of the window.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// Maximum number of lines of one key in a window: enough to diagnose a problem, and to list what litequic logs at a
/// start (addresses); below 100 KB of usual lines in ten seconds.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of keys in the table: some 100 places in the sources, and the servers that fail at the same time.
/// Beyond, lines of a place count together.
const MAX_KEYS: usize = 1024;

/// Key of the count of lines: the place in the sources, and a hash of the values that distinguish the lines of one
/// place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LineKey<P> {
    pub(super) place: P,
    pub(super) values: Option<u64>,
}

/// Counts of lines by key; `D` describes the suppressed lines.
#[derive(Debug)]
pub(super) struct LineLimits<P, D> {
    /// The key `None` counts the lines of places for which the table has no room.
    counts: HashMap<Option<LineKey<P>>, LineCount<D>>,
}

#[derive(Debug)]
struct LineCount<D> {
    /// Beginning of the window.
    since: Instant,
    logged: u32,
    suppressed: u64,
    /// Description of the first suppressed line.
    description: Option<D>,
}

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineVerdict<K> {
    Log,
    /// The first suppressed line of its window: to be described by [`LineLimits::describe_suppressed`].
    /// [`LineLimits::next_summary_time`] has changed.
    FirstSuppressed(K),
    Suppress,
}

/// Summary of suppressed lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SuppressionSummary<D> {
    pub(super) lines: u64,
    /// Time since the beginning of the window.
    pub(super) time: Duration,
    pub(super) description: D,
}

impl<P, D> Default for LineLimits<P, D> {
    fn default() -> Self {
        Self { counts: HashMap::with_capacity(MAX_KEYS + 1) }
    }
}

impl<P: Clone + Eq + Hash, D> LineLimits<P, D> {
    /// Counts a line of `key` at the time `now`, and decides about it.
    pub(super) fn count_line(&mut self, key: LineKey<P>, now: Instant) -> LineVerdict<Option<LineKey<P>>> {
        let key = self.counted_key(key, now);
        let new = || LineCount { since: now, logged: 0, suppressed: 0, description: None };
        let count = self.counts.entry(key.clone()).or_insert_with(new);
        if count.suppressed == 0 && now >= count.since + WINDOW {
            *count = new();
        }
        if count.logged < MAX_LINES {
            count.logged += 1;
            return LineVerdict::Log;
        }
        count.suppressed += 1;
        if count.suppressed == 1 { LineVerdict::FirstSuppressed(key) } else { LineVerdict::Suppress }
    }

    /// Sets the description for the summary of `key`. Without a description, no summary is written.
    pub(super) fn describe_suppressed(&mut self, key: &Option<LineKey<P>>, description: D) {
        if let Some(count) = self.counts.get_mut(key) {
            count.description = Some(description);
        }
    }

    /// Earliest end of a window with suppressed lines; `None` while no line is suppressed.
    pub(super) fn next_summary_time(&self) -> Option<Instant> {
        let suppressing = self.counts.values().filter(|count| count.suppressed > 0);
        suppressing.map(|count| count.since + WINDOW).min()
    }

    /// Takes the summaries of the windows that are over at `now`, or of all windows. Their lines are logged again up to
    /// the limit.
    pub(super) fn take_summaries(&mut self, now: Instant, all: bool) -> Vec<SuppressionSummary<D>> {
        let due = |count: &LineCount<D>| count.suppressed > 0 && (all || now >= count.since + WINDOW);
        let counts = self.counts.values_mut().filter(|count| due(count));
        let summaries = counts.filter_map(|count| {
            let ended = LineCount { since: now, logged: 0, suppressed: 0, description: None };
            let LineCount { since, suppressed, description, .. } = std::mem::replace(count, ended);
            let time = now.saturating_duration_since(since);
            description.map(|description| SuppressionSummary { lines: suppressed, time, description })
        });
        summaries.collect()
    }

    /// Key that counts lines of `key`: itself if the table has room, or else its place, or else `None`.
    fn counted_key(&mut self, key: LineKey<P>, now: Instant) -> Option<LineKey<P>> {
        let place = LineKey { place: key.place.clone(), values: None };
        for key in [key, place].map(Some) {
            if self.counts.contains_key(&key) {
                return key;
            }
            if self.counts.len() >= MAX_KEYS {
                self.counts.retain(|_, count| count.suppressed > 0 || now < count.since + WINDOW);
            }
            if self.counts.len() < MAX_KEYS {
                return key;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Table = LineLimits<u32, &'static str>;

    fn key(place: u32, values: u64) -> LineKey<u32> {
        LineKey { place, values: Some(values) }
    }

    /// Number of `lines` lines that are logged.
    fn logged(limits: &mut Table, key: &LineKey<u32>, lines: u32, now: Instant) -> u32 {
        (0..lines).map(|_| u32::from(limits.count_line(key.clone(), now) == LineVerdict::Log)).sum()
    }

    #[test]
    fn lines_beyond_the_limit_are_summed_up_until_the_next_window() {
        let (mut limits, start) = (Table::default(), Instant::now());
        assert_eq!(logged(&mut limits, &key(1, 1), MAX_LINES, start), MAX_LINES);
        assert_eq!(limits.next_summary_time(), None, "no timer while nothing is suppressed");
        let first = limits.count_line(key(1, 1), start + Duration::from_secs(3));
        let LineVerdict::FirstSuppressed(at) = first else { panic!("{first:?}") };
        limits.describe_suppressed(&at, "a");
        assert_eq!(limits.count_line(key(1, 1), start + Duration::from_secs(4)), LineVerdict::Suppress);
        assert_eq!(limits.next_summary_time(), Some(start + WINDOW));
        assert_eq!(limits.take_summaries(start + WINDOW - Duration::from_millis(1), false), []);
        let expected = SuppressionSummary { lines: 2, time: WINDOW, description: "a" };
        assert_eq!(limits.take_summaries(start + WINDOW, false), [expected]);
        assert_eq!(limits.next_summary_time(), None);
        assert_eq!(logged(&mut limits, &key(1, 1), MAX_LINES + 1, start + WINDOW), MAX_LINES);
    }

    #[test]
    fn one_servers_flood_hides_no_line_of_another_nor_of_another_place() {
        let (mut limits, now) = (Table::default(), Instant::now());
        logged(&mut limits, &key(1, 1), 10 * MAX_LINES, now);
        assert_eq!(limits.count_line(key(1, 2), now), LineVerdict::Log);
        assert_eq!(limits.count_line(key(2, 1), now), LineVerdict::Log);
    }

    #[test]
    fn a_window_that_is_over_begins_anew_without_a_summary() {
        let (mut limits, now) = (Table::default(), Instant::now());
        assert_eq!(logged(&mut limits, &key(1, 1), MAX_LINES, now), MAX_LINES);
        assert_eq!(logged(&mut limits, &key(1, 1), MAX_LINES, now + WINDOW), MAX_LINES);
        assert_eq!(limits.take_summaries(now + 2 * WINDOW, true), []);
    }

    #[test]
    fn the_end_sums_up_unfinished_windows() {
        let (mut limits, now) = (Table::default(), Instant::now());
        logged(&mut limits, &key(1, 1), MAX_LINES + 5, now);
        limits.describe_suppressed(&Some(key(1, 1)), "a");
        let time = Duration::from_secs(2);
        assert_eq!(limits.take_summaries(now + time, true), [SuppressionSummary { lines: 5, time, description: "a" }]);
    }

    #[test]
    fn a_full_table_counts_by_place_and_removes_old_windows() {
        let (mut limits, now) = (Table::default(), Instant::now());
        assert_eq!(limits.count_line(LineKey { place: 1, values: None }, now), LineVerdict::Log);
        for values in 0..10 * MAX_KEYS as u64 {
            limits.count_line(key(1, values), now);
            limits.count_line(key(2, values), now);
        }
        assert_eq!(limits.counts.len(), MAX_KEYS + 1, "and one for all that found no room");
        assert_eq!(limits.count_line(key(1, u64::MAX), now), LineVerdict::Suppress);
        assert_eq!(limits.count_line(key(1, u64::MAX), now + WINDOW), LineVerdict::Log);
        assert!(limits.counts.len() < 10);
    }

    proptest! {
        /// Checks that each line is logged or in a summary, and that no window exceeds the limit.
        #[test]
        fn every_line_is_logged_or_summed_up(steps in prop::collection::vec((0u32..3, 0u32..150, 0u64..4000), 1..60)) {
            let (mut limits, mut now) = (Table::default(), Instant::now());
            let (mut lines, mut passed, mut summed) = (0, 0, 0);
            for (place, count, millis) in steps {
                now += Duration::from_millis(millis);
                summed += limits.take_summaries(now, false).iter().map(|summary| summary.lines).sum::<u64>();
                prop_assert!(limits.next_summary_time().is_none_or(|next| next > now));
                for _ in 0..count {
                    lines += 1;
                    match limits.count_line(key(place, 0), now) {
                        LineVerdict::Log => passed += 1,
                        LineVerdict::FirstSuppressed(at) => limits.describe_suppressed(&at, "a"),
                        LineVerdict::Suppress => {}
                    }
                }
                prop_assert!(limits.counts.values().all(|count| count.logged <= MAX_LINES));
            }
            summed += limits.take_summaries(now, true).iter().map(|summary| summary.lines).sum::<u64>();
            prop_assert_eq!(passed + summed, lines);
        }
    }
}
