//! One request stream's window, which HTTP/3 holds.

use super::{send_queue::Flight, state::Entry, stream::State, table::Connections};
use crate::{
    budget::path::Room,
    receive_budget::Account,
    transport::{self, Windows},
};
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

impl Windows for Connections {
    fn open(&self, connection: u64, stream: u64) -> Box<dyn transport::Window> {
        let open = |entry: &mut Entry| (entry.windows.open(stream), Arc::clone(&entry.flight));
        let opened = self.lock().by_id.get_mut(&connection).map(open);
        // A connection that is gone by now sends nothing any more.
        let (state, flight) = opened.unwrap_or_else(|| (State::new(0), Arc::default()));
        Box::new(Window::new(self.clone(), (connection, stream), state, flight))
    }

    fn account(&self, connection: u64) -> Option<Account> {
        self.lock().by_id.get(&connection)?.received.clone()
    }

    fn excess(&self, connection: u64) -> Box<dyn transport::Excess> {
        let table = self.lock();
        // A connection that is gone by now sends nothing any more.
        Box::new(table.by_id.get(&connection).map(|entry| entry.conduct.excess()).unwrap_or_default())
    }
}

/// One request stream's window. Dropped at the stream's end.
#[derive(Debug)]
pub struct Window {
    connections: Connections,
    connection: u64,
    stream: u64,
    state: Arc<State>,
    flight: Arc<Flight>,
}

impl Window {
    pub(super) fn new(
        connections: Connections,
        (connection, stream): (u64, u64),
        state: Arc<State>,
        flight: Arc<Flight>,
    ) -> Self {
        Self { connections, connection, stream, state, flight }
    }
}

impl transport::Window for Window {
    fn limit(&self) -> u64 {
        self.state.limit.load(Ordering::Relaxed)
    }

    fn register(&self, waker: &Waker) {
        self.state.waker.register(waker);
    }

    fn room(&self, sent: u64, outstanding: u64, ready: u64) -> Room {
        self.flight.room(self.stream, &self.state, (sent, outstanding), ready)
    }

    fn shown(&self) -> u64 {
        self.flight.shown()
    }

    fn handed(&self, sent: u64) {
        self.flight.handed(&self.state, sent);
    }

    fn wait_until_sent(&self) {
        self.flight.wait_until_sent(&self.state.stream);
    }

    fn wait_until_acknowledged(&self, bytes: u64) {
        self.flight.wait_until_acknowledged(&self.state.stream, bytes);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.flight.forget(self.stream, &self.state.stream);
        if let Some(entry) = self.connections.lock().by_id.get_mut(&self.connection) {
            entry.windows.open.remove(&self.stream);
        }
    }
}
