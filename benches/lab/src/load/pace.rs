//! When requests start. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// What to do with a place that is free.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Start a request now; its latency counts from this moment, which may have passed.
    Start(Instant),
    /// Nothing before this moment.
    Wait(Instant),
    /// No more.
    Done,
}

/// Starts for one load: closed loop (whenever a place is free), or open loop (at a rate, whatever becomes of them).
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    started: u64,
    requests: Option<u64>,
    seconds: Option<Duration>,
    rate: Option<f64>,
}

impl Pace {
    /// Up to `requests` of them, for up to `seconds`, at `rate` a second. One of the first two must be given, or it
    /// never ends.
    pub(super) fn new(start: Instant, requests: Option<u64>, seconds: Option<Duration>, rate: Option<f64>) -> Self {
        Self { start, started: 0, requests, seconds, rate }
    }

    /// Claims the next start.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let intended = match self.rate {
            Some(rate) => self.start + Duration::from_secs_f64(self.started as f64 / rate),
            None => now,
        };
        let over = self.seconds.is_some_and(|seconds| intended >= self.start + seconds);
        if over || self.requests.is_some_and(|requests| self.started >= requests) {
            return Next::Done;
        }
        if intended > now {
            return Next::Wait(intended);
        }
        self.started += 1;
        Next::Start(intended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_closed_loop_starts_whenever_asked_until_all_are_started() {
        let start = Instant::now();
        let mut pace = Pace::new(start, Some(2), None, None);
        assert_eq!(pace.next(start), Next::Start(start));
        assert_eq!(pace.next(start + SECOND), Next::Start(start + SECOND));
        assert_eq!(pace.next(start + SECOND), Next::Done);
    }

    #[test]
    fn an_open_loop_keeps_its_intended_starts_when_it_is_asked_late() {
        let start = Instant::now();
        let mut pace = Pace::new(start, None, Some(2 * SECOND), Some(2.0));
        assert_eq!(pace.next(start), Next::Start(start));
        assert_eq!(pace.next(start), Next::Wait(start + SECOND / 2));
        // The server stalled for ten seconds: those who would have come meanwhile still count from when they would.
        let late = start + 10 * SECOND;
        assert_eq!(pace.next(late), Next::Start(start + SECOND / 2));
        assert_eq!(pace.next(late), Next::Start(start + SECOND));
        assert_eq!(pace.next(late), Next::Start(start + SECOND * 3 / 2));
        assert_eq!(pace.next(late), Next::Done);
    }
}
