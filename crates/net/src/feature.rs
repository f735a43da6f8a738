//! The features of a UDP socket on this kernel: enabled if supported, left out if not.

use super::sys::IntOption;
use crate::metrics::SocketMetrics;
use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

/// The features in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) gso: bool,
    pub(super) gro: bool,
    /// Packets are never fragmented.
    pub(super) may_probe_mtu: bool,
}

/// The configured features.
#[derive(Debug, Clone, Copy)]
pub(super) struct FeatureRequest {
    pub(super) gso: bool,
    pub(super) gro: bool,
}

/// Enables the configured features that the kernel supports, and counts and logs those that it does not.
pub(super) fn enable_features(
    socket: &UdpSocket,
    local: SocketAddr,
    asked: FeatureRequest,
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
    // A socket of one address needs no local address, and the kernel looks up a route for each datagram that has it.
    if local.ip().is_unspecified() && !missing("local addresses", enable_local_address(socket, local)) {
        metrics.io_degraded_pktinfo.increment();
    }
    let may_probe_mtu = missing("path MTU probing", enable_mtu_probing(socket, local));
    Features { gso, gro, may_probe_mtu }
}

/// Several datagrams may be received as one message.
pub(super) fn enable_gro(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_GRO.set_option(socket, 1)
}

/// Whether messages may hold several datagrams; each carries its segments' size itself, the socket has none.
pub(super) fn enable_gso(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_SEGMENT.set_option(socket, 0)
}

/// The ECN codepoint of received datagrams.
pub(super) fn enable_ecn(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_RECVTCLASS.set_option(socket, 1)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_RECVTOS.set_option(socket, 1)
}

/// The address that received datagrams came to.
pub(super) fn enable_local_address(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_RECVPKTINFO.set_option(socket, 1)
    } else {
        IntOption::IP_PKTINFO.set_option(socket, 1)
    }
}

/// RFC 9000 §14: datagrams are not fragmented, and the kernel does not reject those that it takes for too large.
pub(super) fn enable_mtu_probing(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_MTU_DISCOVER.set_option(socket, IntOption::PROBE)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_MTU_DISCOVER.set_option(socket, IntOption::PROBE)
}
