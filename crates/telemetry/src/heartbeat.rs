//! Heartbeat of a worker, by which the admin listener detects a worker that hangs: the worker records when it waits for
//! events, and ticks while it works. A worker without work does not tick.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Heartbeat of one worker.
#[derive(Debug)]
pub struct Heartbeat {
    created_at: Instant,
    /// Time of the last tick, in milliseconds after `created_at`.
    last_tick: AtomicU64,
    /// Whether the worker waits for events.
    is_parked: AtomicBool,
    /// Whether the worker does not tick until a wait has ended.
    is_resting: AtomicBool,
    ended_waits: AtomicU32,
    roused: Notify,
}

impl Heartbeat {
    /// Interval of ticks while a worker works: short enough that a deadline of seconds is not missed by chance.
    pub const TICK_INTERVAL: Duration = Duration::from_millis(500);

    /// Ticks. The worker's own runtime calls it, so that a loop that hangs does not.
    pub fn tick_heartbeat(&self) {
        self.last_tick.store(whole_milliseconds(self.created_at.elapsed()), Relaxed);
    }

    /// Records that the worker's thread is about to wait for events. Returns whether the worker rests.
    pub fn park(&self) -> bool {
        self.is_parked.store(true, Release);
        self.is_resting.load(Relaxed)
    }

    /// Records that a wait of the worker's thread has ended, which ends [`Self::rest_until_roused`].
    pub fn unpark(&self) {
        // Only this thread writes the count.
        self.ended_waits.store(self.ended_waits().wrapping_add(1), Relaxed);
        if self.is_resting.load(Relaxed) {
            self.tick_heartbeat();
            self.is_resting.store(false, Relaxed);
            self.roused.notify_one();
        }
        self.is_parked.store(false, Release);
    }

    /// Number of waits that have ended, which wraps around.
    pub fn ended_waits(&self) -> u32 {
        self.ended_waits.load(Relaxed)
    }

    /// Waits without ticks until the worker's thread has work.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the worker ticks again.
    pub async fn rest_until_roused(&self) {
        struct Resting<'a>(&'a AtomicBool);
        impl Drop for Resting<'_> {
            fn drop(&mut self) {
                self.0.store(false, Relaxed);
            }
        }

        self.is_resting.store(true, Relaxed);
        let _resting = Resting(&self.is_resting);
        self.roused.notified().await;
    }

    /// Whether the worker waits for events. Such a worker does not hang, however long ago its last tick was.
    pub fn is_parked(&self) -> bool {
        self.is_parked.load(Acquire)
    }

    /// Time since the last tick of a worker that does not wait for events, in whole milliseconds; zero if it waits. Any
    /// thread may call it.
    pub fn unresponsive_time(&self) -> Duration {
        self.unresponsive_time_at(self.created_at.elapsed())
    }

    /// A heartbeat whose last tick was `age` ago, and whose worker does not wait for events: for tests.
    pub fn with_age(age: Duration) -> Self {
        Self { created_at: Instant::now().checked_sub(age).unwrap_or_else(Instant::now), ..Self::default() }
    }

    fn unresponsive_time_at(&self, since_born: Duration) -> Duration {
        // The order matters: a tick precedes the end of a wait.
        match self.is_parked() {
            true => Duration::ZERO,
            false => Duration::from_millis(whole_milliseconds(since_born).saturating_sub(self.last_tick.load(Relaxed))),
        }
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            created_at: Instant::now(),
            last_tick: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
            ended_waits: AtomicU32::new(0),
            roused: Notify::new(),
        }
    }
}

fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::pin::pin;

    #[test]
    fn the_age_counts_from_the_last_tick() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.unresponsive_time_at(Duration::from_secs(7)), Duration::from_secs(7));
        heartbeat.last_tick.store(6_000, Relaxed);
        assert_eq!(heartbeat.unresponsive_time_at(Duration::from_secs(7)), Duration::from_secs(1));
        heartbeat.tick_heartbeat();
        assert!(heartbeat.unresponsive_time() < Duration::from_secs(7));
    }

    #[test]
    fn a_tick_that_overtakes_the_reader_has_no_age() {
        let heartbeat = Heartbeat::default();
        heartbeat.last_tick.store(10, Relaxed);
        assert_eq!(heartbeat.unresponsive_time_at(Duration::from_millis(9)), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_waiting_worker_does_not_hang_and_rests_until_the_wait_ends() {
        let heartbeat = Heartbeat::with_age(Duration::from_secs(60));
        assert!(heartbeat.unresponsive_time() >= Duration::from_secs(60));
        assert!(!heartbeat.park(), "it ticks");
        assert_eq!(heartbeat.unresponsive_time(), Duration::ZERO);
        heartbeat.unpark();
        assert!(heartbeat.unresponsive_time() >= Duration::from_secs(60), "it works, and has not ticked");
        {
            let mut rest = pin!(heartbeat.rest_until_roused());
            assert!(poll!(rest.as_mut()).is_pending());
            assert!(heartbeat.park());
            heartbeat.unpark();
            assert!(heartbeat.unresponsive_time() < Duration::from_secs(60), "the end of a rest is a tick");
            assert!(poll!(rest.as_mut()).is_ready());
        }
        assert!(!heartbeat.park());
        assert_eq!(heartbeat.ended_waits(), 2);
        {
            let mut rest = pin!(heartbeat.rest_until_roused());
            assert!(poll!(rest.as_mut()).is_pending());
        }
        assert!(!heartbeat.park(), "the rest was given up");
    }
}
