//! The two bodies of an exchange: the request's as hyper delivers it, the response's as hyper reads it.

use super::{
    connection::Open,
    http1::{Bounds, Gate, Pipeline},
    http2::Stall,
    linger::{Lingering, Rest},
    request,
    share::{Piece, Share},
};
use crate::{
    exchange::{BodyError, Late, Pace, Patience, Record, has_rarely_a_body},
    tcp::Metrics,
};
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    cell::Cell,
    error::Error as _,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::timeout;

/// A request that should have no body but whose stream is still open: how long to wait for its end, so that the origin
/// does not get an empty chunked body. Some clients end a stream in a frame of its own.
const END_WAIT: Duration = Duration::from_millis(20);

/// Pieces of a body shorter than this are joined, as far as they have arrived.
const SHORT: usize = 1024;
/// The size of joined pieces: beyond it a piece costs little for each of its bytes.
const GATHERED: usize = 16 * 1024;
/// How often the next piece is polled without success although there seems to be more: hyper polls some sixteen times a
/// turn.
const TURNS: u32 = 64;

/// A request's body, pulled by the handler: what is not pulled stays with the client.
pub(super) struct RequestBody {
    /// `None` once it is dropped.
    incoming: Option<Incoming>,
    /// Read ahead.
    ahead: Option<Result<Frame<Bytes>, BodyError>>,
    /// Short pieces that were joined so far.
    gathered: BytesMut,
    /// Over HTTP/1.1, where hyper delivers one piece a turn of what came at once: the state that knows whether there is
    /// more.
    pipeline: Option<Rc<Pipeline>>,
    /// Its client waits for 100 (Continue).
    gate: Option<Gate>,
    /// Polls without success since the last piece.
    vain: u32,
    patience: Patience,
    /// Its fault.
    fault: Rc<Cell<Option<BodyError>>>,
    received: u64,
    ended: bool,
    metrics: Arc<Metrics>,
    record: Record,
    /// Over HTTP/2: discards what is left.
    stall: Option<Rc<Stall>>,
    lingering: Lingering,
    /// The limits of its trailers.
    bounds: Bounds,
}

impl RequestBody {
    pub(super) fn new(
        incoming: Incoming,
        pipeline: Option<Rc<Pipeline>>,
        pace: Pace,
        fault: Rc<Cell<Option<BodyError>>>,
        metrics: Arc<Metrics>,
        record: Record,
        lingering: Lingering,
    ) -> Self {
        let stall = Stall::current();
        if let Some(stall) = &stall {
            stall.watch();
        }
        Self {
            incoming: Some(incoming),
            ahead: None,
            gathered: BytesMut::new(),
            pipeline,
            gate: None,
            vain: 0,
            patience: Patience::new(pace),
            fault,
            received: 0,
            ended: false,
            metrics,
            record,
            stall,
            lingering,
            bounds: Bounds { bytes: usize::MAX, fields: usize::MAX },
        }
    }

    /// Not read before `gate` is open.
    pub(super) fn behind(mut self, gate: Option<Gate>) -> Self {
        self.gate = gate;
        self
    }

    /// The same body with limits of its trailers.
    pub(super) fn within(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// The body; `None` if it ends at once, as the body of a `method` request of unknown length often does.
    pub(super) async fn unless_empty(mut self, method: &Method) -> Option<Self> {
        if !has_rarely_a_body(method) || self.size_hint().exact().is_some() || self.gate.is_some() {
            return Some(self);
        }
        match timeout(END_WAIT, poll_fn(|cx| self.poll_next(cx))).await {
            Ok(None) => return None,
            Ok(ahead) => self.ahead = ahead,
            Err(_) => {}
        }
        Some(self)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(gate) = &self.gate {
            // Not the client's time.
            ready!(gate.poll_open(cx));
            self.gate = None;
        }
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let next = match Pin::new(incoming).poll_frame(cx) {
            Poll::Pending => {
                match ready!(self.patience.poll_wait(cx)) {
                    Late::Idle => self.metrics.shared.timeout_request_body.increment(),
                    Late::Slow => self.metrics.shared.limit_upload_rate.increment(),
                }
                Some(Err(BodyError::TimedOut))
            }
            Poll::Ready(next) => {
                next.map(|frame| frame.map_err(|error| cause(&error)).and_then(|frame| self.checked(frame)))
            }
        };
        match &next {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.patience.rest(bytes);
                self.received = self.received.saturating_add(bytes);
                self.metrics.shared.request_body_bytes.add(bytes);
                self.record.note(|facts| facts.received = self.received);
                if let Some(stall) = &self.stall {
                    stall.taken(bytes);
                }
            }
            Some(Err(error)) => self.fault.set(Some(*error)),
            None => self.ended = true,
        }
        Poll::Ready(next)
    }
}

