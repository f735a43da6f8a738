//! A client as shared pools distinguish it: by the nested networks of its address, and by its connection.

use litequic_base::network::Network;
use std::{hash::Hash, net::IpAddr};

/// Prefix lengths of the IPv4 networks above a source: a /24 is the smallest network that the internet routes.
const IPV4_PREFIXES: [u8; 1] = [24];
/// Prefix lengths of the IPv6 networks above a source: a site gets a /48, a home a /56 (RFC 6177 §2).
const IPV6_PREFIXES: [u8; 2] = [48, 56];
/// Maximum number of networks of one source: two above, and its own.
pub(super) const MAX_SOURCE_NETWORKS: usize = 3;

/// Client of a pool, by the networks of its address, from the widest to the source's own, and by its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSource {
    /// Own network of the source: address and prefix length. `None` if the connection is a source by itself.
    pub network: Option<(IpAddr, u8)>,
    /// Number of the client's connection.
    pub connection: u64,
}

/// Key of a branch in the tree of sources, below the parent's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SourceKey {
    Network(Network),
    Connection(u64),
}

impl ClientSource {
    /// The client with the connection `connection`, at an address of `network` (address and prefix length in bits).
    /// Without a network the connection is a source of its own: a client in an exempt network, or any client if sources
    /// are not distinguished.
    pub const fn new(network: Option<(IpAddr, u8)>, connection: u64) -> Self {
        Self { network, connection }
    }

    /// Widest network (/24, /48) of the source; `None` for a connection that is a source of its own.
    pub fn widest_network(&self) -> Option<impl Hash + use<>> {
        let [widest, ..] = self.network_keys();
        self.network.and(widest)
    }

    /// Whether both are one source: connections of one network, or one connection that is a source of its own.
    pub fn is_same_source(&self, other: &Self) -> bool {
        match (self.network, other.network) {
            (None, None) => self.connection == other.connection,
            (Some((one, prefix)), Some((other, other_prefix))) => {
                Network::from_address(one, prefix) == Network::from_address(other, other_prefix)
            }
            _ => false,
        }
    }

    /// Whether no network distinguishes the two clients: both are one source, or each is a source of its own.
    pub fn is_indistinct_from(&self, other: &Self) -> bool {
        self.is_same_source(other) || (self.network.is_none() && other.network.is_none())
    }

    /// Keys of the source's networks from the widest to its own; the key of the connection, if that is the source.
    pub(super) fn network_keys(&self) -> [Option<SourceKey>; MAX_SOURCE_NETWORKS] {
        let Some((address, own)) = self.network else {
            return [Some(SourceKey::Connection(self.connection)), None, None];
        };
        let address = address.to_canonical();
        let wider: &[u8] = if address.is_ipv4() { &IPV4_PREFIXES } else { &IPV6_PREFIXES };
        let mut prefixes = wider.iter().copied().filter(|prefix| *prefix < own).chain([own]);
        std::array::from_fn(|_| Some(SourceKey::Network(Network::from_address(address, prefixes.next()?))))
    }

    /// Keys of the branches from the root of the tree down to the connection.
    pub(super) fn branch_keys(&self) -> impl Iterator<Item = SourceKey> + use<> {
        let connection = self.network.map(|_| SourceKey::Connection(self.connection));
        self.network_keys().into_iter().flatten().chain(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_network_are_one_source_and_others_are_their_own() {
        let of = |address: &str, prefix: u8, connection| {
            ClientSource::new(Some((address.parse().unwrap(), prefix)), connection)
        };
        let own = |connection| ClientSource::new(None, connection);
        for (one, other, is_one) in [
            (own(1), own(1), true),
            (own(1), own(2), false),
            (own(1), of("192.0.2.1", 32, 1), false),
            (of("192.0.2.1", 32, 1), of("192.0.2.1", 32, 2), true),
            (of("192.0.2.1", 32, 1), of("192.0.2.2", 32, 1), false),
            (of("192.0.2.1", 24, 1), of("192.0.2.2", 24, 1), true),
            (of("192.0.2.1", 24, 1), of("192.0.3.1", 24, 1), false),
            (of("192.0.2.1", 24, 1), of("192.0.2.1", 32, 1), false),
            (of("::ffff:192.0.2.1", 128, 1), of("192.0.2.1", 32, 1), true),
            (of("2001:db8:0:1::1", 64, 1), of("2001:db8:0:1::2", 64, 1), true),
            (of("2001:db8:0:1::1", 64, 1), of("2001:db8:0:2::1", 64, 1), false),
        ] {
            assert_eq!(one.is_same_source(&other), is_one, "{one:?} {other:?}");
            let own = |source: &ClientSource| source.network_keys().into_iter().flatten().last();
            assert_eq!(own(&one) == own(&other), is_one);
        }
        assert!(own(1).is_indistinct_from(&own(2)));
    }

    #[test]
    fn a_path_leads_from_the_widest_network_to_the_connection() {
        let shown = |network: Option<(&str, u8)>| {
            let network = network.map(|(address, prefix)| (address.parse().unwrap(), prefix));
            let key = |key| match key {
                SourceKey::Network(network) => network.to_string(),
                SourceKey::Connection(number) => format!("#{number}"),
            };
            ClientSource::new(network, 7).branch_keys().map(key).collect::<Vec<_>>().join(" ")
        };
        for (network, path) in [
            (None, "#7"),
            (Some(("192.0.2.9", 32)), "192.0.2.0/24 192.0.2.9/32 #7"),
            (Some(("192.0.2.9", 24)), "192.0.2.0/24 #7"),
            (Some(("192.0.2.9", 1)), "128.0.0.0/1 #7"),
            (Some(("2001:db8:1:2ff::9", 64)), "2001:db8:1::/48 2001:db8:1:200::/56 2001:db8:1:2ff::/64 #7"),
            (Some(("2001:db8:1:2ff::9", 56)), "2001:db8:1::/48 2001:db8:1:200::/56 #7"),
            (Some(("2001:db8:1:2ff::9", 32)), "2001:db8::/32 #7"),
            (Some(("2001:db8::9", 128)), "2001:db8::/48 2001:db8::/56 2001:db8::9/128 #7"),
        ] {
            assert_eq!(shown(network), path);
        }
    }
}
