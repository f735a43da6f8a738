//! Transfers a response's body from an origin's connection to its client. Its pool can end it, or spool the rest from
//! the origin into memory, while the client's task is parked and polls nothing.

use super::open_exchange::{BodyRead, OpenExchange};
use super::spool::SpooledBody;
use crate::connection::{
    BodyDirection, ClientTime, PreemptionReason, Upload, UploadProgress, WaitingRequest, update_cell,
};
use crate::pool::{PooledResponse, SpoolBudget};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use litequic_base::timers;
use litequic_exchange::{BodyError, RequestRecord};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// A response's body between origin and client. The reader of the body owns it; the pool has a weak reference.
#[derive(Debug)]
pub(crate) struct Transfer {
    source: RefCell<BodySource>,
    /// A piece, or the trailers, that came before the response was forwarded, ahead of `source`.
    ahead: RefCell<Option<Frame<Bytes>>>,
    pub(super) upload: Option<Rc<Upload>>,
    pub(super) record: RequestRecord,
    client: Cell<ClientTime>,
    /// Start of the present wait for the origin.
    waiting: Cell<Option<Instant>>,
    /// Whether the reader has requested a piece.
    requested: Cell<bool>,
    /// Task that waits for the origin.
    reader: RefCell<Option<Waker>>,
}

/// Source of the rest of a body.
#[derive(Debug)]
enum BodySource {
    Connection(OpenExchange),
    /// The rest was spooled into memory.
    Memory(SpooledBody),
    /// The pool has ended the exchange.
    Evicted,
    /// The body is complete, or has failed.
    Done,
}

/// Size of a body of which `ahead` bytes stand before `rest`.
fn add_to_hint(ahead: u64, rest: &SizeHint) -> SizeHint {
    let mut all = SizeHint::new();
    all.set_lower(rest.lower().saturating_add(ahead));
    if let Some(upper) = rest.upper() {
        all.set_upper(upper.saturating_add(ahead));
    }
    all
}

impl Transfer {
    /// A transfer of the body that comes over the connection of `open` after the frame `ahead`, of an exchange with
    /// this `record`. The request's body, `upload`, may still be in flight.
    pub(crate) fn new(
        open: OpenExchange,
        ahead: Option<Frame<Bytes>>,
        upload: Option<Rc<Upload>>,
        record: RequestRecord,
    ) -> Rc<Self> {
        Rc::new_cyclic(|transfer: &Weak<Self>| {
            open.connection.carry_response(transfer.clone());
            Self {
                source: RefCell::new(BodySource::Connection(open)),
                ahead: RefCell::new(ahead),
                upload,
                record,
                client: Cell::default(),
                waiting: Cell::new(None),
                requested: Cell::new(false),
                reader: RefCell::new(None),
            }
        })
    }

    /// Reads the next piece. Between a piece and the next call litequic waits for the client.
    pub(crate) fn poll_source(&self, cx: &mut Context<'_>) -> BodyRead {
        self.requested.set(true);
        update_cell(&self.client, |client| client.end_client_wait(timers::elapsed_since_resume));
        if let Some(frame) = self.ahead.take() {
            return BodyRead::Frame(frame);
        }
        match &mut *self.source.borrow_mut() {
            BodySource::Connection(open) => match open.connection.poll_frame(cx) {
                Poll::Pending => {
                    self.reader.replace(Some(cx.waker().clone()));
                    BodyRead::Wait
                }
                Poll::Ready(None) => BodyRead::End,
                Poll::Ready(Some(Ok(frame))) => BodyRead::Frame(frame),
                Poll::Ready(Some(Err(error))) => BodyRead::Broken(error),
            },
            BodySource::Memory(rest) => rest.poll_spooled(cx),
            BodySource::Evicted => BodyRead::Failed(BodyError::Evicted),
            BodySource::Done => BodyRead::End,
        }
    }

    /// Notes that a piece of `bytes` went to the client's side, and more is to come.
    pub(crate) fn on_delivered(&self, bytes: usize) {
        self.waiting.set(None);
        update_cell(&self.client, |client| {
            client.count_moved(bytes as u64);
            client.begin_client_wait(Instant::now);
        });
    }

