//! The steps, by the share of its limit that memory has reached. Pure.

use super::usage::Reading;

/// The measures for want of memory. Each step does what those below it do, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing.
    #[default]
    Normal,
    /// A client that has two connections gets no third; connections without a request are closed, those first whose
    /// last one is the longest ago.
    Refuse,
    /// Budgets of bodies are a smaller share of the limit.
    Shrink,
    /// All new connections are rejected; those that hold the most are closed.
    Close,
}

/// Per cent of the limit from which on a step is in force.
const STEPS: [(Step, u64); 3] = [(Step::Close, 95), (Step::Shrink, 90), (Step::Refuse, 85)];
/// Per cent of the limit below which, less than where it begins, a step is left: so that no step flaps.
const HYSTERESIS: u64 = 5;

impl Step {
    /// Whether a new connection of a client is rejected, of which `has_some` says whether it has some already.
    pub fn refuses(self, has_some: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Normal => false,
            // A client that holds memory just below the last step would keep all others out.
            Self::Refuse | Self::Shrink => has_some(),
            Self::Close => true,
        }
    }

    /// The name in the log and on the status page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Refuse => "refuse connections",
            Self::Shrink => "shrink buffers",
            Self::Close => "close connections",
        }
    }
}

/// Bytes that are used beyond what the last step is left at.
pub(super) fn excess(Reading { used, limit }: Reading) -> u64 {
    let (_, per_cent) = STEPS[0];
    used.saturating_sub(limit / 100 * (per_cent - HYSTERESIS))
}

/// Bytes that may be used more before the first step is in force.
pub(super) fn left(Reading { used, limit }: Reading) -> u64 {
    let [.., (_, per_cent)] = STEPS;
    (limit / 100 * per_cent).saturating_sub(used)
}

/// The step by its number in the metric.
impl From<u64> for Step {
    fn from(step: u64) -> Self {
        match step {
            0 => Self::Normal,
            1 => Self::Refuse,
            2 => Self::Shrink,
            _ => Self::Close,
        }
    }
}

impl From<Step> for u64 {
    fn from(step: Step) -> Self {
        step as Self
    }
}

/// The state of the ladder.
#[derive(Debug, Default)]
pub struct Ladder(Step);

impl Ladder {
    /// The step in force.
    pub fn step(&self) -> Step {
        self.0
    }

    /// Memory is as in `reading`; without one it is not short. Returns the step in force from now on.
    pub fn look(&mut self, reading: Option<Reading>) -> Step {
        let at = |per_cent: u64| {
            reading.is_some_and(|Reading { used, limit }| {
                limit > 0 && u128::from(used) * 100 >= u128::from(limit) * u128::from(per_cent)
            })
        };
        let holds = |&&(step, per_cent): &&(Step, u64)| {
            let threshold = if step <= self.0 { per_cent - HYSTERESIS } else { per_cent };
            at(threshold)
        };
        self.0 = STEPS.iter().find(holds).map_or(Step::Normal, |(step, _)| *step);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(ladder: &mut Ladder, used: u64) -> Step {
        ladder.look(Some(Reading { used, limit: 1_000 }))
    }

    #[test]
    fn a_step_is_taken_at_its_threshold_and_left_below_it() {
        let mut ladder = Ladder::default();
        for (used, step) in [
            (0, Step::Normal),
            (849, Step::Normal),
            (850, Step::Refuse),
            (800, Step::Refuse),
            (899, Step::Refuse),
            (900, Step::Shrink),
            (850, Step::Shrink),
            (849, Step::Refuse),
            (799, Step::Normal),
            (1_200, Step::Close),
            (900, Step::Close),
            (899, Step::Shrink),
            (10, Step::Normal),
        ] {
            assert_eq!(look(&mut ladder, used), step, "{used}");
        }
    }

    #[test]
    fn who_has_connections_is_refused_before_who_has_none() {
        let refused =
            |has: bool| [Step::Normal, Step::Refuse, Step::Shrink, Step::Close].map(|step| step.refuses(|| has));
        assert_eq!(refused(true), [false, true, true, true]);
        assert_eq!(refused(false), [false, false, false, true]);
    }

    #[test]
    fn without_a_limit_nothing_is_short() {
        let mut ladder = Ladder::default();
        look(&mut ladder, 990);
        assert_eq!(ladder.look(None), Step::Normal);
        assert_eq!(ladder.look(Some(Reading { used: u64::MAX, limit: 0 })), Step::Normal);
        assert_eq!(ladder.look(Some(Reading { used: u64::MAX, limit: u64::MAX })), Step::Close);
    }

    proptest! {
        #[test]
        fn usage_that_swings_by_less_than_the_hysteresis_changes_the_step_once(
            middle in 0_u64..1_000, swings in prop::collection::vec(-20_i64..20, 1..100),
        ) {
            let mut ladder = Ladder::default();
            let mut steps: Vec<Step> =
                swings.iter().map(|swing| look(&mut ladder, middle.saturating_add_signed(*swing))).collect();
            prop_assert!(steps.is_sorted());
            steps.dedup();
            prop_assert!(steps.len() <= 2, "{steps:?}");
        }
    }
}
