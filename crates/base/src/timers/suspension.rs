//! Detects the suspensions of a thread, and lengthens waits after one: bytes that arrived meanwhile are read before a
//! timeout counts.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// Shortest gap between two ticks that counts as a suspension: twice the interval of ticks
/// (`telemetry::Heartbeat::TICK_INTERVAL`).
const MIN_SUSPENSION: Duration = Duration::from_secs(1);

/// Lateness from which on an expired timer shows that a resting thread was suspended.
const MIN_LATENESS: Duration = Duration::from_millis(500);

/// Time after a suspension in which no timeout counts. A worker reads its sockets' buffers in less; idle connections
/// are kept for no longer than that.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

thread_local! {
    static RUN_HISTORY: Cell<RunHistory> = const { Cell::new(RunHistory { last_seen: None, current_rest: None, last_rest: None, resumed_at: None }) };
}

/// History of when a thread ran. Pure.
#[derive(Debug, Clone, Copy, Default)]
struct RunHistory {
    /// Last time at which the thread was seen to run; `None` for a thread without ticks, whose suspensions are not
    /// detected.
    last_seen: Option<Instant>,
    current_rest: Option<RestPeriod>,
    /// Beginning and end of the last rest.
    last_rest: Option<(Instant, Instant)>,
    /// End of the last suspension.
    resumed_at: Option<Instant>,
}

/// Period in which a thread does not tick.
#[derive(Debug, Clone, Copy)]
struct RestPeriod {
    from: Instant,
    /// Planned end, if that is known.
    until: Option<Instant>,
}

impl RunHistory {
    fn note_running(&mut self, now: Instant) {
        if let Some(rest) = self.current_rest {
            if rest.until.is_some_and(|until| is_late_timer(until, now)) {
                self.end_rest(now);
            }
            return;
        }
        let Some(seen) = self.last_seen else { return };
        if now.saturating_duration_since(seen) >= MIN_SUSPENSION {
            self.resumed_at = Some(now);
        }
        self.last_seen = Some(now);
    }

    fn note_tick(&mut self, now: Instant) {
        if self.current_rest.is_some() {
            self.end_rest(now);
        }
        self.last_seen.get_or_insert(now);
        self.note_running(now);
    }

    fn begin_rest(&mut self, now: Instant, until: Option<Instant>) {
        self.note_running(now);
        self.current_rest = Some(RestPeriod { from: now, until });
    }

    fn end_rest(&mut self, now: Instant) {
        let Some(RestPeriod { from, until }) = self.current_rest.take() else { return };
        if until.is_some_and(|until| is_late_timer(until, now)) {
            self.resumed_at = Some(now);
        }
        self.last_rest = Some((from, now));
        self.last_seen = Some(now);
    }

    /// Records that a timer with the deadline `deadline` has expired.
    fn note_expiry(&mut self, deadline: Instant, now: Instant) {
        let rest = self.current_rest.map(|rest| (rest.from, now)).or(self.last_rest);
        // Only a timer that began before the rest's end shows how late the rest ended.
        if let Some((from, to)) = rest
            && from < deadline
            && is_late_timer(deadline, to)
        {
            self.resumed_at = self.resumed_at.max(Some(to));
        }
    }

    /// Time at which timeouts count again, if they do not count `now`.
    fn grace_end(self, now: Instant) -> Option<Instant> {
        self.resumed_at.map(|since| since + GRACE_PERIOD).filter(|end| now < *end)
    }
}

fn is_late_timer(planned: Instant, now: Instant) -> bool {
    now.saturating_duration_since(planned) >= MIN_LATENESS
}

fn update_run_history(change: impl FnOnce(&mut RunHistory)) {
    let mut run = RUN_HISTORY.get();
    change(&mut run);
    RUN_HISTORY.set(run);
}

/// Records that this thread runs.
pub fn record_tick() {
    update_run_history(|run| run.note_tick(Instant::now()));
}

/// Records that this thread does not tick until the next [`record_tick`], which is planned for `until`, if that is
/// known.
pub fn record_rest(until: Option<Instant>) {
    update_run_history(|run| run.begin_rest(Instant::now(), until));
}

/// Records that a timer of this thread with the deadline `deadline` has expired. [`poll_sleep_elapsed`] does so for its
/// own timer.
pub fn record_expiry(deadline: Instant) {
    update_run_history(|run| run.note_expiry(deadline, Instant::now()));
}

