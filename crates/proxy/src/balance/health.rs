//! Keeps the health of a server by its health checks: the state, which workers read, and the streak, several checks in
//! a row that change the state, except for the very first check.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bit of [`HealthState::transitions`] that is set while the server is unhealthy.
const DOWN: u32 = 1;
/// Value of one transition, above that bit.
const ONE_TRANSITION: u32 = 2;

/// Health of a server by its checks. The control thread writes it; workers read it without a lock.
#[derive(Debug, Default)]
pub(crate) struct HealthState {
    /// Number of transitions between healthy and unhealthy, with [`DOWN`] in the lowest bit: one word, which a worker
    /// reads at once.
    transitions: AtomicU32,
    last_result: Mutex<CheckResult>,
}

/// Result of the last health check, for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// No check was made yet.
    #[default]
    Pending,
    Passed,
    /// The last check failed, for this reason.
    Failed(String),
}

impl HealthState {
    /// Whether the server is healthy, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        Self::is_up_after(self.transitions())
    }

    pub(crate) const fn is_up_after(transitions: u32) -> bool {
        transitions & DOWN == 0
    }

    /// Number of transitions, and [`DOWN`].
    pub(crate) fn transitions(&self) -> u32 {
        self.transitions.load(Relaxed)
    }

    pub(crate) fn set_up(&self, up: bool) {
        if up != self.is_up() {
            let count = (self.transitions() & !DOWN).wrapping_add(ONE_TRANSITION);
            self.transitions.store(if up { count } else { count | DOWN }, Relaxed);
        }
    }

    pub(crate) fn last_result(&self) -> CheckResult {
        self.last_result.lock().clone()
    }

    pub(crate) fn set_last_result(&self, result: CheckResult) {
        *self.last_result.lock() = result;
    }
}

/// Consecutive health checks of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthStreak {
    healthy: u32,
    unhealthy: u32,
    up: bool,
    /// Whether there is no result yet: the next check decides by itself.
    unknown: bool,
    /// Consecutive checks with another result than `up`.
    against: u32,
}

impl HealthStreak {
    /// The streak of a server that is presumed `up`; `healthy` consecutive checks that succeed, or `unhealthy` that
    /// fail, change that.
    pub(crate) const fn new(healthy: u32, unhealthy: u32, up: bool, unknown: bool) -> Self {
        Self { healthy, unhealthy, up, unknown, against: 0 }
    }

    /// Records a check that succeeded (`well`), or failed. Returns the new state if it has changed.
    pub(crate) fn record_check(&mut self, well: bool) -> Option<bool> {
        let first = std::mem::replace(&mut self.unknown, false);
        if well == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if well { self.healthy } else { self.unhealthy };
        if self.against < needed && !first {
            return None;
        }
        (self.up, self.against) = (well, 0);
        Some(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_changes_its_state_after_a_streak_of_checks() {
        for (what, unknown, checks, expected) in [
            ("two failures of three", false, "--", ".."),
            ("three failures", false, "---", "..d"),
            ("interrupted", false, "--+--", "....."),
            ("down and up again", false, "---++", "..d.u"),
            ("half way up", false, "---+-+", "..d..."),
            ("the first fails", true, "-", "d"),
            ("the first goes well", true, "+---", "...d"),
            ("the first fails, the next goes well", true, "-++", "d.u"),
        ] {
            let mut streak = HealthStreak::new(2, 3, true, unknown);
            let said: String = checks
                .chars()
                .map(|check| match streak.record_check(check == '+') {
                    None => '.',
                    Some(true) => 'u',
                    Some(false) => 'd',
                })
                .collect();
            assert_eq!(said, expected, "{what}");
        }
    }
}
