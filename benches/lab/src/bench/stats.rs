//! What several runs of one thing say together: median, spread, ratio. Pure.

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

    /// How far the runs lie apart, as a part of the median; nothing when all are zero.
    pub(crate) fn spread(&self) -> f64 {
        if self.max > self.min { (self.max - self.min) / self.median.abs() } else { 0.0 }
    }

    /// This median as a multiple of another's.
    pub(crate) fn ratio(&self, reference: &Self) -> Option<f64> {
        (reference.median != 0.0).then(|| self.median / reference.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_outlier_moves_the_spread_and_not_the_median() {
        let summary = Summary::of(&[1.0, 1.0, 3.0]).unwrap();
        assert_eq!(summary.median, 1.0);
        assert_eq!(summary.spread(), 2.0);
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().spread(), 0.0);
    }

    #[test]
    fn a_ratio_to_zero_is_none() {
        let (one, zero) = (Summary::of(&[1.0]).unwrap(), Summary::of(&[0.0]).unwrap());
        assert_eq!(one.ratio(&zero), None);
        assert_eq!(zero.ratio(&one), Some(0.0));
        assert_eq!(one.ratio(&Summary::of(&[4.0]).unwrap()), Some(0.25));
    }
}
