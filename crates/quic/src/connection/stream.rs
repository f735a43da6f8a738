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

use super::{by_id::ByConnectionId, send_queue::OpenStreams};
use crate::wire::StreamFrame;
use futures_util::task::AtomicWaker;
use litequic_base::number::Number;
use litequic_exchange::priority::Priority;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

/// Distance of the IDs of a client's request streams (RFC 9000 §2.1), beginning with 0.
const ID_STEP: u64 = 4;

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

#[derive(Debug)]
pub(crate) struct StreamSendState {
    pub(crate) limit: AtomicU64,
    /// A STOP_SENDING frame has come for the stream.
    pub(crate) stopped: AtomicBool,
    /// Waker of the task that sends on the stream, whatever it waits for.
    pub(crate) waker: AtomicWaker,
    pub(crate) progress: StreamProgress,
}

const _: () = assert!(size_of::<StreamSendState>() <= 104);

impl StreamCredit {
    pub(crate) fn open(&mut self, stream: u64) -> Arc<StreamSendState> {
        self.next_stream = self.next_stream.max(stream.saturating_add(ID_STEP));
        let EarlyFrames { limit, is_stopped } = self.early.remove(&stream).unwrap_or_default();
        let state = StreamSendState::new(self.initial.max(limit));
        state.stopped.store(is_stopped, Ordering::Relaxed);
        // An ID comes once: nothing is dropped.
        self.open.insert(stream, &state);
        state
    }

    /// The stream is over.
    pub(crate) fn close(&mut self, stream: u64) -> Option<Arc<StreamSendState>> {
        self.open.remove(stream)
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
        let is_early = stream >= self.next_stream && stream.is_multiple_of(ID_STEP);
        if is_early && (self.early.len() < max_early || self.early.contains_key(&stream)) {
            let early = self.early.entry(stream).or_default();
            early.limit = early.limit.max(limit);
            early.is_stopped |= is_stopped;
        }
        None
    }
}

thread_local! {
    /// States of streams that are over. A connection's streams are opened and closed on one thread.
    static FREE: RefCell<Vec<Arc<StreamSendState>>> = const { RefCell::new(Vec::new()) };
}

/// States that are kept at most.
const KEPT: usize = 128;

impl StreamSendState {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        if let Ok(Some(state)) = FREE.try_with(|free| free.borrow_mut().pop()) {
            state.limit.store(limit, Ordering::Relaxed);
            return state;
        }
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            stopped: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            progress: StreamProgress::default(),
        })
    }

    /// Keeps the state of a stream that is over for another one, unless it is in use yet.
    pub(crate) fn give_back(state: &mut Arc<Self>) {
        let Some(free) = Arc::get_mut(state) else { return };
        *free.stopped.get_mut() = false;
        free.progress = StreamProgress::default();
        let waker = free.waker.take();
        // A thread that ends keeps nothing.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(Arc::clone(state));
            }
        });
        drop(waker);
    }
}

/// Progress of a stream that [`SendQueue`](super::send_queue::SendQueue) tracks.
#[derive(Debug)]
pub(crate) struct StreamProgress {
    pub(crate) tracked: Number,
    /// Bytes handed over to s2n-quic in all.
    pub(crate) queued: Number,
    /// Bytes sent of those handed over.
    pub(crate) sent: Number,
    /// Event that wakes the stream: [`NOTHING`], [`SENT`] or [`ACKNOWLEDGED`].
    pub(crate) wake_on: Number,
    /// Bytes at which the stream is woken: with [`SENT`] the connection's unsent bytes, with [`ACKNOWLEDGED`] those
    /// that came out of flight in all.
    pub(crate) wake_at: Number,
    /// The stream's priority, as a number.
    pub(crate) priority: Number,
    /// Bytes that the order has granted the stream, and that it has not handed over yet.
    pub(crate) granted: Number,
    /// 1 if the order knows the stream.
    pub(crate) in_order: Number,
}

const _: () = assert!(size_of::<StreamProgress>() <= 64);

/// The stream waits for nothing.
pub(crate) const NOTHING: u64 = 0;
/// The stream waits until s2n-quic has sent most of what was handed over.
pub(crate) const SENT: u64 = 1;
/// The stream waits for acknowledgements.
pub(crate) const ACKNOWLEDGED: u64 = 2;

impl Default for StreamProgress {
    fn default() -> Self {
        Self {
            tracked: Number::default(),
            queued: Number::default(),
            sent: Number::default(),
            wake_on: Number::new(NOTHING),
            wake_at: Number::default(),
            priority: Number::new(Priority::UNSIGNALLED.pack()),
            granted: Number::default(),
            in_order: Number::default(),
        }
    }
}

impl StreamProgress {
    pub(crate) fn unsent(&self) -> u64 {
        self.queued.get().saturating_sub(self.sent.get())
    }
}
