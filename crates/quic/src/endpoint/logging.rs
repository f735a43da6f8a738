//! Manages logs of an endpoint's connections (`quic::qlog`): logged connections, and orders that wait for a new
//! connection. Without either, a packet costs a load and a branch.

use super::{connection_logs::ConnectionLogs, endpoint_state::EndpointState};
use crate::qlog::{ConnectionLog, LogOrder};
use s2n_quic_core::path::Tuple;
use std::{net::SocketAddr, sync::Arc};

impl EndpointState {
    /// Logs the next new connection of this endpoint, on `worker`, that `order` selects.
    pub fn log_next_connection(&self, order: &Arc<LogOrder>, worker: usize) {
        self.change_logs(|logs| logs.waiting.push((Arc::clone(order), worker)));
    }

    /// Logs the open `connection`, by s2n-quic's ID, by `order`, unless it is logged already, or the order is used up.
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

    /// Drops the logs and waiting entries of orders that are over.
    pub fn drop_ended_logs(&self) {
        drop(self.change_logs(ConnectionLogs::take_ended));
    }

    /// Log of a connection, by s2n-quic's ID; `None` if it is not logged.
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

    /// Logs a new connection between `client` and `local`, if an order waits for one and selects it.
    pub(super) fn log_new_connection(&self, connection: u64, (client, local): (SocketAddr, SocketAddr)) {
        if !self.at_hand.has_logs() {
            return;
        }
        let waiting = self.with_table(|table| table.logs.waiting.clone());
        let order = waiting.iter().find(|(order, _)| !order.is_over() && order.selects_client(client));
        if let Some(log) = order.and_then(|(order, worker)| ConnectionLog::open_log(order, *worker)) {
            log.log_started(client, local);
            log.log_tuple(0, client, local);
            self.change_logs(|logs| logs.by_connection.insert(connection, log));
        }
    }

    /// Ends the qlog of a connection that has ended.
    pub(super) fn end_log(&self, connection: u64) {
        if self.at_hand.has_logs() {
            drop(self.change_logs(|logs| logs.by_connection.remove(&connection)));
        }
    }

    /// Applies `change` to the logs, and counts logs and waiting orders.
    fn change_logs<T>(&self, change: impl FnOnce(&mut ConnectionLogs) -> T) -> T {
        let (changed, count) = self.with_table(|table| (change(&mut table.logs), table.logs.active_count()));
        self.at_hand.set_logs(count);
        changed
    }
}

/// Addresses of a path: the client's and litequic's.
pub(super) fn path_ends(path: &Tuple) -> (SocketAddr, SocketAddr) {
    (path.remote_address.0.into(), path.local_address.0.into())
}
