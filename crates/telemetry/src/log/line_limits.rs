//! How many lines one place in the sources may log. Pure; the caller passes the time. Each place has a burst a window
//! of time, and so has each origin and server of its own where a line names one: a flood of one server's failures does
//! not hide the first of another. What is beyond the burst is counted, and reported at the end of the window.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// Lines of one key in a window: enough to see what happens, and to list what litequic logs at a start (addresses);
/// below 100 KB of usual lines in ten seconds.
const MAX_LINES: u32 = 100;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Keys that are known at once: some 100 places in the sources, and the servers that fail at the same time. Beyond,
/// lines of a place count together.
const MAX_KEYS: usize = 1024;

/// What lines are counted by: the place in the sources, and a hash of the values that tell its lines apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LineKey<P> {
    pub(super) place: P,
    pub(super) values: Option<u64>,
}

/// Counts of lines; `D` describes the lines that were suppressed.
#[derive(Debug)]
pub(super) struct LineLimits<P, D> {
    /// `None` as a key: the lines of places that found no room.
    counts: HashMap<Option<LineKey<P>>, LineCount<D>>,
}

#[derive(Debug)]
struct LineCount<D> {
    /// The window's beginning.
    since: Instant,
    logged: u32,
    suppressed: u64,
    /// Set once a line was suppressed.
    description: Option<D>,
}

/// Whether a line is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineVerdict<K> {
    Log,
    /// The first of its window that is not: to be described by [`LineLimits::describe`], and [`LineLimits::next`] has
    /// changed.
    FirstSuppressed(K),
    Suppress,
}

/// Lines that were suppressed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SuppressionSummary<D> {
    pub(super) lines: u64,
    /// Time since the beginning of their window.
    pub(super) time: Duration,
    pub(super) description: D,
}

impl<P, D> Default for LineLimits<P, D> {
    fn default() -> Self {
        Self { counts: HashMap::with_capacity(MAX_KEYS + 1) }
    }
}

impl<P: Clone + Eq + Hash, D> LineLimits<P, D> {
    /// Counts a line of `key` at `now`.
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

    /// Sets what the summary of `key` says. Without a description there is none.
    pub(super) fn describe_suppressed(&mut self, key: &Option<LineKey<P>>, description: D) {
        if let Some(count) = self.counts.get_mut(key) {
            count.description = Some(description);
        }
    }

    /// The earliest end of a window with suppressed lines; `None` while nothing is suppressed.
    pub(super) fn next_summary_time(&self) -> Option<Instant> {
        let suppressing = self.counts.values().filter(|count| count.suppressed > 0);
        suppressing.map(|count| count.since + WINDOW).min()
    }

    /// The summaries of windows that are over at `now`, or of all. Their lines are logged again up to the burst.
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

    /// The key under which lines of `key` are counted: itself, if there is room, or else its place, or else none.
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

    /// How many of `lines` lines are logged.
    fn logged(limits: &mut Table, key: &LineKey<u32>, lines: u32, now: Instant) -> u32 {
        (0..lines).map(|_| u32::from(limits.count_line(key.clone(), now) == LineVerdict::Log)).sum()
    }

    #[test]
    fn a_burst_is_logged_the_rest_is_summed_up_and_the_next_window_begins() {
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
    fn the_end_sums_up_what_no_window_has() {
        let (mut limits, now) = (Table::default(), Instant::now());
        logged(&mut limits, &key(1, 1), MAX_LINES + 5, now);
        limits.describe_suppressed(&Some(key(1, 1)), "a");
        let time = Duration::from_secs(2);
        assert_eq!(limits.take_summaries(now + time, true), [SuppressionSummary { lines: 5, time, description: "a" }]);
    }

    #[test]
    fn a_table_that_is_full_counts_by_place_and_forgets_what_is_over() {
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
        /// Each line is logged or in a summary, and no window has more than the burst.
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
