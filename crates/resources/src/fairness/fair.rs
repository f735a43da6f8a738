//! One pool that clients share: its slots, and the queue for them. While no request waits, a slot is taken and given
//! back without a look at its source; counters by source exist only from the first wait until no request waits and less
//! than half of the slots are in use. Pure.

use super::{
    source::Source,
    tree::{Branches, Excess, Id, Tree},
};
use slab::Slab;
use std::time::Instant;

/// A pool of slots, with a queue of requests `W`. One source may use all slots while no other source waits. A slot that
/// becomes free goes to the source that holds least, and a full queue loses the newest request of the source with the
/// longest queue.
#[derive(Debug)]
pub struct Fair<W> {
    /// Slots that may be in use.
    limit: u32,
    slots: Slab<Held>,
    /// Counters by source.
    tree: Option<Tree<Waiting<W>>>,
    /// Whether its counters say who holds most.
    ranked: bool,
    /// The last number that former counters gave a request: a place in the queue is never another request's.
    last: u64,
}

/// A slot in use.
#[derive(Debug)]
struct Held {
    source: Source,
    /// The branch of its connection, while there is a tree.
    leaf: Option<Id>,
}

#[derive(Debug)]
struct Waiting<W> {
    source: Source,
    since: Instant,
    request: W,
}

/// The number of a slot in use: to be given back to its pool once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Slot(usize);

/// The place of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    leaf: Id,
    number: u64,
}

/// The outcome of joining the queue.
#[derive(Debug)]
pub enum Waited<W> {
    /// The request waits. A full queue lost another request for it.
    Queued(Place, Option<W>),
    /// The queue is full, and the request's own source has most of it.
    Refused(W),
}

/// The request to which the next free slot goes.
#[derive(Debug)]
pub struct Next<'a, W> {
    /// When it began to wait.
    pub since: Instant,
    /// The request.
    pub request: &'a W,
    /// The client of the request.
    pub source: Source,
    /// The branches of its client, for [`Fair::excess`].
    pub branches: Branches,
}

impl Slot {
    /// The slot's index: smaller than the largest number of slots that were in use at once.
    pub const fn index(self) -> usize {
        self.0
    }
}

impl<W> Fair<W> {
    /// A pool of `limit` slots.
    pub const fn new(limit: u32) -> Self {
        Self { limit, slots: Slab::new(), tree: None, ranked: false, last: 0 }
    }

    /// A pool of `limit` slots that also finds the source that holds most ([`Fair::giver`]). Its counters cost more.
    pub const fn ranked(limit: u32) -> Self {
        Self { limit, slots: Slab::new(), tree: None, ranked: true, last: 0 }
    }

    /// Sets the number of slots. More than that may be in use until they are given back; if there are more,
    /// [`Fair::grant`] has to be called.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Slots in use.
    pub fn taken(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether all slots are in use.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.limit
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        self.tree.as_ref().map_or(0, Tree::waiting)
    }

    /// A slot for `source`; `None` if all are in use, or other requests wait.
    pub fn take(&mut self, source: Source) -> Option<Slot> {
        (self.taken() < self.limit && self.waiting() == 0).then(|| self.insert(source))
    }

    /// A slot for `source` although all may be in use.
    pub fn take_beyond(&mut self, source: Source) -> Slot {
        self.insert(source)
    }

    /// Gives `slot` back. Requests that wait get slots by [`Fair::grant`], which the caller calls next.
    pub fn give_back(&mut self, Slot(slot): Slot) {
        let Some(held) = self.slots.try_remove(slot) else { return };
        if let (Some(tree), Some(leaf)) = (&mut self.tree, held.leaf) {
            tree.release(leaf);
        }
        self.forget();
    }

    /// The slot now belongs to `source`: its client's address has become known.
    pub fn rename(&mut self, Slot(slot): Slot, source: Source) {
        let Some(held) = self.slots.get_mut(slot) else { return };
        held.source = source;
        if let Some(tree) = &mut self.tree {
            let before = held.leaf.replace(tree.hold(&source));
            if let Some(leaf) = before {
                tree.release(leaf);
            }
        }
    }

    /// Has `request` of `source` wait since `since`, in a queue of at most `most` requests.
    pub fn wait(&mut self, source: Source, since: Instant, most: u32, request: W) -> Waited<W> {
        let tree = self.grow();
        let (leaf, number) = tree.wait(&source, Waiting { source, since, request });
        if tree.waiting() <= most {
            return Waited::Queued(Place { leaf, number }, None);
        }
        match tree.shed() {
            Some((shed, own)) if shed == number => {
                self.forget();
                Waited::Refused(own.request)
            }
            shed => Waited::Queued(Place { leaf, number }, shed.map(|(_, other)| other.request)),
        }
    }

