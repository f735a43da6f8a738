//! How fast segments arrived: two exponentially weighted averages, of which the lower counts (dash.js 5,
//! `ThroughputController` with EWMA, its default). Pure.

use std::time::Duration;

/// A segment's share of the average halves while later ones have been received for so long.
const FAST_HALF_LIFE: f64 = 3.0; // seconds, times 1.5 as dash.js weights a second of receiving
const SLOW_HALF_LIFE: f64 = 8.0;
/// The weight of a second of receiving.
const WEIGHT: f64 = 1.5;
/// What rules rely on, of the average.
const SAFE: f64 = 0.9;

/// One viewer's.
#[derive(Debug, Clone, Default)]
pub(super) struct Throughput {
    fast: f64,
    slow: f64,
    weight: f64,
}

impl Throughput {
    /// A segment of so many bytes took so long from its first byte to its last.
    pub(super) fn add(&mut self, bytes: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        let kilobits = (8e-3 * bytes as f64 / seconds).round();
        if !kilobits.is_finite() {
            return;
        }
        let weight = WEIGHT * seconds;
        let mix = |average: f64, half_life: f64| {
            let old = 0.5_f64.powf(weight / half_life);
            (1.0 - old) * kilobits + old * average
        };
        (self.fast, self.slow) = (mix(self.fast, FAST_HALF_LIFE), mix(self.slow, SLOW_HALF_LIFE));
        self.weight += weight;
    }

    /// kbit/s; `None` before a segment arrived.
    pub(super) fn average(&self) -> Option<f64> {
        if self.weight <= 0.0 {
            return None;
        }
        // They began with 0, which they still hold a share of.
        let whole = |average: f64, half_life: f64| average / (1.0 - 0.5_f64.powf(self.weight / half_life));
        Some(whole(self.fast, FAST_HALF_LIFE).min(whole(self.slow, SLOW_HALF_LIFE)).round())
    }

    /// kbit/s that rules rely on.
    pub(super) fn safe(&self) -> Option<f64> {
        self.average().map(|average| average * SAFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(segments: &[(u64, u64)]) -> Throughput {
        let mut throughput = Throughput::default();
        for (bytes, milliseconds) in segments {
            throughput.add(*bytes, Duration::from_millis(*milliseconds));
        }
        throughput
    }

    #[test]
    fn one_rate_is_its_own_average() {
        assert_eq!(of(&[]).average(), None);
        assert_eq!(of(&[(1_000_000, 1_000)]).average(), Some(8_000.0));
        assert_eq!(of(&[(1_000_000, 1_000); 20]).safe(), Some(7_200.0));
        assert_eq!(of(&[(1_000, 0)]).average(), None, "no time: from a cache");
    }

    #[test]
    fn a_drop_shows_sooner_than_a_rise() {
        let (slow, fast) = ((250_000, 1_000), (2_500_000, 1_000));
        let dropped = of(&[fast, fast, fast, slow]).average().unwrap();
        let risen = of(&[slow, slow, slow, fast]).average().unwrap();
        assert!(dropped < 16_000.0 && risen < 9_000.0, "{dropped} {risen}");
        // Of the two averages the fast one has the drop, the slow one lacks the rise.
        assert!((20_000.0 - dropped) / 18_000.0 > (risen - 2_000.0) / 18_000.0, "{dropped} {risen}");
    }
}
