//! Selects the server of the next request.
//!
//! It comes from the first of these groups that is not empty, of servers that were not tried by this request: those
//! that are healthy; backup servers that are; those that wait for the result of their first request after an ejection;
//! all. The last is what Envoy calls panic: when no server is healthy, the health checks are more likely to be wrong
//! than all the servers, and a request that is tried may succeed.

use super::{HashKey, Rotation, rendezvous};
use litequic_config::{Balance, Origin};

/// Some of an origin's servers, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Set(u64);

const _: () = assert!(Origin::MAX_SERVERS <= u64::BITS as usize);

impl Set {
    /// With `server` among them.
    pub(crate) const fn with(self, server: usize) -> Self {
        Self(self.0 | Self::bit(server))
    }

    /// Whether `server` is among them.
    pub(crate) const fn has(self, server: usize) -> bool {
        self.0 & Self::bit(server) != 0
    }

    const fn bit(server: usize) -> u64 {
        // No origin has more: a number beyond is in no set.
        if server < u64::BITS as usize { 1 << server } else { 0 }
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Members of the set, in order.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let server = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(server as usize)
        })
    }
}

/// The state of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// Whether the server's health checks succeed, or there are none.
    pub(crate) up: bool,
    /// Whether the server is not ejected.
    pub(crate) kept: bool,
    /// Whether the server may get a request now; false while the first after an ejection is in flight.
    pub(crate) open: bool,
    /// Whether the server gets requests only while no other server is healthy.
    pub(crate) backup: bool,
    /// This worker's requests that are in flight on it.
    pub(crate) requests: u32,
    /// Weight beside the others'; not 0.
    pub(crate) weight: u32,
    /// Identity of the server for consistent hashing.
    pub(crate) key: HashKey,
}

/// The server on which a client is to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Any.
    Any,
    /// The one with this number.
    Server(usize),
    /// The one that this key hashes to.
    Hash(HashKey),
}

impl Wish {
    /// Whether `server`, which a request was sent to first, is that one.
    pub(crate) fn is_for(self, server: usize) -> bool {
        match self {
            Self::Any => false,
            Self::Server(wanted) => wanted == server,
            Self::Hash(_) => true,
        }
    }
}

/// A server for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Number of the server.
    pub(crate) server: usize,
    /// No server was healthy.
    pub(crate) panic: bool,
}

/// One of `servers` that is not in `tried`: the one that `wish` has, or the next by `balance`. `None` if all were
/// tried.
pub(crate) fn choose(
    rotation: &mut Rotation,
    balance: Balance,
    wish: Wish,
    servers: impl Iterator<Item = View> + Clone,
    tried: Set,
) -> Option<Choice> {
    let [mut well, mut backups, mut busy, mut all] = [Set::default(); 4];
    let (mut weights, mut requests) = ([0; Origin::MAX_SERVERS], [0; Origin::MAX_SERVERS]);
    let places = weights.iter_mut().zip(&mut requests);
    for ((number, view), (weight, open)) in servers.clone().enumerate().zip(places) {
        (*weight, *open) = (view.weight, view.requests);
        if tried.has(number) {
            continue;
        }
        all = all.with(number);
        if view.up && view.kept {
            let group = match view {
                View { open: false, .. } => &mut busy,
                View { backup: true, .. } => &mut backups,
                _ => &mut well,
            };
            *group = group.with(number);
        }
    }
    let healthy = [well, backups, busy].into_iter().find(|set| !set.is_empty());
    let from = healthy.or(Some(all).filter(|set| !set.is_empty()))?;
    let server = match wish {
        Wish::Server(wanted) if from.has(wanted) => wanted,
        Wish::Hash(client) => {
            let servers = servers.enumerate().filter(|(number, _)| from.has(*number));
            rendezvous(client, servers.map(|(number, view)| (number, view.key, view.weight)))?
        }
        Wish::Any | Wish::Server(_) => {
            let from = match balance {
                Balance::RoundRobin => from,
                Balance::LeastRequests => least(from, &requests, &weights),
            };
            rotation.next(from, &weights)?
        }
    };
    Some(Choice { server, panic: healthy.is_none() })
}

