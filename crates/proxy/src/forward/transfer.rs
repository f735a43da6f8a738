//! The transfer of a response's body from an origin's connection to its client. Its pool can end it, or take the rest
//! from the origin into memory, while the client's task is parked and polls nothing.

use super::open::{Open, Read};
use super::rest::Rest;
use crate::connection::{ClientTime, PreemptionReason, Progress, Taker, Upload, update};
use crate::pool::{PooledResponse, RestBudget};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use litequic_base::timers;
use litequic_exchange::{BodyError, Record};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// One response's body on its way. The reader of the body owns it; the pool knows it weakly.
#[derive(Debug)]
pub(crate) struct Transfer {
    source: RefCell<Source>,
    /// A piece, or the trailers, that came before the response was passed on: what its source has comes after it.
    ahead: RefCell<Option<Frame<Bytes>>>,
    upload: Option<Rc<Upload>>,
    record: Record,
    client: Cell<ClientTime>,
    /// Since when the origin is waited for.
    waiting: Cell<Option<Instant>>,
    /// The reader has asked for a piece.
    asked: Cell<bool>,
    /// The task that waits for the origin.
    reader: RefCell<Option<Waker>>,
}

/// Where the rest of the body comes from.
#[derive(Debug)]
enum Source {
    Connection(Open),
    /// Memory: the rest was taken from the origin.
    Memory(Rest),
    /// Nowhere: the pool has ended the exchange.
    Evicted,
    /// Nowhere: the body is complete, or has failed.
    Done,
}

/// The size of a body of which `ahead` bytes stand before `rest`.
fn and(ahead: u64, rest: &SizeHint) -> SizeHint {
    let mut all = SizeHint::new();
    all.set_lower(rest.lower().saturating_add(ahead));
    if let Some(upper) = rest.upper() {
        all.set_upper(upper.saturating_add(ahead));
    }
    all
}

impl Transfer {
    /// The body that comes over the connection of `open` after the frame `ahead`, of an exchange with this `record`.
    /// The request's body, `upload`, may still be on its way.
    pub(crate) fn new(open: Open, ahead: Option<Frame<Bytes>>, upload: Option<Rc<Upload>>, record: Record) -> Rc<Self> {
        Rc::new_cyclic(|transfer: &Weak<Self>| {
            open.connection.carries(transfer.clone());
            Self {
                source: RefCell::new(Source::Connection(open)),
                ahead: RefCell::new(ahead),
                upload,
                record,
                client: Cell::default(),
                waiting: Cell::new(None),
                asked: Cell::new(false),
                reader: RefCell::new(None),
            }
        })
    }

