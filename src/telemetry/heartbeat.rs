//! A worker's heartbeat: the worker ticks, the admin listener reads how long ago.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// One worker's heartbeat.
#[derive(Debug)]
pub struct Heartbeat {
    born: Instant,
    /// When the last tick was, in milliseconds after `born`.
    last: AtomicU64,
}

impl Heartbeat {
    /// How often a worker ticks: often enough that a deadline of seconds is not met by chance, and rarely enough
    /// that an idle worker sleeps.
    pub const INTERVAL: Duration = Duration::from_millis(500);

    /// Ticks. Called by the worker's own runtime, so that a loop that hangs does not.
    pub fn tick(&self) {
        self.last.store(millis(self.born.elapsed()), Relaxed);
    }

    /// How long ago the last tick was, or the creation if there was none; to the millisecond. Any thread may ask.
    pub fn age(&self) -> Duration {
        self.age_at(self.born.elapsed())
    }

    /// One whose last tick was `age` ago, for tests.
    #[cfg(test)]
    pub(crate) fn aged(age: Duration) -> Self {
        Self { born: Instant::now().checked_sub(age).expect("the machine is up for longer"), ..Self::default() }
    }

    fn age_at(&self, since_born: Duration) -> Duration {
        Duration::from_millis(millis(since_born).saturating_sub(self.last.load(Relaxed)))
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { born: Instant::now(), last: AtomicU64::new(0) }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_counts_from_the_last_tick() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.age_at(Duration::from_secs(7)), Duration::from_secs(7));
        heartbeat.last.store(6_000, Relaxed);
        assert_eq!(heartbeat.age_at(Duration::from_secs(7)), Duration::from_secs(1));
        heartbeat.tick();
        assert!(heartbeat.age() < Duration::from_secs(7));
    }

    #[test]
    fn a_tick_that_overtakes_the_reader_has_no_age() {
        let heartbeat = Heartbeat::default();
        heartbeat.last.store(10, Relaxed);
        assert_eq!(heartbeat.age_at(Duration::from_millis(9)), Duration::ZERO);
    }
}
