//! List of networks whose clients the operator denies for a time, which all workers read. In memory alone: an upgrade
//! passes it on, a restart forgets it. Pure: callers pass the time.

use arc_swap::ArcSwap;
use litequic_base::network::Network;
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Maximum number of denied networks: a list for an incident, at 100 bytes each. A longer list belongs into a packet
/// filter.
pub const MAX_DENIED: usize = 1_024;
/// Longest time for which a network is denied: a longer denial belongs into the configuration.
pub const MAX_DENIAL_TIME: Duration = Duration::from_hours(30 * 24);

/// Networks that are denied now, shared by all threads. While there are none, a check costs a load.
#[derive(Debug, Default)]
pub struct DenyList {
    current: ArcSwap<DeniedNetworks>,
    /// Held while `current` is replaced, as the new list derives from the former one.
    changing: Mutex<()>,
    /// Number of networks in `current`.
    count: AtomicUsize,
}

/// Denied network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeniedNetwork {
    /// Network whose clients are denied.
    pub network: Network,
    /// Remaining time of the denial.
    pub left: Duration,
}

/// Error of denying or allowing a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DenyError {
    /// The list is full.
    #[error(
        "{MAX_DENIED} networks are denied already, which is the maximum; allow some of them, or deny a larger network"
    )]
    Full,
    /// No part of the network is on the list.
    #[error("{0} is not denied")]
    NotDenied(Network),
    /// The network is part of a larger denied network.
    #[error("{0} is denied only as part of {1}; allow {1} instead")]
    PartOf(Network, Network),
}

#[derive(Debug, Clone, Default)]
struct DeniedNetworks {
    until: HashMap<Network, Instant>,
    /// Prefix lengths of the IPv4 and of the IPv6 networks in `until`: a check costs a look-up for each.
    prefixes: [Vec<u8>; 2],
}

impl DeniedNetworks {
    /// Network on the list that denies `address` at `now`.
    fn denying_network(&self, address: IpAddr, now: Instant) -> Option<Network> {
        let address = address.to_canonical();
        let [ipv4, ipv6] = &self.prefixes;
        let prefixes = if address.is_ipv4() { ipv4 } else { ipv6 };
        let mut networks = prefixes.iter().map(|prefix| Network::from_address(address, *prefix));
        networks.find(|network| self.until.get(network).is_some_and(|until| *until > now))
    }

    /// The list after `change`, without the denials that are over at `now`.
    fn with_change(&self, now: Instant, change: impl FnOnce(&mut HashMap<Network, Instant>)) -> Self {
        let mut until = self.until.clone();
        until.retain(|_, until| *until > now);
        change(&mut until);
        let mut prefixes = [Vec::new(), Vec::new()];
        let [ipv4, ipv6] = &mut prefixes;
        for network in until.keys() {
            let prefixes: &mut Vec<u8> = if network.address.is_ipv4() { ipv4 } else { ipv6 };
            if !prefixes.contains(&network.prefix) {
                prefixes.push(network.prefix);
            }
        }
        Self { until, prefixes }
    }
}

impl DenyList {
    /// A list of `networks`, of which at most [`MAX_DENIED`] are taken.
    pub fn from_networks(networks: impl IntoIterator<Item = DeniedNetwork>, now: Instant) -> Self {
        let list = Self::default();
        for DeniedNetwork { network, left } in networks.into_iter().take(MAX_DENIED) {
            // The list has room for them.
            let _ = list.add_denial(network, left, now);
        }
        list
    }

    /// Whether no network is denied.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Whether the clients at `address` are denied at `now`, which is not called while no network is denied.
    pub fn is_client_denied(&self, address: IpAddr, now: impl FnOnce() -> Instant) -> bool {
        !self.is_empty() && self.current.load().denying_network(address, now()).is_some()
    }