fn observe_running(now: Instant) -> RunHistory {
    let mut run = RUN_HISTORY.get();
    run.note_running(now);
    RUN_HISTORY.set(run);
    run
}

/// Time at which timeouts of this thread count again, if they do not count at present.
pub fn grace_deadline() -> Option<Instant> {
    let now = Instant::now();
    observe_running(now).grace_end(now)
}

/// Time since the last suspension of this thread ended; [`Duration::MAX`] if there was none.
pub fn time_since_suspension() -> Duration {
    let now = Instant::now();
    observe_running(now).resumed_at.map_or(Duration::MAX, |since| now.saturating_duration_since(since))
}

/// Time since `from`, or since the end of the last suspension if that is later: nothing could be read before.
pub fn elapsed_since_resume(from: Instant) -> Duration {
    let now = Instant::now();
    now.saturating_duration_since(observe_running(now).resumed_at.map_or(from, |since| from.max(since)))
}

/// Ready once `sleep` has ended and timeouts count. Cancel safe.
pub fn poll_sleep_elapsed(mut sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        ready!(sleep.as_mut().poll(cx));
        record_expiry(sleep.deadline());
        let Some(end) = grace_deadline() else { return Poll::Ready(()) };
        sleep.as_mut().reset(end);
    }
}

/// Records a suspension of this thread that has just ended: for tests.
pub fn simulate_suspension() {
    let now = Instant::now();
    RUN_HISTORY.set(RunHistory { last_seen: Some(now), resumed_at: Some(now), ..RunHistory::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[test]
    fn a_gap_between_ticks_suspends_timeouts_for_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut run = RunHistory { last_seen: Some(start), ..RunHistory::default() };
        for (millis, since) in
            [(500, None), (1499, None), (2499, Some(2499)), (3498, Some(2499)), (60_000, Some(60_000))]
        {
            run.note_running(at(millis));
            assert_eq!(run.resumed_at, since.map(at), "{millis}");
        }
        for (millis, end) in [(60_000, Some(61_000)), (60_999, Some(61_000)), (61_000, None)] {
            assert_eq!(run.grace_end(at(millis)), end.map(at), "{millis}");
        }
    }

    #[test]
    fn a_rest_is_a_suspension_if_its_timer_was_late() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        // Each row: a rest until `planned`, which ends at `end`; a timer with the deadline `deadline`; the end of the
        // suspension.
        for (planned, end, deadline, since) in [
            (None, 60_000, None, None),
            (None, 60_000, Some(60_000), None),
            (None, 60_000, Some(59_501), None),
            (None, 60_000, Some(59_500), Some(60_000)),
            (None, 60_000, Some(1), Some(60_000)),
            // These timers expired before the rest began, or were not registered.
            (None, 60_000, Some(0), None),
            (Some(5_000), 5_499, None, None),
            (Some(5_000), 5_500, None, Some(5_500)),
        ] {
            let mut run = RunHistory::default();
            run.note_tick(start);
            run.begin_rest(start, planned.map(at));
            run.note_tick(at(end));
            if let Some(deadline) = deadline {
                run.note_expiry(at(deadline), at(end + 20));
            }
            assert_eq!(run.resumed_at, since.map(at), "{planned:?} {end} {deadline:?}");
            run.note_running(at(end + 999));
            assert_eq!(run.resumed_at, since.map(at), "it ticks again");
            run.note_running(at(end + 1999));
            assert_eq!(run.resumed_at, Some(at(end + 1999)));
        }
    }

    #[test]
    fn an_overlong_rest_is_detected_before_the_next_tick() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut run = RunHistory::default();
        run.note_tick(start);
        run.begin_rest(start, Some(at(5_000)));
        run.note_running(at(4_000));
        run.note_running(at(5_499));
        assert_eq!(run.resumed_at, None);
        run.note_running(at(5_500));
        assert_eq!(run.resumed_at, Some(at(5_500)));
        run.begin_rest(at(6_000), None);
        run.note_expiry(at(7_000), at(7_499));
        assert_eq!(run.resumed_at, Some(at(5_500)));
        run.note_expiry(at(7_000), at(7_500));
        assert_eq!(run.resumed_at, Some(at(7_500)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_without_ticks_has_no_suspensions() {
        advance(Duration::from_secs(60)).await;
        assert_eq!((grace_deadline(), time_since_suspension()), (None, Duration::MAX));
    }
}
