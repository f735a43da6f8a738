//! Provides I/O over one socket to s2n-quic.

use super::{hooks::EndpointHooks, receive::Rx, timer::EndpointClock, transmit::Tx};
use litequic_config::LiteQuic;
use litequic_net::datagram::{NetworkPath, Receive, Transmit};
use s2n_quic::provider::io::{self as library, Provider};
use s2n_quic_core::{
    endpoint::Endpoint,
    event::EndpointPublisher,
    inet::SocketAddress,
    io::event_loop::{EventLoop, Stats},
    path::mtu,
    task::cooldown::Cooldown,
};
use std::{io, net::SocketAddr};

/// Largest IP packet in bytes; `litequic.max_mtu` may be lower.
pub(crate) const MAX_MTU: u16 = LiteQuic::MAX_MTU;
/// Bytes of the headers of IPv4, without options, and UDP.
const UDP_HEADERS_LEN: u16 = 20 + 8;

/// I/O on which an endpoint can be started: [`SocketIo`], or s2n-quic's own.
pub trait EndpointIo {
    /// Provider that s2n-quic starts.
    type Provider: Provider;

    /// Binds the I/O to the endpoint of `hooks`.
    fn bind_endpoint(self, hooks: EndpointHooks) -> Self::Provider;
}

/// s2n-quic's own I/O, which ignores the hooks: it has no batches.
impl EndpointIo for library::tokio::Provider {
    type Provider = Self;

    fn bind_endpoint(self, _: EndpointHooks) -> Self {
        self
    }
}

/// One socket, for one endpoint.
#[derive(Debug)]
pub struct SocketIo<R, T> {
    /// The socket's receiving half.
    pub receive: R,
    /// The socket's sending half.
    pub transmit: T,
    /// Address to which the socket is bound.
    pub local: SocketAddr,
    /// Packets larger than 1228 bytes may be tried, as no host fragments them.
    pub may_probe_mtu: bool,
}

impl<R: Receive, T: Transmit> EndpointIo for SocketIo<R, T> {
    type Provider = BoundIo<R, T>;

    fn bind_endpoint(self, hooks: EndpointHooks) -> BoundIo<R, T> {
        BoundIo { socket: self, hooks }
    }
}

/// A [`SocketIo`] that is bound to an endpoint.
#[derive(Debug)]
pub struct BoundIo<R, T> {
    socket: SocketIo<R, T>,
    hooks: EndpointHooks,
}

impl<R: Receive, T: Transmit> Provider for BoundIo<R, T> {
    type PathHandle = NetworkPath;
    type Error = io::Error;

    /// Starts the endpoint's task on the current runtime, the worker's, where it runs until the endpoint ends.
    fn start<E: Endpoint<PathHandle = NetworkPath>>(self, mut endpoint: E) -> io::Result<SocketAddress> {
        let Self { socket: SocketIo { receive, transmit, local, may_probe_mtu }, hooks } = self;
        let local = SocketAddress::from(local);
        let mtu = if may_probe_mtu {
            mtu::Config::builder()
                .with_max_mtu(MAX_MTU)
                .and_then(mtu::Builder::build)
                .map_err(|error| io::Error::other(error.to_string()))?
        } else {
            mtu::Config::MIN
        };
        // Without this the endpoint never tries more than its default.
        endpoint.set_mtu_config(mtu);
        let flows = hooks.proxied.as_ref().and_then(|proxied| proxied.flows.clone());
        let event_loop = EventLoop {
            endpoint,
            clock: EndpointClock::new(hooks.moderation.clone()),
            rx: Rx::new(receive, hooks),
            tx: Tx::new(transmit, usize::from(MAX_MTU - UDP_HEADERS_LEN), flows),
            cooldown: Cooldown::default(),
            stats: NoStats,
        };
        tokio::spawn(event_loop.start(local));
        Ok(local)
    }
}

/// Ignores s2n-quic's statistics of I/O: the sockets count themselves.
struct NoStats;

impl Stats for NoStats {
    fn publish<P: EndpointPublisher>(&mut self, _: &mut P) {}
}
