//! A worker's connections, to end those that are not used, and those that hold the most, for want of memory. Pure.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Of the connections without a request so many end at a look: a sixteenth.
const IDLE: usize = 16;
/// A connection that holds fewer bytes does not end for what it holds.
const LEAST: u64 = 16 * 1024;

/// Why a connection ends for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No request is open on it: it is to end as after its last one.
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

/// One connection. It is forgotten when this is dropped.
#[derive(Debug)]
pub struct Holder {
    all: Rc<Holders>,
    id: u64,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    /// Each tells some of the bytes that it holds.
    holds: RefCell<Vec<Box<dyn Fn() -> u64>>>,
    serving: Cell<bool>,
    /// When its last request ended, as [`Holders::next`] counts.
    used: Cell<u64>,
    end: Cell<Option<End>>,
    waker: RefCell<Option<Waker>>,
}

impl Holders {
    /// A connection that holds nothing yet.
    pub fn begin(self: &Rc<Self>) -> Holder {
        let id = self.tick();
        let state = Rc::new(State { used: Cell::new(id), ..State::default() });
        self.open.borrow_mut().insert(id, Rc::clone(&state));
        Holder { all: Rc::clone(self), id, state }
    }

    /// Ends a share of the connections without a request: those of which the last one is the longest ago. Returns how many.
    pub fn end_idle(&self) -> usize {
        let open = self.open.borrow();
        let mut idle: Vec<&Rc<State>> = open.values().filter(|state| state.is_idle()).collect();
        idle.sort_unstable_by_key(|state| state.used.get());
        let ending = idle.iter().take(idle.len().div_ceil(IDLE));
        ending.map(|state| state.end(End::Idle)).count()
    }

    /// Ends the connection that holds the most. Returns the bytes that it holds, if there is one.
    pub fn end_heaviest(&self) -> Option<u64> {
        let open = self.open.borrow();
        let held = open.values().filter(|state| state.end.get() != Some(End::Heaviest));
        let (bytes, state) = held.map(|state| (state.held(), state)).max_by_key(|(bytes, _)| *bytes)?;
        (bytes >= LEAST).then(|| {
            state.end(End::Heaviest);
            bytes
        })
    }

    fn tick(&self) -> u64 {
        self.next.replace(self.next.get().wrapping_add(1))
    }
}

impl Holder {
    /// It holds so many bytes besides as `held` says when asked.
    pub fn holds(&self, held: impl Fn() -> u64 + 'static) {
        self.state.holds.borrow_mut().push(Box::new(held));
    }

    /// Whether a request is open on it.
    pub fn serving(&self, is: bool) {
        if self.state.serving.replace(is) && !is {
            self.state.used.set(self.all.tick());
        }
    }

    /// Ready once it is to end; once for each reason. The last task that polls is woken. Cancel safe.
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
    fn is_idle(&self) -> bool {
        !self.serving.get() && self.end.get().is_none()
    }

    fn held(&self) -> u64 {
        self.holds.borrow().iter().fold(0, |sum: u64, held| sum.saturating_add(held()))
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
        holders[0].serving(true);
        holders[1].serving(true);
        holders[1].serving(false);
        assert_eq!(all.end_idle(), 2);
        let ended: Vec<usize> = (0..20).filter(|&nth| end(&holders[nth]).is_some()).collect();
        assert_eq!(ended, [2, 3]);
        let mut looks = 0;
        while all.end_idle() > 0 {
            looks += 1;
        }
        assert!(looks > 5, "{looks}");
        assert_eq!(holders.iter().filter(|holder| end(holder) == Some(End::Idle)).count(), 19);
        assert_eq!(end(&holders[0]), None);
        drop(holders);
        assert!(all.open.borrow().is_empty());
    }

    #[test]
    fn the_connection_that_holds_the_most_ends_all_counted_that_it_holds() {
        let all = Rc::<Holders>::default();
        assert_eq!(all.end_heaviest(), None);
        let (one, other, light) = (holding(&all, 60_000), holding(&all, 50_000), holding(&all, LEAST - 1));
        other.holds(|| 20_000);
        assert_eq!(all.end_heaviest(), Some(70_000));
        assert_eq!((end(&one), end(&other)), (None, Some(End::Heaviest)));
        assert_eq!(all.end_heaviest(), Some(60_000));
        assert_eq!(end(&one), Some(End::Heaviest));
        assert_eq!((all.end_heaviest(), end(&light)), (None, None), "it holds next to nothing");
    }

    #[test]
    fn who_was_told_of_one_reason_is_told_of_the_other() {
        let all = Rc::<Holders>::default();
        let (holder, mut told) = (holding(&all, 100_000), None);
        let cx = Context::from_waker(noop_waker_ref());
        assert_eq!(all.end_idle(), 1);
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Ready(End::Idle));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Pending);
        assert_eq!(all.end_heaviest(), Some(100_000));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Ready(End::Heaviest));
        assert_eq!(holder.poll_end(&cx, &mut told), Poll::Pending);
    }
}
