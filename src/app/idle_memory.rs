//! When an idle worker returns memory to the system: after a flood, freed memory would stay with the process until the
//! next traffic. Pure but for the allocator's call.

use std::{sync::OnceLock, time::Duration};

/// A worker is idle if it was busy for less of the time between two looks.
const IDLE_THRESHOLD: Duration = Duration::from_millis(50);
/// Idle looks in a row before memory is returned: longer than a pause of a client's.
const IDLE_CHECKS: u32 = 4;
/// Further idle looks after which memory is returned once more: what was left to expire at the first time, such as idle
/// connections, is gone then.
const SECOND_RELEASE_CHECKS: u32 = 16;
/// How long it must have been busy before for there to be something worth a call that takes up to milliseconds. It
/// makes at most a hundredth of the worker's time.
const MIN_BUSY: Duration = Duration::from_millis(100);

static MEMORY_RELEASE: OnceLock<fn()> = OnceLock::new();

/// Has workers call `release`, which returns the memory that the calling thread has freed. The first call sets it for
/// good.
pub(crate) fn set_memory_release(release: fn()) {
    let _ = MEMORY_RELEASE.set(release);
}

/// Returns the memory that the calling thread has freed.
pub(super) fn return_freed_memory() {
    if let Some(release) = MEMORY_RELEASE.get() {
        release();
    }
}

/// What a worker has done lately.
#[derive(Debug, Default)]
pub(super) struct IdleTracker {
    /// How long it was busy in all, at the last look.
    busy: Duration,
    /// Time of `busy` since memory was last returned.
    worked: Duration,
    /// Looks in a row at which it was idle.
    idle_checks: u32,
    /// The number of them at which memory is given back once more.
    second_release_at: u32,
}

impl IdleTracker {
    /// Looks at a worker that was busy for `busy` in all, twice a second. True if it is to return memory now.
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

    /// Whether there is no memory to return until the worker has done more.
    pub(super) fn is_fully_released(&self) -> bool {
        self.worked < MIN_BUSY && self.idle_checks >= self.second_release_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which looks memory is given back by a worker that is busy for so many milliseconds before each.
    fn releases(busy: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let (mut idle, mut total) = (IdleTracker::default(), Duration::ZERO);
        let looks = busy.into_iter().enumerate().filter(|(_, busy)| {
            total += Duration::from_millis(*busy);
            idle.observe_busy_time(total)
        });
        looks.map(|(look, _)| look).collect()
    }

    #[test]
    fn a_worker_gives_memory_back_when_it_becomes_idle_and_once_more() {
        assert_eq!(releases([&[500, 500][..], &[0; 100]].concat()), [5, 21]);
        assert_eq!(releases([500, 0, 0, 0, 500, 0, 0, 0, 1, 0]), [8]);
    }

    #[test]
    fn a_worker_is_settled_before_it_has_worked_and_once_it_has_returned_memory_twice() {
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
    fn a_worker_that_is_never_idle_or_was_never_busy_gives_no_memory_back() {
        assert_eq!(releases([60; 100]), [0; 0]);
        assert_eq!(releases([0; 100]), [0; 0]);
    }

    #[test]
    fn under_a_light_load_it_does_now_and_then() {
        assert_eq!(releases([10; 35]), [9, 19, 29]);
    }
}
