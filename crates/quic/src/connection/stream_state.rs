//! Keeps the state of one request stream on which litequic sends: the client's limit, a STOP_SENDING frame, the task's
//! waker, and progress in the connection's send queue.

use futures_util::task::AtomicWaker;
use litequic_base::free_list::{FreeList, keep_free, take_free};
use litequic_base::relaxed_cell::RelaxedCell;
use litequic_exchange::priority::Priority;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// State of a stream, shared by the endpoint and the task that sends.
#[derive(Debug)]
pub(crate) struct StreamSendState {
    pub(crate) limit: AtomicU64,
    /// A STOP_SENDING frame arrived for the stream.
    pub(crate) stopped: AtomicBool,
    /// Waker of the task that sends on the stream.
    pub(crate) waker: AtomicWaker,
    pub(crate) progress: StreamProgress,
}

const _: () = assert!(size_of::<StreamSendState>() <= 104);

thread_local! {
    /// Unused states of streams that are over. A connection's streams are opened and closed on one thread.
    static FREE_STATES: FreeList<Arc<StreamSendState>> = const { RefCell::new(Vec::new()) };
}

impl StreamSendState {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        if let Some(state) = take_free(&FREE_STATES) {
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

    /// Keeps the state of an ended stream for another one, unless the state is still in use.
    pub(crate) fn recycle_state(state: &mut Arc<Self>) {
        let Some(free) = Arc::get_mut(state) else { return };
        *free.stopped.get_mut() = false;
        free.progress = StreamProgress::default();
        let waker = free.waker.take();
        keep_free(&FREE_STATES, Arc::clone(state));
        drop(waker);
    }
}

/// Progress of a stream that [`SendQueue`](super::send_queue::SendQueue) tracks.
#[derive(Debug)]
pub(crate) struct StreamProgress {
    pub(crate) tracked: RelaxedCell,
    /// Bytes handed over to s2n-quic.
    pub(crate) queued: RelaxedCell,
    /// Bytes that s2n-quic has sent.
    pub(crate) sent: RelaxedCell,
    /// Event that wakes the stream: [`WAKE_NEVER`], [`WAKE_ON_SENT`] or [`WAKE_ON_ACKNOWLEDGED`]; or [`WOKEN`].
    pub(crate) wake_on: RelaxedCell,
    /// Bytes at which the stream is woken: with [`WAKE_ON_SENT`] the connection's unsent bytes, with
    /// [`WAKE_ON_ACKNOWLEDGED`] all bytes acknowledged or lost. With [`WOKEN`] the time at which it was woken.
    pub(crate) wake_at: RelaxedCell,
    /// Packed priority of the stream.
    pub(crate) priority: RelaxedCell,
    /// Bytes that the order has granted the stream, and that were not handed over yet.
    pub(crate) granted: RelaxedCell,
    /// 1 if the stream has a place in the order.
    pub(crate) in_order: RelaxedCell,
}

const _: () = assert!(size_of::<StreamProgress>() <= 64);

/// Value of `wake_on`: the stream does not wait.
pub(crate) const WAKE_NEVER: u64 = 0;
/// Value of `wake_on`: the stream waits until s2n-quic has sent most of the bytes handed over.
pub(crate) const WAKE_ON_SENT: u64 = 1;
/// Value of `wake_on`: the stream waits for acknowledgements.
pub(crate) const WAKE_ON_ACKNOWLEDGED: u64 = 2;
/// Value of `wake_on`: the stream was woken, and has not had its turn.
pub(crate) const WOKEN: u64 = 3;

impl Default for StreamProgress {
    fn default() -> Self {
        Self {
            tracked: RelaxedCell::default(),
            queued: RelaxedCell::default(),
            sent: RelaxedCell::default(),
            wake_on: RelaxedCell::new(WAKE_NEVER),
            wake_at: RelaxedCell::default(),
            priority: RelaxedCell::new(Priority::UNSIGNALLED.pack()),
            granted: RelaxedCell::default(),
            in_order: RelaxedCell::default(),
        }
    }
}

impl StreamProgress {
    pub(crate) fn stream_unsent(&self) -> u64 {
        self.queued.get().saturating_sub(self.sent.get())
    }
}
