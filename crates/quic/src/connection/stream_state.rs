//! The state of one request stream that litequic sends on: the client's limit, whether the client has stopped it, its
//! task's waker, and its progress in the connection's send queue.

use futures_util::task::AtomicWaker;
use litequic_base::relaxed_cell::RelaxedCell;
use litequic_exchange::priority::Priority;
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// State that an endpoint and the task that sends on a stream share.
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

thread_local! {
    /// States of streams that are over. A connection's streams are opened and closed on one thread.
    static FREE_STATES: RefCell<Vec<Arc<StreamSendState>>> = const { RefCell::new(Vec::new()) };
}

/// States that are kept at most.
const MAX_FREE_STATES: usize = 128;

impl StreamSendState {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        if let Ok(Some(state)) = FREE_STATES.try_with(|free| free.borrow_mut().pop()) {
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
    pub(crate) fn recycle_state(state: &mut Arc<Self>) {
        let Some(free) = Arc::get_mut(state) else { return };
        *free.stopped.get_mut() = false;
        free.progress = StreamProgress::default();
        let waker = free.waker.take();
        // A thread that ends keeps nothing.
        let _ = FREE_STATES.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MAX_FREE_STATES {
                free.push(Arc::clone(state));
            }
        });
        drop(waker);
    }
}

/// Progress of a stream that [`SendQueue`](super::send_queue::SendQueue) tracks.
#[derive(Debug)]
pub(crate) struct StreamProgress {
    pub(crate) tracked: RelaxedCell,
    /// Bytes handed over to s2n-quic in all.
    pub(crate) queued: RelaxedCell,
    /// Bytes sent of those handed over.
    pub(crate) sent: RelaxedCell,
    /// Event that wakes the stream: [`NOTHING`], [`SENT`] or [`ACKNOWLEDGED`].
    pub(crate) wake_on: RelaxedCell,
    /// Bytes at which the stream is woken: with [`SENT`] the connection's unsent bytes, with [`ACKNOWLEDGED`] those
    /// that came out of flight in all.
    pub(crate) wake_at: RelaxedCell,
    /// The stream's priority, as a number.
    pub(crate) priority: RelaxedCell,
    /// Bytes that the order has granted the stream, and that it has not handed over yet.
    pub(crate) granted: RelaxedCell,
    /// 1 if the order knows the stream.
    pub(crate) in_order: RelaxedCell,
}

const _: () = assert!(size_of::<StreamProgress>() <= 64);

/// The stream waits for nothing.
pub(crate) const WAKE_NEVER: u64 = 0;
/// The stream waits until s2n-quic has sent most of what was handed over.
pub(crate) const WAKE_ON_SENT: u64 = 1;
/// The stream waits for acknowledgements.
pub(crate) const WAKE_ON_ACKNOWLEDGED: u64 = 2;

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
