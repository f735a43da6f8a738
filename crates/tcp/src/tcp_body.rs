//! Defines the two bodies of an exchange over TCP: the request's from hyper or h2, and the response's for them.

use super::{
    body_discard::{BodyDiscard, LingerLimits},
    request_head,
    response_buffer::{QueuedPiece, ResponseBuffer},
    tcp_connection::{ActiveRequest, TcpConnection},
};
use crate::tcp_metrics::TcpMetrics;
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use litequic_exchange::{
    BodyError, ClientDeadline, RequestRecord, TimeoutCause, priority::Priority, rarely_has_body, terms::FieldLimits,
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

/// Longest wait for the end of a request that should have no body but whose stream is open, so that the origin does not
/// get an empty chunked body. Some clients end a stream in a frame of its own.
const END_TIMEOUT: Duration = Duration::from_millis(20);

/// Length below which pieces of a body are joined, as far as they have arrived, in bytes.
const JOIN_THRESHOLD: usize = 1024;
/// Largest length of joined pieces, in bytes. A longer piece saves little.
const MAX_JOINED: usize = 16 * 1024;
/// Largest number of polls without success while more data seems to be there. hyper polls about sixteen times a turn.
const MAX_VAIN_POLLS: u32 = 64;

/// A request's body as hyper or h2 delivers it.
pub(super) trait IncomingBody: Body<Data = Bytes, Error = BodyError> + Unpin + 'static {
    /// Whether more data has arrived than was delivered.
    fn has_more_data(&self) -> bool;

    /// Whether the client waits for 100 (Continue) before it sends the body.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Ready once the body may be read.
    fn poll_may_read(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Discards the rest of the body, as the request was answered.
    fn discard_rest(self, discarding: BodyDiscard);
}

/// A request's body, polled by the handler. Bytes that are not polled stay with the client.
pub(super) struct TcpRequestBody<I: IncomingBody> {
    /// `None` once the body is dropped.
    incoming: Option<I>,
    /// A frame that was read ahead.
    ahead: Option<Result<Frame<Bytes>, BodyError>>,
    /// Short pieces that were joined so far.
    joined: BytesMut,
    /// Number of polls without success since the last piece.
    vain_polls: u32,
    deadline: ClientDeadline,
    /// The failure of the body, shared with the front end.
    fault: Rc<Cell<Option<BodyError>>>,
    received: u64,
    ended: bool,
    metrics: Arc<TcpMetrics>,
    record: RequestRecord,
    lingering: LingerLimits,
    /// Limits of the trailers.
    trailer_limits: FieldLimits,
}

impl<I: IncomingBody> TcpRequestBody<I> {
    pub(super) fn new<H: 'static>(
        incoming: I,
        connection: &TcpConnection<H>,
        fault: Rc<Cell<Option<BodyError>>>,
        record: RequestRecord,
    ) -> Self {
        Self {
            incoming: Some(incoming),
            ahead: None,
            joined: BytesMut::new(),
            vain_polls: 0,
            deadline: ClientDeadline::new(connection.terms.minimum_upload_rate()),
            fault,
            received: 0,
            ended: false,
            metrics: Arc::clone(&connection.worker.metrics),
            record,
            lingering: connection.linger_limits(),
            trailer_limits: connection.terms.field_limits,
        }
    }

    /// Returns the body for the handler, which may stop the client's deadline.
    pub(super) fn into_upload_body(mut self) -> litequic_exchange::Body {
        litequic_exchange::Body::from_upload(self.deadline.add_switch(), self)
    }

    /// Returns the body, or `None` if it ends at once, as bodies of unknown length often do in requests with this
    /// `method`.
    pub(super) async fn into_nonempty(mut self, method: &Method) -> Option<Self> {
        if !rarely_has_body(method)
            || self.size_hint().exact().is_some()
            || self.incoming.as_ref().is_some_and(IncomingBody::is_held_back)
        {
            return Some(self);
        }
        match timeout(END_TIMEOUT, poll_fn(|cx| self.poll_received(cx))).await {
            Ok(None) => return None,
            Ok(ahead) => self.ahead = ahead,
            Err(_) => {}
        }
        Some(self)
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        // This wait is not counted as the client's.
        ready!(incoming.poll_may_read(cx));
        let next = match Pin::new(incoming).poll_frame(cx) {
            Poll::Pending => {
                match ready!(self.deadline.poll_wait(cx)) {
                    TimeoutCause::Idle => self.metrics.shared.timeout_request_body.increment(),
                    TimeoutCause::Slow => self.metrics.shared.limit_upload_rate.increment(),
                }
                Some(Err(BodyError::TimedOut))
            }
            Poll::Ready(next) => next.map(|frame| frame.and_then(|frame| self.check_frame(frame))),
        };
        match &next {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.deadline.on_progress(bytes);
                self.received = self.received.saturating_add(bytes);
                self.metrics.shared.request_body_bytes.increment_by(bytes);
                self.record.update_facts(|facts| facts.received = self.received);
            }
            Some(Err(error)) => self.fault.set(Some(*error)),
            None => self.ended = true,
        }
        Poll::Ready(next)
    }

    /// Returns `frame`, unless it has trailers that are invalid or too large.
    fn check_frame(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        match frame.trailers_ref().map(|trailers| request_head::check_trailers(trailers, &self.trailer_limits)) {
            Some(Err(limit)) => {
                if let Some(limit) = limit {
                    limit.count_reached(&self.metrics);
                }
                Err(BodyError::Malformed)
            }
            _ => Ok(frame),
        }
    }

    /// Joins short pieces that have arrived. A client that sends byte by byte causes no write, and no wake of the
    /// origin, for each byte.
    fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.joined.len() < MAX_JOINED {
            let next = match self.poll_received(cx) {
                Poll::Ready(next) => next,
                Poll::Pending if self.joined.is_empty() => return Poll::Pending,
                Poll::Pending
                    if self.incoming.as_ref().is_some_and(IncomingBody::has_more_data)
                        && self.vain_polls < MAX_VAIN_POLLS =>
                {
                    self.vain_polls = self.vain_polls.saturating_add(1);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            };
            match next {
                Some(Ok(frame)) if self.may_join(&frame) => {
                    self.joined.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                    self.vain_polls = 0;
                }
                next if self.joined.is_empty() => return Poll::Ready(next),
                next => {
                    self.ahead = next;
                    break;
                }
            }
        }
        self.vain_polls = 0;
        Poll::Ready(Some(Ok(Frame::data(self.joined.split().freeze()))))
    }

    /// Whether more data may be joined with `frame`.
    fn may_join(&self, frame: &Frame<Bytes>) -> bool {
        let is_short = frame.data_ref().is_some_and(|data| data.len() < JOIN_THRESHOLD);
        is_short && !(self.joined.is_empty() && self.incoming.as_ref().is_none_or(Body::is_end_stream))
    }
}

