//! Counters of a pool by source: nested networks, and connections below them. Each branch counts the slots that its
//! clients use and their waiting requests. The next request, and the one that a full queue drops, are found from the
//! root downwards. Pure.

use super::client_source::{ClientSource, SourceKey};
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    hash::RandomState,
};

/// Maximum number of branches from the root to a connection: the root, three networks, and the connection.
const DEPTH: usize = 5;

/// Index of a branch in `SourceTree::nodes`.
pub(super) type BranchId = usize;

/// Tree of branches by source. There are as many branches as networks and connections of the slots in use and of the
/// waiting requests: at most four for each.
#[derive(Debug)]
pub(super) struct SourceTree<W> {
    nodes: Slab<BranchNode<W>>,
    root: BranchId,
    /// Keys are addresses that clients choose: the hash has a random seed.
    children: HashMap<(BranchId, SourceKey), BranchId, RandomState>,
    /// Last number of a request or of a turn: a larger number is newer.
    pub(super) last_number: u64,
    /// Whether branches are ordered by their queues: from the first request that a full queue drops until no request
    /// waits.
    sheds: bool,
    /// Whether `BranchNode::by_slots` is maintained.
    ranked: bool,
}

/// Branch of the tree: a network, a connection, or the root.
#[derive(Debug)]
struct BranchNode<W> {
    parent: BranchId,
    key: Option<SourceKey>,
    counts: BranchCounts,
    /// Children with a waiting request, the one with the next turn first.
    by_turn: BTreeSet<(u32, u64, BranchId)>,
    /// Children with a waiting request, the one with the longest queue last; empty unless the tree `sheds`.
    by_queue: BTreeSet<(u32, u64, BranchId)>,
    /// Children that use a slot, the one that uses most last; empty unless the tree is `ranked`.
    by_slots: BTreeSet<(u32, BranchId)>,
    /// Waiting requests of a connection, by their numbers.
    queue: BTreeMap<u64, W>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BranchCounts {
    /// Number of slots in use.
    held: u32,
    /// Number of waiting requests.
    waiting: u32,
    /// Number of the turn at which the branch began to wait, or got its last slot: of equal branches, the smallest is
    /// next.
    turn: u64,
    /// Number of the newest waiting request: of queues of equal length, the one with the largest number loses a
    /// request.
    newest: u64,
}

/// Branches of one client, from the root to its connection; a branch that holds and waits for nothing does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceBranches([Option<BranchId>; DEPTH]);

/// Numbers of slots in use by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldSlots {
    /// In the widest network (/24, /48) of the client.
    pub(super) network: u32,
    /// By the client's source.
    pub(super) source: u32,
    /// By the client's connection.
    pub(super) connection: u32,
}

/// Excess of the holder of a slot over another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotExcess {
    /// Numbers of slots that the branches of the holder use, from the root down: the larger, the more it holds.
    held: [u32; DEPTH],
    /// Whether both clients are connections of one source, or connections that are sources of their own.
    pub between_connections: bool,
    /// Slots of the holder's branch for each slot that the other client's branch would have after one more, where the
    /// two part; at least one.
    pub ratio: u32,
}

impl SlotExcess {
    /// Excess of a source that holds `ratio` slots over a source that holds none.
    pub const fn between_sources(ratio: u32) -> Self {
        Self { held: [ratio; DEPTH], between_connections: false, ratio }
    }
}

/// Change of the counts on the path from a connection to the root.
#[derive(Debug, Clone, Copy)]
enum CountChange {
    Hold,
    Release,
    /// The request with this number begins to wait.
    Wait(u64),
    /// A request leaves the queue without a slot.
    Leave,
    /// A waiting request gets a slot, with the number of this turn.
    Grant(u64),
}

