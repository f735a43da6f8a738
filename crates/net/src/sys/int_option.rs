//! Options of UDP sockets that neither std nor socket2 have.

use super::result::check_result;
use libc::{c_int, c_void, socklen_t};
use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd},
};

/// An option that is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntOption {
    level: c_int,
    name: c_int,
}

impl IntOption {
    /// Whether several datagrams may be received as one message (udp(7)).
    pub(crate) const UDP_GRO: Self = Self { level: libc::SOL_UDP, name: libc::UDP_GRO };
    /// The size of the segments that messages are cut into, unless one says otherwise (udp(7)).
    pub(crate) const UDP_SEGMENT: Self = Self { level: libc::SOL_UDP, name: libc::UDP_SEGMENT };
    /// Whether the kernel reports to which address a datagram came (ip(7)).
    pub(crate) const IP_PKTINFO: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_PKTINFO };
    /// Whether it reports the TOS byte (ip(7)).
    pub(crate) const IP_RECVTOS: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_RECVTOS };
    /// Whether packets may be fragmented, and who tracks the path's MTU (ip(7)).
    pub(crate) const IP_MTU_DISCOVER: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_MTU_DISCOVER };
    /// Whether the kernel reports to which address a datagram came (ipv6(7)).
    pub(crate) const IPV6_RECVPKTINFO: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_RECVPKTINFO };
    /// Whether the kernel reports the traffic class byte (ipv6(7)).
    pub(crate) const IPV6_RECVTCLASS: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_RECVTCLASS };
    /// Whether packets may be fragmented, and who tracks the path's MTU (ipv6(7)).
    pub(crate) const IPV6_MTU_DISCOVER: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_MTU_DISCOVER };

    /// Never fragment, and leave the path's MTU to the sender (`IP_PMTUDISC_PROBE` in ip(7); IPv6 has the same number).
    pub(crate) const PROBE: c_int = libc::IP_PMTUDISC_PROBE;

    /// Sets it.
    ///
    /// # Errors
    ///
    /// ENOPROTOOPT if the kernel does not support it, or another as setsockopt(2) lists.
    pub(crate) fn set_option(self, socket: &impl AsFd, value: c_int) -> io::Result<()> {
        let len = socklen_t::try_from(size_of::<c_int>()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: setsockopt(2): the value is a c_int, whose size is given; the kernel copies it before it returns.
        check_result(unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                self.level,
                self.name,
                (&raw const value).cast::<c_void>(),
                len,
            )
        })
    }
}
