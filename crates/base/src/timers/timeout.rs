//! Futures that end once a time has passed and timeouts count.

use super::{suspension::poll_sleep_elapsed, thread_timers::Timeout};
use std::{future::poll_fn, pin::pin, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Error of a wait that timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Sleeps until `at`, and until timeouts count. Cancel safe.
pub async fn sleep_until_counted(at: Instant) {
    let mut sleep = pin!(sleep_until(at));
    poll_fn(|cx| poll_sleep_elapsed(sleep.as_mut(), cx)).await;
}

/// Output of `future`, if it is ready before `limit` has passed and timeouts count.
///
/// # Errors
///
/// The time passed first.
///
/// # Cancel safety
///
/// The cancel safety of `future`.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut timer = Timeout::new(limit);
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = poll_fn(|cx| timer.poll_elapsed(cx)) => Err(Elapsed),
    }
}

/// Output of `future`, if it is ready before the time `at` has come and timeouts count.
///
/// # Errors
///
/// The time passed first.
///
/// # Cancel safety
///
/// The cancel safety of `future`.
pub async fn timeout_at<F: Future>(at: Instant, future: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = sleep_until_counted(at) => Err(Elapsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::{elapsed_since_resume, grace_deadline, record_rest, record_tick, time_since_suspension};
    use std::future::pending;
    use tokio::time::{advance, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_timeout_allows_for_a_suspension_of_a_resting_thread() {
        record_tick();
        let begun = Instant::now();
        record_rest(None);
        let mut nothing = pin!(timeout(SECOND, pending::<()>()));
        assert!(futures_util::poll!(nothing.as_mut()).is_pending());
        advance(60 * SECOND).await;
        record_tick();
        assert!(futures_util::poll!(nothing.as_mut()).is_pending());
        assert_eq!(grace_deadline(), Some(begun + 61 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_suspension_a_timeout_is_tokios() {
        record_tick();
        assert_eq!(timeout(SECOND, async { 1 }).await, Ok(1));
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1), "what is ready is not late");
        let began = Instant::now();
        // A thread that sleeps also ticks.
        let ticks = async {
            loop {
                record_tick();
                sleep(SECOND / 2).await;
            }
        };
        tokio::select! {
            () = ticks => {}
            late = timeout(3 * SECOND, pending::<()>()) => assert_eq!(late, Err(Elapsed)),
        }
        assert!(began.elapsed() < 3 * SECOND + SECOND / 100, "{:?}", began.elapsed());
        assert_eq!(time_since_suspension(), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_allows_for_a_suspension() {
        record_tick();
        let begun = Instant::now();
        let (reads, nothing) = (timeout(SECOND, sleep(61 * SECOND)), timeout(SECOND, pending::<()>()));
        let (mut reads, mut nothing) = (pin!(reads), pin!(nothing));
        assert!(futures_util::poll!(reads.as_mut()).is_pending() && futures_util::poll!(nothing.as_mut()).is_pending());
        advance(60 * SECOND).await;
        assert!(futures_util::poll!(nothing.as_mut()).is_pending());
        assert_eq!((time_since_suspension(), elapsed_since_resume(begun)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(grace_deadline(), Some(begun + 61 * SECOND));
        advance(SECOND / 2).await;
        assert_eq!(elapsed_since_resume(begun), SECOND / 2, "the time since the process runs again");
        record_tick();
        advance(SECOND / 2).await;
        assert_eq!((reads.await, nothing.await, grace_deadline()), (Ok(()), Err(Elapsed), None));
    }
}
