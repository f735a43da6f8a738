//! The client's limits for litequic's sending on each of its request streams (RFC 9000 §4.1). s2n-quic does not expose
//! them; litequic needs them to write no more (docs/adr/0009-queue-within-the-peers-window.md).
//!
//! Sources: the client's transport parameter `initial_max_stream_data_bidi_local`, from s2n-quic's event, and its
//! MAX_STREAM_DATA frames.
//!
//! A limit may come before its stream has been accepted, even before the stream. Streams are accepted in the order of
//! their IDs, so an ID from `next` on is one that will be: its limit is kept for then. Below `next` a stream is open
//! or over, and what comes for one that is over means nothing. s2n-quic lets a client open `max_streams` at once and
//! closes the connection beyond, so no honest limit finds the room used up.

use super::{
    Connections,
    flight::{Flight, Stream},
};
use crate::{
    budget::path::WriteAllowance,
    quic::{by_id::ById, contents::Word},
    transport,
};
use futures_util::task::AtomicWaker;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

/// IDs of a client's request streams are this far apart (RFC 9000 §2.1), beginning with 0.
const ID_STEP: u64 = 4;

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// What every request stream begins with.
    pub(super) initial: u64,
    /// The first request stream that was not accepted yet.
    next: u64,
    pub(super) open: ById<Arc<State>>,
    /// Limits of streams from `next` on.
    pub(super) ahead: ById<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    limit: AtomicU64,
    /// Of the task that sends on the stream, whatever it waits for.
    pub(super) waker: AtomicWaker,
    pub(super) stream: Stream,
}

impl Windows {
    pub(super) fn open(&mut self, stream: u64) -> Arc<State> {
        self.next = self.next.max(stream.saturating_add(ID_STEP));
        let ahead = self.ahead.remove(&stream).unwrap_or_default();
        let state = State::new(self.initial.max(ahead));
        self.open.insert(stream, Arc::clone(&state));
        state
    }

    pub(super) fn hear(&mut self, word: Word, max_ahead: usize) {
        match word {
            Word::MaxStreamData { stream, limit } => self.raise(stream, limit, max_ahead),
            Word::StopSending(stream) => {
                if let Some(state) = self.open.get(&stream) {
                    state.waker.wake();
                }
            }
        }
    }

    /// The client allows `limit` bytes in all.
    fn raise(&mut self, stream: u64, limit: u64, max_ahead: usize) {
        if let Some(state) = self.open.get(&stream) {
            // What does not raise a limit means nothing (RFC 9000 §4.1): packets arrive in any order.
            state.limit.fetch_max(limit, Ordering::Relaxed);
            state.waker.wake();
        } else if stream >= self.next && stream.is_multiple_of(ID_STEP) {
            if let Some(ahead) = self.ahead.get_mut(&stream) {
                *ahead = limit.max(*ahead);
            } else if self.ahead.len() < max_ahead {
                self.ahead.insert(stream, limit);
            }
        }
    }
}

impl State {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit: AtomicU64::new(limit), waker: AtomicWaker::new(), stream: Stream::default() })
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

    fn room(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance {
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
