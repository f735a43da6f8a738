//! Polls the requests of one connection. The connection's task does so itself: each request has a slot with a waker,
//! and only woken slots are polled. The waker of a slot is reused by the next request.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};
use tokio::task::coop::has_budget_remaining;

/// Largest number of polls in one turn. After these, other tasks of the worker run.
const MAX_POLLS_PER_TURN: usize = 64;
/// Number of free slots kept while no request is served. A free slot takes less than 100 bytes.
const MAX_IDLE_SLOTS: usize = 8;

/// The requests of one connection, each served by a future `F`.
#[derive(Debug)]
pub(super) struct ConnectionRequests<F> {
    slots: Vec<RequestSlot<F>>,
    /// Numbers of the slots without a request. The last one is used first.
    free: Vec<usize>,
    /// Slots to poll, in this order.
    turn: VecDeque<usize>,
    woken: Arc<WakeQueue>,
}

#[derive(Debug)]
struct RequestSlot<F> {
    /// Boxed, as it takes kilobytes and slots are moved.
    request: Option<Pin<Box<F>>>,
    waker: Arc<SlotWaker>,
}

impl<F: Future<Output = ()>> ConnectionRequests<F> {
    pub(super) fn new() -> Self {
        let state = WakeQueueState { slots: Vec::new(), connection: true, task: None };
        let woken = Arc::new(WakeQueue(Mutex::new(state)));
        Self { slots: Vec::new(), free: Vec::new(), turn: VecDeque::new(), woken }
    }

    /// Serves a request by the future that `exchange` returns. [`Self::poll_woken`] polls it.
    pub(super) fn begin_serving(&mut self, exchange: impl FnOnce() -> F) {
        let number = self.free.pop().unwrap_or_else(|| {
            let (number, woken) = (self.slots.len(), Arc::clone(&self.woken));
            let waker = Arc::new(SlotWaker { number, is_queued: AtomicBool::new(false), woken });
            self.slots.push(RequestSlot { request: None, waker });
            number
        });
        if let Some(slot) = self.slots.get_mut(number) {
            // The future is built in its place, as a move would copy all of it.
            slot.request = Some(Box::into_pin(Box::write(Box::new_uninit(), exchange())));
            // The slot is queued already, so that a wake need not do it.
            slot.waker.is_queued.store(true, Ordering::Release);
            self.turn.push_back(number);
        }
    }

    /// Returns the number of requests in progress.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the waker for everything that the connection waits for beside its requests.
    pub(super) fn connection_waker(&self) -> Waker {
        Arc::new(ConnectionWaker(Arc::clone(&self.woken))).into()
    }

    /// Begins a turn of the connection's task, whose waker `cx` has. Returns true in the first turn, and if
    /// [`Self::connection_waker`] was woken.
    pub(super) fn begin_poll_turn(&mut self, cx: &Context<'_>) -> bool {
        let mut state = self.woken.0.lock();
        self.turn.extend(state.slots.drain(..));
        match &mut state.task {
            Some(task) => task.clone_from(cx.waker()),
            None => state.task = Some(cx.waker().clone()),
        }
        mem::take(&mut state.connection)
    }

    /// Polls the requests that have begun or were woken, up to the limit of a turn. Returns whether one has ended.
    pub(super) fn poll_woken(&mut self) -> bool {
        let mut has_ended = false;
        for _ in 0..MAX_POLLS_PER_TURN {
            if !has_budget_remaining() {
                break;
            }
            let Some(number) = self.turn.pop_front() else { break };
            has_ended |= self.poll_slot(number);
        }
        has_ended
    }

    /// Whether a request waits for the next turn.
    pub(super) fn has_woken(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Polls the request in a slot. Returns whether it has ended.
    fn poll_slot(&mut self, number: usize) -> bool {
        let Some(RequestSlot { request: exchange, waker }) = self.slots.get_mut(number) else { return false };
        // Cleared before the poll: a wake during the poll queues the slot again.
        waker.is_queued.store(false, Ordering::Release);
        // A request that has ended may still be woken.
        let Some(running) = exchange else { return false };
        let waker = Waker::from(Arc::clone(waker));
        if running.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            return false;
        }
        *exchange = None;
        self.free.push(number);
        if self.is_empty() && self.slots.len() > MAX_IDLE_SLOTS {
            self.slots.truncate(MAX_IDLE_SLOTS);
            self.free.retain(|number| *number < MAX_IDLE_SLOTS);
        }
        true
    }
}

