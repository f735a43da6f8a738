//! The provider that s2n-quic starts, over one socket.

use super::{hooks::EndpointHooks, receive::Rx, timer::EndpointClock, transmit::Tx};
use litequic_net::datagram::{Receive, Transmit};
use s2n_quic::provider::io::{self as library, Provider};
use s2n_quic_core::{
    endpoint::Endpoint,
    event::EndpointPublisher,
    inet::SocketAddress,
    io::event_loop::{EventLoop, Stats},
    path::{Tuple, mtu},
    task::cooldown::Cooldown,
};
use std::{io, net::SocketAddr};

/// Bytes of an IP packet at most: Ethernet's. With loopback's 65,536 measurements would be misleading.
pub(crate) const MAX_MTU: u16 = 1500;
/// Bytes of the headers of IPv4, without options, and UDP.
const UDP_HEADERS_LEN: u16 = 20 + 8;

/// I/O that an endpoint can be started on: [`SocketIo`], or s2n-quic's own.
pub trait EndpointIo {
    /// The provider that s2n-quic starts.
    type Provider: Provider;

    /// Binds the I/O to its endpoint: it publishes batches, and uses the endpoint's order, if there is one.
    fn bind_endpoint(self, hooks: EndpointHooks) -> Self::Provider;
}

/// s2n-quic's own I/O, which publishes no batches.
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
    /// The address that the socket is bound to.
    pub local: SocketAddr,
    /// Whether packets larger than 1228 bytes may be tried: they are not fragmented on their path.
    pub may_probe_mtu: bool,
}

impl<R: Receive, T: Transmit> EndpointIo for SocketIo<R, T> {
    type Provider = BoundIo<R, T>;

    fn bind_endpoint(self, hooks: EndpointHooks) -> BoundIo<R, T> {
        BoundIo { socket: self, hooks }
    }
}

/// A [`SocketIo`] bound to its endpoint.
#[derive(Debug)]
pub struct BoundIo<R, T> {
    socket: SocketIo<R, T>,
    hooks: EndpointHooks,
}

impl<R: Receive, T: Transmit> Provider for BoundIo<R, T> {
    type PathHandle = Tuple;
    type Error = io::Error;

    /// To be called inside the worker's runtime, on which the endpoint's task runs until the endpoint ends.
    fn start<E: Endpoint<PathHandle = Tuple>>(self, mut endpoint: E) -> io::Result<SocketAddress> {
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
        let event_loop = EventLoop {
            endpoint,
            clock: EndpointClock::new(hooks.moderation.clone()),
            rx: Rx::new(receive, hooks),
            tx: Tx::new(transmit, usize::from(MAX_MTU - UDP_HEADERS_LEN)),
            cooldown: Cooldown::default(),
            stats: NoStats,
        };
        tokio::spawn(event_loop.start(local));
        Ok(local)
    }
}

/// s2n-quic's statistics of I/O, unused: the sockets count for themselves.
struct NoStats;

impl Stats for NoStats {
    fn publish<P: EndpointPublisher>(&mut self, _: &mut P) {}
}
