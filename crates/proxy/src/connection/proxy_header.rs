//! Encodes the header of the PROXY protocol, version 2, for a connection to an origin (HAProxy's proxy-protocol.txt).
//! Pure.

use litequic_exchange::{Client, to_canonical_address};
use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use std::net::{IpAddr, SocketAddr};

/// A client, with the local address of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProxiedClient {
    client: SocketAddr,
    local: SocketAddr,
}

impl ProxiedClient {
    /// Takes both addresses from `client`.
    pub(crate) fn from_client(client: &Client) -> Self {
        Self { client: client.address, local: client.local }
    }

    /// Encodes the header. It names a stream for every HTTP version: receivers such as nginx accept no datagram's
    /// address over a connection.
    pub(crate) fn encode_proxied(self) -> Vec<u8> {
        let (client, local) = match (to_canonical_address(self.client), to_canonical_address(self.local)) {
            (client @ SocketAddr::V4(_), local @ SocketAddr::V4(_)) => (client, local),
            // Both addresses must be of one family: an IPv4 address among IPv6 ones is written as mapped (RFC 4291
            // §2.5.5.2).
            (client, local) => (map_to_ipv6(client), map_to_ipv6(local)),
        };
        build_header(Version::Two | Command::Proxy, Addresses::from((client, local)))
    }
}

/// The header of litequic's own connections, such as those of health checks: the receiver uses the connection's
/// addresses.
pub(super) fn local_header() -> Vec<u8> {
    build_header(Version::Two | Command::Local, Addresses::Unspecified)
}

fn build_header(version_command: u8, addresses: Addresses) -> Vec<u8> {
    let protocol = if addresses == Addresses::Unspecified { Protocol::Unspecified } else { Protocol::Stream };
    // This fails only for headers of more than 64 KiB.
    Builder::with_addresses(version_command, protocol, addresses).build().unwrap_or_default()
}

fn map_to_ipv6(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proxy-protocol.txt §2.2.
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn header(client: &str, local: &str) -> Vec<u8> {
        let header = ProxiedClient { client: client.parse().unwrap(), local: local.parse().unwrap() }.encode_proxied();
        header.strip_prefix(SIGNATURE).unwrap().to_vec()
    }

    #[test]
    fn a_header_is_what_the_specification_says() {
        let v4 = [0x21, 0x11, 0, 12, 192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 1, 0xbb];
        assert_eq!(header("192.0.2.7:4711", "192.0.2.1:443"), v4);
        assert_eq!(header("[::ffff:192.0.2.7]:4711", "192.0.2.1:443"), v4);

        let mut v6 = vec![0x21, 0x21, 0, 36];
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        v6.extend([0x12, 0x67, 1, 0xbb]);
        assert_eq!(header("[2001:db8::7]:4711", "[2001:db8::1]:443"), v6);

        let mixed = header("192.0.2.7:4711", "[::]:443");
        assert_eq!(mixed[..4], [0x21, 0x21, 0, 36]);
        assert_eq!(mixed[4..20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);

        assert_eq!(local_header().strip_prefix(SIGNATURE), Some(&[0x20, 0, 0, 0][..]));
    }
}
