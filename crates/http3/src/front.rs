//! The state that the connections of one worker share, and that the streams of one connection share.

use super::{
    alt_svc::AltSvcRenewal,
    error::{Code, application_error},
    frame::Endpoint,
    life::Http3Life,
    linger::LingeringStreams,
    pauses::Pauses,
    phase::{Http3End, Http3Event},
    priorities::Priorities,
    uni::UniStreams,
};
use crate::metrics::Metrics;
use http::StatusCode;
use litequic_base::{
    lifecycle::{Phase, PhaseWatch},
    timers,
};
use litequic_exchange::{
    Client, Covers, Fields, Identity, LastAuthority, LastForwarded, Protocol, Records, name, plain,
    terms::{CurrentTerms, Terms},
};
use litequic_resources::{
    connections::{ConnectionPool, MemoryAccount, MemoryAccounts},
    receive::ReceiveAccount,
    send::Budget,
    transport::Transport,
};
use litequic_telemetry::clients::{DenyList, Description, OpenConnection, TransportReport};
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::watch;

/// The validated address of a connection's client; `None` if the connection is gone.
pub type ClientAddress = fn(&s2n_quic::connection::Handle) -> Option<SocketAddr>;

/// What QUIC knows of a connection's path; `None` if the connection is gone.
pub type TransportOf = fn(&s2n_quic::connection::Handle) -> Option<TransportReport>;

/// The state that the connections of one worker share.
pub struct Http3Worker {
    /// The limits of what begins now.
    pub terms: CurrentTerms,
    /// The counters of HTTP/3.
    pub metrics: Arc<Metrics>,
    /// Whether a connection may carry requests for a host.
    pub covers: Rc<Covers>,
    /// Reports a client's current address.
    pub client_address: ClientAddress,
    /// Reports of the path of a connection.
    pub transport: TransportOf,
    /// The budget of responses.
    pub send: Rc<Budget>,
    /// Connections, of which some are closed when memory is short.
    pub holders: Rc<MemoryAccounts>,
    /// The phase of the process: connections drain with it.
    pub watch: PhaseWatch,
    /// False while HTTP/3 is off: connections drain.
    pub on: watch::Receiver<bool>,
    /// Records of requests.
    pub records: Records,
    /// Networks whose clients get no connection, and lose one that is in its handshake.
    pub denied: Arc<DenyList>,
}

