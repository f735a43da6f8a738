//! Ejects servers that fail their requests (outlier ejection): such a server gets no requests for a while, each time
//! for longer; afterwards it first gets one request as a trial.
//!
//! Many failures depend on the client, which chooses the URL: one URL may take for ever, or crash the server's process.
//! So the failure of a request counts only if no other request succeeded meanwhile, or just before.

use std::time::{Duration, Instant};

/// Most doublings of the ejection time.
const MAX_DOUBLINGS: u32 = 3;

/// Time after a success in which the failure of another request does not count: a server that is down is ejected that
/// much later, and one that serves a request a second for each worker is never ejected for the requests of one client.
const RECENT_SUCCESS: Duration = Duration::from_secs(1);

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EjectionCause {
    /// No connection could be opened, which no client can cause by its URL.
    Connection,
    /// A request failed that was sent at this time.
    Request(Instant),
}

/// Threshold and time of an ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EjectionRule {
    /// Consecutive failures that eject a server; `None` for never.
    pub(crate) after: Option<u32>,
    /// Time of the first ejection.
    pub(crate) time: Duration,
}

/// Ejection state of one server, by one worker's requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ejection {
    /// Failed requests since the last success.
    failures: u32,
    /// Time of the last success.
    last_success: Option<Instant>,
    state: EjectionState,
    /// Consecutive ejections, between which the server was not healthy for as long as it had been ejected.
    times: u32,
    /// Time of the last readmission, and length of the ejection before.
    readmitted: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EjectionState {
    #[default]
    Active,
    Ejected {
        since: Instant,
        until: Instant,
    },
    /// On trial: one request may be sent, and no other while that is `in_flight`.
    Trial {
        in_flight: bool,
        /// Length of the ejection before.
        was_out: Duration,
    },
}

