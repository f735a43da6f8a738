//! What ends a worker's waits. epoll_wait(2) does not say why it returned, but the first task that runs next does: the
//! endpoint's with datagrams or an expired timer, or one that reads an origin's socket. Each wait has one cause, so their sum is
//! the number of waits.

use super::metrics::WorkerMetrics;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// QUIC's timer: a departure is due, an acknowledgement, or a probe.
    Timer = 2,
    /// A UDP socket was readable.
    Datagrams = 3,
    /// Datagrams are taken at a fixed time, whether or not any has arrived.
    Moderation = 6,
    /// Any other socket that carries requests: an origin's or a TCP client's.
    Origin = 4,
    /// Anything else: the worker's own timers, a socket that is writable again, another thread.
    Other = 5,
}

/// The worker waits, or has not waited since the last count.
const NONE: u8 = 0;
/// A wait is over, and no task has said why.
const UNKNOWN: u8 = 1;

/// Why the worker runs at present. One thread writes and reads it: an atomic because other threads may hold its metrics.
#[derive(Debug, Default)]
pub struct Wake(AtomicU8);

impl Wake {
    /// A wait is over.
    pub fn begin(&self) {
        self.0.store(UNKNOWN, Relaxed);
    }

    /// A task runs because of `cause`. The first one since the wait tells what ended it.
    pub fn note(&self, cause: Cause) {
        if self.0.load(Relaxed) == UNKNOWN {
            self.0.store(cause as u8, Relaxed);
        }
    }

    /// The next wait begins. Returns what ended the last one; `None` if there was none.
    fn end(&self) -> Option<Cause> {
        let state = self.0.load(Relaxed);
        self.0.store(NONE, Relaxed);
        [Cause::Timer, Cause::Datagrams, Cause::Moderation, Cause::Origin]
            .into_iter()
            .find(|&cause| cause as u8 == state)
            .or((state != NONE).then_some(Cause::Other))
    }
}

impl WorkerMetrics {
    /// Counts a wait that begins, and what ended the one before. Called by the worker's runtime when it has nothing to do.
    pub fn count_wait(&self) {
        self.syscalls_epoll_wait.increment();
        let counter = match self.wake.end() {
            None => return,
            Some(Cause::Timer) => &self.wakes_timer,
            Some(Cause::Datagrams) => &self.wakes_datagrams,
            Some(Cause::Moderation) => &self.wakes_moderation,
            Some(Cause::Origin) => &self.wakes_origin,
            Some(Cause::Other) => &self.wakes_other,
        };
        counter.increment();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted when the worker wakes, each of `causes` is noted, and it waits again: timer, datagrams, moderation, origin,
    /// other.
    fn counted(causes: &[Cause]) -> [u64; 5] {
        let metrics = WorkerMetrics::default();
        metrics.wake.begin();
        causes.iter().for_each(|&cause| metrics.wake.note(cause));
        metrics.count_wait();
        wakes(&metrics)
    }

    fn wakes(metrics: &WorkerMetrics) -> [u64; 5] {
        [
            &metrics.wakes_timer,
            &metrics.wakes_datagrams,
            &metrics.wakes_moderation,
            &metrics.wakes_origin,
            &metrics.wakes_other,
        ]
        .map(|c| c.get())
    }

    #[test]
    fn a_wake_has_the_cause_that_was_noted_first() {
        use Cause::{Datagrams, Moderation, Origin, Other, Timer};
        for (causes, expected) in [
            (&[Timer][..], [1, 0, 0, 0, 0]),
            (&[Datagrams], [0, 1, 0, 0, 0]),
            (&[Moderation, Datagrams], [0, 0, 1, 0, 0]),
            (&[Origin], [0, 0, 0, 1, 0]),
            (&[Other], [0, 0, 0, 0, 1]),
            (&[], [0, 0, 0, 0, 1]),
            (&[Origin, Timer, Datagrams], [0, 0, 0, 1, 0]),
            (&[Datagrams, Datagrams, Origin], [0, 1, 0, 0, 0]),
            (&[Other, Origin], [0, 0, 0, 0, 1]),
        ] {
            assert_eq!(counted(causes), expected, "{causes:?}");
        }
    }

    #[test]
    fn what_happens_before_the_first_wait_or_between_two_is_no_wake() {
        let metrics = WorkerMetrics::default();
        metrics.wake.note(Cause::Datagrams);
        metrics.count_wait();
        assert_eq!((wakes(&metrics), metrics.syscalls_epoll_wait.get()), ([0; 5], 1));
        metrics.wake.begin();
        metrics.wake.note(Cause::Timer);
        metrics.count_wait();
        metrics.wake.note(Cause::Origin);
        metrics.count_wait();
        assert_eq!((wakes(&metrics), metrics.syscalls_epoll_wait.get()), ([1, 0, 0, 0, 0], 3));
    }
}
