//! A worker's connections, to close those that are idle, and those that hold the most, for want of memory. Pure.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BTreeMap,
    fmt,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Of the connections without a request so many are closed at a look: a sixteenth.
const IDLE: usize = 16;
/// A connection without a request for less than that is not closed: its next request may be in flight.
const UNUSED: Duration = Duration::from_secs(1);
/// Bytes that a connection takes beside what it reports, and an open request (docs/limits.md): of those that report
/// little, the one with the most requests holds the most.
const CONNECTION: u64 = 28 * 1024;
const REQUEST: u64 = 72 * 1024;
/// Connections that are closed at a look at most for what they hold.
const HEAVIEST: usize = 64;

/// Why a connection is closed for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No request is open on it: it ends as after its last one.
    Idle,
    /// It holds the most.
    Heaviest,
}

/// The connections of one worker.
#[derive(Debug, Default)]
pub struct Holders {
    open: RefCell<BTreeMap<u64, Rc<State>>>,
    next: Cell<u64>,
}

/// One connection. It is removed when this is dropped.
#[derive(Debug)]
pub struct Holder {
    all: Rc<Holders>,
    id: u64,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    /// Each returns some of the bytes that it holds.
    holds: RefCell<Vec<Box<dyn Fn() -> u64>>>,
    /// Requests that are open on it.
    requests: Cell<u32>,
    /// When it began, or its last request ended.
    used: Cell<Option<Instant>>,
    end: Cell<Option<End>>,
    waker: RefCell<Option<Waker>>,
}

impl Holders {
    /// A connection that holds nothing yet.
    pub fn begin(self: &Rc<Self>) -> Holder {
        let id = self.next.replace(self.next.get().wrapping_add(1));
        let state = Rc::new(State { used: Cell::new(Some(Instant::now())), ..State::default() });
        self.open.borrow_mut().insert(id, Rc::clone(&state));
        Holder { all: Rc::clone(self), id, state }
    }

    /// Closes a share of the connections without a request: those of which the last one is the longest ago, a second at
    /// least. Returns how many.
    pub fn end_idle(&self, now: Instant) -> usize {
        let open = self.open.borrow();
        let mut idle: Vec<&Rc<State>> = open.values().filter(|state| state.is_idle(now)).collect();
        idle.sort_unstable_by_key(|state| state.used.get());
        let ending = idle.iter().take(idle.len().div_ceil(IDLE));
        ending.map(|state| state.end(End::Idle)).count()
    }

    /// Closes the connections that hold the most, until they hold `bytes` together: one at least if there is any, and
    /// 64 at most. Returns how many, and what they hold.
    pub fn end_heaviest(&self, bytes: u64) -> (u64, u64) {
        let open = self.open.borrow();
        let held = open.values().filter(|state| state.end.get() != Some(End::Heaviest));
        let mut heaviest: Vec<(u64, &Rc<State>)> = held.map(|state| (state.held(), state)).collect();
        heaviest.sort_by_key(|(bytes, _)| Reverse(*bytes));
        let (mut ended, mut freed) = (0, 0_u64);
        for (bytes_held, state) in heaviest.into_iter().take(HEAVIEST) {
            if ended > 0 && freed >= bytes {
                break;
            }
            state.end(End::Heaviest);
            (ended, freed) = (ended + 1, freed.saturating_add(bytes_held));
        }
        (ended, freed)
    }
}

impl Holder {
    /// The number of the connection: no other open connection of the worker has it.
    pub const fn number(&self) -> u64 {
        self.id
    }

    /// It holds so many bytes besides as `held` returns.
    pub fn holds(&self, held: impl Fn() -> u64 + 'static) {
        self.state.holds.borrow_mut().push(Box::new(held));
    }

    /// So many requests are open on it.
    pub fn serving(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        if self.state.requests.replace(requests) > 0 && requests == 0 {
            self.state.used.set(Some(Instant::now()));
        }
    }

