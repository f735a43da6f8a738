//! Requests that were answered before they had ended: the rest of their bodies is discarded, within bounds, before
//! RST_STREAM (HTTP/2) or the connection's end (HTTP/1.1, by its guard). A client in the middle of an upload would else
//! lose the response: to an error in HTTP/2's frames, as curl, or to TCP's reset.

use crate::metrics::Metrics;
use bytes::Bytes;
use http_body::Body;
use litequic_config::{Limits, Timeouts};
use litequic_exchange::{Linger, Lingered};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// The limit for each request of a connection.
#[derive(Debug, Clone)]
pub(super) struct Lingering {
    bytes: u64,
    patience: Duration,
    metrics: Arc<Metrics>,
}

impl Lingering {
    pub(super) const fn new(limits: &Limits, timeouts: &Timeouts, metrics: Arc<Metrics>) -> Self {
        Self { bytes: limits.max_lingering_bytes, patience: timeouts.lingering, metrics }
    }

    /// For a request that is answered now; `None` if nothing is to be discarded.
    pub(super) fn begin(&self) -> Option<Discarding> {
        let linger = Linger::new(self.bytes, self.patience);
        (self.bytes > 0).then(|| Discarding { linger, metrics: Arc::clone(&self.metrics) })
    }
}

/// What is discarded of one request.
#[derive(Debug)]
pub(super) struct Discarding {
    linger: Linger,
    metrics: Arc<Metrics>,
}

impl Discarding {
    /// Counts `bytes` that were discarded; false if they were the last.
    pub(super) fn took(&mut self, bytes: u64) -> bool {
        self.metrics.shared.lingering_bytes.add(bytes);
        self.linger.took(bytes).map_err(|over| self.count(over)).is_ok()
    }

    /// Ready once nothing came for too long.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.linger.poll_over(cx).map(|over| self.count(over))
    }

    /// Discards what comes of `body`, until its end or a limit.
    pub(super) async fn discard(mut self, mut body: impl Body<Data = Bytes> + Unpin) {
        poll_fn(|cx| {
            loop {
                match Pin::new(&mut body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if !self.took(frame.data_ref().map_or(0, |data| data.len() as u64)) {
                            return Poll::Ready(());
                        }
                    }
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_over(cx),
                }
            }
        })
        .await;
    }

    fn count(&self, over: Lingered) {
        match over {
            Lingered::Bytes => self.metrics.shared.limit_lingering_bytes.increment(),
            Lingered::Time => self.metrics.shared.timeout_lingering.increment(),
        }
    }
}