impl<I: IncomingBody> Drop for TcpRequestBody<I> {
    fn drop(&mut self) {
        // An empty body is not an upload.
        if self.received > 0 || !self.ended {
            self.metrics.shared.request_size.observe_size(self.received);
        }
        if let Some(incoming) = self.incoming.take()
            && !self.ended
            && !incoming.is_end_stream()
            && self.fault.get().is_none()
            && let Some(discarding) = self.lingering.begin_discard()
        {
            incoming.discard_rest(discarding);
        }
    }
}

impl<I: IncomingBody> Body for TcpRequestBody<I> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_joined(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.joined.is_empty() && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // Only a body of unknown length is read ahead.
        let incoming = self.incoming.as_ref().filter(|_| self.ahead.is_none() && self.joined.is_empty());
        incoming.map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// A response's body. Its request counts as open as long as the body exists.
pub(super) struct TcpResponseBody<H> {
    body: litequic_exchange::Body,
    /// Number of missing bytes, if the length is known.
    missing: Option<u64>,
    /// `None` before the first piece was passed on.
    buffer: Option<Rc<ResponseBuffer>>,
    /// `None` if a tunnel has the request.
    request: Option<ActiveRequest<H>>,
    /// hyper or h2 has the whole body.
    is_complete: bool,
    /// Failure of the response, reported once the bytes before it are written.
    failed: Option<BodyError>,
}

impl<H> TcpResponseBody<H> {
    pub(super) fn new(body: litequic_exchange::Body, open: ActiveRequest<H>) -> Self {
        Self {
            missing: body.size_hint().exact(),
            body,
            buffer: None,
            request: Some(open),
            is_complete: false,
            failed: None,
        }
    }

    /// Creates an empty body, for a response that a tunnel follows.
    pub(super) const fn for_tunnel() -> Self {
        Self {
            missing: Some(0),
            body: litequic_exchange::Body::empty(),
            buffer: None,
            request: None,
            is_complete: true,
            failed: None,
        }
    }

    fn check_missing(
        &mut self,
        next: Option<Result<Frame<Bytes>, BodyError>>,
    ) -> Option<Result<Frame<Bytes>, BodyError>> {
        let whole = match &next {
            Some(Ok(frame)) => match (frame.data_ref(), &mut self.missing) {
                (Some(data), Some(owed)) => owed.checked_sub(data.len() as u64).map(|left| *owed = left),
                (Some(_), None) => Some(()),
                // Trailers end the body.
                (None, owed) => owed.is_none_or(|owed| owed == 0).then_some(()),
            },
            Some(Err(_)) => None,
            None => self.missing.is_none_or(|owed| owed == 0).then_some(()),
        };
        if whole.is_none() {
            let error = next.and_then(Result::err).unwrap_or(BodyError::Truncated);
            if let Some(open) = &mut self.request {
                open.request_record().record_broken_body(error);
            }
            return Some(Err(error));
        }
        next
    }

    /// Sets the failure, and closes the origin's connection at once.
    fn fail_with(&mut self, error: BodyError, cx: &Context<'_>) {
        self.failed = Some(error);
        self.body = litequic_exchange::Body::empty();
        if let Some(share) = &self.buffer {
            share.end_writing();
        }
        // The connection writes its queued bytes before this body is polled again.
        cx.waker().wake_by_ref();
    }

    /// Ready once the kernel has the bytes from before the failure. On an error hyper and h2 discard their queues, the
    /// response's header as well. The client's minimum rate limits this wait.
    fn poll_handed_over_written(&self, cx: &Context<'_>) -> Poll<()> {
        if let Some(open) = &self.request {
            if open.is_write_blocked() {
                // The connection's task, which is the current one, is woken when the kernel accepts more, or the
                // deadline has passed.
                return Poll::Pending;
            }
            ready!(open.poll_head_written(cx));
        }
        self.buffer.as_ref().map_or(Poll::Ready(()), |share| share.poll_all_written(cx))
    }

    /// Ready when more of the body may be read from the origin; pending while the client has too many bytes to read.
    pub(super) fn poll_may_read_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(share) = &self.buffer
            && self.failed.is_none()
        {
            self.body.set_piece_limit(ready!(share.poll_allowance(cx)));
        }
        Poll::Ready(())
    }

    /// Polls for the next piece; for an error, once the bytes before it are written.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<QueuedPiece>, BodyError>>> {
        if let Some(error) = self.failed {
            ready!(self.poll_handed_over_written(cx));
            if let Some(open) = &mut self.request {
                open.fail_request();
            }
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else {
            // An event stream holds no budget between two events.
            if let Some(share) = &self.buffer {
                share.return_unused_lease();
            }
            return Poll::Pending;
        };
        let next = self.check_missing(next);
        // A response that a tunnel follows has no body.
        let Some(open) = &mut self.request else { return Poll::Ready(None) };
        let frame = match next {
            None => {
                self.is_complete = true;
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                self.fail_with(error, cx);
                return Poll::Pending;
            }
            Some(Ok(frame)) => frame,
        };
        let share = self.buffer.get_or_insert_with(|| open.open_buffer());
        let ends = frame.is_trailers() || self.body.is_end_stream();
        let frame = frame.map_data(|bytes| share.queue_piece(bytes));
        if ends {
            self.is_complete = true;
            share.end_writing();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Returns the priority of the request, if responses are sent by their priorities.
    pub(super) fn body_priority(&self) -> Option<Priority> {
        self.request.as_ref().and_then(|request| request.priority)
    }

    /// Whether the response has failed, and the bytes before the failure are still being written.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes the number of bytes that the client has taken since the last call; `None` if no piece was passed on,
    /// either.
    pub(super) fn take_client_progress(&self) -> Option<u64> {
        self.buffer.as_ref().and_then(|share| share.take_progress())
    }

    /// Ends the response because its client takes no bytes, or too few.
    pub(super) fn stall_response(&mut self) {
        if let Some(open) = &mut self.request {
            open.stall_request();
        }
    }
}

impl<H: 'static> Body for TcpResponseBody<H> {
    type Data = QueuedPiece;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<QueuedPiece>, BodyError>>> {
        ready!(self.poll_may_read_more(cx));
        self.poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream() && self.missing.is_none_or(|owed| owed == 0)
    }

    fn size_hint(&self) -> SizeHint {
        self.missing.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<H> Drop for TcpResponseBody<H> {
    fn drop(&mut self) {
        if let Some(share) = &self.buffer {
            share.end_writing();
        }
        // hyper does not poll a body whose end it knows.
        let whole = self.is_complete || self.body.is_end_stream() || self.missing == Some(0);
        if let Some(open) = self.request.take().filter(|_| whole && self.failed.is_none()) {
            open.hand_over_response();
        }
    }
}
