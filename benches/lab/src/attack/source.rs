//! The addresses that attackers and the honest client connect from. Pure. A server that counts by address, or by
//! network, sees what a spread makes of it: neighbours in one network, or a network for each.

use crate::argument;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The attackers' first IPv4 address. All of 127.0.0.0/8 is local on Linux.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);
/// The /48 of the attackers' IPv6 addresses, each in a /64 of its own.
const ATTACKERS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x66, 0, 0, 0, 0, 0, 1);
/// The honest client's first IPv4 address; the next ones are each in another /24.
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
/// The honest client's first IPv6 address; all of them are in one /64.
const HONEST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1);
/// The IPv6 networks that a namespace must accept as its own addresses for both.
pub(crate) const NETWORKS_V6: [&str; 2] = ["fd00:66::/48", "fd00:77::/48"];
/// Bits below an IPv4 /24, and below an IPv6 /64.
const HOST_BITS: (u32, u32) = (8, 64);
/// Addresses of hosts in a /24, without the network's own and the broadcast address.
const HOSTS: u32 = 254;
/// /64s in a /48.
const SUBNETS: u32 = 1 << 16;
/// IPv4 networks for the sources of a spread over IPv6, where a server has an IPv4 address: 127.66.0.0/24 and the next
/// ones.
const NETWORKS_V4: u32 = 1 << 13;

/// How the attackers' addresses are related.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Spread {
    /// IPv4 addresses of one /24.
    OneNetwork,
    /// IPv4 addresses, each of another /24.
    #[default]
    Networks,
    /// IPv6 addresses, each of another /64 of one /48.
    Nested,
}

/// The attackers' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub(crate) struct Sources {
    /// Addresses to attack from, in turn.
    #[arg(long = "sources", value_name = "N", default_value_t = 1)]
    pub(crate) count: u32,
    /// How these addresses are related.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) spread: Spread,
}

impl Sources {
    /// One IPv4 address.
    pub(crate) const ONE: Self = Self { count: 1, spread: Spread::Networks };

    /// The largest number of sources with a spread.
    pub(crate) fn most(spread: Spread) -> u32 {
        match spread {
            Spread::OneNetwork | Spread::Networks => HOSTS,
            Spread::Nested => SUBNETS,
        }
    }

    /// The address of the `nth` attacker of a server at `to`; after the last source it is the first one's again. A
    /// server that has an IPv4 address is attacked from IPv4 addresses, whatever the spread.
    pub(crate) fn nth(self, nth: u32, to: SocketAddr) -> IpAddr {
        let nth = nth % self.count.max(1);
        match (to, self.spread) {
            (SocketAddr::V6(_), _) => {
                Ipv6Addr::from_bits(ATTACKERS.to_bits() + (u128::from(nth) << HOST_BITS.1)).into()
            }
            (_, Spread::OneNetwork) => Ipv4Addr::from_bits(ATTACKER.to_bits() + nth).into(),
            (_, Spread::Networks | Spread::Nested) => {
                Ipv4Addr::from_bits(ATTACKER.to_bits() + ((nth % NETWORKS_V4) << HOST_BITS.0)).into()
            }
        }
    }

    /// The sources in words, such as `5 addresses of one /24`.
    pub(crate) fn describe(self) -> String {
        match (self.count, self.spread) {
            (1, _) => "1 source".to_owned(),
            (count, Spread::OneNetwork) => format!("{count} of one /24"),
            (count, Spread::Networks) => format!("{count} sources"),
            (count, Spread::Nested) => format!("{count} /64s of one /48"),
        }
    }

    /// The command line's options for them.
    pub(crate) fn arguments(self) -> [String; 4] {
        ["--sources".to_owned(), self.count.to_string(), "--spread".to_owned(), argument::word(&self.spread)]
    }

    /// Connections, and streams on each, of an attack that one source makes with `connections` connections of `streams`
    /// streams: about as many streams in all, at least a connection for each source.
    pub(crate) fn divide(self, connections: u32, streams: u32) -> (u32, u32) {
        let divided = connections.max(self.count);
        (divided, (connections * streams / divided).max(1))
    }
}

/// The `nth` address of the honest client for a server at `to`.
pub(crate) fn honest(nth: u32, to: SocketAddr) -> IpAddr {
    match to {
        SocketAddr::V4(_) => Ipv4Addr::from_bits(HONEST.to_bits() + (nth << HOST_BITS.0)).into(),
        SocketAddr::V6(_) => Ipv6Addr::from_bits(HONEST_V6.to_bits() + u128::from(nth)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn sources_have_their_number_and_networks() {
        let network = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits() >> 8),
            IpAddr::V6(address) => address.to_bits() >> 64,
        };
        for (spread, count, to, networks) in [
            (Spread::OneNetwork, 64, "127.0.0.1:1", 1),
            (Spread::OneNetwork, HOSTS, "127.0.0.1:1", 1),
            (Spread::Networks, 64, "127.0.0.1:1", 64),
            (Spread::Nested, 1_000, "[::1]:1", 1_000),
            (Spread::Nested, 1_000, "127.0.0.1:1", 1_000),
        ] {
            let sources = Sources { count, spread };
            let all: BTreeSet<IpAddr> = (0..3 * count).map(|nth| sources.nth(nth, at(to))).collect();
            assert_eq!(all.len(), count as usize, "{spread:?}");
            assert_eq!(all.iter().copied().map(network).collect::<BTreeSet<_>>().len(), networks, "{spread:?}");
            assert!(all.iter().all(|one| one.is_ipv4() == at(to).is_ipv4()));
            let honest: BTreeSet<IpAddr> = (0..250).map(|nth| honest(nth, at(to))).collect();
            assert!(honest.len() == 250 && honest.is_disjoint(&all));
        }
        let last = Sources { count: SUBNETS, spread: Spread::Nested }.nth(SUBNETS - 1, at("[::1]:1"));
        assert_eq!(last.to_string(), "fd00:66:0:ffff::1");
    }

    #[test]
    fn an_attack_is_divided_over_its_sources() {
        let divided = |count| Sources { count, ..Sources::ONE }.divide(4, 128);
        assert_eq!(
            [1, 2, 5, 16, 64, 1_000].map(divided),
            [(4, 128), (4, 128), (5, 102), (16, 32), (64, 8), (1_000, 1)]
        );
    }
}