impl RequestBody {
    /// `frame`, unless it has trailers that are invalid or too large.
    fn checked(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        match frame.trailers_ref().map(|trailers| request::check_trailers(trailers, &self.bounds)) {
            Some(Err(limit)) => {
                if let Some(limit) = limit {
                    limit.count(&self.metrics);
                }
                Err(BodyError::Malformed)
            }
            _ => Ok(frame),
        }
    }
}

/// Joins short pieces as far as they have arrived, so that a client that sends byte by byte does not cause a write, and
/// a wake of the origin, for each byte.
impl RequestBody {
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.gathered.len() < GATHERED {
            let next = match self.poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending if self.gathered.is_empty() => return Poll::Pending,
                Poll::Pending
                    if self.pipeline.as_ref().is_some_and(|pipeline| !pipeline.is_drained()) && self.vain < TURNS =>
                {
                    self.vain = self.vain.saturating_add(1);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            };
            match next {
                Some(Ok(frame)) if self.is_short(&frame) => {
                    self.gathered.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                    self.vain = 0;
                }
                next if self.gathered.is_empty() => return Poll::Ready(next),
                next => {
                    self.ahead = next;
                    break;
                }
            }
        }
        self.vain = 0;
        Poll::Ready(Some(Ok(Frame::data(self.gathered.split().freeze()))))
    }

    /// Whether more may be joined with it.
    fn is_short(&self, frame: &Frame<Bytes>) -> bool {
        let is_short = frame.data_ref().is_some_and(|data| data.len() < SHORT);
        is_short && !(self.gathered.is_empty() && self.incoming.as_ref().is_none_or(Body::is_end_stream))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // An empty body is not an upload.
        if self.received > 0 || !self.ended {
            self.metrics.shared.request_size.observe(self.received);
        }
        if let (Some(stall), Some(incoming)) = (&self.stall, self.incoming.take())
            && !self.ended
            && !incoming.is_end_stream()
            && self.fault.get().is_none()
            && let Some(discarding) = self.lingering.begin()
        {
            stall.discard(Rest { incoming, discarding });
        }
    }
}

