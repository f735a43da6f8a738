//! Spools the rest of a response from its origin into memory, so that a slow client does not keep the connection.

use super::open_exchange::{BodyRead, OpenExchange};
use crate::{metrics::ProxyMetrics, pool::SpoolReservation};
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use litequic_base::timers::timeout;
use litequic_exchange::BodyError;
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};
use tokio::task::spawn_local;
use tokio_util::task::AbortOnDropHandle;

/// Time within which the origin has to send a rest, which is small; otherwise the exchange ends after all.
const SPOOL_TIMEOUT: Duration = Duration::from_secs(5);

/// The rest of a body in memory. Dropping it stops the spooling.
#[derive(Debug)]
pub(super) struct SpooledBody {
    state: SpoolState,
    reserved: SpoolReservation,
    _task: Option<AbortOnDropHandle<()>>,
    reader: Option<Waker>,
}

#[derive(Debug)]
enum SpoolState {
    /// The origin is sending the rest.
    Receiving,
    Received(Bytes),
    Failed(BodyError),
    /// The reader has the whole rest.
    Read,
}

impl SpooledBody {
    /// A rest for which memory is `reserved`.
    pub(crate) const fn with_reservation(reserved: SpoolReservation) -> Self {
        Self { state: SpoolState::Receiving, reserved, _task: None, reader: None }
    }

    /// Spools the rest from the origin, and then calls `took`. The connection is then free for another request.
    pub(crate) fn begin_spooling(&mut self, open: OpenExchange, took: impl FnOnce(Result<Bytes, BodyError>) + 'static) {
        let length = usize::try_from(self.reserved.bytes).unwrap_or(usize::MAX);
        let metrics = Arc::clone(&self.reserved.budget.metrics);
        let task = spawn_local(async move {
            let taken = timeout(SPOOL_TIMEOUT, read_rest(open, length, &metrics)).await.unwrap_or_else(|_| {
                metrics.evicted_slow_downloads.increment();
                Err(BodyError::Evicted)
            });
            took(taken);
        });
        self._task = Some(AbortOnDropHandle::new(task));
    }

    /// Stores the rest that the origin has sent, or its failure.
    pub(crate) fn on_spooled(&mut self, taken: Result<Bytes, BodyError>) {
        self.state = taken.map_or_else(SpoolState::Failed, SpoolState::Received);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Reads the whole rest at once.
    pub(crate) fn poll_spooled(&mut self, cx: &Context<'_>) -> BodyRead {
        match std::mem::replace(&mut self.state, SpoolState::Read) {
            SpoolState::Receiving => {
                self.state = SpoolState::Receiving;
                self.reader = Some(cx.waker().clone());
                BodyRead::Wait
            }
            SpoolState::Received(bytes) if bytes.is_empty() => BodyRead::End,
            SpoolState::Received(bytes) => BodyRead::Frame(Frame::data(bytes)),
            SpoolState::Failed(error) => BodyRead::Failed(error),
            SpoolState::Read => BodyRead::End,
        }
    }

    pub(crate) const fn is_end_stream(&self) -> bool {
        matches!(self.state, SpoolState::Read)
    }

    /// Bytes that the reader has not got.
    pub(crate) const fn unread_length(&self) -> u64 {
        match &self.state {
            SpoolState::Receiving | SpoolState::Received(_) => self.reserved.bytes,
            SpoolState::Failed(_) | SpoolState::Read => 0,
        }
    }
}

/// Reads the `length` bytes that are left of a body, and returns the connection. The bytes are copied: a piece of a
/// read keeps a buffer of up to 256 KiB.
async fn read_rest(open: OpenExchange, length: usize, metrics: &ProxyMetrics) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::with_capacity(length);
    open.connection.response_capacity().set(length.max(1));
    loop {
        let next = poll_fn(|cx| open.connection.poll_frame(cx)).await;
        match next {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => whole.extend_from_slice(&data),
                // A body of known length has no trailers.
                Err(_) => break,
            },
            Some(Err(error)) => {
                tracing::debug!(%error, "the origin's response was cut off");
                metrics.origin_errors.increment();
                open.ticket.report_connection_broken();
                return Err(BodyError::Truncated);
            }
        }
    }
    open.ticket.report_completed();
    open.connection.return_to_pool();
    Ok(whole.freeze())
}
