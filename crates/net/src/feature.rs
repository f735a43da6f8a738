//! Enables the features of a UDP socket that this kernel supports.

use super::sys::IntOption;
use crate::{backend::SocketOptions, metrics::SocketMetrics};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

/// Features of a socket that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) gso: bool,
    pub(super) gro: bool,
    /// The kernel never fragments packets.
    pub(super) may_probe_mtu: bool,
}

/// Enables the configured features that the kernel supports; counts and logs the missing ones.
pub(super) fn enable_features(
    socket: &UdpSocket,
    local: SocketAddr,
    asked: SocketOptions,
    metrics: &SocketMetrics,
) -> Features {
    let missing = |feature, result: io::Result<()>| match result {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%local, feature, %error, "the kernel does not support this feature; continuing without it");
            false
        }
    };
    let gro = asked.gro && missing("UDP_GRO", enable_gro(socket));
    if asked.gro && !gro {
        metrics.io_degraded_gro.increment();
    }
    let gso = asked.gso && missing("UDP_SEGMENT", enable_gso(socket));
    if asked.gso && !gso {
        metrics.io_degraded_gso_missing.increment();
    }
    if !missing("ECN", enable_ecn(socket, local)) {
        metrics.io_degraded_ecn.increment();
    }
    // A socket with one address needs no local address for each datagram, and the kernel would look up a route for
    // every datagram sent with one.
    if local.ip().is_unspecified() && !missing("local addresses", enable_local_address(socket, local)) {
        metrics.io_degraded_pktinfo.increment();
    }
    let may_probe_mtu = missing("path MTU probing", enable_mtu_probing(socket, local));
    Features { gso, gro, may_probe_mtu }
}

/// Lets the kernel join received datagrams into one message (UDP_GRO).
pub(super) fn enable_gro(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_GRO.set_option(socket, 1)
}

/// Fails if messages may not hold several datagrams (UDP_SEGMENT). Each message carries its segment size; the socket
/// has none.
pub(super) fn enable_gso(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_SEGMENT.set_option(socket, 0)
}

/// Has the kernel report the ECN codepoint of received datagrams.
pub(super) fn enable_ecn(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_RECVTCLASS.set_option(socket, 1)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_RECVTOS.set_option(socket, 1)
}

/// Has the kernel report the local address of received datagrams.
pub(super) fn enable_local_address(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_RECVPKTINFO.set_option(socket, 1)
    } else {
        IntOption::IP_PKTINFO.set_option(socket, 1)
    }
}

/// Disables fragmentation and the kernel's own path MTU (RFC 9000 §14): no packet is rejected as too large for the
/// path.
pub(super) fn enable_mtu_probing(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_MTU_DISCOVER.set_option(socket, IntOption::PROBE)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_MTU_DISCOVER.set_option(socket, IntOption::PROBE)
}
