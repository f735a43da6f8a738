use super::*;
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Model of the pool, which counts everything anew at each question.
#[derive(Debug, Default)]
struct Model {
    held: BTreeMap<usize, ClientSource>,
    /// Waiting requests in the order of arrival.
    waiting: Vec<(u32, ClientSource)>,
}

fn prefixes(source: &ClientSource) -> Vec<String> {
    let path: Vec<String> = source.branch_keys().map(|key| format!("{key:?}")).collect();
    (0..=path.len()).map(|length| path[..length].join("/")).collect()
}

impl Model {
    fn held_in(&self, branch: &str) -> usize {
        self.held.values().filter(|source| prefixes(source).iter().any(|prefix| prefix == branch)).count()
    }

    fn waiting_in(&self, branch: &str) -> usize {
        self.waiting.iter().filter(|(_, source)| prefixes(source).iter().any(|prefix| prefix == branch)).count()
    }

    /// `branch` and its siblings in which requests wait.
    fn siblings(&self, branch: &str, level: usize) -> Vec<String> {
        let parent = branch.rsplit_once('/').map_or("", |(parent, _)| parent);
        let all = self.waiting.iter().filter_map(|(_, source)| prefixes(source).get(level).cloned());
        let mut siblings: Vec<_> =
            all.filter(|other| other.rsplit_once('/').map_or("", |(parent, _)| parent) == parent).collect();
        siblings.sort();
        siblings.dedup();
        siblings
    }

    /// Checks that, on every level, no branch with a waiting request holds less than the request's branch.
    fn grant(&mut self, request: u32, slot: usize) {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == request).unwrap();
        let source = self.waiting[at].1;
        for (level, branch) in prefixes(&source).iter().enumerate().skip(1) {
            for sibling in self.siblings(branch, level) {
                assert!(self.held_in(&sibling) >= self.held_in(branch), "{sibling} holds less than {branch}");
            }
        }
        let first = self.waiting.iter().position(|(_, other)| *other == source).unwrap();
        assert_eq!(first, at, "requests of one connection are served in their order");
        self.waiting.remove(at);
        assert!(self.held.insert(slot, source).is_none());
    }

    /// Checks that, on every level, the request's branch has the longest queue, and that it is the newest of its
    /// connection.
    fn shed(&mut self, request: u32) {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == request).unwrap();
        let source = self.waiting[at].1;
        for (level, branch) in prefixes(&source).iter().enumerate().skip(1) {
            for sibling in self.siblings(branch, level) {
                assert!(self.waiting_in(&sibling) <= self.waiting_in(branch), "{sibling} has the longer queue");
            }
        }
        let last = self.waiting.iter().rposition(|(_, other)| *other == source).unwrap();
        assert_eq!(last, at, "the newest is dropped");
        self.waiting.remove(at);
    }
}

#[derive(Debug, Clone)]
enum Action {
    Ask(ClientSource),
    GiveBack(usize),
    Leave(usize),
    Limit(u32),
}

fn sources() -> impl Strategy<Value = ClientSource> {
    let ipv4 = (0_u32..3, 0_u32..3)
        .prop_map(|(network, host)| (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + (network << 8) + host)), 32));
    let ipv6 = (0_u128..2, 0_u128..2, 0_u128..2).prop_map(|(site, home, subnet)| {
        (IpAddr::V6(Ipv6Addr::from_bits((0xfd00 << 112) + (site << 80) + (home << 72) + (subnet << 64))), 64)
    });
    let network = prop_oneof![4 => ipv4.prop_map(Some), 4 => ipv6.prop_map(Some), 1 => Just(None)];
    (network, 0_u64..3).prop_map(|(network, connection)| ClientSource::new(network, connection))
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        8 => sources().prop_map(Action::Ask),
        5 => any::<usize>().prop_map(Action::GiveBack),
        1 => any::<usize>().prop_map(Action::Leave),
        1 => (0_u32..12).prop_map(Action::Limit),
    ];
    prop::collection::vec(action, 0..200)
}

const QUEUE: u32 = 6;

