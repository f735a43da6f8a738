//! One worker's connections to one server of an origin: newest first, so that the rest can idle out; bounded; and a
//! bounded first-in, first-out queue for requests that find none. If the server gets the client's address (PROXY
//! protocol), a connection is used for that client only.

use super::{
    connect::{Connector, FIRST_READ, Stream, StreamState},
    deadline::Deadline,
    driver::{Driver, Pump},
    proxied::Proxied,
    request_body::{RequestBody, Upload},
    resources::{IdleCount, Resources},
};
use crate::{
    config::{self, Network, OriginAddress, Timeouts},
    descriptors::Descriptor,
    exchange::Room,
    proxy::error::Error,
    proxy::{Metrics, ServerMetrics},
    sources::{self, Shares},
    telemetry::Counted,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::{AbortHandle, spawn_local, unconstrained},
    time::{Instant, sleep_until, timeout},
};

/// How often a queued request may end a slow upload.
const GIVE_WAY: Duration = Duration::from_millis(250);

/// Connections of one worker to one server.
#[derive(Debug)]
pub(super) struct Pool {
    address: OriginAddress,
    origin: config::Origin,
    connector: Connector,
    metrics: Arc<Metrics>,
    counters: Arc<ServerMetrics>,
    resources: Rc<Resources>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest is last.
    idle: Vec<Idle>,
    /// Connections that are being opened, used, or idle.
    open: u32,
    waiting: VecDeque<Waiting>,
    /// The sources of the connections in use.
    shares: Shares<Network>,
    /// Uploads: those that had bodies to send when they got their connection; some have ended.
    uploads: Vec<Weak<Upload>>,
    /// When slow ones were searched last.
    looked: Option<Instant>,
    /// Set while something is idle.
    watch: Option<Watch>,
    closed: bool,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
    _counted: IdleCount,
}

/// The task that closes what has been idle for too long, and what its origin closed or sent something on.
#[derive(Debug)]
struct Watch {
    task: AbortHandle,
    /// Wakes it, once it has run.
    waker: Option<Waker>,
}

/// A queued request.
#[derive(Debug)]
struct Waiting {
    turn: oneshot::Sender<Turn>,
    source: Option<Network>,
}

/// A connection in use, as its client's source holds it. Given back when dropped.
#[derive(Debug)]
struct Share {
    pool: Rc<Pool>,
    source: Option<Network>,
}

/// What a queued request gets: its share first, as the connection, when it is dropped, may go to one of the same
/// source.
#[derive(Debug)]
enum Turn {
    Connection(Share, Connection),
    Slot(Share, Slot),
}

/// The permission to have a connection; counted in [`State::open`].
#[derive(Debug)]
struct Slot {
    pool: Rc<Pool>,
    _counted: Counted<ServerMetrics>,
}

/// A connection without a request.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<RequestBody>,
    stream: Rc<StreamState>,
    /// Its client, if it was sent to the server.
    proxied: Option<Proxied>,
    born: Instant,
    /// How often it was leased.
    requests: u64,
    /// Before the slot: the connection closes first, then the next one may open.
    driver: Rc<Driver>,
    _open: Counted<Metrics>,
    slot: Slot,
}

/// A connection in use by one request. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Lease {
    /// Before the connection, which it may use.
    pump: Option<Pump>,
    /// Before it too: the next request in the queue may be of the same source.
    share: Share,
    connection: Connection,
    reused: bool,
    received_before: u64,
    reusable: Cell<bool>,
}

impl Pool {
    /// An empty pool for `address`, with these `counters` and the bounds of `origin`.
    pub(super) fn new(
        origin: &config::Origin,
        address: &OriginAddress,
        metrics: Arc<Metrics>,
        counters: Arc<ServerMetrics>,
        resources: &Rc<Resources>,
    ) -> Rc<Self> {
        let pool = Rc::new(Self {
            connector: Connector::new(address, origin.dns_interval),
            address: address.clone(),
            origin: origin.clone(),
            metrics,
            counters,
            resources: Rc::clone(resources),
            state: RefCell::default(),
        });
        resources.register(&pool);
        pool
    }

