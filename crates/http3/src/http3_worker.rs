//! Holds the state that the HTTP/3 connections of a worker share, and the state that the streams of a connection share.

use super::{
    alt_svc_renewal::AltSvcRenewal,
    error_code::{ErrorCode, to_application_error},
    frame::PeerRole,
    http3_lifecycle::Http3Lifecycle,
    http3_phase::{Http3End, Http3Event},
    http3_priorities::Http3Priorities,
    lingering_streams::LingeringStreams,
    paused_streams::PausedStreams,
    stream_type::UnidirectionalStreams,
};
use crate::http3_metrics::Http3Metrics;
use http::StatusCode;
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase},
    timers,
};
use litequic_exchange::{
    Client, Fields, HostCoverage, LastAuthority, LastForwarded, Protocol, RequestRecorder, TlsIdentity, name,
    terms::{CurrentTerms, Terms},
    to_canonical_address,
};
use litequic_resources::{
    connections::{ConnectionEntry, ConnectionPool, ConnectionRegistry},
    receive::ReceiveAccount,
    send::SendBudget,
    transport::Transport,
};
use litequic_telemetry::clients::{ConnectionDescription, DenyList, OpenConnection, TransportReport};
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::watch;

/// Returns the validated address of a connection's client; `None` if the connection is gone.
pub type ClientAddressFn = fn(&s2n_quic::connection::Handle) -> Option<SocketAddr>;

/// Returns QUIC's report about a connection's path; `None` if the connection is gone.
pub type QuicTransportFn = fn(&s2n_quic::connection::Handle) -> Option<TransportReport>;

/// The state that the HTTP/3 connections of one worker share.
pub struct Http3Worker {
    /// Limits for new connections and requests.
    pub terms: CurrentTerms,
    /// The counters of HTTP/3.
    pub metrics: Arc<Http3Metrics>,
    /// Decides whether a connection may carry requests for a host.
    pub covers: Rc<HostCoverage>,
    /// Returns a client's current address.
    pub client_address: ClientAddressFn,
    /// Returns the report about a connection's path.
    pub transport: QuicTransportFn,
    /// Budget for the bytes of responses in memory.
    pub send: Rc<SendBudget>,
    /// Registered connections, some of which are closed when memory is short.
    pub registry: Rc<ConnectionRegistry>,
    /// Phase of the process. Connections drain when the process does.
    pub watch: PhaseWatch,
    /// Whether HTTP/3 is on. Connections drain while it is off.
    pub is_enabled: watch::Receiver<bool>,
    /// Recorder of requests.
    pub records: RequestRecorder,
    /// Denied networks. Their clients get no connection, and lose one that is still in its handshake.
    pub denied: Arc<DenyList>,
}

