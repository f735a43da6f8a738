//! The rate of a link: constant, or a trace of steps that begins anew when it is over.

use std::time::Duration;

const NANOSECONDS: u128 = 1_000_000_000;

/// A part of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bits a second; 0 while the link is cut.
    pub(crate) rate: u64,
    /// For how long; [`Duration::MAX`] for the rest of time.
    pub(crate) lasts: Duration,
}

/// Rates over time. At least one step has both a rate and a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rate(Vec<Step>);

impl Rate {
    /// The same for ever.
    #[cfg(test)]
    pub(crate) fn constant(rate: u64) -> Option<Self> {
        Self::steps(vec![Step { rate, lasts: Duration::MAX }])
    }

    /// A trace; `None` when nothing would ever be sent, or never again.
    pub(crate) fn steps(mut steps: Vec<Step>) -> Option<Self> {
        steps.retain(|step| !step.lasts.is_zero());
        let last = steps.last()?;
        let is_cut_for_ever = last.lasts == Duration::MAX && last.rate == 0;
        (!is_cut_for_ever && steps.iter().any(|step| step.rate > 0)).then_some(Self(steps))
    }

    /// The first step's: what a bandwidth-delay product is computed from.
    pub(crate) fn first(&self) -> u64 {
        self.0.iter().map(|step| step.rate).find(|rate| *rate > 0).unwrap_or_default()
    }

    /// The highest.
    pub(crate) fn highest(&self) -> u64 {
        self.0.iter().map(|step| step.rate).max().unwrap_or_default()
    }

    /// When so many bytes have been sent whose first bit goes at `start`, rounded up to a nanosecond.
    pub(crate) fn sent(&self, start: Duration, bytes: u32) -> Duration {
        // In units of a bit a second times a nanosecond, which a step's rate and length give exactly.
        let mut left = u128::from(bytes) * 8 * NANOSECONDS;
        let (mut at, whole) = (start, self.0.iter().fold(Duration::ZERO, |sum, step| sum.saturating_add(step.lasts)));
        let mut into = if whole == Duration::MAX { start } else { modulo(start, whole) };
        loop {
            for step in &self.0 {
                if into >= step.lasts {
                    into -= step.lasts;
                    continue;
                }
                let lasts = step.lasts - into;
                into = Duration::ZERO;
                let room = u128::from(step.rate).saturating_mul(lasts.as_nanos());
                if room >= left {
                    let nanoseconds = left.div_ceil(u128::from(step.rate.max(1)));
                    return at.saturating_add(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)));
                }
                left -= room;
                at = at.saturating_add(lasts);
            }
        }
    }
}

fn modulo(time: Duration, whole: Duration) -> Duration {
    let nanoseconds = time.as_nanos() % whole.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
