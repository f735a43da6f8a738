//! Connects to one of several addresses by attempts that overlap (RFC 8305, Happy Eyeballs): an address that does not
//! answer delays a connection by a quarter of a second rather than by a timeout. One task, one timer.

use litequic_base::timers;
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Delay between two attempts: RFC 8305 §5, "Connection Attempt Delay".
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Shortest delay between two attempts (RFC 8305 §5), for more addresses than the time to connect suffices for.
const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);
/// Most attempts at the same time, each with a file descriptor if one is free. A further one replaces the oldest. With
/// up to as many addresses each attempt lives until the deadline. With 64 addresses, and descriptors for all attempts,
/// each has a fifth of the time to connect: one second of five, enough for a SYN that is lost once.
const CONCURRENT_ATTEMPTS: usize = 16;
/// Most addresses that one connection tries: the answer of a name server does not set the length of the loop.
const MAX_ATTEMPTS: usize = 64;

/// The attempt that succeeded.
#[derive(Debug)]
pub(crate) struct RaceWinner<S, P> {
    pub(crate) stream: S,
    pub(crate) address: SocketAddr,
    /// Permit of the attempt, such as a descriptor's count.
    pub(crate) permit: P,
}

/// A running attempt.
struct RunningAttempt<F, P> {
    address: SocketAddr,
    since: Instant,
    /// Dropped before the permit: the socket is closed first.
    future: Pin<Box<F>>,
    permit: P,
}

/// Connects to one of `addresses`, in this order, until `deadline`. The next `attempt` begins when one fails, or a
/// delay after the last one began; the first that succeeds ends all others. An attempt may last until `deadline`,
/// unless a later one replaces it: the first one has `permit`; one beside others gets a permit from `another`, or takes
/// the permit of the oldest. `failed` is called for each address whose attempt failed, was overtaken by a later one, or
/// was replaced.
///
/// # Errors
///
/// The failure of the last attempt that failed; [`io::ErrorKind::TimedOut`] at the deadline;
/// [`io::ErrorKind::NotFound`] without an address.
///
/// # Cancel safety
///
/// Dropping the future ends all attempts.
pub(crate) async fn race_addresses<S, P, F: Future<Output = io::Result<S>>>(
    addresses: &[SocketAddr],
    deadline: Instant,
    permit: P,
    another: impl Fn() -> Option<P>,
    attempt: impl Fn(SocketAddr) -> F,
    failed: impl Fn(SocketAddr, &io::Error),
) -> io::Result<RaceWinner<S, P>> {
    let mut timer = pin!(sleep_until(deadline));
    let mut waiting = addresses.iter().copied().take(MAX_ATTEMPTS);
    let mut running = VecDeque::with_capacity(CONCURRENT_ATTEMPTS);
    let mut permit = Some(permit);
    let mut failure = None;
    let mut delay = ATTEMPT_DELAY;
    // Whether the next attempt begins now.
    let mut due = true;
    poll_fn(|cx| {
        loop {
            while let Some((at, result)) = poll_first_ready(&mut running, cx) {
                let Some(ended) = running.remove(at) else { break };
                let RunningAttempt { address, permit: its, .. } = ended;
                match result {
                    Ok(stream) => {
                        // Attempts that began earlier have had the delay, and more.
                        running.iter().take(at).for_each(|slower| failed(slower.address, &overtaken_error()));
                        return Poll::Ready(Ok(RaceWinner { stream, address, permit: its }));
                    }
                    Err(error) => {
                        failed(address, &error);
                        failure = Some(error);
                        permit = Some(its);
                        due = true;
                    }
                }
            }
            if due {
                due = false;
                if let Some(address) = waiting.next() {
                    let room = running.len() < CONCURRENT_ATTEMPTS;
                    let free = permit.take().or_else(|| room.then(&another).flatten());
                    let taken = || {
                        let oldest = running.pop_front()?;
                        failed(oldest.address, &overtaken_error());
                        Some(oldest.permit)
                    };
                    let Some(permit) = free.or_else(taken) else { continue };
                    let since = Instant::now();
                    running.push_back(RunningAttempt { address, since, future: Box::pin(attempt(address)), permit });
                    delay = attempt_delay(waiting.len(), deadline.saturating_duration_since(since));
                    timer.as_mut().reset(if waiting.len() > 0 { deadline.min(since + delay) } else { deadline });
                    continue;
                }
                if running.is_empty() {
                    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                    return Poll::Ready(Err(failure.take().unwrap_or_else(none)));
                }
                // No further attempt begins: the running ones have the rest of the time.
                timer.as_mut().reset(deadline);
            }
            if timers::poll_sleep_elapsed(timer.as_mut(), cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now >= deadline {
                let late = running.iter().filter(|attempt| now.saturating_duration_since(attempt.since) >= delay);
                late.for_each(|attempt| failed(attempt.address, &connect_timeout_error()));
                return Poll::Ready(Err(connect_timeout_error()));
            }
            due = true;
        }
    })
    .await
}

/// Polls the running attempts, and returns the index and the result of the first that is ready.
fn poll_first_ready<S, P, F: Future<Output = io::Result<S>>>(
    running: &mut VecDeque<RunningAttempt<F, P>>,
    cx: &mut Context<'_>,
) -> Option<(usize, io::Result<S>)> {
    running.iter_mut().enumerate().find_map(|(at, attempt)| match attempt.future.as_mut().poll(cx) {
        Poll::Ready(result) => Some((at, result)),
        Poll::Pending => None,
    })
}

/// The delay before the next attempt, where `others` more are to begin within the time `left`. The last one then has as
/// much time as those before it, which are replaced [`CONCURRENT_ATTEMPTS`] delays after they began: of `n` addresses
/// each has at least `16 / (n + 15)` of the time, unless the delay is at its minimum.
fn attempt_delay(others: usize, left: Duration) -> Duration {
    let shares = u32::try_from(others.saturating_add(CONCURRENT_ATTEMPTS)).unwrap_or(u32::MAX);
    (left / shares).clamp(MIN_ATTEMPT_DELAY, ATTEMPT_DELAY)
}

fn overtaken_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer before another address answered or was due")
}

