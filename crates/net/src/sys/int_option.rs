//! Sets options of UDP sockets that neither std nor socket2 have.

use super::result::check_result;
use libc::{c_int, c_void, socklen_t};
use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd},
};

/// Socket option whose value is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntOption {
    level: c_int,
    name: c_int,
}

impl IntOption {
    /// Lets the kernel join received datagrams into one message (udp(7)).
    pub(crate) const UDP_GRO: Self = Self { level: libc::SOL_UDP, name: libc::UDP_GRO };
    /// Size of the segments into which the kernel splits a message without a size of its own (udp(7)).
    pub(crate) const UDP_SEGMENT: Self = Self { level: libc::SOL_UDP, name: libc::UDP_SEGMENT };
    /// Has the kernel report the local address of an IPv4 datagram (ip(7)).
    pub(crate) const IP_PKTINFO: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_PKTINFO };
    /// Has the kernel report the TOS byte of a datagram (ip(7)).
    pub(crate) const IP_RECVTOS: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_RECVTOS };
    /// Fragmentation of IPv4 packets, and tracking of the path's MTU (ip(7)).
    pub(crate) const IP_MTU_DISCOVER: Self = Self { level: libc::IPPROTO_IP, name: libc::IP_MTU_DISCOVER };
    /// Has the kernel report the local address of an IPv6 datagram (ipv6(7)).
    pub(crate) const IPV6_RECVPKTINFO: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_RECVPKTINFO };
    /// Has the kernel report the traffic class of a datagram (ipv6(7)).
    pub(crate) const IPV6_RECVTCLASS: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_RECVTCLASS };
    /// Fragmentation of IPv6 packets, and tracking of the path's MTU (ipv6(7)).
    pub(crate) const IPV6_MTU_DISCOVER: Self = Self { level: libc::IPPROTO_IPV6, name: libc::IPV6_MTU_DISCOVER };

    /// Value that forbids fragmentation and leaves the path's MTU to the sender (`IP_PMTUDISC_PROBE` in ip(7); IPv6 has
    /// the same number).
    pub(crate) const PROBE: c_int = libc::IP_PMTUDISC_PROBE;

    /// Sets the option of `socket` to `value`.
    ///
    /// # Errors
    ///
    /// ENOPROTOOPT if the kernel does not support the option, or another error of setsockopt(2).
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
