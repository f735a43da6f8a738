//! Counters of a pool by source: networks in networks, connections below them. Each branch counts the slots that its
//! clients use and the requests of theirs that wait; the request that is next, and the one that is dropped from a full
//! queue, are found from the root downwards. Pure.

use super::source::{Source, SourceKey};
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    hash::RandomState,
};

/// Branches from the root to a connection: the root, three networks, and the connection.
const DEPTH: usize = 5;

/// The number of a branch in [`Tree::nodes`].
pub(super) type Id = usize;

/// Branches by source. There are as many as slots in use and waiting requests have networks and connections: four each
/// at most.
#[derive(Debug)]
pub(super) struct Tree<W> {
    nodes: Slab<Node<W>>,
    root: Id,
    /// Keys are addresses that clients choose: the hash has a random seed.
    children: HashMap<(Id, SourceKey), Id, RandomState>,
    /// Numbers of requests and of turns: a larger one is newer.
    last: u64,
    /// Whether branches are ordered by their queues: from the first request that a full queue loses until no request
    /// waits.
    sheds: bool,
    /// Whether [`Node::heaviest`] is kept.
    ranked: bool,
}

/// A network, a connection, or the root.
#[derive(Debug)]
struct Node<W> {
    parent: Id,
    key: Option<SourceKey>,
    counts: Counts,
    /// Children with a waiting request; the one whose turn it is first.
    needy: BTreeSet<(u32, u64, Id)>,
    /// Children with a waiting request, while requests are lost; the one with the longest queue last.
    queues: BTreeSet<(u32, u64, Id)>,
    /// Children that use a slot; the one that uses most last. Empty unless the tree is ranked.
    heaviest: BTreeSet<(u32, Id)>,
    /// The requests that wait, of a connection, by their numbers.
    queue: BTreeMap<u64, W>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    /// Slots in use.
    held: u32,
    /// Requests that wait.
    waiting: u32,
    /// When the branch began to wait, or got its last slot: of equal branches the smallest is next.
    turn: u64,
    /// The newest of its waiting requests: of queues of equal length the one with the largest loses a request.
    newest: u64,
}

/// The branches of one client, from the root to its connection; those that hold and wait for nothing do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branches([Option<Id>; DEPTH]);

/// By how much the holder of a slot holds more than another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excess {
    /// The slots that each branch of the holder uses, from the root down: the larger, the more it holds.
    held: [u32; DEPTH],
    /// Whether the two are connections of one source, or connections that are sources of their own.
    pub between_connections: bool,
    /// Slots of the holder's branch for each slot that the other would have after one more, where the two part; at
    /// least one.
    pub ratio: u32,
}

impl Excess {
    /// The excess of a source that holds `ratio` slots over one that holds none.
    pub const fn between_sources(ratio: u32) -> Self {
        Self { held: [ratio; DEPTH], between_connections: false, ratio }
    }
}

/// A change of counts on the way from a connection to the root.
#[derive(Debug, Clone, Copy)]
enum Change {
    Hold,
    Release,
    /// The request with this number begins to wait.
    Wait(u64),
    /// A request leaves the queue without a slot.
    Leave,
    /// A waiting request gets a slot, with the number of this turn.
    Grant(u64),
}

