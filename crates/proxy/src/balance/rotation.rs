//! Chooses servers in turn by weight: smooth weighted round robin.
//!
//! After any number of picks each server has had its exact share of them, with less than one pick more or less. nginx's
//! method of the same name, which always picks the server that is furthest behind, may be more than one pick off: with
//! unlike weights several servers fall due at once. So, of the servers that are behind, this one picks the one that
//! would first be a whole pick behind (earliest deadline first, as of Baruah, Cohen, Plaxton and Varvel, "Proportionate
//! progress", 1996).

use super::ServerSet;

/// One pick, in the unit of the servers' arrears.
const PICK: i64 = 1 << 32;

/// One worker's rotation of the servers of one origin.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// Arrears of each server: the share that it has not had.
    behind: Vec<i64>,
    /// Server that [`Rotation::next_equal_server`] picked last. A retry's pick does not count, as in `behind`: or the
    /// next request would go to the server that failed.
    last: usize,
}

/// The deadline of a server's next pick.
#[derive(Debug, Clone, Copy)]
struct PickDeadline {
    /// Whether the server has had a whole share.
    early: bool,
    /// Share that is left until the server is a whole pick behind.
    left: i64,
    weight: u32,
}

impl Rotation {
    /// A rotation of `servers` servers, none of which had a pick.
    pub(crate) fn new(servers: usize) -> Self {
        // The first server is the next.
        Self { behind: vec![0; servers], last: servers }
    }

    /// Picks the server of `from` behind the one that this method picked last; all have one weight.
    pub(crate) fn next_equal_server(&mut self, from: ServerSet) -> Option<usize> {
        let server = from.server_after(self.last)?;
        self.last = server;
        Some(server)
    }

    /// Picks the next server of `from`; `weights` are by the servers' numbers, and none is 0.
    pub(crate) fn next_server(&mut self, from: ServerSet, weights: &[u32]) -> Option<usize> {
        let weight = |server: usize| weights.get(server).copied().unwrap_or(1);
        let total: i64 = from.server_numbers().map(|server| i64::from(weight(server))).sum();
        let mut given = 0;
        let mut first: Option<(usize, PickDeadline)> = None;
        for server in from.server_numbers() {
            let (weight, Some(behind)) = (weight(server), self.behind.get_mut(server)) else { continue };
            let share = i64::from(weight).saturating_mul(PICK).checked_div(total)?;
            *behind = behind.saturating_add(share);
            given += share;
            let due = PickDeadline { early: *behind <= 0, left: PICK.saturating_sub(*behind), weight };
            if first.is_none_or(|(_, first)| due.is_before(first)) {
                first = Some((server, due));
            }
        }
        let (server, _) = first?;
        // The picked server pays the sum of the shares, so that no rounding adds up.
        let behind = self.behind.get_mut(server)?;
        *behind = behind.saturating_sub(given);
        Some(server)
    }
}

impl PickDeadline {
    fn is_before(self, other: Self) -> bool {
        let time = |one: Self, by: Self| i128::from(one.left) * i128::from(by.weight);
        (self.early, time(self, other)) < (other.early, time(other, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_config::OriginConfig;
    use proptest::prelude::*;

    fn all(servers: usize) -> ServerSet {
        (0..servers).fold(ServerSet::default(), ServerSet::with_server)
    }

    fn picked(weights: &[u32], picks: usize) -> Vec<usize> {
        let mut rotation = Rotation::new(weights.len());
        (0..picks).map(|_| rotation.next_server(all(weights.len()), weights).unwrap()).collect()
    }

    #[test]
    fn picks_of_a_heavy_server_are_spread() {
        for (weights, expected) in [
            (&[1, 1, 1][..], &[0, 1, 2, 0, 1, 2][..]),
            (&[3, 1], &[0, 0, 0, 1, 0, 0, 0, 1]),
            (&[1, 3], &[1, 1, 0, 1, 1, 1, 0, 1]),
            (&[5, 1, 1], &[0, 0, 0, 1, 0, 0, 2]),
            (&[2, 3], &[1, 0, 1, 1, 0]),
            (&[7], &[0, 0, 0]),
            (&[], &[]),
        ] {
            assert_eq!(picked(weights, expected.len()), expected, "{weights:?}");
        }
    }

    #[test]
    fn a_readmitted_server_takes_its_turn_without_making_up_for_lost_ones() {
        let (weights, mut rotation) = ([1, 1], Rotation::new(2));
        let one = ServerSet::default().with_server(0);
        assert!((0..100).all(|_| rotation.next_server(one, &weights) == Some(0)));
        let picks: Vec<_> = (0..4).map(|_| rotation.next_server(all(2), &weights).unwrap()).collect();
        assert_eq!(picks, [0, 1, 0, 1]);
    }

    proptest! {
        /// The oracle is a server's part of all weights, times the picks.
        #[test]
        fn every_server_has_its_share_within_one_pick_at_any_time(
            weights in prop::collection::vec(1..=256_000_u32, 1..=OriginConfig::MAX_SERVERS),
            picks in 1..2000_usize,
        ) {
            let total: u64 = weights.iter().copied().map(u64::from).sum();
            let mut counts = vec![0_u64; weights.len()];
            for (n, server) in picked(&weights, picks).into_iter().enumerate() {
                counts[server] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    // Picks times the total weight.
                    let exact = (n as u64 + 1) * u64::from(*weight);
                    // The slack allows for rounding at each pick.
                    let slack = total / 1_000_000 + 1;
                    prop_assert!((count * total).abs_diff(exact) <= total + slack, "{counts:?} of {weights:?}");
                }
            }
        }

        #[test]
        fn whichever_servers_come_and_go_none_is_far_behind(
            weights in prop::collection::vec(1..=256_000_u32, 1..=OriginConfig::MAX_SERVERS),
            there in prop::collection::vec(any::<u64>(), 1..500),
        ) {
            let mut rotation = Rotation::new(weights.len());
            for there in there {
                let is_there = |server: &usize| there & (1 << server) != 0;
                let from = (0..weights.len()).filter(is_there).fold(ServerSet::default(), ServerSet::with_server);
                let next = rotation.next_server(from, &weights);
                prop_assert_eq!(next.is_some(), from != ServerSet::default());
                prop_assert!(next.is_none_or(|server| from.has_server(server)));
                // A server that lost its turn to others makes up for a few picks at most.
                prop_assert!(rotation.behind.iter().all(|behind| behind.abs() < 8 * PICK), "{:?}", rotation.behind);
            }
        }
    }
}