/// The servers in `from` with the fewest requests for their weight.
fn least(from: Set, requests: &[u32], weights: &[u32]) -> Set {
    let mut fewest = (u32::MAX, 1);
    let mut found = Set::default();
    for server in from.iter() {
        let (Some(&requests), Some(&weight)) = (requests.get(server), weights.get(server)) else { continue };
        let (here, there) = (u64::from(requests) * u64::from(fewest.1), u64::from(fewest.0) * u64::from(weight));
        if here < there {
            (fewest, found) = ((requests, weight), Set::default());
        }
        if here <= there {
            found = found.with(server);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WELL: View =
        View { up: true, kept: true, open: true, backup: false, requests: 0, weight: 1, key: HashKey::NONE };
    const DOWN: View = View { up: false, ..WELL };
    const EJECTED: View = View { kept: false, open: false, ..WELL };
    const TRIED_OUT: View = View { open: false, ..WELL };
    const BACKUP: View = View { backup: true, ..WELL };

    fn chosen(balance: Balance, servers: &[View], tried: &[usize], turns: usize) -> Vec<Option<(usize, bool)>> {
        let tried = tried.iter().fold(Set::default(), |set, server| set.with(*server));
        let mut rotation = Rotation::new(servers.len());
        let mut one = || choose(&mut rotation, balance, Wish::Any, servers.iter().copied(), tried);
        (0..turns).map(|_| one().map(|choice| (choice.server, choice.panic))).collect()
    }

    fn servers(balance: Balance, servers: &[View], turns: usize) -> Vec<usize> {
        chosen(balance, servers, &[], turns).into_iter().flatten().map(|(server, _)| server).collect()
    }

    #[test]
    fn the_well_come_before_backups_those_before_the_busy_and_those_before_all() {
        let turns = |servers: &[View], tried: &[usize]| {
            let mut found: Vec<_> = chosen(Balance::RoundRobin, servers, tried, 8).into_iter().flatten().collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        for (what, servers, tried, expected) in [
            ("all", vec![WELL, WELL, WELL], vec![], vec![(0, false), (1, false), (2, false)]),
            ("one down", vec![WELL, DOWN, WELL], vec![], vec![(0, false), (2, false)]),
            ("one ejected", vec![WELL, EJECTED, WELL], vec![], vec![(0, false), (2, false)]),
            ("one on trial", vec![WELL, TRIED_OUT], vec![], vec![(0, false)]),
            ("all on trial or out", vec![EJECTED, TRIED_OUT, DOWN], vec![], vec![(1, false)]),
            ("panic", vec![EJECTED, DOWN], vec![], vec![(0, true), (1, true)]),
            ("a second try", vec![WELL, WELL], vec![1], vec![(0, false)]),
            ("a second try without a healthy server left", vec![DOWN, WELL], vec![1], vec![(0, true)]),
            ("all tried", vec![WELL, WELL], vec![0, 1], vec![]),
            ("one alone", vec![WELL], vec![], vec![(0, false)]),
            ("a backup beside a well one", vec![BACKUP, WELL], vec![], vec![(1, false)]),
            ("a backup beside one that is down", vec![BACKUP, DOWN], vec![], vec![(0, false)]),
            ("two backups", vec![BACKUP, EJECTED, BACKUP], vec![], vec![(0, false), (2, false)]),
            ("a backup beside one on trial", vec![TRIED_OUT, BACKUP], vec![], vec![(1, false)]),
            ("a backup for a second try", vec![WELL, BACKUP], vec![0], vec![(1, false)]),
            ("no backup while another is healthy", vec![WELL, BACKUP, WELL], vec![0], vec![(2, false)]),
            ("panic with a backup", vec![DOWN, View { up: false, ..BACKUP }], vec![], vec![(0, true), (1, true)]),
        ] {
            assert_eq!(turns(&servers, &tried), expected, "{what}");
        }
    }

    #[test]
    fn one_after_the_other_spreads_by_weight_over_those_that_are_left() {
        let heavy = View { weight: 3, ..WELL };
        for (of, expected) in [
            ([WELL, DOWN, WELL, WELL], [0, 2, 3, 0, 2, 3, 0, 2]),
            ([heavy, DOWN, EJECTED, WELL], [0, 0, 0, 3, 0, 0, 0, 3]),
        ] {
            assert_eq!(servers(Balance::RoundRobin, &of, 8), expected);
        }
    }

    #[test]
    fn the_fewest_requests_for_the_weight_win_and_ties_take_turns() {
        let with = |requests, weight| View { requests, weight, ..WELL };
        for (of, expected) in [
            (vec![with(3, 1), with(1, 1), with(2, 1), with(1, 1), View { requests: 0, ..DOWN }], [1, 3, 1, 3]),
            (vec![with(4, 4), with(2, 1)], [0, 0, 0, 0]),
            (vec![with(4, 4), with(0, 1)], [1, 1, 1, 1]),
            // Of idle ones, and of those that are equally busy for their weight, by weight.
            (vec![with(0, 3), with(0, 1)], [0, 0, 0, 1]),
            (vec![with(6, 3), with(2, 1)], [0, 0, 0, 1]),
        ] {
            assert_eq!(servers(Balance::LeastRequests, &of, 4), expected, "{of:?}");
        }
    }

    #[test]
    fn a_client_stays_on_its_server_while_that_is_among_the_best() {
        let mut rotation = Rotation::new(3);
        let mut server = |wish, servers: [View; 3], tried: Set| {
            choose(&mut rotation, Balance::RoundRobin, wish, servers.into_iter(), tried).unwrap().server
        };
        let none = Set::default();
        for (what, servers, tried, stays) in [
            ("well", [WELL, WELL, WELL], none, true),
            ("busier than the others", [WELL, View { requests: 9, ..WELL }, WELL], none, true),
            ("down", [WELL, DOWN, WELL], none, false),
            ("left out", [WELL, EJECTED, WELL], none, false),
            ("on trial", [WELL, TRIED_OUT, WELL], none, false),
            ("tried", [WELL, WELL, WELL], none.with(1), false),
            ("a backup, and others are well again", [WELL, BACKUP, DOWN], none, false),
            ("a backup, and no other is healthy", [DOWN, BACKUP, DOWN], none, true),
            ("no server is healthy", [DOWN, DOWN, DOWN], none, true),
        ] {
            for _ in 0..5 {
                assert_eq!(server(Wish::Server(1), servers, tried) == 1, stays, "{what}");
            }
        }
        let keyed = [0, 1, 2].map(|number: u8| View { key: HashKey::of(&[number]), ..WELL });
        let mut home = |servers: [View; 3]| {
            let clients = (0..100).map(|client| Wish::Hash(HashKey::of(&[9, client])));
            clients.map(|wish| server(wish, servers, none)).collect::<Vec<_>>()
        };
        let (before, after) = (home(keyed), home([keyed[0], View { up: false, ..keyed[1] }, keyed[2]]));
        assert!([0, 1, 2].iter().all(|server| before.contains(server)));
        for (before, after) in before.into_iter().zip(after) {
            assert!(if before == 1 { after != 1 } else { after == before });
        }
    }

    proptest! {
        #[test]
        fn the_choice_was_not_tried_and_is_as_healthy_as_can_be(
            servers in prop::collection::vec(
                (any::<[bool; 4]>(), 0..4_u32, 1..=256_000_u32, any::<u16>()),
                1..=Origin::MAX_SERVERS,
            ),
            tried in any::<u64>(),
            wish in prop_oneof![
                Just(Wish::Any),
                (0..100_usize).prop_map(Wish::Server),
                any::<u16>().prop_map(|key| Wish::Hash(HashKey::of(&key.to_be_bytes()))),
            ],
            least in any::<bool>(),
        ) {
            let views: Vec<_> = servers
                .iter()
                .map(|&([up, kept, open, backup], requests, weight, key)| {
                    View { up, kept, open, backup, requests, weight, key: HashKey::of(&key.to_be_bytes()) }
                })
                .collect();
            let balance = if least { Balance::LeastRequests } else { Balance::RoundRobin };
            let left = |number: &usize| !Set(tried).has(*number);
            let rank = |view: &View| match view {
                View { up: true, kept: true, open: true, backup: false, .. } => 0,
                View { up: true, kept: true, open: true, .. } => 1,
                View { up: true, kept: true, .. } => 2,
                _ => 3,
            };
            let best = (0..views.len()).filter(left).map(|number| rank(&views[number])).min();
            match choose(&mut Rotation::new(views.len()), balance, wish, views.iter().copied(), Set(tried)) {
                None => prop_assert_eq!(best, None),
                Some(choice) => {
                    prop_assert!(left(&choice.server));
                    prop_assert_eq!(Some(rank(&views[choice.server])), best);
                    prop_assert_eq!(choice.panic, best == Some(3));
                    let same = || (0..views.len()).filter(left).filter(|number| Some(rank(&views[*number])) == best);
                    let load = |number: usize| f64::from(views[number].requests) / f64::from(views[number].weight);
                    let fewest = same().map(load).fold(f64::INFINITY, f64::min);
                    prop_assert!(!least || wish != Wish::Any || load(choice.server) <= fewest);
                    if let Wish::Server(wanted) = wish {
                        prop_assert!(choice.server == wanted || same().all(|server| server != wanted));
                    }
                }
            }
        }
    }
}