impl Http3Worker {
    /// Waits until HTTP/3 is switched off. Cancel safe.
    pub(super) async fn wait_until_disabled(&self) {
        if self.is_enabled.clone().wait_for(|on| !on).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Registers a connection of the client at the validated `address`. `None`, and counted, if there is no room for
    /// the connection, or the client is denied.
    pub(super) fn admit_quic_client(&self, address: SocketAddr) -> Option<ConnectionEntry> {
        if self.denied.is_client_denied(address.ip(), Instant::now) {
            self.metrics.denied.increment();
            return None;
        }
        let terms = self.current_terms();
        let network = terms.config.source_of_client(address.ip()).map(|network| (network.address, network.prefix));
        let holder = self.registry.admit_connection(ConnectionPool::Quic, network, terms.limits.max_connections);
        match &holder {
            Some(holder) => {
                holder.set_client_address(to_canonical_address(address));
                holder.mark_ready();
            }
            None => self.metrics.limit_connections.increment(),
        }
        holder
    }

    /// Returns the terms in force, for a new connection or request.
    pub(super) fn current_terms(&self) -> Rc<Terms> {
        self.terms.load_terms()
    }
}

/// The shared state of one connection's streams.
pub(super) struct Http3Connection<H> {
    pub(super) worker: Rc<Http3Worker>,
    /// Limits in force when the connection began. SETTINGS and QUIC have advertised some of them.
    pub(super) terms: Rc<Terms>,
    pub(super) handler: Rc<H>,
    client: RefCell<Rc<Client>>,
    /// Authority of the connection's last request.
    pub(super) authority: LastAuthority,
    /// Unidirectional streams that the client has opened.
    pub(super) uni: RefCell<UnidirectionalStreams>,
    /// The client's SETTINGS_MAX_FIELD_SECTION_SIZE, once received.
    pub(super) max_field_section_size: Cell<Option<u64>>,
    pub(super) memory: ConnectionMemory,
    pub(super) priorities: Http3Priorities,
    pub(super) paused_streams: Rc<PausedStreams>,
    /// s2n-quic's bound on the unacknowledged bytes of each stream, once known.
    pub(super) stream_buffer: Cell<Option<u64>>,
    pub(super) handle: s2n_quic::connection::Handle,
    /// Streams of answered requests whose bodies are discarded.
    pub(super) lingering: Rc<LingeringStreams>,
    pub(super) lifecycle: Rc<Http3Lifecycle>,
    alt_svc: AltSvcRenewal,
}

/// The accounts of a connection's memory.
pub(super) struct ConnectionMemory {
    /// Entry in the registry of connections.
    pub(super) entry: ConnectionEntry,
    /// Bytes received from the client and not read.
    pub(super) received: ReceiveAccount,
    /// Budget for the bytes of responses.
    pub(super) sent: Rc<SendBudget>,
}

impl ConnectionMemory {
    pub(super) fn new(holder: ConnectionEntry, received: ReceiveAccount, terms: &Terms) -> Self {
        let sent = SendBudget::for_connection(u64::from(terms.limits.connection_send_buffer));
        let (sends, receives) = (Rc::clone(&sent), received.clone());
        holder.add_memory_counter(move || sends.leased_bytes().saturating_add(receives.unread_bytes()));
        Self { entry: holder, received, sent }
    }
}

impl<H> Http3Connection<H> {
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
        let terms = front.current_terms();
        Self {
            alt_svc: AltSvcRenewal::new(&terms.config.listen, client.local.port(), timers::turn_time()),
            client: RefCell::new(Rc::new(Client { connection: memory.entry.id, ..client })),
            authority: LastAuthority::default(),
            uni: RefCell::new(UnidirectionalStreams::new(PeerRole::Client)),
            max_field_section_size: Cell::new(None),
            memory,
            priorities: Http3Priorities::new(
                transport,
                handle.id(),
                terms.limits.max_streams,
                Arc::clone(&front.metrics),
            ),
            lingering: LingeringStreams::new(&terms.limits, &terms.timeouts, Arc::clone(&front.metrics)),
            stream_buffer: Cell::new(None),
            paused_streams: PausedStreams::new(handle.clone(), terms.timeouts.idle),
            lifecycle: Rc::new(Http3Lifecycle::new(&terms.limits, Arc::clone(&front.metrics))),
            terms,
            handle,
            handler,
            worker: front,
        }
    }

    /// Returns the client, with the current address.
    pub(super) fn current_client(&self) -> Rc<Client> {
        let client = Rc::clone(&self.client.borrow());
        let address = (self.worker.client_address)(&self.handle).map_or(client.address, to_canonical_address);
        if address == client.address {
            return client;
        }
        tracing::debug!(before = %client.address, now = %address, "the client's address changed");
        let client = Rc::new(Client { address, ..(*client).clone() });
        self.client.replace(Rc::clone(&client));
        client
    }

    /// Closes the connection because the client violated HTTP/3 (RFC 9114 §8). Only the first violation counts, as
    /// several streams may find one.
    pub(super) fn close_for_violation(&self, code: ErrorCode) {
        if !self.lifecycle.on_event(Http3Event::Close(Http3End::Fault)) {
            return;
        }
        self.worker.metrics.connection_errors.increment();
        if code == ErrorCode::ExcessiveLoad {
            self.worker.metrics.limit_excessive_load.increment();
        }
        tracing::debug!(client = %self.current_client().address, error = %code, "closing an HTTP/3 connection");
        self.handle.close(to_application_error(code));
    }

