//! A pool of slots that clients share, and its queue. While no request waits, a slot is taken and released without a
//! look at its source; counters by source exist only from the first wait until no request waits and less than half of
//! the slots are in use. Pure.

use super::{
    client_source::ClientSource,
    source_tree::{BranchId, SlotExcess, SourceBranches, SourceTree},
};
use slab::Slab;
use std::time::Instant;

/// Pool of slots, with a queue of requests `W`. One source may use all slots while no other source waits. A slot that
/// becomes free goes to the source that holds least, and a full queue loses the newest request of the source with the
/// longest queue.
#[derive(Debug)]
pub struct FairPool<W> {
    /// Maximum number of slots in use.
    pub limit: u32,
    /// Whether a source that holds no slot may take one of an eighth of the limit beyond the limit.
    has_reserve: bool,
    slots: Slab<HeldSlot>,
    /// Counters by source.
    tree: Option<SourceTree<QueuedRequest<W>>>,
    /// Whether the counters order sources by their slots.
    ranked: bool,
    /// Last number that former counters gave a request: no two requests have the same place in the queue.
    last_number: u64,
}

#[derive(Debug)]
struct HeldSlot {
    source: ClientSource,
    /// Branch of the slot's connection, while counters exist.
    leaf: Option<BranchId>,
}

#[derive(Debug)]
struct QueuedRequest<W> {
    source: ClientSource,
    since: Instant,
    request: W,
}

/// Number of a slot in use, to be released to its pool once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct PoolSlot(usize);

/// Place of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    leaf: BranchId,
    number: u64,
}

/// Result of joining the queue.
#[derive(Debug)]
pub enum QueueOutcome<W> {
    /// The request waits. If the queue was full, it lost the other request.
    Queued(QueuePlace, Option<W>),
    /// The queue is full, and most of its requests are of the same source.
    Refused(W),
}

/// Request that gets the next free slot.
#[derive(Debug)]
pub struct NextRequest<'a, W> {
    /// Time at which the request began to wait.
    pub since: Instant,
    /// The waiting request.
    pub request: &'a W,
    /// Client of the request.
    pub source: ClientSource,
    /// Branches of the client, for [`FairPool::slot_excess`].
    pub branches: SourceBranches,
}

impl PoolSlot {
    /// Index of the slot, which is smaller than the largest number of slots that were in use at once.
    pub const fn slot_index(self) -> usize {
        self.0
    }
}

impl<W> FairPool<W> {
    /// A pool of `limit` slots.
    pub const fn new(limit: u32) -> Self {
        Self { limit, has_reserve: false, slots: Slab::new(), tree: None, ranked: false, last_number: 0 }
    }

    /// A pool of `limit` slots, and of a reserve of an eighth beyond the limit for clients that hold none. Of its first
    /// quarter a connection gets a slot that holds none, of the second a source, and of the last half a source in whose
    /// widest network (/24, /48) none is held. Holders that never release a slot thus lock no other source out.
    pub fn with_reserve(limit: u32) -> Self {
        Self { has_reserve: true, ..Self::new(limit) }
    }

    /// A pool of `limit` slots that also finds the source that holds most ([`FairPool::largest_source_connections`]),
    /// with counters that cost more.
    pub fn with_ranking(limit: u32) -> Self {
        Self { ranked: true, ..Self::new(limit) }
    }