impl Http3Worker {
    /// Waits until HTTP/3 is switched off. Cancel safe.
    pub(super) async fn switched_off(&self) {
        if self.on.clone().wait_for(|on| !on).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Registers a connection of the client at `address`, which it has validated. `None`, counted, if there is no room
    /// for it, or the client is denied.
    pub(super) fn admit(&self, address: SocketAddr) -> Option<MemoryAccount> {
        if self.denied.denies(address.ip(), Instant::now) {
            self.metrics.denied.increment();
            return None;
        }
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
        self.terms.now()
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
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, once the client has sent it.
    pub(super) max_field_section_size: Cell<Option<u64>>,
    pub(super) memory: ConnectionMemory,
    pub(super) priorities: Priorities,
    pub(super) pauses: Rc<Pauses>,
    /// s2n-quic's bound on the unacknowledged bytes of each stream, once it is known.
    pub(super) stream_buffer: Cell<Option<u64>>,
    pub(super) handle: s2n_quic::connection::Handle,
    /// Bodies of requests that were answered.
    pub(super) lingering: Rc<LingeringStreams>,
    /// Where it stands.
    pub(super) life: Rc<Http3Life>,
    alt_svc: AltSvcRenewal,
}

/// The memory that a connection holds.
pub(super) struct ConnectionMemory {
    /// Registers it.
    pub(super) holder: MemoryAccount,
    /// What its client has sent and was not read.
    pub(super) received: ReceiveAccount,
    /// The budget of its responses.
    pub(super) sent: Rc<Budget>,
}

impl ConnectionMemory {
    /// The memory of a connection that `holder` registers, and whose client's bytes `received` counts.
    pub(super) fn new(holder: MemoryAccount, received: ReceiveAccount, terms: &Terms) -> Self {
        let sent = Budget::for_connection(u64::from(terms.limits.connection_send_buffer));
        let (sends, receives) = (Rc::clone(&sent), received.clone());
        holder.holds(move || sends.used().saturating_add(receives.held()));
        Self { holder, received, sent }
    }
}

impl<H> Connection<H> {
    pub(super) fn new(
        handle: s2n_quic::connection::Handle,
        client: Client,
        handler: Rc<H>,
        front: Rc<Http3Worker>,
        transport: Rc<dyn Transport>,
        memory: ConnectionMemory,
    ) -> Self {
        front.metrics.connections.increment();
        front.metrics.connections_open.increment();
        let terms = front.terms();
        Self {
            alt_svc: AltSvcRenewal::new(&terms.config.listen, client.local.port(), timers::now()),
            client: RefCell::new(Rc::new(Client { connection: memory.holder.number(), ..client })),
            authority: LastAuthority::default(),
            uni: RefCell::new(UniStreams::new(Endpoint::Client)),
            max_field_section_size: Cell::new(None),
            memory,
            priorities: Priorities::new(transport, handle.id(), terms.limits.max_streams, Arc::clone(&front.metrics)),
            lingering: LingeringStreams::new(&terms.limits, &terms.timeouts, Arc::clone(&front.metrics)),
            stream_buffer: Cell::new(None),
            pauses: Pauses::new(handle.clone(), terms.timeouts.idle),
            life: Rc::new(Http3Life::new(&terms.limits, Arc::clone(&front.metrics))),
            terms,
            handle,
            handler,
            front,
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
        if !self.life.on(Http3Event::Close(Http3End::Fault(code))) {
            return;
        }
        self.front.metrics.connection_errors.increment();
        if code == Code::ExcessiveLoad {
            self.front.metrics.limit_excessive_load.increment();
        }
        tracing::debug!(client = %self.client().address, error = %code, "closing an HTTP/3 connection");
        self.handle.close(application_error(code));
    }

    /// Has a response keep the client's knowledge of HTTP/3 fresh where that is due and the client accepts as much.
    pub(super) fn advertise(&self, status: StatusCode, fields: &mut Fields) {
        if !self.alt_svc.is_due(timers::now) || self.front.watch.phase() >= Phase::Draining {
            return;
        }
        let terms = self.front.terms();
        let listen = &terms.config.listen;
        if !listen.http3 {
            return;
        }
        let value = self.alt_svc.renewed(listen.alt_svc_max_age, timers::now());
        fields.set(name::ALT_SVC, value.as_bytes());
        if !self.fits(Some(status), fields) {
            fields.remove(name::ALT_SVC);
        }
    }

    /// Whether the client accepts a field section as large as that of `status` and `fields` (RFC 9114 §4.2.2).
    pub(super) fn takes(&self, status: Option<StatusCode>, fields: &Fields) -> bool {
        let fits = self.fits(status, fields);
        if !fits {
            self.front.metrics.limit_client_header.increment();
        }
        fits
    }

    fn fits(&self, status: Option<StatusCode>, fields: &Fields) -> bool {
        let Some(limit) = self.max_field_section_size.get() else { return true };
        let status = status.map_or(0, |_| field_size(":status".len(), 3));
        // Most are far below.
        let most = field_size(0, fields.max_bytes()).saturating_add(32 * fields.len() as u64);
        if status.saturating_add(most) <= limit {
            return true;
        }
        let size = fields.iter().map(|line| field_size(line.name().len(), line.value.len()));
        size.fold(status, u64::saturating_add) <= limit
    }

    /// Counts a request that its client cancelled; closes the connection once there were too many in too short a time
    /// (CVE-2023-44487: work begun and thrown away).
    pub(super) fn count_reset(&self) {
        self.front.metrics.shared.streams_reset_by_client.increment();
        // The end of a connection ends its requests: that is no flood, and only then a PING fails.
        if !self.life.request_cancelled() && self.handle.clone().ping().is_ok() {
            self.front.metrics.shared.limit_resets.increment();
            self.fail(Code::ExcessiveLoad);
        }
    }
}

/// What a field counts in a field section's size (RFC 9114 §4.2.2).
fn field_size(name: usize, value: usize) -> u64 {
    name as u64 + value as u64 + 32
}

impl<H> OpenConnection for Connection<H> {
    fn address(&self) -> SocketAddr {
        self.client().address
    }

    fn protocol(&self) -> &'static str {
        Protocol::Http3.name()
    }

    fn transport(&self) -> TransportReport {
        (self.front.transport)(&self.handle).unwrap_or_default()
    }

    fn describe(&self) -> Description {
        let client = self.client();
        let Client { local, server_name, identity, .. } = &*client;
        Description {
            local: *local,
            server_name: server_name.clone(),
            tls: identity.tls.name(),
            group: identity.group_name(),
            resumed: Some(identity.resumed),
            certificate: identity.certificate.as_ref().map(|certificate| certificate.leaf.clone()),
            requests: self.life.accepted(),
        }
    }

    fn quic(&self) -> Option<&s2n_quic::connection::Handle> {
        Some(&self.handle)
    }
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
