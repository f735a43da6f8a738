//! Decides when an idle worker returns memory to the system: after a flood, freed memory would stay with the process
//! until the next traffic. Pure but for the allocator's call.

use std::{sync::OnceLock, time::Duration};

/// Busy time between two checks below which a worker counts as idle.
const IDLE_THRESHOLD: Duration = Duration::from_millis(50);
/// Number of idle checks in a row before memory is returned: longer than a pause of a client.
const IDLE_CHECKS: u32 = 4;
/// Number of further idle checks before memory is returned once more: idle connections and the like have expired by
/// then.
const SECOND_RELEASE_CHECKS: u32 = 16;
/// Minimum busy time that makes a release worth its cost of up to milliseconds: at most a hundredth of the worker's
/// time.
const MIN_BUSY: Duration = Duration::from_millis(100);

static MEMORY_RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets the function that returns the memory which the calling thread has freed. Only the first call has an effect.
pub(crate) fn set_memory_release(release: fn()) {
    let _ = MEMORY_RELEASE.set(release);
}

/// Returns the memory that the calling thread has freed.
pub(super) fn return_freed_memory() {
    if let Some(release) = MEMORY_RELEASE.get() {
        release();
    }
}

/// Tracks the busy time of a worker.
#[derive(Debug, Default)]
pub(super) struct IdleTracker {
    /// Total busy time at the last check.
    busy: Duration,
    /// Busy time since memory was last returned.
    worked: Duration,
    /// Number of idle checks in a row.
    idle_checks: u32,
    /// Value of `idle_checks` at which memory is returned once more.
    second_release_at: u32,
}

impl IdleTracker {
    /// Records the total busy time of a worker, twice a second. Returns whether the worker is to return memory now.
    pub(super) fn observe_busy_time(&mut self, busy: Duration) -> bool {
        let worked = busy.saturating_sub(self.busy);
        self.busy = busy;
        self.worked = self.worked.saturating_add(worked);
        self.idle_checks = if worked < IDLE_THRESHOLD { self.idle_checks.saturating_add(1) } else { 0 };
        if self.idle_checks >= IDLE_CHECKS && self.worked >= MIN_BUSY {
            self.worked = Duration::ZERO;
            self.second_release_at = self.idle_checks.saturating_add(SECOND_RELEASE_CHECKS);
            return true;
        }
        self.idle_checks > 0 && self.idle_checks == self.second_release_at
    }

    /// Returns whether there is no memory to return until the worker has worked again.
    pub(super) fn is_fully_released(&self) -> bool {
        self.worked < MIN_BUSY && self.idle_checks >= self.second_release_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks at which a worker returns memory that was busy for these milliseconds before each.
    fn releases(busy: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let (mut idle, mut total) = (IdleTracker::default(), Duration::ZERO);
        let looks = busy.into_iter().enumerate().filter(|(_, busy)| {
            total += Duration::from_millis(*busy);
            idle.observe_busy_time(total)
        });
        looks.map(|(look, _)| look).collect()
    }

    #[test]
    fn an_idle_worker_returns_memory_twice() {
        assert_eq!(releases([&[500, 500][..], &[0; 100]].concat()), [5, 21]);
        assert_eq!(releases([500, 0, 0, 0, 500, 0, 0, 0, 1, 0]), [8]);
    }

    #[test]
    fn memory_is_fully_released_before_work_and_after_two_releases() {
        let mut idle = IdleTracker::default();
        assert!(!idle.observe_busy_time(Duration::from_millis(99)) && idle.is_fully_released());
        assert!(!idle.observe_busy_time(Duration::from_millis(499)));
        let settles = (0..=SECOND_RELEASE_CHECKS + IDLE_CHECKS).position(|_| {
            idle.observe_busy_time(Duration::from_millis(499));
            idle.is_fully_released()
        });
        assert_eq!(settles, Some((SECOND_RELEASE_CHECKS + IDLE_CHECKS - 1) as usize));
    }

    #[test]
    fn a_worker_never_idle_or_never_busy_returns_no_memory() {
        assert_eq!(releases([60; 100]), [0; 0]);
        assert_eq!(releases([0; 100]), [0; 0]);
    }

    #[test]
    fn a_lightly_loaded_worker_returns_memory_occasionally() {
        assert_eq!(releases([10; 35]), [9, 19, 29]);
    }
}