    /// Denies `network` for `time`, at most [`MAX_DENIAL_TIME`], from `now` on. If it is denied already, `time`
    /// replaces the former time.
    ///
    /// # Errors
    ///
    /// [`DenyError::Full`].
    pub fn add_denial(&self, network: Network, time: Duration, now: Instant) -> Result<(), DenyError> {
        let _changing = self.changing.lock();
        let current = self.current.load();
        let others = current.until.iter().filter(|(other, until)| **other != network && **until > now).count();
        if others >= MAX_DENIED {
            return Err(DenyError::Full);
        }
        let next = current.with_change(now, |until| {
            until.insert(network, now + time.min(MAX_DENIAL_TIME));
        });
        self.replace_current(next);
        Ok(())
    }

    /// Allows `network` again, and all networks that are part of it. Returns the number of networks that leave the
    /// list.
    ///
    /// # Errors
    ///
    /// [`DenyError::NotDenied`] and [`DenyError::PartOf`].
    pub fn remove_denials(&self, network: Network, now: Instant) -> Result<usize, DenyError> {
        let _changing = self.changing.lock();
        let current = self.current.load();
        let allowed = |other: &Network, until: &Instant| *until > now && network.contains_network(other);
        let count = current.until.iter().filter(|(other, until)| allowed(other, until)).count();
        if count == 0 {
            let wider = current.until.iter().find(|(other, until)| **until > now && other.contains_network(&network));
            return Err(wider.map_or(DenyError::NotDenied(network), |(wider, _)| DenyError::PartOf(network, *wider)));
        }
        self.replace_current(
            current.with_change(now, |until| until.retain(|other, _| !network.contains_network(other))),
        );
        Ok(count)
    }

    /// Removes the networks whose denial is over at `now`, and returns them.
    pub fn remove_expired(&self, now: Instant) -> Vec<Network> {
        let _changing = self.changing.lock();
        let current = self.current.load();
        let over: Vec<Network> =
            current.until.iter().filter(|(_, until)| **until <= now).map(|(network, _)| *network).collect();
        if !over.is_empty() {
            self.replace_current(current.with_change(now, |_| {}));
        }
        over
    }

    /// Earliest end of a denial; `None` if no network is denied.
    pub fn next_denial_end(&self) -> Option<Instant> {
        self.current.load().until.values().min().copied()
    }

    /// Networks that are denied at `now`, the longest denials first.
    pub fn denied_networks(&self, now: Instant) -> Vec<DeniedNetwork> {
        let current = self.current.load();
        let denied = current.until.iter().filter(|(_, until)| **until > now);
        let mut list: Vec<DeniedNetwork> = denied
            .map(|(network, until)| DeniedNetwork { network: *network, left: until.saturating_duration_since(now) })
            .collect();
        list.sort_by_key(|denied| (Reverse(denied.left), denied.network.address, denied.network.prefix));
        list
    }

