//! How far the clients of a worker may send ahead all together: each connection's window is granted out of one budget
//! when it begins, and given back when it ends. s2n-quic cannot change a connection's window later.

use crate::{config::Limits, telemetry::WorkerMetrics};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use std::sync::{Arc, Mutex, PoisonError};

/// Grants windows of one worker's budget. What is out stands in the worker's gauge, which all its
/// endpoints and TCP listeners share.
///
/// s2n-quic asks for a connection's limits and makes its context one after the other: what was granted waits between.
#[derive(Debug, Clone)]
pub(super) struct Grants {
    metrics: Arc<WorkerMetrics>,
    waiting: Arc<Mutex<Option<Grant>>>,
}

impl Grants {
    pub(super) fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self { metrics, waiting: Arc::default() }
    }

    /// The window of the connection that begins now, in bytes.
    pub(super) fn begin(&self, limits: &Limits) -> u64 {
        // One that did not become a connection is given back first.
        drop(self.take());
        let bytes = limits.receive_window(self.metrics.receive_granted.get());
        if bytes < limits.connection_receive_buffer.into() {
            self.metrics.limit_receive_buffer.increment();
        }
        self.metrics.receive_granted.add(bytes);
        let grant = Grant { metrics: Arc::clone(&self.metrics), bytes };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).replace(grant);
        bytes
    }

    fn take(&self) -> Option<Grant> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One connection's window. Given back with s2n-quic's per-connection context.
#[derive(Debug)]
pub(super) struct Grant {
    metrics: Arc<WorkerMetrics>,
    bytes: u64,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.metrics.receive_granted.sub(self.bytes);
    }
}

impl Subscriber for Grants {
    type ConnectionContext = Option<Grant>;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Option<Grant> {
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOOR: u64 = Limits::RECEIVE_FLOOR;
    const MIB: u64 = 1024 * 1024;

    fn limits(connection: u64, worker: u64) -> Limits {
        Limits {
            connection_receive_buffer: connection.try_into().unwrap(),
            worker_receive_buffer: worker,
            ..Limits::default()
        }
    }

    #[test]
    fn a_window_is_a_share_of_what_is_left_within_its_bounds() {
        let table = [
            ("all is left", 2 * MIB, 256 * MIB, 0, 2 * MIB),
            ("half is left", 2 * MIB, 256 * MIB, 128 * MIB, 2 * MIB),
            ("a quarter is left", 2 * MIB, 256 * MIB, 192 * MIB, MIB),
            ("hardly anything is left", 2 * MIB, 256 * MIB, 255 * MIB, FLOOR),
            ("nothing is left", 2 * MIB, 256 * MIB, 256 * MIB, FLOOR),
            ("less than nothing is left", 2 * MIB, 256 * MIB, 300 * MIB, FLOOR),
            ("a connection may have less than the floor", 16 * 1024, 256 * MIB, 300 * MIB, 16 * 1024),
        ];
        for (what, connection, worker, granted, expected) in table {
            assert_eq!(limits(connection, worker).receive_window(granted), expected, "{what}");
        }
    }

    #[test]
    fn what_was_granted_is_given_back_whether_or_not_it_became_a_connection() {
        let metrics = Arc::<WorkerMetrics>::default();
        let grants = Grants::new(Arc::clone(&metrics));
        let limits = limits(2 * MIB, 256 * MIB);
        assert_eq!(grants.begin(&limits), 2 * MIB);
        let connection = grants.take();
        assert_eq!(grants.begin(&limits), 2 * MIB); // came to nothing
        assert_eq!(grants.begin(&limits), 2 * MIB);
        assert_eq!(metrics.receive_granted.get(), 4 * MIB);
        drop(grants.take());
        drop(connection);
        assert_eq!(metrics.receive_granted.get(), 0);
    }

    proptest! {
        #[test]
        fn any_number_of_connections_has_the_budget_and_a_floor_each_at_most(
            connection in 16 * 1024..64 * MIB, worker in 16 * 1024..1024 * MIB, count in 0u64..2000,
        ) {
            let limits = limits(connection, worker);
            let granted = (0..count).fold(0, |granted, _| granted + limits.receive_window(granted));
            prop_assert!(granted <= worker + count * FLOOR);
        }
    }
}