impl Ejection {
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        matches!(self.state, EjectionState::Ejected { until, .. } if now < until)
    }

    /// Whether the server is neither ejected nor on trial.
    pub(crate) fn is_active(&self) -> bool {
        self.state == EjectionState::Active
    }

    /// Whether the server may get a request.
    pub(crate) fn accepts_requests(&self, now: Instant) -> bool {
        match self.state {
            EjectionState::Active => true,
            EjectionState::Ejected { until, .. } => now >= until,
            EjectionState::Trial { in_flight, .. } => !in_flight,
        }
    }

    /// Time since the server was readmitted; `None` if it was never ejected, or is ejected.
    pub(crate) fn time_since_readmission(&self, now: Instant) -> Option<Duration> {
        let (since, _) = self.readmitted.filter(|_| self.state == EjectionState::Active)?;
        Some(now.saturating_duration_since(since))
    }

    /// Notes that the server gets a request. Returns whether that is the trial.
    pub(crate) fn on_chosen(&mut self, now: Instant) -> bool {
        let was_out = match self.state {
            EjectionState::Ejected { since, until } if now >= until => until.saturating_duration_since(since),
            EjectionState::Trial { in_flight: false, was_out } => was_out,
            _ => return false,
        };
        self.state = EjectionState::Trial { in_flight: true, was_out };
        true
    }

    /// Notes that the trial ended without a result.
    pub(crate) fn on_undecided(&mut self) {
        if let EjectionState::Trial { was_out, .. } = self.state {
            self.state = EjectionState::Trial { in_flight: false, was_out };
        }
    }

    /// Notes that the server has answered, which ends a trial. Returns whether it was on trial.
    pub(crate) fn on_answered(&mut self, now: Instant) -> bool {
        let EjectionState::Trial { was_out, .. } = self.state else { return false };
        self.state = EjectionState::Active;
        self.failures = 0;
        self.readmitted = Some((now, was_out));
        true
    }

    pub(crate) fn on_request_succeeded(&mut self, now: Instant) {
        self.failures = 0;
        self.last_success = Some(now);
    }

    /// Whether a failure does not count now, because other requests succeed.
    fn serves_others(&self, cause: EjectionCause, now: Instant) -> bool {
        let (EjectionCause::Request(began), Some(well)) = (cause, self.last_success) else { return false };
        well >= began || now.saturating_duration_since(well) < RECENT_SUCCESS
    }

    /// Notes that a request failed by `cause`. Returns the time for which the server is ejected from now on, if it is;
    /// `may` says whether another server may be ejected, and `trial` whether the request was the trial: requests that
    /// were sent before the ejection decide nothing.
    pub(crate) fn on_request_failed(
        &mut self,
        now: Instant,
        rule: EjectionRule,
        cause: EjectionCause,
        may: bool,
        trial: bool,
    ) -> Option<Duration> {
        let undecided = matches!(self.state, EjectionState::Trial { .. }) && !trial;
        if undecided || !trial && self.serves_others(cause, now) {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        let enough = rule.after.is_some_and(|after| self.failures >= after);
        let again = trial && rule.after.is_some();
        if self.is_ejected(now) || !(enough || again) || !may {
            self.on_undecided();
            return None;
        }
        let recovered = |(at, was_out): (Instant, Duration)| now.saturating_duration_since(at) > was_out;
        if self.readmitted.is_some_and(recovered) {
            self.times = 0;
        }
        let time = rule.time.saturating_mul(1 << self.times.min(MAX_DOUBLINGS));
        self.times = self.times.saturating_add(1);
        self.failures = 0;
        // A time beyond the clock's range is for ever.
        let until = now.checked_add(time).unwrap_or(now);
        self.state = EjectionState::Ejected { since: now, until };
        Some(time)
    }

    /// Notes that the server's health checks succeed again: the results of earlier requests are out of date.
    pub(crate) fn on_revived(&mut self) {
        *self = Self { state: EjectionState::Trial { in_flight: false, was_out: Duration::ZERO }, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: EjectionRule = EjectionRule { after: Some(3), time: Duration::from_secs(10) };
    const SECOND: Duration = Duration::from_secs(1);

    fn fail(ejection: &mut Ejection, times: u32, now: Instant) -> Option<u64> {
        let fail = |_| {
            ejection.on_request_failed(
                now,
                RULE,
                EjectionCause::Connection,
                true,
                matches!(ejection.state, EjectionState::Trial { .. }),
            )
        };
        (0..times).filter_map(fail).last().map(|time| time.as_secs())
    }

    #[test]
    fn consecutive_failures_eject_a_server() {
        let now = Instant::now();
        let mut ejection = Ejection::default();
        assert_eq!(fail(&mut ejection, 2, now), None);
        ejection.on_request_succeeded(now);
        assert_eq!(fail(&mut ejection, 2, now), None);
        assert!(ejection.accepts_requests(now) && !ejection.is_ejected(now));
        assert_eq!(fail(&mut ejection, 1, now), Some(10));
        assert_eq!(ejection.time_since_readmission(now), None);
        assert!(ejection.is_ejected(now + 9 * SECOND) && !ejection.accepts_requests(now + 9 * SECOND));
        assert!(!ejection.is_ejected(now + 10 * SECOND) && ejection.accepts_requests(now + 10 * SECOND));
    }

    #[test]
    fn failures_beside_successes_count_only_if_the_connection_failed() {
        let now = Instant::now();
        let milli = |millis| now + Duration::from_millis(millis);
        for (what, cause, well, failed, counts) in [
            ("a quick failure, just after", EjectionCause::Request(milli(500)), Some(0), 510, false),
            ("a quick failure, long after", EjectionCause::Request(milli(1500)), Some(0), 1510, true),
            ("a slow one, while others were served", EjectionCause::Request(milli(0)), Some(100), 60_000, false),
            ("a slow one, after the last of the others", EjectionCause::Request(milli(200)), Some(100), 60_000, true),
            ("no other", EjectionCause::Request(milli(0)), None, 10, true),
            ("no connection", EjectionCause::Connection, Some(0), 10, true),
        ] {
            let mut ejection = Ejection::default();
            if let Some(well) = well {
                ejection.on_request_succeeded(milli(well));
            }
            let out =
                (0..3).filter_map(|_| ejection.on_request_failed(milli(failed), RULE, cause, true, false)).count();
            assert_eq!(out, usize::from(counts), "{what}");
        }
    }

    #[test]
    fn one_answered_request_readmits_an_ejected_server() {
        let now = Instant::now();
        let mut ejection = Ejection::default();
        fail(&mut ejection, 3, now);
        let later = now + 10 * SECOND;
        assert!(ejection.on_chosen(later));
        assert!(!ejection.accepts_requests(later), "one alone");
        assert!(!ejection.on_chosen(later));
        ejection.on_undecided();
        assert!(ejection.accepts_requests(later), "its client went away: the next one decides");
        assert!(ejection.on_chosen(later));
        assert!(ejection.on_answered(later));
        assert!(ejection.accepts_requests(later));
        assert!(!ejection.on_chosen(later) && !ejection.on_answered(later), "it is back");
        assert_eq!(ejection.time_since_readmission(later + 5 * SECOND), Some(5 * SECOND));
    }

    #[test]
    fn it_is_ejected_for_longer_while_it_does_not_recover() {
        let mut now = Instant::now();
        let mut ejection = Ejection::default();
        let mut times = vec![fail(&mut ejection, 3, now).unwrap()];
        for _ in 0..4 {
            now += Duration::from_secs(*times.last().unwrap());
            assert!(ejection.on_chosen(now));
            times.push(fail(&mut ejection, 1, now).unwrap());
        }
        assert_eq!(times, [10, 20, 40, 80, 80]);
        now += 80 * SECOND;
        ejection.on_chosen(now);
        ejection.on_answered(now);
        assert_eq!(fail(&mut ejection, 3, now + 79 * SECOND), Some(80), "it was well for less than it was out");
        now += 79 * SECOND + 80 * SECOND;
        ejection.on_chosen(now);
        ejection.on_answered(now);
        assert_eq!(fail(&mut ejection, 3, now + 81 * SECOND), Some(10));
    }

    #[test]
    fn a_server_stays_where_no_more_may_be_ejected() {
        let now = Instant::now();
        let mut ejection = Ejection::default();
        for _ in 0..10 {
            assert_eq!(ejection.on_request_failed(now, RULE, EjectionCause::Connection, false, false), None);
        }
        assert!(ejection.accepts_requests(now));
        assert_eq!(
            ejection.on_request_failed(now, RULE, EjectionCause::Connection, true, false),
            Some(RULE.time),
            "as soon as one may"
        );
        let never = EjectionRule { after: None, ..RULE };
        assert_eq!(Ejection::default().on_request_failed(now, never, EjectionCause::Connection, true, false), None);
    }

    #[test]
    fn requests_of_before_do_not_decide_whether_it_comes_back() {
        let now = Instant::now();
        let mut ejection = Ejection::default();
        fail(&mut ejection, 3, now);
        let later = now + 10 * SECOND;
        assert!(ejection.on_chosen(later));
        for _ in 0..10 {
            assert_eq!(ejection.on_request_failed(later, RULE, EjectionCause::Connection, true, false), None);
        }
        assert!(!ejection.accepts_requests(later), "the trial is still in flight");
        assert!(ejection.on_answered(later) && ejection.accepts_requests(later));
    }

    #[test]
    fn one_that_its_checks_have_back_begins_with_one_request() {
        let now = Instant::now();
        let mut ejection = Ejection::default();
        fail(&mut ejection, 3, now);
        ejection.on_revived();
        assert!(ejection.accepts_requests(now) && ejection.on_chosen(now) && !ejection.accepts_requests(now));
        assert_eq!(fail(&mut ejection, 1, now), Some(10));
    }

    proptest! {
        #[test]
        fn whatever_happens_it_comes_back_in_bounded_time(
            events in prop::collection::vec((0..8_u8, 0..30_u64, any::<bool>()), 0..200),
        ) {
            let mut now = Instant::now();
            let mut ejection = Ejection::default();
            for (event, seconds, may) in events {
                let cause = if seconds % 2 == 0 { EjectionCause::Connection } else { EjectionCause::Request(now) };
                now += Duration::from_secs(seconds);
                match event {
                    0 => ejection.on_request_succeeded(now),
                    1 => drop(ejection.on_answered(now)),
                    2 => ejection.on_undecided(),
                    3 => drop(ejection.on_chosen(now)),
                    4 => ejection.on_revived(),
                    5 => drop(ejection.on_request_failed(now, RULE, cause, may, true)),
                    _ => drop(ejection.on_request_failed(now, RULE, cause, may, false)),
                }
                prop_assert!(!(ejection.is_ejected(now) && ejection.accepts_requests(now)));
            }
            // The length of the ejection and the requests in flight do not matter.
            ejection.on_undecided();
            prop_assert!(ejection.accepts_requests(now + 80 * SECOND));
        }
    }
}