    /// Removes a request from the queue; `None` if it has left it already.
    pub fn leave(&mut self, Place { leaf, number }: Place) -> Option<W> {
        let left = self.tree.as_mut()?.leave(leaf, number)?;
        self.forget();
        Some(left.request)
    }

    /// Gives a free slot to the request that is next; `None` if there is no free slot or no request. To be called until
    /// it returns `None` after every change that may have freed a slot.
    pub fn grant(&mut self) -> Option<(W, Slot)> {
        if self.taken() >= self.limit {
            return None;
        }
        let (leaf, Waiting { source, request, .. }) = self.tree.as_mut()?.grant()?;
        let slot = Slot(self.slots.insert(Held { source, leaf: Some(leaf) }));
        self.forget();
        Some((request, slot))
    }

    /// The request to which the next free slot goes, and then the one that is next in each other network.
    pub fn next(&self) -> impl Iterator<Item = Next<'_, W>> {
        self.tree.iter().flat_map(|tree| {
            tree.peek().map(|(leaf, Waiting { source, since, request })| {
                let (since, source) = (*since, *source);
                Next { since, request, source, branches: tree.branches_of(leaf) }
            })
        })
    }

    /// The slots in use.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().map(|(slot, _)| Slot(slot))
    }

    /// The source of a slot in use.
    pub fn source(&self, Slot(slot): Slot) -> Option<Source> {
        self.slots.get(slot).map(|held| held.source)
    }

    /// The branches of `source`, which may hold and wait for nothing. Has counters made, for [`Fair::excess`].
    pub fn branches(&mut self, source: &Source) -> Branches {
        self.grow().branches(source)
    }

    /// By how much the holder of `slot` holds more than the client with `branches`; `None` if it holds less than two
    /// slots more.
    pub fn excess(&self, Slot(slot): Slot, branches: &Branches) -> Option<Excess> {
        self.tree.as_ref()?.excess(self.slots.get(slot)?.leaf?, branches)
    }

    /// Whether `source` may take another slot of a pool whose slots cannot be taken back: any source until an eighth of
    /// the pool is left, then sources that hold no slot, and of the last sixteenth those in whose widest network (/24,
    /// /48) no slot is held.
    pub fn admits_to_the_last(&mut self, source: &Source) -> bool {
        let left = self.limit.saturating_sub(self.taken());
        if left > self.limit / 8 {
            return true;
        }
        let (in_network, own) = self.grow().held(source);
        left > 0 && if left > self.limit / 16 { own == 0 } else { in_network == 0 }
    }

    /// The connections of the source that holds most, of those that hold at least two slots more than `taker` where the
    /// two part; none if there is no such source. Of a [`Fair::ranked`] pool; has counters made.
    pub fn giver(&mut self, taker: &Source) -> impl Iterator<Item = u64> {
        let tree = &*self.grow();
        tree.giver(taker).into_iter().flat_map(|source| tree.connections(source))
    }

    /// Whether another of the widest networks (/24, /48) holds at least two slots more than that of `taker`. Of a
    /// [`Fair::ranked`] pool; has counters made.
    pub fn has_larger_network(&mut self, taker: &Source) -> bool {
        self.grow().has_larger_network(taker)
    }

    /// Slots that `source` itself uses. Without counters all slots are looked at: not for the usual path of a request.
    pub fn held_by(&self, source: &Source) -> u32 {
        match &self.tree {
            Some(tree) => tree.held(source).1,
            None => {
                let own = self.slots.iter().filter(|(_, held)| held.source.is_beside(source)).count();
                u32::try_from(own).unwrap_or(u32::MAX)
            }
        }
    }

    fn insert(&mut self, source: Source) -> Slot {
        let leaf = self.tree.as_mut().map(|tree| tree.hold(&source));
        Slot(self.slots.insert(Held { source, leaf }))
    }

    /// The counters, made from the slots in use if there are none.
    fn grow(&mut self) -> &mut Tree<Waiting<W>> {
        self.tree.get_or_insert_with(|| {
            let mut tree = Tree::new(self.ranked, self.last);
            for (_, held) in &mut self.slots {
                held.leaf = Some(tree.hold(&held.source));
            }
            tree
        })
    }

    /// Drops the counters once no request waits and less than half of the slots are in use.
    fn forget(&mut self) {
        if self.tree.as_ref().is_some_and(|tree| tree.waiting() == 0) && self.taken() < self.limit.div_ceil(2) {
            // Places of the past stay what they are: numbers are used once.
            self.last = self.tree.take().map_or(self.last, |tree| tree.last());
        }
    }
}

#[cfg(test)]
mod tests;
