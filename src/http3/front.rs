//! The state that the connections of one worker share, and that the streams of one connection share.

use super::{
    error::Code,
    frame::Endpoint,
    linger::LingeringStreams,
    pauses::Pauses,
    qpack::FieldLimits,
    receive::SmallFrames,
    send::{Sender, application_error},
    uni::UniStreams,
};
use crate::{
    budget::{Budget, BufferLease},
    config::{Config, Limits, Live, Timeouts},
    exchange::{Client, Identity, LastAuthority, LastForwarded, MinimumRate, Protocol, Records, plain},
    http3::Metrics,
    lifecycle::PhaseWatch,
    memory::{ConnectionPool, MemoryAccount, MemoryAccounts},
    rate::Bucket,
    receive_budget::ReceiveAccount,
    transport::SendWindow,
};
use http::{HeaderMap, StatusCode};
use s2n_quic::stream::SendStream;
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::watch;

/// Unidirectional streams of unknown types (RFC 9114 §6.2.3) that a connection may open in all, to keep reserved types
/// from becoming a flood.
const MAX_UNKNOWN_STREAMS: u64 = 1_000;

/// Whether a client's connection may carry requests for a host: 421 otherwise (RFC 9110 §15.5.20).
pub type Covers = dyn Fn(&Client, &str) -> bool;

/// The validated address of a connection's client; `None` if the connection is gone.
pub type ClientAddress = fn(&s2n_quic::connection::Handle) -> Option<SocketAddr>;

/// The state that the connections of one worker share.
pub struct Http3Worker {
    config: Live,
    terms: RefCell<Rc<Terms>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) covers: Box<Covers>,
    client_address: ClientAddress,
    budget: Rc<Budget>,
    holders: Rc<MemoryAccounts>,
    pub(super) watch: PhaseWatch,
    /// False while HTTP/3 is off.
    on: watch::Receiver<bool>,
    pub(super) records: Records,
}

impl Http3Worker {
    /// A worker's front end, whose responses are sent out of the budget, and whose connections may be closed for want
    /// of memory.
    pub fn new(
        config: Live,
        metrics: Arc<Metrics>,
        covers: Box<Covers>,
        client_address: ClientAddress,
        (budget, holders): (Rc<Budget>, Rc<MemoryAccounts>),
        watch: PhaseWatch,
    ) -> Self {
        let terms = Terms::of(config.load_full());
        Self {
            config,
            terms: RefCell::new(Rc::new(terms)),
            metrics,
            covers,
            client_address,
            budget,
            holders,
            watch,
            // Without a sender it stays as it is.
            on: watch::channel(true).1,
            records: Records::default(),
        }
    }

    /// Has each request recorded in `records`.
    pub fn recording(self, records: Records) -> Self {
        Self { records, ..self }
    }

    /// Has each connection drain once `on` is false.
    pub fn while_on(self, on: watch::Receiver<bool>) -> Self {
        Self { on, ..self }
    }

    /// Waits until HTTP/3 is switched off. Cancel safe.
    pub(super) async fn switched_off(&self) {
        if self.on.clone().wait_for(|on| !on).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Registers a connection of the client at `address`, which it has validated. `None`, counted, if there is no room
    /// for it.
    pub(super) fn admit(&self, address: SocketAddr) -> Option<MemoryAccount> {
        let terms = self.terms();
        let network = terms.config.source(address.ip()).map(|network| (network.address, network.prefix));
        let holder = self.holders.admit(ConnectionPool::Quic, network, terms.limits.max_connections);
        match &holder {
            Some(holder) => {
                holder.serves(plain(address));
                holder.ready();
            }
            None => self.metrics.limit_connections.increment(),
        }
        holder
    }

    /// The configuration in force, for what begins now.
    pub(super) fn terms(&self) -> Rc<Terms> {
        let terms = Rc::clone(&self.terms.borrow());
        let config = self.config.load();
        if Arc::ptr_eq(&config, &terms.config) {
            return terms;
        }
        let terms = Rc::new(Terms::of(Arc::clone(&config)));
        self.terms.replace(Rc::clone(&terms));
        terms
    }
}

/// The limits of a connection or a request: of the configuration that was in force when it began.
pub(super) struct Terms {
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) field_limits: FieldLimits,
    /// Whether clients may switch protocols.
    pub(super) has_tunnels: bool,
    config: Arc<Config>,
}

