//! Converts socket addresses to and from the kernel's form: sockaddr_in (ip(7)) and sockaddr_in6 (ipv6(7)).

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6, socklen_t};
use socket2::SockAddr;
use std::{
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

/// A socket address in the kernel's form, of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddress {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

/// Bytes of [`RawAddress`], as the kernel takes the length.
#[expect(clippy::cast_possible_truncation, reason = "28 bytes")]
pub(super) const RAW_ADDRESS_LEN: socklen_t = size_of::<RawAddress>() as socklen_t;

impl RawAddress {
    /// An address of no family, for the kernel to write to.
    pub(super) fn zero_address() -> Self {
        // SAFETY: ipv6(7): a sockaddr_in6 is integers alone, for which zero is a value.
        Self { v6: unsafe { std::mem::zeroed() } }
    }

    /// Converts `address` for a socket, which `is_v6` or not, and returns its length. An IPv6 socket gets an IPv4
    /// address as an IPv4-mapped one.
    pub(super) fn new(address: SocketAddr, is_v6: bool) -> (Self, socklen_t) {
        let name = SockAddr::from(match address {
            SocketAddr::V4(v4) if is_v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            address => address,
        });
        // SAFETY: ip(7), ipv6(7): socket2's storage is larger, is initialized, and begins with one of both addresses.
        (unsafe { name.as_ptr().cast::<Self>().read() }, name.len())
    }

    /// Reads an address that the kernel wrote among other bytes.
    pub(super) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        // SAFETY: ip(7), ipv6(7): every field is an integer, for which any bytes are a value. Unaligned.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }

    /// Converts the first `len` bytes, IPv4-mapped addresses to IPv4. `None` if the family is neither IPv4 nor IPv6, or
    /// the address is incomplete.
    pub(super) fn decode_address(&self, len: socklen_t) -> Option<SocketAddr> {
        let len = usize::try_from(len).ok()?;
        // SAFETY: ip(7), ipv6(7): both begin with the family, every field is an integer, and all of the union has been
        // written since `empty`.
        let (v4, v6) = unsafe { (self.v4, self.v6) };
        match i32::from(v4.sin_family) {
            AF_INET if len >= size_of::<sockaddr_in>() => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some((ip, u16::from_be(v4.sin_port)).into())
            }
            AF_INET6 if len >= size_of::<sockaddr_in6>() => {
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(match ip.to_canonical() {
                    IpAddr::V4(ip) => (ip, port).into(),
                    IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was() {
        for text in ["192.0.2.1:443", "[2001:db8::1]:8443", "[fe80::1%3]:1", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, len) = RawAddress::new(address, address.is_ipv6());
            assert_eq!(name.decode_address(len), Some(address), "{text}");
        }
    }

    #[test]
    fn ipv4_on_a_dual_stack_socket_is_mapped_and_converted_back() {
        let address: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let (name, len) = RawAddress::new(address, true);
        assert_eq!(usize::try_from(len).unwrap(), size_of::<sockaddr_in6>());
        assert_eq!(name.decode_address(len), Some(address));
    }

    #[test]
    fn an_incomplete_address_or_an_unknown_family_is_rejected() {
        let (name, len) = RawAddress::new("[2001:db8::1]:1".parse().unwrap(), true);
        assert_eq!(name.decode_address(len - 1), None);
        assert_eq!(RawAddress::zero_address().decode_address(RAW_ADDRESS_LEN), None);
    }
}
