//! Pools one worker's connections to one server of an origin: newest first, so that the rest can idle out; bounded; and
//! a bounded queue for requests that find none. A source may use all connections while no other waits; otherwise what
//! becomes free goes to the source that uses fewest, and slow clients of the source that uses most give theirs up
//! ([0034](../../../../docs/adr/0034-fair-pools.md)). If the server gets the client's address (PROXY protocol), a
//! connection is used for that client only.

use super::deadline::{Deadline, PassedDeadline};
use super::http2_pool::Http2Pool;
use super::pool_resources::{IdleCount, PoolResources, SpoolBudget};
use crate::address::{Blame, Resolver};
use crate::answer::Error;
use crate::balance::{EjectionCause, EjectionRule};
use crate::connection::{
    BodyDirection, ConnectFailure, ConnectOptions, Connector, FieldSpelling, Http2Connection, OriginConnection,
    OriginStream, PREEMPTION_DELAY, PreemptionReason, ProxiedClient, ReceivedMessage, SendFailure, TlsFailure,
    TlsToOrigin, Upload, WaitingRequest,
};
use crate::metrics::{ProxyMetrics, ServerMetrics};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use litequic_base::timers;
use litequic_config::{self as config, OriginAddress, OriginProtocol, Timeouts};
use litequic_exchange::{BodyCapacity, BodyError, Head, Traceparent, WholeBody};
use litequic_resources::{
    descriptors::Descriptor,
    fairness::{ClientSource, FairPool, NextRequest, PoolSlot, QueueOutcome, QueuePlace, SlotExcess},
};
use litequic_telemetry::GaugeGuard;
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    task::spawn_local,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

/// Most exchanges that are preempted in one review: each costs a walk over all exchanges, and the next review comes
/// soon.
const MAX_PREEMPTED: usize = 64;
/// Most waiting requests, each the next one of its network, for which a review searches an exchange.
const MAX_WAITING_SCANNED: usize = 16;

/// Connections of one worker to one server.
#[derive(Debug)]
pub(crate) struct ServerPool {
    address: OriginAddress,
    /// TLS to the server, if it has https.
    tls: Option<TlsToOrigin>,
    pub(super) origin: config::OriginConfig,
    spelling: Option<Rc<FieldSpelling>>,
    pub(crate) connector: Connector,
    /// HTTP/2 connections, if that is the origin's protocol.
    pub(super) http2: Option<Http2Pool>,
    /// Connects by HTTP/1.1 to a server with HTTP/2 and https, for requests that switch protocols.
    http1: Option<Connector>,
    pub(super) metrics: Arc<ProxyMetrics>,
    counters: Arc<ServerMetrics>,
    resources: Rc<PoolResources>,
    state: RefCell<ServerPoolState>,
}

#[derive(Debug)]
struct ServerPoolState {
    /// Idle connections, the newest last.
    idle: Vec<IdleConnection>,
    /// Connections in use or being opened, by their clients, and the queue for slots.
    fair: FairPool<SlotRequest>,
    /// Use of each slot.
    exchanges: Vec<SlotUse>,
    /// Task that preempts exchanges while requests wait.
    preemption_task: Option<AbortOnDropHandle<()>>,
    /// Task that closes idle connections, while there are any.
    reaper: Option<IdleReaper>,
    /// Whether a connection has belonged to a client.
    has_owners: bool,
    closed: bool,
}

/// A response whose body comes over a connection of a pool, which can preempt it.
pub(crate) trait PooledResponse: fmt::Debug {
    fn is_streaming_call(&self) -> bool;

    /// The reason to preempt the exchange for `taker`, if there is one.
    fn preemption_reason(&self, taker: WaitingRequest) -> Option<PreemptionReason>;

    /// Takes the connection from the exchange. If the rest of the body is known and small, it is spooled into memory,
    /// within `budget`, and the connection is kept. Otherwise the connection is closed, and the slot is free at once;
    /// the reader gets [`BodyError::Evicted`]. Returns whether the exchange has ended; `None` if it is over already.
    fn preempt(self: Rc<Self>, budget: Option<&Rc<SpoolBudget>>) -> Option<bool>;
}

/// Use of a slot, as far as it can be preempted.
#[derive(Debug, Clone, Default)]
enum SlotUse {
    /// A connection that is being opened.
    #[default]
    Connecting,
    /// A request whose response's header is awaited, and its body, if it has one.
    Request {
        connection: CarrierRef,
        began: Instant,
        upload: Weak<Upload>,
    },
    Response(Weak<dyn PooledResponse>),
    /// A preempted exchange, whose connection is free soon.
    Leaving,
}

impl SlotUse {
    /// The reason to preempt the exchange for `taker` that its client gives.
    fn client_reason(&self, taker: WaitingRequest) -> Option<PreemptionReason> {
        match self {
            Self::Connecting | Self::Leaving => None,
            Self::Request { upload, .. } => upload.upgrade()?.upload_preemption(taker),
            Self::Response(transfer) => transfer.upgrade()?.preemption_reason(taker),
        }
    }

    /// The reason to preempt the exchange for `taker`, a request of a network that holds nothing, because the origin
    /// has not answered.
    fn unanswered_reason(&self, taker: WaitingRequest) -> Option<PreemptionReason> {
        let Self::Request { began, upload, .. } = self else { return None };
        taker.unanswered_reason(Upload::server_wait_start(upload.upgrade().as_deref(), *began, Instant::now))
    }
}