impl Terms {
    /// The minimum rate of a request's body.
    pub(super) fn upload_pace(&self) -> MinimumRate {
        MinimumRate::new(self.timeouts.request_body, self.limits.min_upload_rate, self.limits.rate_grace)
    }

    /// The minimum rate at which a client reads a response.
    pub(super) fn download_pace(&self) -> MinimumRate {
        MinimumRate::new(self.timeouts.send, self.limits.min_download_rate, self.limits.rate_grace)
    }

    fn of(config: Arc<Config>) -> Self {
        let Config { limits, timeouts, .. } = *config;
        let field_limits = FieldLimits { bytes: limits.max_header_bytes as usize, fields: limits.max_headers as usize };
        Self { limits, timeouts, field_limits, has_tunnels: config.has_tunnels(), config }
    }
}

/// One connection, as its streams see it.
pub(super) struct Connection<H> {
    pub(super) front: Rc<Http3Worker>,
    /// Limits and timeouts in force when the connection began: SETTINGS and QUIC have advertised some of them.
    pub(super) terms: Rc<Terms>,
    pub(super) handler: Rc<H>,
    client: RefCell<Rc<Client>>,
    /// The authority of its last request.
    pub(super) authority: LastAuthority,
    /// Unidirectional streams that the client has opened.
    pub(super) uni: RefCell<UniStreams>,
    /// Requests accepted so far.
    pub(super) accepted: Cell<u64>,
    budget: Rc<Budget>,
    /// The registered connection: what memory it holds.
    pub(super) holder: MemoryAccount,
    /// The connection and its requests were ended for another client.
    pub(super) evicted: Cell<bool>,
    pauses: Rc<Pauses>,
    pub(super) handle: s2n_quic::connection::Handle,
    unknown_streams: Cell<u64>,
    /// Rate limit of cancelled requests.
    resets: RefCell<Bucket>,
    /// Rate limit of DATA frames with next to nothing in them.
    pub(super) small_frames: Rc<SmallFrames>,
    /// What its client has sent and was not read.
    pub(super) account: ReceiveAccount,
    /// Bodies of requests that were answered.
    pub(super) lingering: Rc<LingeringStreams>,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, once the client has sent it.
    pub(super) max_field_section_size: Cell<Option<u64>>,
    /// Tunnels that are open on it.
    tunnels: Cell<u32>,
    /// Closed because its client violated the protocol.
    failed: Cell<bool>,
}

impl<H> Connection<H> {
    pub(super) fn new(
        handle: s2n_quic::connection::Handle,
        client: Client,
        handler: Rc<H>,
        front: Rc<Http3Worker>,
        account: ReceiveAccount,
        holder: MemoryAccount,
    ) -> Self {
        front.metrics.connections.increment();
        front.metrics.connections_open.increment();
        let terms = front.terms();
        let budget = Budget::for_connection(u64::from(terms.limits.connection_send_buffer));
        let (sends, received) = (Rc::clone(&budget), account.clone());
        holder.holds(move || sends.used().saturating_add(received.held()));
        Self {
            budget,
            client: RefCell::new(Rc::new(Client { connection: holder.number(), ..client })),
            authority: LastAuthority::default(),
            holder,
            evicted: Cell::new(false),
            uni: RefCell::new(UniStreams::new(Endpoint::Client)),
            accepted: Cell::new(0),
            unknown_streams: Cell::new(0),
            resets: RefCell::new(Bucket::new(terms.limits.max_resets)),
            small_frames: SmallFrames::new(terms.limits.max_small_frames, Arc::clone(&front.metrics)),
            lingering: LingeringStreams::new(&terms.limits, &terms.timeouts, Arc::clone(&front.metrics)),
            max_field_section_size: Cell::new(None),
            tunnels: Cell::new(0),
            failed: Cell::new(false),
            pauses: Pauses::new(handle.clone(), terms.timeouts.idle),
            terms,
            handle,
            handler,
            front,
            account,
        }
    }

    /// The client, at its current address.
    pub(super) fn client(&self) -> Rc<Client> {
        let client = Rc::clone(&self.client.borrow());
        let address = (self.front.client_address)(&self.handle).map_or(client.address, plain);
        if address == client.address {
            return client;
        }
        tracing::debug!(before = %client.address, now = %address, "the client's address changed");
        let client = Rc::new(Client { address, ..(*client).clone() });
        self.client.replace(Rc::clone(&client));
        client
    }

