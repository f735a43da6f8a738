//! Timers whose deadlines move: each is made by the first wait, since most bodies never wait, and set again only when
//! it expires too early, so that progress costs one clock reading.

use super::poll_sleep_elapsed;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Timer of a deadline that the caller may move with each poll.
#[derive(Debug, Default)]
pub struct DeadlineTimer(Option<Pin<Box<Sleep>>>);

impl DeadlineTimer {
    /// Ready once `deadline` has passed and timeouts count. Cancel safe.
    pub fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while poll_sleep_elapsed(sleep.as_mut(), cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// Timer that expires after a period without activity.
#[derive(Debug)]
pub struct IdleTimer {
    timeout: Duration,
    last_activity: Instant,
    timer: DeadlineTimer,
}

impl IdleTimer {
    /// Starts a timer that expires after `timeout` without activity.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, last_activity: Instant::now(), timer: DeadlineTimer::default() }
    }

    /// Restarts the timeout.
    pub fn on_activity(&mut self) {
        self.last_activity = Instant::now();
    }

    /// Ready once the timeout has passed without activity. Cancel safe.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll_deadline(self.last_activity + self.timeout, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_deadline_moves_both_ways() {
        let (mut timer, began) = (DeadlineTimer::default(), Instant::now());
        for seconds in [5, 9, 2] {
            let polled = poll_fn(|cx| Poll::Ready(timer.poll_deadline(began + seconds * SECOND, cx))).await;
            assert!(polled.is_pending(), "{seconds}");
        }
        poll_fn(|cx| timer.poll_deadline(began + 2 * SECOND, cx)).await;
        assert_eq!(began.elapsed().as_secs(), 2);
        poll_fn(|cx| timer.poll_deadline(began + 7 * SECOND, cx)).await;
        assert_eq!(began.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn activity_restarts_an_idle_timer() {
        let (mut idle, began) = (IdleTimer::new(3 * SECOND), Instant::now());
        for _ in 0..3 {
            assert!(poll_fn(|cx| Poll::Ready(idle.poll_expired(cx))).await.is_pending());
            advance(2 * SECOND).await;
            idle.on_activity();
        }
        poll_fn(|cx| idle.poll_expired(cx)).await;
        assert_eq!(began.elapsed().as_secs(), 9);
    }
}
