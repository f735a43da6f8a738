//! Logs of an endpoint's connections (`quic::qlog`): which connections have one, and orders that wait for a connection
//! to begin. While there is neither, a packet costs a load and a branch.

use super::{connection_logs::ConnectionLogs, endpoint_state::EndpointState};
use crate::qlog::{ConnectionLog, LogOrder};
use s2n_quic_core::path::Tuple;
use std::{net::SocketAddr, sync::Arc};

impl EndpointState {
    /// Logs the next connection of this endpoint of `worker` that begins and that `order` selects.
    pub fn log_next_connection(&self, order: &Arc<LogOrder>, worker: usize) {
        self.change_logs(|logs| logs.waiting.push((Arc::clone(order), worker)));
    }

    /// Logs the open `connection`, by s2n-quic's ID, by `order`, unless it has a log, or the order has no place.
    pub(super) fn add_open_log(&self, connection: u64, order: &Arc<LogOrder>, worker: usize) {
        let known = self.with_table(|table| {
            let has_log = table.logs.by_connection.contains_key(&connection);
            let connection = table.connections.connection_mut(connection).filter(|_| !has_log)?;
            Some((connection.path?, connection.ack_delay_exponent))
        });
        let Some((path, ack_delay_exponent)) = known else { return };
        let Some(log) = ConnectionLog::open_log(order, worker) else { return };
        let (client, local) = path_ends(&path);
        log.log_tuple(0, client, local);
        log.set_ack_delay_exponent(ack_delay_exponent);
        self.change_logs(|logs| logs.by_connection.insert(connection, log));
    }

    /// Drops what belongs to orders that are over.
    pub fn drop_ended_logs(&self) {
        drop(self.change_logs(ConnectionLogs::take_ended));
    }

    /// The log of a connection, by s2n-quic's ID, if it has one.
    pub(super) fn connection_log(&self, connection: u64) -> Option<Arc<ConnectionLog>> {
        if !self.at_hand.has_logs() {
            return None;
        }
        self.lookup_log(connection)
    }

    #[cold]
    fn lookup_log(&self, connection: u64) -> Option<Arc<ConnectionLog>> {
        self.with_table(|table| table.logs.by_connection.get(&connection).map(Arc::clone))
    }

    /// A connection on `path` begins.
    pub(super) fn log_new_connection(&self, connection: u64, path: &Tuple) {
        if !self.at_hand.has_logs() {
            return;
        }
        let (client, local) = path_ends(path);
        let waiting = self.with_table(|table| table.logs.waiting.clone());
        let order = waiting.iter().find(|(order, _)| !order.is_over() && order.selects_client(client));
        if let Some(log) = order.and_then(|(order, worker)| ConnectionLog::open_log(order, *worker)) {
            log.log_started(client, local);
            log.log_tuple(0, client, local);
            self.change_logs(|logs| logs.by_connection.insert(connection, log));
        }
    }

    /// A connection has ended.
    pub(super) fn end_log(&self, connection: u64) {
        if self.at_hand.has_logs() {
            drop(self.change_logs(|logs| logs.by_connection.remove(&connection)));
        }
    }

    /// Has `change` change the logs, and counts them.
    fn change_logs<T>(&self, change: impl FnOnce(&mut ConnectionLogs) -> T) -> T {
        let (changed, count) = self.with_table(|table| (change(&mut table.logs), table.logs.active_count()));
        self.at_hand.set_logs(count);
        changed
    }
}

/// The client's end of a path, and litequic's.
pub(super) fn path_ends(path: &Tuple) -> (SocketAddr, SocketAddr) {
    (path.remote_address.0.into(), path.local_address.0.into())
}