    /// Closes the connection because the client violated HTTP/3 (RFC 9114 §8). The first fault counts: several streams
    /// may find one.
    pub(super) fn fail(&self, code: Code) {
        if self.failed.replace(true) {
            return;
        }
        self.front.metrics.connection_errors.increment();
        if code == Code::ExcessiveLoad {
            self.front.metrics.limit_excessive_load.increment();
        }
        tracing::debug!(client = %self.client().address, error = %code, "closing an HTTP/3 connection");
        self.handle.close(application_error(code));
    }

    /// Whether the client accepts a field section as large as that of `status` and `fields` (RFC 9114 §4.2.2).
    pub(super) fn takes(&self, status: Option<StatusCode>, fields: &HeaderMap) -> bool {
        let Some(limit) = self.max_field_section_size.get() else { return true };
        let status = status.map_or(0, |_| field_size(":status".len(), 3));
        let size = fields.iter().map(|(name, value)| field_size(name.as_str().len(), value.len()));
        let takes = size.fold(status, u64::saturating_add) <= limit;
        if !takes {
            self.front.metrics.limit_client_header.increment();
        }
        takes
    }

    pub(super) fn sender(&self, stream: SendStream, window: Box<dyn SendWindow>, pace: MinimumRate) -> Sender {
        let limit = u64::from(self.terms.limits.stream_send_buffer);
        let lease = BufferLease::new(Rc::clone(&self.budget), Rc::clone(&self.front.budget), limit);
        let pauses = Rc::clone(&self.pauses);
        let (motion, metrics) = (self.holder.motion(), Arc::clone(&self.front.metrics));
        Sender::new(stream, window, pauses, lease, pace, motion, metrics)
    }

    /// Counts a request that its client cancelled; closes the connection once there were too many in too short a time
    /// (CVE-2023-44487: work begun and thrown away).
    pub(super) fn count_reset(&self) {
        self.front.metrics.shared.streams_reset_by_client.increment();
        let admitted = self.resets.borrow_mut().take(1, Instant::now());
        // The end of a connection ends its requests: that is no flood, and only then a PING fails.
        if !admitted && self.handle.clone().ping().is_ok() {
            self.front.metrics.shared.limit_resets.increment();
            self.fail(Code::ExcessiveLoad);
        }
    }

    /// Keeps the connection from its idle timeout for as long as the returned guard exists: a tunnel has a timeout of
    /// its own. A connection whose client is gone ends all the same, as it acknowledges nothing.
    pub(super) fn keep_alive(&self) -> KeepAliveGuard<'_, H> {
        self.tunnels.set(self.tunnels.get().saturating_add(1));
        self.set_keep_alive();
        KeepAliveGuard(self)
    }

    fn set_keep_alive(&self) {
        // An error means that the connection is gone.
        let _ = self.handle.clone().keep_alive(self.tunnels.get() > 0);
    }

    /// Counts a stream of an unknown type; false once there were too many.
    pub(super) fn tolerates_unknown_stream(&self) -> bool {
        self.unknown_streams.set(self.unknown_streams.get() + 1);
        self.unknown_streams.get() <= MAX_UNKNOWN_STREAMS
    }
}

/// Keeps a connection from its idle timeout.
pub(super) struct KeepAliveGuard<'a, H>(&'a Connection<H>);

impl<H> Drop for KeepAliveGuard<'_, H> {
    fn drop(&mut self) {
        self.0.tunnels.set(self.0.tunnels.get().saturating_sub(1));
        self.0.set_keep_alive();
    }
}

/// What a field counts in a field section's size (RFC 9114 §4.2.2).
fn field_size(name: usize, value: usize) -> u64 {
    name as u64 + value as u64 + 32
}

impl<H> Drop for Connection<H> {
    fn drop(&mut self) {
        self.front.metrics.connections_open.decrement();
    }
}

/// The client; `None` if the connection is gone already. To be called once: the result of TLS is taken from the
/// connection.
pub(super) fn client_of(connection: &mut s2n_quic::Connection, front: &Http3Worker) -> Option<Client> {
    let identity = connection.take_tls_context().and_then(|context| context.downcast::<Identity>().ok());
    Some(Client {
        address: plain((front.client_address)(&connection.handle())?),
        local: plain(connection.local_addr().ok()?),
        protocol: Protocol::Http3,
        server_name: connection.server_name().ok()?.map(|name| Arc::from(name.to_ascii_lowercase())),
        forwarded: LastForwarded::default(),
        identity: identity.map(|identity| *identity).unwrap_or_default(),
        connection: 0,
    })
}
