//! Implements the endpoint's clock and its only timer, on the worker's runtime. Pacing uses the timer: s2n-quic
//! requests a wake when a connection's next packets may be sent.

use super::moderation::Moderation;
use litequic_base::timers;
use s2n_quic_core::time::{self, Clock as _, Timestamp};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Clock of an endpoint, from zero at the creation: tokio's, which fuzz targets stop.
#[derive(Debug, Clone)]
pub(super) struct EndpointClock {
    epoch: Instant,
    moderation: Moderation,
}

impl EndpointClock {
    /// A clock whose timers expire in the turns of `moderation`.
    pub(super) fn new(moderation: Moderation) -> Self {
        Self { epoch: Instant::now(), moderation }
    }
}

impl time::Clock for EndpointClock {
    fn get_time(&self) -> Timestamp {
        time::NoopClock.get_time() + self.epoch.elapsed()
    }
}

impl time::ClockWithTimer for EndpointClock {
    type Timer = EndpointTimer;

    fn timer(&self) -> EndpointTimer {
        EndpointTimer { clock: self.clone(), target: None, sleep: Box::pin(sleep_until(self.epoch)) }
    }
}

/// Timer that wakes the endpoint at the last requested time.
#[derive(Debug)]
pub(super) struct EndpointTimer {
    clock: EndpointClock,
    /// Requested time; `None` after the timer has fired.
    target: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl time::clock::Timer for EndpointTimer {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.target.is_none() {
            return Poll::Pending;
        }
        ready!(self.sleep.as_mut().poll(cx));
        if let Some(target) = self.target.take() {
            timers::record_expiry(target);
            self.clock.moderation.record_lateness(target);
        }
        Poll::Ready(())
    }

    /// Sets the timer to a whole millisecond, rounded down, as tokio's timers and s2n-quic's (`has_elapsed`) have: the
    /// endpoint requests a time that is microseconds later after every batch, and each change of a timer costs. While
    /// receiving is moderated, timers expire with its turns.
    fn update(&mut self, at: Timestamp) {
        let since = at.saturating_duration_since(time::NoopClock.get_time());
        let Some(target) = self.clock.epoch.checked_add(since) else { return };
        let target = self.clock.moderation.align_timer(target);
        if self.target != Some(target) {
            self.sleep.as_mut().reset(target);
            self.target = Some(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use s2n_quic_core::time::{ClockWithTimer, clock::Timer as _};
    use std::{pin::pin, sync::Arc, time::Duration};

    #[tokio::test(start_paused = true)]
    async fn a_timer_fires_once_at_the_last_requested_time() {
        let clock = EndpointClock::new(Moderation::new(false, Arc::default()));
        let mut timer = clock.timer();
        let start = Instant::now();
        assert!(poll!(pin!(timer.ready())).is_pending(), "no time was named");
        timer.update(clock.get_time() + Duration::from_secs(9));
        timer.update(clock.get_time() + Duration::from_secs(3));
        timer.ready().await;
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(2990) && waited < Duration::from_millis(3010), "{waited:?}");
        assert!(poll!(pin!(timer.ready())).is_pending(), "it fired already");
        timer.update(clock.get_time());
        timer.ready().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_not_moved_within_a_millisecond() {
        let clock = EndpointClock::new(Moderation::new(false, Arc::default()));
        let mut timer = clock.timer();
        let base = time::NoopClock.get_time() + Duration::from_millis(50);
        timer.update(base);
        let target = timer.target;
        timer.update(base + Duration::from_micros(900));
        assert_eq!(timer.target, target);
        timer.update(base + Duration::from_micros(1100));
        assert_ne!(timer.target, target);
    }
}
