//! How long to wait for a client: between two bytes, and for all of them by the rate at which they move.

use litequic_base::timers;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// How slow a client may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinimumRate {
    /// How long nothing may move while litequic waits for the client.
    idle_timeout: Duration,
    /// Bytes a second on average over the time of waiting; 0 is no minimum.
    rate: u64,
    /// How long to wait beyond that.
    grace: Duration,
}

impl MinimumRate {
    /// At least `rate` bytes a second (0: any) after `grace`, and not `idle` without one.
    pub fn new(idle: Duration, rate: u64, grace: Duration) -> Self {
        Self { idle_timeout: idle, rate, grace }
    }

    /// At any rate.
    pub fn without_rate(idle: Duration) -> Self {
        Self::new(idle, 0, Duration::ZERO)
    }

    /// How long nothing may move.
    pub fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// How long to wait in all for a client that moves `bytes`.
    pub fn allowed_wait(&self, bytes: u64) -> Duration {
        bytes
            .checked_div(self.rate)
            .map_or(Duration::MAX, |seconds| self.grace.saturating_add(Duration::from_secs(seconds)))
    }
}

/// Why the wait for a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutCause {
    /// Nothing moved.
    Idle,
    /// Too little did.
    Slow,
}

/// What is left of a client's time. Runs only while litequic waits for the client.
#[derive(Debug)]
pub struct ClientDeadline {
    minimum_rate: MinimumRate,
    /// The start of the wait, if there is one.
    waiting_since: Option<Instant>,
    /// The time of earlier waits.
    waited: Duration,
    /// Bytes that moved.
    bytes: u64,
    /// Created on the first wait: most bodies never wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl ClientDeadline {
    /// Without a wait so far.
    pub fn new(pace: MinimumRate) -> Self {
        Self { minimum_rate: pace, waiting_since: None, waited: Duration::ZERO, bytes: 0, sleep: None }
    }

    /// `bytes` moved, or none were to: the wait is over.
    pub fn on_progress(&mut self, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.waited = self.waited.saturating_add(timers::elapsed_since_resume(since));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Forgets the wait: it was not the client's fault.
    pub fn reset_wait(&mut self) {
        (self.waiting_since, self.waited) = (None, Duration::ZERO);
    }

    /// Waits for the client; ready once that has lasted too long. Losing a poll loses nothing.
    pub fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutCause> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let left = self.minimum_rate.allowed_wait(self.bytes).saturating_sub(self.waited);
        let (patience, late) = if left < self.minimum_rate.idle_timeout {
            (left, TimeoutCause::Slow)
        } else {
            (self.minimum_rate.idle_timeout, TimeoutCause::Idle)
        };
        let deadline = since + patience;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while timers::poll_sleep_elapsed(sleep.as_mut(), cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(late);
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const PACE: MinimumRate =
        MinimumRate { idle_timeout: Duration::from_secs(60), rate: 100, grace: Duration::from_secs(20) };

    /// Moves `bytes` each `every` seconds; says after how many seconds of waiting it was too late, and why.
    async fn trickle(pace: MinimumRate, bytes: u64, every: u64) -> (u64, Option<TimeoutCause>) {
        let (mut patience, began) = (ClientDeadline::new(pace), Instant::now());
        for _ in 0..100 {
            let late = tokio::time::timeout(Duration::from_secs(every), poll_fn(|cx| patience.poll_wait(cx))).await;
            if let Ok(late) = late {
                return (began.elapsed().as_secs(), Some(late));
            }
            patience.on_progress(bytes);
        }
        (began.elapsed().as_secs(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_waited_for_as_long_as_it_keeps_its_rate() {
        for (bytes, every, after, late) in [
            (1, 1, 20, Some(TimeoutCause::Slow)),
            (99, 1, 100, None),
            (50, 1, 39, Some(TimeoutCause::Slow)),
            (0, 90, 20, Some(TimeoutCause::Slow)),
            (10_000, 15, 1_500, None),
            (1_000_000, 19, 1_900, None),
        ] {
            let (seconds, why) = trickle(PACE, bytes, every).await;
            assert!(why == late && seconds.abs_diff(after) <= 1, "{bytes} each {every} s: {seconds}, {why:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_moved_much_is_waited_for_until_nothing_moves() {
        let mut patience = ClientDeadline::new(PACE);
        patience.on_progress(1_000_000);
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| patience.poll_wait(cx)).await, TimeoutCause::Idle);
        assert_eq!(began.elapsed().as_secs(), 60);
        assert_eq!(
            trickle(MinimumRate::without_rate(Duration::from_secs(5)), 0, 10).await,
            (5, Some(TimeoutCause::Idle))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn time_for_which_it_is_not_waited_for_does_not_count() {
        let mut patience = ClientDeadline::new(PACE);
        for _ in 0..19 {
            let late = tokio::time::timeout(Duration::from_secs(1), poll_fn(|cx| patience.poll_wait(cx))).await;
            assert!(late.is_err());
            patience.on_progress(0);
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| patience.poll_wait(cx)).await, TimeoutCause::Slow);
        assert_eq!(began.elapsed().as_secs(), 1);
    }
}