/// Connection or stream of an exchange, as long as that holds it.
#[derive(Debug, Clone)]
enum CarrierRef {
    Http1(Weak<OriginConnection>),
    Http2(Weak<OriginStream>),
}

impl CarrierRef {
    fn evict_request(&self) {
        match self {
            Self::Http1(connection) => connection.upgrade().map_or((), |connection| connection.evict_request()),
            Self::Http2(stream) => stream.upgrade().map_or((), |stream| stream.evict_request()),
        }
    }
}

/// An exchange that is to be preempted.
#[derive(Debug)]
struct PreemptedExchange {
    slot: PoolSlot,
    exchange: SlotUse,
    reason: PreemptionReason,
    /// Source of the waiting request.
    waiting_source: ClientSource,
}

#[derive(Debug)]
struct IdleConnection {
    connection: ServerConnection,
    since: Instant,
    /// End of the idle timeout, or of the shorter time that the origin announced.
    until: Instant,
    _counted: IdleCount,
}

/// Task that closes connections that have been idle for too long, or that their origin closed or sent something on.
#[derive(Debug)]
struct IdleReaper {
    _task: AbortOnDropHandle<()>,
    /// Waker of the task, once it has run.
    waker: Option<Waker>,
}

/// A queued request for a slot.
#[derive(Debug)]
struct SlotRequest {
    turn: oneshot::Sender<GrantedSlot>,
    /// Time until which the request waits.
    until: Instant,
}

/// Requirements of a request for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionNeeds {
    /// Whether the connection must have served no request yet.
    pub(crate) fresh: bool,
    /// Whether a system call must check that the origin has neither closed the connection nor sent bytes without a
    /// request. Otherwise a connection may be stale, and the request is sent again.
    pub(crate) quiet: bool,
    /// Client to which the connection must belong.
    pub(crate) proxied: Option<ProxiedClient>,
    /// Whether the request has a body.
    pub(crate) has_body: bool,
    /// Whether the request switches protocols, which HTTP/1.1 alone can.
    pub(crate) switches: bool,
}

/// A slot of the pool: one connection, opened or in use, or one stream. Dropping it gives it to the next request.
#[derive(Debug)]
pub(super) struct SlotGuard {
    pool: Rc<ServerPool>,
    slot: PoolSlot,
    released: bool,
}

/// Slot for a queued request, and a connection if one became free.
#[derive(Debug)]
struct GrantedSlot {
    connection: Option<ServerConnection>,
    in_use: SlotGuard,
}

/// A request's place in the queue. Dropping it leaves the queue.
struct QueueGuard<'a> {
    pool: &'a Rc<ServerPool>,
    place: QueuePlace,
}

/// A connection to the server, in use or idle.
#[derive(Debug)]
struct ServerConnection {
    http: Rc<OriginConnection>,
    /// Client whose address was sent to the server, if any.
    proxied: Option<ProxiedClient>,
    /// Number of the client's connection to which this one belongs, because the origin authenticates connections (NTLM,
    /// Negotiate).
    owner: Cell<Option<u64>>,
    born: Instant,
    /// Number of requests on the connection so far.
    requests: u64,
    _open: GaugeGuard<ProxyMetrics>,
    _counted: GaugeGuard<ServerMetrics>,
}

/// A connection in use by one request. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// Task that sends the rest of the request's body, if the response has come before.
    sending: Option<AbortOnDropHandle<()>>,
    /// Dropped before the slot: the connection closes first, then the next one may open.
    carrier: Carrier,
    in_use: SlotGuard,
    reused: bool,
    received_before: u64,
}

/// Carrier of one exchange with a server.
#[derive(Debug)]
enum Carrier {
    Http1(ServerConnection),
    Http2(Rc<OriginStream>),
}

/// Evaluates an expression for the exchange of a [`Carrier`], whose two types have the same methods.
macro_rules! with_exchange {
    ($carrier:expr, $exchange:ident => $value:expr) => {
        match $carrier {
            Carrier::Http1(ServerConnection { http: $exchange, .. }) => $value,
            Carrier::Http2($exchange) => $value,
        }
    };
}

const _: () = assert!(size_of::<PooledConnection>() <= 224);

impl ServerPool {
    /// An empty pool for an address, by TLS if it has https, with these `counters` and the bounds of `origin`.
    pub(crate) fn new(
        origin: &config::OriginConfig,
        address: &OriginAddress,
        tls: Option<&TlsToOrigin>,
        metrics: Arc<ProxyMetrics>,
        counters: Arc<ServerMetrics>,
        resources: &Rc<PoolResources>,
    ) -> Rc<Self> {
        let is_http2 = origin.protocol == OriginProtocol::Http2;
        let with_alpn = tls.filter(|_| is_http2).map(TlsToOrigin::with_http2);
        let connector = |tls| Connector::new(address, origin.dns_interval, tls);
        let pool = Rc::new(Self {
            connector: connector(with_alpn.as_ref().or(tls)),
            http2: is_http2.then(Http2Pool::new),
            http1: with_alpn.is_some().then(|| connector(tls)),
            address: address.clone(),
            tls: tls.cloned(),
            origin: origin.clone(),
            spelling: FieldSpelling::from_config(origin).map(Rc::new),
            metrics,
            counters,
            resources: Rc::clone(resources),
            state: RefCell::new(ServerPoolState {
                idle: Vec::new(),
                // The first request sets the number of slots.
                fair: FairPool::with_reserve(0),
                exchanges: Vec::new(),
                preemption_task: None,
                reaper: None,
                has_owners: false,
                closed: false,
            }),
        });
        resources.register_pool(Rc::downgrade(&pool));
        pool
    }