    fn replace_current(&self, next: DeniedNetworks) {
        let count = next.until.len();
        self.current.store(next.into());
        self.count.store(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn denies(list: &DenyList, address: &str, now: Instant) -> bool {
        list.is_client_denied(address.parse().unwrap(), || now)
    }

    #[test]
    fn a_denial_lasts_until_its_time_or_until_it_is_allowed() {
        let (list, now) = (DenyList::default(), Instant::now());
        assert!(!list.is_client_denied([192, 0, 2, 1].into(), || panic!("no time is read while none is denied")));
        list.add_denial(network("192.0.2.0/24"), HOUR, now).unwrap();
        list.add_denial(network("2001:db8::/32"), 2 * HOUR, now).unwrap();
        for (address, expected) in [
            ("192.0.2.9", true),
            ("::ffff:192.0.2.9", true),
            ("192.0.3.9", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(denies(&list, address, now), expected, "{address}");
        }
        let (almost, over) = (now + HOUR - Duration::from_millis(1), now + HOUR);
        assert_eq!((denies(&list, "192.0.2.9", almost), denies(&list, "192.0.2.9", over)), (true, false));
        assert_eq!((list.next_denial_end(), list.remove_expired(almost)), (Some(over), vec![]));
        assert_eq!(list.remove_expired(over), [network("192.0.2.0/24")]);
        let left = DeniedNetwork { network: network("2001:db8::/32"), left: HOUR };
        assert_eq!((list.denied_networks(over), list.remove_expired(over)), (vec![left], vec![]));
        // A second denial replaces the time of the first.
        list.add_denial(network("2001:db8::/32"), HOUR / 2, over).unwrap();
        assert_eq!(list.denied_networks(over), [DeniedNetwork { left: HOUR / 2, ..left }]);
        assert_eq!(list.remove_denials(network("2001:db8::/32"), over), Ok(1));
        assert_eq!((list.next_denial_end(), denies(&list, "2001:db8::1", over)), (None, false));
        list.add_denial(network("192.0.2.1"), Duration::MAX, now).unwrap();
        assert_eq!(list.denied_networks(now)[0].left, MAX_DENIAL_TIME);
    }

    #[test]
    fn only_whole_denied_networks_can_be_allowed() {
        let (list, now) = (DenyList::default(), Instant::now());
        for text in ["10.0.0.0/8", "192.0.2.1", "192.0.2.128/25", "2001:db8::1"] {
            list.add_denial(network(text), HOUR, now).unwrap();
        }
        let (one, wide) = (network("10.1.2.3"), network("10.0.0.0/8"));
        assert_eq!(list.remove_denials(one, now), Err(DenyError::PartOf(one, wide)));
        let other = network("192.0.2.2");
        assert_eq!(list.remove_denials(other, now), Err(DenyError::NotDenied(other)));
        assert_eq!(list.remove_denials(network("192.0.2.0/24"), now), Ok(2));
        assert_eq!(list.remove_denials(network("0.0.0.0/0"), now), Ok(1));
        assert_eq!(list.denied_networks(now).len(), 1);
    }

    #[test]
    fn the_list_takes_1024_networks_and_one_more_once_another_is_over() {
        let (list, now) = (DenyList::default(), Instant::now());
        let nth = |nth: u32| Network::from_address(IpAddr::V4(nth.into()), 32);
        for index in 0..1_024 {
            list.add_denial(nth(index), if index == 7 { HOUR } else { 2 * HOUR }, now).unwrap();
        }
        assert_eq!(list.add_denial(nth(1_024), HOUR, now), Err(DenyError::Full));
        // A network on the list needs no further place.
        list.add_denial(nth(8), HOUR * 3, now).unwrap();
        list.add_denial(nth(1_024), HOUR, now + HOUR).unwrap();
        assert_eq!(list.denied_networks(now + HOUR).len(), 1_024);
        assert_eq!(DenyList::from_networks(list.denied_networks(now + HOUR), now).denied_networks(now).len(), 1_024);
    }

    proptest! {
        #[test]
        fn an_address_is_denied_if_a_network_on_the_list_has_it(
            networks in prop::collection::vec((any::<IpAddr>(), 0_u8..=128, 1_u64..4), 0..20),
            address: IpAddr,
            nth: prop::sample::Index,
            at in 0_u64..5,
        ) {
            let (list, now) = (DenyList::default(), Instant::now());
            let mut oracle: Vec<(Network, u64)> = Vec::new();
            for (address, prefix, seconds) in &networks {
                let network = Network::from_address(*address, *prefix);
                oracle.retain(|(other, _)| *other != network);
                oracle.push((network, *seconds));
                list.add_denial(network, Duration::from_secs(*seconds), now).unwrap();
            }
            // The address is likely to be near one of the networks.
            let address = if networks.is_empty() || at % 2 == 0 { address } else { nth.get(&networks).0 };
            let expected = oracle.iter().any(|(network, seconds)| *seconds > at && network.contains_address(address));
            prop_assert_eq!(list.is_client_denied(address, || now + Duration::from_secs(at)), expected);
        }
    }
}
