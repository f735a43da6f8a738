//! Selects the server of the next request.
//!
//! The server comes from the first of these groups that is not empty, without servers that this request has tried:
//! healthy servers; healthy backup servers; servers that wait for the result of their first request after an ejection;
//! all servers. Envoy calls the last one panic: when no server is healthy, the health checks are more likely to be
//! wrong than all the servers, and a request that is tried may succeed.

use super::{HashKey, Rotation, rendezvous_server};
use litequic_config::{Balance, OriginConfig};

/// Set of servers of an origin, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerSet(u64);

const _: () = assert!(OriginConfig::MAX_SERVERS <= u64::BITS as usize);

impl ServerSet {
    pub(crate) const fn with_server(self, server: usize) -> Self {
        Self(self.0 | Self::server_bit(server))
    }

    pub(crate) const fn has_server(self, server: usize) -> bool {
        self.0 & Self::server_bit(server) != 0
    }

    const fn server_bit(server: usize) -> u64 {
        // No origin has more servers: a larger number is in no set.
        if server < u64::BITS as usize { 1 << server } else { 0 }
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first server of the set behind `server`, or else the first of all.
    pub(super) fn server_after(self, server: usize) -> Option<usize> {
        let behind = u32::try_from(server + 1).ok().and_then(|first| u64::MAX.checked_shl(first)).unwrap_or(0);
        [self.0 & behind, self.0].into_iter().find(|set| *set != 0).map(|set| set.trailing_zeros() as usize)
    }

    /// Numbers of the servers in the set, ascending.
    pub(super) fn server_numbers(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let server = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(server as usize)
        })
    }
}

/// State of one server, for the choice among servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerView {
    /// Whether the server's health checks succeed, or there are none.
    pub(crate) up: bool,
    /// Whether the server is not ejected.
    pub(crate) not_ejected: bool,
    /// Whether the server may get a request now; false while the first after an ejection is in flight.
    pub(crate) open: bool,
    /// Whether the server gets requests only while no other server is healthy.
    pub(crate) backup: bool,
    /// Requests of this worker that are in flight on the server.
    pub(crate) requests: u32,
    /// Weight relative to the other servers; not 0.
    pub(crate) weight: u32,
    /// Identity of the server for consistent hashing.
    pub(crate) key: HashKey,
}

/// Preference of a client for a server (session persistence).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// No preference.
    Any,
    /// The server with this number.
    Server(usize),
    /// The server that this key hashes to.
    Hash(HashKey),
}

impl Affinity {
    /// Whether `server`, to which a request was sent first, is the preferred one.
    pub(crate) fn prefers_server(self, server: usize) -> bool {
        match self {
            Self::Any => false,
            Self::Server(wanted) => wanted == server,
            Self::Hash(_) => true,
        }
    }
}

/// Result of choosing a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerChoice {
    pub(crate) server: usize,
    /// Whether no server was healthy.
    pub(crate) panic: bool,
}

