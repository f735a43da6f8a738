//! Sends one request, and reads its response, on a stream of an HTTP/2 connection to an origin. Its calls are those of
//! [`super::OriginConnection`]; a stream is polled by its user too, and the connection's task does the I/O.

use super::http2_connection::Http2Connection;
use super::origin_connection::{ReceivedHead, ReceivedMessage, SendFailure};
use super::request_body::{Upload, UploadProgress};
use super::socket::FIRST_READ;
use super::tls::TlsFailure;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use litequic_base::timers::turn_time;
use litequic_exchange::{BodyCapacity, BodyError, Fields, Head, Traceparent, WholeBody, http2::StreamFailure, name};
use std::{
    cell::{Cell, OnceCell, RefCell},
    net::SocketAddr,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};
use tokio::time::Instant;

/// One request on an HTTP/2 connection. Dropping it before both directions have ended cancels the request.
#[derive(Debug)]
pub(crate) struct OriginStream {
    connection: Rc<Http2Connection>,
    /// ID of the stream, once the request was sent.
    id: Cell<Option<u32>>,
    /// Time at which the request was sent.
    began: Cell<Instant>,
    /// Most bytes of the response that the client accepts, once its body is read in pieces.
    read_capacity: OnceCell<BodyCapacity>,
    outgoing: RefCell<OutgoingBody>,
    has_failed: Cell<bool>,
    /// Whether the request has lost its slot to another client's.
    is_evicted: Cell<bool>,
    /// Task that reads the response while another one sends the request's body.
    reader: RefCell<Option<Waker>>,
}

/// Rest of a request.
#[derive(Debug, Default)]
struct OutgoingBody {
    upload: Option<Rc<Upload>>,
    /// Piece that the windows do not allow yet.
    piece: Bytes,
    traceparent: Option<Traceparent>,
}

const _: () = assert!(size_of::<OriginStream>() <= 160);

impl OriginStream {
    /// A stream to be opened on `connection`.
    pub(crate) fn new(connection: &Rc<Http2Connection>) -> Self {
        connection.requests.set(connection.requests.get().saturating_add(1));
        Self {
            connection: Rc::clone(connection),
            id: Cell::new(None),
            began: Cell::new(turn_time()),
            read_capacity: OnceCell::new(),
            outgoing: RefCell::default(),
            has_failed: Cell::new(false),
            is_evicted: Cell::new(false),
            reader: RefCell::default(),
        }
    }

    /// Address of the server, over TCP.
    pub(crate) fn server_address(&self) -> Option<SocketAddr> {
        self.connection.address
    }

    /// Most bytes of the response that the client accepts.
    pub(crate) fn response_capacity(&self) -> &BodyCapacity {
        self.read_capacity.get_or_init(|| Rc::new(Cell::new(FIRST_READ)))
    }

    /// Whether the connection served a request before this one.
    pub(crate) fn is_reused(&self) -> bool {
        self.connection.requests.get() > 1
    }

    /// Prepares a request with the body `upload`, to be sent by [`Self::poll_response`] with `traceparent` in its
    /// header.
    pub(crate) fn prepare_request(&self, upload: Option<Rc<Upload>>, traceparent: Option<Traceparent>) {
        let upload = upload.filter(|upload| !upload.is_empty());
        if let Some(upload) = &upload {
            upload.keep_beginning();
        }
        self.outgoing.replace(OutgoingBody { upload, traceparent, ..OutgoingBody::default() });
    }

