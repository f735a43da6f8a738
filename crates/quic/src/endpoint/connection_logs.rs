//! The table of an endpoint's logs.

use crate::qlog::{ConnectionLog, LogOrder};
use std::{collections::HashMap, sync::Arc};

/// The logs of an endpoint, behind its lock.
#[derive(Debug, Default)]
pub(super) struct ConnectionLogs {
    /// By s2n-quic's ID of the connection.
    pub(super) by_connection: HashMap<u64, Arc<ConnectionLog>>,
    /// Orders that wait for a connection, and the worker.
    pub(super) waiting: Vec<(Arc<LogOrder>, usize)>,
}

impl ConnectionLogs {
    /// What there is of either.
    pub(super) fn active_count(&self) -> u64 {
        (self.by_connection.len() + self.waiting.len()) as u64
    }

    /// Removes what belongs to orders that are over. What is returned must not be dropped under the lock.
    #[must_use]
    pub(super) fn take_ended(&mut self) -> Vec<Arc<ConnectionLog>> {
        self.waiting.retain(|(order, _)| !order.is_over());
        self.by_connection.extract_if(|_, log| log.is_order_over()).map(|(_, log)| log).collect()
    }
}