impl<W> SourceTree<W> {
    /// A tree without slots, whose numbers follow `last`. A `ranked` tree finds the source that holds most
    /// ([`SourceTree::largest_source`]), and each of its changes costs more.
    pub(super) fn new(ranked: bool, last: u64) -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(BranchNode::new(BranchId::MAX, None));
        Self { nodes, root, children: HashMap::default(), last_number: last, sheds: false, ranked }
    }

    /// Number of waiting requests.
    pub(super) fn waiting_count(&self) -> u32 {
        self.nodes.get(self.root).map_or(0, |root| root.counts.waiting)
    }

    /// Counts a slot of `source`. Returns the connection's branch, for [`SourceTree::uncount_slot`].
    pub(super) fn count_slot(&mut self, source: &ClientSource) -> BranchId {
        let leaf = self.ensure_branch(source);
        self.apply_change(leaf, CountChange::Hold);
        leaf
    }

    /// Counts a slot of the connection `leaf` as released.
    pub(super) fn uncount_slot(&mut self, leaf: BranchId) {
        self.apply_change(leaf, CountChange::Release);
    }

    /// Adds a request of `source` to the queue. Returns the connection's branch and the request's number.
    pub(super) fn add_request(&mut self, source: &ClientSource, request: W) -> (BranchId, u64) {
        let leaf = self.ensure_branch(source);
        let number = self.advance_number();
        if let Some(node) = self.nodes.get_mut(leaf) {
            node.queue.insert(number, request);
        }
        self.apply_change(leaf, CountChange::Wait(number));
        (leaf, number)
    }

    /// Removes a waiting request; `None` if the request waits no longer.
    pub(super) fn remove_request(&mut self, leaf: BranchId, number: u64) -> Option<W> {
        let request = self.nodes.get_mut(leaf)?.queue.remove(&number)?;
        self.apply_change(leaf, CountChange::Leave);
        Some(request)
    }

    /// Gives a slot to the next request: on each level the branch that holds least is chosen, of equal ones the one
    /// whose last turn is the longest ago, and in a connection the oldest request. Returns the connection's branch.
    pub(super) fn grant_next(&mut self) -> Option<(BranchId, W)> {
        let leaf = self.next_leaf()?;
        let (_, request) = self.nodes.get_mut(leaf)?.queue.pop_first()?;
        let turn = self.advance_number();
        self.apply_change(leaf, CountChange::Grant(turn));
        Some((leaf, request))
    }

    /// The request that [`SourceTree::grant_next`] removes.
    pub(super) fn next_request(&self) -> Option<&W> {
        self.nodes.get(self.next_leaf()?)?.queue.first_key_value().map(|(_, request)| request)
    }

    /// The next request, then the next of each other network, and the branches of their connections.
    pub(super) fn next_by_network(&self) -> impl Iterator<Item = (BranchId, &W)> {
        let networks = self.nodes.get(self.root).into_iter().flat_map(|root| &root.by_turn);
        networks.filter_map(|(_, _, network)| {
            let leaf = self.descend_from(*network, |node| node.by_turn.first());
            let (_, request) = self.nodes.get(leaf)?.queue.first_key_value()?;
            Some((leaf, request))
        })
    }

    /// Removes the newest request of the connection with the longest queue: on each level the branch with the longest
    /// queue is chosen. Returns the request's number.
    pub(super) fn shed_newest(&mut self) -> Option<(u64, W)> {
        self.order_queues();
        let leaf = self.descend_from_root(|node| node.by_queue.last())?;
        let (number, request) = self.nodes.get_mut(leaf)?.queue.pop_last()?;
        self.apply_change(leaf, CountChange::Leave);
        Some((number, request))
    }

    pub(super) fn find_branches(&self, source: &ClientSource) -> SourceBranches {
        let (mut branches, mut at) = (SourceBranches([None; DEPTH]), Some(self.root));
        let mut path = source.branch_keys();
        for branch in &mut branches.0 {
            *branch = at;
            at = at.and_then(|parent| self.children.get(&(parent, path.next()?)).copied());
        }
        branches
    }

    /// Branches from the root to the connection `leaf`.
    pub(super) fn branches_to_leaf(&self, leaf: BranchId) -> SourceBranches {
        let mut up = [None; DEPTH];
        let mut at = Some(leaf);
        for id in &mut up {
            *id = at;
            at = at.and_then(|id| self.nodes.get(id)).map(|node| node.parent).filter(|parent| *parent != BranchId::MAX);
        }
        let mut branches = SourceBranches([None; DEPTH]);
        branches.0.iter_mut().zip(up.into_iter().rev().flatten()).for_each(|(branch, id)| *branch = Some(id));
        branches
    }

    /// Excess of the holder of a slot of the connection `leaf` over the client with the branches `other`. `None` unless
    /// the holder's branch, where the two part, holds at least two slots more: below that, the transfer of a slot makes
    /// nothing more even.
    pub(super) fn leaf_excess(&self, leaf: BranchId, other: &SourceBranches) -> Option<SlotExcess> {
        let holder = self.branches_to_leaf(leaf);
        let held =
            |branch: Option<BranchId>| branch.and_then(|id| self.nodes.get(id)).map_or(0, |node| node.counts.held);
        let (of_holder, of_other) = holder.0.iter().zip(&other.0).find(|(holder, other)| holder != other)?;
        let (of_holder_held, of_other_held) = (held(*of_holder), held(*of_other));
        if of_holder_held < of_other_held.saturating_add(2) {
            return None;
        }
        let ratio = of_holder_held / of_other_held.saturating_add(1);
        let is_connection =
            |id: BranchId| self.nodes.get(id).is_some_and(|node| matches!(node.key, Some(SourceKey::Connection(_))));
        // A client that holds nothing has no branch here; the client is a connection if the holder's branch is one.
        let between_connections = of_holder.is_some_and(is_connection) && of_other.is_none_or(is_connection);
        Some(SlotExcess { held: holder.0.map(held), between_connections, ratio })
    }

    /// Numbers of slots that `source` holds. All are the same for a connection that is a source of its own.
    pub(super) fn slots_held(&self, source: &ClientSource) -> HeldSlots {
        let branches = self.find_branches(source);
        let held = |level: usize| {
            let branch = branches.0.get(level).copied().flatten();
            branch.and_then(|id| self.nodes.get(id)).map_or(0, |node| node.counts.held)
        };
        let levels = source.branch_keys().count();
        HeldSlots { network: held(1), source: held(levels.saturating_sub(1).max(1)), connection: held(levels) }
    }

    /// The source that holds most, of the sources that hold at least two slots more than `taker` where the two part.
    /// `None` if there is none, or the tree is not ranked. The result is a connection if that is a source of its own,
    /// or `taker` is another connection of its source.
    pub(super) fn largest_source(&self, taker: &ClientSource) -> Option<BranchId> {
        let (mut at, mut node) = (self.root, self.nodes.get(self.root)?);
        for key in taker.branch_keys() {
            let own = self.children.get(&(at, key)).and_then(|id| Some((*id, self.nodes.get(*id)?)));
            let &(most, heaviest) = node.by_slots.last()?;
            if most >= own.map_or(0, |(_, node)| node.counts.held).saturating_add(2) {
                return Some(self.heaviest_source(heaviest));
            }
            (at, node) = own?;
        }
        None
    }

    /// Whether another network holds at least two slots more than that of `taker`. False if the tree is not ranked.
    pub(super) fn has_larger_network(&self, taker: &ClientSource) -> bool {
        let own = self.slots_held(taker).network;
        let most = self.nodes.get(self.root).and_then(|root| root.by_slots.last());
        most.is_some_and(|(most, _)| *most >= own.saturating_add(2))
    }

    /// The source with most slots in `network`, which may be a source itself.
    fn heaviest_source(&self, network: BranchId) -> BranchId {
        let mut at = network;
        while let Some((_, child)) = self.nodes.get(at).and_then(|node| node.by_slots.last()).copied()
            && self.connection_of_branch(child).is_none()
        {
            at = child;
        }
        at
    }

    /// Numbers of the connections of `source` that use a slot.
    pub(super) fn connections_of_source(&self, source: BranchId) -> impl Iterator<Item = u64> {
        let below = self.nodes.get(source).into_iter().flat_map(|node| &node.by_slots);
        self.connection_of_branch(source)
            .into_iter()
            .chain(below.filter_map(|(_, child)| self.connection_of_branch(*child)))
    }

    fn connection_of_branch(&self, id: BranchId) -> Option<u64> {
        match self.nodes.get(id)?.key {
            Some(SourceKey::Connection(number)) => Some(number),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Orders all branches by their queues, unless they are ordered already.
    fn order_queues(&mut self) {
        if std::mem::replace(&mut self.sheds, true) {
            return;
        }
        let queues: Vec<_> = self.nodes.iter().map(|(id, node)| (node.parent, node.counts.queue_rank(id))).collect();
        for (parent, queue) in queues {
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.by_queue.extend(queue);
            }
        }
    }

    fn advance_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    fn next_leaf(&self) -> Option<BranchId> {
        self.descend_from_root(|node| node.by_turn.first())
    }

    /// The connection that `choose` leads to from the root.
    fn descend_from_root(&self, choose: impl Fn(&BranchNode<W>) -> Option<&(u32, u64, BranchId)>) -> Option<BranchId> {
        Some(self.descend_from(self.root, choose)).filter(|leaf| *leaf != self.root)
    }

    fn descend_from(
        &self,
        branch: BranchId,
        choose: impl Fn(&BranchNode<W>) -> Option<&(u32, u64, BranchId)>,
    ) -> BranchId {
        let mut at = branch;
        while let Some((_, _, child)) = self.nodes.get(at).and_then(&choose) {
            at = *child;
        }
        at
    }

    /// The branch of the connection of `source`; missing branches are added.
    fn ensure_branch(&mut self, source: &ClientSource) -> BranchId {
        source.branch_keys().fold(self.root, |parent, key| match self.children.entry((parent, key)) {
            Entry::Occupied(child) => *child.get(),
            Entry::Vacant(vacant) => *vacant.insert(self.nodes.insert(BranchNode::new(parent, Some(key)))),
        })
    }

    /// Applies `change` to the connection `leaf` and all branches above. Branches that count nothing any more are
    /// removed.
    fn apply_change(&mut self, leaf: BranchId, change: CountChange) {
        let (mut at, sheds) = (leaf, self.sheds);
        while let Some(node) = self.nodes.get_mut(at) {
            let before = node.counts;
            node.counts = before.counts_after(change);
            let (after, parent, key) = (node.counts, node.parent, node.key);
            let ranked = self.ranked;
            let Some(above) = self.nodes.get_mut(parent) else {
                // At the root: without a waiting request, no branch is ordered.
                self.sheds &= after.waiting > 0;
                return;
            };
            replace_in_set(&mut above.by_turn, before.turn_rank(at), after.turn_rank(at));
            if sheds {
                replace_in_set(&mut above.by_queue, before.queue_rank(at), after.queue_rank(at));
            }
            if ranked {
                replace_in_set(&mut above.by_slots, before.slot_rank(at), after.slot_rank(at));
            }
            if let Some(key) = key.filter(|_| after.held == 0 && after.waiting == 0) {
                self.nodes.try_remove(at);
                self.children.remove(&(parent, key));
            }
            at = parent;
        }
    }
}

