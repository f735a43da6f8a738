//! Picks the server of the next request.
//!
//! It comes from the first of these groups that is not empty: servers that are well and were not tried by this request;
//! those that wait for what their first request after a pause brings; all that were not tried. The last is what Envoy
//! calls panic: where no server is well, more is known to be wrong with the findings than with one of the servers, and
//! a request that is tried may succeed.

use crate::config::{Balance, Origin};

/// Some of an origin's servers, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Set(u64);

const _: () = assert!(Origin::MAX_SERVERS <= u64::BITS as usize);

impl Set {
    /// With `server` among them.
    pub(in crate::proxy) const fn with(self, server: usize) -> Self {
        Self(self.0 | Self::bit(server))
    }

    /// Whether `server` is among them.
    pub(in crate::proxy) const fn has(self, server: usize) -> bool {
        self.0 & Self::bit(server) != 0
    }

    const fn bit(server: usize) -> u64 {
        // No origin has more: a number beyond is in no set.
        if server < u64::BITS as usize { 1 << server } else { 0 }
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The `n`th of them, counted round and round.
    fn nth(self, n: usize) -> Option<usize> {
        let count = self.0.count_ones() as usize;
        let n = n.checked_rem(count)?;
        (0..u64::BITS as usize).filter(|server| self.has(*server)).nth(n)
    }
}

/// What is known of one server.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct View {
    /// Its checks say that it is well, or there are none.
    pub(in crate::proxy) up: bool,
    /// Requests show nothing against it: not left out.
    pub(in crate::proxy) kept: bool,
    /// It may get a request now; false while the first after a pause is under way.
    pub(in crate::proxy) open: bool,
    /// This worker's requests that are on it now.
    pub(in crate::proxy) requests: u32,
}

/// A server for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct Choice {
    /// Its number.
    pub(in crate::proxy) server: usize,
    /// No server was well.
    pub(in crate::proxy) panic: bool,
}

/// One of `servers` that is not in `tried`, as `balance` wants it; `turn` grows by one from request to request. `None`
/// where all were tried.
pub(in crate::proxy) fn choose(
    balance: Balance,
    servers: impl Iterator<Item = View> + Clone,
    tried: Set,
    turn: usize,
) -> Option<Choice> {
    let (mut well, mut busy, mut all) = (Set::default(), Set::default(), Set::default());
    for (number, view) in servers.clone().enumerate().filter(|(number, _)| !tried.has(*number)) {
        all = all.with(number);
        if view.up && view.kept {
            busy = busy.with(number);
            well = if view.open { well.with(number) } else { well };
        }
    }
    let from = [well, busy, all].into_iter().find(|set| !set.is_empty())?;
    let from = match balance {
        Balance::RoundRobin => from,
        Balance::LeastRequests => least(servers, from),
    };
    Some(Choice { server: from.nth(turn)?, panic: busy.is_empty() })
}

/// Those in `from` with the fewest requests.
fn least(servers: impl Iterator<Item = View>, from: Set) -> Set {
    let mut fewest = u32::MAX;
    let mut found = Set::default();
    for (number, view) in servers.enumerate().filter(|(number, _)| from.has(*number)) {
        if view.requests < fewest {
            (fewest, found) = (view.requests, Set::default());
        }
        if view.requests == fewest {
            found = found.with(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WELL: View = View { up: true, kept: true, open: true, requests: 0 };
    const DOWN: View = View { up: false, ..WELL };
    const EJECTED: View = View { kept: false, open: false, ..WELL };
    const TRIED_OUT: View = View { open: false, ..WELL };

    fn chosen(balance: Balance, servers: &[View], tried: &[usize], turns: usize) -> Vec<Option<(usize, bool)>> {
        let tried = tried.iter().fold(Set::default(), |set, server| set.with(*server));
        let one = |turn| choose(balance, servers.iter().copied(), tried, turn);
        (0..turns).map(|turn| one(turn).map(|choice| (choice.server, choice.panic))).collect()
    }

    #[test]
    fn the_well_come_before_the_busy_and_those_before_all() {
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
            ("a second try that nobody well is left for", vec![DOWN, WELL], vec![1], vec![(0, true)]),
            ("all tried", vec![WELL, WELL], vec![0, 1], vec![]),
            ("one alone", vec![WELL], vec![], vec![(0, false)]),
        ] {
            assert_eq!(turns(&servers, &tried), expected, "{what}");
        }
    }

    #[test]
    fn one_after_the_other_spreads_evenly_over_those_that_are_left() {
        let servers = [WELL, DOWN, WELL, WELL];
        let found: Vec<_> =
            chosen(Balance::RoundRobin, &servers, &[], 6).into_iter().flatten().map(|(server, _)| server).collect();
        assert_eq!(found, [0, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn the_fewest_requests_win_and_ties_take_turns() {
        let with = |requests| View { requests, ..WELL };
        let servers = [with(3), with(1), with(2), with(1), View { requests: 0, ..DOWN }];
        let found: Vec<_> =
            chosen(Balance::LeastRequests, &servers, &[], 4).into_iter().flatten().map(|(server, _)| server).collect();
        assert_eq!(found, [1, 3, 1, 3]);
    }

    proptest! {
        #[test]
        fn whoever_is_chosen_was_not_tried_and_is_as_well_as_can_be(
            servers in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0..4_u32), 1..=Origin::MAX_SERVERS),
            tried in any::<u64>(),
            turn in any::<usize>(),
            least in any::<bool>(),
        ) {
            let views: Vec<_> = servers
                .iter()
                .map(|&(up, kept, open, requests)| View { up, kept, open, requests })
                .collect();
            let balance = if least { Balance::LeastRequests } else { Balance::RoundRobin };
            let left = |number: &usize| !Set(tried).has(*number);
            let rank = |view: &View| match view {
                View { up: true, kept: true, open: true, .. } => 0,
                View { up: true, kept: true, .. } => 1,
                _ => 2,
            };
            let best = (0..views.len()).filter(left).map(|number| rank(&views[number])).min();
            match choose(balance, views.iter().copied(), Set(tried), turn) {
                None => prop_assert_eq!(best, None),
                Some(choice) => {
                    prop_assert!(left(&choice.server));
                    prop_assert_eq!(Some(rank(&views[choice.server])), best);
                    prop_assert_eq!(choice.panic, best == Some(2));
                    let same = (0..views.len()).filter(left).filter(|number| Some(rank(&views[*number])) == best);
                    let fewest = same.map(|number| views[number].requests).min();
                    prop_assert!(!least || Some(views[choice.server].requests) == fewest);
                }
            }
        }
    }
}
