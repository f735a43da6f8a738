//! The tasks of an HTTP/2 connection's streams: they belong to it, and end with it.
//!
//! hyper gives each stream to an executor as a future of its own, and does not poll a response's body for more while
//! the client's window is full. A client that never opens it would hold the stream for ever: hence the timeout beside
//! it.

use crate::{
    exchange::{Late, Pace, Patience},
    lifecycle::pass_panic_on,
    receive_budget::{Account, Taken},
    tcp::Metrics,
    tcp::linger::Rest,
};
use hyper::rt::Executor;
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::{
    task::{AbortHandle, JoinSet},
    task_local,
};

task_local! {
    static STALL: Rc<Stall>;
}

/// Whether a stream's client has to read what was sent.
pub(in crate::tcp) struct Stall {
    /// Bytes of the request that were read.
    taken: RefCell<Taken>,
    waiting: Cell<bool>,
    /// Since the last check of the timeout, and how many bytes.
    moved: Cell<Option<u64>>,
    /// Of a tunnel: hyper's task that sends its bytes.
    sending: OnceCell<AbortHandle>,
    /// Those of its connection.
    tasks: Weak<RefCell<JoinSet<()>>>,
    /// Its timeout has passed.
    over: Cell<bool>,
    /// Of a request with a body: the task, for the rest of it when the request was answered.
    waker: RefCell<Option<Waker>>,
    rest: RefCell<Option<Rest>>,
}

impl Stall {
    /// That of the current task, if it is a stream's.
    pub(in crate::tcp) fn current() -> Option<Rc<Self>> {
        STALL.try_with(Rc::clone).ok()
    }

    fn new(tasks: &Rc<RefCell<JoinSet<()>>>, account: Account) -> Rc<Self> {
        Rc::new(Self {
            taken: RefCell::new(Taken::new(account)),
            waiting: Cell::default(),
            moved: Cell::default(),
            sending: OnceCell::new(),
            tasks: Rc::downgrade(tasks),
            over: Cell::default(),
            waker: RefCell::default(),
            rest: RefCell::default(),
        })
    }

    /// So many bytes of the request were read.
    pub(in crate::tcp) fn taken(&self, bytes: u64) {
        self.taken.borrow_mut().add(bytes);
    }

    /// Runs what is to continue when the response is complete, as long as the connection.
    pub(in crate::tcp) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // A connection that is gone needs nothing any more.
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.borrow_mut().spawn_local(task);
        }
    }

    /// Whether nothing more is sent through the tunnel: it was ended, or the client has reset the stream.
    pub(super) fn is_sent(&self) -> bool {
        self.sending.get().is_some_and(AbortHandle::is_finished)
    }

    /// Has the stream reset when it is dropped, unless all is sent.
    pub(super) fn reset(&self) {
        if let Some(sending) = self.sending.get() {
            sending.abort();
        }
    }

    /// A piece of the body was passed on.
    pub(in crate::tcp) fn handed_over(&self) {
        self.waiting.set(true);
        self.moved(0);
    }

    /// So many bytes of it were written.
    pub(in crate::tcp) fn moved(&self, bytes: u64) {
        self.moved.set(Some(self.moved.get().unwrap_or(0).saturating_add(bytes)));
    }

    /// More is polled: the client read it.
    pub(in crate::tcp) fn asked(&self) {
        self.waiting.set(false);
    }

    /// Its request has a body, of which a rest may remain.
    pub(in crate::tcp) fn watch(&self) {
        self.waker.replace(Some(Waker::noop().clone()));
    }

    /// Has the stream's task discard `rest` before the stream is reset.
    pub(in crate::tcp) fn discard(&self, rest: Rest) {
        self.rest.replace(Some(rest));
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Ready when nothing is left to discard.
    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(waker) = &mut *self.waker.borrow_mut() {
            waker.clone_from(cx.waker());
        }
        let mut rest = self.rest.borrow_mut();
        let Some(left) = &mut *rest else { return Poll::Ready(()) };
        let (bytes, over) = left.poll_bytes(cx);
        self.taken(bytes);
        ready!(over);
        *rest = None;
        Poll::Ready(())
    }

    /// Whether it ends because its client read nothing.
    pub(in crate::tcp) fn is_over(&self) -> bool {
        self.over.get()
    }
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(super) struct Streams {
    tasks: Rc<RefCell<JoinSet<()>>>,
    /// How slowly a client may read a stream.
    pace: Pace,
    /// The connection itself is blocked, which has its own timeout.
    blocked: Rc<Cell<bool>>,
    account: Account,
    metrics: Arc<Metrics>,
}

impl Streams {
    pub(super) fn new(pace: Pace, blocked: Rc<Cell<bool>>, account: Account, metrics: Arc<Metrics>) -> Self {
        Self { tasks: Rc::default(), pace, blocked, account, metrics }
    }

    fn reap(&self) {
        while let Some(ended) = self.tasks.borrow_mut().try_join_next() {
            pass_panic_on(ended);
        }
    }

    /// Ends what still runs.
    pub(super) fn end(self) {
        self.reap();
        self.tasks.borrow_mut().abort_all();
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.reap();
        if let Some(stall) = Stall::current() {
            // Of a stream already: the half of its tunnel that sends, whose timeout is the tunnel's.
            let sending = self.tasks.borrow_mut().spawn_local(stream);
            // There is one.
            let _ = stall.sending.set(sending);
            return;
        }
        let stall = Stall::new(&self.tasks, self.account.clone());
        let (mut patience, metrics) = (Patience::new(self.pace), Arc::clone(&self.metrics));
        let blocked = Rc::clone(&self.blocked);
        let watched = STALL.scope(Rc::clone(&stall), async move {
            let mut stream = pin!(Some(stream));
            poll_fn(|cx| {
                if let Some(running) = stream.as_mut().as_pin_mut()
                    && running.poll(cx).is_ready()
                {
                    stream.set(None);
                }
                let discarded = stall.poll_rest(cx);
                if stream.is_none() {
                    return discarded;
                }
                let moved = stall.moved.take();
                if moved.is_some() || !stall.waiting.get() {
                    patience.rest(moved.unwrap_or(0));
                }
                if !stall.waiting.get() {
                    return Poll::Pending;
                }
                let mut late = ready!(patience.poll_wait(cx));
                // All streams of a slow connection are slow.
                while late == Late::Slow && blocked.get() {
                    patience.forgive();
                    late = ready!(patience.poll_wait(cx));
                }
                match late {
                    Late::Idle => metrics.shared.timeout_send.increment(),
                    Late::Slow => metrics.shared.limit_download_rate.increment(),
                }
                stall.over.set(true);
                Poll::Ready(())
            })
            .await;
        });
        self.tasks.borrow_mut().spawn_local(watched);
    }
}
