//! The state that the TCP connections of one worker share.

use super::alt_svc::AltSvc;
use crate::metrics::Metrics;
use http::HeaderValue;
use litequic_base::lifecycle::PhaseWatch;
use litequic_exchange::{
    CertificateRequest, Covers, Records, plain,
    terms::{CurrentTerms, Terms},
};
use litequic_resources::{
    connections::{ConnectionPool, EvictionReason, MemoryAccount, MemoryAccounts},
    descriptors::{Descriptor, Descriptors, Side},
    fairness::Source,
    memory::Pressure,
    receive::ReceiveBudget,
    send::Budget,
};
use litequic_telemetry::clients::{DenyList, TransportReport};
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
pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// The certificate request of a handshake by name (SNI), address, and whether the client is served without TLS 1.3; and
/// its configuration.
type Choose = dyn Fn(Option<&str>, IpAddr, bool) -> (CertificateRequest, Arc<ServerConfig>);
/// The configuration of a CA's validation handshake by name (RFC 8737); `None` if there is no such challenge.
type Validation = dyn Fn(Option<&str>) -> Later<Option<Arc<ServerConfig>>>;

/// What the kernel knows of the path of a connected TCP socket.
pub type TransportOf = fn(RawFd) -> TransportReport;

/// How handshakes are configured.
#[expect(missing_docs, reason = "the types say it")]
pub struct Tls {
    pub choose: Box<Choose>,
    pub validation: Box<Validation>,
}

/// The state that the TCP connections of one worker share.
pub struct TcpWorker<H> {
    /// The limits of what begins now.
    pub terms: CurrentTerms,
    /// The counters of the TCP listeners.
    pub metrics: Arc<Metrics>,
    /// Serves the requests.
    pub handler: Rc<H>,
    /// Whether a connection may carry requests for a host.
    pub covers: Rc<Covers>,
    /// Reports of the path of a connection.
    pub transport: TransportOf,
    /// The budget of responses.
    pub send: Rc<Budget>,
    /// The budget of uploads.
    pub receive: ReceiveBudget,
    /// How short memory is.
    pub pressure: Pressure,
    /// Connections, of which some are closed when memory is short.
    pub holders: Rc<MemoryAccounts>,
    /// The pool of the connections that are accepted.
    pub pool: ConnectionPool,
    /// File descriptors of the process for connections.
    pub descriptors: Arc<Descriptors>,
    /// Workers that share the descriptors.
    pub workers: usize,
    /// The phase of the process: connections drain with it.
    pub watch: PhaseWatch,
    /// Records of requests.
    pub records: Records,
    /// Networks whose clients get no connection.
    pub denied: Arc<DenyList>,
}

impl<H> TcpWorker<H> {
    /// `max_connections`, or a worker's part of the descriptors that clients can have, if that is less: the size of the
    /// pool that sources share. A seventeenth of that part is for connections that are leaving
    /// (`resources::connections::MemoryAccounts`).
    fn reachable(&self, max_connections: u32) -> u32 {
        let clients = self.descriptors.division().most(Side::Clients);
        let part = u32::try_from(self.workers.max(1)).map_or(1, |workers| clients / workers);
        (part - part / 17).max(1).min(max_connections)
    }

    /// The configuration in force, for a connection that begins now.
    pub(super) fn terms(&self) -> Rc<Terms> {
        self.terms.now()
    }

    /// The value of `alt_svc` by the configuration in force.
    pub(super) fn alt_svc(&self, alt_svc: &AltSvc) -> HeaderValue {
        alt_svc.value(&self.terms().config.listen)
    }

    /// Whether a connection from `peer` begins with a PROXY protocol header.
    pub(super) fn has_header(&self, peer: IpAddr) -> bool {
        self.terms().config.listen.proxy_protocol_from.iter().any(|network| network.contains(peer))
    }

    /// The network that a connection from `peer` counts for; `None` if it is a source of its own. A balancer that sends
    /// PROXY protocol headers stands for many.
    fn network(&self, peer: IpAddr) -> Option<(IpAddr, u8)> {
        if self.has_header(peer) { None } else { self.client_network(peer) }
    }

    /// The network that a connection counts for whose client, by a PROXY protocol header or without one, is at
    /// `address`.
    pub(super) fn client_network(&self, address: IpAddr) -> Option<(IpAddr, u8)> {
        self.terms().config.source(address).map(|network| (network.address, network.prefix))
    }

    /// Counts a connection that litequic ended for `reason` before it was ready for requests.
    pub(super) fn count_ended_handshake(&self, reason: EvictionReason) {
        let Metrics { tcp_handshakes_operator, tcp_handshakes_evicted, .. } = &*self.metrics;
        if reason.is_operator() { tcp_handshakes_operator } else { tcp_handshakes_evicted }.increment();
    }

    /// Whether the client at `address` is denied, which is counted.
    pub(super) fn denies(&self, address: IpAddr) -> bool {
        let is_denied = self.denied.denies(address, Instant::now);
        if is_denied {
            self.metrics.tcp_denied.increment();
        }
        is_denied
    }

    /// Registers one more connection, from `peer`. `None`, counted, if there is no room for it, or `peer` is denied.
    pub(super) fn admit(&self, peer: SocketAddr) -> Option<Admitted> {
        if self.denies(peer.ip()) {
            return None;
        }
        let network = self.network(peer.ip());
        let Self { pressure, holders, pool, .. } = self;
        if pressure.step().refuses(|| holders.has_two(*pool, network)) {
            self.metrics.limit_memory_connections.increment();
            return None;
        }
        let most = self.reachable(self.terms().limits.max_connections);
        let Some(holder) = holders.admit(*pool, network, most) else {
            self.metrics.limit_connections.increment();
            return None;
        };
        let Some(descriptor) = self.descriptors.take(Side::Clients) else {
            // The connection is closed at once rather than left in the kernel's queue: its client may try another
            // address or HTTP/3, a load balancer sees the failure, and connections of other clients do not wait behind
            // those of one that sends nothing.
            self.metrics.limit_client_descriptors.increment();
            if !holders.is_leaving(*pool) {
                holders.make_room(*pool, &Source::new(network, holder.number()));
            }
            return None;
        };
        self.metrics.tcp_connections_open.increment();
        holder.serves(plain(peer));
        Some(Admitted { holder, metrics: Arc::clone(&self.metrics), _descriptor: descriptor })
    }
}

/// A connection that counts as open until this is dropped.
pub(super) struct Admitted {
    pub(super) holder: MemoryAccount,
    metrics: Arc<Metrics>,
    _descriptor: Descriptor,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.metrics.tcp_connections_open.decrement();
    }
}