/// Adds a request to a queue without a bound.
fn queue<W>(pool: &mut FairPool<W>, source: ClientSource, now: Instant, request: W) {
    let waited = pool.enqueue_request(source, now, u32::MAX, request);
    assert!(matches!(waited, QueueOutcome::Queued(_, None)));
}

proptest! {
    #[test]
    fn a_pool_keeps_its_rules_whatever_happens(actions in actions()) {
        let (mut pool, mut model, now) = (FairPool::new(4), Model::default(), Instant::now());
        let (mut limit, mut places) = (4, BTreeMap::<u32, QueuePlace>::new());
        for (request, action) in (0_u32..).zip(actions) {
            match action {
                Action::Ask(source) => match pool.take_slot(source) {
                    Some(PoolSlot(slot)) => {
                        prop_assert!(model.waiting.is_empty() && model.held.len() < limit as usize);
                        model.held.insert(slot, source);
                    }
                    None => {
                        prop_assert!(
                            model.held.len() >= limit as usize || !model.waiting.is_empty(),
                            "no request waits while a slot is free"
                        );
                        model.waiting.push((request, source));
                        match pool.enqueue_request(source, now, QUEUE, request) {
                            QueueOutcome::Queued(place, shed) => {
                                places.insert(request, place);
                                prop_assert_eq!(shed.is_some(), model.waiting.len() > QUEUE as usize);
                                if let Some(shed) = shed {
                                    prop_assert_ne!(shed, request);
                                    model.shed(shed);
                                }
                            }
                            QueueOutcome::Refused(refused) => {
                                prop_assert_eq!(refused, request);
                                prop_assert!(model.waiting.len() > QUEUE as usize, "none is refused while there is room");
                                model.shed(request);
                            }
                        }
                    }
                },
                Action::GiveBack(nth) if !model.held.is_empty() => {
                    let slot = *model.held.keys().nth(nth % model.held.len()).unwrap();
                    model.held.remove(&slot);
                    pool.release_slot(PoolSlot(slot));
                }
                Action::Leave(nth) if !model.waiting.is_empty() => {
                    let (request, _) = model.waiting.remove(nth % model.waiting.len());
                    prop_assert_eq!(pool.leave_queue(places[&request]), Some(request));
                    prop_assert_eq!(pool.leave_queue(places[&request]), None);
                }
                Action::Limit(next) => {
                    limit = next;
                    pool.limit = next;
                }
                _ => {}
            }
            while let Some((request, PoolSlot(slot))) = pool.grant_slot() {
                prop_assert!(model.held.len() < limit as usize);
                model.grant(request, slot);
            }
            prop_assert!(model.waiting.is_empty() || model.held.len() >= limit as usize);
            prop_assert_eq!((pool.used_slot_count() as usize, pool.waiting_requests() as usize), (model.held.len(), model.waiting.len()));
            if let Some(tree) = &pool.tree {
                // The tree has the root, and at most three networks and a connection for each client.
                prop_assert!(tree.len() <= 1 + 4 * (model.held.len() + model.waiting.len()));
            }
            if let Some(next) = pool.next_requests().next() {
                for (slot, source) in &model.held {
                    let excess = pool.slot_excess(PoolSlot(*slot), &next.branches);
                    let least = model.waiting.iter().map(|(_, source)| source).map(|other| {
                        let (giver, taker) = (prefixes(source), prefixes(other));
                        let parted = giver.iter().zip(&taker).position(|(giver, taker)| giver != taker);
                        parted.map_or(0, |at| {
                            model.held_in(&giver[at]).saturating_sub(model.held_in(&taker[at]))
                        })
                    });
                    // The evicted client holds two slots more than the client of some waiting request, where they part.
                    prop_assert!(excess.is_none() || least.max().unwrap_or(0) >= 2);
                }
            }
        }
        let slots: Vec<usize> = model.held.keys().copied().collect();
        slots.into_iter().for_each(|slot| pool.release_slot(PoolSlot(slot)));
        while let Some((_, slot)) = pool.grant_slot() {
            pool.release_slot(slot);
        }
        if limit > 0 {
            prop_assert_eq!((pool.used_slot_count(), pool.waiting_requests()), (0, 0));
            prop_assert!(pool.tree.is_none(), "nothing is left");
        }
    }

    #[test]
    fn splitting_a_network_gives_it_no_more_than_a_slot(subnets in 1_u128..40, limit in 1_u32..20, served in 1_usize..200) {
        let (mut pool, now) = (FairPool::new(limit), Instant::now());
        let split = |subnet: u128| ClientSource::new(Some((Ipv6Addr::from_bits((0xfd00 << 112) + (subnet << 64)).into(), 64)), 1);
        let honest = ClientSource::new(Some(([192, 0, 2, 1].into(), 32)), 1);
        let mut slots: Vec<PoolSlot> = Vec::new();
        for subnet in 0..200_u128 {
            match pool.take_slot(split(subnet % subnets)) {
                Some(slot) => slots.push(slot),
                None => queue(&mut pool, split(subnet % subnets), now, false),
            }
        }
        (0..200).for_each(|_| queue(&mut pool, honest, now, true));
        let mut granted = 0_usize;
        for slot in slots.drain(..).take(served) {
            pool.release_slot(slot);
            granted += usize::from(pool.grant_slot().is_some_and(|(is_honest, _)| is_honest));
        }
        // The network had all slots: until both hold as many, each free one goes to the other client.
        let served = served.min(limit as usize);
        prop_assert!(granted + 1 >= served.min((limit as usize).div_ceil(2)), "{granted} of {served}");
    }

    #[test]
    fn the_largest_source_holds_two_slots_more_than_the_taker(
        holders in prop::collection::vec(sources(), 0..30), taker in sources(), waits_first: bool,
    ) {
        let mut pool = FairPool::<()>::with_ranking(u32::try_from(holders.len()).unwrap());
        if waits_first {
            // Counters that exist before slots are taken equal counters that are made afterwards.
            prop_assert_eq!(pool.largest_source_connections(&taker).count(), 0);
        }
        let slots: Vec<(PoolSlot, ClientSource)> = holders.iter().map(|source| (pool.take_slot(*source).unwrap(), *source)).collect();
        let given: Vec<u64> = pool.largest_source_connections(&taker).collect();
        let branches = pool.source_branches(&taker);
        let excess = |slot: PoolSlot| pool.slot_excess(slot, &branches);
        prop_assert_eq!(given.is_empty(), slots.iter().all(|(slot, _)| excess(*slot).is_none()));
        let held = |branch: &str| holders.iter().filter(|source| prefixes(source).iter().any(|one| one == branch)).count();
        let own = prefixes(&taker);
        // Connections of several sources have the same number here: any of these sources may be the largest.
        for number in given {
            let mut called = slots.iter().filter(|(_, source)| source.connection == number);
            let is_giver = called.any(|(slot, giver)| {
                let giver = prefixes(giver);
                let parent = |branch: &str| branch.rsplit_once('/').map(|(parent, _)| parent.to_owned());
                giver.iter().zip(&own).position(|(giver, own)| giver != own).is_some_and(|at| {
                    let all = holders.iter().filter_map(|other| prefixes(other).get(at).cloned());
                    let siblings = all.filter(|other| parent(other) == parent(&giver[at]));
                    let most = siblings.map(|other| held(&other)).max().unwrap();
                    excess(*slot).is_some() && held(&giver[at]) == most
                })
            });
            prop_assert!(is_giver);
        }
    }

    #[test]
    fn preemption_ends_once_no_client_holds_two_slots_more(
        holders in prop::collection::vec(sources(), 1..30), taker in sources(),
    ) {
        let (mut pool, now) = (FairPool::new(u32::try_from(holders.len()).unwrap()), Instant::now());
        let mut slots: Vec<(PoolSlot, ClientSource)> = holders.iter().map(|source| (pool.take_slot(*source).unwrap(), *source)).collect();
        (0..100).for_each(|_| queue(&mut pool, taker, now, ()));
        let mut given = 0;
        loop {
            let Some(next) = pool.next_requests().next() else { break };
            let largest = slots.iter().filter_map(|(slot, _)| Some((pool.slot_excess(*slot, &next.branches)?, *slot))).max();
            let Some((_, slot)) = largest else { break };
            given += 1;
            prop_assert!(given <= holders.len(), "it does not end");
            pool.release_slot(slot);
            slots.retain(|(other, _)| *other != slot);
            let ((), slot) = pool.grant_slot().unwrap();
            slots.push((slot, taker));
        }
        let held = |branch: &str| slots.iter().filter(|(_, source)| prefixes(source).iter().any(|one| one == branch)).count();
        for (_, source) in &slots {
            let (giver, taker) = (prefixes(source), prefixes(&taker));
            if let Some(at) = giver.iter().zip(&taker).position(|(giver, taker)| giver != taker) {
                prop_assert!(held(&giver[at]) <= held(&taker[at]) + 1, "{} has more than {}", giver[at], taker[at]);
            }
        }
    }
}

