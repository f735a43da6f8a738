//! Admits connections to a worker's pools, which clients share, and chooses the connections that end for new ones
//! (docs/adr/0034-fair-pools.md). Pure.

use super::registered_connection::{ConnectionPool, EvictionReason, RegisteredConnection};
use super::registry::{ConnectionEntry, ConnectionRegistry};
use crate::fairness::{ClientSource, QueueOutcome};
use std::{
    cmp::Reverse,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

/// Free share of a pool below which idle connections end for new ones: a sixteenth, as in nginx.
const SPARE_DIVISOR: u32 = 16;
/// Free share of the QUIC pool below which idle connections of the newcomer's own source end: a thirty-second.
const OWN_SPARE_DIVISOR: u32 = 32;
/// Connections that may end gracefully beyond a pool's limit: a sixteenth of it. A newcomer does not wait for their
/// end.
const LEAVING_DIVISOR: u32 = 16;
/// Idle connections of a source that end together: an eighth of them, and 32 at most, as in nginx. One scan of the
/// source serves all of them.
const MAX_DRAINED_TOGETHER: usize = 32;
const DRAINED_SHARE_DIVISOR: usize = 8;

impl ConnectionRegistry {
    /// Admits a connection to `pool`, which may have `most`, of a client in `network`, or of one that is a source of
    /// its own. From fifteen sixteenths of `most` on, idle connections of the source that holds most end for it; at
    /// `most`, one ends in any case, or else an idle one of the newcomer's own source. `None` if no connection can end.
    pub fn admit_connection(
        self: &Rc<Self>,
        pool: ConnectionPool,
        network: Option<(IpAddr, u8)>,
        most: u32,
    ) -> Option<ConnectionEntry> {
        let id = self.take_connection_number();
        let source = ClientSource::new(network, id);
        let taken = || self.pools.pool_state(pool).borrow().fair.used_slot_count();
        self.pools.pool_state(pool).borrow_mut().fair.limit = most;
        if taken() >= most.saturating_sub(most / SPARE_DIVISOR) {
            self.drain_idle_connections(pool, &source, max_leaving(most));
        }
        // At the limit of QUIC the handshake itself is refused, so idle connections of the newcomer's own source end
        // before.
        if pool == ConnectionPool::Quic && taken() > most.saturating_sub((most / OWN_SPARE_DIVISOR).max(1)) {
            self.end_own_idle(pool, &source);
        }
        if taken() >= most && !self.evict_for_newcomer(pool, &source) {
            return None;
        }
        self.evict_longest_leaving(pool, most);
        let slot = self.pools.pool_state(pool).borrow_mut().fair.take_slot_beyond_limit(source);
        Some(self.register_connection(pool, id, source, slot))
    }

    /// Whether the clients of `network` have at least two connections in `pool`. False for a client that is a source of
    /// its own.
    pub fn has_two_connections(&self, pool: ConnectionPool, network: Option<(IpAddr, u8)>) -> bool {
        self.pools.pool_state(pool).borrow().fair.slots_held_by(&ClientSource::new(network, u64::MAX)) > 1
    }

    /// Whether a connection in `pool` is ending gracefully, so that its descriptor is free soon.
    pub fn has_leaving_connection(&self, pool: ConnectionPool) -> bool {
        !self.pools.pool_state(pool).borrow().leaving.is_empty()
    }

    /// Ends a connection in `pool` for one of `newcomer`: of the source that holds most, if that holds at least two
    /// more, the longest idle connection, or else the connection without traffic for longest. If there is no such
    /// source, the longest idle connection of the newcomer's own. Returns whether one ends.
    pub fn evict_for_newcomer(&self, pool: ConnectionPool, newcomer: &ClientSource) -> bool {
        let (now, open) = (Instant::now(), self.open.borrow());
        let rank = |id: u64| {
            let state = open.get(&id)?;
            let idle = state.idle_for(now);
            // Periods are compared only with each other.
            let silent = idle.unwrap_or_else(|| Duration::from_secs(state.traffic.silent_periods().into()));
            Some((idle.is_none(), Reverse(silent), id))
        };
        let victim =
            self.pools.pool_state(pool).borrow_mut().fair.largest_source_connections(newcomer).filter_map(rank).min();
        let victim = match victim {
            Some((in_use, _, id)) => Some((id, if in_use { EvictionReason::Evicted } else { EvictionReason::Drained })),
            None => self.find_own_idle(pool, newcomer, now).map(|id| (id, EvictionReason::Drained)),
        };
        let Some((id, end)) = victim else { return false };
        let Some(state) = open.get(&id) else { return false };
        self.evict_connection(id, state, end);
        true
    }

    /// Ends the longest idle connection of the source of `newcomer`, if any is idle.
    fn end_own_idle(&self, pool: ConnectionPool, newcomer: &ClientSource) {
        let idle = self.find_own_idle(pool, newcomer, Instant::now());
        let open = self.open.borrow();
        if let Some((id, state)) = idle.and_then(|id| Some((id, open.get(&id)?))) {
            self.evict_connection(id, state, EvictionReason::Drained);
        }
    }

    /// Finds the longest idle connection of the source of `newcomer`.
    fn find_own_idle(&self, pool: ConnectionPool, newcomer: &ClientSource, now: Instant) -> Option<u64> {
        let none_own = &self.pools.pool_state(pool).borrow().none_own;
        if none_own
            .get()
            .is_some_and(|(period, source)| period == self.period.get() && source.is_indistinct_from(newcomer))
        {
            // Otherwise a flood of one source would scan all connections each time.
            return None;
        }
        let open = self.open.borrow();
        let own = open.iter().filter(|(_, state)| {
            state.pool == pool && state.slot.get().is_some() && state.source.get().is_indistinct_from(newcomer)
        });
        let idle = own.filter_map(|(id, state)| Some((state.idle_for(now)?, Reverse(*id)))).max();
        if idle.is_none() {
            none_own.set(Some((self.period.get(), *newcomer)));
        }
        idle.map(|(_, Reverse(id))| id)
    }

    /// Ends idle connections of the source that holds most, as long as it holds at least two more than `newcomer` and
    /// no more than `leaving` connections are still ending.
    fn drain_idle_connections(&self, pool: ConnectionPool, newcomer: &ClientSource, leaving: usize) {
        let connections = self.pools.pool_state(pool);
        let period = Some(self.period.get());
        let left = leaving.saturating_sub(connections.borrow().leaving.len());
        if left == 0 || connections.borrow().none_idle.get() == period {
            return;
        }
        let (now, open) = (Instant::now(), self.open.borrow());
        let mut has_giver = false;
        let mut idle: Vec<(Reverse<Duration>, u64)> = {
            let mut pool = connections.borrow_mut();
            let all = pool.fair.largest_source_connections(newcomer).inspect(|_| has_giver = true);
            all.filter_map(|id| Some((Reverse(open.get(&id)?.idle_for(now)?), id))).collect()
        };
        if idle.is_empty() && has_giver {
            connections.borrow().none_idle.set(period);
        }
        idle.sort_unstable();
        let together = (idle.len() / DRAINED_SHARE_DIVISOR).clamp(1, MAX_DRAINED_TOGETHER).min(left);
        for (_, id) in idle.into_iter().take(together) {
            let Some(state) = open.get(&id) else { continue };
            let gives = {
                let mut pool = connections.borrow_mut();
                let taker = pool.fair.source_branches(newcomer);
                state.slot.get().is_some_and(|slot| pool.fair.slot_excess(slot, &taker).is_some())
            };
            if gives {
                self.evict_connection(id, state, EvictionReason::Drained);
            }
        }
    }

    /// Ends at once the connections that have been ending for longest, if more than allowed are beyond the limit, and a
    /// newcomer needs the room.
    fn evict_longest_leaving(&self, pool: ConnectionPool, most: u32) {
        let allowed = max_leaving(most);
        loop {
            let mut connections = self.pools.pool_state(pool).borrow_mut();
            let open = (connections.fair.used_slot_count() as usize).saturating_add(connections.leaving.len());
            let is_full = connections.leaving.len() > allowed && open >= (most as usize).saturating_add(allowed);
            let longest = if is_full { connections.leaving.pop_front() } else { None };
            drop(connections);
            let Some(id) = longest else { return };
            if let Some(state) = self.open.borrow().get(&id) {
                self.evict_connection(id, state, EvictionReason::Evicted);
            }
        }
    }

    /// Takes one of `most` handshake slots for `newcomer`. If all are in use, the handshake waits for one, and the
    /// oldest handshake of the source that has most ends, if that source has at least two more than the newcomer's.
    pub(super) fn take_handshake_slot(&self, newcomer: &Rc<RegisteredConnection>, most: u32) {
        let source = newcomer.source.get();
        let oldest = {
            let mut handshakes = self.pools.handshakes.borrow_mut();
            handshakes.limit = most;
            if let Some(slot) = handshakes.take_slot(source) {
                newcomer.handshake.set(Some(slot));
                return;
            }
            // The limit of connections bounds the queue.
            let waited = handshakes.enqueue_request(source, Instant::now(), u32::MAX, Rc::clone(newcomer));
            if let QueueOutcome::Queued(place, _) = waited {
                newcomer.handshake_place.set(Some(place));
            }
            handshakes.largest_source_connections(&source).min()
        };
        // A reload may have added slots.
        self.pools.grant_handshake_slots();
        let open = self.open.borrow();
        if let Some((id, state)) = oldest.and_then(|id| Some((id, open.get(&id)?))) {
            self.evict_connection(id, state, EvictionReason::Evicted);
        }
    }
}

/// Number of connections that may be ending beyond the limit of a pool of `most`.
fn max_leaving(most: u32) -> usize {
    (most / LEAVING_DIVISOR).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker_ref;
    use proptest::prelude::*;
    use std::task::{Context, Poll};

    /// Longer than the shortest idle time after which a connection may be closed.
    const WHILE: Duration = Duration::from_secs(2);

    fn address(network: u8, last: u8) -> Option<(IpAddr, u8)> {
        Some(([192, 0, network, last].into(), 32))
    }

    fn end(holder: &ConnectionEntry) -> Option<EvictionReason> {
        match holder.poll_eviction(&Context::from_waker(noop_waker_ref()), &mut None) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    fn ends(holders: &[ConnectionEntry]) -> Vec<usize> {
        (0..holders.len()).filter(|&nth| end(&holders[nth]).is_some()).collect()
    }

    /// A registry whose connections were last used as many seconds ago as given, in the order of admission.
    struct Worker(Rc<ConnectionRegistry>, u32);

    impl Worker {
        fn new(most: u32) -> Self {
            Self(Rc::default(), most)
        }

        fn admit(&self, network: Option<(IpAddr, u8)>) -> Option<ConnectionEntry> {
            self.0.admit_connection(ConnectionPool::Quic, network, self.1)
        }

        fn idle(&self, network: Option<(IpAddr, u8)>, count: usize) -> Vec<ConnectionEntry> {
            let idle: Vec<ConnectionEntry> = (0..count).map(|_| self.admit(network).expect("room")).collect();
            idle.iter().for_each(|holder| holder.mark_ready());
            idle.iter().for_each(|holder| holder.state.backdate_last_use(WHILE));
            idle
        }
    }

    #[test]
    fn connections_in_use_do_not_end_for_their_own_source() {
        let worker = Worker::new(32);
        let held: Vec<ConnectionEntry> = (0..32).map(|_| worker.admit(address(1, 1)).unwrap()).collect();
        assert!(worker.admit(address(1, 1)).is_none());
        assert!(ends(&held).is_empty());
        assert!(worker.0.has_two_connections(ConnectionPool::Quic, address(1, 1)));
        assert!(!worker.0.has_two_connections(ConnectionPool::Tls, address(1, 1)));
    }

    #[test]
    fn near_the_limit_idle_connections_of_the_largest_source_end() {
        let worker = Worker::new(64);
        let many = worker.idle(address(1, 1), 59);
        let few = worker.idle(address(2, 1), 1);
        assert!(ends(&many).is_empty() && ends(&few).is_empty());
        let _other = worker.admit(address(3, 1)).unwrap();
        assert_eq!(ends(&many), [0, 1, 2, 3], "the longest idle first, as many as may be leaving");
        assert!(many[..4].iter().all(|holder| end(holder) == Some(EvictionReason::Drained)));
        assert!(ends(&few).is_empty());
        assert!(worker.admit(address(1, 1)).is_some(), "its own source has room, too");
    }

    #[test]
    fn without_idle_connections_the_longest_silent_one_ends() {
        let worker = Worker::new(8);
        let held: Vec<ConnectionEntry> = (0..8).map(|_| worker.admit(address(1, 1)).unwrap()).collect();
        for holder in &held {
            holder.mark_ready();
            holder.set_open_requests(1);
        }
        for _ in 0..3 {
            worker.0.begin_period();
            held.iter()
                .enumerate()
                .filter(|(nth, _)| *nth != 5)
                .for_each(|(_, holder)| holder.traffic_counter().count_sent(1));
        }
        let _other = worker.admit(address(2, 1)).unwrap();
        assert_eq!((ends(&held), end(&held[5])), (vec![5], Some(EvictionReason::Evicted)));
    }

    #[test]
    fn a_handshake_that_is_not_complete_counts_as_silent_since_it_began() {
        let worker = Worker::new(4);
        let held: Vec<ConnectionEntry> = (0..4).map(|_| worker.admit(address(1, 1)).unwrap()).collect();
        held[0].mark_ready();
        held[0].set_open_requests(1);
        worker.0.begin_period();
        held[0].traffic_counter().count_sent(1);
        let _other = worker.admit(address(2, 1)).unwrap();
        assert_eq!(ends(&held), [1]);
    }

    #[test]
    fn without_a_larger_source_the_newcomers_own_idle_connection_ends() {
        for network in [None, address(1, 1)] {
            let worker = Worker::new(8);
            let mut held = worker.idle(network, 7);
            held.extend(worker.idle(network, 1));
            assert!(ends(&held).is_empty());
            let _newest = worker.admit(network).unwrap();
            assert_eq!((ends(&held), end(&held[0])), (vec![0], Some(EvictionReason::Drained)));
            held.iter().for_each(|holder| holder.set_open_requests(1));
            let newer = worker.admit(network);
            assert!(newer.is_none(), "{network:?}");
            // Until the next period, the connections are not scanned again.
            held.iter().for_each(|holder| holder.set_open_requests(0));
            held.iter().for_each(|holder| holder.state.backdate_last_use(WHILE));
            assert!(worker.admit(network).is_none());
            worker.0.begin_period();
            assert!(worker.admit(network).is_some());
        }
    }

    #[test]
    fn connections_that_linger_are_closed_once_there_are_too_many() {
        let worker = Worker::new(32);
        let many = worker.idle(address(1, 1), 32);
        let mut others = Vec::new();
        for last in 1..=12 {
            others.push(worker.admit(address(2, last)).unwrap());
            let leaving = many.iter().filter(|holder| end(holder) == Some(EvictionReason::Drained)).count();
            assert!(leaving <= 2, "{leaving}");
        }
        let mut gone = many;
        gone.retain(|holder| end(holder).is_none());
        assert!(gone.len() <= 20, "{}", gone.len());
    }

    #[test]
    fn a_connection_counts_for_the_client_that_its_header_names() {
        let worker = Worker::new(8);
        let held: Vec<ConnectionEntry> = (0..8).map(|_| worker.admit(None).unwrap()).collect();
        assert!(worker.admit(address(1, 1)).is_none(), "each is a source of its own");
        held.iter().for_each(|holder| holder.set_client_network(address(2, 1)));
        assert!(worker.admit(address(1, 1)).is_some());
        assert_eq!(ends(&held), [0]);
        assert_eq!(held[1].client_source(), ClientSource::new(address(2, 1), held[1].id));
    }

    #[test]
    fn the_oldest_handshake_of_the_largest_source_ends_for_a_newcomer() {
        let worker = Worker::new(100);
        let begin = |network| {
            let holder = worker.admit(network).unwrap();
            assert!(holder.poll_handshake_slot(&Context::from_waker(noop_waker_ref()), 4).is_ready());
            holder
        };
        let waits = |holder: &ConnectionEntry| {
            holder.poll_handshake_slot(&Context::from_waker(noop_waker_ref()), 4).is_pending()
        };
        let flood: Vec<ConnectionEntry> = (0..4).map(|_| begin(address(1, 1))).collect();
        let own: Vec<ConnectionEntry> = (0..2).map(|_| worker.admit(address(1, 1)).unwrap()).collect();
        assert!(own.iter().all(waits), "its own source has most");
        let other = begin(address(2, 1));
        let ended: Vec<bool> = flood.iter().map(|holder| end(holder) == Some(EvictionReason::Evicted)).collect();
        assert_eq!(ended, [true, false, false, false], "the oldest makes room");
        assert!(own.iter().all(waits), "and not for its own source");
        flood[1].mark_ready();
        assert_eq!(own.iter().map(waits).collect::<Vec<_>>(), [false, true], "one is complete: the next begins");
        drop(own);
        drop((flood, other));
        let handshakes = worker.0.pools.handshakes.borrow();
        assert_eq!((handshakes.used_slot_count(), handshakes.waiting_requests()), (0, 0));
    }

    #[derive(Debug, Clone)]
    enum Action {
        Admit(u8, u8),
        Drop(usize),
        Use(usize),
        Age,
        Tick,
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let action = prop_oneof![
            8 => (0_u8..3, 0_u8..3).prop_map(|(network, last)| Action::Admit(network, last)),
            2 => any::<usize>().prop_map(Action::Drop),
            2 => any::<usize>().prop_map(Action::Use),
            1 => Just(Action::Age),
            1 => Just(Action::Tick),
        ];
        prop::collection::vec(action, 0..200)
    }

    proptest! {
        #[test]
        fn a_pool_keeps_its_limit_and_refuses_no_smaller_source(
            most in 1_u32..40, actions in actions(),
        ) {
            let (worker, mut held) = (Worker::new(most), Vec::<ConnectionEntry>::new());
            for action in actions {
                match action {
                    Action::Admit(network, last) => {
                        let source = address(network, last);
                        let staying = || held.iter().filter(|holder| end(holder).is_none());
                        let of = |network: u8, last: Option<u8>| {
                            staying().filter(|holder| match holder.client_source().network {
                                Some((IpAddr::V4(address), _)) => {
                                    let [_, _, third, fourth] = address.octets();
                                    third == network && last.is_none_or(|last| last == fourth)
                                }
                                _ => false,
                            }).count()
                        };
                        let gives = (0..3).any(|other| other != network && of(other, None) >= of(network, None) + 2)
                            || (0..3).any(|other| of(network, Some(other)) >= of(network, Some(last)) + 2);
                        let is_full = staying().count() >= most as usize;
                        let idle = staying().any(|holder| {
                            holder.client_source().network == source && holder.state.idle_for(Instant::now()).is_some()
                        });
                        match worker.admit(source) {
                            Some(holder) => {
                                prop_assert!(!is_full || gives || idle);
                                holder.mark_ready();
                                held.push(holder);
                            }
                            // An idle connection of the newcomer's source may be overlooked until the next period.
                            None => prop_assert!(is_full && !gives),
                        }
                    }
                    Action::Drop(nth) if !held.is_empty() => drop(held.swap_remove(nth % held.len())),
                    Action::Use(nth) if !held.is_empty() => held[nth % held.len()].set_open_requests(nth % 2),
                    Action::Age => held.iter().for_each(|holder| holder.state.backdate_last_use(WHILE)),
                    Action::Tick => worker.0.begin_period(),
                    _ => {}
                }
                // A connection that ends at once is gone by the next turn.
                held.retain(|holder| !end(holder).is_some_and(|end| end == EvictionReason::Evicted));
                prop_assert!(held.iter().filter(|holder| end(holder).is_none()).count() <= most as usize);
                prop_assert!(held.len() <= most as usize + max_leaving(most), "{} of {most}", held.len());
            }
            drop(held);
            let pool = worker.0.pools.quic.borrow();
            prop_assert_eq!((pool.fair.used_slot_count(), pool.leaving.len()), (0, 0));
        }
    }
}