    /// The configured maximum of connections, or the derived one.
    fn max_connections(&self) -> u32 {
        self.origin.max_connections.unwrap_or_else(|| self.resources.derived().max_connections)
    }

    /// The configured maximum of requests in the queue, or the derived one.
    fn max_queue(&self) -> u32 {
        self.origin.max_queue.unwrap_or_else(|| self.resources.derived().max_queue)
    }

    /// Whether it is equal to one for `address` with the bounds of `origin`.
    pub(super) fn fits(&self, origin: &config::Origin, address: &OriginAddress) -> bool {
        let bounds = |origin: &config::Origin| {
            let &config::Origin {
                max_connections, max_queue, idle_timeout, max_age, max_requests, dns_interval, ..
            } = origin;
            (max_connections, max_queue, idle_timeout, max_age, max_requests, dns_interval, origin.proxy_protocol)
        };
        self.address == *address && bounds(&self.origin) == bounds(origin)
    }

    /// Requests on a connection or in the queue.
    pub(super) fn requests(&self) -> u32 {
        let state = self.state.borrow();
        let count = |list: usize| u32::try_from(list).unwrap_or(u32::MAX);
        state.open.saturating_sub(count(state.idle.len())).saturating_add(count(state.waiting.len()))
    }

    /// A connection: the newest idle one, else a new one, else the first that becomes free, each within its time of
    /// `timeouts` and `deadline`. `fresh` requires one that served no request yet, `proxied` one for that client.
    ///
    /// # Errors
    ///
    /// The connection errors of [`Error`], those of the queue, and that the deadline has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        fresh: bool,
        proxied: Option<Proxied>,
        source: Option<Network>,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Lease, Error> {
        let now = Instant::now();
        if self.connector.is_stale() {
            let pool = Rc::clone(self);
            // Not joined: it ends within a lookup's time.
            spawn_local(async move {
                pool.connector.refresh().await;
                pool.close_strays();
            });
        }
        let share = self.share(source);
        let limited = share.is_none();
        if let Some(share) = share {
            while let Some(connection) = self.pop_idle(proxied) {
                if fresh {
                    // Only its slot is needed.
                    break;
                }
                if connection.is_usable(now) && connection.stream.is_quiet() {
                    return Ok(Lease::new(connection, share, true));
                }
            }
            // At the cap the idle ones are other clients': the oldest is closed.
            if let Some(slot) = self.take_slot().or_else(|| self.oldest_idle().map(Connection::into_slot)) {
                return self.connect(slot, share, proxied, timeouts, deadline).await;
            }
            self.metrics.limit_origin_connections.increment();
        }
        let turn = self.queue(source, limited)?;
        let waiting = Counted::new(&self.counters, |counters| &counters.waiting);
        let patience = deadline.map_or(timeouts.queue, |deadline| deadline.shorten(timeouts.queue, now));
        let turn = timeout(patience, self.turn(turn)).await;
        drop(waiting);
        match turn {
            Ok(Ok(Turn::Connection(share, connection)))
                if !fresh && connection.proxied == proxied && connection.stream.is_quiet() =>
            {
                Ok(Lease::new(connection, share, true))
            }
            Ok(Ok(Turn::Connection(share, connection))) => {
                self.connect(connection.into_slot(), share, proxied, timeouts, deadline).await
            }
            Ok(Ok(Turn::Slot(share, slot))) => self.connect(slot, share, proxied, timeouts, deadline).await,
            Err(_) if deadline.is_some_and(|deadline| deadline.is_over(Instant::now())) => {
                self.metrics.timeout_request.increment();
                // Its source's other requests hold its share.
                Err(Error::RequestTimeout { servers: false })
            }
            // The pool was closed, or the time has passed.
            Ok(Err(_)) | Err(_) => {
                self.metrics.timeout_queue.increment();
                Err(Error::QueueTimeout)
            }
        }
    }

