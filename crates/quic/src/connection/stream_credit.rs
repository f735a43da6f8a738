//! The client's limits for litequic's sending on each of its request streams (RFC 9000 §4.1), and whether it has sent
//! STOP_SENDING. s2n-quic does not expose the limits; litequic needs them to write no more
//! (docs/adr/0009-queue-within-the-peers-window.md). A stopped stream it reports only on request, under its lock.
//!
//! Sources: the client's transport parameter `initial_max_stream_data_bidi_local`, from s2n-quic's event, and its
//! MAX_STREAM_DATA and STOP_SENDING frames.
//!
//! A frame may come before its stream has been accepted, even before the stream. Streams are accepted in the order of
//! their IDs, so an ID from `next_stream` on is one that will be: what its frames say is kept for then. Below
//! `next_stream` a stream is open or over, and what comes for one that is over means nothing. s2n-quic lets a client
//! open `max_streams` at once and closes the connection beyond, so no honest frame finds the room used up.

use super::{by_id::ByConnectionId, stream_state::StreamSendState};
use crate::wire::StreamFrame;
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

/// Distance of the IDs of a client's request streams (RFC 9000 §2.1), beginning with 0.
const STREAM_ID_STEP: u64 = 4;

/// The limits of one connection's request streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCredit {
    /// Bytes with which every request stream begins.
    pub(crate) initial: u64,
    /// The first request stream that was not accepted yet.
    next_stream: u64,
    pub(crate) open: OpenStreams,
    /// What frames said about streams from `next_stream` on.
    pub(super) early: ByConnectionId<EarlyFrames>,
}

/// What frames said about a stream before it was accepted.
#[derive(Debug, Default)]
pub(super) struct EarlyFrames {
    /// The highest limit.
    limit: u64,
    /// There was a STOP_SENDING frame.
    is_stopped: bool,
}

const _: () = assert!(size_of::<StreamCredit>() <= 80);

impl StreamCredit {
    pub(crate) fn open_stream_credit(&mut self, stream: u64) -> Arc<StreamSendState> {
        self.next_stream = self.next_stream.max(stream.saturating_add(STREAM_ID_STEP));
        let EarlyFrames { limit, is_stopped } = self.early.remove(&stream).unwrap_or_default();
        let state = StreamSendState::new(self.initial.max(limit));
        state.stopped.store(is_stopped, Ordering::Relaxed);
        // An ID comes once: nothing is dropped.
        self.open.insert_stream(stream, &state);
        state
    }

    /// The stream is over.
    pub(crate) fn close_stream_credit(&mut self, stream: u64) -> Option<Arc<StreamSendState>> {
        self.open.take_stream(stream)
    }

    /// Reads a frame about a stream, and returns the task to be woken.
    #[must_use]
    pub(crate) fn on_stream_frame(&mut self, frame: StreamFrame, max_early: usize) -> Option<Waker> {
        let (stream, limit, is_stopped) = match frame {
            StreamFrame::MaxStreamData { stream, limit } => (stream, limit, false),
            StreamFrame::StopSending(stream) => (stream, 0, true),
        };
        if let Some(state) = self.open.0.get(&stream) {
            // What does not raise a limit means nothing (RFC 9000 §4.1): packets arrive in any order.
            state.limit.fetch_max(limit, Ordering::Relaxed);
            state.stopped.fetch_or(is_stopped, Ordering::Relaxed);
            return state.waker.take();
        }
        let is_early = stream >= self.next_stream && stream.is_multiple_of(STREAM_ID_STEP);
        if is_early && (self.early.len() < max_early || self.early.contains_key(&stream)) {
            let early = self.early.entry(stream).or_default();
            early.limit = early.limit.max(limit);
            early.is_stopped |= is_stopped;
        }
        None
    }
}

/// The open request streams of one connection.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams(pub(super) ByConnectionId<Arc<StreamSendState>>);

impl OpenStreams {
    /// A stream is open from now on. Returns what is to be dropped.
    pub(crate) fn insert_stream(&mut self, id: u64, state: &Arc<StreamSendState>) -> Option<Arc<StreamSendState>> {
        self.0.insert(id, Arc::clone(state))
    }

    /// The stream is over. Returns what is to be dropped.
    pub(crate) fn take_stream(&mut self, id: u64) -> Option<Arc<StreamSendState>> {
        self.0.remove(&id)
    }

    /// A stream, if it is open.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<StreamSendState>> {
        self.0.get(&id).cloned()
    }
}
