//! When a thread ran, and the waits that a suspension lengthens: what arrived meanwhile is read before a timeout
//! counts.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// A thread that did not tick for that long did not run: twice the interval of ticks
/// (`telemetry::Heartbeat::INTERVAL`).
const GAP: Duration = Duration::from_secs(1);

/// A thread that rests was suspended if a timer expired later by this time than it was to.
const LATE: Duration = Duration::from_millis(500);

/// How long after a suspension no timeout counts. A worker reads what its sockets' buffers hold in less; connections
/// that stopped moving are kept for no longer than that.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    static RUN: Cell<Run> = const { Cell::new(Run { seen: None, rest: None, rested: None, since: None }) };
}

/// When a thread ran. Pure.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// When it was last seen to run; `None` for a thread without ticks, whose suspensions are not noticed.
    seen: Option<Instant>,
    /// The rest that lasts at present: the thread does not tick.
    rest: Option<Rest>,
    /// Beginning and end of the last rest.
    rested: Option<(Instant, Instant)>,
    /// When the last suspension ended.
    since: Option<Instant>,
}

/// A time without ticks.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from: Instant,
    /// When it is to end, if that is known.
    until: Option<Instant>,
}

impl Run {
    fn look(&mut self, now: Instant) {
        if let Some(rest) = self.rest {
            if rest.until.is_some_and(|until| is_late(until, now)) {
                self.end_rest(now);
            }
            return;
        }
        let Some(seen) = self.seen else { return };
        if now.saturating_duration_since(seen) >= GAP {
            self.since = Some(now);
        }
        self.seen = Some(now);
    }

    fn tick(&mut self, now: Instant) {
        if self.rest.is_some() {
            self.end_rest(now);
        }
        self.seen.get_or_insert(now);
        self.look(now);
    }

    fn rest(&mut self, now: Instant, until: Option<Instant>) {
        self.look(now);
        self.rest = Some(Rest { from: now, until });
    }

    fn end_rest(&mut self, now: Instant) {
        let Some(Rest { from, until }) = self.rest.take() else { return };
        if until.is_some_and(|until| is_late(until, now)) {
            self.since = Some(now);
        }
        self.rested = Some((from, now));
        self.seen = Some(now);
    }

    /// A timer that was to expire at `deadline` has expired.
    fn expired(&mut self, deadline: Instant, now: Instant) {
        let rest = self.rest.map(|rest| (rest.from, now)).or(self.rested);
        // The timer was to end that rest.
        if let Some((from, to)) = rest
            && from < deadline
            && is_late(deadline, to)
        {
            self.since = self.since.max(Some(to));
        }
    }

    /// When timeouts count again, if they do not `now`.
    fn grace(self, now: Instant) -> Option<Instant> {
        self.since.map(|since| since + GRACE).filter(|end| now < *end)
    }
}

fn is_late(planned: Instant, now: Instant) -> bool {
    now.saturating_duration_since(planned) >= LATE
}

fn update(change: impl FnOnce(&mut Run)) {
    let mut run = RUN.get();
    change(&mut run);
    RUN.set(run);
}

/// Notes that this thread runs.
pub fn tick() {
    update(|run| run.tick(Instant::now()));
}

/// Notes that this thread does not tick until the next [`tick`], which is to be `until` then, if that is known.
pub fn rest(until: Option<Instant>) {
    update(|run| run.rest(Instant::now(), until));
}

/// Notes that a timer of this thread has expired that was to expire at `deadline`. [`poll_elapsed`] does it for its
/// own.
pub fn expired(deadline: Instant) {
    update(|run| run.expired(deadline, Instant::now()));
}

fn look(now: Instant) -> Run {
    let mut run = RUN.get();
    run.look(now);
    RUN.set(run);
    run
}

/// When timeouts of this thread count again, if they do not at present.
pub fn grace() -> Option<Instant> {
    let now = Instant::now();
    look(now).grace(now)
}

/// How long this thread has been running since its last suspension; [`Duration::MAX`] if there was none.
pub fn running_for() -> Duration {
    let now = Instant::now();
    look(now).since.map_or(Duration::MAX, |since| now.saturating_duration_since(since))
}

/// The time since `from`, without what was before the last suspension's end: nothing could be read meanwhile.
pub fn elapsed(from: Instant) -> Duration {
    let now = Instant::now();
    now.saturating_duration_since(look(now).since.map_or(from, |since| from.max(since)))
}

/// Ready once `sleep` has ended and timeouts count. Losing a poll loses nothing.
pub fn poll_elapsed(mut sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        ready!(sleep.as_mut().poll(cx));
        expired(sleep.deadline());
        let Some(end) = grace() else { return Poll::Ready(()) };
        sleep.as_mut().reset(end);
    }
}

/// Has this thread see a suspension that has just ended, as a test needs.
pub fn suspend() {
    let now = Instant::now();
    RUN.set(Run { seen: Some(now), since: Some(now), ..Run::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[test]
    fn a_gap_between_two_looks_is_a_suspension_and_timeouts_count_again_a_second_after_it() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut run = Run { seen: Some(start), ..Run::default() };
        for (millis, since) in
            [(500, None), (1499, None), (2499, Some(2499)), (3498, Some(2499)), (60_000, Some(60_000))]
        {
            run.look(at(millis));
            assert_eq!(run.since, since.map(at), "{millis}");
        }
        for (millis, end) in [(60_000, Some(61_000)), (60_999, Some(61_000)), (61_000, None)] {
            assert_eq!(run.grace(at(millis)), end.map(at), "{millis}");
        }
    }

    #[test]
    fn a_rest_is_a_suspension_if_a_timer_was_late_that_was_to_end_it() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        // A rest until `planned`, which ends at `end`; a timer that was to expire at `deadline`; when the suspension
        // ended.
        for (planned, end, deadline, since) in [
            (None, 60_000, None, None),
            (None, 60_000, Some(60_000), None),
            (None, 60_000, Some(59_501), None),
            (None, 60_000, Some(59_500), Some(60_000)),
            (None, 60_000, Some(1), Some(60_000)),
            // Before the rest began, or not registered.
            (None, 60_000, Some(0), None),
            (Some(5_000), 5_499, None, None),
            (Some(5_000), 5_500, None, Some(5_500)),
        ] {
            let mut run = Run::default();
            run.tick(start);
            run.rest(start, planned.map(at));
            run.tick(at(end));
            if let Some(deadline) = deadline {
                run.expired(at(deadline), at(end + 20));
            }
            assert_eq!(run.since, since.map(at), "{planned:?} {end} {deadline:?}");
            run.look(at(end + 999));
            assert_eq!(run.since, since.map(at), "it ticks again");
            run.look(at(end + 1999));
            assert_eq!(run.since, Some(at(end + 1999)));
        }
    }

    #[test]
    fn a_rest_that_lasts_longer_than_planned_is_seen_before_the_next_tick() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut run = Run::default();
        run.tick(start);
        run.rest(start, Some(at(5_000)));
        run.look(at(4_000));
        run.look(at(5_499));
        assert_eq!(run.since, None);
        run.look(at(5_500));
        assert_eq!(run.since, Some(at(5_500)));
        run.rest(at(6_000), None);
        run.expired(at(7_000), at(7_499));
        assert_eq!(run.since, Some(at(5_500)));
        run.expired(at(7_000), at(7_500));
        assert_eq!(run.since, Some(at(7_500)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_without_ticks_has_no_suspensions() {
        advance(Duration::from_secs(60)).await;
        assert_eq!((grace(), running_for()), (None, Duration::MAX));
    }
}