    /// A place in the queue for a request of `source`, which waits because that is `limited`, or because all are in
    /// use.
    fn queue(&self, source: Option<Network>, limited: bool) -> Result<oneshot::Receiver<Turn>, Error> {
        let mut state = self.state.borrow_mut();
        // Those whose request went away in the meantime hold no place.
        state.waiting.retain(|waiting| !waiting.turn.is_closed());
        let (waiting, most) = (state.waiting.len() as u64, u64::from(self.max_queue()));
        let of_source = || state.waiting.iter().filter(|waiting| waiting.source == source).count() as u64;
        let full = source.is_some() && !sources::admits(of_source, waiting, most);
        if limited || full {
            self.metrics.limit_source_origin.increment();
        }
        if waiting >= most {
            self.metrics.limit_origin_queue.increment();
        }
        if full || waiting >= most {
            return Err(Error::QueueFull);
        }
        let (sender, turn) = oneshot::channel();
        state.waiting.push_back(Waiting { turn: sender, source });
        Ok(turn)
    }

    /// A share of `source` in the connections that are in use; `None` if its source has reached its limit.
    fn share(self: &Rc<Self>, source: Option<Network>) -> Option<Share> {
        let mut state = self.state.borrow_mut();
        if state.admits(source, self.max_connections(), 0) {
            state.shares.take(source);
            return Some(Share { pool: Rc::clone(self), source });
        }
        if let Some(source) = source {
            state.shares.refused(source, "connections to an origin", std::time::Instant::now());
        }
        None
    }

    /// What a queued request gets from `turn`. While it waits, slow uploads are ended.
    async fn turn(&self, turn: oneshot::Receiver<Turn>) -> Result<Turn, oneshot::error::RecvError> {
        let mut turn = pin!(turn);
        loop {
            self.have_slow_uploads_give_way();
            if let Ok(turn) = timeout(GIVE_WAY, &mut turn).await {
                return turn;
            }
        }
    }

    /// Ends the slowest uploads, as many as requests are queued, as far as slow ones hold more than half of the maximum
    /// of connections. Searches once in [`GIVE_WAY`] at most.
    fn have_slow_uploads_give_way(&self) {
        let now = Instant::now();
        let slowest = {
            let mut state = self.state.borrow_mut();
            let full = state.open >= self.max_connections() && state.idle.is_empty();
            if !full || state.looked.is_some_and(|looked| now < looked + GIVE_WAY) {
                return;
            }
            state.looked = Some(now);
            state.uploads.retain(|upload| upload.strong_count() > 0);
            let uploads = state.uploads.iter().filter_map(Weak::upgrade);
            let mut slow: Vec<_> = uploads.filter_map(|upload| upload.slow(now).map(|rate| (rate, upload))).collect();
            slow.sort_unstable_by_key(|(rate, _)| *rate);
            let excess = slow.len().saturating_sub(self.max_connections() as usize / 2);
            slow.truncate(excess.min(state.waiting.len()));
            slow
        };
        for (rate, upload) in slowest {
            self.metrics.limit_slow_uploads.increment();
            tracing::debug!(origin = %self.address, bytes_a_second = rate, "ending a slow upload for a request that waits");
            upload.give_way();
        }
    }

    /// Watches `upload`, which has a connection.
    fn watch_upload(&self, upload: &Rc<Upload>) {
        let mut state = self.state.borrow_mut();
        if state.uploads.len() > 2 * state.open as usize {
            state.uploads.retain(|upload| upload.strong_count() > 0);
        }
        let upload = Rc::downgrade(upload);
        // A retried one is registered already.
        if !state.uploads.iter().any(|known| known.ptr_eq(&upload)) {
            state.uploads.push(upload);
        }
    }

    /// Closes what is idle, now and later. Requests in flight end normally.
    pub(super) fn close(&self) {
        let (idle, watch) = {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            (std::mem::take(&mut state.idle), state.watch.take())
        };
        if let Some(watch) = watch {
            watch.task.abort();
        }
        drop(idle);
    }

