//! The two bodies of an exchange: the request's as hyper or h2 delivers it, the response's as it is passed to them.

use super::{
    connection::ActiveRequest,
    linger::{Discarding, Lingering},
    request,
    share::{ResponseBuffer, SharedPiece},
};
use crate::metrics::Metrics;
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use litequic_exchange::{
    BodyError, ClientDeadline, MinimumRate, Record, TimeoutCause, has_rarely_a_body, priority::Priority,
    terms::FieldLimits,
};
use std::{
    cell::Cell,
    future::poll_fn,
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

/// A request's body as the library of its protocol delivers it.
pub(super) trait Incoming: Body<Data = Bytes, Error = BodyError> + Unpin + 'static {
    /// Whether more of it has arrived than was delivered.
    fn has_more(&self) -> bool;

    /// Whether the client waits for 100 (Continue) before it sends the body.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Ready once the body may be read.
    fn poll_open(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The request was answered: discards what is left of the body.
    fn discard(self, discarding: Discarding);
}

/// A request's body, pulled by the handler: what is not pulled stays with the client.
pub(super) struct TcpRequestBody<I: Incoming> {
    /// `None` once it is dropped.
    incoming: Option<I>,
    /// Read ahead.
    ahead: Option<Result<Frame<Bytes>, BodyError>>,
    /// Short pieces that were joined so far.
    gathered: BytesMut,
    /// Polls without success since the last piece.
    vain: u32,
    patience: ClientDeadline,
    /// The failure of the body, for the front end.
    fault: Rc<Cell<Option<BodyError>>>,
    received: u64,
    ended: bool,
    metrics: Arc<Metrics>,
    record: Record,
    lingering: Lingering,
    /// The limits of its trailers.
    bounds: FieldLimits,
}

impl<I: Incoming> TcpRequestBody<I> {
    pub(super) fn new(
        incoming: I,
        pace: MinimumRate,
        fault: Rc<Cell<Option<BodyError>>>,
        metrics: Arc<Metrics>,
        record: Record,
        lingering: Lingering,
    ) -> Self {
        Self {
            incoming: Some(incoming),
            ahead: None,
            gathered: BytesMut::new(),
            vain: 0,
            patience: ClientDeadline::new(pace),
            fault,
            received: 0,
            ended: false,
            metrics,
            record,
            lingering,
            bounds: FieldLimits::NONE,
        }
    }

    /// Sets the limits of the trailers.
    pub(super) fn within(mut self, bounds: FieldLimits) -> Self {
        self.bounds = bounds;
        self
    }

    /// The body; `None` if it ends at once, as the body of a `method` request of unknown length often does.
    pub(super) async fn unless_empty(mut self, method: &Method) -> Option<Self> {
        if !has_rarely_a_body(method)
            || self.size_hint().exact().is_some()
            || self.incoming.as_ref().is_some_and(Incoming::is_held_back)
        {
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
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        // Not the client's time.
        ready!(incoming.poll_open(cx));
        let next = match Pin::new(incoming).poll_frame(cx) {
            Poll::Pending => {
                match ready!(self.patience.poll_wait(cx)) {
                    TimeoutCause::Idle => self.metrics.shared.timeout_request_body.increment(),
                    TimeoutCause::Slow => self.metrics.shared.limit_upload_rate.increment(),
                }
                Some(Err(BodyError::TimedOut))
            }
            Poll::Ready(next) => next.map(|frame| frame.and_then(|frame| self.checked(frame))),
        };
        match &next {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.patience.rest(bytes);
                self.received = self.received.saturating_add(bytes);
                self.metrics.shared.request_body_bytes.add(bytes);
                self.record.note(|facts| facts.received = self.received);
            }
            Some(Err(error)) => self.fault.set(Some(*error)),
            None => self.ended = true,
        }
        Poll::Ready(next)
    }
}

impl<I: Incoming> TcpRequestBody<I> {
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
impl<I: Incoming> TcpRequestBody<I> {
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.gathered.len() < GATHERED {
            let next = match self.poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending if self.gathered.is_empty() => return Poll::Pending,
                Poll::Pending if self.incoming.as_ref().is_some_and(Incoming::has_more) && self.vain < TURNS => {
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

impl<I: Incoming> Drop for TcpRequestBody<I> {
    fn drop(&mut self) {
        // An empty body is not an upload.
        if self.received > 0 || !self.ended {
            self.metrics.shared.request_size.observe(self.received);
        }
        if let Some(incoming) = self.incoming.take()
            && !self.ended
            && !incoming.is_end_stream()
            && self.fault.get().is_none()
            && let Some(discarding) = self.lingering.begin()
        {
            incoming.discard(discarding);
        }
    }
}

impl<I: Incoming> Body for TcpRequestBody<I> {
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
pub(super) struct TcpResponseBody<H> {
    body: litequic_exchange::Body,
    /// Bytes that are still missing, if its length is known.
    owed: Option<u64>,
    /// Once a piece of it was passed on.
    share: Option<Rc<ResponseBuffer>>,
    /// `None` if a tunnel has it.
    open: Option<ActiveRequest<H>>,
    /// hyper or h2 has all of it.
    whole: bool,
    /// The failure of the response, which is reported once what came before it is written.
    failed: Option<BodyError>,
}

impl<H> TcpResponseBody<H> {
    pub(super) fn new(body: litequic_exchange::Body, open: ActiveRequest<H>) -> Self {
        Self { owed: body.size_hint().exact(), body, share: None, open: Some(open), whole: false, failed: None }
    }

    /// An empty body, of a response that is followed by a tunnel.
    pub(super) const fn none() -> Self {
        Self {
            owed: Some(0),
            body: litequic_exchange::Body::empty(),
            share: None,
            open: None,
            whole: true,
            failed: None,
        }
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

    /// Sets the failure to `error`. The origin's connection is closed at once.
    fn fail(&mut self, error: BodyError, cx: &Context<'_>) {
        self.failed = Some(error);
        self.body = litequic_exchange::Body::empty();
        if let Some(share) = &self.share {
            share.end();
        }
        // The connection writes what it has before this is polled again.
        cx.waker().wake_by_ref();
    }

    /// Ready once the kernel has what was handed over before the failure: at an error hyper and h2 discard what they
    /// have queued, the response's header too. How long that may take is limited by the client's pace.
    fn poll_written(&self, cx: &Context<'_>) -> Poll<()> {
        if let Some(open) = &self.open {
            if open.is_blocked() {
                // The connection's task, which is this one, is woken when it no longer is, or when that took too long.
                return Poll::Pending;
            }
            ready!(open.poll_begun(cx));
        }
        self.share.as_ref().map_or(Poll::Ready(()), |share| share.poll_written(cx))
    }
}

impl<H> TcpResponseBody<H> {
    /// Ready when more of the body may be read from its origin; pending while its client has to take what was sent.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(share) = &self.share
            && self.failed.is_none()
        {
            self.body.allow(ready!(share.poll_room(cx)));
        }
        Poll::Ready(())
    }

    /// The next piece, once there is room for it; an error once what was handed over before it is written.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<SharedPiece>, BodyError>>> {
        if let Some(error) = self.failed {
            ready!(self.poll_written(cx));
            if let Some(open) = &mut self.open {
                open.fail();
            }
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else {
            // An event stream holds no budget between two events.
            if let Some(share) = &self.share {
                share.rest();
            }
            return Poll::Pending;
        };
        let next = self.check(next);
        // A tunnel has it, and what is followed by one has no body.
        let Some(open) = &mut self.open else { return Poll::Ready(None) };
        let frame = match next {
            None => {
                self.whole = true;
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                self.fail(error, cx);
                return Poll::Pending;
            }
            Some(Ok(frame)) => frame,
        };
        let share = self.share.get_or_insert_with(|| open.share());
        let ends = frame.is_trailers() || self.body.is_end_stream();
        let frame = frame.map_data(|bytes| share.piece(bytes));
        if ends {
            self.whole = true;
            share.end();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// The priority by the request, if responses are sent by their priorities.
    pub(super) fn priority(&self) -> Option<Priority> {
        self.open.as_ref().and_then(ActiveRequest::priority)
    }

    /// Whether it has failed, and the client has to take what was sent before.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Bytes that the client has taken since the last call; `None` if not even a piece was passed on.
    pub(super) fn take_moved(&self) -> Option<u64> {
        self.share.as_ref().and_then(|share| share.take_moved())
    }

    /// The client takes nothing, or too little.
    pub(super) fn stall(&mut self) {
        if let Some(open) = &mut self.open {
            open.stall();
        }
    }
}

impl<H: 'static> Body for TcpResponseBody<H> {
    type Data = SharedPiece;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<SharedPiece>, BodyError>>> {
        ready!(self.poll_room(cx));
        self.poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream() && self.owed.is_none_or(|owed| owed == 0)
    }

    fn size_hint(&self) -> SizeHint {
        self.owed.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<H> Drop for TcpResponseBody<H> {
    fn drop(&mut self) {
        if let Some(share) = &self.share {
            share.end();
        }
        // hyper does not poll a body that has ended already.
        let whole = self.whole || self.body.is_end_stream() || self.owed == Some(0);
        if let Some(open) = self.open.take().filter(|_| whole && self.failed.is_none()) {
            open.handed_over();
        }
    }
}