    /// Configured maximum of connections, or the derived one.
    pub(super) fn max_connections(&self) -> u32 {
        self.origin.max_connections.unwrap_or_else(|| self.resources.current_limits().max_connections)
    }

    /// Most exchanges at a time.
    fn slot_limit(&self) -> u32 {
        let connections = self.max_connections();
        let http2 = self.http2.as_ref();
        http2.map_or(connections, |http2| http2.stream_slots(connections, &self.origin, &self.resources))
    }

    /// Configured maximum of requests in the queue, or the derived one.
    fn max_queue(&self) -> u32 {
        self.origin.max_queue.unwrap_or_else(|| self.resources.current_limits().max_queue)
    }

    /// Whether the pool is one for `address`, by `tls` as its files are now, with the bounds of `origin`.
    pub(crate) fn matches_config(
        &self,
        origin: &config::OriginConfig,
        address: &OriginAddress,
        tls: Option<&TlsToOrigin>,
    ) -> bool {
        let bounds = |origin: &config::OriginConfig| {
            let times = (origin.idle_timeout, origin.max_age, origin.dns_interval);
            let counts = (origin.max_connections, origin.max_queue, origin.max_requests, origin.max_streams);
            (times, counts, origin.protocol, origin.proxy_protocol)
        };
        self.address == *address
            && self.tls.as_ref() == tls
            && bounds(&self.origin) == bounds(origin)
            && self.origin.field_names == origin.field_names
    }

    /// Number of requests on a connection or in the queue.
    pub(crate) fn active_requests(&self) -> u32 {
        let state = self.state.borrow();
        state.fair.used_slot_count().saturating_add(state.fair.waiting_requests())
    }

    /// Gets a connection: the newest idle one, else a new one, else the first that becomes free, each within its time
    /// of `timeouts` and `deadline`. `source` is the client by whose share of the connections the request is served.
    ///
    /// # Errors
    ///
    /// The connection errors of [`Error`], those of the queue, and that the deadline has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        self: &Rc<Self>,
        needs: &ConnectionNeeds,
        source: ClientSource,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<PooledConnection, Error> {
        if self.connector.resolver().is_some_and(Resolver::needs_lookup) {
            let pool = Rc::clone(self);
            // Not joined, because the task ends within a lookup's time.
            spawn_local(async move {
                if let Some(resolver) = pool.connector.resolver() {
                    resolver.refresh_addresses().await;
                }
                pool.close_stale_addresses();
            });
        }
        let slot = {
            let fair = &mut self.state.borrow_mut().fair;
            // A derived number of slots follows a reload.
            fair.limit = self.slot_limit();
            fair.take_slot(source)
        };
        let turn = match slot {
            Some(slot) => GrantedSlot { connection: None, in_use: SlotGuard::new(self, slot) },
            // Boxed, as is a connection attempt: most requests do neither, and a future that is moved is moved whole.
            None => Box::pin(self.wait_for_slot(source, timeouts, deadline)).await?,
        };
        if self.http2.is_some() && !needs.switches {
            return match self.find_http2_stream(needs, self.connector.address_count()) {
                Some(stream) => Ok(PooledConnection::from_stream(stream, turn.in_use)),
                None => Box::pin(self.wait_for_http2_stream(turn.in_use, needs, timeouts, deadline)).await,
            };
        }
        match self.reuse_connection(turn, needs, source.connection) {
            Ok(connection) => Ok(connection),
            Err(in_use) => Box::pin(self.connect_new(in_use, needs.proxied, timeouts, deadline)).await,
        }
    }

