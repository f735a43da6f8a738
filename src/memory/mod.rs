//! What litequic does as memory runs short: no new connections, smaller buffers, then the connections that hold the
//! most are closed (docs/adr/0029-memory.md). The control thread measures usage, each worker acts. The registry of
//! connections that this needs also decides which of them makes room for a new one.

mod admission;
mod holders;
mod ladder;
mod usage;

pub use admission::Pool;
pub use holders::{EvictionReason, MemoryAccount, MemoryAccounts, Motion};
pub use ladder::{Ladder, Step};
pub use usage::{Limit, Reading, Usage, installed};

use std::time::Duration;
use tokio::sync::watch::{self, Receiver, Sender};

/// The time between two measurements of usage.
pub const LOOK: Duration = Duration::from_millis(100);

/// Publishes how short memory is, to all copies of [`Pressure`].
#[derive(Debug, Clone)]
pub struct Gauge(Sender<State>);

/// How short memory is. Each worker has a copy.
#[derive(Debug, Clone)]
pub struct Pressure(Receiver<State>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    step: Step,
    /// Bytes; 0 while there is no limit.
    limit: u64,
    /// Bytes that are used beyond what [`Step::Close`] is left at, while it is in force.
    excess: u64,
}

/// The share of the limit that a budget of all workers has at most: a quarter. What clients that do not read can fill
/// at once then leaves room for connections, and brings no step by itself.
const BUDGET: u64 = 4;
/// The share of the limit that a budget of all workers has once buffers are made smaller: a sixteenth.
const SHRUNK: u64 = 16;

impl Default for Gauge {
    fn default() -> Self {
        Self(watch::channel(State::default()).0)
    }
}

impl Gauge {
    /// For a worker.
    pub fn pressure(&self) -> Pressure {
        Pressure(self.0.subscribe())
    }

    /// Sets how short memory is, by `reading`.
    pub fn set(&self, step: Step, reading: Reading) {
        let excess = if step == Step::Close { ladder::excess(reading) } else { 0 };
        let now = State { step, limit: reading.limit, excess };
        self.0.send_if_modified(|state| std::mem::replace(state, now) != now);
    }
}

impl Default for Pressure {
    fn default() -> Self {
        Gauge::default().pressure()
    }
}

impl Pressure {
    /// How short memory is now.
    pub fn step(&self) -> Step {
        self.0.borrow().step
    }

    /// Bytes that one of `workers` workers is to free by closing connections.
    pub fn excess(&self, workers: usize) -> u64 {
        self.0.borrow().excess.checked_div(workers as u64).unwrap_or(0)
    }

    /// The budget of one of `workers` workers, of the bytes that are configured.
    pub fn budget(&self, configured: u64, workers: usize) -> u64 {
        let State { step, limit, .. } = *self.0.borrow();
        if limit == 0 {
            return configured;
        }
        let share = if step < Step::Shrink { BUDGET } else { SHRUNK };
        (limit / share).checked_div(workers as u64).map_or(configured, |share| share.min(configured))
    }

    /// Waits until `after` has passed, or memory has become shorter or less short. Cancel safe.
    pub async fn changed_within(&mut self, after: Duration) {
        // An error means that memory is not measured any more: the process ends.
        let changed = async {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let _ = tokio::time::timeout(after, changed).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_a_share_of_the_limit_and_a_smaller_one_once_memory_is_short() {
        const MIB: u64 = 1024 * 1024;
        let gauge = Gauge::default();
        let pressure = gauge.pressure();
        assert_eq!(pressure.budget(64, 1), 64, "without a limit");
        for (step, configured, workers, budget) in [
            (Step::Normal, 8, 2, 8),
            (Step::Normal, 64, 2, 16),
            (Step::Refuse, 64, 2, 16),
            (Step::Refuse, 64, 1, 32),
            (Step::Shrink, 64, 2, 4),
            (Step::Close, 64, 2, 4),
            (Step::Shrink, 2, 2, 2),
            (Step::Shrink, 64, 0, 64),
        ] {
            gauge.set(step, Reading { used: 127 * MIB, limit: 128 * MIB });
            let excess = if step == Step::Close { 127 * MIB - 128 * MIB / 100 * 90 } else { 0 };
            assert!(
                pressure.excess(workers).abs_diff(excess.checked_div(workers as u64).unwrap_or(0)) < 100,
                "{step:?}"
            );
            assert_eq!(pressure.budget(configured * MIB, workers), budget * MIB, "{step:?} {configured} {workers}");
        }
    }
}
