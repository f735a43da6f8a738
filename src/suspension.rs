//! Time in which the process did not run: it was stopped (SIGSTOP, a debugger), its cgroup or virtual machine was
//! frozen, or it got no CPU time. When it runs again, timers have expired although the bytes that they wait for may
//! have arrived meanwhile: a timeout counts only once sockets have been read.
//!
//! Each thread that enforces timeouts ticks, at least twice a second. A gap between two ticks is a suspension, which
//! the first timer that expires afterwards sees as well as the next tick.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// A thread that did not tick for that long did not run: twice the interval of ticks
/// (`telemetry::Heartbeat::INTERVAL`).
const GAP: Duration = Duration::from_secs(1);

/// How long after a suspension no timeout counts. A worker reads what its sockets' buffers hold in less; connections
/// that stopped moving are kept for no longer than that.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    static RUN: Cell<Run> = const { Cell::new(Run { seen: None, since: None }) };
}

/// The wait has lasted too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// When a thread ran. Pure.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// When it was last seen to run; `None` for a thread without ticks, whose suspensions are not noticed.
    seen: Option<Instant>,
    /// When the last suspension ended.
    since: Option<Instant>,
}

impl Run {
    fn look(&mut self, now: Instant) {
        let Some(seen) = self.seen else { return };
        if now.saturating_duration_since(seen) >= GAP {
            self.since = Some(now);
        }
        self.seen = Some(now);
    }

    /// When timeouts count again, if they do not `now`.
    fn grace(self, now: Instant) -> Option<Instant> {
        self.since.map(|since| since + GRACE).filter(|end| now < *end)
    }
}

/// Notes that this thread runs.
pub fn tick() {
    let now = Instant::now();
    let mut run = RUN.get();
    run.seen.get_or_insert(now);
    run.look(now);
    RUN.set(run);
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
        let Some(end) = grace() else { return Poll::Ready(()) };
        sleep.as_mut().reset(end);
    }
}

/// Sleeps until `at`, and until timeouts count. Cancel safe.
pub async fn elapsed_at(at: Instant) {
    let mut sleep = pin!(sleep_until(at));
    poll_fn(|cx| poll_elapsed(sleep.as_mut(), cx)).await;
}

/// The output of `future`, if it comes before `limit` has passed and timeouts count.
///
/// # Errors
///
/// The time passed first.
///
/// # Cancel safety
///
/// The cancel safety of `future`.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    // A limit beyond what the clock can say is none.
    let Some(at) = Instant::now().checked_add(limit) else { return Ok(future.await) };
    timeout_at(at, future).await
}

/// The output of `future`, if it comes before the time `at` has passed and timeouts count.
///
/// # Errors
///
/// The time passed first.
///
/// # Cancel safety
///
/// The cancel safety of `future`.
pub async fn timeout_at<F: Future>(at: Instant, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut sleep) = (pin!(future), pin!(sleep_until(at)));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        poll_elapsed(sleep.as_mut(), cx).map(|()| Err(Elapsed))
    })
    .await
}

/// Has this thread see a suspension that has just ended.
#[cfg(test)]
pub(crate) fn suspend() {
    let now = Instant::now();
    RUN.set(Run { seen: Some(now), since: Some(now) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::{advance, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_gap_between_two_looks_is_a_suspension_and_timeouts_count_again_a_second_after_it() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut run = Run { seen: Some(start), since: None };
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

    #[tokio::test(start_paused = true)]
    async fn without_a_suspension_a_timeout_is_tokios() {
        tick();
        assert_eq!(timeout(SECOND, async { 1 }).await, Ok(1));
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1), "what is ready is not late");
        let began = Instant::now();
        // A thread that sleeps ticks as well.
        let ticks = async {
            loop {
                tick();
                sleep(SECOND / 2).await;
            }
        };
        tokio::select! {
            () = ticks => {}
            late = timeout(3 * SECOND, pending::<()>()) => assert_eq!(late, Err(Elapsed)),
        }
        assert!(began.elapsed() < 3 * SECOND + SECOND / 100, "{:?}", began.elapsed());
        assert_eq!(running_for(), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrived_while_a_thread_did_not_run_is_read_before_its_timeout_counts() {
        tick();
        let begun = Instant::now();
        let (reads, nothing) = (timeout(SECOND, sleep(61 * SECOND)), timeout(SECOND, pending::<()>()));
        let (mut reads, mut nothing) = (pin!(reads), pin!(nothing));
        assert!(futures_util::poll!(reads.as_mut()).is_pending() && futures_util::poll!(nothing.as_mut()).is_pending());
        advance(60 * SECOND).await;
        assert!(futures_util::poll!(nothing.as_mut()).is_pending());
        assert_eq!((running_for(), elapsed(begun)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(grace(), Some(begun + 61 * SECOND));
        advance(SECOND / 2).await;
        assert_eq!(elapsed(begun), SECOND / 2, "the time since the process runs again");
        tick();
        advance(SECOND / 2).await;
        assert_eq!((reads.await, nothing.await, grace()), (Ok(()), Err(Elapsed), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_without_ticks_has_no_suspensions() {
        advance(60 * SECOND).await;
        assert_eq!((grace(), running_for()), (None, Duration::MAX));
    }
}