    /// Ready once it is to be closed; once for each reason. The last task that polls is woken. Cancel safe.
    pub fn poll_end(&self, cx: &Context<'_>, told: &mut Option<End>) -> Poll<End> {
        let end = self.state.end.get();
        if end != *told
            && let Some(end) = end
        {
            *told = Some(end);
            return Poll::Ready(end);
        }
        self.state.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.all.open.borrow_mut().remove(&self.id);
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("held", &self.held()).field("end", &self.end).finish_non_exhaustive()
    }
}

impl State {
    fn is_idle(&self, now: Instant) -> bool {
        let unused = || self.used.get().is_none_or(|used| now.saturating_duration_since(used) >= UNUSED);
        self.requests.get() == 0 && self.end.get().is_none() && unused()
    }

    fn held(&self) -> u64 {
        let taken = CONNECTION.saturating_add(REQUEST.saturating_mul(self.requests.get().into()));
        self.holds.borrow().iter().fold(taken, |sum, held| sum.saturating_add(held()))
    }

    fn end(&self, end: End) {
        self.end.set(Some(end));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker_ref;

    /// One that holds so many bytes.
    fn holding(all: &Rc<Holders>, bytes: u64) -> Holder {
        let holder = all.begin();
        holder.holds(move || bytes);
        holder
    }

    fn end(holder: &Holder) -> Option<End> {
        match holder.poll_end(&Context::from_waker(noop_waker_ref()), &mut None) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    #[test]
    fn connections_without_a_request_end_the_longest_unused_first() {
        let all = Rc::<Holders>::default();
        let holders: Vec<Holder> = (0..20).map(|_| all.begin()).collect();
        assert_eq!(all.end_idle(Instant::now()), 0, "they have just begun");
        holders[0].serving(1);
        holders[1].serving(2);
        holders[1].serving(0);
        let later = Instant::now() + UNUSED;
        assert_eq!(all.end_idle(later), 2);
        let ended: Vec<usize> = (0..20).filter(|&nth| end(&holders[nth]).is_some()).collect();
        assert_eq!(ended, [2, 3]);
        let mut looks = 0;
        while all.end_idle(later) > 0 {
            looks += 1;
        }
        assert!(looks > 5, "{looks}");
        assert_eq!(holders.iter().filter(|holder| end(holder) == Some(End::Idle)).count(), 19);
        assert_eq!(end(&holders[0]), None);
        drop(holders);
        assert!(all.open.borrow().is_empty());
    }

    #[test]
    fn the_connection_that_holds_the_most_ends_its_requests_and_all_that_it_says_counted() {
        let all = Rc::<Holders>::default();
        assert_eq!(all.end_heaviest(1), (0, 0));
        let (one, other, requests, light) = (holding(&all, 60_000), holding(&all, 50_000), all.begin(), all.begin());
        other.holds(|| 20_000);
        requests.serving(3);
        for (holder, bytes) in [(&requests, 3 * REQUEST), (&other, 70_000), (&one, 60_000), (&light, 0)] {
            assert_eq!(end(holder), None);
            assert_eq!(all.end_heaviest(0), (1, CONNECTION + bytes));
            assert_eq!(end(holder), Some(End::Heaviest));
        }
        assert_eq!(all.end_heaviest(0), (0, 0));
        let many: Vec<Holder> = (0..100).map(|_| holding(&all, 12 * 1024)).collect();
        assert_eq!(all.end_heaviest(100 * 1024), (3, 120 * 1024));
        assert_eq!(all.end_heaviest(u64::MAX).0, HEAVIEST as u64);
        drop(many);
    }

    #[test]
    fn who_was_told_of_one_reason_is_told_of_the_other() {
        let all = Rc::<Holders>::default();
        let (holder, mut told) = (holding(&all, 100_000), None);
        let cx = Context::from_waker(noop_waker_ref());
        assert_eq!(all.end_idle(Instant::now() + UNUSED), 1);
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Ready(End::Idle));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Pending);
        assert_eq!(all.end_heaviest(1), (1, CONNECTION + 100_000));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Ready(End::Heaviest));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Pending);
    }
}