    /// Waits in the queue for a slot, because all are in use.
    async fn wait_for_slot(
        self: &Rc<Self>,
        source: ClientSource,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<GrantedSlot, Error> {
        self.metrics.limit_origin_connections.increment();
        let now = Instant::now();
        let until = now + deadline.map_or(timeouts.queue, |deadline| deadline.cap_to_deadline(timeouts.queue, now));
        let (queued, turn) = self.enter_queue(source, now, until)?;
        // If a reload has raised the number of slots, some are free although requests wait.
        self.grant_slots();
        let waiting = GaugeGuard::new(&self.counters, |counters| &counters.waiting);
        let turn = timers::timeout_at(until, turn).await;
        drop((waiting, queued));
        match turn {
            Ok(Ok(turn)) => Ok(turn),
            // The queue was full, and this was the newest request of the source that has most of it.
            Ok(Err(_)) => Err(Error::QueueFull),
            Err(_) => Err(self.queue_timeout_error(deadline)),
        }
    }

    /// Counts and returns the error of a request that waited in the queue for as long as it may: other requests hold
    /// the connections.
    pub(super) fn queue_timeout_error(&self, deadline: Option<Deadline>) -> Error {
        let passed = deadline.and_then(|deadline| deadline.check_passed(Instant::now(), &self.metrics));
        passed.map_or_else(
            || {
                self.metrics.timeout_queue.increment();
                Error::QueueTimeout
            },
            PassedDeadline::error_without_server,
        )
    }

    /// Queues a request of `source`, which waits until `until`.
    fn enter_queue(
        self: &Rc<Self>,
        source: ClientSource,
        now: Instant,
        until: Instant,
    ) -> Result<(QueueGuard<'_>, oneshot::Receiver<GrantedSlot>), Error> {
        let (sender, turn) = oneshot::channel();
        let mut state = self.state.borrow_mut();
        let since = now.into_std();
        match state.fair.enqueue_request(source, since, self.max_queue(), SlotRequest { turn: sender, until }) {
            QueueOutcome::Refused(_) => {
                self.metrics.limit_origin_queue.increment();
                Err(Error::QueueFull)
            }
            QueueOutcome::Queued(place, shed) => {
                if state.preemption_task.is_none() {
                    let task = spawn_local(run_preemption(Rc::downgrade(self)));
                    state.preemption_task = Some(AbortOnDropHandle::new(task));
                }
                drop(state);
                if shed.is_some() {
                    self.metrics.limit_origin_queue.increment();
                }
                Ok((QueueGuard { pool: self, place }, turn))
            }
        }
    }

    /// Reuses the connection that came with `turn`, or an idle one, for a request of the client's connection with the
    /// number `client`.
    ///
    /// # Errors
    ///
    /// The slot for a new connection, if there is none.
    fn reuse_connection(
        self: &Rc<Self>,
        turn: GrantedSlot,
        needs: &ConnectionNeeds,
        client: u64,
    ) -> Result<PooledConnection, SlotGuard> {
        let GrantedSlot { connection, in_use } = turn;
        let &ConnectionNeeds { fresh, quiet, proxied, .. } = needs;
        if fresh {
            // A connection that has served a request only leaves its slot.
            drop(connection);
        } else {
            let is_quiet = |connection: &ServerConnection| !quiet || connection.http.peek_quiet();
            let is_fit = |connection: &ServerConnection| {
                connection.proxied == proxied
                    && connection.owner.get().is_none_or(|owner| owner == client)
                    && is_quiet(connection)
            };
            if let Some(connection) = connection.filter(is_fit) {
                return Ok(PooledConnection::new(connection, in_use, true));
            }
            let mut now = None;
            while let Some(IdleConnection { connection, until, .. }) = self.pop_idle(proxied, client) {
                let now = *now.get_or_insert_with(timers::turn_time);
                if now < until && self.is_usable(&connection, now) && is_quiet(&connection) {
                    return Ok(PooledConnection::new(connection, in_use, true));
                }
            }
        }
        // Connections of other clients, or that have served a request, may fill the pool: the oldest of these are
        // closed.
        while let Some(oldest) = self.take_excess_idle() {
            drop(oldest);
        }
        Err(in_use)
    }

    /// Gives free slots to the requests that wait for them.
    fn grant_slots(self: &Rc<Self>) {
        while let Some((waiting, slot)) = self.next_granted() {
            // A slot that comes back is passed on when it is dropped.
            let _ = waiting.turn.send(GrantedSlot { connection: None, in_use: SlotGuard::new(self, slot) });
        }
    }

    fn next_granted(&self) -> Option<(SlotRequest, PoolSlot)> {
        self.state.borrow_mut().fair.grant_slot()
    }

    /// Preempts exchanges of the sources that use most connections for requests that have waited for long.
    fn preempt_exchanges(&self) {
        if timers::grace_deadline().is_some() {
            // Bytes that clients sent while the process did not run have not been read yet.
            return;
        }
        let now = Instant::now();
        for _ in 0..MAX_PREEMPTED {
            let Some(giver) = self.find_preempted(now) else { return };
            self.preempt_exchange(&giver);
        }
    }

    /// Finds the exchange to preempt for the request that is next in the queue, or next of its network, if that has
    /// waited for long: of the source that uses most connections, the slowest.
    fn find_preempted(&self, now: Instant) -> Option<PreemptedExchange> {
        let state = self.state.borrow();
        let leaving = state.exchanges.iter().filter(|exchange| matches!(exchange, SlotUse::Leaving)).count();
        if leaving >= state.fair.waiting_requests() as usize {
            return None;
        }
        let has_waited = |next: &NextRequest<'_, SlotRequest>| {
            now.into_std().saturating_duration_since(next.since) >= PREEMPTION_DELAY
        };
        let find = |reason: fn(&SlotUse, WaitingRequest) -> Option<PreemptionReason>, for_newcomers: bool| {
            let waiting = state.fair.next_requests().take(MAX_WAITING_SCANNED).filter(has_waited);
            waiting.filter(|next| !for_newcomers || state.fair.is_new_network(&next.source)).find_map(|next| {
                let wait_left = next.request.until.saturating_duration_since(now);
                let gives_way = |slot: PoolSlot| {
                    let excess: SlotExcess = state.fair.slot_excess(slot, &next.branches)?;
                    let taker = WaitingRequest::new(wait_left, &excess, timers::elapsed_since_resume);
                    Some((excess, reason(state.exchanges.get(slot.slot_index())?, taker)?, slot))
                };
                let (_, reason, slot) = state.fair.used_slots().filter_map(gives_way).max()?;
                Some(PreemptedExchange {
                    slot,
                    exchange: state.exchanges.get(slot.slot_index())?.clone(),
                    reason,
                    waiting_source: next.source,
                })
            })
        };
        find(SlotUse::client_reason, false).or_else(|| find(SlotUse::unanswered_reason, true))
    }