fn address(last: u8) -> Option<(IpAddr, u8)> {
    Some(([192, 0, 2, last].into(), 32))
}

#[test]
fn one_source_has_the_whole_pool_while_no_other_waits() {
    let mut pool = FairPool::<()>::new(512);
    let slots: Vec<PoolSlot> = (0..512).map(|_| pool.take_slot(ClientSource::new(address(1), 1)).unwrap()).collect();
    assert!(pool.tree.is_none(), "nothing is counted by source");
    assert!(pool.take_slot(ClientSource::new(address(2), 2)).is_none());
    slots.into_iter().for_each(|slot| pool.release_slot(slot));
    assert_eq!(pool.used_slot_count(), 0);
}

#[test]
fn the_connections_of_one_source_take_turns() {
    let (mut pool, now) = (FairPool::new(1), Instant::now());
    let slot = pool.take_slot(ClientSource::new(address(1), 9)).unwrap();
    for request in 0..1_000 {
        queue(&mut pool, ClientSource::new(address(1), 1), now, request);
    }
    queue(&mut pool, ClientSource::new(address(1), 2), now, 1_000);
    pool.release_slot(slot);
    let (first, slot) = pool.grant_slot().unwrap();
    pool.release_slot(slot);
    assert_eq!(
        (first, pool.grant_slot().unwrap().0),
        (0, 1_000),
        "a colleague does not wait behind a thousand requests"
    );
}

