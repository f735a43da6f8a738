//! Shares one worker's descriptors for connections to origins among its pools, decides which idle connection is closed
//! for another server's request, and holds the memory for spooled responses.

use super::capacity::{Capacity, DerivedLimits};
use super::server_pool::ServerPool;
use crate::metrics::ProxyMetrics;
use litequic_resources::{
    descriptors::{Descriptor, ProxySide},
    memory::{MemoryPressure, MemoryStep},
};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
};

/// Most bytes of one response that are spooled into memory.
const MAX_SPOOLED_BODY: u64 = 256 * 1024;
/// Most bytes of all spooled responses of a worker.
const MAX_SPOOLED: u64 = 16 * 1024 * 1024;

/// Resources that the pools of one worker share.
#[derive(Debug)]
pub(crate) struct PoolResources {
    capacity: Arc<Capacity>,
    /// Number of idle connections of all pools.
    idle: Cell<u32>,
    pools: RefCell<Vec<Weak<ServerPool>>>,
    /// Memory for spooled responses, whose connection is needed.
    pub(super) spool_budget: Rc<SpoolBudget>,
    metrics: Arc<ProxyMetrics>,
}

/// Counts an idle connection until this is dropped.
#[derive(Debug)]
pub(super) struct IdleCount(Rc<PoolResources>);

impl Drop for IdleCount {
    fn drop(&mut self) {
        self.0.idle.set(self.0.idle.get().saturating_sub(1));
    }
}

impl PoolResources {
    /// A worker's part of `capacity`, without a pool yet. No response is spooled into memory while `pressure` says that
    /// memory is short.
    pub(crate) fn new(capacity: &Arc<Capacity>, metrics: &Arc<ProxyMetrics>, pressure: MemoryPressure) -> Rc<Self> {
        Rc::new(Self {
            capacity: Arc::clone(capacity),
            idle: Cell::new(0),
            pools: RefCell::default(),
            spool_budget: SpoolBudget::new(pressure, metrics),
            metrics: Arc::clone(metrics),
        })
    }

    /// Defaults of `origin.max_connections` and `origin.max_queue` in force.
    pub(super) fn current_limits(&self) -> DerivedLimits {
        self.capacity.derived_limits()
    }

    /// Registers `pool`, whose idle connections may be closed for other pools from now on.
    pub(super) fn register_pool(&self, pool: Weak<ServerPool>) {
        let mut pools = self.pools.borrow_mut();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    /// Takes a descriptor for a connection to an origin. If none is free, the connection of this worker that has been
    /// idle for the longest time is closed; if none is idle, the future waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the wait.
    pub(crate) async fn acquire_descriptor(&self) -> Descriptor {
        let descriptors = &self.capacity.descriptors;
        if let Some(descriptor) = descriptors.take_descriptor(ProxySide::Origins) {
            return descriptor;
        }
        self.metrics.limit_origin_descriptors.increment();
        while self.close_longest_idle() {
            if let Some(descriptor) = descriptors.take_descriptor(ProxySide::Origins) {
                return descriptor;
            }
        }
        descriptors.wait_for_origin_descriptor().await
    }

    /// Takes another descriptor for a connection that is being opened, if one is free that no request waits for.
    pub(super) fn spare_descriptor(&self) -> Option<Descriptor> {
        let descriptors = &self.capacity.descriptors;
        if descriptors.has_waiting_origin() { None } else { descriptors.take_descriptor(ProxySide::Origins) }
    }

    /// Ends the streaming calls of all pools.
    pub(crate) fn end_streaming_calls(&self) {
        let pools: Vec<_> = self.pools.borrow().iter().filter_map(Weak::upgrade).collect();
        pools.iter().for_each(|pool| pool.end_streaming_calls());
    }

    /// Closes the connection of this worker that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_longest_idle(&self) -> bool {
        let pools: Vec<_> = self.pools.borrow().iter().filter_map(Weak::upgrade).collect();
        let longest =
            pools.iter().filter_map(|pool| Some((pool.longest_idle_since()?, pool))).min_by_key(|(since, _)| *since);
        longest.is_some_and(|(_, pool)| pool.close_oldest_idle())
    }

    /// Counts another idle connection; `None`, and counted, if it is to be closed: because idle connections have their
    /// part of the descriptors, or because a request waits for one.
    pub(super) fn count_idle(self: &Rc<Self>) -> Option<IdleCount> {
        let Capacity { descriptors, workers, .. } = &*self.capacity;
        let idle = self.idle.get();
        if idle >= descriptors.division().max_idle_origins() / workers || descriptors.has_waiting_origin() {
            self.metrics.limit_idle_descriptors.increment();
            return None;
        }
        self.idle.set(idle.saturating_add(1));
        Some(IdleCount(Rc::clone(self)))
    }
}

/// A worker's memory for spooled responses.
#[derive(Debug)]
pub(crate) struct SpoolBudget {
    reserved: Cell<u64>,
    pressure: MemoryPressure,
    pub(crate) metrics: Arc<ProxyMetrics>,
}

/// Memory for one spooled response, released when dropped.
#[derive(Debug)]
pub(crate) struct SpoolReservation {
    pub(crate) budget: Rc<SpoolBudget>,
    pub(crate) bytes: u64,
}

impl SpoolBudget {
    /// A budget without reservations. No response is spooled while `pressure` says that buffers shrink.
    pub(crate) fn new(pressure: MemoryPressure, metrics: &Arc<ProxyMetrics>) -> Rc<Self> {
        Rc::new(Self { reserved: Cell::new(0), pressure, metrics: Arc::clone(metrics) })
    }

    /// Reserves memory for a rest of `bytes`; `None` if that is too much, or memory is short.
    pub(crate) fn reserve_spool(self: &Rc<Self>, bytes: u64) -> Option<SpoolReservation> {
        let held = self.reserved.get().saturating_add(bytes);
        let fits =
            bytes <= MAX_SPOOLED_BODY && held <= MAX_SPOOLED && self.pressure.pressure_step() < MemoryStep::Shrink;
        fits.then(|| {
            self.reserved.set(held);
            SpoolReservation { budget: Rc::clone(self), bytes }
        })
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        self.budget.reserved.set(self.budget.reserved.get().saturating_sub(self.bytes));
    }
}
