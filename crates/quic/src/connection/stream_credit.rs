//! Tracks the client's limits for sending on each of its request streams (RFC 9000 §4.1), and STOP_SENDING frames.
//! s2n-quic does not expose the limits; litequic needs them to write no more
//! (docs/adr/0009-queue-within-the-peers-window.md). A stopped stream is reported only on request, under s2n-quic's
//! lock.
//!
//! Sources are the client's transport parameter `initial_max_stream_data_bidi_local`, from s2n-quic's event, and its
//! MAX_STREAM_DATA and STOP_SENDING frames.
//!
//! A frame may arrive before its stream was accepted, even before the stream. Streams are accepted in the order of
//! their IDs, so an ID from `next_stream` on will be accepted: its frames are remembered until then. Below
//! `next_stream` a stream is open or over, and a frame for one that is over means nothing. s2n-quic lets a client open
//! `max_streams` at once and closes the connection beyond, so no honest frame exceeds the bound.

use super::{by_id::ByConnectionId, stream_state::StreamSendState};
use crate::wire::StreamFrame;
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

/// Distance of the IDs of a client's request streams (RFC 9000 §2.1), which begin with 0.
const STREAM_ID_STEP: u64 = 4;

/// Limits of one connection's request streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCredit {
    /// Initial limit of every request stream, bytes.
    pub(crate) initial: u64,
    /// ID of the first request stream that was not accepted yet.
    next_stream: u64,
    pub(crate) open: OpenStreams,
    /// Values of frames about streams from `next_stream` on.
    pub(super) early: ByConnectionId<EarlyFrames>,
}

/// Values of frames about a stream that was not accepted yet.
#[derive(Debug, Default)]
pub(super) struct EarlyFrames {
    /// Highest received limit.
    limit: u64,
    /// A STOP_SENDING frame arrived.
    is_stopped: bool,
}

const _: () = assert!(size_of::<StreamCredit>() <= 80);

impl StreamCredit {
    pub(crate) fn open_stream_credit(&mut self, stream: u64) -> Arc<StreamSendState> {
        self.next_stream = self.next_stream.max(stream.saturating_add(STREAM_ID_STEP));
        let EarlyFrames { limit, is_stopped } = self.early.remove(&stream).unwrap_or_default();
        let state = StreamSendState::new(self.initial.max(limit));
        state.stopped.store(is_stopped, Ordering::Relaxed);
        // Each ID is inserted once: nothing is dropped.
        self.open.insert(stream, Arc::clone(&state));
        state
    }

    /// Reads a frame about a stream, and returns the task to wake.
    #[must_use]
    pub(crate) fn on_stream_frame(&mut self, frame: StreamFrame, max_early: usize) -> Option<Waker> {
        let (stream, limit, is_stopped) = match frame {
            StreamFrame::MaxStreamData { stream, limit } => (stream, limit, false),
            StreamFrame::StopSending(stream) => (stream, 0, true),
        };
        if let Some(state) = self.open.get(&stream) {
            // A value that does not raise the limit means nothing (RFC 9000 §4.1): packets arrive in any order.
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

/// The open request streams of one connection. A removed or replaced state must not be dropped under the lock.
pub(crate) type OpenStreams = ByConnectionId<Arc<StreamSendState>>;