#[test]
fn a_full_queue_drops_the_newest_request_of_the_longest_queue() {
    let (mut pool, now) = (FairPool::new(0), Instant::now());
    for request in 0..8 {
        let _ = pool.enqueue_request(ClientSource::new(address(1), 1), now, 8, request);
    }
    let QueueOutcome::Refused(8) = pool.enqueue_request(ClientSource::new(address(1), 1), now, 8, 8) else {
        panic!("the newcomer's own queue")
    };
    for (source, connection, shed) in [(1, 2, 7), (2, 3, 6), (3, 4, 5)] {
        let waited = pool.enqueue_request(ClientSource::new(address(source), connection), now, 8, 9);
        assert!(matches!(waited, QueueOutcome::Queued(_, Some(request)) if request == shed), "{waited:?}");
    }
}

#[test]
fn an_old_queue_place_removes_no_later_request() {
    let (mut pool, now) = (FairPool::new(3), Instant::now());
    let source = ClientSource::new(address(1), 1);
    let slots: Vec<PoolSlot> = (0..3).map(|_| pool.take_slot(source).unwrap()).collect();
    let QueueOutcome::Queued(before, None) = pool.enqueue_request(source, now, 8, 1) else { panic!("there is room") };
    pool.release_slot(slots[0]);
    let (_, granted) = pool.grant_slot().unwrap();
    slots[1..].iter().for_each(|slot| pool.release_slot(*slot));
    pool.release_slot(granted);
    assert!(pool.tree.is_none());
    assert!((0..3).all(|_| pool.take_slot(source).is_some()));
    queue(&mut pool, source, now, 2);
    assert_eq!(pool.leave_queue(before), None);
    assert_eq!(pool.waiting_requests(), 1);
}