/// Chooses one of `servers` that is not in `tried`: the preferred one by `wish`, or the next by `balance`. `None` if
/// all were tried.
pub(crate) fn choose_server(
    rotation: &mut Rotation,
    balance: Balance,
    wish: Affinity,
    servers: impl Iterator<Item = ServerView> + Clone,
    tried: ServerSet,
) -> Option<ServerChoice> {
    let [mut well, mut backups, mut busy, mut all] = [ServerSet::default(); 4];
    let (mut weights, mut requests) = ([0; OriginConfig::MAX_SERVERS], [0; OriginConfig::MAX_SERVERS]);
    let places = weights.iter_mut().zip(&mut requests);
    for ((number, view), (weight, open)) in servers.clone().enumerate().zip(places) {
        (*weight, *open) = (view.weight, view.requests);
        if tried.has_server(number) {
            continue;
        }
        all = all.with_server(number);
        if view.up && view.not_ejected {
            let group = match view {
                ServerView { open: false, .. } => &mut busy,
                ServerView { backup: true, .. } => &mut backups,
                _ => &mut well,
            };
            *group = group.with_server(number);
        }
    }
    let healthy = [well, backups, busy].into_iter().find(|set| !set.is_empty());
    let from = healthy.or(Some(all).filter(|set| !set.is_empty()))?;
    let server = match wish {
        Affinity::Server(wanted) if from.has_server(wanted) => wanted,
        Affinity::Hash(client) => {
            let servers = servers.enumerate().filter(|(number, _)| from.has_server(*number));
            rendezvous_server(client, servers.map(|(number, view)| (number, view.key, view.weight)))?
        }
        Affinity::Any | Affinity::Server(_) => {
            let from = match balance {
                Balance::RoundRobin => from,
                Balance::LeastRequests => {
                    least_loaded(from, |server| Some((*requests.get(server)?, *weights.get(server)?)))
                }
            };
            rotation.next_server(from, &weights)?
        }
    };
    Some(ServerChoice { server, panic: healthy.is_none() })
}

/// Chooses one of `from`, healthy servers of one weight that get requests: the preferred one by `wish`, or the next by
/// `balance`, with the `requests` in flight on a server. `None` if `wish` depends on more.
pub(crate) fn choose_equal_server(
    rotation: &mut Rotation,
    balance: Balance,
    wish: Affinity,
    from: ServerSet,
    requests: impl Fn(usize) -> Option<u32>,
) -> Option<usize> {
    match (wish, balance) {
        (Affinity::Hash(_), _) => None,
        (Affinity::Server(wanted), _) if from.has_server(wanted) => Some(wanted),
        (_, Balance::RoundRobin) => rotation.next_equal_server(from),
        (_, Balance::LeastRequests) => {
            rotation.next_equal_server(least_loaded(from, |server| Some((requests(server)?, 1))))
        }
    }
}