    fn preempt_exchange(
        &self,
        &PreemptedExchange { slot, ref exchange, reason, waiting_source: taker }: &PreemptedExchange,
    ) {
        {
            let state = &mut *self.state.borrow_mut();
            if let Some(noted) = state.exchanges.get_mut(slot.slot_index()) {
                *noted = SlotUse::Leaving;
            }
            // An upload's task has to run, or a rest has to come, before the slot is free: it counts for its next
            // client already.
            state.fair.change_slot_source(slot, taker);
        }
        let is_kept = match exchange {
            SlotUse::Request { connection, upload, .. } => {
                match (reason, upload.upgrade()) {
                    (PreemptionReason::Unanswered(_), _) => connection.evict_request(),
                    (_, Some(upload)) => upload.evict_upload(),
                    _ => {}
                }
                false
            }
            SlotUse::Response(transfer) => {
                let budget = matches!(reason, PreemptionReason::Slow(..)).then_some(&self.resources.spool_budget);
                transfer.upgrade().is_some_and(|transfer| transfer.preempt(budget) == Some(false))
            }
            SlotUse::Connecting | SlotUse::Leaving => return,
        };
        let (counter, reason) = match reason {
            _ if is_kept => (&self.metrics.origin_rests_taken, "slow download, remainder read into memory"),
            PreemptionReason::Slow(_, BodyDirection::Upload) => (&self.metrics.evicted_slow_uploads, "slow upload"),
            PreemptionReason::Slow(_, BodyDirection::Download) => {
                (&self.metrics.evicted_slow_downloads, "slow download")
            }
            PreemptionReason::Silent(_) => (&self.metrics.evicted_silent, "silent body"),
            PreemptionReason::Unanswered(_) => (&self.metrics.evicted_unanswered, "unanswered request"),
        };
        counter.increment();
        tracing::debug!(origin = %self.address, reason, "aborting an exchange to free its connection for a waiting \
                                                         request");
    }

    fn set_slot_use(&self, slot: PoolSlot, exchange: SlotUse) {
        let exchanges = &mut self.state.borrow_mut().exchanges;
        if exchanges.len() <= slot.slot_index() {
            exchanges.resize(slot.slot_index().saturating_add(1), SlotUse::Connecting);
        }
        if let Some(noted) = exchanges.get_mut(slot.slot_index()) {
            *noted = exchange;
        }
    }

