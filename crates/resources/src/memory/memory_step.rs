//! Chooses the step of relief by the share of its limit that memory has reached. Pure.

use super::usage::MemoryReading;
use litequic_base::named_enum;

named_enum! {
    /// Measures against a shortage of memory. Each step includes the steps below.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum MemoryStep {
        /// No measure.
        #[default]
        Normal = "normal",
        /// A client that has two connections gets no third; connections without a request are closed, the longest
        /// unused first.
        Refuse = "refuse connections",
        /// Budgets of bodies shrink to a smaller share of the limit.
        Shrink = "shrink buffers",
        /// All new connections are rejected; the connections that hold the most are closed.
        Close = "close connections",
    }
    /// Name in the log and on the status page.
    fn step_name;
}

/// Thresholds of the steps, in per cent of the limit.
const STEP_THRESHOLDS: [(MemoryStep, u64); 3] =
    [(MemoryStep::Close, 95), (MemoryStep::Shrink, 90), (MemoryStep::Refuse, 85)];
/// Per cent of the limit between a step's threshold and the level at which the step is left, so that no step flaps.
const HYSTERESIS_PERCENT: u64 = 5;

impl MemoryStep {
    /// Whether a new connection of a client is rejected; `has_some` says whether the client has two connections
    /// or more already.
    pub fn refuses_connection(self, has_some: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Normal => false,
            // Otherwise a client that holds memory just below the last step would keep out all others.
            Self::Refuse | Self::Shrink => has_some(),
            Self::Close => true,
        }
    }
}

/// Number of bytes in use above the level at which the last step is left.
pub(super) fn bytes_over_last_step(MemoryReading { used, limit }: MemoryReading) -> u64 {
    let (_, per_cent) = STEP_THRESHOLDS[0];
    used.saturating_sub(limit / 100 * (per_cent - HYSTERESIS_PERCENT))
}

/// Number of bytes left before the first step is in force.
pub(super) fn bytes_before_first_step(MemoryReading { used, limit }: MemoryReading) -> u64 {
    let [.., (_, per_cent)] = STEP_THRESHOLDS;
    (limit / 100 * per_cent).saturating_sub(used)
}

/// A step by its number in the metric.
impl From<u64> for MemoryStep {
    fn from(step: u64) -> Self {
        let step = usize::try_from(step).ok().and_then(|step| Self::NAMES.get(step));
        step.map_or(Self::Close, |(_, step)| *step)
    }
}

impl From<MemoryStep> for u64 {
    fn from(step: MemoryStep) -> Self {
        step as Self
    }
}

/// Tracks the step in force.
#[derive(Debug, Default)]
pub struct StepTracker(pub MemoryStep);

impl StepTracker {
    /// Updates the step by `reading`; without a reading, memory is not short. Returns the step in force from now on.
    pub fn update_step(&mut self, reading: Option<MemoryReading>) -> MemoryStep {
        let at = |per_cent: u64| {
            reading.is_some_and(|MemoryReading { used, limit }| {
                limit > 0 && u128::from(used) * 100 >= u128::from(limit) * u128::from(per_cent)
            })
        };
        let holds = |&&(step, per_cent): &&(MemoryStep, u64)| {
            let threshold = if step <= self.0 { per_cent - HYSTERESIS_PERCENT } else { per_cent };
            at(threshold)
        };
        self.0 = STEP_THRESHOLDS.iter().find(holds).map_or(MemoryStep::Normal, |(step, _)| *step);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(ladder: &mut StepTracker, used: u64) -> MemoryStep {
        ladder.update_step(Some(MemoryReading { used, limit: 1_000 }))
    }

    #[test]
    fn a_step_is_taken_at_its_threshold_and_left_below_it() {
        let mut ladder = StepTracker::default();
        for (used, step) in [
            (0, MemoryStep::Normal),
            (849, MemoryStep::Normal),
            (850, MemoryStep::Refuse),
            (800, MemoryStep::Refuse),
            (899, MemoryStep::Refuse),
            (900, MemoryStep::Shrink),
            (850, MemoryStep::Shrink),
            (849, MemoryStep::Refuse),
            (799, MemoryStep::Normal),
            (1_200, MemoryStep::Close),
            (900, MemoryStep::Close),
            (899, MemoryStep::Shrink),
            (10, MemoryStep::Normal),
        ] {
            assert_eq!(look(&mut ladder, used), step, "{used}");
        }
    }

    #[test]
    fn clients_with_connections_are_refused_first() {
        let refused = |has: bool| {
            [MemoryStep::Normal, MemoryStep::Refuse, MemoryStep::Shrink, MemoryStep::Close]
                .map(|step| step.refuses_connection(|| has))
        };
        assert_eq!(refused(true), [false, true, true, true]);
        assert_eq!(refused(false), [false, false, false, true]);
    }

    #[test]
    fn without_a_limit_memory_is_never_short() {
        let mut ladder = StepTracker::default();
        look(&mut ladder, 990);
        assert_eq!(ladder.update_step(None), MemoryStep::Normal);
        assert_eq!(ladder.update_step(Some(MemoryReading { used: u64::MAX, limit: 0 })), MemoryStep::Normal);
        assert_eq!(ladder.update_step(Some(MemoryReading { used: u64::MAX, limit: u64::MAX })), MemoryStep::Close);
    }

    proptest! {
        #[test]
        fn usage_that_swings_by_less_than_the_hysteresis_changes_the_step_once(
            middle in 0_u64..1_000, swings in prop::collection::vec(-20_i64..20, 1..100),
        ) {
            let mut ladder = StepTracker::default();
            let mut steps: Vec<MemoryStep> =
                swings.iter().map(|swing| look(&mut ladder, middle.saturating_add_signed(*swing))).collect();
            prop_assert!(steps.is_sorted());
            steps.dedup();
            prop_assert!(steps.len() <= 2, "{steps:?}");
        }
    }
}
