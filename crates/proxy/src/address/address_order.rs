//! Orders the addresses of a name for a connection, and remembers which have failed. Pure, but for the cell that all
//! threads of the process share.

use crate::balance::{Ejection, EjectionCause, EjectionRule};
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::Instant;

/// Most failed addresses that the process remembers. Beyond, the one that would be forgotten first is dropped.
const MAX_FAILED: usize = 1024;

/// Failures that all workers and health checks share.
pub(crate) static PROCESS_FAILURES: LazyLock<AddressFailures> = LazyLock::new(AddressFailures::default);

/// Returns `addresses` in the order in which to try them: starting with another one at each `turn`, those that have
/// `failed` last, and families in turn (RFC 8305 §4). If all have failed, the order is as if none had.
pub(crate) fn order_addresses(
    addresses: &[SocketAddr],
    turn: usize,
    failed: impl Fn(SocketAddr) -> bool,
) -> Vec<SocketAddr> {
    let (last, first): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| failed(**address));
    [first, last].into_iter().flat_map(|list| alternate_families(list, turn)).collect()
}

/// Rotates `list` by `turn`, and alternates the two families as far as both have addresses left.
fn alternate_families(mut list: Vec<SocketAddr>, turn: usize) -> impl Iterator<Item = SocketAddr> {
    let first = turn.checked_rem(list.len()).unwrap_or_default();
    list.rotate_left(first);
    let is_ipv4 = list.first().is_some_and(SocketAddr::is_ipv4);
    let (one, other): (Vec<_>, Vec<_>) = list.into_iter().partition(|address| address.is_ipv4() == is_ipv4);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(move || {
        let pair = [one.next(), other.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten()
}

/// Addresses to which no connection could be opened, each with the time until which it is tried last. Read without a
/// lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressFailures(Arc<ArcSwap<HashMap<SocketAddr, Instant>>>);

impl AddressFailures {
    /// Whether `address` has failed and is tried last.
    pub(crate) fn is_failed(&self, address: SocketAddr, now: Instant) -> bool {
        self.0.load().get(&address).is_some_and(|until| now < *until)
    }

    /// Marks `address` as failed for the time `interval`. Returns false if it was marked already.
    pub(crate) fn mark_failed(&self, address: SocketAddr, interval: Duration, now: Instant) -> bool {
        if self.is_failed(address, now) {
            return false;
        }
        let until = now.checked_add(interval).unwrap_or(now);
        self.0.rcu(|known| {
            let mut known: HashMap<_, _> =
                known.iter().filter(|(_, until)| now < **until).map(|(address, until)| (*address, *until)).collect();
            if known.len() >= MAX_FAILED
                && let Some(oldest) = known.iter().min_by_key(|(_, until)| **until).map(|(address, _)| *address)
            {
                known.remove(&oldest);
            }
            known.insert(address, until);
            known
        });
        true
    }

    /// Forgets that `address` has failed: a connection to it was opened.
    pub(crate) fn clear_failure(&self, address: SocketAddr) {
        if self.0.load().contains_key(&address) {
            self.0.rcu(|known| {
                let mut known = HashMap::clone(known);
                known.remove(&address);
                known
            });
        }
    }
}

/// Party at fault for a broken connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The address, because the name has another one; with the time of its ejection, if it is ejected now.
    Address(Option<Duration>),
    /// The server, because the name has no other address, or the others have failed too.
    Server,
}

/// Ejections of the addresses of one name, by one worker's requests.
#[derive(Debug, Default)]
pub(crate) struct AddressEjections(HashMap<SocketAddr, Ejection>);

impl AddressEjections {
    /// Whether `address` is ejected.
    pub(crate) fn is_address_ejected(&self, address: SocketAddr, now: Instant) -> bool {
        self.0.get(&address).is_some_and(|ejection| ejection.is_ejected(now.into_std()))
    }

    /// Records that a request over a connection to `address` succeeded.
    pub(crate) fn record_address_success(&mut self, address: SocketAddr, now: Instant) {
        self.0.entry(address).or_default().on_request_succeeded(now.into_std());
    }

    /// Records that a request failed by `cause`, because its connection to `address` broke. Returns the time for which
    /// the address is ejected from now on, if it is.
    pub(crate) fn record_address_failure(
        &mut self,
        address: SocketAddr,
        now: Instant,
        rule: EjectionRule,
        cause: EjectionCause,
    ) -> Option<Duration> {
        self.0.entry(address).or_default().on_request_failed(now.into_std(), rule, cause, true, false)
    }

    /// Forgets all addresses but `addresses`, which the name has now.
    pub(crate) fn retain_addresses(&mut self, addresses: &[SocketAddr]) {
        self.0.retain(|address, _| addresses.contains(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn list(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn families_alternate_the_first_changes_and_failed_addresses_are_last() {
        let all = list(&["[2001:db8::1]:80", "[2001:db8::2]:80", "192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"]);
        let [a, b, c, d, e] = *all else { panic!() };
        type Case<'a> = (usize, &'a [SocketAddr], [SocketAddr; 5]);
        let table: [Case<'_>; 7] = [
            (0, &[], [a, c, b, d, e]),
            (1, &[], [b, c, a, d, e]),
            (2, &[], [c, a, d, b, e]),
            (5, &[], [a, c, b, d, e]),
            (0, &[a, c], [b, d, e, a, c]),
            (1, &[a, b], [d, e, c, b, a]),
            (0, &[a, b, c, d, e], [a, c, b, d, e]),
        ];
        for (turn, failed, expected) in table {
            assert_eq!(order_addresses(&all, turn, |address| failed.contains(&address)), expected, "{turn} {failed:?}");
        }
        assert_eq!(order_addresses(&[], 7, |_| true), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_its_time_and_forgotten_at_a_success() {
        let [one, other] = *list(&["192.0.2.1:80", "192.0.2.2:80"]) else { panic!() };
        let (failures, now) = (AddressFailures::default(), Instant::now());
        let known_elsewhere = failures.clone();
        assert!(failures.mark_failed(one, 30 * SECOND, now) && !failures.mark_failed(one, 90 * SECOND, now));
        assert!(known_elsewhere.is_failed(one, now + 29 * SECOND) && !known_elsewhere.is_failed(other, now));
        assert!(!failures.is_failed(one, now + 30 * SECOND));
        assert!(failures.mark_failed(one, SECOND, now + 30 * SECOND), "it fails again");
        failures.clear_failure(one);
        assert!(!failures.is_failed(one, now + 30 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_bounded_in_number() {
        let (failures, now) = (AddressFailures::default(), Instant::now());
        let address = |n: usize| SocketAddr::from(([192, 0, 2, 1], u16::try_from(n).unwrap()));
        for n in 0..2 * MAX_FAILED {
            failures.mark_failed(address(n), SECOND, now + Duration::from_micros(n as u64));
        }
        assert_eq!(failures.0.load().len(), MAX_FAILED);
        assert!(failures.is_failed(address(2 * MAX_FAILED - 1), now) && !failures.is_failed(address(0), now));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_ejected_by_the_rule_for_servers() {
        let [one, other] = *list(&["192.0.2.1:80", "192.0.2.2:80"]) else { panic!() };
        let (mut ejections, now) = (AddressEjections::default(), Instant::now());
        let rule = EjectionRule { after: Some(3), time: 10 * SECOND };
        let fail = |ejections: &mut AddressEjections| {
            ejections.record_address_failure(one, now, rule, EjectionCause::Request(now.into_std()))
        };
        assert_eq!((fail(&mut ejections), fail(&mut ejections)), (None, None));
        ejections.record_address_success(other, now);
        assert_eq!(fail(&mut ejections), Some(10 * SECOND));
        assert!(
            ejections.is_address_ejected(one, now)
                && !ejections.is_address_ejected(other, now)
                && !ejections.is_address_ejected(one, now + 10 * SECOND)
        );
        ejections.record_address_success(other, now);
        assert_eq!(
            ejections.record_address_failure(
                other,
                now,
                EjectionRule { after: Some(1), ..rule },
                EjectionCause::Request(now.into_std())
            ),
            None
        );
        ejections.retain_addresses(&[other]);
        assert!(!ejections.is_address_ejected(one, now));
    }

    proptest! {
        #[test]
        fn an_order_has_every_address_once_failed_ones_last(
            addresses in prop::collection::hash_set((any::<bool>(), 1_u16..200), 0..40),
            turn in any::<usize>(),
            failed in any::<u64>(),
        ) {
            let of = |&(v6, port): &(bool, u16)| {
                let ip: std::net::IpAddr = if v6 { [0_u16; 8].into() } else { [0_u8; 4].into() };
                SocketAddr::new(ip, port)
            };
            let addresses: Vec<_> = addresses.iter().map(of).collect();
            let failed = |address: SocketAddr| failed >> (address.port() % 64) & 1 == 1;
            let ordered = order_addresses(&addresses, turn, failed);
            prop_assert!(ordered.is_sorted_by_key(|address| failed(*address)));
            let sorted = |mut list: Vec<SocketAddr>| { list.sort(); list };
            prop_assert_eq!(sorted(ordered.clone()), sorted(addresses));
            let (first, _) = ordered.split_at(ordered.partition_point(|address| !failed(*address)));
            // Two addresses of a family follow each other only after the end of the other family.
            let repeats = first.windows(2).position(|two| two[0].is_ipv4() == two[1].is_ipv4());
            if let Some(at) = repeats {
                prop_assert!(first[at..].iter().all(|address| address.is_ipv4() == first[at].is_ipv4()));
            }
        }
    }
}
