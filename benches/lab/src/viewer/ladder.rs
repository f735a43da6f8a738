//! The bitrates of a video. Pure.

/// In ascending order, one at least.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ladder(Vec<f64>);

impl Ladder {
    /// kbit/s, ascending and positive; `None` otherwise.
    pub(super) fn new(bitrates: &[f64]) -> Option<Self> {
        let is_right = !bitrates.is_empty()
            && bitrates.iter().all(|bitrate| bitrate.is_finite() && *bitrate > 0.0)
            && bitrates.is_sorted_by(|one, next| one < next);
        is_right.then(|| Self(bitrates.to_vec()))
    }

    /// kbit/s.
    pub(super) fn bitrates(&self) -> &[f64] {
        &self.0
    }

    /// The highest quality.
    pub(super) fn top(&self) -> usize {
        self.0.len() - 1
    }

    /// The highest quality of at most so many kbit/s; the lowest where there is none.
    pub(super) fn at_most(&self, kilobits: f64) -> usize {
        self.0.iter().rposition(|bitrate| *bitrate <= kilobits).unwrap_or(0)
    }

    /// kbit/s of a quality.
    pub(super) fn bitrate(&self, quality: usize) -> f64 {
        self.0.get(quality).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_highest_quality_that_it_carries() {
        let ladder = Ladder::new(&[400.0, 1_200.0, 3_000.0]).unwrap();
        for (rate, quality) in [(-1.0, 0), (0.0, 0), (399.0, 0), (1_200.0, 1), (2_999.0, 1), (9e9, 2)] {
            assert_eq!(ladder.at_most(rate), quality, "{rate}");
        }
        assert_eq!((ladder.top(), ladder.bitrate(1)), (2, 1_200.0));
    }

    #[test]
    fn bitrates_ascend_and_are_numbers() {
        for wrong in [&[][..], &[1.0, 1.0], &[2.0, 1.0], &[0.0, 1.0], &[f64::NAN], &[1.0, f64::INFINITY]] {
            assert_eq!(Ladder::new(wrong), None, "{wrong:?}");
        }
    }
}
