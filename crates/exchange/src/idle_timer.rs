//! An idle timeout: one timer a body, moved on lazily, so that a chunk costs a clock reading and not a timer.

use litequic_base::timers;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Fires when nothing has happened for a while.
#[derive(Debug)]
pub struct IdleTimer {
    timeout: Duration,
    last_activity: Instant,
    /// Made on the first wait: most bodies never wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    /// Starts now.
    pub fn new(patience: Duration) -> Self {
        Self { timeout: patience, last_activity: Instant::now(), sleep: None }
    }

    /// There was activity: the timeout starts anew.
    pub fn on_activity(&mut self) {
        self.last_activity = Instant::now();
    }

    /// Ready once nothing has happened for that long. Losing a poll loses nothing.
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
