//! The rest of a response that is taken from its origin into memory, so that a slow client does not keep the
//! connection.

use super::open::{Open, Read};
use crate::{metrics::Metrics, pool::ReservedRest};
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
use tokio::task::{AbortHandle, spawn_local};

/// The time within which the origin has to send a rest, which is small; otherwise its exchange ends after all.
const TAKING: Duration = Duration::from_secs(5);

/// The rest of a body. Dropped, it stops what is being taken.
#[derive(Debug)]
pub(super) struct Rest {
    state: State,
    reserved: ReservedRest,
    task: Option<AbortHandle>,
    reader: Option<Waker>,
}

#[derive(Debug)]
enum State {
    /// The origin sends it.
    Coming,
    Came(Bytes),
    Failed(BodyError),
    /// The reader has all of it.
    Read,
}

impl Rest {
    /// A rest for which memory is `reserved`.
    pub(crate) const fn pending(reserved: ReservedRest) -> Self {
        Self { state: State::Coming, reserved, task: None, reader: None }
    }

    /// Takes it from the origin, and then calls `took`. The connection is then free for another request.
    pub(crate) fn take(&mut self, open: Open, took: impl FnOnce(Result<Bytes, BodyError>) + 'static) {
        let length = usize::try_from(self.reserved.bytes).unwrap_or(usize::MAX);
        let metrics = Arc::clone(&self.reserved.budget.metrics);
        let task = spawn_local(async move {
            let taken = timeout(TAKING, whole(open, length, &metrics)).await.unwrap_or_else(|_| {
                metrics.evicted_slow_downloads.increment();
                Err(BodyError::Evicted)
            });
            took(taken);
        });
        self.task = Some(task.abort_handle());
    }

    /// The origin has sent the rest, or failed.
    pub(crate) fn took(&mut self, taken: Result<Bytes, BodyError>) {
        self.state = taken.map_or_else(State::Failed, State::Came);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// All of it at once.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Read {
        match std::mem::replace(&mut self.state, State::Read) {
            State::Coming => {
                self.state = State::Coming;
                self.reader = Some(cx.waker().clone());
                Read::Wait
            }
            State::Came(bytes) if bytes.is_empty() => Read::End,
            State::Came(bytes) => Read::Frame(Frame::data(bytes)),
            State::Failed(error) => Read::Failed(error),
            State::Read => Read::End,
        }
    }

    /// Whether the reader has all of it.
    pub(crate) const fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Read)
    }

    /// Bytes that the reader has not got.
    pub(crate) const fn length(&self) -> u64 {
        match &self.state {
            State::Coming | State::Came(_) => self.reserved.bytes,
            State::Failed(_) | State::Read => 0,
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// The `length` bytes that are left of a body, copied: a piece as it was read keeps a buffer of up to 256 KiB.
/// Gives the connection back at its end.
async fn whole(open: Open, length: usize, metrics: &Metrics) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::with_capacity(length);
    open.connection.room().set(length.max(1));
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
                open.ticket.broke();
                return Err(BodyError::Truncated);
            }
        }
    }
    open.ticket.went_well();
    open.connection.give_back();
    Ok(whole.freeze())
}
