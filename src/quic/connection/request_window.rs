//! One request stream's window, which HTTP/3 holds.

use super::{send_queue::SendQueue, state::Connection, stream::StreamSendState, table::ConnectionTable};
use crate::{
    budget::path::WriteAllowance,
    receive_budget::ReceiveAccount,
    transport::{self, Transport},
};
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

impl Transport for ConnectionTable {
    fn open(&self, connection: u64, stream: u64) -> Box<dyn transport::SendWindow> {
        let open = |connection: &mut Connection| (connection.credit.open(stream), Arc::clone(&connection.send_queue));
        let opened = self.lock().by_id.get_mut(&connection).map(open);
        // A connection that is gone by now sends nothing any more.
        let (state, send_queue) = opened.unwrap_or_else(|| (StreamSendState::new(0), Arc::default()));
        Box::new(RequestWindow::new(self.clone(), (connection, stream), state, send_queue))
    }

    fn account(&self, connection: u64) -> Option<ReceiveAccount> {
        self.lock().by_id.get(&connection)?.receive_account.clone()
    }

    fn alerts(&self, connection: u64) -> Box<dyn transport::ConnectionAlerts> {
        let table = self.lock();
        // A connection that is gone by now sends nothing any more.
        Box::new(
            table.by_id.get(&connection).map(|connection| connection.control_frames.alert_handle()).unwrap_or_default(),
        )
    }
}

/// How much may be sent on one request stream. Dropped at the stream's end.
#[derive(Debug)]
pub struct RequestWindow {
    table: ConnectionTable,
    connection: u64,
    stream: u64,
    state: Arc<StreamSendState>,
    send_queue: Arc<SendQueue>,
}

impl RequestWindow {
    pub(super) fn new(
        table: ConnectionTable,
        (connection, stream): (u64, u64),
        state: Arc<StreamSendState>,
        send_queue: Arc<SendQueue>,
    ) -> Self {
        Self { table, connection, stream, state, send_queue }
    }
}

impl transport::SendWindow for RequestWindow {
    fn limit(&self) -> u64 {
        self.state.limit.load(Ordering::Relaxed)
    }

    fn register(&self, waker: &Waker) {
        self.state.waker.register(waker);
    }

    fn room(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance {
        self.send_queue.room(self.stream, &self.state, (sent, outstanding), ready)
    }

    fn earned_window(&self) -> u64 {
        self.send_queue.earned_window()
    }

    fn on_queued(&self, sent: u64) {
        self.send_queue.on_queued(&self.state, sent);
    }

    fn wait_until_sent(&self) {
        self.send_queue.wait_until_sent(&self.state.progress);
    }

    fn wait_until_acknowledged(&self, bytes: u64) {
        self.send_queue.wait_until_acknowledged(&self.state.progress, bytes);
    }
}

impl Drop for RequestWindow {
    fn drop(&mut self) {
        self.send_queue.remove(self.stream, &self.state.progress);
        if let Some(connection) = self.table.lock().by_id.get_mut(&self.connection) {
            connection.credit.open.remove(&self.stream);
        }
    }
}