    /// Sends the request with this `head`, and waits for an interim response or the final one's head.
    pub(crate) fn poll_response(
        &self,
        head: &Head,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedMessage, SendFailure>> {
        if self.is_evicted.get() {
            return Poll::Ready(Err(SendFailure::Evicted));
        }
        let id = match self.id.get() {
            Some(id) => id,
            None => match self.begin_request(head) {
                Some(id) => id,
                None => return Poll::Ready(Err(SendFailure::Unsent)),
            },
        };
        let received = self.connection.state.borrow_mut().poll_message(id, cx);
        if received.is_pending()
            && let Poll::Ready(Err(_)) = self.poll_send(cx)
        {
            return Poll::Ready(Err(SendFailure::Body));
        }
        Poll::Ready(match ready!(received) {
            Ok((status, fields)) if status.is_informational() => Ok(ReceivedMessage::Interim(status, fields)),
            Ok((status, fields)) => {
                if let Some(upload) = &self.outgoing.borrow().upload {
                    upload.forget_beginning();
                }
                Ok(ReceivedMessage::Response(ReceivedHead { status, is_http_10: false, fields }))
            }
            Err(StreamFailure::Unprocessed) => {
                self.connection.metrics.origin_streams_refused.increment();
                Err(SendFailure::Unsent)
            }
            Err(failure) => Err(SendFailure::Stream(failure)),
        })
    }

    fn begin_request(&self, head: &Head) -> Option<u32> {
        let outgoing = self.outgoing.borrow();
        let traceparent = outgoing.traceparent.as_ref().map(Traceparent::to_bytes);
        let extra = traceparent.as_ref().map(|value| (name::TRACEPARENT, value.as_slice()));
        let scheme = if self.connection.is_https { "https" } else { "http" };
        let id = self.connection.state.borrow_mut().begin_stream(head, scheme, extra, outgoing.upload.is_none())?;
        self.id.set(Some(id));
        self.began.set(turn_time());
        self.connection.metrics.origin_streams_open.increment();
        self.connection.wake_driver();
        Some(id)
    }

    /// Sends the rest of the request. Ready once the connection has all of it, or the body has failed.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let outgoing = &mut *self.outgoing.borrow_mut();
        let Some(id) = self.id.get() else { return Poll::Pending };
        loop {
            if self.has_failed.get() {
                return Poll::Ready(Err(BodyError::Cancelled));
            }
            let Some(upload) = &outgoing.upload else { return Poll::Ready(Ok(())) };
            let mut state = self.connection.state.borrow_mut();
            if state.is_request_sent(id) {
                // The server wants no more of the body, or its response is lost.
                outgoing.upload = None;
                return Poll::Ready(Ok(()));
            }
            if let UploadProgress::Failed(error) = upload.progress() {
                outgoing.upload = None;
                self.has_failed.set(true);
                return Poll::Ready(Err(error));
            }
            if !outgoing.piece.is_empty() {
                if state.poll_upload_window(id, cx) == 0 {
                    return Poll::Pending;
                }
                state.send_piece(id, &mut outgoing.piece);
                drop(state);
                self.connection.wake_driver();
                continue;
            }
            drop(state);
            // The end of a body needs no window, so that it is polled without one.
            let trailers = match ready!(upload.poll_frame(cx)) {
                // The failure is noted in its progress.
                Some(Err(_)) => continue,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        outgoing.piece = piece;
                        continue;
                    }
                    Err(frame) => frame.into_trailers().ok().map(Fields::from),
                },
                None => None,
            };
            outgoing.upload = None;
            self.connection.state.borrow_mut().finish_request(id, trailers.as_ref());
            self.connection.wake_driver();
        }
    }

    /// Reads the next piece of the response's body. With `sends` this also sends the request's body; otherwise another
    /// task does.
    pub(crate) fn poll_frame(
        &self,
        sends: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if sends {
            // A failure is noted.
            let _ = self.poll_send(cx);
        }
        let Some(id) = self.id.get().filter(|_| !self.has_failed.get()) else {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        };
        let mut state = self.connection.state.borrow_mut();
        let (before, polled) = (
            state.output_length(),
            state.poll_content(id, self.read_capacity.get().map_or(FIRST_READ, |capacity| capacity.get()), cx),
        );
        let trailers = if matches!(polled, Poll::Ready(None)) { state.take_response_trailers(id) } else { None };
        let updates_window = state.output_length() > before;
        drop(state);
        if updates_window {
            self.connection.wake_driver();
        }
        if polled.is_pending() && !sends {
            self.reader.replace(Some(cx.waker().clone()));
        }
        Poll::Ready(match ready!(polled) {
            Some(Ok(piece)) => Some(Ok(Frame::data(piece))),
            Some(Err(StreamFailure::Malformed | StreamFailure::Head(_))) => Some(Err(BodyError::Malformed)),
            Some(Err(error)) => {
                tracing::debug!(%error, "a response of the origin ended early");
                Some(Err(BodyError::Truncated))
            }
            None => trailers.map(|fields| Ok(Frame::trailers(fields.into()))),
        })
    }

    /// Sends the rest of the request while no task reads the response. Ready once everything is sent.
    pub(crate) fn poll_send_alone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.poll_send(cx)).is_err() {
            // The origin must not wait for the rest, even if its response is not read.
            self.cancel_request();
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
        Poll::Ready(())
    }

    /// The body of the response if all of it came with the head, and the request is sent.
    pub(crate) fn take_whole_body(&self) -> Option<WholeBody> {
        let id = self.id.get().filter(|_| self.is_sent())?;
        self.connection.state.borrow_mut().take_whole_content(id)
    }

    /// Whether the response's body has no more bytes or trailers.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.id.get().is_some_and(|id| self.connection.state.borrow().is_response_read(id))
    }

    /// Remaining size of the response's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        let remaining = self.id.get().and_then(|id| self.connection.state.borrow().remaining_content(id));
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Whether the connection has the whole request.
    pub(crate) fn is_sent(&self) -> bool {
        self.id.get().is_some_and(|id| self.connection.state.borrow().is_request_sent(id))
    }

    /// Whether a part of the response was received.
    pub(crate) fn has_answered(&self) -> bool {
        self.id.get().is_some_and(|id| self.connection.state.borrow().has_response_begun(id))
    }

    /// TLS failure since the handshake.
    pub(crate) fn tls_session_failure(&self) -> Option<TlsFailure> {
        self.connection.failure.borrow().clone()
    }

    /// Ends the request, whose response's header has not come, for another client's request:
    /// [`Self::poll_response`] fails.
    pub(crate) fn evict_request(&self) {
        self.is_evicted.set(true);
        self.cancel_request();
    }

    fn cancel_request(&self) {
        if let Some(id) = self.id.get() {
            self.connection.state.borrow_mut().cancel_stream(id);
            self.connection.count_cancel();
            self.connection.wake_driver();
        }
    }
}

impl Drop for OriginStream {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            if !self.has_answered() {
                self.connection.on_unanswered(self.began.get());
            }
            self.connection.end_stream(id);
        }
    }
}
