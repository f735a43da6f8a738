//! What several runs of one thing say together: median, range, a 95 % interval of the median. Pure.

/// Figures of several runs, summed up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// The middle one; the mean of the two middle ones when their number is even.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
    /// How many there are.
    pub(crate) runs: usize,
}

impl Summary {
    /// `None` without figures, or when one is not a number.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        if sorted.iter().any(|figure| !figure.is_finite()) {
            return None;
        }
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), min, max, runs: sorted.len() })
    }
}

/// A median, and where it lies with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// The two-sided 97.5 % quantiles of Student's t distribution with 1 to 4 degrees of freedom.
const STUDENT: [f64; 4] = [12.706, 4.303, 3.182, 2.776];

impl Interval {
    /// Of two figures at least, all of them finite.
    ///
    /// From six figures on the bounds are order statistics: the innermost pair of figures that has the median between
    /// them with a probability of 95 % or more, whatever the distribution. Of fewer even the least and the greatest
    /// have it between them with 94 % (five) or 75 % (three) only; the bounds are those of Student's t then, of the
    /// figures' logarithms where all are positive, which takes deviations for normal. Scattered runs make it wider,
    /// never narrower.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        let Summary { median, .. } = Summary::of(figures)?;
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        if let Some(rank) = rank(sorted.len()) {
            let (low, high) = (*sorted.get(rank)?, *sorted.get(sorted.len() - 1 - rank)?);
            return Some(Self { low, median, high });
        }
        let is_positive = sorted.iter().all(|figure| *figure > 0.0);
        let back = |value: f64| if is_positive { value.exp() } else { value };
        let values: Vec<f64> =
            sorted.into_iter().map(|figure| if is_positive { figure.ln() } else { figure }).collect();
        let count = values.len() as f64;
        let quantile = STUDENT.get(values.len().checked_sub(2)?)?;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = quantile * (variance / count).sqrt();
        // Rounding must not put the median outside.
        Some(Self { low: back(mean - half).min(median), median, high: back(mean + half).max(median) })
    }
}

/// How many figures at either end of so many lie outside the innermost interval that holds their median with 95 %.
/// `None`: not even the least and the greatest do.
fn rank(count: usize) -> Option<usize> {
    // The median lies below the figure of rank k (from 0) when at most k of them lie below it: a binomial tail of 1/2.
    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut tail, mut rank) = (0.0, None);
    for below in 0..count / 2 {
        tail += probability;
        if 2.0 * tail > 0.05 {
            break;
        }
        rank = Some(below);
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::time::Duration;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max, summary.runs), (2.0, 1.0, 3.0, 3));
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[7.0]).unwrap().median, 7.0);
    }

    #[test]
    fn nothing_is_made_of_nothing_or_of_what_is_no_number() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn from_six_figures_on_bounds_are_order_statistics() {
        assert_eq!([2, 5, 6, 8, 9, 12, 20].map(rank), [None, None, Some(0), Some(0), Some(1), Some(2), Some(5)]);
        let interval = Interval::of(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
        assert_eq!(interval, Interval { low: 2.0, median: 5.0, high: 8.0 });
    }

    #[test]
    fn bounds_of_fewer_are_students() {
        // Logarithms 0, 1 and 2: 1 ± 4.303 / √3.
        let interval = Interval::of(&[1.0, 1_f64.exp(), 2_f64.exp()]).unwrap();
        assert!((interval.low.ln() - (1.0 - 2.4843)).abs() < 1e-3 && (interval.high.ln() - 3.4843).abs() < 1e-3);
        let interval = Interval::of(&[-1.0, 0.0, 1.0]).unwrap();
        assert!((interval.high - 2.4843).abs() < 1e-3 && (interval.low + 2.4843).abs() < 1e-3);
        assert_eq!(Interval::of(&[2.0, 2.0, 2.0]).map(|interval| (interval.low, interval.high)), Some((2.0, 2.0)));
        assert_eq!(Interval::of(&[2.0]), None, "one figure has no interval");
    }

    proptest::proptest! {
        #[test]
        fn the_median_lies_in_its_interval(figures in proptest::collection::vec(0.001_f64..1e9, 2..30)) {
            let interval = Interval::of(&figures).unwrap();
            proptest::prop_assert!(interval.low <= interval.median && interval.median <= interval.high);
        }
    }

    #[test]
    fn intervals_hold_the_median_as_often_as_they_say() {
        let mut random = Random::new(1);
        // A sum of twelve even draws is nearly normal, and its median 6.
        let mut draw = || (0..12).map(|_| random.within(Duration::from_secs(1)).as_secs_f64()).sum::<f64>().exp();
        for count in 3..12 {
            let holds = |_: &i32| {
                let figures: Vec<f64> = (0..count).map(|_| draw()).collect();
                let interval = Interval::of(&figures).unwrap();
                interval.low <= 6_f64.exp() && 6_f64.exp() <= interval.high
            };
            // Of 1000 with a probability of 0.95, less three standard deviations.
            let hits = (0..1000).filter(holds).count();
            assert!(hits >= 929, "{hits} of 1000 with {count} figures");
        }
    }
}