    /// Start of the wait for the origin, from now on if there was none.
    pub(crate) fn origin_wait_start(&self) -> Instant {
        let waiting = self.waiting.get().unwrap_or_else(Instant::now);
        self.waiting.set(Some(waiting));
        waiting
    }

    /// Takes the origin's side, if it is still open: no more can be read from now on.
    pub(crate) fn close_source(&self) -> Option<OpenExchange> {
        match self.source.replace(BodySource::Done) {
            BodySource::Connection(open) => Some(open),
            _ => None,
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        if self.ahead.borrow().is_some() {
            return false;
        }
        match &*self.source.borrow() {
            BodySource::Connection(open) => open.connection.is_end_stream(),
            BodySource::Memory(rest) => rest.is_end_stream(),
            // The reader gets the error by its next call.
            BodySource::Evicted => false,
            BodySource::Done => true,
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.borrow().as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        match &*self.source.borrow() {
            BodySource::Connection(open) => add_to_hint(ahead, &open.connection.size_hint()),
            BodySource::Memory(rest) => SizeHint::with_exact(rest.unread_length().saturating_add(ahead)),
            BodySource::Evicted | BodySource::Done => SizeHint::default(),
        }
    }

    /// Stores the rest that was spooled into memory, or the failure of spooling.
    pub(crate) fn on_rest_taken(&self, taken: Result<Bytes, BodyError>) {
        if taken == Err(BodyError::Evicted) {
            self.record.record_eviction();
        }
        if let BodySource::Memory(rest) = &mut *self.source.borrow_mut() {
            rest.on_spooled(taken);
        }
    }
}

impl PooledResponse for Transfer {
    fn is_streaming_call(&self) -> bool {
        self.upload.as_deref().is_some_and(Upload::is_streaming)
    }

    fn preemption_reason(&self, taker: WaitingRequest) -> Option<PreemptionReason> {
        let length = match self.source.try_borrow().ok().as_deref() {
            Some(BodySource::Connection(open)) => open.connection.size_hint().exact(),
            _ => return None,
        };
        if !self.requested.get() {
            // The reader has not requested the first piece, because the client has no room. The wait for the client
            // counts from this call.
            update_cell(&self.client, |client| client.begin_client_wait(Instant::now));
        }
        let upload = self.upload.as_deref().filter(|upload| upload.progress() != UploadProgress::Done);
        let slow = self.client.get().slow_reason(BodyDirection::Download, length, Duration::ZERO, taker);
        let slow = slow.max(upload.and_then(|upload| upload.upload_preemption(taker)));
        slow.or_else(|| {
            let since = self.waiting.get()?;
            taker.silence_reason((taker.elapsed)(upload.map_or(since, |upload| since.max(upload.moved.get()))))
        })
    }

    fn preempt(self: Rc<Self>, budget: Option<&Rc<SpoolBudget>>) -> Option<bool> {
        let mut source = self.source.try_borrow_mut().ok()?;
        let BodySource::Connection(open) = &mut *source else { return None };
        let is_sent = self.upload.as_deref().is_none_or(|upload| upload.progress() == UploadProgress::Done);
        let length = open.connection.size_hint().exact().filter(|_| is_sent);
        let reserved = length.and_then(|length| budget?.reserve_spool(length));
        let next = match reserved {
            Some(reserved) => BodySource::Memory(SpooledBody::with_reservation(reserved)),
            None => BodySource::Evicted,
        };
        let BodySource::Connection(open) = std::mem::replace(&mut *source, next) else { return None };
        // Dropping the connection gives the slot to the next request, and may end other exchanges.
        drop(source);
        let mut source = self.source.try_borrow_mut().ok()?;
        let BodySource::Memory(rest) = &mut *source else {
            drop(source);
            self.ahead.take();
            self.record.record_eviction();
            if let Some(upload) = &self.upload {
                upload.evict_upload();
            }
            drop(open);
            // The reader's task may wait for the origin, whose connection is gone.
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            return Some(true);
        };
        let transfer = Rc::downgrade(&self);
        rest.begin_spooling(open, move |taken| {
            if let Some(transfer) = transfer.upgrade() {
                transfer.on_rest_taken(taken);
            }
        });
        Some(false)
    }
}