#[test]
fn the_next_request_of_each_network_is_known() {
    let (mut pool, now) = (FairPool::<u8>::new(2), Instant::now());
    let of = |network, host| ClientSource::new(Some(([192, 0, network, host].into(), 32)), 1);
    let _first = (pool.take_slot(of(1, 1)).unwrap(), pool.take_slot(of(2, 1)).unwrap());
    for (request, source) in [(1, of(1, 1)), (2, of(1, 2)), (3, of(2, 1))] {
        queue(&mut pool, source, now, request);
    }
    let next: Vec<u8> = pool.next_requests().map(|next| *next.request).collect();
    assert_eq!(next, [2, 3], "within the first network the host that uses none");
}

#[test]
fn the_last_eighth_of_a_pool_is_for_sources_without_slots() {
    let mut pool = FairPool::<()>::new(160);
    let take = |pool: &mut FairPool<()>, source: ClientSource| {
        let admitted = pool.admits_to_last_slots(&source);
        admitted.then(|| pool.take_slot(source)).flatten().is_some()
    };
    let taken = (0..200).filter(|_| take(&mut pool, ClientSource::new(address(1), 1))).count();
    assert_eq!(taken, 140);
    let others = (2..=200).filter(|last| take(&mut pool, ClientSource::new(address(*last), 1))).count();
    assert_eq!(others, 10, "others of the same /24, until a sixteenth is left");
    let networks = |third| ClientSource::new(Some(([192, 0, third, 1].into(), 32)), 1);
    assert_eq!((3..=200).filter(|third| take(&mut pool, networks(*third))).count(), 10);
    assert_eq!(pool.used_slot_count(), 160);
}

#[test]
fn a_reserve_beyond_the_limit_is_for_clients_without_slots() {
    let mut pool = FairPool::<u8>::with_reserve(160);
    let of = |network, host, connection| ClientSource::new(Some(([192, 0, network, host].into(), 32)), connection);
    let held: Vec<_> = (0..160).map(|_| pool.take_slot(of(0, 1, 1)).unwrap()).collect();
    assert!(pool.take_slot(of(0, 1, 1)).is_none(), "the connection holds all");
    let count = |pool: &mut FairPool<u8>, sources: &mut dyn Iterator<Item = ClientSource>| {
        sources.filter(|source| pool.take_slot(*source).is_some()).count()
    };
    assert_eq!(count(&mut pool, &mut (2..100).map(|connection| of(0, 1, connection))), 5, "a quarter");
    assert_eq!(count(&mut pool, &mut (2..100).map(|host| of(0, host, 1))), 5, "up to the half");
    assert_eq!(count(&mut pool, &mut (1..100).map(|network| of(network, 1, 1))), 10);
    assert!(pool.take_slot(of(200, 1, 1)).is_none());
    // Those who wait get slots by the same rule.
    let now = Instant::now();
    queue(&mut pool, of(0, 1, 1), now, 1);
    queue(&mut pool, of(201, 1, 1), now, 2);
    assert!(pool.grant_slot().is_none());
    pool.release_slot(held[0]);
    assert_eq!(pool.grant_slot().map(|(request, _)| request), Some(2));
    pool.release_slot(held[1]);
    assert!(pool.grant_slot().is_none(), "the source that holds most waits until the limit is kept again");
}

#[test]
fn a_slot_whose_client_becomes_known_counts_for_that_client() {
    let mut pool = FairPool::<()>::new(4);
    let slot = pool.take_slot(ClientSource::new(None, 1)).unwrap();
    let behind = ClientSource::new(address(1), 1);
    assert_eq!(pool.slots_held_by(&behind), 0);
    pool.change_slot_source(slot, behind);
    assert_eq!((pool.slots_held_by(&behind), pool.slot_source(slot)), (1, Some(behind)));
    pool.release_slot(slot);
    assert_eq!(pool.slots_held_by(&behind), 0);
}
