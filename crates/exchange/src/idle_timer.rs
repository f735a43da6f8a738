//! Implements an idle timeout: one timer for a body, moved on only when it fires, so that each chunk costs one clock
//! reading.

use litequic_base::timers;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that expires after a period without activity.
#[derive(Debug)]
pub struct IdleTimer {
    timeout: Duration,
    last_activity: Instant,
    /// `None` until the first wait: most bodies never wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    /// Starts a timer that expires after `patience` without activity.
    pub fn new(patience: Duration) -> Self {
        Self { timeout: patience, last_activity: Instant::now(), sleep: None }
    }

    /// Restarts the timeout.
    pub fn on_activity(&mut self) {
        self.last_activity = Instant::now();
    }

    /// Ready once the timeout has passed without activity. Cancel safe.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = self.last_activity + self.timeout;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timers::poll_sleep_elapsed(sleep.as_mut(), cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}