impl<W> BranchNode<W> {
    fn new(parent: BranchId, key: Option<SourceKey>) -> Self {
        Self {
            parent,
            key,
            counts: BranchCounts::default(),
            by_turn: BTreeSet::new(),
            by_queue: BTreeSet::new(),
            by_slots: BTreeSet::new(),
            queue: BTreeMap::new(),
        }
    }
}

fn replace_in_set<T: Ord + Copy>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&before);
    }
    set.extend(after);
}

impl BranchCounts {
    /// Sort key of the branch `id` by its turn, if a request waits in the branch.
    fn turn_rank(self, id: BranchId) -> Option<(u32, u64, BranchId)> {
        (self.waiting > 0).then_some((self.held, self.turn, id))
    }

    /// Sort key of the branch `id` by the length of its queue.
    fn queue_rank(self, id: BranchId) -> Option<(u32, u64, BranchId)> {
        (self.waiting > 0).then_some((self.waiting, self.newest, id))
    }

    /// Sort key of the branch `id` by the slots that the branch uses.
    fn slot_rank(self, id: BranchId) -> Option<(u32, BranchId)> {
        (self.held > 0).then_some((self.held, id))
    }

    fn counts_after(self, change: CountChange) -> Self {
        let Self { held, waiting, turn, newest } = self;
        match change {
            CountChange::Hold => Self { held: held.saturating_add(1), ..self },
            CountChange::Release => Self { held: held.saturating_sub(1), ..self },
            CountChange::Wait(number) => {
                let turn = if waiting == 0 { number } else { turn };
                Self { waiting: waiting.saturating_add(1), turn, newest: number, ..self }
            }
            CountChange::Leave => Self { waiting: waiting.saturating_sub(1), newest, ..self },
            CountChange::Grant(turn) => {
                Self { held: held.saturating_add(1), waiting: waiting.saturating_sub(1), turn, newest }
            }
        }
    }
}
