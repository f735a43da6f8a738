//! Counters, gauges and histograms that one worker writes and the control thread reads.

use litequic_base::relaxed_cell::RelaxedCell;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Counter, which only grows. One thread writes it, so an addition is a plain load and store: no locked instruction in
/// the path of a request.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the worker that owns the counter may call it.
    pub fn increment_by(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.increment_by(1);
    }

    /// Reads the count, from any thread.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Gauge, which goes up and down. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct Gauge(RelaxedCell);

impl Gauge {
    /// Adds `n`.
    pub fn raise_by(&self, n: u64) {
        self.0.add_saturating(n);
    }

    /// Subtracts `n`; saturates at zero.
    pub fn lower_by(&self, n: u64) {
        self.0.subtract_saturating(n);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.raise_by(1);
    }

    /// Subtracts one.
    pub fn decrement(&self) {
        self.lower_by(1);
    }

    /// Sets the gauge to `n`.
    pub fn set(&self, n: u64) {
        self.0.set(n);
    }

    /// Reads the value, from any thread.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Counts one in a gauge of `T` until dropped. Several guards add up in one gauge, and one that is dropped early is no
/// longer counted.
#[derive(Debug)]
pub struct GaugeGuard<T> {
    of: Arc<T>,
    gauge: fn(&T) -> &Gauge,
}

impl<T> GaugeGuard<T> {
    /// Counts one more in the `gauge` of `of`. To be called and dropped by the worker that owns the gauge.
    pub fn new(of: &Arc<T>, gauge: fn(&T) -> &Gauge) -> Self {
        gauge(of).increment();
        Self { of: Arc::clone(of), gauge }
    }
}

impl<T> Drop for GaugeGuard<T> {
    fn drop(&mut self) {
        (self.gauge)(&self.of).decrement();
    }
}

/// Upper bounds of a [`Histogram`]'s buckets, in microseconds: six a decade, from a tenth of a millisecond to a second.
/// A median or 99th percentile read from them is right within a quarter.
pub(super) const TIME_BOUNDS: [u64; 25] = [
    100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 50_000,
    70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 700_000, 1_000_000,
];

/// Upper bounds of the buckets of [`SizeHistogram`], in bytes: from a quarter of a KiB to a GiB, each four times the
/// one before.
pub(super) const SIZE_BOUNDS: [u64; 12] =
    [1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];

/// Histogram of times. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct Histogram(pub(super) Buckets<{ TIME_BOUNDS.len() }>);

impl Histogram {
    /// Index of the bucket that counts `time`.
    pub fn bucket_index(time: Duration) -> usize {
        let value = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        TIME_BOUNDS.partition_point(|&bound| bound < value)
    }

    /// Counts one observation of `time`, in whole microseconds.
    pub fn observe_time(&self, time: Duration) {
        self.0.observe_value(&TIME_BOUNDS, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

/// Histogram of sizes in bytes. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct SizeHistogram(pub(super) Buckets<{ SIZE_BOUNDS.len() }>);

impl SizeHistogram {
    /// Counts one observation of `bytes`.
    pub fn observe_size(&self, bytes: u64) {
        self.0.observe_value(&SIZE_BOUNDS, bytes);
    }
}

#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    /// Counts of observations up to each bound and above the one before.
    below: [Counter; N],
    above: Counter,
    /// Sum of all observations.
    sum: Counter,
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Self {
        Self { below: std::array::from_fn(|_| Counter::default()), above: Counter::default(), sum: Counter::default() }
    }
}

impl<const N: usize> Buckets<N> {
    fn observe_value(&self, bounds: &[u64; N], value: u64) {
        let bucket = bounds.partition_point(|&bound| bound < value);
        self.below.get(bucket).unwrap_or(&self.above).increment();
        self.sum.increment_by(value);
    }

    /// Counts of the buckets, of which the last is above all bounds, and the sum of all observations.
    pub(super) fn bucket_counts(&self) -> (impl Iterator<Item = u64>, u64) {
        (self.below.iter().chain([&self.above]).map(Counter::get), self.sum.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_its_living_guards() {
        let gauge = Arc::new(Gauge::default());
        let [one, other] = [0, 1].map(|_| GaugeGuard::new(&gauge, |gauge| gauge));
        assert_eq!(gauge.get(), 2);
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(other);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn a_time_counts_in_the_bucket_of_its_bound() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 150, 999_999, 1_000_000, 1_000_001, 9_000_000] {
            histogram.observe_time(Duration::from_micros(micros));
        }
        let (buckets, sum) = histogram.0.bucket_counts();
        let buckets: Vec<u64> = buckets.collect();
        assert_eq!((buckets[0], buckets[1], buckets[24], buckets[25]), (2, 2, 2, 2));
        assert_eq!((buckets.iter().sum::<u64>(), sum), (8, 12_000_351));
        assert!(TIME_BOUNDS.is_sorted() && SIZE_BOUNDS.is_sorted());
    }
}