impl<W> Tree<W> {
    /// A tree without slots, whose numbers follow `last`. A `ranked` one finds who holds most ([`Tree::giver`]), and
    /// each of its changes costs more.
    pub(super) fn new(ranked: bool, last: u64) -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::new(Id::MAX, None));
        Self { nodes, root, children: HashMap::default(), last, sheds: false, ranked }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.nodes.get(self.root).map_or(0, |root| root.counts.waiting)
    }

    /// Counts a slot of `source`. Returns the connection's branch, for [`Tree::release`].
    pub(super) fn hold(&mut self, source: &Source) -> Id {
        let leaf = self.grow(source);
        self.change(leaf, Change::Hold);
        leaf
    }

    /// A slot of the connection `leaf` is no longer used.
    pub(super) fn release(&mut self, leaf: Id) {
        self.change(leaf, Change::Release);
    }

    /// Adds a request of `source` to the queue. Returns its connection's branch and its number.
    pub(super) fn wait(&mut self, source: &Source, request: W) -> (Id, u64) {
        let leaf = self.grow(source);
        let number = self.number();
        if let Some(node) = self.nodes.get_mut(leaf) {
            node.queue.insert(number, request);
        }
        self.change(leaf, Change::Wait(number));
        (leaf, number)
    }

    /// Removes a request that waits; `None` if it does no longer.
    pub(super) fn leave(&mut self, leaf: Id, number: u64) -> Option<W> {
        let request = self.nodes.get_mut(leaf)?.queue.remove(&number)?;
        self.change(leaf, Change::Leave);
        Some(request)
    }

    /// Gives a slot to the request that is next: on each level to the branch that holds least, of equal ones to the one
    /// whose last turn is the longest ago, and there to the oldest request. Returns its connection's branch.
    pub(super) fn grant(&mut self) -> Option<(Id, W)> {
        let leaf = self.next_leaf()?;
        let (_, request) = self.nodes.get_mut(leaf)?.queue.pop_first()?;
        let turn = self.number();
        self.change(leaf, Change::Grant(turn));
        Some((leaf, request))
    }

    /// The number of the newest request or turn.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// The request that is next, then the one that would be next in each other network, and their connections'
    /// branches.
    pub(super) fn peek(&self) -> impl Iterator<Item = (Id, &W)> {
        let networks = self.nodes.get(self.root).into_iter().flat_map(|root| &root.needy);
        networks.filter_map(|(_, _, network)| {
            let leaf = self.descend_from(*network, |node| node.needy.first());
            let (_, request) = self.nodes.get(leaf)?.queue.first_key_value()?;
            Some((leaf, request))
        })
    }

    /// Removes the newest request of the connection with the longest queue, on each level the branch with the longest.
    /// Returns its number.
    pub(super) fn shed(&mut self) -> Option<(u64, W)> {
        self.order_queues();
        let leaf = self.descend(|node| node.queues.last())?;
        let (number, request) = self.nodes.get_mut(leaf)?.queue.pop_last()?;
        self.change(leaf, Change::Leave);
        Some((number, request))
    }

    /// The branches of `source`.
    pub(super) fn branches(&self, source: &Source) -> Branches {
        let (mut branches, mut at) = (Branches([None; DEPTH]), Some(self.root));
        let mut path = source.path();
        for branch in &mut branches.0 {
            *branch = at;
            at = at.and_then(|parent| self.children.get(&(parent, path.next()?)).copied());
        }
        branches
    }

    /// The branches of the connection `leaf`.
    pub(super) fn branches_of(&self, leaf: Id) -> Branches {
        let mut up = [None; DEPTH];
        let mut at = Some(leaf);
        for id in &mut up {
            *id = at;
            at = at.and_then(|id| self.nodes.get(id)).map(|node| node.parent).filter(|parent| *parent != Id::MAX);
        }
        let mut branches = Branches([None; DEPTH]);
        branches.0.iter_mut().zip(up.into_iter().rev().flatten()).for_each(|(branch, id)| *branch = Some(id));
        branches
    }

    /// By how much the holder of a slot of the connection `leaf` holds more than the client with the branches `other`.
    /// `None` unless the holder's branch, where the two part, holds at least two slots more: below that, the transfer
    /// of a slot makes nothing more even.
    pub(super) fn excess(&self, leaf: Id, other: &Branches) -> Option<Excess> {
        let holder = self.branches_of(leaf);
        let held = |branch: Option<Id>| branch.and_then(|id| self.nodes.get(id)).map_or(0, |node| node.counts.held);
        let (of_holder, of_other) = holder.0.iter().zip(&other.0).find(|(holder, other)| holder != other)?;
        let (of_holder_held, of_other_held) = (held(*of_holder), held(*of_other));
        if of_holder_held < of_other_held.saturating_add(2) {
            return None;
        }
        let ratio = of_holder_held / of_other_held.saturating_add(1);
        let is_connection =
            |id: Id| self.nodes.get(id).is_some_and(|node| matches!(node.key, Some(SourceKey::Connection(_))));
        // A client that holds nothing has no branch here; it is a connection if the holder's branch is one.
        let between_connections = of_holder.is_some_and(is_connection) && of_other.is_none_or(is_connection);
        Some(Excess { held: holder.0.map(held), between_connections, ratio })
    }

    /// Slots that `source` uses: on the level of its widest network, and on that of the source itself. A connection
    /// that is a source of its own counts as itself on both.
    pub(super) fn held(&self, source: &Source) -> (u32, u32) {
        let branches = self.branches(source);
        let held = |branch: Option<Id>| branch.and_then(|id| self.nodes.get(id)).map_or(0, |node| node.counts.held);
        let own = source.path().count().saturating_sub(1).max(1);
        (held(branches.0.get(1).copied().flatten()), held(branches.0.get(own).copied().flatten()))
    }

    /// The source that holds most, of those that hold at least two slots more than `taker` where the two part. `None`
    /// if there is none, or the tree is not ranked. A connection, if it is a source of its own or `taker` is another of
    /// its source.
    pub(super) fn giver(&self, taker: &Source) -> Option<Id> {
        let (mut at, mut node) = (self.root, self.nodes.get(self.root)?);
        for key in taker.path() {
            let own = self.children.get(&(at, key)).and_then(|id| Some((*id, self.nodes.get(*id)?)));
            let &(most, heaviest) = node.heaviest.last()?;
            if most >= own.map_or(0, |(_, node)| node.counts.held).saturating_add(2) {
                return Some(self.heaviest_source(heaviest));
            }
            (at, node) = own?;
        }
        None
    }

    /// Whether a network beside that of `taker` holds at least two slots more than that. False if the tree is not
    /// ranked.
    pub(super) fn has_larger_network(&self, taker: &Source) -> bool {
        let (own, _) = self.held(taker);
        let most = self.nodes.get(self.root).and_then(|root| root.heaviest.last());
        most.is_some_and(|(most, _)| *most >= own.saturating_add(2))
    }

    /// The source with most slots of those in `network`, which may be one itself.
    fn heaviest_source(&self, network: Id) -> Id {
        let mut at = network;
        while let Some((_, child)) = self.nodes.get(at).and_then(|node| node.heaviest.last()).copied()
            && self.connection(child).is_none()
        {
            at = child;
        }
        at
    }

    /// The numbers of the connections of `source` that use a slot.
    pub(super) fn connections(&self, source: Id) -> impl Iterator<Item = u64> {
        let below = self.nodes.get(source).into_iter().flat_map(|node| &node.heaviest);
        self.connection(source).into_iter().chain(below.filter_map(|(_, child)| self.connection(*child)))
    }

    fn connection(&self, id: Id) -> Option<u64> {
        match self.nodes.get(id)?.key {
            Some(SourceKey::Connection(number)) => Some(number),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Orders all branches by their queues, unless they are.
    fn order_queues(&mut self) {
        if std::mem::replace(&mut self.sheds, true) {
            return;
        }
        let queues: Vec<_> = self.nodes.iter().map(|(id, node)| (node.parent, node.counts.queue(id))).collect();
        for (parent, queue) in queues {
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.queues.extend(queue);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    fn next_leaf(&self) -> Option<Id> {
        self.descend(|node| node.needy.first())
    }

    /// The connection that is reached from the root by `choose`.
    fn descend(&self, choose: impl Fn(&Node<W>) -> Option<&(u32, u64, Id)>) -> Option<Id> {
        Some(self.descend_from(self.root, choose)).filter(|leaf| *leaf != self.root)
    }

    fn descend_from(&self, branch: Id, choose: impl Fn(&Node<W>) -> Option<&(u32, u64, Id)>) -> Id {
        let mut at = branch;
        while let Some((_, _, child)) = self.nodes.get(at).and_then(&choose) {
            at = *child;
        }
        at
    }

    /// The branch of the connection of `source`, with those above it.
    fn grow(&mut self, source: &Source) -> Id {
        source.path().fold(self.root, |parent, key| match self.children.entry((parent, key)) {
            Entry::Occupied(child) => *child.get(),
            Entry::Vacant(vacant) => *vacant.insert(self.nodes.insert(Node::new(parent, Some(key)))),
        })
    }

    /// Applies `change` to the connection `leaf` and all branches above it. Branches that count nothing any more are
    /// removed.
    fn change(&mut self, leaf: Id, change: Change) {
        let (mut at, sheds) = (leaf, self.sheds);
        while let Some(node) = self.nodes.get_mut(at) {
            let before = node.counts;
            node.counts = before.after(change);
            let (after, parent, key) = (node.counts, node.parent, node.key);
            let ranked = self.ranked;
            let Some(above) = self.nodes.get_mut(parent) else {
                // The root: without a request that waits nothing is ordered.
                self.sheds &= after.waiting > 0;
                return;
            };
            replace(&mut above.needy, before.turn(at), after.turn(at));
            if sheds {
                replace(&mut above.queues, before.queue(at), after.queue(at));
            }
            if ranked {
                replace(&mut above.heaviest, before.rank(at), after.rank(at));
            }
            if let Some(key) = key.filter(|_| after.held == 0 && after.waiting == 0) {
                self.nodes.try_remove(at);
                self.children.remove(&(parent, key));
            }
            at = parent;
        }
    }
}

impl<W> Node<W> {
    fn new(parent: Id, key: Option<SourceKey>) -> Self {
        Self {
            parent,
            key,
            counts: Counts::default(),
            needy: BTreeSet::new(),
            queues: BTreeSet::new(),
            heaviest: BTreeSet::new(),
            queue: BTreeMap::new(),
        }
    }
}

fn replace<T: Ord + Copy>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&before);
    }
    set.extend(after);
}

