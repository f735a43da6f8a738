//! Discards the rest of requests that were answered early, within bounds, before STOP_SENDING. A client that reads the
//! response only after its upload, such as Chromium, would otherwise never see the response.

use super::{
    error_code::{ErrorCode, to_application_error},
    request_outcome::RequestOutcome,
};
use crate::http3_metrics::Http3Metrics;
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use litequic_config::{Limits, Timeouts};
use litequic_exchange::{LingerBudget, LingerLimit};
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

/// Number of chunks taken from QUIC in one call.
const LINGER_CHUNKS: usize = 8;

/// The discarded requests of one connection, no more than its client may open streams (`limits.max_streams`).
pub(super) struct LingeringStreams {
    discards: RefCell<FuturesUnordered<DiscardFuture>>,
    /// Waker of the connection's task.
    waker: RefCell<Option<Waker>>,
    /// Largest number of bytes discarded of one stream.
    bytes: u64,
    timeout: Duration,
    metrics: Arc<Http3Metrics>,
}

impl LingeringStreams {
    pub(super) fn new(limits: &Limits, timeouts: &Timeouts, metrics: Arc<Http3Metrics>) -> Rc<Self> {
        Rc::new(Self {
            discards: RefCell::default(),
            waker: RefCell::default(),
            bytes: limits.max_lingering_bytes,
            timeout: timeouts.lingering,
            metrics,
        })
    }

    /// Whether requests are discarded at all.
    pub(super) const fn is_lingering_enabled(&self) -> bool {
        self.bytes > 0
    }

    /// Discards the rest of `stream`, as long as `outcome` has no fault. [`Self::poll_discards`] does the work.
    pub(super) fn discard_upload(&self, stream: ReceiveStream, outcome: Rc<RequestOutcome>, account: ReceiveAccount) {
        self.discards.borrow().push(DiscardFuture {
            stream,
            outcome,
            account,
            linger: LingerBudget::new(self.bytes, self.timeout),
            metrics: Arc::clone(&self.metrics),
        });
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whether no request is being discarded.
    pub(super) fn is_empty(&self) -> bool {
        self.discards.borrow().is_empty()
    }

    /// Discards the bytes that have arrived. Wakes the task when there is more to do.
    pub(super) fn poll_discards(&self, cx: &mut Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        let mut rests = self.discards.borrow_mut();
        while !rests.is_empty() && rests.poll_next_unpin(cx).is_ready() {}
    }
}

/// Discards the rest of one request. Ready at its end, or when a limit stops it.
struct DiscardFuture {
    stream: ReceiveStream,
    outcome: Rc<RequestOutcome>,
    account: ReceiveAccount,
    linger: LingerBudget,
    metrics: Arc<Http3Metrics>,
}

impl DiscardFuture {
    fn end_discard(&mut self, over: LingerLimit) -> Poll<()> {
        match over {
            LingerLimit::Bytes => self.metrics.shared.limit_lingering_bytes.increment(),
            LingerLimit::Time => self.metrics.shared.timeout_lingering.increment(),
        }
        self.stop_stream(ErrorCode::NoError)
    }

    fn stop_stream(&mut self, code: ErrorCode) -> Poll<()> {
        // An error means that the stream is gone already.
        let _ = self.stream.stop_sending(to_application_error(code));
        Poll::Ready(())
    }
}

impl Future for DiscardFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let code = this.outcome.stop_code.get();
            if code != ErrorCode::NoError {
                return this.stop_stream(code);
            }
            let mut chunks: [Bytes; LINGER_CHUNKS] = Default::default();
            match this.stream.poll_receive_vectored(&mut chunks, cx) {
                Poll::Ready(Ok((count, open))) => {
                    let bytes = chunks.iter().take(count).map(|chunk| chunk.len() as u64).sum();
                    this.metrics.shared.lingering_bytes.increment_by(bytes);
                    this.account.count_taken(bytes);
                    if !open {
                        return Poll::Ready(());
                    }
                    if let Err(over) = this.linger.spend_bytes(bytes) {
                        return this.end_discard(over);
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()), // the client has reset it, or is gone
                Poll::Pending => {
                    let over = ready!(this.linger.poll_linger_timeout(cx));
                    return this.end_discard(over);
                }
            }
        }
    }
}
