//! How much of a request is discarded once it was answered, and for how long. Pure but for its timer.

use super::idle::IdleTimer;
use litequic_base::timers;
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// How long a client may send nothing meanwhile: nginx' lingering_timeout.
const PAUSE: Duration = Duration::from_secs(5);

/// How much of one request may still be discarded.
#[derive(Debug)]
pub struct Linger {
    left: u64,
    until: Instant,
    idle: IdleTimer,
}

/// Why no more is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lingered {
    /// The byte limit was reached.
    Bytes,
    /// The time limit was reached.
    Time,
}

impl Linger {
    /// At most `bytes`, within `patience`.
    pub fn new(bytes: u64, patience: Duration) -> Self {
        Self { left: bytes, until: Instant::now() + patience, idle: IdleTimer::new(patience.min(PAUSE)) }
    }

    /// Counts `bytes` more that were discarded.
    ///
    /// # Errors
    ///
    /// [`Lingered`]: they were the last.
    pub fn took(&mut self, bytes: u64) -> Result<(), Lingered> {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            return Err(Lingered::Bytes);
        }
        self.idle.touch();
        if Instant::now() < self.until {
            return Ok(());
        }
        timers::expired(self.until);
        if timers::grace().is_none() { Err(Lingered::Time) } else { Ok(()) }
    }

    /// Ready once nothing came for too long.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Lingered> {
        self.idle.poll_expired(cx).map(|()| Lingered::Time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn it_ends_by_bytes_by_time_and_by_silence() {
        let mut linger = Linger::new(10, Duration::from_secs(8));
        assert_eq!((linger.took(9), linger.took(1)), (Ok(()), Err(Lingered::Bytes)));
        let mut linger = Linger::new(10, Duration::from_secs(8));
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(linger.took(1), Ok(()));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(linger.took(1), Err(Lingered::Time));
        let began = Instant::now();
        let mut linger = Linger::new(10, Duration::from_secs(8));
        assert_eq!(poll_fn(|cx| linger.poll_over(cx)).await, Lingered::Time);
        assert!(began.elapsed() < PAUSE + Duration::from_secs(1));
    }
}