fn connect_timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer within timeouts.connect")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use tokio::time::sleep;

    /// The reaction of an address after some milliseconds.
    #[derive(Debug, Clone, Copy)]
    enum Reply {
        Accepts(u64),
        Refuses(u64),
        Never,
    }
    use Reply::{Accepts, Never, Refuses};

    /// A permit, counted in `free` when it is dropped.
    struct Permits<'a> {
        free: &'a Cell<usize>,
    }

    impl Drop for Permits<'_> {
        fn drop(&mut self) {
            self.free.set(self.free.get() + 1);
        }
    }

    /// Result of a race, with times in milliseconds: the winner, the attempts that began, and the addresses that
    /// failed.
    #[derive(Debug, PartialEq, Eq)]
    struct Report {
        won: Result<u16, io::ErrorKind>,
        after: u128,
        began: Vec<(u16, u128)>,
        failed: Vec<u16>,
    }

    /// Races to `replies`, one address each, with `free` further permits.
    async fn run(replies: &[Reply], limit: u64, free: usize) -> Report {
        let port = |n| u16::try_from(n).unwrap();
        let addresses: Vec<_> = (0..replies.len()).map(|n| SocketAddr::from(([192, 0, 2, 1], port(n)))).collect();
        let start = Instant::now();
        let since = || start.elapsed().as_millis();
        let (began, failed) = (RefCell::default(), RefCell::default());
        let free = Cell::new(free);
        let (most, open) = (Cell::new(0), Cell::new(0));
        let take = || {
            let left = free.get().checked_sub(1)?;
            free.set(left);
            Some(Permits { free: &free })
        };
        let attempt = |address: SocketAddr| {
            RefCell::<Vec<_>>::borrow_mut(&began).push((address.port(), since()));
            let reply = replies[usize::from(address.port())];
            let (most, open) = (&most, &open);
            async move {
                open.set(open.get() + 1);
                most.set(most.get().max(open.get()));
                let _closed = Closed(open);
                match reply {
                    Accepts(after) => sleep(Duration::from_millis(after)).await,
                    Refuses(after) => {
                        sleep(Duration::from_millis(after)).await;
                        return Err(io::ErrorKind::ConnectionRefused.into());
                    }
                    Never => std::future::pending().await,
                }
                Ok(address.port())
            }
        };
        let note = |address: SocketAddr, _: &io::Error| RefCell::<Vec<_>>::borrow_mut(&failed).push(address.port());
        let first = Permits { free: &free };
        let before = free.get();
        let deadline = start + Duration::from_millis(limit);
        let won = race_addresses(&addresses, deadline, first, take, attempt, note).await;
        let won = won.map(|won| {
            assert_eq!(won.stream, won.address.port());
            won.stream
        });
        assert!(most.get() <= CONCURRENT_ATTEMPTS && open.get() == 0, "{} attempts at once", most.get());
        assert_eq!(free.get(), before + 1, "every permit is given back");
        let after = since();
        Report { won: won.map_err(|error| error.kind()), after, began: began.into_inner(), failed: failed.into_inner() }
    }

    /// Counts an attempt's socket as closed when dropped.
    struct Closed<'a>(&'a Cell<usize>);

    impl Drop for Closed<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_begin_after_delays_or_failures_and_the_first_success_wins() {
        use io::ErrorKind::{ConnectionRefused, TimedOut};
        type Case = (&'static [Reply], Result<u16, io::ErrorKind>, u128, &'static [(u16, u128)], &'static [u16]);
        let table: [Case; 11] = [
            (&[Accepts(40), Accepts(0)], Ok(0), 40, &[(0, 0)], &[]),
            (&[Refuses(40), Accepts(10)], Ok(1), 50, &[(0, 0), (1, 40)], &[0]),
            (&[Never, Accepts(20)], Ok(1), 270, &[(0, 0), (1, 250)], &[0]),
            // The first success comes late, but before the next one: no address has failed.
            (&[Accepts(270), Accepts(100)], Ok(0), 270, &[(0, 0), (1, 250)], &[]),
            // The failure of one attempt starts the next although another one still runs.
            (&[Never, Refuses(30), Accepts(5)], Ok(2), 285, &[(0, 0), (1, 250), (2, 280)], &[1, 0]),
            (&[Refuses(300), Never, Accepts(5)], Ok(2), 305, &[(0, 0), (1, 250), (2, 300)], &[0, 1]),
            (&[Never, Never, Accepts(5)], Ok(2), 505, &[(0, 0), (1, 250), (2, 500)], &[0, 1]),
            // A slow handshake goes on beside later attempts.
            (&[Accepts(1_900), Never, Never, Never], Ok(0), 1_900, &[(0, 0), (1, 250), (2, 500), (3, 750)], &[]),
            (&[Refuses(10), Refuses(20)], Err(ConnectionRefused), 30, &[(0, 0), (1, 10)], &[0, 1]),
            (&[Never, Never], Err(TimedOut), 5_000, &[(0, 0), (1, 250)], &[0, 1]),
            (&[], Err(io::ErrorKind::NotFound), 0, &[], &[]),
        ];
        for (replies, won, after, began, failed) in table {
            let expected = Report { won, after, began: began.to_vec(), failed: failed.to_vec() };
            assert_eq!(run(replies, 5_000, 9).await, expected, "{replies:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_another_permit_an_attempt_takes_the_place_of_the_one_before() {
        let report = run(&[Never, Never, Accepts(300)], 5_000, 0).await;
        assert_eq!((report.won, report.after), (Ok(2), 800));
        assert_eq!(report.began, [(0, 0), (1, 250), (2, 500)]);
        let slow = run(&[Accepts(300), Accepts(300)], 5_000, 0).await;
        assert_eq!((slow.won, slow.after), (Ok(1), 550), "the last one has the rest of the time");
    }

    /// A handshake that takes a part of the time to connect succeeds at each of the addresses.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_lives_as_long_as_the_bound_says() {
        for (addresses, slow) in [(2, 4_700), (16, 2_500), (20, 2_200), (64, 1_000)] {
            for at in [0, addresses / 2, addresses - 1] {
                let mut replies = vec![Never; addresses];
                replies[at] = Accepts(slow);
                let report = run(&replies, 5_000, CONCURRENT_ATTEMPTS).await;
                assert_eq!(report.won, Ok(u16::try_from(at).unwrap()), "{at} of {addresses}: {report:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_64_addresses_are_tried_within_the_time_to_connect() {
        let mut replies = vec![Never; 63];
        replies.push(Accepts(1));
        let report = run(&replies, 5_000, 9).await;
        assert_eq!((report.won, report.began.len()), (Ok(63), 64));
        assert!(report.after < 5_000, "{report:?}");
        assert_eq!(report.failed.len(), 63);
        replies.insert(0, Refuses(0));
        let report = run(&replies, 5_000, 9).await;
        assert_eq!((report.won, report.began.len()), (Err(io::ErrorKind::TimedOut), 64));
    }

    #[test]
    fn attempts_are_closer_where_the_time_would_not_suffice() {
        let millis = Duration::from_millis;
        for (left, others, expected) in [
            (millis(5_000), 1, millis(250)),
            (millis(5_000), 4, millis(250)),
            (millis(5_000), 9, millis(200)),
            (millis(7_900), 63, millis(100)),
            (millis(4_700), 31, millis(100)),
            (millis(100), 63, millis(10)),
            (Duration::ZERO, 1, millis(10)),
            (Duration::MAX, 0, millis(250)),
        ] {
            assert_eq!(attempt_delay(others, left), expected, "{left:?} {others}");
        }
    }
}
