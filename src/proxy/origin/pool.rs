//! One worker's connections to one origin: newest first, so that the rest can idle out; at most so many; and a
//! bounded queue, first come, first served, for requests that find none.

use super::{
    body::RequestBody,
    connect::{Connector, Stream, StreamState},
};
use crate::{config, proxy::error::Error, telemetry::WorkerMetrics};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};
use hyper_util::rt::TokioIo;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::{AbortHandle, spawn_local},
    time::{Instant, sleep_until, timeout},
};

/// The most that hyper reads at once, and holds unread of a response. Large reads make few system calls and feed
/// long GSO trains; with the piece that waits to be taken, a connection holds at most twice that.
pub(super) const READ_BUFFER_BYTES: usize = 256 * 1024;
/// A response's header: twice what litequic takes of a client's, for origins that set many cookies.
pub(super) const MAX_RESPONSE_HEADER_BYTES: usize = 64 * 1024;

/// Connections of one worker to one origin.
#[derive(Debug)]
pub(super) struct Pool {
    origin: config::Origin,
    connector: Connector,
    metrics: Arc<WorkerMetrics>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest stands last.
    idle: Vec<Idle>,
    /// Connections that are being opened, used, or idle.
    open: u32,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    next_id: u64,
    /// Closes what has been idle for too long; there while something is idle.
    sweeper: Option<AbortHandle>,
    closed: bool,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// What a waiting request gets.
#[derive(Debug)]
enum Turn {
    Connection(Connection),
    Slot(Slot),
}

/// The right to have a connection; counted in [`State::open`].
#[derive(Debug)]
struct Slot(Rc<Pool>);

/// A connection that no request is on.
#[derive(Debug)]
struct Connection {
    id: u64,
    sender: http1::SendRequest<RequestBody>,
    stream: Rc<StreamState>,
    born: Instant,
    /// Before the slot: the connection closes first, then the next one may open.
    _task: Task,
    slot: Slot,
}

/// Ends the connection's task, and with it the connection, when dropped.
#[derive(Debug)]
struct Task(AbortHandle, Arc<WorkerMetrics>);

/// A connection while one request has it. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Lease {
    connection: Connection,
    reused: bool,
    received_before: u64,
    reusable: Cell<bool>,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(origin: &config::Origin, metrics: Arc<WorkerMetrics>) -> Rc<Self> {
        Rc::new(Self {
            connector: Connector::new(&origin.address, origin.dns_interval),
            origin: origin.clone(),
            metrics,
            state: RefCell::default(),
        })
    }

    /// What it was made for.
    pub(super) fn origin(&self) -> &config::Origin {
        &self.origin
    }