    async fn connect(
        self: &Rc<Self>,
        slot: Slot,
        share: Share,
        proxied: Option<Proxied>,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Lease, Error> {
        let descriptor = self.descriptor(timeouts, deadline).await?;
        let began = Instant::now();
        let limit = deadline.map_or(timeouts.connect, |deadline| deadline.shorten(timeouts.connect, began));
        let connected = self.connector.connect(limit, proxied, descriptor, &self.metrics).await.map_err(|error| {
            if error == Error::NoDescriptor {
                // The kernel had none although the process' count had: the next request finds the idle one's.
                self.metrics.limit_origin_descriptors.increment();
                self.resources.close_longest_idle();
                tracing::warn!(origin = %self.address, "the kernel has no file descriptor for a connection to the origin");
                return error;
            }
            self.metrics.origin_connect_errors.increment();
            tracing::warn!(origin = %self.address, %error, "no connection to the origin");
            if error != Error::ConnectTimeout {
                return error;
            }
            let now = Instant::now();
            let Some(deadline) = deadline.filter(|deadline| deadline.is_over(now)) else {
                self.metrics.timeout_connect.increment();
                return error;
            };
            self.metrics.timeout_request.increment();
            deadline.passed(began, now)
        })?;
        let stream = connected.state();
        let (sender, driver) = Driver::of(connected).await?;
        self.metrics.origin_connections.increment();
        let open = Counted::new(&self.metrics, |metrics| &metrics.origin_connections_open);
        let born = Instant::now();
        let connection = Connection { sender, stream, proxied, born, requests: 0, driver, _open: open, slot };
        Ok(Lease::new(connection, share, false))
    }

    /// A descriptor for a new connection, within the time of a request in the queue.
    async fn descriptor(&self, timeouts: &Timeouts, deadline: Option<Deadline>) -> Result<Descriptor, Error> {
        let now = Instant::now();
        let patience = deadline.map_or(timeouts.queue, |deadline| deadline.shorten(timeouts.queue, now));
        timeout(patience, self.resources.descriptor()).await.map_err(|_| {
            if deadline.is_some_and(|deadline| deadline.is_over(Instant::now())) {
                self.metrics.timeout_request.increment();
                return Error::RequestTimeout { servers: false };
            }
            self.metrics.timeout_queue.increment();
            Error::QueueTimeout
        })
    }

    /// Since when the connection is idle that has been so for the longest time; `None` without one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.state.borrow().idle.first().map(|idle| idle.since)
    }

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_longest_idle(&self) -> bool {
        self.oldest_idle().is_some()
    }

    /// The newest of those that are for `proxied`: the last one, if the server does not get the client's address.
    fn pop_idle(&self, proxied: Option<Proxied>) -> Option<Connection> {
        let idle = &mut self.state.borrow_mut().idle;
        let at = idle.iter().rposition(|idle| idle.connection.proxied == proxied)?;
        Some(idle.remove(at).connection)
    }

    fn oldest_idle(&self) -> Option<Connection> {
        let idle = &mut self.state.borrow_mut().idle;
        (!idle.is_empty()).then(|| idle.remove(0).connection)
    }

    /// Closes idle connections to addresses that the server's name no longer has.
    fn close_strays(&self) {
        let strays: Vec<_> = {
            let mut state = self.state.borrow_mut();
            state.idle.extract_if(.., |idle| !self.connector.leads_to(idle.connection.stream.address)).collect()
        };
        drop(strays);
    }

    fn take_slot(self: &Rc<Self>) -> Option<Slot> {
        let mut state = self.state.borrow_mut();
        (state.open < self.max_connections()).then(|| {
            state.open += 1;
            Slot::new(self)
        })
    }

