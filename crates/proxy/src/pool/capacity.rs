//! Computes the resources of connections to origins: the descriptors of the process, and the defaults of
//! `origin.max_connections` and `origin.max_queue`, which follow from descriptors, workers and memory. Pure apart from
//! the cell that a reload updates.

use litequic_resources::descriptors::{DescriptorDivision, Descriptors, ProxySide};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Largest derived `origin.max_connections`: nginx' default of `worker_connections`, which most servers accept.
const MAX_DERIVED_CONNECTIONS: u32 = 512;
/// Smallest derived `origin.max_connections`: with fewer, requests of one page wait for each other.
const MIN_DERIVED_CONNECTIONS: u32 = 16;
/// Largest derived `origin.max_queue`: several times what a load test or a busy minute has in flight. More would be
/// answered after `timeouts.queue` only by origins that serve 500 requests a second.
const MAX_DERIVED_QUEUE: u32 = 32_768;
/// Smallest derived `origin.max_queue`.
const MIN_DERIVED_QUEUE: u32 = 256;
/// Divisor of the memory for connections to origins in use, in normal operation: an eighth.
const CONNECTIONS_MEMORY_DIVISOR: u64 = 8;
/// Divisor of the memory for requests in queues, which streams hold in any case: a quarter.
const QUEUE_MEMORY_DIVISOR: u64 = 4;
/// Bytes of a connection to an origin in use, in normal operation: its first read of 16 KiB, buffers and state, and the
/// part of a response that waits for a slow client (docs/architecture.md).
const CONNECTION_BYTES: u64 = 72 * 1024;
/// Bytes of a request that waits: its head, its stream, its tasks, and the part of a short upload that was read ahead.
/// With the header of a browser it takes some 21 KiB in a development build (docs/architecture.md).
const QUEUED_REQUEST_BYTES: u64 = 32 * 1024;

/// Defaults of an origin's bounds, for one worker and one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DerivedLimits {
    /// Default of `origin.max_connections`.
    pub max_connections: u32,
    /// Default of `origin.max_queue`.
    pub max_queue: u32,
}

impl Default for DerivedLimits {
    /// The defaults without a bound of descriptors or memory.
    fn default() -> Self {
        Self { max_connections: MAX_DERIVED_CONNECTIONS, max_queue: MAX_DERIVED_QUEUE }
    }
}

impl DerivedLimits {
    /// The defaults for this number of `workers` and of `servers` of all origins, where descriptors are divided by
    /// `division` and the process may use `memory` bytes.
    pub fn new(division: &DescriptorDivision, memory: u64, workers: usize, servers: usize) -> Self {
        let pools = (workers as u64).max(1).saturating_mul((servers as u64).max(1));
        let bounded =
            |number: u64, least: u32, most: u32| u32::try_from(number / pools).unwrap_or(u32::MAX).clamp(least, most);
        let descriptors = u64::from(division.max_for_side(ProxySide::Origins));
        let connections = descriptors.min(memory / CONNECTIONS_MEMORY_DIVISOR / CONNECTION_BYTES);
        Self {
            max_connections: bounded(connections, MIN_DERIVED_CONNECTIONS, MAX_DERIVED_CONNECTIONS),
            max_queue: bounded(
                memory / QUEUE_MEMORY_DIVISOR / QUEUED_REQUEST_BYTES,
                MIN_DERIVED_QUEUE,
                MAX_DERIVED_QUEUE,
            ),
        }
    }
}

/// Resources of all workers' connections to origins. A reload changes the numbers, and no pool.
#[derive(Debug)]
pub struct Capacity {
    /// Descriptors of the process.
    pub descriptors: Arc<Descriptors>,
    /// Number of workers that share the descriptors.
    pub workers: u32,
    max_connections: AtomicU32,
    max_queue: AtomicU32,
}

impl Default for Capacity {
    /// A capacity without bounds, of one worker.
    fn default() -> Self {
        Self::new(Arc::default(), 1, DerivedLimits::default())
    }
}

impl Capacity {
    /// The capacity of `workers` workers that share `descriptors`, with the defaults `derived`.
    pub fn new(descriptors: Arc<Descriptors>, workers: usize, derived: DerivedLimits) -> Self {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
        let DerivedLimits { max_connections, max_queue } = derived;
        Self { descriptors, workers, max_connections: max_connections.into(), max_queue: max_queue.into() }
    }

    /// Replaces the defaults.
    pub fn set_derived(&self, derived: DerivedLimits) {
        self.max_connections.store(derived.max_connections, Relaxed);
        self.max_queue.store(derived.max_queue, Relaxed);
    }

    /// Defaults in force.
    pub fn derived_limits(&self) -> DerivedLimits {
        DerivedLimits { max_connections: self.max_connections.load(Relaxed), max_queue: self.max_queue.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const GIB: u64 = 1024 * MIB;

    #[test]
    fn defaults_follow_from_descriptors_workers_servers_and_memory() {
        for (limit, memory, workers, servers, max_connections, max_queue) in [
            // A machine has 24 GiB.
            (1_048_576, 24 * GIB, 2, 1, 512, 32_768),
            (20_000, 24 * GIB, 2, 1, 512, 32_768),
            (1_048_576, 24 * GIB, 64, 1, 512, 3_072),
            (1_048_576, 24 * GIB, 2, 64, 341, 1_536),
            // A container and a sidecar have less.
            (1_048_576, GIB, 2, 1, 512, 4_096),
            (1_048_576, 64 * MIB, 1, 1, 113, 512),
            // A shell limits descriptors to 1024.
            (1_024, 24 * GIB, 2, 1, 206, 32_768),
            (1_024, 24 * GIB, 2, 64, 16, 1_536),
            (0, 0, 0, 0, 16, 256),
        ] {
            let division = DescriptorDivision { limit, fixed: 200 };
            let expected = DerivedLimits { max_connections, max_queue };
            assert_eq!(
                DerivedLimits::new(&division, memory, workers, servers),
                expected,
                "{limit} {memory} {workers} {servers}"
            );
        }
    }

    #[test]
    fn a_reload_changes_the_defaults_of_all() {
        let capacity = Arc::new(Capacity::default());
        let derived = DerivedLimits { max_connections: 7, max_queue: 9 };
        Arc::clone(&capacity).set_derived(derived);
        assert_eq!(capacity.derived_limits(), derived);
    }
}
