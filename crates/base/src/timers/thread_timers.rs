//! Timeouts whose deadlines are in a thread's lists ([`DeadlineLists`]) rather than in the runtime's timer wheel, which
//! takes a lock and some four hundred instructions for each. One timer of the runtime serves all of them.

use super::{deadline_lists::DeadlineLists, grace_deadline, poll_sleep_elapsed, record_expiry, turn_time};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

thread_local! {
    static THREAD_TIMERS: RefCell<ThreadTimers> = RefCell::default();
}

/// Waits of a thread, which [`serve_timers`] serves.
#[derive(Debug, Default)]
struct ThreadTimers {
    deadlines: DeadlineLists,
    /// Whether a task runs [`serve_timers`].
    is_served: bool,
    /// Time for which that task has set its timer.
    wakes_at: Option<Instant>,
    task: Option<Waker>,
}

/// Timeout of a fixed duration, which begins with the first poll; ready once the duration has passed and timeouts
/// count. Costs nothing if it is never polled.
#[derive(Debug)]
pub struct Timeout {
    duration: Duration,
    state: TimeoutState,
}

#[derive(Debug)]
enum TimeoutState {
    New,
    Listed(ListedWait),
    /// A timer of the runtime, where no task serves the lists.
    Sleep(Pin<Box<Sleep>>),
    /// A deadline that the clock cannot represent.
    Never,
}

/// Wait in the thread's lists, removed when dropped.
#[derive(Debug)]
struct ListedWait {
    wait: usize,
    deadline: Instant,
}

impl Drop for ListedWait {
    fn drop(&mut self) {
        // An error means that the thread ends. A waker is foreign code, so it is dropped after the borrow.
        let waker = THREAD_TIMERS.try_with(|served| served.borrow_mut().deadlines.end_wait(self.wait));
        drop(waker);
    }
}

impl Timeout {
    /// A timeout of `duration`, which begins with the first poll.
    pub const fn new(duration: Duration) -> Self {
        Self { duration, state: TimeoutState::New }
    }

    /// A timeout that ends at `at`.
    pub fn with_deadline(at: Instant) -> Self {
        Self { duration: Duration::ZERO, state: TimeoutState::Sleep(Box::pin(sleep_until(at))) }
    }

    /// Sets the end to `at`.
    pub fn reset_deadline(&mut self, at: Instant) {
        *self = Self::with_deadline(at);
    }

    /// Ready once the time has passed and timeouts count. Cancel safe.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.state {
                TimeoutState::New => {
                    self.state = TimeoutState::begin_timeout(self.duration, cx.waker());
                    if matches!(self.state, TimeoutState::Listed(_)) {
                        return Poll::Pending;
                    }
                }
                TimeoutState::Listed(ListedWait { wait, deadline }) => {
                    let (is_over, waker) =
                        THREAD_TIMERS.with_borrow_mut(|served| served.deadlines.poll_deadline(*wait, cx.waker()));
                    drop(waker);
                    if !is_over {
                        return Poll::Pending;
                    }
                    record_expiry(*deadline);
                    let Some(end) = grace_deadline() else { return Poll::Ready(()) };
                    self.reset_deadline(end);
                }
                TimeoutState::Sleep(sleep) => return poll_sleep_elapsed(sleep.as_mut(), cx),
                TimeoutState::Never => return Poll::Pending,
            }
        }
    }
}

impl TimeoutState {
    fn begin_timeout(duration: Duration, waker: &Waker) -> Self {
        let now = turn_time();
        let Some(at) = now.checked_add(duration) else { return Self::Never };
        let (listed, task) = THREAD_TIMERS.with_borrow_mut(|served| served.add_wait(duration, now, waker));
        if let Some(task) = task {
            task.wake();
        }
        match listed {
            Some((wait, deadline)) => Self::Listed(ListedWait { wait, deadline }),
            None => Self::Sleep(Box::pin(sleep_until(at))),
        }
    }
}

impl ThreadTimers {
    /// Adds a wait to the lists, if a task serves them. Also returns that task's waker if this wait has the next
    /// deadline.
    fn add_wait(
        &mut self,
        duration: Duration,
        now: Instant,
        waker: &Waker,
    ) -> (Option<(usize, Instant)>, Option<Waker>) {
        if !self.is_served {
            return (None, None);
        }
        let Some((wait, deadline)) = self.deadlines.begin_wait(duration, now, waker.clone()) else {
            return (None, None);
        };
        let is_next = self.wakes_at.is_none_or(|at| deadline < at);
        if is_next {
            self.wakes_at = Some(deadline);
        }
        (Some((wait, deadline)), if is_next { self.task.clone() } else { None })
    }
}

