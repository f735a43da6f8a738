//! Slows a peer that sends too many small things, such as frames of a few bytes: its connection is not read for a
//! while, rather than ended.

use super::DeadlineTimer;
use crate::token_bucket::TokenBucket;
use std::{
    task::{Context, Poll, ready},
    time::Instant,
};

/// Token bucket whose user waits, once it is empty, until it has tokens again.
#[derive(Debug)]
pub struct Throttle {
    bucket: TokenBucket,
    /// End of the pause, if there is one.
    paused_until: Option<Instant>,
}

impl Throttle {
    /// A throttle that allows `per_second` things a second, and those of ten seconds at once.
    pub fn new(per_second: u32) -> Self {
        Self { bucket: TokenBucket::new(per_second), paused_until: None }
    }

    /// Counts `count` things. Returns whether a pause begins by them.
    pub fn count_things(&mut self, count: u32) -> bool {
        if count == 0 || self.bucket.take_tokens(count, Instant::now()) {
            return false;
        }
        std::mem::replace(&mut self.paused_until, self.bucket.debt_end()).is_none()
    }

    /// Ready unless there is a pause, or once it has ended. Several tasks may wait, each with its own `timer`. Cancel
    /// safe.
    pub fn poll_pause(&mut self, timer: &mut DeadlineTimer, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(until) = self.paused_until {
            ready!(timer.poll_deadline(until.into(), cx));
            self.paused_until = None;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn a_throttle_pauses_until_its_debt_is_paid() {
        let (mut throttle, mut timer) = (Throttle::new(1_000), DeadlineTimer::default());
        assert!(!throttle.count_things(0) && !throttle.count_things(9_900));
        poll_fn(|cx| throttle.poll_pause(&mut timer, cx)).await;
        let began = Instant::now();
        assert!(throttle.count_things(300) && !throttle.count_things(1), "one pause");
        assert!(poll_fn(|cx| Poll::Ready(throttle.poll_pause(&mut timer, cx))).await.is_pending());
        poll_fn(|cx| throttle.poll_pause(&mut timer, cx)).await;
        assert!(began.elapsed().as_millis() >= 150, "{:?}", began.elapsed());
        assert!(throttle.count_things(300), "another pause");
    }
}