impl Counts {
    /// The place of the branch `id` among those whose turn it is, if a request waits in it.
    fn turn(self, id: Id) -> Option<(u32, u64, Id)> {
        (self.waiting > 0).then_some((self.held, self.turn, id))
    }

    /// The place of the branch `id` by the length of its queue.
    fn queue(self, id: Id) -> Option<(u32, u64, Id)> {
        (self.waiting > 0).then_some((self.waiting, self.newest, id))
    }

    /// The place of the branch `id` by the slots that it uses.
    fn rank(self, id: Id) -> Option<(u32, Id)> {
        (self.held > 0).then_some((self.held, id))
    }

    fn after(self, change: Change) -> Self {
        let Self { held, waiting, turn, newest } = self;
        match change {
            Change::Hold => Self { held: held.saturating_add(1), ..self },
            Change::Release => Self { held: held.saturating_sub(1), ..self },
            Change::Wait(number) => {
                let turn = if waiting == 0 { number } else { turn };
                Self { waiting: waiting.saturating_add(1), turn, newest: number, ..self }
            }
            Change::Leave => Self { waiting: waiting.saturating_sub(1), newest, ..self },
            Change::Grant(turn) => {
                Self { held: held.saturating_add(1), waiting: waiting.saturating_sub(1), turn, newest }
            }
        }
    }
}