    /// The next piece. Between a piece that is taken and the next call the client is waited for.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Read {
        self.asked.set(true);
        update(&self.client, |client| client.end(timers::elapsed));
        if let Some(frame) = self.ahead.take() {
            return Read::Frame(frame);
        }
        match &mut *self.source.borrow_mut() {
            Source::Connection(open) => match open.connection.poll_frame(cx) {
                Poll::Pending => {
                    self.reader.replace(Some(cx.waker().clone()));
                    Read::Wait
                }
                Poll::Ready(None) => Read::End,
                Poll::Ready(Some(Ok(frame))) => Read::Frame(frame),
                Poll::Ready(Some(Err(error))) => Read::Broken(error),
            },
            Source::Memory(rest) => rest.poll(cx),
            Source::Evicted => Read::Failed(BodyError::Evicted),
            Source::Done => Read::End,
        }
    }

    /// A piece of `bytes` was given to the client's side, and more is to come.
    pub(crate) fn gave(&self, bytes: usize) {
        self.waiting.set(None);
        update(&self.client, |client| {
            client.count(bytes as u64);
            client.begin(Instant::now);
        });
    }

    /// Since when the origin is waited for, from now on if it was not.
    pub(crate) fn wait(&self) -> Instant {
        let waiting = self.waiting.get().unwrap_or_else(Instant::now);
        self.waiting.set(Some(waiting));
        waiting
    }

    /// The origin's side, if it is still open: from now on there is nothing to read.
    pub(crate) fn close(&self) -> Option<Open> {
        match self.source.replace(Source::Done) {
            Source::Connection(open) => Some(open),
            _ => None,
        }
    }

    /// The request's body.
    pub(crate) fn upload(&self) -> Option<&Rc<Upload>> {
        self.upload.as_ref()
    }

    /// Whether the body has nothing more.
    pub(crate) fn is_end_stream(&self) -> bool {
        if self.ahead.borrow().is_some() {
            return false;
        }
        match &*self.source.borrow() {
            Source::Connection(open) => open.connection.is_end_stream(),
            Source::Memory(rest) => rest.is_end_stream(),
            // The reader learns of it by its next call.
            Source::Evicted => false,
            Source::Done => true,
        }
    }

    /// The bytes that are still to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.borrow().as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        match &*self.source.borrow() {
            Source::Connection(open) => and(ahead, &open.connection.size_hint()),
            Source::Memory(rest) => SizeHint::with_exact(rest.length().saturating_add(ahead)),
            Source::Evicted | Source::Done => SizeHint::default(),
        }
    }

    /// What was taken from the origin into memory: the rest of the body, or why it is not complete.
    pub(crate) fn took(&self, taken: Result<Bytes, BodyError>) {
        if taken == Err(BodyError::Evicted) {
            self.record.evicted();
        }
        if let Source::Memory(rest) = &mut *self.source.borrow_mut() {
            rest.took(taken);
        }
    }
}

impl PooledResponse for Transfer {
    fn gives_way(&self, taker: Taker) -> Option<PreemptionReason> {
        let length = match self.source.try_borrow().ok().as_deref() {
            Some(Source::Connection(open)) => open.connection.size_hint().exact(),
            _ => return None,
        };
        if !self.asked.get() {
            // The reader has not asked for the first piece: the client has no room for it. The wait for it counts from
            // this call.
            update(&self.client, |client| client.begin(Instant::now));
        }
        let upload = self.upload.as_deref().filter(|upload| upload.progress() != Progress::Done);
        let slow = self.client.get().download(length, taker);
        let slow = slow.max(upload.and_then(|upload| upload.gives_way(taker)));
        slow.or_else(|| {
            let since = self.waiting.get()?;
            taker.silent((taker.elapsed)(upload.map_or(since, |upload| since.max(upload.moved()))))
        })
    }

    fn give_way(self: Rc<Self>, budget: Option<&Rc<RestBudget>>) -> Option<bool> {
        let mut source = self.source.try_borrow_mut().ok()?;
        let Source::Connection(open) = &mut *source else { return None };
        let is_sent = self.upload.as_deref().is_none_or(|upload| upload.progress() == Progress::Done);
        let length = open.connection.size_hint().exact().filter(|_| is_sent);
        let reserved = length.and_then(|length| budget?.reserve(length));
        let next = match reserved {
            Some(reserved) => Source::Memory(Rest::pending(reserved)),
            None => Source::Evicted,
        };
        let Source::Connection(open) = std::mem::replace(&mut *source, next) else { return None };
        // The connection's drop gives the slot to the next request, and may end others.
        drop(source);
        let mut source = self.source.try_borrow_mut().ok()?;
        let Source::Memory(rest) = &mut *source else {
            drop(source);
            self.ahead.take();
            self.record.evicted();
            if let Some(upload) = &self.upload {
                upload.evict();
            }
            drop(open);
            // Its task may wait for the origin, whose connection is gone.
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            return Some(true);
        };
        let transfer = Rc::downgrade(&self);
        rest.take(open, move |taken| {
            if let Some(transfer) = transfer.upgrade() {
                transfer.took(taken);
            }
        });
        Some(false)
    }
}
