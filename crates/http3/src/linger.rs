//! Requests that were answered before they had ended: the rest of their bodies is discarded, within bounds, before
//! STOP_SENDING. A client that reads the response only once its upload has ended would never see it, as Chromium.

use super::{
    error::{Code, application_error},
    outcome::RequestOutcome,
};
use crate::metrics::Metrics;
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use litequic_config::{Limits, Timeouts};
use litequic_exchange::{Linger, Lingered};
use litequic_resources::receive::ReceiveAccount;
use s2n_quic::stream::ReceiveStream;
use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

/// Chunks taken from QUIC in one call.
const CHUNKS: usize = 8;

/// Rests of requests on one connection, which has no more of them than its client may open streams
/// (`limits.max_streams`).
pub(super) struct LingeringStreams {
    rests: RefCell<FuturesUnordered<Rest>>,
    /// Wakes the connection's task.
    waker: RefCell<Option<Waker>>,
    /// Bytes that are discarded of one stream at most.
    bytes: u64,
    patience: Duration,
    metrics: Arc<Metrics>,
}

impl LingeringStreams {
    pub(super) fn new(limits: &Limits, timeouts: &Timeouts, metrics: Arc<Metrics>) -> Rc<Self> {
        Rc::new(Self {
            rests: RefCell::default(),
            waker: RefCell::default(),
            bytes: limits.max_lingering_bytes,
            patience: timeouts.lingering,
            metrics,
        })
    }

    /// Whether anything is discarded at all.
    pub(super) const fn is_on(&self) -> bool {
        self.bytes > 0
    }

    /// Discards what comes on `stream`, whose request is not read any more, as long as `outcome` has no fault.
    /// [`poll`](Self::poll) does the work.
    pub(super) fn add(&self, stream: ReceiveStream, outcome: Rc<RequestOutcome>, account: ReceiveAccount) {
        self.rests.borrow().push(Rest {
            stream,
            outcome,
            account,
            linger: Linger::new(self.bytes, self.patience),
            metrics: Arc::clone(&self.metrics),
        });
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// True when nothing is discarded any more.
    pub(super) fn is_empty(&self) -> bool {
        self.rests.borrow().is_empty()
    }

    /// Discards what has come; the task is woken when there is more to do.
    pub(super) fn poll(&self, cx: &mut Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        let mut rests = self.rests.borrow_mut();
        while !rests.is_empty() && rests.poll_next_unpin(cx).is_ready() {}
    }
}

/// What is left of one request. Ready at its end, or when it is stopped.
struct Rest {
    stream: ReceiveStream,
    outcome: Rc<RequestOutcome>,
    account: ReceiveAccount,
    linger: Linger,
    metrics: Arc<Metrics>,
}

impl Rest {
    fn over(&mut self, over: Lingered) -> Poll<()> {
        match over {
            Lingered::Bytes => self.metrics.shared.limit_lingering_bytes.increment(),
            Lingered::Time => self.metrics.shared.timeout_lingering.increment(),
        }
        self.stop(Code::NoError)
    }

    fn stop(&mut self, code: Code) -> Poll<()> {
        // An error means that the stream is gone already.
        let _ = self.stream.stop_sending(application_error(code));
        Poll::Ready(())
    }
}

impl Future for Rest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let code = this.outcome.stop_code();
            if code != Code::NoError {
                return this.stop(code);
            }
            let mut chunks: [Bytes; CHUNKS] = Default::default();
            match this.stream.poll_receive_vectored(&mut chunks, cx) {
                Poll::Ready(Ok((count, open))) => {
                    let bytes = chunks.iter().take(count).map(|chunk| chunk.len() as u64).sum();
                    this.metrics.shared.lingering_bytes.add(bytes);
                    this.account.taken(bytes);
                    if !open {
                        return Poll::Ready(());
                    }
                    if let Err(over) = this.linger.took(bytes) {
                        return this.over(over);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()), // the client has reset it, or is gone
                Poll::Pending => {
                    let over = ready!(this.linger.poll_over(cx));
                    return this.over(over);
                }
            }
        }
    }
}