    /// Adds `Alt-Svc` to a response if it is due, and if the client accepts the larger header.
    pub(super) fn advertise_http3(&self, status: StatusCode, fields: &mut Fields) {
        if !self.alt_svc.is_renewal_due(timers::turn_time)
            || self.worker.watch.watched_phase() >= ProcessPhase::Draining
        {
            return;
        }
        let terms = self.worker.current_terms();
        let listen = &terms.config.listen;
        if !listen.http3 {
            return;
        }
        let value = self.alt_svc.renew_value(self.authority.last_port(), listen.alt_svc_max_age, timers::turn_time());
        fields.set_field(name::ALT_SVC, value.as_bytes());
        if !self.section_fits(Some(status), fields) {
            fields.remove_field(name::ALT_SVC);
        }
    }

    /// Whether the client accepts a field section of `status` and `fields` (RFC 9114 §4.2.2). If not, this is counted.
    pub(super) fn accepts_section(&self, status: Option<StatusCode>, fields: &Fields) -> bool {
        let fits = self.section_fits(status, fields);
        if !fits {
            self.worker.metrics.limit_client_header.increment();
        }
        fits
    }

    fn section_fits(&self, status: Option<StatusCode>, fields: &Fields) -> bool {
        let Some(limit) = self.max_field_section_size.get() else { return true };
        let status = status.map_or(0, |_| field_section_size(":status".len(), 3));
        // Most sections are far below the limit, so that an upper bound suffices.
        let most = field_section_size(0, fields.max_text_bytes()).saturating_add(32 * fields.len() as u64);
        if status.saturating_add(most) <= limit {
            return true;
        }
        let size = fields.iter().map(|line| field_section_size(line.name_str().len(), line.value.len()));
        size.fold(status, u64::saturating_add) <= limit
    }

    /// Counts a request that its client cancelled. Closes the connection after too many in too short a time
    /// (CVE-2023-44487: work begun and thrown away).
    pub(super) fn count_stream_reset(&self) {
        self.worker.metrics.shared.streams_reset_by_client.increment();
        // The end of a connection ends its requests, which is no flood; only then a PING fails.
        if !self.lifecycle.on_request_cancelled() && self.handle.clone().ping().is_ok() {
            self.worker.metrics.shared.limit_resets.increment();
            self.close_for_violation(ErrorCode::ExcessiveLoad);
        }
    }
}

/// Returns the size of a field in a field section (RFC 9114 §4.2.2).
fn field_section_size(name: usize, value: usize) -> u64 {
    name as u64 + value as u64 + 32
}

impl<H> OpenConnection for Http3Connection<H> {
    fn remote_address(&self) -> SocketAddr {
        self.current_client().address
    }

    fn http_version(&self) -> &'static str {
        Protocol::Http3.protocol_name()
    }

    fn path_report(&self) -> TransportReport {
        (self.worker.transport)(&self.handle).unwrap_or_default()
    }

    fn describe_connection(&self) -> ConnectionDescription {
        ConnectionDescription::of_client(&self.current_client(), self.lifecycle.accepted_requests())
    }

    fn quic_handle(&self) -> Option<&s2n_quic::connection::Handle> {
        Some(&self.handle)
    }
}

impl<H> Drop for Http3Connection<H> {
    fn drop(&mut self) {
        self.worker.metrics.connections_open.decrement();
    }
}

/// Returns the client; `None` if the connection is gone already. To be called once, as it takes the TLS context from
/// the connection.
pub(super) fn take_client(connection: &mut s2n_quic::Connection, front: &Http3Worker) -> Option<Client> {
    let identity = connection.take_tls_context().and_then(|context| context.downcast::<TlsIdentity>().ok());
    Some(Client {
        address: to_canonical_address((front.client_address)(&connection.handle())?),
        local: to_canonical_address(connection.local_addr().ok()?),
        protocol: Protocol::Http3,
        server_name: connection.server_name().ok()?.map(|name| Arc::from(name.to_ascii_lowercase())),
        forwarded: LastForwarded::default(),
        identity: identity.map(|identity| *identity).unwrap_or_default(),
        connection: 0,
    })
}