    /// Number of slots in use.
    pub fn used_slot_count(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether all slots are in use.
    pub fn is_pool_full(&self) -> bool {
        self.used_slot_count() >= self.limit
    }

    /// Number of waiting requests.
    pub fn waiting_requests(&self) -> u32 {
        self.tree.as_ref().map_or(0, SourceTree::waiting_count)
    }

    /// Takes a slot for `source`; `None` if all that the source may have are in use, or other requests wait for one.
    pub fn take_slot(&mut self, source: ClientSource) -> Option<PoolSlot> {
        let is_free = if self.used_slot_count() < self.limit {
            self.waiting_requests() == 0
        } else {
            self.admits_to_reserve(&source)
        };
        is_free.then(|| self.take_slot_beyond_limit(source))
    }

    /// Releases `slot`. Waiting requests get slots by [`FairPool::grant_slot`], which the caller calls next.
    pub fn release_slot(&mut self, PoolSlot(slot): PoolSlot) {
        let Some(held) = self.slots.try_remove(slot) else { return };
        if let (Some(tree), Some(leaf)) = (&mut self.tree, held.leaf) {
            tree.uncount_slot(leaf);
        }
        self.drop_idle_tree();
    }

    /// Moves the slot to `source`, once its client's address has become known.
    pub fn change_slot_source(&mut self, PoolSlot(slot): PoolSlot, source: ClientSource) {
        let Some(held) = self.slots.get_mut(slot) else { return };
        held.source = source;
        if let Some(tree) = &mut self.tree {
            let before = held.leaf.replace(tree.count_slot(&source));
            if let Some(leaf) = before {
                tree.uncount_slot(leaf);
            }
        }
    }

    /// Adds `request` of `source`, which waits since `since`, to the queue of at most `most` requests.
    pub fn enqueue_request(&mut self, source: ClientSource, since: Instant, most: u32, request: W) -> QueueOutcome<W> {
        let tree = self.ensure_tree();
        let (leaf, number) = tree.add_request(&source, QueuedRequest { source, since, request });
        if tree.waiting_count() <= most {
            return QueueOutcome::Queued(QueuePlace { leaf, number }, None);
        }
        match tree.shed_newest() {
            Some((shed, own)) if shed == number => {
                self.drop_idle_tree();
                QueueOutcome::Refused(own.request)
            }
            shed => QueueOutcome::Queued(QueuePlace { leaf, number }, shed.map(|(_, other)| other.request)),
        }
    }

    /// Removes a request from the queue; `None` if the request has left the queue already.
    pub fn leave_queue(&mut self, QueuePlace { leaf, number }: QueuePlace) -> Option<W> {
        let left = self.tree.as_mut()?.remove_request(leaf, number)?;
        self.drop_idle_tree();
        Some(left.request)
    }

    /// Gives a free slot to the next request; `None` if there is no free slot or no request. To be called until it
    /// returns `None` after every change that may have freed a slot.
    pub fn grant_slot(&mut self) -> Option<(W, PoolSlot)> {
        if self.used_slot_count() >= self.limit {
            let next = self.tree.as_ref()?.next_request()?.source;
            if !self.admits_to_reserve(&next) {
                return None;
            }
        }
        let (leaf, QueuedRequest { source, request, .. }) = self.tree.as_mut()?.grant_next()?;
        let slot = PoolSlot(self.slots.insert(HeldSlot { source, leaf: Some(leaf) }));
        self.drop_idle_tree();
        Some((request, slot))
    }

    /// The request that gets the next free slot, followed by the next request of each other network.
    pub fn next_requests(&self) -> impl Iterator<Item = NextRequest<'_, W>> {
        self.tree.iter().flat_map(|tree| {
            tree.next_by_network().map(|(leaf, QueuedRequest { source, since, request })| {
                let (since, source) = (*since, *source);
                NextRequest { since, request, source, branches: tree.branches_to_leaf(leaf) }
            })
        })
    }

    /// All slots in use.
    pub fn used_slots(&self) -> impl Iterator<Item = PoolSlot> {
        self.slots.iter().map(|(slot, _)| PoolSlot(slot))
    }

    /// Source of a slot in use.
    pub fn slot_source(&self, PoolSlot(slot): PoolSlot) -> Option<ClientSource> {
        self.slots.get(slot).map(|held| held.source)
    }

    /// Branches of `source`, which may hold and wait for nothing. Makes counters if there are none, for
    /// [`FairPool::slot_excess`].
    pub fn source_branches(&mut self, source: &ClientSource) -> SourceBranches {
        self.ensure_tree().find_branches(source)
    }

    /// Excess of the holder of `slot` over the client with `branches`; `None` if the holder has less than two slots
    /// more.
    pub fn slot_excess(&self, PoolSlot(slot): PoolSlot, branches: &SourceBranches) -> Option<SlotExcess> {
        self.tree.as_ref()?.leaf_excess(self.slots.get(slot)?.leaf?, branches)
    }