/// Serves the [`Timeout`]s of this thread; before and after, each of them has a timer of the runtime. Never ends. A
/// thread runs one such future.
pub async fn serve_timers() {
    struct Serving;
    impl Drop for Serving {
        fn drop(&mut self) {
            // An error means that the thread ends. Waits that have begun belong to tasks that end with this one.
            let task = THREAD_TIMERS.try_with(|served| {
                let mut served = served.borrow_mut();
                served.is_served = false;
                served.task.take()
            });
            drop(task);
        }
    }

    THREAD_TIMERS.with_borrow_mut(|served| served.is_served = true);
    let _serving = Serving;
    let mut sleep = pin!(sleep_until(Instant::now()));
    let mut woken = Vec::new();
    poll_fn(|cx| {
        loop {
            let (next, before) = THREAD_TIMERS.with_borrow_mut(|served| {
                served.deadlines.expire_waits(Instant::now(), &mut woken);
                served.wakes_at = served.deadlines.next_deadline();
                (served.wakes_at, served.task.replace(cx.waker().clone()))
            });
            drop(before);
            woken.drain(..).for_each(Waker::wake);
            let Some(next) = next else { return Poll::<()>::Pending };
            sleep.as_mut().reset(next);
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::{select, time::advance};

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds after which timers of these durations end, which begin together.
    async fn ends(all: &[u32]) -> Vec<u64> {
        let began = Instant::now();
        let mut timers: Vec<_> = all.iter().map(|seconds| Timeout::new(SECOND * *seconds)).collect();
        let mut ends = vec![0; all.len()];
        poll_fn(|cx| {
            let mut left = 0;
            for (timer, end) in timers.iter_mut().zip(&mut ends) {
                if *end == 0 {
                    match timer.poll_elapsed(cx) {
                        Poll::Ready(()) => *end = began.elapsed().as_secs(),
                        Poll::Pending => left += 1,
                    }
                }
            }
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        ends
    }

    #[tokio::test(start_paused = true)]
    async fn timers_end_in_time_whether_they_are_served_or_the_runtimes() {
        let (all, expected) = ([60, 1, 5, 1, 30], [60, 1, 5, 1, 30]);
        assert_eq!(ends(&all).await, expected);
        let served = async {
            assert_eq!(ends(&all).await, expected);
            // Timers that begin later are served, too, whether or not another one waits.
            assert_eq!(ends(&[2]).await, [2]);
            let mut long = Timeout::new(SECOND * 100);
            assert!(poll_fn(|cx| Poll::Ready(long.poll_elapsed(cx).is_pending())).await);
            assert!(THREAD_TIMERS.with_borrow(|served| served.deadlines.next_deadline().is_some()));
            assert_eq!(ends(&[1, 3]).await, [1, 3]);
            drop(long);
            assert!(THREAD_TIMERS.with_borrow(|served| served.deadlines.next_deadline().is_none()));
        };
        select! {
            () = serve_timers() => {}
            () = served => {}
        }
        assert_eq!(ends(&all).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_beyond_the_clock_never_comes() {
        let served = async {
            let mut timer = Timeout::new(Duration::MAX);
            for _ in 0..2 {
                assert!(poll_fn(|cx| Poll::Ready(timer.poll_elapsed(cx).is_pending())).await);
                advance(1_000_000 * SECOND).await;
            }
        };
        select! {
            () = serve_timers() => {}
            () = served => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_served_timer_allows_for_a_suspension() {
        super::super::record_tick();
        let served = async {
            let began = Instant::now();
            let late = super::super::timeout(SECOND, pending::<()>());
            let mut late = pin!(late);
            assert!(futures_util::poll!(late.as_mut()).is_pending());
            advance(60 * SECOND).await;
            tokio::task::yield_now().await;
            assert!(futures_util::poll!(late.as_mut()).is_pending());
            for _ in 0..2 {
                advance(SECOND / 2).await;
                // A thread that runs ticks.
                super::super::record_tick();
            }
            assert!(late.await.is_err());
            assert_eq!(began.elapsed().as_secs(), 61);
        };
        select! {
            biased;
            () = serve_timers() => {}
            () = served => {}
        }
    }
}