/// The servers in `from` with the fewest requests for their weight; `load` has both.
fn least_loaded(from: ServerSet, load: impl Fn(usize) -> Option<(u32, u32)>) -> ServerSet {
    let mut fewest = (u32::MAX, 1);
    let mut found = ServerSet::default();
    for server in from.server_numbers() {
        let Some((requests, weight)) = load(server) else { continue };
        let (here, there) = (u64::from(requests) * u64::from(fewest.1), u64::from(fewest.0) * u64::from(weight));
        if here < there {
            (fewest, found) = ((requests, weight), ServerSet::default());
        }
        if here <= there {
            found = found.with_server(server);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WELL: ServerView = ServerView {
        up: true,
        not_ejected: true,
        open: true,
        backup: false,
        requests: 0,
        weight: 1,
        key: HashKey::NONE,
    };
    const DOWN: ServerView = ServerView { up: false, ..WELL };
    const EJECTED: ServerView = ServerView { not_ejected: false, open: false, ..WELL };
    const TRIED_OUT: ServerView = ServerView { open: false, ..WELL };
    const BACKUP: ServerView = ServerView { backup: true, ..WELL };

    fn chosen(balance: Balance, servers: &[ServerView], tried: &[usize], turns: usize) -> Vec<Option<(usize, bool)>> {
        let tried = tried.iter().fold(ServerSet::default(), |set, server| set.with_server(*server));
        let mut rotation = Rotation::new(servers.len());
        let mut one = || choose_server(&mut rotation, balance, Affinity::Any, servers.iter().copied(), tried);
        (0..turns).map(|_| one().map(|choice| (choice.server, choice.panic))).collect()
    }

    fn servers(balance: Balance, servers: &[ServerView], turns: usize) -> Vec<usize> {
        chosen(balance, servers, &[], turns).into_iter().flatten().map(|(server, _)| server).collect()
    }

    #[test]
    fn healthy_servers_come_before_backups_trials_and_panic() {
        let turns = |servers: &[ServerView], tried: &[usize]| {
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
            ("panic with a backup", vec![DOWN, ServerView { up: false, ..BACKUP }], vec![], vec![(0, true), (1, true)]),
        ] {
            assert_eq!(turns(&servers, &tried), expected, "{what}");
        }
    }

    #[test]
    fn one_after_the_other_spreads_by_weight_over_those_that_are_left() {
        let heavy = ServerView { weight: 3, ..WELL };
        for (of, expected) in [
            ([WELL, DOWN, WELL, WELL], [0, 2, 3, 0, 2, 3, 0, 2]),
            ([heavy, DOWN, EJECTED, WELL], [0, 0, 0, 3, 0, 0, 0, 3]),
        ] {
            assert_eq!(servers(Balance::RoundRobin, &of, 8), expected);
        }
    }

    #[test]
    fn the_fewest_requests_for_the_weight_win_and_ties_take_turns() {
        let with = |requests, weight| ServerView { requests, weight, ..WELL };
        for (of, expected) in [
            (vec![with(3, 1), with(1, 1), with(2, 1), with(1, 1), ServerView { requests: 0, ..DOWN }], [1, 3, 1, 3]),
            (vec![with(4, 4), with(2, 1)], [0, 0, 0, 0]),
            (vec![with(4, 4), with(0, 1)], [1, 1, 1, 1]),
            // Idle servers, and equally busy ones for their weight, take turns by weight.
            (vec![with(0, 3), with(0, 1)], [0, 0, 0, 1]),
            (vec![with(6, 3), with(2, 1)], [0, 0, 0, 1]),
        ] {
            assert_eq!(servers(Balance::LeastRequests, &of, 4), expected, "{of:?}");
        }
    }

    #[test]
    fn a_client_stays_on_its_server_while_that_is_among_the_best() {
        let mut rotation = Rotation::new(3);
        let mut server = |wish, servers: [ServerView; 3], tried: ServerSet| {
            choose_server(&mut rotation, Balance::RoundRobin, wish, servers.into_iter(), tried).unwrap().server
        };
        let none = ServerSet::default();
        for (what, servers, tried, stays) in [
            ("well", [WELL, WELL, WELL], none, true),
            ("busier than the others", [WELL, ServerView { requests: 9, ..WELL }, WELL], none, true),
            ("down", [WELL, DOWN, WELL], none, false),
            ("left out", [WELL, EJECTED, WELL], none, false),
            ("on trial", [WELL, TRIED_OUT, WELL], none, false),
            ("tried", [WELL, WELL, WELL], none.with_server(1), false),
            ("a backup, and others are well again", [WELL, BACKUP, DOWN], none, false),
            ("a backup, and no other is healthy", [DOWN, BACKUP, DOWN], none, true),
            ("no server is healthy", [DOWN, DOWN, DOWN], none, true),
        ] {
            for _ in 0..5 {
                assert_eq!(server(Affinity::Server(1), servers, tried) == 1, stays, "{what}");
            }
        }
        let keyed = [0, 1, 2].map(|number: u8| ServerView { key: HashKey::from_identity(&[number]), ..WELL });
        let mut home = |servers: [ServerView; 3]| {
            let clients = (0..100).map(|client| Affinity::Hash(HashKey::from_identity(&[9, client])));
            clients.map(|wish| server(wish, servers, none)).collect::<Vec<_>>()
        };
        let (before, after) = (home(keyed), home([keyed[0], ServerView { up: false, ..keyed[1] }, keyed[2]]));
        assert!([0, 1, 2].iter().all(|server| before.contains(server)));
        for (before, after) in before.into_iter().zip(after) {
            assert!(if before == 1 { after != 1 } else { after == before });
        }
    }

    #[test]
    fn servers_of_one_weight_take_turns() {
        let set = |servers: &[usize]| servers.iter().fold(ServerSet::default(), |set, server| set.with_server(*server));
        let mut rotation = Rotation::new(64);
        let mut next = |balance, wish, from: &[usize], requests: [u32; 3]| {
            choose_equal_server(&mut rotation, balance, wish, set(from), |server| requests.get(server).copied())
        };
        let (turns, least) = (Balance::RoundRobin, Balance::LeastRequests);
        for (balance, wish, from, requests, expected) in [
            (turns, Affinity::Any, &[0, 1, 63][..], [0; 3], Some(0)),
            (turns, Affinity::Any, &[0, 1, 63], [0; 3], Some(1)),
            (turns, Affinity::Any, &[0, 1, 63], [0; 3], Some(63)),
            (turns, Affinity::Any, &[0, 1, 63], [0; 3], Some(0)),
            (turns, Affinity::Server(63), &[0, 1, 63], [0; 3], Some(63)),
            (turns, Affinity::Server(9), &[0, 1, 63], [0; 3], Some(1)),
            (turns, Affinity::Hash(HashKey::NONE), &[0, 1, 63], [0; 3], None),
            (turns, Affinity::Any, &[], [0; 3], None),
            (least, Affinity::Any, &[0, 1, 2], [3, 1, 1], Some(2)),
            (least, Affinity::Any, &[0, 1, 2], [3, 1, 1], Some(1)),
            (least, Affinity::Any, &[0, 1, 2], [3, 1, 2], Some(1)),
            (least, Affinity::Server(0), &[0, 1, 2], [3, 1, 2], Some(0)),
        ] {
            assert_eq!(next(balance, wish, from, requests), expected, "{balance:?} {wish:?} {from:?} {requests:?}");
        }
    }

    proptest! {
        #[test]
        fn the_choice_was_not_tried_and_is_as_healthy_as_can_be(
            servers in prop::collection::vec(
                (any::<[bool; 4]>(), 0..4_u32, 1..=256_000_u32, any::<u16>()),
                1..=OriginConfig::MAX_SERVERS,
            ),
            tried in any::<u64>(),
            wish in prop_oneof![
                Just(Affinity::Any),
                (0..100_usize).prop_map(Affinity::Server),
                any::<u16>().prop_map(|key| Affinity::Hash(HashKey::from_identity(&key.to_be_bytes()))),
            ],
            least in any::<bool>(),
        ) {
            let views: Vec<_> = servers
                .iter()
                .map(|&([up, kept, open, backup], requests, weight, key)| {
                    ServerView { up, not_ejected: kept, open, backup, requests, weight, key: HashKey::from_identity(&key.to_be_bytes()) }
                })
                .collect();
            let balance = if least { Balance::LeastRequests } else { Balance::RoundRobin };
            let left = |number: &usize| !ServerSet(tried).has_server(*number);
            let rank = |view: &ServerView| match view {
                ServerView { up: true, not_ejected: true, open: true, backup: false, .. } => 0,
                ServerView { up: true, not_ejected: true, open: true, .. } => 1,
                ServerView { up: true, not_ejected: true, .. } => 2,
                _ => 3,
            };
            let best = (0..views.len()).filter(left).map(|number| rank(&views[number])).min();
            match choose_server(&mut Rotation::new(views.len()), balance, wish, views.iter().copied(), ServerSet(tried)) {
                None => prop_assert_eq!(best, None),
                Some(choice) => {
                    prop_assert!(left(&choice.server));
                    prop_assert_eq!(Some(rank(&views[choice.server])), best);
                    prop_assert_eq!(choice.panic, best == Some(3));
                    let same = || (0..views.len()).filter(left).filter(|number| Some(rank(&views[*number])) == best);
                    let load = |number: usize| f64::from(views[number].requests) / f64::from(views[number].weight);
                    let fewest = same().map(load).fold(f64::INFINITY, f64::min);
                    prop_assert!(!least || wish != Affinity::Any || load(choice.server) <= fewest);
                    if let Affinity::Server(wanted) = wish {
                        prop_assert!(choice.server == wanted || same().all(|server| server != wanted));
                    }
                }
            }
        }
    }
}