    /// Whether no slot is held in the widest network (/24, /48) of `source`, which waits.
    pub fn is_new_network(&self, source: &ClientSource) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.slots_held(source).network == 0)
    }

    /// Whether `source` may take another slot of a pool whose slots cannot be taken back: any source until an eighth of
    /// the pool is left, then sources that hold no slot, and of the last sixteenth sources in whose widest network
    /// (/24, /48) no slot is held.
    pub fn admits_to_last_slots(&mut self, source: &ClientSource) -> bool {
        let left = self.limit.saturating_sub(self.used_slot_count());
        left > self.limit / 8 || self.admits_newcomer(source, left, u32::MAX)
    }

    /// Whether `source` may take one of the `left` slots of the last eighth; while more than `for_connections` are
    /// left, its connection alone has to hold none.
    fn admits_newcomer(&mut self, source: &ClientSource, left: u32, for_connections: u32) -> bool {
        let half = self.limit / 16;
        let held = self.ensure_tree().slots_held(source);
        match left {
            0 => false,
            left if left > for_connections => held.connection == 0,
            left if left > half => held.source == 0,
            _ => held.network == 0,
        }
    }

    /// Whether `source` may take a slot of the reserve.
    fn admits_to_reserve(&mut self, source: &ClientSource) -> bool {
        if !self.has_reserve {
            return false;
        }
        let reserve = self.limit / 8;
        let left = self.limit.saturating_add(reserve).saturating_sub(self.used_slot_count());
        // Attackers share the address of honest clients behind a NAT.
        self.admits_newcomer(source, left, reserve - reserve / 4)
    }

    /// Connections of the source that holds most, of the sources that hold at least two slots more than `taker` where
    /// the two part; none if there is no such source. For a [`FairPool::with_ranking`] pool; makes counters if there
    /// are none.
    pub fn largest_source_connections(&mut self, taker: &ClientSource) -> impl Iterator<Item = u64> {
        let tree = &*self.ensure_tree();
        tree.largest_source(taker).into_iter().flat_map(|source| tree.connections_of_source(source))
    }

    /// Whether another of the widest networks (/24, /48) holds at least two slots more than that of `taker`. For a
    /// [`FairPool::with_ranking`] pool; makes counters if there are none.
    pub fn has_larger_network(&mut self, taker: &ClientSource) -> bool {
        self.ensure_tree().has_larger_network(taker)
    }

    /// Number of slots that `source` itself uses. Without counters, all slots are scanned: not for the usual path of a
    /// request.
    pub fn slots_held_by(&self, source: &ClientSource) -> u32 {
        match &self.tree {
            Some(tree) => tree.slots_held(source).source,
            None => {
                let own = self.slots.iter().filter(|(_, held)| held.source.is_same_source(source)).count();
                u32::try_from(own).unwrap_or(u32::MAX)
            }
        }
    }

    /// Takes a slot even if none is free.
    pub fn take_slot_beyond_limit(&mut self, source: ClientSource) -> PoolSlot {
        let leaf = self.tree.as_mut().map(|tree| tree.count_slot(&source));
        PoolSlot(self.slots.insert(HeldSlot { source, leaf }))
    }

    /// The counters by source, made from the slots in use if there are none.
    fn ensure_tree(&mut self) -> &mut SourceTree<QueuedRequest<W>> {
        self.tree.get_or_insert_with(|| {
            let mut tree = SourceTree::new(self.ranked, self.last_number);
            for (_, held) in &mut self.slots {
                held.leaf = Some(tree.count_slot(&held.source));
            }
            tree
        })
    }

    /// Drops the counters once no request waits and less than half of the slots are in use.
    fn drop_idle_tree(&mut self) {
        if self.tree.as_ref().is_some_and(|tree| tree.waiting_count() == 0)
            && self.used_slot_count() < self.limit.div_ceil(2)
        {
            // A place in the queue stays valid: each number is used once.
            self.last_number = self.tree.take().map_or(self.last_number, |tree| tree.last_number);
        }
    }
}

#[cfg(test)]
mod tests;