/// The wakes of a connection since its last turn.
#[derive(Debug)]
struct WakeQueue(Mutex<WakeQueueState>);

#[derive(Debug)]
struct WakeQueueState {
    /// Numbers of the woken slots.
    slots: Vec<usize>,
    /// Whether [`ConnectionRequests::connection_waker`] was woken.
    connection: bool,
    /// Waker of the connection's task; `None` once it was woken.
    task: Option<Waker>,
}

impl WakeQueue {
    /// Records a wake by `note`, and wakes the connection's task.
    fn wake_connection_task(&self, note: impl FnOnce(&mut WakeQueueState)) {
        let mut state = self.0.lock();
        note(&mut state);
        let task = state.task.take();
        drop(state);
        // The waker, which is foreign code, is not called under the lock.
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Waker for everything but requests.
#[derive(Debug)]
struct ConnectionWaker(Arc<WakeQueue>);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_connection_task(|state| state.connection = true);
    }
}

/// Waker of one slot.
#[derive(Debug)]
struct SlotWaker {
    number: usize,
    /// Whether the slot is in the queue.
    is_queued: AtomicBool,
    woken: Arc<WakeQueue>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.woken.wake_connection_task(|state| state.slots.push(self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::{Cell, RefCell},
        future::poll_fn,
        rc::Rc,
        sync::atomic::AtomicUsize,
        task::Poll,
    };

    type Boxed = Pin<Box<dyn Future<Output = ()>>>;

    /// A waker that counts its wakes.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A connection whose requests end when a test has them end.
    struct Setup {
        exchanges: ConnectionRequests<Boxed>,
        task: Arc<Count>,
    }

    /// The observed state of a request.
    #[derive(Default)]
    struct Seen {
        polls: Cell<usize>,
        waker: RefCell<Option<Waker>>,
        may_end: Cell<bool>,
    }

    impl Seen {
        fn wake(&self) {
            self.waker.borrow().as_ref().unwrap().wake_by_ref();
        }

        fn end(&self) {
            self.may_end.set(true);
            self.wake();
        }
    }

    impl Setup {
        /// Creates a connection after its first turn.
        fn new() -> Self {
            let mut setup = Self { exchanges: ConnectionRequests::new(), task: Arc::default() };
            assert_eq!(setup.turn(), (true, false));
            setup
        }

        fn begin(&mut self) -> Rc<Seen> {
            let seen = Rc::new(Seen::default());
            let state = Rc::clone(&seen);
            self.exchanges.begin_serving(|| {
                Box::pin(poll_fn(move |cx| {
                    state.polls.set(state.polls.get() + 1);
                    state.waker.replace(Some(cx.waker().clone()));
                    if state.may_end.get() { Poll::Ready(()) } else { Poll::Pending }
                }))
            });
            seen
        }

        /// Runs a turn. Returns whether the connection was woken, and whether a request has ended.
        fn turn(&mut self) -> (bool, bool) {
            let waker = Arc::clone(&self.task).into();
            let is_woken = self.exchanges.begin_poll_turn(&Context::from_waker(&waker));
            (is_woken, self.exchanges.poll_woken())
        }

        fn wakes(&self) -> usize {
            self.task.0.load(Ordering::SeqCst)
        }
    }

    const NOTHING: (bool, bool) = (false, false);
    const ENDED: (bool, bool) = (false, true);

    #[test]
    fn a_request_is_polled_once_it_began_and_whenever_it_is_woken() {
        let mut setup = Setup::new();
        let (first, second) = (setup.begin(), setup.begin());
        assert_eq!((setup.wakes(), setup.turn()), (0, NOTHING));
        assert_eq!((first.polls.get(), second.polls.get()), (1, 1));
        second.wake();
        second.wake();
        assert_eq!((setup.wakes(), setup.turn()), (1, NOTHING));
        assert_eq!((first.polls.get(), second.polls.get()), (1, 2));
        assert_eq!(setup.turn(), NOTHING);
        assert_eq!((first.polls.get(), second.polls.get()), (1, 2));
    }

    #[test]
    fn a_request_that_wakes_itself_is_polled_in_the_next_turn() {
        let mut setup = Setup::new();
        let polls = Rc::new(Cell::new(0));
        let count = Rc::clone(&polls);
        setup.exchanges.begin_serving(|| {
            Box::pin(poll_fn(move |cx| {
                count.set(count.get() + 1);
                cx.waker().wake_by_ref();
                Poll::Pending
            }))
        });
        for turn in 1..5 {
            assert_eq!(setup.turn(), NOTHING);
            assert_eq!((polls.get(), setup.wakes()), (turn, turn));
        }
    }

    #[test]
    fn a_request_that_has_ended_frees_its_slot_for_the_next() {
        let mut setup = Setup::new();
        let (first, second) = (setup.begin(), setup.begin());
        setup.turn();
        first.end();
        assert_eq!((setup.turn(), setup.exchanges.len()), (ENDED, 1));
        // A late wake applies to the request that has the slot now.
        first.wake();
        assert_eq!(setup.turn(), NOTHING);
        let third = setup.begin();
        first.wake();
        assert_eq!(setup.turn(), NOTHING);
        assert_eq!((third.polls.get(), setup.exchanges.slots.len()), (1, 2));
        second.end();
        third.end();
        assert_eq!((setup.turn(), setup.exchanges.is_empty()), (ENDED, true));
    }

    #[test]
    fn the_connections_waker_polls_no_request() {
        let mut setup = Setup::new();
        let request = setup.begin();
        setup.turn();
        setup.exchanges.connection_waker().wake();
        assert_eq!(setup.turn(), (true, false));
        assert_eq!((request.polls.get(), setup.turn()), (1, NOTHING));
    }

    #[test]
    fn many_requests_take_several_turns_in_the_order_of_their_wakes() {
        let mut setup = Setup::new();
        let requests: Vec<_> = (0..MAX_POLLS_PER_TURN * 2 + 1).map(|_| setup.begin()).collect();
        let polled = || requests.iter().take_while(|request| request.polls.get() == 1).count();
        for (expected, more) in
            [(MAX_POLLS_PER_TURN, true), (MAX_POLLS_PER_TURN * 2, true), (MAX_POLLS_PER_TURN * 2 + 1, false)]
        {
            setup.turn();
            assert_eq!((polled(), setup.exchanges.has_woken()), (expected, more));
        }
        // A wake between two turns comes behind requests that wait for a turn.
        requests.iter().for_each(|request| request.wake());
        setup.turn();
        requests.first().unwrap().wake();
        setup.turn();
        assert_eq!(requests.first().unwrap().polls.get(), 2);
        setup.turn();
        assert_eq!(requests.first().unwrap().polls.get(), 3);
        assert!(requests.iter().skip(1).all(|request| request.polls.get() == 2));
    }

    #[test]
    fn an_idle_connection_keeps_few_slots() {
        let mut setup = Setup::new();
        let requests: Vec<_> = (0..MAX_IDLE_SLOTS * 4).map(|_| setup.begin()).collect();
        setup.turn();
        requests.iter().for_each(|request| request.end());
        setup.turn();
        assert_eq!((setup.exchanges.len(), setup.exchanges.slots.len()), (0, MAX_IDLE_SLOTS));
        // The slot of this request is gone.
        requests.last().unwrap().wake();
        assert_eq!(setup.turn(), NOTHING);
        let _more: Vec<_> = (0..MAX_IDLE_SLOTS * 2).map(|_| setup.begin()).collect();
        assert_eq!((setup.exchanges.len(), setup.exchanges.slots.len()), (MAX_IDLE_SLOTS * 2, MAX_IDLE_SLOTS * 2));
    }

    #[test]
    fn a_wake_from_another_thread_or_after_the_end_does_no_harm() {
        let mut setup = Setup::new();
        let request = setup.begin();
        setup.turn();
        let waker = request.waker.borrow().clone().unwrap();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert_eq!((setup.turn(), request.polls.get()), (NOTHING, 2));
        drop(setup);
        request.wake();
    }
}
