//! Limits the wait for a slow client: by an idle timeout, and by a minimum rate over all bytes.

use litequic_base::timers::{self, DeadlineTimer};
use std::{
    cell::Cell,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// The slowest progress that is accepted of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinimumRate {
    /// Longest wait without any progress.
    pub idle_timeout: Duration,
    /// Average bytes a second over the time of waiting; 0 for no minimum.
    pub rate: u64,
    /// Time granted beyond the minimum rate.
    pub grace: Duration,
}

impl MinimumRate {
    /// Requires progress within each `idle`, at any rate.
    pub fn without_rate(idle: Duration) -> Self {
        Self { idle_timeout: idle, rate: 0, grace: Duration::ZERO }
    }

    /// Returns the longest total wait for a client that moves `bytes`.
    pub fn allowed_wait(&self, bytes: u64) -> Duration {
        bytes
            .checked_div(self.rate)
            .map_or(Duration::MAX, |seconds| self.grace.saturating_add(Duration::from_secs(seconds)))
    }
}

/// The reason why a client is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutCause {
    /// No byte moved within the idle timeout.
    Idle,
    /// Fewer bytes moved than the minimum rate requires.
    Slow,
}

/// Switch by which the consumer of a body stops the deadline of the body's client.
#[derive(Debug, Clone, Default)]
pub struct DeadlineSwitch(Rc<Cell<bool>>);

impl DeadlineSwitch {
    /// Stops the deadline: the consumer has one of its own.
    pub fn stop_deadline(&self) {
        self.0.set(true);
    }
}

/// Deadline of a client. Time counts only while litequic waits for the client.
#[derive(Debug)]
pub struct ClientDeadline {
    minimum_rate: MinimumRate,
    /// Start of the current wait, if there is one.
    waiting_since: Option<Instant>,
    /// Total of earlier waits.
    waited: Duration,
    /// Bytes that moved so far.
    bytes: u64,
    timer: DeadlineTimer,
    /// Switch of the consumer, if there is one.
    switch: Option<DeadlineSwitch>,
}

impl ClientDeadline {
    /// Creates a deadline without a wait so far.
    pub fn new(pace: MinimumRate) -> Self {
        Self {
            minimum_rate: pace,
            waiting_since: None,
            waited: Duration::ZERO,
            bytes: 0,
            timer: DeadlineTimer::default(),
            switch: None,
        }
    }

    /// Returns a switch that stops this deadline.
    pub fn add_switch(&mut self) -> DeadlineSwitch {
        self.switch.get_or_insert_default().clone()
    }

    /// Ends the wait: `bytes` moved, or none were awaited.
    pub fn on_progress(&mut self, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.waited = self.waited.saturating_add(timers::elapsed_since_resume(since));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Forgets all waits: the client was not at fault.
    pub fn reset_wait(&mut self) {
        (self.waiting_since, self.waited) = (None, Duration::ZERO);
    }

    /// Waits for the client. Ready with the cause once the wait is too long; never once the deadline is stopped. Cancel
    /// safe.
    pub fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutCause> {
        if self.switch.as_ref().is_some_and(|switch| switch.0.get()) {
            return Poll::Pending;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let left = self.minimum_rate.allowed_wait(self.bytes).saturating_sub(self.waited);
        let (timeout, late) = if left < self.minimum_rate.idle_timeout {
            (left, TimeoutCause::Slow)
        } else {
            (self.minimum_rate.idle_timeout, TimeoutCause::Idle)
        };
        self.timer.poll_deadline(since + timeout, cx).map(|()| late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const PACE: MinimumRate =
        MinimumRate { idle_timeout: Duration::from_secs(60), rate: 100, grace: Duration::from_secs(20) };

    /// Moves `bytes` each `every` seconds. Returns the seconds until the client was too slow, and the cause.
    async fn trickle(pace: MinimumRate, bytes: u64, every: u64) -> (u64, Option<TimeoutCause>) {
        let (mut deadline, began) = (ClientDeadline::new(pace), Instant::now());
        for _ in 0..100 {
            let late = tokio::time::timeout(Duration::from_secs(every), poll_fn(|cx| deadline.poll_wait(cx))).await;
            if let Ok(late) = late {
                return (began.elapsed().as_secs(), Some(late));
            }
            deadline.on_progress(bytes);
        }
        (began.elapsed().as_secs(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_the_minimum_rate_does_not_time_out() {
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
    async fn a_fast_client_times_out_only_after_a_pause() {
        let mut deadline = ClientDeadline::new(PACE);
        deadline.on_progress(1_000_000);
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| deadline.poll_wait(cx)).await, TimeoutCause::Idle);
        assert_eq!(began.elapsed().as_secs(), 60);
        assert_eq!(
            trickle(MinimumRate::without_rate(Duration::from_secs(5)), 0, 10).await,
            (5, Some(TimeoutCause::Idle))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_is_stopped_never_passes() {
        let mut deadline = ClientDeadline::new(PACE);
        let switch = deadline.add_switch();
        let late = tokio::time::timeout(Duration::from_secs(19), poll_fn(|cx| deadline.poll_wait(cx))).await;
        assert!(late.is_err());
        switch.stop_deadline();
        let late = tokio::time::timeout(Duration::from_secs(100_000), poll_fn(|cx| deadline.poll_wait(cx))).await;
        assert!(late.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn time_outside_of_waits_does_not_count() {
        let mut deadline = ClientDeadline::new(PACE);
        for _ in 0..19 {
            let late = tokio::time::timeout(Duration::from_secs(1), poll_fn(|cx| deadline.poll_wait(cx))).await;
            assert!(late.is_err());
            deadline.on_progress(0);
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| deadline.poll_wait(cx)).await, TimeoutCause::Slow);
        assert_eq!(began.elapsed().as_secs(), 1);
    }
}