    /// Keeps `connection` for the next request, which may be queued already.
    fn put(self: &Rc<Self>, mut connection: Connection) {
        let now = Instant::now();
        if !connection.is_usable(now) || self.state.borrow().closed {
            return;
        }
        if self.origin.max_requests.is_some_and(|most| connection.requests >= most) {
            self.metrics.limit_origin_requests.increment();
            return;
        }
        while let Some((waiting, share)) = self.next_waiting(1) {
            match waiting.send(Turn::Connection(share, connection)) {
                Ok(()) | Err(Turn::Slot(..)) => return self.hand_out(),
                Err(Turn::Connection(_, back)) => connection = back,
            }
        }
        let Some(counted) = self.resources.keep_idle() else { return };
        let mut state = self.state.borrow_mut();
        match &state.watch {
            Some(Watch { waker: Some(waker), .. }) => connection.driver.hand_over(waker),
            Some(_) => {}
            None => {
                let task = spawn_local(watch(Rc::downgrade(self))).abort_handle();
                state.watch = Some(Watch { task, waker: None });
            }
        }
        state.idle.push(Idle { connection, since: now, _counted: counted });
    }

    /// Continues requests that are queued although there are connections: their source had reached its limit, and has
    /// not now.
    fn hand_out(self: &Rc<Self>) {
        let is_free = || {
            let state = self.state.borrow();
            !state.closed && !state.waiting.is_empty() && state.open < self.max_connections()
        };
        while is_free() {
            let Some((waiting, share)) = self.next_waiting(0) else { return };
            let Some(slot) = self.take_slot() else { return };
            // Should it come back after all, its own drop passes it on.
            let _ = waiting.send(Turn::Slot(share, slot));
        }
    }

    /// The first queued request whose source may have another connection, with `released` of those in use being given
    /// back.
    fn next_waiting(self: &Rc<Self>, released: u64) -> Option<(oneshot::Sender<Turn>, Share)> {
        let mut state = self.state.borrow_mut();
        // Those whose request went away in the meantime hold no place.
        state.waiting.retain(|waiting| !waiting.turn.is_closed());
        let admitted = |waiting: &Waiting| state.admits(waiting.source, self.max_connections(), released);
        let at = state.waiting.iter().position(admitted)?;
        let Waiting { turn, source } = state.waiting.remove(at)?;
        state.shares.take(source);
        Some((turn, Share { pool: Rc::clone(self), source }))
    }

    /// Closes what is to be kept no longer; returns when to run again. `cx` is the watch's, and woken earlier if
    /// something happens on a connection.
    fn tend(&self, cx: &mut Context<'_>, now: Instant) -> Option<Instant> {
        for driver in self.woken(cx.waker()) {
            // Its handle reports whether it has ended.
            let _ = driver.poll(cx);
        }
        let mut state = self.state.borrow_mut();
        let keep = |idle: &mut Idle| now < idle.since + self.origin.idle_timeout && idle.connection.sender.is_ready();
        let ended: Vec<_> = state.idle.extract_if(.., |idle| !keep(idle)).collect();
        // Pushed at the end, so the longest idle stands first.
        let next = state.idle.first().map(|idle| idle.since + self.origin.idle_timeout);
        if next.is_none() {
            state.watch = None;
        }
        drop(state);
        drop(ended);
        next
    }

    /// The idle connections that were woken. All have `watch` wake.
    fn woken(&self, watch: &Waker) -> Vec<Rc<Driver>> {
        let mut state = self.state.borrow_mut();
        let State { idle, watch: Some(known), .. } = &mut *state else { return Vec::new() };
        let drivers = idle.iter().map(|idle| &idle.connection.driver);
        if known.waker.is_none() {
            known.waker = Some(watch.clone());
            drivers.clone().for_each(|driver| driver.hand_over(watch));
        }
        drivers.filter(|driver| driver.is_woken()).map(Rc::clone).collect()
    }
}

