//! Bounds the small DATA frames that h2 has read from a connection and no task has taken: flow control counts their
//! bytes, but h2 needs memory for each frame. Beyond the bound the connection is not read.

use crate::tcp_metrics::TcpMetrics;
use litequic_resources::receive::ReceiveAccount;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Largest number of streams that have frames and were not accepted, before those that h2 has rejected are removed.
const MAX_UNACCEPTED: usize = 128;

/// Unread frames of one connection.
#[derive(Debug)]
pub(super) struct UnreadFrames {
    /// Bytes that frames need beside their payload.
    bytes: Cell<u64>,
    limit: u64,
    streams: RefCell<HashMap<u32, UnreadStream>>,
    /// Number of accepted streams in `streams`.
    accepted: Cell<usize>,
    /// Last stream that was accepted: only a later one may have frames before it is accepted.
    last_stream: Cell<u32>,
    reader: RefCell<Option<Waker>>,
    /// Account of the connection, which counts these bytes beside those of bodies.
    account: ReceiveAccount,
    metrics: Arc<TcpMetrics>,
}

#[derive(Debug, Default)]
struct UnreadStream {
    bytes: u64,
    is_accepted: bool,
}

impl UnreadFrames {
    /// Unread frames that may need `limit` bytes beside their payload.
    pub(super) fn new(limit: u64, account: ReceiveAccount, metrics: Arc<TcpMetrics>) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            limit,
            streams: RefCell::default(),
            accepted: Cell::new(0),
            last_stream: Cell::new(0),
            reader: RefCell::default(),
            account,
            metrics,
        })
    }

    /// Counts frames on `stream` that need `bytes` beside their payload, unless the stream is no longer read: h2 drops
    /// its frames.
    pub(super) fn count_unread_frames(&self, stream: u32, bytes: u64) {
        let mut streams = self.streams.borrow_mut();
        if stream > self.last_stream.get() || streams.contains_key(&stream) {
            let unread = streams.entry(stream).or_default();
            unread.bytes = unread.bytes.saturating_add(bytes);
            self.bytes.set(self.bytes.get().saturating_add(bytes));
            self.account.on_received(bytes);
        }
    }

    /// Ready while the connection may be read. The task is woken once it may be again.
    pub(super) fn poll_unread_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.bytes.get() <= self.limit {
            return Poll::Ready(());
        }
        if self.reader.replace(Some(cx.waker().clone())).is_none() {
            self.metrics.limit_unread_frames.increment();
        }
        Poll::Pending
    }

    /// Accepts `stream`, whose frames count until they are read, or the result is dropped.
    pub(super) fn account_stream_frames(self: &Rc<Self>, stream: u32) -> StreamFrames {
        let mut streams = self.streams.borrow_mut();
        streams.entry(stream).or_default().is_accepted = true;
        self.accepted.set(self.accepted.get().saturating_add(1));
        self.last_stream.set(stream);
        if streams.len() > self.accepted.get().saturating_add(MAX_UNACCEPTED) {
            // h2 accepts streams in their order.
            streams.extract_if(|number, unread| *number < stream && !unread.is_accepted).for_each(|(_, unread)| {
                self.release_frame_bytes(unread.bytes);
            });
        }
        StreamFrames { frames: Rc::clone(self), stream }
    }

    fn release_frame_bytes(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.account.count_taken(bytes);
        if self.bytes.get() <= self.limit
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
    }
}

/// Unread frames of one stream, which are dropped with it.
#[derive(Debug)]
pub(super) struct StreamFrames {
    frames: Rc<UnreadFrames>,
    stream: u32,
}

impl StreamFrames {
    /// Counts a frame that was read, which needed `bytes` beside its payload.
    pub(super) fn count_frame_read(&self, bytes: u64) {
        if bytes > 0
            && let Some(unread) = self.frames.streams.borrow_mut().get_mut(&self.stream)
        {
            // A padded frame was longer than what is read of it.
            let bytes = bytes.min(unread.bytes);
            unread.bytes -= bytes;
            self.frames.release_frame_bytes(bytes);
        }
    }
}

impl Drop for StreamFrames {
    fn drop(&mut self) {
        let unread = self.frames.streams.borrow_mut().remove(&self.stream);
        self.frames.accepted.set(self.frames.accepted.get().saturating_sub(1));
        self.frames.release_frame_bytes(unread.map_or(0, |unread| unread.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_resources::receive::ReceiveBudget;

    fn unread(metrics: Arc<TcpMetrics>) -> Rc<UnreadFrames> {
        let grant = ReceiveBudget::new(1 << 20, 1 << 20).grant_window(1 << 20, None);
        UnreadFrames::new(1_000, grant.account.clone(), metrics)
    }

    #[test]
    fn a_connection_is_not_read_while_its_streams_hold_too_many_frames() {
        let metrics = Arc::<TcpMetrics>::default();
        let frames = unread(Arc::clone(&metrics));
        let may_read = || frames.poll_unread_room(&Context::from_waker(Waker::noop())).is_ready();
        // Frames may come before their stream is accepted.
        frames.count_unread_frames(1, 600);
        let one = frames.account_stream_frames(1);
        let three = frames.account_stream_frames(3);
        frames.count_unread_frames(3, 400);
        assert!(may_read());
        frames.count_unread_frames(3, 1);
        assert!(!may_read() && !may_read());
        assert_eq!(metrics.limit_unread_frames.get(), 1);
        three.count_frame_read(1);
        assert!(may_read());
        drop(one);
        frames.count_unread_frames(1, 5_000);
        assert!(may_read(), "a stream that was dropped holds nothing");
        frames.count_unread_frames(3, 601);
        assert!(!may_read());
        drop(three);
        assert!(may_read());
        assert_eq!((frames.bytes.get(), frames.streams.borrow().len()), (0, 0));
    }

    #[test]
    fn streams_that_h2_rejects_are_forgotten() {
        let frames = unread(Arc::default());
        (0..200).for_each(|number| frames.count_unread_frames(2 * number + 1, 200));
        assert!(frames.poll_unread_room(&Context::from_waker(Waker::noop())).is_pending());
        let _accepted = frames.account_stream_frames(401);
        assert!(frames.poll_unread_room(&Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(frames.streams.borrow().len(), 1);
    }
}
