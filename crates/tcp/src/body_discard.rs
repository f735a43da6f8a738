//! Discards the rest of requests that were answered early, within bounds, before RST_STREAM (HTTP/2) or the
//! connection's end (HTTP/1.1, by the guard). A client in the middle of an upload would otherwise lose the response: by
//! an error in HTTP/2's frames, as curl does, or by TCP's reset.

use crate::tcp_metrics::TcpMetrics;
use bytes::Bytes;
use http_body::Body;
use litequic_exchange::{LingerBudget, LingerLimit};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// Limits for discarding a request.
#[derive(Debug, Clone)]
pub(super) struct LingerLimits {
    pub(super) bytes: u64,
    pub(super) timeout: Duration,
    pub(super) metrics: Arc<TcpMetrics>,
}

impl LingerLimits {
    /// Begins to discard a request that is answered now; `None` if nothing is to be discarded.
    pub(super) fn begin_discard(&self) -> Option<BodyDiscard> {
        let linger = LingerBudget::new(self.bytes, self.timeout);
        (self.bytes > 0).then(|| BodyDiscard { budget: linger, metrics: Arc::clone(&self.metrics) })
    }
}

/// The budget and the counters of one discarded request.
#[derive(Debug)]
pub(super) struct BodyDiscard {
    budget: LingerBudget,
    metrics: Arc<TcpMetrics>,
}

impl BodyDiscard {
    /// Counts `bytes` as discarded. Returns false once a limit is reached.
    pub(super) fn count_discarded(&mut self, bytes: u64) -> bool {
        self.metrics.shared.lingering_bytes.increment_by(bytes);
        self.budget.spend_bytes(bytes).map_err(|over| self.count_limit(over)).is_ok()
    }

    /// Ready once the client has sent nothing for too long.
    pub(super) fn poll_discard_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.budget.poll_linger_timeout(cx).map(|over| self.count_limit(over))
    }

    /// Discards the frames of `body`, until its end or a limit.
    pub(super) async fn discard_upload_rest(mut self, mut body: impl Body<Data = Bytes> + Unpin) {
        poll_fn(|cx| {
            loop {
                match Pin::new(&mut body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if !self.count_discarded(frame.data_ref().map_or(0, |data| data.len() as u64)) {
                            return Poll::Ready(());
                        }
                    }
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_discard_timeout(cx),
                }
            }
        })
        .await;
    }

    fn count_limit(&self, over: LingerLimit) {
        match over {
            LingerLimit::Bytes => self.metrics.shared.limit_lingering_bytes.increment(),
            LingerLimit::Time => self.metrics.shared.timeout_lingering.increment(),
        }
    }
}
