//! Keeps the table of an endpoint's logs.

use crate::qlog::{ConnectionLog, LogOrder};
use std::{collections::HashMap, sync::Arc};

/// Logs of an endpoint, behind the endpoint's lock.
#[derive(Debug, Default)]
pub(super) struct ConnectionLogs {
    /// Logs by s2n-quic's ID of the connection.
    pub(super) by_connection: HashMap<u64, Arc<ConnectionLog>>,
    /// Orders that wait for a new connection, with the worker.
    pub(super) waiting: Vec<(Arc<LogOrder>, usize)>,
}

impl ConnectionLogs {
    /// Number of logs and waiting orders.
    pub(super) fn active_count(&self) -> u64 {
        (self.by_connection.len() + self.waiting.len()) as u64
    }

    /// Removes the logs and waiting entries of orders that are over. The result must not be dropped under the lock.
    #[must_use]
    pub(super) fn take_ended(&mut self) -> Vec<Arc<ConnectionLog>> {
        self.waiting.retain(|(order, _)| !order.is_over());
        self.by_connection.extract_if(|_, log| log.is_order_over()).map(|(_, log)| log).collect()
    }
}
