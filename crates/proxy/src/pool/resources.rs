//! One worker's view of the descriptors for connections to origins: who takes one, and which idle connection is closed
//! for another server's request; and their memory for rests of responses.

use super::capacity::{Capacity, Derived};
use crate::metrics::Metrics;
use litequic_resources::{
    descriptors::{Descriptor, Side},
    memory::{Pressure, Step},
};
use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::{Rc, Weak},
    sync::Arc,
};
use tokio::time::Instant;

/// Bytes of one response's rest that are taken into memory at most.
const REST: u64 = 256 * 1024;
/// Bytes of all rests of a worker.
const RESTS: u64 = 16 * 1024 * 1024;

/// What the pools of one worker share.
#[derive(Debug)]
pub(crate) struct Resources {
    capacity: Arc<Capacity>,
    /// Idle connections of all pools.
    idle: Cell<u32>,
    pools: RefCell<Vec<Weak<dyn IdleConnections>>>,
    /// Memory for rests of responses whose connection is needed.
    pub(super) rests: Rc<RestBudget>,
    metrics: Arc<Metrics>,
}

/// The idle connections of a pool.
pub(super) trait IdleConnections: fmt::Debug {
    /// Since when the connection is idle that has been so for the longest time; `None` without one.
    fn idle_since(&self) -> Option<Instant>;

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    fn close_longest_idle(&self) -> bool;
}

/// An idle connection, counted until this is dropped.
#[derive(Debug)]
pub(super) struct IdleCount(Rc<Resources>);

impl Drop for IdleCount {
    fn drop(&mut self) {
        self.0.idle.set(self.0.idle.get().saturating_sub(1));
    }
}

impl Resources {
    /// A worker's part of `capacity`, without a pool yet. Nothing is taken into memory to free a connection while
    /// `pressure` says that memory is short.
    pub(crate) fn new(capacity: &Arc<Capacity>, metrics: &Arc<Metrics>, pressure: Pressure) -> Rc<Self> {
        Rc::new(Self {
            capacity: Arc::clone(capacity),
            idle: Cell::new(0),
            pools: RefCell::default(),
            rests: RestBudget::new(pressure, metrics),
            metrics: Arc::clone(metrics),
        })
    }

    /// The defaults of `origin.max_connections` and `origin.max_queue` in force.
    pub(super) fn derived(&self) -> Derived {
        self.capacity.derived()
    }

    /// Idle connections of `pool` may be closed for other pools from now on.
    pub(super) fn register(&self, pool: Weak<dyn IdleConnections>) {
        let mut pools = self.pools.borrow_mut();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    /// A descriptor for a connection to an origin. If none is free, the connection of this worker that has been idle
    /// for the longest time is closed; if none is idle, the future waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the wait.
    pub(crate) async fn descriptor(&self) -> Descriptor {
        let descriptors = &self.capacity.descriptors;
        if let Some(descriptor) = descriptors.take(Side::Origins) {
            return descriptor;
        }
        self.metrics.limit_origin_descriptors.increment();
        while self.close_longest_idle() {
            if let Some(descriptor) = descriptors.take(Side::Origins) {
                return descriptor;
            }
        }
        descriptors.origin().await
    }

    /// Another descriptor for a connection that is being opened, if one is free that no request waits for.
    pub(super) fn spare_descriptor(&self) -> Option<Descriptor> {
        let descriptors = &self.capacity.descriptors;
        if descriptors.is_waited_for() { None } else { descriptors.take(Side::Origins) }
    }

    /// Closes the connection of this worker that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_longest_idle(&self) -> bool {
        let pools: Vec<_> = self.pools.borrow().iter().filter_map(Weak::upgrade).collect();
        let longest = pools.iter().filter_map(|pool| Some((pool.idle_since()?, pool))).min_by_key(|(since, _)| *since);
        longest.is_some_and(|(_, pool)| pool.close_longest_idle())
    }

    /// The count of another idle connection; `None`, and counted, if it is to be closed: because idle connections have
    /// their part of the descriptors, or because a request waits for one.
    pub(super) fn keep_idle(self: &Rc<Self>) -> Option<IdleCount> {
        let Capacity { descriptors, workers, .. } = &*self.capacity;
        let idle = self.idle.get();
        if idle >= descriptors.division().idle() / workers || descriptors.is_waited_for() {
            self.metrics.limit_idle_descriptors.increment();
            return None;
        }
        self.idle.set(idle.saturating_add(1));
        Some(IdleCount(Rc::clone(self)))
    }
}

/// A worker's memory for rests of responses.
#[derive(Debug)]
pub(crate) struct RestBudget {
    held: Cell<u64>,
    pressure: Pressure,
    pub(crate) metrics: Arc<Metrics>,
}

/// Memory for one rest. Given back when dropped.
#[derive(Debug)]
pub(crate) struct ReservedRest {
    pub(crate) budget: Rc<RestBudget>,
    pub(crate) bytes: u64,
}

impl RestBudget {
    /// A budget of which nothing is reserved. Nothing is taken into memory while `pressure` says that buffers shrink.
    pub(crate) fn new(pressure: Pressure, metrics: &Arc<Metrics>) -> Rc<Self> {
        Rc::new(Self { held: Cell::new(0), pressure, metrics: Arc::clone(metrics) })
    }

    /// Memory for a rest of `bytes`; `None` if that is too much, or memory is short.
    pub(crate) fn reserve(self: &Rc<Self>, bytes: u64) -> Option<ReservedRest> {
        let held = self.held.get().saturating_add(bytes);
        let fits = bytes <= REST && held <= RESTS && self.pressure.step() < Step::Shrink;
        fits.then(|| {
            self.held.set(held);
            ReservedRest { budget: Rc::clone(self), bytes }
        })
    }
}

impl Drop for ReservedRest {
    fn drop(&mut self) {
        self.budget.held.set(self.budget.held.get().saturating_sub(self.bytes));
    }
}