    /// A connection: the newest idle one, else a new one, else the first that becomes free within `queue`. `fresh`
    /// asks for one that served no request yet.
    ///
    /// # Errors
    ///
    /// The connection errors of [`Error`], and those of the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        fresh: bool,
        queue: Duration,
        connect: Duration,
    ) -> Result<Lease, Error> {
        let now = Instant::now();
        while let Some(connection) = self.pop_idle() {
            if fresh {
                // Its slot is all that is wanted of it.
                break;
            }
            if connection.is_usable(&self.origin, now) && connection.stream.is_quiet() {
                return Ok(Lease::new(connection, true));
            }
        }
        if let Some(slot) = self.take_slot() {
            return self.connect(slot, connect).await;
        }
        self.metrics.limit_origin_connections.increment();
        let turn = {
            let mut state = self.state.borrow_mut();
            // Those whose request went away in the meantime hold no place.
            state.waiting.retain(|waiting| !waiting.is_closed());
            if state.waiting.len() >= usize::try_from(self.origin.max_queue).unwrap_or(usize::MAX) {
                drop(state);
                self.metrics.limit_origin_queue.increment();
                return Err(Error::QueueFull);
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push_back(sender);
            turn
        };
        match timeout(queue, turn).await {
            Ok(Ok(Turn::Connection(connection))) if !fresh && connection.stream.is_quiet() => {
                Ok(Lease::new(connection, true))
            }
            Ok(Ok(Turn::Connection(connection))) => self.connect(connection.into_slot(), connect).await,
            Ok(Ok(Turn::Slot(slot))) => self.connect(slot, connect).await,
            // The pool was closed, or time is up.
            Ok(Err(_)) | Err(_) => {
                self.metrics.timeout_queue.increment();
                Err(Error::QueueTimeout)
            }
        }
    }

    /// Closes what is idle, now and later. Requests under way end as they would.
    pub(super) fn close(&self) {
        let (idle, sweeper) = {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            (std::mem::take(&mut state.idle), state.sweeper.take())
        };
        if let Some(sweeper) = sweeper {
            sweeper.abort();
        }
        drop(idle);
    }

    async fn connect(self: &Rc<Self>, slot: Slot, limit: Duration) -> Result<Lease, Error> {
        let connected = self.connector.connect(limit).await.inspect_err(|error| {
            self.metrics.origin_connect_errors.increment();
            if *error == Error::ConnectTimeout {
                self.metrics.timeout_connect.increment();
            }
            tracing::warn!(origin = %self.origin.address, %error, "no connection to the origin");
        })?;
        Ok(Lease::new(self.handshake(connected, slot).await?, false))
    }

    async fn handshake(self: &Rc<Self>, stream: Stream, slot: Slot) -> Result<Connection, Error> {
        let state = stream.state();
        // HTTP/1.1 shakes no hands: this does not wait. hyper's own bound on a response's fields is 100; to say so would have it
        // fill two tables of so many for each response.
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES)
            .max_header_size(MAX_RESPONSE_HEADER_BYTES)
            .writev(true)
            .handshake::<_, RequestBody>(TokioIo::new(stream))
            .await
            .map_err(|_| Error::Connect)?;
        let id = {
            let mut state = self.state.borrow_mut();
            state.next_id += 1;
            state.next_id
        };
        self.metrics.origin_connections.increment();
        self.metrics.origin_connections_open.increment();
        let pool = Rc::downgrade(self);
        // Ends with the connection, whoever closes it; the handle below ends it earlier.
        let task = spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the origin ended");
            }
            if let Some(pool) = pool.upgrade() {
                pool.forget(id);
            }
        });
        let task = Task(task.abort_handle(), Arc::clone(&self.metrics));
        Ok(Connection { id, sender, stream: state, born: Instant::now(), _task: task, slot })
    }

    fn pop_idle(&self) -> Option<Connection> {
        self.state.borrow_mut().idle.pop().map(|idle| idle.connection)
    }

    fn take_slot(self: &Rc<Self>) -> Option<Slot> {
        let mut state = self.state.borrow_mut();
        (state.open < self.origin.max_connections).then(|| {
            state.open += 1;
            Slot(Rc::clone(self))
        })
    }

    /// Keeps `connection` for the next request, which may be waiting for it already.
    fn put(self: &Rc<Self>, mut connection: Connection) {
        let now = Instant::now();
        if !connection.is_usable(&self.origin, now) || self.state.borrow().closed {
            return;
        }
        while let Some(waiting) = self.next_waiting() {
            match waiting.send(Turn::Connection(connection)) {
                Ok(()) | Err(Turn::Slot(_)) => return,
                Err(Turn::Connection(back)) => connection = back,
            }
        }
        let mut state = self.state.borrow_mut();
        state.idle.push(Idle { connection, since: now });
        if state.sweeper.is_none() {
            state.sweeper = Some(spawn_local(sweep(Rc::downgrade(self))).abort_handle());
        }
    }

    fn next_waiting(&self) -> Option<oneshot::Sender<Turn>> {
        self.state.borrow_mut().waiting.pop_front()
    }

    /// A connection ended: if it is idle, it is no longer to be had.
    fn forget(&self, id: u64) {
        let ended = {
            let mut state = self.state.borrow_mut();
            let at = state.idle.iter().position(|idle| idle.connection.id == id);
            at.map(|at| state.idle.remove(at))
        };
        drop(ended);
    }

    /// Closes what has been idle for `idle_timeout`; says when to come back.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let (expired, next) = {
            let mut state = self.state.borrow_mut();
            // Pushed at the end, so the longest idle stands first.
            let fresh = state.idle.iter().position(|idle| now < idle.since + self.origin.idle_timeout);
            let count = fresh.unwrap_or(state.idle.len());
            let expired: Vec<_> = state.idle.drain(..count).collect();
            let next = state.idle.first().map(|idle| idle.since + self.origin.idle_timeout);
            if next.is_none() {
                state.sweeper = None;
            }
            (expired, next)
        };
        drop(expired);
        next
    }
}

/// Closes idle connections in time, until there are none.
async fn sweep(pool: Weak<Pool>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.expire(Instant::now())) {
        sleep_until(next).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The slot goes to the next request that waits and is still there.
        while let Some(waiting) = self.0.next_waiting() {
            if !waiting.is_closed() {
                // Should it come back after all, its own drop passes it on.
                let _ = waiting.send(Turn::Slot(Self(Rc::clone(&self.0))));
                return;
            }
        }
        let mut state = self.0.state.borrow_mut();
        state.open = state.open.saturating_sub(1);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
        self.1.origin_connections_open.decrement();
    }
}

impl Connection {
    /// Closes it; another may open.
    fn into_slot(self) -> Slot {
        self.slot
    }

    fn is_usable(&self, origin: &config::Origin, now: Instant) -> bool {
        // Ready is hyper's word for: the last request is sent, its response read, and nothing else came.
        self.sender.is_ready() && origin.max_age.is_none_or(|age| now < self.born + age)
    }
}

impl Lease {
    fn new(connection: Connection, reused: bool) -> Self {
        let received_before = connection.stream.received.get();
        Self { connection, reused, received_before, reusable: Cell::new(true) }
    }

    /// Sends `request`; the future is the response's header.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + use<> {
        self.connection.sender.try_send_request(request)
    }

    /// Whether the connection served a request before.
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    /// Whether a byte came since the request was sent.
    pub(super) fn answered(&self) -> bool {
        self.connection.stream.received.get() != self.received_before
    }

    /// The connection will not serve another request.
    pub(super) fn do_not_reuse(&self) {
        self.reusable.set(false);
    }

    /// Gives the connection back if it may serve another request; closes it otherwise.
    pub(super) fn give_back(self) {
        if self.reusable.get() {
            let pool = Rc::clone(&self.connection.slot.0);
            pool.put(self.connection);
        }
    }
}
