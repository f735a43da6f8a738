//! What was counted while requests ran.

use super::{check::Answer, report::Latency};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Messages that a report keeps.
const ERRORS_KEPT: usize = 10;

/// A request longer than this counts as this long, microseconds: a day. No deadline is longer.
const LONGEST: u64 = 86_400_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Right and wrong answers of one part of a load.
pub(super) struct Tally {
    pub(super) ok: u64,
    pub(super) failed: u64,
    pub(super) errors: Vec<String>,
    pub(super) bytes_verified: u64,
    /// When the last right answer was complete.
    pub(super) last: Option<Instant>,
    latency: Histogram<u64>,
    first_byte: Histogram<u64>,
    /// Of the first request of each connection, where they have turns, and of those after it.
    first: Histogram<u64>,
    later: Histogram<u64>,
    connections: u64,
}

impl Tally {
    /// Of a load over so many connections.
    pub(super) fn new(connections: u32) -> Self {
        #[expect(clippy::expect_used, reason = "the bounds are constants that hdrhistogram takes")]
        let histogram = || Histogram::new_with_max(LONGEST, DIGITS).expect("bounds");
        Self {
            ok: 0,
            failed: 0,
            errors: Vec::new(),
            bytes_verified: 0,
            last: None,
            latency: histogram(),
            first_byte: histogram(),
            first: histogram(),
            later: histogram(),
            connections: connections.into(),
        }
    }

    /// A right answer to a request that was meant to start at `intended`.
    pub(super) fn right(&mut self, intended: Instant, answer: &Answer) {
        // One at a time, each on the connection that has waited longest: in the order of connections.
        let turn = if self.ok < self.connections { &mut self.first } else { &mut self.later };
        record(turn, answer.finished.saturating_duration_since(intended));
        self.done(intended, answer.finished);
        record(&mut self.first_byte, answer.first_byte.saturating_duration_since(intended));
        self.bytes_verified += answer.body.length();
    }

    /// Something without a body that was meant to start at `intended` and was complete at `at`.
    pub(super) fn done(&mut self, intended: Instant, at: Instant) {
        self.ok += 1;
        self.last = self.last.max(Some(at));
        record(&mut self.latency, at.saturating_duration_since(intended));
    }

    /// `times` things that went wrong for the same reason.
    pub(super) fn wrong(&mut self, times: u64, reason: String) {
        self.failed += times;
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(reason);
        }
    }

    pub(super) fn latency(&self, open_loop: bool) -> Latency {
        summary(&self.latency, open_loop)
    }

    pub(super) fn first(&self, open_loop: bool) -> Latency {
        summary(&self.first, open_loop)
    }

    pub(super) fn later(&self, open_loop: bool) -> Latency {
        summary(&self.later, open_loop)
    }

    pub(super) fn first_byte(&self, open_loop: bool) -> Latency {
        summary(&self.first_byte, open_loop)
    }
}

fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
}

fn summary(histogram: &Histogram<u64>, open_loop: bool) -> Latency {
    Latency {
        counted_from: if open_loop { "intended" } else { "sent" }.into(),
        count: histogram.len(),
        p50_us: histogram.value_at_quantile(0.5),
        p90_us: histogram.value_at_quantile(0.9),
        p99_us: histogram.value_at_quantile(0.99),
        p99_9_us: histogram.value_at_quantile(0.999),
        max_us: histogram.max(),
    }
}
