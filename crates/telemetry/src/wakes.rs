//! Counts the causes of a worker's wakes. epoll_wait(2) does not report why it returned, but the first task that runs
//! next shows it: the endpoint's with datagrams or an expired timer, or one that reads an origin's socket. Each wait
//! has one cause, so their sum is the number of waits.

use super::{
    counter::Counter,
    group::{Group, IO_SYSCALLS, Sample},
};
use crate::metrics;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Cause of the end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WakeCause {
    /// A timer of QUIC: a packet may leave, an acknowledgement is due, or a probe.
    Timer = 2,
    /// A UDP socket was readable.
    Datagrams = 3,
    /// Datagrams are read at a fixed time, whether or not any has arrived.
    Moderation = 6,
    /// Any other socket with requests: an origin's or a TCP client's.
    Origin = 4,
    /// Any other cause: the worker's own timers, a socket that is writable again, another thread.
    Other = 5,
}

/// State of a worker that waits, or has not waited since the last count.
const NO_CAUSE: u8 = 0;
/// State after a wait, before any task has set the cause.
const UNKNOWN_CAUSE: u8 = 1;

metrics! {
    /// Counters of a worker's waits and their causes.
    pub struct WakeMetrics {
        Counter(IO_SYSCALLS) {
            syscalls_epoll_wait [call: "epoll_wait"] "Times a worker had nothing to do and waited for any event.",
        }
        Counter("worker_wakes", "Times a worker's wait ended, by cause.") {
            wakes_timer [cause: "timer"]
                "A timer of QUIC: packets may leave, an acknowledgement is due, or a probe. Where several causes \
                    coincide, the one counts whose task runs first.",
            wakes_datagrams [cause: "datagrams"] "A UDP socket was readable.",
            wakes_moderation [cause: "moderation"]
                "It was time to read datagrams: see [`litequic.receive_moderation`](../configuration.md#litequic).",
            wakes_origin [cause: "origin"] "A socket of an origin, or of a client over TCP.",
            wakes_other [cause: "other"]
                "Anything else: the worker's own timers, two a second while it works and those of timeouts, one a second of each \
                    stream that waits for `send_buffer`; a UDP socket that takes datagrams again; name lookups, reloads.",
        }
    }
}

/// Tracks why the worker runs at present. One thread writes and reads it: an atomic because other threads may hold its
/// metrics.
#[derive(Debug, Default)]
pub struct WakeTracker {
    cause: AtomicU8,
    /// Counts of waits by cause.
    pub metrics: WakeMetrics,
}

impl WakeTracker {
    /// Records that a wait has ended.
    pub fn on_wait_ended(&self) {
        self.cause.store(UNKNOWN_CAUSE, Relaxed);
    }

    /// Records that a task runs because of `cause`. The first cause after a wait is the one of its end.
    pub fn note_cause(&self, cause: WakeCause) {
        if self.cause.load(Relaxed) == UNKNOWN_CAUSE {
            self.cause.store(cause as u8, Relaxed);
        }
    }

    /// Counts a wait that begins, and the cause of the end of the wait before. The worker's runtime calls it when it
    /// has nothing to do.
    pub fn on_wait_begins(&self) {
        self.metrics.syscalls_epoll_wait.increment();
        // One thread writes the cause, so no locked instruction is needed.
        let cause = self.cause.load(Relaxed);
        self.cause.store(NO_CAUSE, Relaxed);
        let counter = match cause {
            NO_CAUSE => return,
            cause if cause == WakeCause::Timer as u8 => &self.metrics.wakes_timer,
            cause if cause == WakeCause::Datagrams as u8 => &self.metrics.wakes_datagrams,
            cause if cause == WakeCause::Moderation as u8 => &self.metrics.wakes_moderation,
            cause if cause == WakeCause::Origin as u8 => &self.metrics.wakes_origin,
            _ => &self.metrics.wakes_other,
        };
        counter.increment();
    }
}

impl Group for WakeTracker {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        self.metrics.visit(see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts after the worker wakes, each of `causes` is recorded, and the worker waits again: timer, datagrams,
    /// moderation, origin, other.
    fn counted(causes: &[WakeCause]) -> [u64; 5] {
        let wake = WakeTracker::default();
        wake.on_wait_ended();
        causes.iter().for_each(|&cause| wake.note_cause(cause));
        wake.on_wait_begins();
        wakes(&wake.metrics)
    }

    fn wakes(metrics: &WakeMetrics) -> [u64; 5] {
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
        use WakeCause::{Datagrams, Moderation, Origin, Other, Timer};
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
    fn work_outside_of_a_wake_is_not_counted() {
        let wake = WakeTracker::default();
        wake.note_cause(WakeCause::Datagrams);
        wake.on_wait_begins();
        assert_eq!((wakes(&wake.metrics), wake.metrics.syscalls_epoll_wait.get()), ([0; 5], 1));
        wake.on_wait_ended();
        wake.note_cause(WakeCause::Timer);
        wake.on_wait_begins();
        wake.note_cause(WakeCause::Origin);
        wake.on_wait_begins();
        assert_eq!((wakes(&wake.metrics), wake.metrics.syscalls_epoll_wait.get()), ([1, 0, 0, 0, 0], 3));
    }
}
