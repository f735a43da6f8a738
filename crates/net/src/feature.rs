//! The features of a UDP socket on this kernel: enabled if supported, left out if not.

use super::sys::IntOption;
use crate::metrics::Metrics;
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
pub(super) fn enable(socket: &UdpSocket, local: SocketAddr, asked: FeatureRequest, metrics: &Metrics) -> Features {
    let missing = |feature, result: io::Result<()>| match result {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%local, feature, %error, "the kernel does not support this feature; continuing without it");
            false
        }
    };
    let gro = asked.gro && missing("UDP_GRO", gro(socket));
    if asked.gro && !gro {
        metrics.io_degraded_gro.increment();
    }
    let gso = asked.gso && missing("UDP_SEGMENT", gso(socket));
    if asked.gso && !gso {
        metrics.io_degraded_gso_missing.increment();
    }
    if !missing("ECN", ecn(socket, local)) {
        metrics.io_degraded_ecn.increment();
    }
    // A socket of one address needs no local address, and the kernel looks up a route for each datagram that has it.
    if local.ip().is_unspecified() && !missing("local addresses", local_address(socket, local)) {
        metrics.io_degraded_pktinfo.increment();
    }
    let may_probe_mtu = missing("path MTU probing", mtu_probing(socket, local));
    Features { gso, gro, may_probe_mtu }
}

/// Several datagrams may be received as one message.
pub(super) fn gro(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_GRO.set(socket, 1)
}

/// Whether messages may hold several datagrams; each carries its segments' size itself, the socket has none.
pub(super) fn gso(socket: &UdpSocket) -> io::Result<()> {
    IntOption::UDP_SEGMENT.set(socket, 0)
}

/// The ECN codepoint of received datagrams.
pub(super) fn ecn(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_RECVTCLASS.set(socket, 1)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_RECVTOS.set(socket, 1)
}

/// The address that received datagrams came to.
pub(super) fn local_address(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() { IntOption::IPV6_RECVPKTINFO.set(socket, 1) } else { IntOption::IP_PKTINFO.set(socket, 1) }
}

/// RFC 9000 §14: datagrams are not fragmented, and the kernel does not reject those that it takes for too large.
pub(super) fn mtu_probing(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv6() {
        IntOption::IPV6_MTU_DISCOVER.set(socket, IntOption::PROBE)?;
        if !local.ip().is_unspecified() {
            return Ok(());
        }
    }
    IntOption::IP_MTU_DISCOVER.set(socket, IntOption::PROBE)
}
