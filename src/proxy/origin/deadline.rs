//! The time limit of a request as a whole (`timeouts.request`), and who exceeded it. It is 504 until the response has
//! begun, and a reset afterwards. `attempt` sets it and waits for the response's header within it, `wait` bounds the
//! read of a body's beginning, `pool` the wait for a connection and the connection attempt, and `response_body` the
//! body; each counts `timeout_request`.

use crate::proxy::error::Error;
use std::time::Duration;
use tokio::time::Instant;

/// When a request has to be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// The deadline of a request which begins `now` and may take `limit`.
    pub(super) fn new(now: Instant, limit: Duration) -> Self {
        Self { at: now + limit, limit }
    }

    pub(super) fn at(self) -> Instant {
        self.at
    }

    /// Whether it has passed.
    pub(super) fn is_over(self, now: Instant) -> bool {
        self.at <= now
    }

    /// What is left until then, of `patience` for something else.
    pub(super) fn shorten(self, patience: Duration, now: Instant) -> Duration {
        self.at.saturating_duration_since(now).min(patience)
    }

    /// The error for the client now that it has passed, after a wait for a server since `since`. That server has failed
    /// if it took half of the time or more. If it took less, most of the time was spent elsewhere: a client that sends
    /// its last byte in the last moment must not get a healthy server ejected.
    pub(super) fn passed(self, since: Instant, now: Instant) -> Error {
        Error::RequestTimeout { servers: now.saturating_duration_since(since) >= self.limit / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_to_blame_for_what_was_mostly_its_time() {
        let began = Instant::now();
        let millis = |millis| began + Duration::from_millis(millis);
        let deadline = Deadline::new(began, Duration::from_secs(1));
        for (since, servers) in [(0, true), (499, true), (500, true), (501, false), (999, false), (1000, false)] {
            let error = deadline.passed(millis(since), millis(1000));
            assert_eq!((error, error.is_servers()), (Error::RequestTimeout { servers }, servers), "{since}");
        }
    }

    #[test]
    fn nothing_within_a_request_takes_longer_than_what_is_left_of_it() {
        let began = Instant::now();
        let deadline = Deadline::new(began, Duration::from_secs(5));
        for (passed, patience, left) in [(0, 3, 3), (0, 9, 5), (4, 3, 1), (5, 3, 0), (6, 3, 0)] {
            let now = began + Duration::from_secs(passed);
            assert_eq!(deadline.shorten(Duration::from_secs(patience), now).as_secs(), left, "{passed} {patience}");
            assert_eq!(deadline.is_over(now), passed >= 5);
        }
    }
}
