//! Limits the time of a request as a whole (`timeouts.request`), and tells which side exceeded it. The error is 504
//! until the response has begun, and a reset afterwards. `forward::attempt` sets the deadline, for all attempts
//! together, and bounds the read of a body's beginning; `forward::header_wait` bounds the wait for the response's
//! header, `pool` the wait for a connection and the connection attempt, and `forward::response_body` the body.
//! [`Deadline`] counts `timeout_request` when it finds that it has passed.

use crate::{answer::Error, metrics::ProxyMetrics};
use litequic_base::timers;
use std::time::Duration;
use tokio::time::Instant;

/// Deadline of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// The deadline of a request which begins `now` and may take `limit`.
    pub(crate) fn new(now: Instant, limit: Duration) -> Self {
        Self { at: now + limit, limit }
    }

    /// The earlier of the deadlines of a request that begins `now` and may take `limit`, and whose client gives up
    /// after `patience`. A server is never at fault for the client's deadline, which may be any.
    pub(crate) fn earlier_of(now: Instant, limit: Option<Duration>, patience: Option<Duration>) -> Option<Self> {
        let own = limit.map(|limit| Self::new(now, limit));
        let clients =
            patience.and_then(|patience| now.checked_add(patience)).map(|at| Self { at, limit: Duration::MAX });
        own.into_iter().chain(clients).min_by_key(|deadline| deadline.at)
    }

    pub(crate) fn ends_at(self) -> Instant {
        self.at
    }

    /// Shortens `limit`, which something else has, to the time that is left until the deadline.
    pub(super) fn cap_to_deadline(self, limit: Duration, now: Instant) -> Duration {
        self.at.saturating_duration_since(now).min(limit)
    }

    /// Whether the deadline has passed at `now`, which is counted.
    pub(crate) fn check_passed(self, now: Instant, metrics: &ProxyMetrics) -> Option<PassedDeadline> {
        (self.at <= now).then(|| self.count_passed(now, metrics))
    }

    /// Runs `work` until the deadline at most.
    ///
    /// # Errors
    ///
    /// The deadline has passed, which is counted.
    ///
    /// # Cancel safety
    ///
    /// The cancel safety of `work`.
    pub(crate) async fn run_within<F: Future>(
        self,
        work: F,
        metrics: &ProxyMetrics,
    ) -> Result<F::Output, PassedDeadline> {
        timers::timeout_at(self.at, work).await.map_err(|_| self.count_passed(Instant::now(), metrics))
    }

    fn count_passed(self, now: Instant, metrics: &ProxyMetrics) -> PassedDeadline {
        metrics.timeout_request.increment();
        PassedDeadline { now, limit: self.limit }
    }
}

/// A deadline that has passed, and was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassedDeadline {
    now: Instant,
    limit: Duration,
}

impl PassedDeadline {
    /// Error for the client if the time was not spent on a server.
    pub(crate) fn error_without_server(self) -> Error {
        Error::RequestTimeout { servers: false }
    }

    /// Error for the client after a wait for a server since `since`. That server has failed if it took half of the time
    /// or more. If it took less, most of the time was spent elsewhere: a client that sends its last byte in the last
    /// moment must not get a healthy server ejected.
    pub(crate) fn error_after_wait(self, since: Instant) -> Error {
        Error::RequestTimeout { servers: self.now.saturating_duration_since(since) >= self.limit / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_to_blame_for_what_was_mostly_its_time() {
        let began = Instant::now();
        let millis = |millis| began + Duration::from_millis(millis);
        let (deadline, metrics) = (Deadline::new(began, Duration::from_secs(1)), ProxyMetrics::default());
        for (since, servers) in [(0, true), (499, true), (500, true), (501, false), (999, false), (1000, false)] {
            let error = deadline.check_passed(millis(1000), &metrics).unwrap().error_after_wait(millis(since));
            assert_eq!((error, error.is_servers_fault()), (Error::RequestTimeout { servers }, servers), "{since}");
        }
        assert_eq!(metrics.timeout_request.get(), 6);
        assert!(deadline.check_passed(millis(999), &metrics).is_none());
        assert_eq!(metrics.timeout_request.get(), 6, "counted only when it has passed");
    }

    #[test]
    fn nothing_within_a_request_takes_longer_than_what_is_left_of_it() {
        let began = Instant::now();
        let (deadline, metrics) = (Deadline::new(began, Duration::from_secs(5)), ProxyMetrics::default());
        for (passed, limit, left) in [(0, 3, 3), (0, 9, 5), (4, 3, 1), (5, 3, 0), (6, 3, 0)] {
            let now = began + Duration::from_secs(passed);
            assert_eq!(deadline.cap_to_deadline(Duration::from_secs(limit), now).as_secs(), left, "{passed} {limit}");
            assert_eq!(deadline.check_passed(now, &metrics).is_some(), passed >= 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_too_long_is_given_up_and_counted() {
        let (deadline, metrics) = (Deadline::new(Instant::now(), Duration::from_secs(5)), ProxyMetrics::default());
        assert_eq!(deadline.run_within(async { 1 }, &metrics).await.ok(), Some(1));
        assert_eq!(metrics.timeout_request.get(), 0);
        assert!(deadline.run_within(std::future::pending::<()>(), &metrics).await.is_err());
        assert_eq!(metrics.timeout_request.get(), 1);
    }
}