/// Closes idle connections when their time is over, until there are none.
async fn watch(pool: Weak<Pool>) {
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        loop {
            let Some(next) = pool.upgrade().and_then(|pool| pool.tend(cx, Instant::now())) else {
                return Poll::Ready(());
            };
            timer.as_mut().reset(next);
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

impl Slot {
    /// One of `pool` that is in its count of open ones already.
    fn new(pool: &Rc<Pool>) -> Self {
        Self { pool: Rc::clone(pool), _counted: Counted::new(&pool.counters, |counters| &counters.connections) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The slot goes to the next request that waits and is still there.
        if let Some((waiting, share)) = self.pool.next_waiting(1) {
            // Should it come back after all, its own drop passes it on.
            let _ = waiting.send(Turn::Slot(share, Self::new(&self.pool)));
        } else {
            let mut state = self.pool.state.borrow_mut();
            state.open = state.open.saturating_sub(1);
        }
        self.pool.hand_out();
    }
}

impl Connection {
    /// Closes it; another may open.
    fn into_slot(self) -> Slot {
        self.slot
    }

    fn is_usable(&self, now: Instant) -> bool {
        let pool = &self.slot.pool;
        // Ready means for hyper: the last request is sent, its response read, and nothing else came.
        self.sender.is_ready()
            && pool.origin.max_age.is_none_or(|age| now < self.born + age)
            && pool.connector.leads_to(self.stream.address)
    }
}

impl State {
    /// Whether `source` may use another connection, of `most`, when `released` of those in use are about to be released.
    fn admits(&self, source: Option<Network>, most: u32, released: u64) -> bool {
        let in_use = u64::from(self.open).saturating_sub(self.idle.len() as u64).saturating_sub(released);
        self.shares.admits(source, in_use, most.into())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.state.borrow_mut().shares.give_back(self.source);
    }
}

impl Lease {
    fn new(mut connection: Connection, share: Share, reused: bool) -> Self {
        connection.requests = connection.requests.saturating_add(1);
        let received_before = connection.stream.received.get();
        connection.stream.room.set(FIRST_READ);
        Self { pump: None, share, connection, reused, received_before, reusable: Cell::new(true) }
    }

    /// Sends `request`; the future is the response's header.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> {
        if let Some(upload) = request.body().upload() {
            self.connection.slot.pool.watch_upload(upload);
        }
        let Connection { sender, driver, .. } = &mut self.connection;
        let response = driver.quietly(|_| sender.try_send_request(request));
        async move {
            // Its waker wakes no task: it must not be deferred by tokio's budget of a turn.
            let mut response = pin!(unconstrained(response));
            poll_fn(|cx| {
                // The response reports whether the connection has ended.
                let _ = driver.poll(cx);
                driver.quietly(|cx| response.as_mut().poll(cx))
            })
            .await
        }
    }

    /// Sends the rest of the request's body even if the response's is not read.
    pub(super) fn keep_sending(&mut self) {
        self.pump = Some(Pump::start(&self.connection.driver));
    }

    /// The next piece of `body`, the response's that came over this connection.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if let Some(pump) = &mut self.pump {
            if pump.poll(cx).is_pending() {
                return Pin::new(body).poll_frame(cx);
            }
            self.pump = None;
        }
        let driver = &self.connection.driver;
        let read = driver.quietly(|cx| Pin::new(&mut *body).poll_frame(cx));
        if read.is_ready() {
            return read;
        }
        // The body reports whether the connection has ended.
        let _ = driver.poll(cx);
        driver.quietly(|cx| Pin::new(body).poll_frame(cx))
    }

    /// Bytes that may be read at once of the response.
    pub(super) fn room(&self) -> Room {
        Rc::clone(&self.connection.stream.room)
    }

    /// Whether the connection served a request before.
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    /// Whether a byte came since the request was sent.
    pub(super) fn answered(&self) -> bool {
        self.connection.stream.received.get() != self.received_before
    }

    /// The connection without HTTP, after a 101, and the bytes behind that. It no longer counts as the origin's:
    /// another may open. `None` if it failed.
    pub(super) async fn switch(self) -> Option<(Stream, Bytes)> {
        let driver = &self.connection.driver;
        poll_fn(|cx| driver.poll(cx)).await;
        driver.leave()
    }

    /// The connection will not serve another request.
    pub(super) fn do_not_reuse(&self) {
        self.reusable.set(false);
    }

    /// Gives the connection back if it may serve another request; closes it otherwise.
    pub(super) fn give_back(self) {
        if self.reusable.get() {
            let Self { connection, share, .. } = self;
            drop(share);
            let pool = Rc::clone(&connection.slot.pool);
            pool.put(connection);
        }
    }
}
