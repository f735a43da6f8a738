//! The state that the TCP connections of one worker share.

use crate::{
    budget::Budget,
    config::{Config, Limits, Live, Network, Timeouts},
    descriptors::{Descriptor, Descriptors, Side},
    exchange::{CertificateRequest, Client, Records},
    lifecycle::Watch,
    memory::{Holders, Pressure},
    receive_budget::ReceiveBudget,
    sources::{self, Pool},
    tcp::Metrics,
};
use rustls::ServerConfig;
use std::{cell::Cell, net::IpAddr, rc::Rc, sync::Arc};

/// Whether a client's connection may carry requests for a host: 421 otherwise (RFC 9110 §15.5.20).
pub type Covers = dyn Fn(&Client, &str) -> bool;

/// The certificate request of a handshake by name (SNI) and address, and its configuration.
pub type ChooseTls = dyn Fn(Option<&str>, IpAddr) -> (CertificateRequest, Arc<ServerConfig>);

/// The budgets of a worker.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// Of responses.
    pub send: Rc<Budget>,
    /// Of requests.
    pub receive: ReceiveBudget,
    /// How short memory is,
    pub pressure: Pressure,
    /// and the connections that are closed for it.
    pub holders: Rc<Holders>,
    /// The descriptors of the process for connections,
    pub descriptors: Arc<Descriptors>,
    /// and how many workers share them.
    pub workers: usize,
}

/// The state that the TCP connections of one worker share.
pub struct Front<H> {
    config: Live,
    pub(super) metrics: Arc<Metrics>,
    pub(super) handler: Rc<H>,
    pub(super) covers: Box<Covers>,
    pub(super) watch: Watch,
    pub(super) records: Records,
    pub(super) budgets: Budgets,
    connections: Cell<u32>,
    handshakes: Cell<u32>,
    /// Their sources.
    sources: Pools,
}

struct Pools {
    connections: Pool<Network>,
    handshakes: Pool<Network>,
}

impl Budgets {
    /// `max_connections`, or a worker's part of the descriptors that clients can have, if that is less: the size of the
    /// pool in which one source has its share.
    fn reachable(&self, max_connections: u32) -> u32 {
        let clients = self.descriptors.division().most(Side::Clients);
        u32::try_from(self.workers.max(1)).map_or(1, |workers| clients / workers).min(max_connections)
    }
}

impl<H> Front<H> {
    /// A worker's front end over TCP, whose requests `handler` serves, whose memory comes out of `budgets`, and whose
    /// requests are recorded in `records`.
    pub fn new(
        config: Live,
        metrics: Arc<Metrics>,
        handler: Rc<H>,
        covers: Box<Covers>,
        watch: Watch,
        records: Records,
        budgets: Budgets,
    ) -> Rc<Self> {
        let (connections, handshakes) = (Cell::new(0), Cell::new(0));
        let sources = Pools { connections: Pool::new("TCP connections"), handshakes: Pool::new("TLS handshakes") };
        Rc::new(Self { config, metrics, handler, covers, watch, records, budgets, connections, handshakes, sources })
    }

    /// The configuration in force, for a connection that begins now.
    pub(super) fn terms(&self) -> (Limits, Timeouts) {
        let config: &Config = &self.config.load();
        (config.limits, config.timeouts)
    }

    /// Whether a connection from `peer` begins with a PROXY protocol header.
    pub(super) fn has_header(&self, peer: IpAddr) -> bool {
        self.config.load().listen.proxy_protocol_from.iter().any(|network| network.contains(peer))
    }

    /// The source of `peer`: a balancer that sends PROXY protocol headers stands for many.
    fn source(&self, peer: IpAddr) -> Option<Network> {
        let config = self.config.load();
        config.source(peer).filter(|_| !config.listen.proxy_protocol_from.iter().any(|network| network.contains(peer)))
    }

    /// Whether clients may switch protocols.
    pub(super) fn has_tunnels(&self) -> bool {
        self.config.load().has_tunnels()
    }

    /// A slot for one more connection, from `client`; `None`, counted, if there is none.
    pub(super) fn connection_slot(self: &Rc<Self>, client: IpAddr) -> Option<ConnectionSlot<H>> {
        let (limits, _) = self.terms();
        let open = self.connections.get();
        if open >= limits.max_connections {
            self.metrics.limit_connections.increment();
            return None;
        }
        let source = self.source(client);
        let step = self.budgets.pressure.step();
        if step.refuses(|| self.sources.connections.has(source)) {
            self.metrics.limit_memory_connections.increment();
            return None;
        }
        let pool = self.budgets.reachable(limits.max_connections);
        if !self.sources.connections.admits(source, open.into(), pool.into()) {
            self.metrics.limit_source_connections.increment();
            return None;
        }
        let Some(descriptor) = self.budgets.descriptors.take(Side::Clients) else {
            self.descriptors_exhausted();
            return None;
        };
        self.connections.set(open.saturating_add(1));
        self.metrics.tcp_connections_open.increment();
        let source = self.sources.connections.take(source);
        Some(ConnectionSlot { front: Rc::clone(self), _source: source, _descriptor: descriptor })
    }

    /// Called for each connection that finds the clients' descriptors taken. The connection is closed at once rather
    /// than left in the kernel's queue: its client may try another address or HTTP/3, a load balancer sees the failure,
    /// and connections of other clients do not wait behind those of one that sends nothing.
    fn descriptors_exhausted(&self) {
        self.metrics.limit_client_descriptors.increment();
    }

    /// The same for a handshake.
    pub(super) fn handshake_slot(self: &Rc<Self>, client: IpAddr) -> Option<HandshakeSlot<H>> {
        let (limits, _) = self.terms();
        let open = self.handshakes.get();
        if open >= limits.max_handshakes {
            self.metrics.limit_handshakes.increment();
            return None;
        }
        let source = self.source(client);
        if !self.sources.handshakes.admits(source, open.into(), limits.max_handshakes.into()) {
            self.metrics.limit_source_handshakes.increment();
            return None;
        }
        self.handshakes.set(open.saturating_add(1));
        Some(HandshakeSlot { front: Rc::clone(self), _source: self.sources.handshakes.take(source) })
    }
}

/// A connection's slot: given back when dropped.
pub(super) struct ConnectionSlot<H> {
    front: Rc<Front<H>>,
    _source: sources::SourceSlot<Network>,
    _descriptor: Descriptor,
}

impl<H> Drop for ConnectionSlot<H> {
    fn drop(&mut self) {
        let front = &self.front;
        front.connections.set(front.connections.get().saturating_sub(1));
        front.metrics.tcp_connections_open.decrement();
    }
}

/// A handshake's slot: given back when dropped.
pub(super) struct HandshakeSlot<H> {
    front: Rc<Front<H>>,
    _source: sources::SourceSlot<Network>,
}

impl<H> Drop for HandshakeSlot<H> {
    fn drop(&mut self) {
        self.front.handshakes.set(self.front.handshakes.get().saturating_sub(1));
    }
}
