//! Bounds the bytes and the time for which the rest of an answered request is discarded. Pure but for its timer.

use litequic_base::timers::{self, IdleTimer};
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Idle timeout of a client whose request is being discarded: nginx's default of lingering_timeout.
const LINGER_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Remaining bytes and time for discarding one request.
#[derive(Debug)]
pub struct LingerBudget {
    remaining_bytes: u64,
    deadline: Instant,
    idle: IdleTimer,
}

/// The limit that ended discarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LingerLimit {
    /// The byte limit was reached.
    Bytes,
    /// The time limit was reached.
    Time,
}

impl LingerBudget {
    /// Creates a budget of `bytes` within `timeout`.
    pub fn new(bytes: u64, timeout: Duration) -> Self {
        Self {
            remaining_bytes: bytes,
            deadline: Instant::now() + timeout,
            idle: IdleTimer::new(timeout.min(LINGER_IDLE_TIMEOUT)),
        }
    }

    /// Counts `bytes` more as discarded.
    ///
    /// # Errors
    ///
    /// The [`LingerLimit`] that is now reached.
    pub fn spend_bytes(&mut self, bytes: u64) -> Result<(), LingerLimit> {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(bytes);
        if self.remaining_bytes == 0 {
            return Err(LingerLimit::Bytes);
        }
        self.idle.on_activity();
        if Instant::now() < self.deadline {
            return Ok(());
        }
        timers::record_expiry(self.deadline);
        if timers::grace_deadline().is_none() { Err(LingerLimit::Time) } else { Ok(()) }
    }

    /// Ready once the client has sent nothing for too long.
    pub fn poll_linger_timeout(&mut self, cx: &mut Context<'_>) -> Poll<LingerLimit> {
        self.idle.poll_expired(cx).map(|()| LingerLimit::Time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn lingering_ends_by_bytes_by_time_and_by_silence() {
        let mut linger = LingerBudget::new(10, Duration::from_secs(8));
        assert_eq!((linger.spend_bytes(9), linger.spend_bytes(1)), (Ok(()), Err(LingerLimit::Bytes)));
        let mut linger = LingerBudget::new(10, Duration::from_secs(8));
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(linger.spend_bytes(1), Ok(()));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(linger.spend_bytes(1), Err(LingerLimit::Time));
        let began = Instant::now();
        let mut linger = LingerBudget::new(10, Duration::from_secs(8));
        assert_eq!(poll_fn(|cx| linger.poll_linger_timeout(cx)).await, LingerLimit::Time);
        assert!(began.elapsed() < LINGER_IDLE_TIMEOUT + Duration::from_secs(1));
    }
}
