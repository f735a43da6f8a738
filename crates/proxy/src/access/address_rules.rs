//! Decides by `routes[].deny` and `routes[].allow` whether a route serves a client's address. Pure.

use litequic_config::{self as config, Network};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that a route denies and admits.
#[derive(Debug)]
pub(crate) struct AddressRules {
    deny: AddressSet,
    /// If `None`, every address that is not denied is admitted.
    allow: Option<AddressSet>,
}

impl AddressRules {
    /// Compiles the rules of `route`; `None` if the route has neither `deny` nor `allow`.
    pub(crate) fn new(route: &config::RouteConfig) -> Option<Self> {
        let has_rules = !route.deny.is_empty() || route.allow.is_some();
        has_rules.then(|| Self { deny: AddressSet::new(&route.deny), allow: route.allow.as_ref().map(AddressSet::new) })
    }

    /// Whether the route serves `client`: `deny` is checked first, then `allow`.
    pub(crate) fn admits_address(&self, client: IpAddr) -> bool {
        !self.deny.covers_address(client) && self.allow.as_ref().is_none_or(|allow| allow.covers_address(client))
    }
}

/// Set of IP addresses: the networks of each family as disjoint ranges in ascending order.
#[derive(Debug, Default)]
pub(crate) struct AddressSet(Vec<(IpAddr, IpAddr)>);

impl AddressSet {
    /// The set of the addresses in `networks`.
    pub(crate) fn new<'a>(networks: impl IntoIterator<Item = &'a Network>) -> Self {
        let range = |&Network { address, prefix }: &Network| match address {
            IpAddr::V4(first) => {
                let last = first.to_bits() | u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                (address, Ipv4Addr::from_bits(last).into())
            }
            IpAddr::V6(first) => {
                let last = first.to_bits() | u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                (address, Ipv6Addr::from_bits(last).into())
            }
        };
        let mut ranges: Vec<(IpAddr, IpAddr)> = networks.into_iter().map(range).collect();
        // IPv4 comes first, so that no range overlaps one of the other family.
        ranges.sort_unstable();
        ranges.dedup_by(|(first, last), (_, end)| {
            let overlaps = *first <= *end;
            if overlaps {
                *end = (*last).max(*end);
            }
            overlaps
        });
        Self(ranges)
    }

    /// Whether `address` is in the set; an IPv4-mapped one counts as IPv4.
    pub(crate) fn covers_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let begun = self.0.partition_point(|(first, _)| *first <= address);
        begun.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|(_, end)| address <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn networks_contain_their_addresses() {
        for (text, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("::/0", "192.0.2.1", false),
        ] {
            let covers = AddressSet::new(&[network(text)]).covers_address(address.parse().unwrap());
            assert_eq!(covers, expected, "{address} in {text}");
        }
    }

    fn rules(deny: &[&str], allow: Option<&[&str]>) -> Option<AddressRules> {
        let networks = |all: &[&str]| all.iter().map(|text| network(text)).collect::<Vec<_>>();
        let (deny, allow) = (networks(deny), allow.map(networks));
        AddressRules::new(&config::RouteConfig { deny, allow, ..config::RouteConfig::catch_all("o") })
    }

    #[test]
    fn deny_comes_first_and_a_list_that_is_given_admits_nobody_else() {
        type Case<'a> = (&'a [&'a str], Option<&'a [&'a str]>, &'a str, bool);
        let cases: [Case<'_>; 15] = [
            (&["192.0.2.0/24"], None, "192.0.2.7", false),
            (&["192.0.2.0/24"], None, "192.0.3.7", true),
            (&["192.0.2.0/24"], None, "2001:db8::1", true),
            (&[], Some(&["192.0.2.0/24"]), "192.0.2.255", true),
            (&[], Some(&["192.0.2.0/24"]), "192.0.1.255", false),
            (&[], Some(&["192.0.2.0/24"]), "2001:db8::1", false),
            (&["192.0.2.7/32"], Some(&["192.0.2.0/24"]), "192.0.2.7", false),
            (&["192.0.2.7/32"], Some(&["192.0.2.0/24"]), "192.0.2.8", true),
            (&["192.0.2.0/24"], Some(&["192.0.2.7/32"]), "192.0.2.7", false),
            // A client at an IPv4-mapped address counts as IPv4.
            (&["192.0.2.7/32"], None, "::ffff:192.0.2.7", false),
            (&["0.0.0.0/0"], None, "::ffff:255.255.255.255", false),
            // The whole of IPv6 has no IPv4 address.
            (&["::/0"], None, "192.0.2.7", true),
            (&["0.0.0.0/0"], None, "2001:db8::1", true),
            (&[], Some(&["::/0"]), "::ffff:192.0.2.7", false),
            (&["2001:db8::/32"], None, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", false),
        ];
        for (deny, allow, client, admitted) in cases {
            let rules = rules(deny, allow).unwrap();
            assert_eq!(rules.admits_address(client.parse().unwrap()), admitted, "{deny:?} {allow:?} {client}");
        }
        assert!(rules(&[], None).is_none());
    }

    proptest! {
        #[test]
        fn a_set_has_the_addresses_of_its_networks(
            networks in proptest::collection::vec((any::<u128>(), 0_u8..=128, any::<bool>()), 0..12),
            probes in proptest::collection::vec(any::<u128>(), 0..8),
        ) {
            let networks: Vec<_> = networks.into_iter().map(|(bits, prefix, is_ipv4)| {
                if is_ipv4 {
                    let prefix = prefix % 33;
                    let bits = u32::try_from(bits >> 96).unwrap() & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                    Network { address: Ipv4Addr::from_bits(bits).into(), prefix }
                } else {
                    let bits = bits & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                    Network { address: Ipv6Addr::from_bits(bits).into(), prefix }
                }
            }).collect();
            let set = AddressSet::new(&networks);
            let edges = networks.iter().flat_map(|network| match network.address {
                IpAddr::V4(first) => {
                    let first = first.to_bits();
                    let last = first | u32::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
                    [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
                }
                IpAddr::V6(first) => {
                    let first = first.to_bits();
                    let last = first | u128::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
                    [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
                }
            });
            let probes = probes.into_iter().map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
            for address in edges.chain(probes) {
                let expected = networks.iter().any(|network| network.contains_address(address));
                prop_assert_eq!(set.covers_address(address), expected, "{} {:?}", address, networks);
            }
        }
    }
}
