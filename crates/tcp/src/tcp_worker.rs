//! Holds the state that the TCP connections of one worker share.

use super::listener_alt_svc::ListenerAltSvc;
use crate::tcp_metrics::TcpMetrics;
use http::HeaderValue;
use litequic_base::lifecycle::PhaseWatch;
use litequic_exchange::{
    CertificateRequest, HostCoverage, RequestRecorder,
    terms::{CurrentTerms, Terms},
    to_canonical_address,
};
use litequic_resources::{
    connections::{ConnectionEntry, ConnectionPool, ConnectionRegistry, EvictionReason},
    descriptors::{Descriptor, Descriptors, ProxySide},
    fairness::ClientSource,
    memory::MemoryPressure,
    receive::ReceiveBudget,
    send::SendBudget,
};
use litequic_telemetry::{
    GaugeGuard,
    clients::{DenyList, TransportReport},
};
use rustls::ServerConfig;
use std::{
    net::{IpAddr, SocketAddr},
    os::fd::RawFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

/// A value that another thread may have to find first.
pub type DeferredValue<T> = Pin<Box<dyn Future<Output = T>>>;

/// Chooses the TLS configuration and the certificate request of a handshake by server name (SNI), address, and whether
/// the client is served without TLS 1.3.
type ChooseTlsConfig = dyn Fn(Option<&str>, IpAddr, bool) -> (CertificateRequest, Arc<ServerConfig>);
/// Finds the TLS configuration of a CA's validation handshake by name (RFC 8737); `None` if there is no such challenge.
type TlsValidation = dyn Fn(Option<&str>) -> DeferredValue<Option<Arc<ServerConfig>>>;

/// Returns the kernel's report about the path of a connected TCP socket.
pub type TcpTransportFn = fn(RawFd) -> TransportReport;

/// Configuration of TLS handshakes.
#[expect(missing_docs, reason = "the types say it")]
pub struct HandshakeConfig {
    pub choose: Box<ChooseTlsConfig>,
    pub validation: Box<TlsValidation>,
}

/// The state that the TCP connections of one worker share.
pub struct TcpWorker<H> {
    /// Limits for new connections and requests.
    pub terms: CurrentTerms,
    /// The counters of the TCP listeners.
    pub metrics: Arc<TcpMetrics>,
    /// Serves the requests.
    pub handler: Rc<H>,
    /// Decides whether a connection may carry requests for a host.
    pub covers: Rc<HostCoverage>,
    /// Returns the report about a connection's path.
    pub transport: TcpTransportFn,
    /// Budget for the bytes of responses in memory.
    pub send: Rc<SendBudget>,
    /// Budget for the bytes of uploads in memory.
    pub receive: ReceiveBudget,
    /// Level of memory shortage.
    pub pressure: MemoryPressure,
    /// Registered connections, some of which are closed when memory is short.
    pub registry: Rc<ConnectionRegistry>,
    /// Pool to which accepted connections belong.
    pub pool: ConnectionPool,
    /// File descriptors of the process.
    pub descriptors: Arc<Descriptors>,
    /// Number of workers that share the descriptors.
    pub workers: usize,
    /// Phase of the process. Connections drain when the process does.
    pub watch: PhaseWatch,
    /// Recorder of requests.
    pub records: RequestRecorder,
    /// Denied networks, whose clients get no connection.
    pub denied: Arc<DenyList>,
}

impl<H> TcpWorker<H> {
    /// Returns the size of the pool that sources share: `max_connections`, or a worker's part of the clients'
    /// descriptors if that is less. A seventeenth of that part is for connections that are leaving
    /// (`resources::connections::ConnectionRegistry`).
    fn shared_pool_size(&self, max_connections: u32) -> u32 {
        let clients = self.descriptors.division().max_for_side(ProxySide::Clients);
        let part = u32::try_from(self.workers.max(1)).map_or(1, |workers| clients / workers);
        (part - part / 17).max(1).min(max_connections)
    }

    /// Returns the terms in force, for a new connection.
    pub(super) fn current_terms(&self) -> Rc<Terms> {
        self.terms.load_terms()
    }

    /// Returns the value of `alt_svc` by the configuration in force, for a client of the port `host`.
    pub(super) fn alt_svc_header(&self, alt_svc: &ListenerAltSvc, host: Option<u16>) -> HeaderValue {
        alt_svc.alt_svc_value(&self.current_terms().config.listen, host)
    }

    /// Returns the network that a client at `address` counts for.
    pub(super) fn client_network(&self, address: IpAddr) -> Option<(IpAddr, u8)> {
        self.current_terms().config.source_of_client(address).map(|network| (network.address, network.prefix))
    }

    /// Counts a connection that litequic ended for `reason` before it was ready for requests.
    pub(super) fn count_ended_handshake(&self, reason: EvictionReason) {
        let TcpMetrics { tcp_handshakes_operator, tcp_handshakes_evicted, .. } = &*self.metrics;
        if reason.is_operator() { tcp_handshakes_operator } else { tcp_handshakes_evicted }.increment();
    }

    /// Whether the client at `address` is denied. If so, this is counted.
    pub(super) fn is_denied_counted(&self, address: IpAddr) -> bool {
        let is_denied = self.denied.is_client_denied(address, Instant::now);
        if is_denied {
            self.metrics.tcp_denied.increment();
        }
        is_denied
    }

    /// Registers a new connection from `peer`. `None`, and counted, if there is no room for the connection, or `peer`
    /// is denied.
    pub(super) fn admit_tcp_peer(&self, peer: SocketAddr) -> Option<AdmittedConnection> {
        if self.is_denied_counted(peer.ip()) {
            return None;
        }
        let is_proxy = self.current_terms().config.listen.is_proxy_sender(peer.ip());
        let network = if is_proxy { None } else { self.client_network(peer.ip()) };
        let Self { pressure, registry: holders, pool, .. } = self;
        if pressure.pressure_step().refuses_connection(|| holders.has_two_connections(*pool, network)) {
            self.metrics.limit_memory_connections.increment();
            return None;
        }
        let most = self.shared_pool_size(self.current_terms().limits.max_connections);
        let Some(holder) = holders.admit_connection(*pool, network, most) else {
            self.metrics.limit_connections.increment();
            return None;
        };
        let Some(descriptor) = self.descriptors.take_descriptor(ProxySide::Clients) else {
            // The connection is closed at once rather than left in the kernel's queue. Its client may try another
            // address or HTTP/3, and a load balancer sees the failure. Connections of other clients do not wait behind
            // one whose client sends nothing.
            self.metrics.limit_client_descriptors.increment();
            if !holders.has_leaving_connection(*pool) {
                holders.evict_for_newcomer(*pool, &ClientSource::new(network, holder.id));
            }
            return None;
        };
        let open = GaugeGuard::new(&self.metrics, |metrics| &metrics.tcp_connections_open);
        holder.set_client_address(to_canonical_address(peer));
        Some(AdmittedConnection { _open: open, entry: holder, _descriptor: descriptor })
    }
}

/// A registered connection, which counts as open until this guard is dropped.
pub(super) struct AdmittedConnection {
    _open: GaugeGuard<TcpMetrics>,
    pub(super) entry: ConnectionEntry,
    _descriptor: Descriptor,
}
