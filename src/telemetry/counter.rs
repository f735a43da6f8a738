//! Numbers that one worker writes and the control thread reads.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Only ever grows. One thread writes it, so an addition is a plain load and store: no locked instruction on the
/// way of a request.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Called by the worker that owns the counter, and by nobody else.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// What has been counted; any thread may ask.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes `n` away; never below zero.
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).saturating_sub(n), Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Takes one away.
    pub fn decrement(&self) {
        self.sub(1);
    }

    /// Sets it to `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// How it stands; any thread may ask.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of a [`Histogram`]'s buckets, in microseconds: six a decade, from a tenth of a millisecond to a second. A
/// median or 99th percentile read from them is right within a quarter.
pub(super) const BOUNDS: [u64; 25] = [
    100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 50_000,
    70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 700_000, 1_000_000,
];

/// How often a time was how long. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct Histogram {
    /// Those up to each bound and above the one before.
    buckets: [Counter; BOUNDS.len()],
    above: Counter,
    /// Of all together, in microseconds.
    sum: Counter,
}

impl Histogram {
    /// Counts `time`, in whole microseconds.
    pub fn observe(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| bound < micros);
        self.buckets.get(bucket).unwrap_or(&self.above).increment();
        self.sum.add(micros);
    }

    /// How many were counted in each bucket, those above the last bound at the end, and microseconds in all.
    pub(super) fn get(&self) -> (impl Iterator<Item = u64>, u64) {
        (self.buckets.iter().chain([&self.above]).map(Counter::get), self.sum.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_where_its_bound_is() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 150, 999_999, 1_000_000, 1_000_001, 9_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let (buckets, sum) = histogram.get();
        let buckets: Vec<u64> = buckets.collect();
        assert_eq!((buckets[0], buckets[1], buckets[24], buckets[25]), (2, 2, 2, 2));
        assert_eq!((buckets.iter().sum::<u64>(), sum), (8, 12_000_351));
        assert!(BOUNDS.is_sorted());
    }
}