/// The cause of hyper's error: the guard's, or that the client is gone.
fn cause(error: &hyper::Error) -> BodyError {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return BodyError::Malformed;
        }
        source = inner.source();
    }
    BodyError::Cancelled
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_gathered(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.gathered.is_empty() && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // What was read ahead is of a body of unknown length.
        let incoming = self.incoming.as_ref().filter(|_| self.ahead.is_none() && self.gathered.is_empty());
        incoming.map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// A response's body, which keeps its request open.
pub(super) struct ResponseBody<H> {
    body: crate::exchange::Body,
    /// Bytes that are still missing, if its length is known.
    owed: Option<u64>,
    /// Over HTTP/2, once it was polled for the first time.
    stall: Option<Rc<Stall>>,
    /// Once a piece of it was passed on.
    share: Option<Rc<Share>>,
    /// `None` if a tunnel has it.
    open: Option<Open<H>>,
    /// It has failed.
    failed: Option<BodyError>,
}

impl<H> ResponseBody<H> {
    pub(super) fn new(body: crate::exchange::Body, open: Open<H>) -> Self {
        Self { owed: body.size_hint().exact(), body, stall: None, share: None, open: Some(open), failed: None }
    }

    /// That of a response which is followed by a tunnel.
    pub(super) const fn none() -> Self {
        Self { owed: Some(0), body: crate::exchange::Body::empty(), stall: None, share: None, open: None, failed: None }
    }

    fn check(&mut self, next: Option<Result<Frame<Bytes>, BodyError>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        let whole = match &next {
            Some(Ok(frame)) => match (frame.data_ref(), &mut self.owed) {
                (Some(data), Some(owed)) => owed.checked_sub(data.len() as u64).map(|left| *owed = left),
                (Some(_), None) => Some(()),
                // Trailers are the end.
                (None, owed) => owed.is_none_or(|owed| owed == 0).then_some(()),
            },
            Some(Err(_)) => None,
            None => self.owed.is_none_or(|owed| owed == 0).then_some(()),
        };
        if whole.is_none() {
            let error = next.and_then(Result::err).unwrap_or(BodyError::Truncated);
            if let Some(open) = &mut self.open {
                open.record().broke_off(error);
            }
            return Some(Err(error));
        }
        next
    }

    /// It has failed with `error`. The origin's connection is closed at once.
    fn fail(&mut self, error: BodyError, cx: &Context<'_>) {
        self.failed = Some(error);
        self.body = crate::exchange::Body::empty();
        if let Some(share) = &self.share {
            share.end();
        }
        // The connection writes what it has before this is polled again.
        cx.waker().wake_by_ref();
    }

    /// Ready once the kernel has what was handed over before the failure: at an error hyper and h2 discard what they have queued, the
    /// response's header too. How long that may take is limited by the client's pace.
    fn poll_written(&self, cx: &Context<'_>) -> Poll<()> {
        if self.open.as_ref().is_some_and(Open::is_blocked) {
            // The connection's task, which is this one, is woken when it no longer is, or when that took too long.
            return Poll::Pending;
        }
        self.share.as_ref().map_or(Poll::Ready(()), |share| share.poll_written(cx))
    }
}

impl<H: 'static> Body for ResponseBody<H> {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let this = &mut *self;
        if let Some(error) = this.failed {
            ready!(this.poll_written(cx));
            if let Some(open) = &mut this.open {
                open.fail();
            }
            return Poll::Ready(Some(Err(error)));
        }
        if this.stall.is_none() {
            this.stall = Stall::current();
        }
        if let Some(share) = &this.share {
            // Pending: waiting for the client.
            let room = ready!(share.poll_room(cx));
            this.body.allow(room);
        }
        if let Some(stall) = &this.stall {
            stall.asked();
        }
        let Poll::Ready(next) = Pin::new(&mut this.body).poll_frame(cx) else {
            // An event stream holds no budget between two events.
            if let Some(share) = &this.share {
                share.rest();
            }
            return Poll::Pending;
        };
        let next = this.check(next);
        // A tunnel has it, and what is followed by one has no body.
        let Some(open) = &mut this.open else { return Poll::Ready(None) };
        let frame = match next {
            None => {
                open.end();
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                this.fail(error, cx);
                return Poll::Pending;
            }
            Some(Ok(frame)) => frame,
        };
        open.sent(frame.data_ref().map_or(0, |data| data.len() as u64));
        if let Some(stall) = &this.stall {
            stall.handed_over();
        }
        let share = this.share.get_or_insert_with(|| open.share(this.stall.clone()));
        let ends = frame.is_trailers() || this.body.is_end_stream();
        let frame = frame.map_data(|bytes| share.piece(bytes));
        if ends {
            open.end();
            share.end();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream() && self.owed.is_none_or(|owed| owed == 0)
    }

    fn size_hint(&self) -> SizeHint {
        self.owed.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<H> Drop for ResponseBody<H> {
    fn drop(&mut self) {
        if let Some(share) = &self.share {
            share.end();
        }
        // hyper does not poll a body that has ended already.
        if let Some(open) = &mut self.open
            && self.failed.is_none()
            && (self.body.is_end_stream() || self.owed == Some(0))
        {
            open.end();
        }
        if let Some(open) = &mut self.open
            && self.stall.as_ref().is_some_and(|stall| stall.is_over())
        {
            open.stall();
        }
    }
}