    /// Closes idle connections, now and later. Requests in flight end normally.
    pub(crate) fn close_idle(&self) {
        let (idle, reaper) = {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            (std::mem::take(&mut state.idle), state.reaper.take())
        };
        drop((idle, reaper));
        if let Some(http2) = &self.http2 {
            http2.retire_where(|_| true);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }

    async fn connect_new(
        self: &Rc<Self>,
        in_use: SlotGuard,
        proxied: Option<ProxiedClient>,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<PooledConnection, Error> {
        let descriptor = self.wait_for_descriptor(timeouts, deadline).await?;
        let counted = GaugeGuard::new(&self.counters, |counters| &counters.connections);
        let began = Instant::now();
        let limit = deadline.map_or(timeouts.connect, |deadline| deadline.cap_to_deadline(timeouts.connect, began));
        let connector = match (&self.http2, &self.http1) {
            (None, _) => &self.connector,
            (Some(_), Some(connector)) => connector,
            // Without TLS the server expects HTTP/2 from the first byte on.
            (Some(_), None) => return Err(Error::NoSuchTunnel),
        };
        let opened = connector.open_socket(self.connect_options(limit, proxied, descriptor)).await;
        let (socket, address, descriptor) =
            opened.map_err(|failure| self.report_connect_failure(failure, began, deadline))?;
        let mut http = OriginConnection::new(socket, address, descriptor, &self.metrics);
        http.spelling.clone_from(&self.spelling);
        self.metrics.origin_connections.increment();
        let open = GaugeGuard::new(&self.metrics, |metrics| &metrics.origin_connections_open);
        let born = Instant::now();
        let connection = ServerConnection {
            http: Rc::new(http),
            proxied,
            owner: Cell::new(None),
            born,
            requests: 0,
            _open: open,
            _counted: counted,
        };
        Ok(PooledConnection::new(connection, in_use, false))
    }

    /// Opens an HTTP/2 connection until `deadline`.
    pub(super) async fn open_http2(
        &self,
        proxied: Option<ProxiedClient>,
        descriptor: Descriptor,
        deadline: Instant,
    ) -> Result<Rc<Http2Connection>, ConnectFailure> {
        let counted = GaugeGuard::new(&self.counters, |counters| &counters.connections);
        let limit = deadline.saturating_duration_since(Instant::now());
        let opened = self.connector.open_socket(self.connect_options(limit, proxied, descriptor)).await;
        let (socket, address, descriptor) = opened?;
        Http2Connection::open(socket, address, proxied, descriptor, counted, &self.metrics, deadline).await
    }

    fn connect_options(
        &self,
        limit: Duration,
        proxied: Option<ProxiedClient>,
        descriptor: Descriptor,
    ) -> ConnectOptions<'_, impl Fn() -> Option<Descriptor>> {
        let spare = || self.resources.spare_descriptor();
        ConnectOptions { limit, proxied, descriptor, spare, counters: &self.counters, metrics: &self.metrics }
    }

    /// Counts and logs a connection that could not be opened since `began`, and returns the request's error.
    pub(super) fn report_connect_failure(
        &self,
        ConnectFailure { error, reason }: ConnectFailure,
        began: Instant,
        deadline: Option<Deadline>,
    ) -> Error {
        if error == Error::NoDescriptor {
            // The kernel had no descriptor although the process' count had: the next request finds the idle
            // connection's.
            self.metrics.limit_origin_descriptors.increment();
            self.resources.close_longest_idle();
            tracing::warn!(origin = %self.address, "no file descriptor is left for a connection to the origin");
            return error;
        }
        self.metrics.origin_connect_errors.increment();
        tracing::warn!(origin = %self.address, %error, reason, "no connection to the origin");
        if error != Error::ConnectTimeout {
            return error;
        }
        let Some(passed) = deadline.and_then(|deadline| deadline.check_passed(Instant::now(), &self.metrics)) else {
            self.metrics.timeout_connect.increment();
            return error;
        };
        passed.error_after_wait(began)
    }

    /// Takes a descriptor for a new connection, within the time of a request in the queue.
    pub(super) async fn wait_for_descriptor(
        &self,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Descriptor, Error> {
        let now = Instant::now();
        let limit = deadline.map_or(timeouts.queue, |deadline| deadline.cap_to_deadline(timeouts.queue, now));
        let descriptor = timers::timeout(limit, self.resources.acquire_descriptor()).await;
        descriptor.map_err(|_| self.queue_timeout_error(deadline))
    }

    /// Removes the newest idle connection for `proxied`: the last one, if the server does not get the client's address.
    /// One that belongs to `client` comes first, and those of other clients are left.
    fn pop_idle(&self, proxied: Option<ProxiedClient>, client: u64) -> Option<IdleConnection> {
        let state = &mut *self.state.borrow_mut();
        let idle = &mut state.idle;
        let of = |owner: Option<u64>| {
            move |idle: &IdleConnection| idle.connection.proxied == proxied && idle.connection.owner.get() == owner
        };
        let own = if state.has_owners { idle.iter().rposition(of(Some(client))) } else { None };
        Some(idle.remove(own.or_else(|| idle.iter().rposition(of(None)))?))
    }

    /// Removes the oldest idle connection, if connections in use and idle ones are more than the maximum.
    fn take_excess_idle(&self) -> Option<ServerConnection> {
        let mut state = self.state.borrow_mut();
        let open = state.idle.len().saturating_add(state.fair.used_slot_count() as usize);
        let excessive = open > self.max_connections() as usize && !state.idle.is_empty();
        excessive.then(|| state.idle.remove(0).connection)
    }

    /// Reports that a request failed by `cause`, because its connection to `address`, one of several, broke. Returns
    /// whether that is the server's fault rather than the address'.
    pub(crate) fn report_address_broken(&self, address: SocketAddr, rule: EjectionRule, cause: EjectionCause) -> bool {
        let broken = |resolver: &Resolver| resolver.on_address_broken(address, rule, cause);
        match self.connector.resolver().map_or(Blame::Server, broken) {
            Blame::Server => true,
            Blame::Address(None) => false,
            Blame::Address(Some(time)) => {
                self.counters.address_ejections.increment();
                tracing::warn!(origin = %self.address, %address, ?time, "an address failed too often: ejected");
                let is_to = |idle: &mut IdleConnection| idle.connection.http.address == Some(address);
                let ejected: Vec<_> = self.state.borrow_mut().idle.extract_if(.., is_to).collect();
                drop(ejected);
                if let Some(http2) = &self.http2 {
                    http2.retire_where(|connection| connection.address == Some(address));
                }
                false
            }
        }
    }

    /// Closes idle connections to addresses that the server's name no longer has.
    fn close_stale_addresses(&self) {
        let strays: Vec<_> = {
            let mut state = self.state.borrow_mut();
            state.idle.extract_if(.., |idle| !self.connector.is_current_address(idle.connection.http.address)).collect()
        };
        drop(strays);
        if let Some(http2) = &self.http2 {
            http2.retire_where(|connection| !self.connector.is_current_address(connection.address));
        }
    }

    /// Gives a connection and its slot to the next request that waits, or keeps the connection for a later one.
    fn return_connection(self: &Rc<Self>, connection: ServerConnection, in_use: SlotGuard) {
        let now = timers::turn_time();
        let mut is_kept =
            self.is_usable(&connection, now) && !self.state.borrow().closed && self.is_still_quiet(&connection.http);
        if is_kept && self.origin.max_requests.is_some_and(|most| connection.requests >= most) {
            self.metrics.limit_origin_requests.increment();
            is_kept = false;
        }
        if !is_kept {
            // The order matters: the next connection opens once this one is closed.
            drop(connection);
            drop(in_use);
            return;
        }
        in_use.free_without_grant();
        let mut connection = connection;
        while let Some((waiting, slot)) = self.next_granted() {
            let turn = GrantedSlot { connection: Some(connection), in_use: SlotGuard::new(self, slot) };
            let Err(GrantedSlot { connection: Some(back), in_use }) = waiting.turn.send(turn) else {
                return self.grant_slots();
            };
            // The request has gone: the next one is tried.
            in_use.free_without_grant();
            connection = back;
        }
        let Some(counted) = self.resources.count_idle() else { return };
        let mut state = self.state.borrow_mut();
        if state.reaper.is_none() {
            let task = AbortOnDropHandle::new(spawn_local(reap_idle(Rc::downgrade(self))));
            state.reaper = Some(IdleReaper { _task: task, waker: None });
        }
        let time = connection.http.announced_idle_time().unwrap_or(Duration::MAX).min(self.origin.idle_timeout);
        state.idle.push(IdleConnection { connection, since: now, until: now + time, _counted: counted });
    }

    /// Whether `connection` may serve another request.
    fn is_usable(&self, connection: &ServerConnection, now: Instant) -> bool {
        connection.http.is_reusable()
            && self.origin.max_age.is_none_or(|age| now < connection.born + age)
            && self.connector.is_current_address(connection.http.address)
    }

    /// Closes idle connections that have ended or idled out; returns the time of the next run. `cx` is the reaper's,
    /// and woken earlier if something happens on a connection.
    fn reap_expired(&self, cx: &mut Context<'_>, now: Instant) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        if let Some(reaper) = &mut state.reaper {
            reaper.waker = Some(cx.waker().clone());
        }
        let ended: Vec<_> = {
            let ends = |idle: &mut IdleConnection| {
                // Each connection registers the reaper, which so learns of events on any of them.
                now >= idle.until || !idle.connection.http.poll_quiet(cx)
            };
            state.idle.extract_if(.., ends).collect()
        };
        let next = state.idle.iter().map(|idle| idle.until).min();
        if next.is_none() {
            state.reaper = None;
        }
        drop(state);
        drop(ended);
        next
    }

    /// Whether a connection that becomes idle has received no bytes, as far as the runtime knows. If there is a reaper,
    /// that is woken by later bytes.
    fn is_still_quiet(&self, http: &OriginConnection) -> bool {
        let waker = self.state.borrow().reaper.as_ref().and_then(|reaper| reaper.waker.clone());
        http.poll_quiet(&mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop())))
    }

    /// Time since which the longest idle connection is idle; `None` without one.
    pub(super) fn longest_idle_since(&self) -> Option<Instant> {
        let idle = self.state.borrow().idle.first().map(|idle| idle.since);
        let http2 = self.http2.as_ref().and_then(Http2Pool::longest_idle_since);
        idle.into_iter().chain(http2).min()
    }

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_oldest_idle(&self) -> bool {
        let oldest = {
            let idle = &mut self.state.borrow_mut().idle;
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        oldest.is_some() || self.http2.as_ref().is_some_and(Http2Pool::close_oldest_idle)
    }

    /// Ends the streaming calls in flight.
    pub(super) fn end_streaming_calls(&self) {
        // Counted first: the counter explains the errors of these exchanges.
        let count = || self.metrics.evicted_by_drain.increment();
        let exchanges = self.state.borrow().exchanges.clone();
        for exchange in exchanges {
            match exchange {
                SlotUse::Request { connection, upload, .. }
                    if upload.upgrade().is_some_and(|upload| upload.is_streaming()) =>
                {
                    count();
                    connection.evict_request();
                }
                SlotUse::Response(response) => {
                    if let Some(response) = response.upgrade().filter(|response| response.is_streaming_call()) {
                        count();
                        response.preempt(None);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Closes idle connections when their time is over, until there are none.
async fn reap_idle(pool: Weak<ServerPool>) {
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        loop {
            let Some(next) = pool.upgrade().and_then(|pool| pool.reap_expired(cx, Instant::now())) else {
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

/// Preempts exchanges from time to time, for as long as requests wait.
async fn run_preemption(pool: Weak<ServerPool>) {
    loop {
        sleep(PREEMPTION_DELAY).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.preempt_exchanges();
        let mut state = pool.state.borrow_mut();
        if state.fair.waiting_requests() == 0 {
            state.preemption_task = None;
            return;
        }
    }
}

impl SlotGuard {
    fn new(pool: &Rc<ServerPool>, slot: PoolSlot) -> Self {
        Self { pool: Rc::clone(pool), slot, released: false }
    }

    /// Gives the slot back, and leaves it to the caller to look for the next request.
    fn free_without_grant(mut self) {
        self.free_slot();
    }

    fn free_slot(&mut self) {
        self.released = true;
        let state = &mut *self.pool.state.borrow_mut();
        state.fair.release_slot(self.slot);
        if let Some(http2) = &self.pool.http2 {
            http2.on_stream_ended();
        }
        if let Some(exchange) = state.exchanges.get_mut(self.slot.slot_index()) {
            *exchange = SlotUse::Connecting;
        }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if !self.released {
            self.free_slot();
            self.pool.grant_slots();
        }
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let left = self.pool.state.borrow_mut().fair.leave_queue(self.place);
        drop(left);
    }
}

impl PooledConnection {
    fn new(mut connection: ServerConnection, in_use: SlotGuard, reused: bool) -> Self {
        connection.requests = connection.requests.saturating_add(1);
        let received_before = connection.http.received.get();
        Self { sending: None, carrier: Carrier::Http1(connection), in_use, reused, received_before }
    }

    pub(super) fn from_stream(stream: OriginStream, in_use: SlotGuard) -> Self {
        let reused = stream.is_reused();
        Self { sending: None, carrier: Carrier::Http2(Rc::new(stream)), in_use, reused, received_before: 0 }
    }

    /// Prepares a request with the body `upload`, to be sent by [`Self::poll_sent`] with `traceparent` in its header.
    pub(crate) fn start_request(&self, upload: Option<&Rc<Upload>>, traceparent: Option<Traceparent>) {
        let upload_use = upload.map_or_else(Weak::new, Rc::downgrade);
        let began = timers::turn_time();
        let connection = match &self.carrier {
            Carrier::Http1(connection) => CarrierRef::Http1(Rc::downgrade(&connection.http)),
            Carrier::Http2(stream) => CarrierRef::Http2(Rc::downgrade(stream)),
        };
        self.in_use.pool.set_slot_use(self.in_use.slot, SlotUse::Request { connection, began, upload: upload_use });
        with_exchange!(&self.carrier, exchange => exchange.prepare_request(upload.cloned(), traceparent));
    }

    /// Sends the request with this `head`, and waits for an interim response or the final one's head.
    pub(crate) fn poll_sent(&self, head: &Head, cx: &mut Context<'_>) -> Poll<Result<ReceivedMessage, SendFailure>> {
        with_exchange!(&self.carrier, exchange => exchange.poll_response(head, cx))
    }

    /// Sends the rest of the request's body even if no task reads the response: a client may read nothing before the
    /// origin has everything.
    pub(crate) fn keep_sending(&mut self) {
        with_exchange!(&self.carrier, exchange => if !exchange.is_sent() {
            let exchange = Rc::downgrade(exchange);
            let task = poll_fn(move |cx| {
                exchange.upgrade().map_or(Poll::Ready(()), |exchange| exchange.poll_send_alone(cx))
            });
            self.sending = Some(AbortOnDropHandle::new(spawn_local(task)));
        });
    }

    /// Reads the next piece of the response's body.
    pub(crate) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        with_exchange!(&self.carrier, exchange => exchange.poll_frame(self.sending.is_none(), cx))
    }

    /// The response's body if all of it came with the head, and the request is sent.
    pub(crate) fn take_response_body(&self) -> Option<WholeBody> {
        with_exchange!(&self.carrier, exchange => exchange.take_whole_body())
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        with_exchange!(&self.carrier, exchange => exchange.is_end_stream())
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        with_exchange!(&self.carrier, exchange => exchange.size_hint())
    }

    /// Most bytes of the response in one read.
    pub(crate) fn response_capacity(&self) -> BodyCapacity {
        Rc::clone(match &self.carrier {
            Carrier::Http1(connection) => &connection.http.read_capacity,
            Carrier::Http2(stream) => stream.response_capacity(),
        })
    }

    /// Address of the server, over TCP.
    pub(crate) fn server_address(&self) -> Option<SocketAddr> {
        match &self.carrier {
            Carrier::Http1(connection) => connection.http.address,
            Carrier::Http2(stream) => stream.server_address(),
        }
    }

    /// Whether the connection served a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether a byte of the response came since the request was sent.
    pub(crate) fn has_answered(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(connection) => connection.http.received.get() != self.received_before,
            Carrier::Http2(stream) => stream.has_answered(),
        }
    }

    /// TLS failure since the handshake.
    pub(crate) fn tls_failure(&self) -> Option<TlsFailure> {
        with_exchange!(&self.carrier, exchange => exchange.tls_session_failure())
    }

    /// The connection without HTTP, after a 101, and the bytes behind that. It no longer counts as the origin's:
    /// another may open. `None` if the request was not sent whole, or has no connection of its own.
    pub(crate) fn switch_protocols(self) -> Option<(Rc<OriginConnection>, Bytes)> {
        let Carrier::Http1(connection) = &self.carrier else { return None };
        let ahead = connection.http.leave_http()?;
        Some((Rc::clone(&connection.http), ahead))
    }

    /// Keeps the connection for the client's connection with the number `client` from now on: the origin takes its
    /// further requests for that client's. NTLM and Negotiate need HTTP/1.1.
    pub(crate) fn reserve_for_client(&self, client: u64) {
        if let Carrier::Http1(connection) = &self.carrier {
            connection.owner.set(Some(client));
            self.in_use.pool.state.borrow_mut().has_owners = true;
        }
    }

    /// Notes that the connection is used for the body of `response` from now on.
    pub(crate) fn carry_response(&self, response: Weak<dyn PooledResponse>) {
        self.in_use.pool.set_slot_use(self.in_use.slot, SlotUse::Response(response));
    }

    /// Returns the connection to the pool if it may serve another request; closes it otherwise. A stream ends.
    pub(crate) fn return_to_pool(self) {
        let Self { sending, carrier, in_use, .. } = self;
        drop(sending);
        if let Carrier::Http1(connection) = carrier {
            let pool = Rc::clone(&in_use.pool);
            pool.return_connection(connection, in_use);
        }
    }
}
