//! Receives the request on a stream: reads frames, then the request's body as the proxy polls it.

use super::{
    error_code::{ErrorCode, to_application_error},
    frame::{MessagePart, MessageStream, PeerRole},
    http3_lifecycle::Http3Lifecycle,
    http3_worker::Http3Connection,
    lingering_streams::LingeringStreams,
    message,
    qpack::{self, DecodeError, FieldLimits},
    request_outcome::{RequestFault, RequestOutcome},
};
use crate::http3_metrics::Http3Metrics;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use litequic_base::timers::DeadlineTimer;
use litequic_exchange::{BodyError, ClientDeadline, Fields, MinimumRate, RequestRecord, TimeoutCause};
use litequic_resources::{connections::TrafficCounter, receive::UploadDetector};
use s2n_quic::stream::ReceiveStream;
use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Number of chunks taken from QUIC in one call.
const CHUNKS_PER_READ: usize = 8;
/// Bytes at the beginning of a body that are taken one chunk at a time rather than [`CHUNKS_PER_READ`]: most bodies are
/// one chunk.
const SINGLE_CHUNK_BYTES: u64 = 64 * 1024;
/// Length below which pieces of a body are joined, as far as they have arrived. A client that frames byte by byte
/// causes no write, and no wake of the origin, for each byte.
const JOIN_THRESHOLD: usize = 1024;
/// Largest length of joined pieces, in bytes. A longer piece saves little.
const MAX_JOINED: usize = 16 * 1024;

/// Reader of a request stream. If it is dropped before the stream's end, the rest is discarded, or STOP_SENDING is
/// sent.
pub(super) struct RequestReceiver {
    /// `None` once the reader is dropped.
    stream: Option<ReceiveStream>,
    pub(super) message: MessageStream,
    /// The chunk taken from QUIC. At first one at a time is taken: a request may wait long for a connection to its
    /// origin, and a chunk that is held counts as read.
    chunk: Bytes,
    /// Replaces `chunk` after [`SINGLE_CHUNK_BYTES`]. Chunks from `at` on are not read yet.
    chunks: Option<Box<[Bytes; CHUNKS_PER_READ]>>,
    at: usize,
    /// Number of bytes taken from QUIC.
    received: u64,
    /// The client has sent the last byte.
    finished: bool,
    /// Timer of a pause, after too many small frames.
    pause: DeadlineTimer,
    outcome: Rc<RequestOutcome>,
    life: Rc<Http3Lifecycle>,
    lingering: Rc<LingeringStreams>,
    taken: UploadDetector,
    motion: TrafficCounter,
}

const _: () = assert!(size_of::<RequestReceiver>() <= 368);

impl RequestReceiver {
    pub(super) fn new<H>(
        stream: ReceiveStream,
        max_header_bytes: u32,
        outcome: Rc<RequestOutcome>,
        connection: &Http3Connection<H>,
    ) -> Self {
        Self {
            stream: Some(stream),
            message: MessageStream::new(PeerRole::Client, max_header_bytes as usize),
            chunk: Bytes::new(),
            chunks: None,
            at: CHUNKS_PER_READ,
            received: 0,
            finished: false,
            pause: DeadlineTimer::default(),
            outcome,
            life: Rc::clone(&connection.lifecycle),
            lingering: Rc::clone(&connection.lingering),
            taken: UploadDetector::new(connection.memory.received.clone()),
            motion: connection.memory.entry.traffic_counter(),
        }
    }

    /// Polls for the next part of the request; `None` at its end. Cancel safe.
    pub(super) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<MessagePart>, RequestFault>> {
        loop {
            let chunks = self
                .chunks
                .as_deref_mut()
                .map_or(slice::from_mut(&mut self.chunk), <[Bytes; CHUNKS_PER_READ]>::as_mut_slice);
            while let Some(chunk) = chunks.get_mut(self.at) {
                if let Some(part) = self.message.read_part(chunk).map_err(RequestFault::from_code)? {
                    return Poll::Ready(Ok(Some(part)));
                }
                self.at += 1;
            }
            // Counted once for all bytes that arrived together: chunks are bounded, and so is the cost of reading them.
            ready!(self.life.poll_small_frames(self.message.take_small_frames(), &mut self.pause, cx));
            if self.finished {
                self.message.check_end().map_err(RequestFault::from_code)?;
                return Poll::Ready(Ok(None));
            }
            let stream = self.stream.as_mut().ok_or(RequestFault::Cancelled)?;
            let chunks = if self.received < SINGLE_CHUNK_BYTES {
                slice::from_mut(&mut self.chunk)
            } else {
                self.chunks.get_or_insert_default().as_mut_slice()
            };
            let (count, open) =
                ready!(stream.poll_receive_vectored(chunks, cx)).map_err(|_| RequestFault::Cancelled)?;
            let bytes = chunks.iter().take(count).map(|chunk| chunk.len() as u64).sum();
            self.taken.count_body_bytes(bytes);
            self.motion.count_received(bytes);
            self.received = self.received.saturating_add(bytes);
            self.at = 0;
            self.finished = !open;
        }
    }

    /// Reads the stream to its end, for a request whose `Content-Length` is 0. Trailers are dropped, as HTTP/1.1 has
    /// none after a body of known length. Dropping the future loses trailers alone.
    pub(super) async fn read_empty_body(
        &mut self,
        limits: &FieldLimits,
        metrics: &Http3Metrics,
    ) -> Result<(), RequestFault> {
        while let Some(part) = poll_fn(|cx| self.poll_part(cx)).await? {
            match part {
                MessagePart::Data(_) => return Err(RequestFault::Stream(ErrorCode::MessageError)),
                MessagePart::Trailers(section) => drop(read_trailers(&section, limits, metrics)?),
                MessagePart::TrailersTooLarge => return Err(trailers_too_large_fault(metrics)),
                MessagePart::Header(_) | MessagePart::HeaderTooLarge => {
                    return Err(RequestFault::Connection(ErrorCode::FrameUnexpected));
                }
            }
        }
        Ok(())
    }

    /// Whether all bytes were read: the last read came with the stream's end.
    pub(super) fn is_finished(&self) -> bool {
        let chunks = self.chunks.as_deref().map_or(slice::from_ref(&self.chunk), <[Bytes; CHUNKS_PER_READ]>::as_slice);
        self.finished && chunks.iter().skip(self.at).all(Bytes::is_empty)
    }
}

impl Drop for RequestReceiver {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| !self.finished) else { return };
        let code = self.outcome.stop_code.get();
        if code == ErrorCode::NoError && self.lingering.is_lingering_enabled() && self.outcome.fault.get().is_none() {
            self.lingering.discard_upload(stream, Rc::clone(&self.outcome), self.taken.account.clone());
        } else {
            // An error means that the stream is gone already.
            let _ = stream.stop_sending(to_application_error(code));
        }
    }
}

/// A request's body, polled by the handler. Bytes that are not polled stay with the client (QUIC flow control).
pub(super) struct RequestBody {
    receiver: RequestReceiver,
    /// Part that was read ahead, to find out whether there is a body at all, or whether more can be joined.
    ahead: Option<Result<Option<MessagePart>, RequestFault>>,
    /// `None` for a tunnel, which has a timeout of its own.
    deadline: Option<ClientDeadline>,
    limits: FieldLimits,
    /// Value of `Content-Length`.
    expected: Option<u64>,
    received: u64,
    /// Kept until the stream's end. Bytes behind the trailers make the request malformed, which must be known before it
    /// is complete.
    trailers: Option<Fields>,
    done: bool,
    metrics: Arc<Http3Metrics>,
    record: RequestRecord,
}

impl RequestBody {
    /// Creates a body of any length, without a deadline.
    pub(super) fn new(
        receiver: RequestReceiver,
        limits: FieldLimits,
        metrics: Arc<Http3Metrics>,
        record: RequestRecord,
    ) -> Self {
        Self {
            receiver,
            ahead: None,
            deadline: None,
            limits,
            expected: None,
            received: 0,
            trailers: None,
            done: false,
            metrics,
            record,
        }
    }

    /// Returns the body for the handler, which may stop the client's deadline: it begins with the part that was read
    /// `ahead`, has the `expected` number of bytes, and arrives at the rate `pace`.
    pub(super) fn into_handler_body(
        mut self,
        ahead: Option<MessagePart>,
        expected: Option<u64>,
        pace: MinimumRate,
    ) -> litequic_exchange::Body {
        self.ahead = ahead.map(|part| Ok(Some(part)));
        self.expected = expected;
        let switch = self.deadline.insert(ClientDeadline::new(pace)).add_switch();
        litequic_exchange::Body::from_upload(switch, self)
    }

    fn poll_next_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, RequestFault>> {
        loop {
            let part = match self.ahead.take() {
                Some(part) => part?,
                None => match self.receiver.poll_part(cx) {
                    Poll::Ready(part) => part?,
                    Poll::Pending => {
                        let Some(deadline) = &mut self.deadline else { return Poll::Pending };
                        match ready!(deadline.poll_wait(cx)) {
                            TimeoutCause::Idle => self.metrics.shared.timeout_request_body.increment(),
                            TimeoutCause::Slow => self.metrics.shared.limit_upload_rate.increment(),
                        }
                        return Poll::Ready(Err(RequestFault::TimedOut));
                    }
                },
            };
            let part = match part {
                Some(MessagePart::Data(data)) if data.len() < JOIN_THRESHOLD => {
                    Some(MessagePart::Data(self.join_short_pieces(data, cx)))
                }
                part => part,
            };
            if let Some(deadline) = &mut self.deadline {
                let data = if let Some(MessagePart::Data(data)) = &part { data.len() } else { 0 };
                deadline.on_progress(data as u64);
            }
            let ended = part.is_none();
            let frame = self.take_part(part)?;
            if ended || frame.is_some() {
                return Poll::Ready(Ok(frame));
            }
        }
    }

    /// Joins `first` with the short pieces behind it that have arrived. The part that ends them is kept in `ahead`.
    fn join_short_pieces(&mut self, first: Bytes, cx: &mut Context<'_>) -> Bytes {
        let mut gathered = BytesMut::new();
        while gathered.len() < MAX_JOINED {
            match self.receiver.poll_part(cx) {
                Poll::Ready(Ok(Some(MessagePart::Data(data)))) if data.len() < JOIN_THRESHOLD => {
                    if gathered.is_empty() {
                        gathered.extend_from_slice(&first);
                    }
                    gathered.extend_from_slice(&data);
                }
                Poll::Ready(other) => {
                    self.ahead = Some(other);
                    break;
                }
                Poll::Pending => break,
            }
        }
        if gathered.is_empty() { first } else { gathered.freeze() }
    }

    /// Returns the body's next frame. `None` at its end, and for trailers, which are returned at the end.
    fn take_part(&mut self, part: Option<MessagePart>) -> Result<Option<Frame<Bytes>>, RequestFault> {
        match part {
            Some(MessagePart::Data(data)) => {
                self.received += data.len() as u64;
                self.metrics.shared.request_body_bytes.increment_by(data.len() as u64);
                self.record.update_facts(|facts| facts.received = self.received);
                if self.expected.is_some_and(|expected| self.received > expected) {
                    return Err(RequestFault::Stream(ErrorCode::MessageError));
                }
                Ok(Some(Frame::data(data)))
            }
            Some(MessagePart::Trailers(section)) => {
                self.check_length()?;
                self.trailers = Some(read_trailers(&section, &self.limits, &self.metrics)?);
                Ok(None)
            }
            Some(MessagePart::TrailersTooLarge) => Err(trailers_too_large_fault(&self.metrics)),
            // A request has one header, which was read before its body.
            Some(MessagePart::Header(_) | MessagePart::HeaderTooLarge) => {
                Err(RequestFault::Connection(ErrorCode::FrameUnexpected))
            }
            None => self.check_length().map(|()| self.trailers.take().map(|fields| Frame::trailers(fields.into()))),
        }
    }

    /// Checks at the body's end that it has the announced length (RFC 9114 §4.1.2).
    fn check_length(&self) -> Result<(), RequestFault> {
        match self.expected {
            Some(expected) if expected != self.received => Err(RequestFault::Stream(ErrorCode::MessageError)),
            _ => Ok(()),
        }
    }
}

fn read_trailers(section: &[u8], limits: &FieldLimits, metrics: &Http3Metrics) -> Result<Fields, RequestFault> {
    let fields = qpack::decode_section(section, limits).map_err(|error| match error {
        DecodeError::Failed(_) => RequestFault::Connection(ErrorCode::QpackDecompressionFailed),
        DecodeError::TooManyBytes => trailers_too_large_fault(metrics),
        DecodeError::TooManyFields => {
            metrics.shared.limit_headers.increment();
            RequestFault::Stream(ErrorCode::ExcessiveLoad)
        }
    })?;
    message::decode_trailers(fields).map_err(|_| RequestFault::Stream(ErrorCode::MessageError))
}

fn trailers_too_large_fault(metrics: &Http3Metrics) -> RequestFault {
    metrics.shared.limit_header_bytes.increment();
    RequestFault::Stream(ErrorCode::ExcessiveLoad)
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // An empty body is no upload, nor is a tunnel.
        if self.deadline.is_some() && (self.received > 0 || !self.done) {
            self.metrics.shared.request_size.observe_size(self.received);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let part = ready!(self.poll_next_frame(cx));
        self.done = !matches!(part, Ok(Some(_)));
        Poll::Ready(part.transpose().map(|part| {
            part.map_err(|fault| {
                self.receiver.outcome.set_fault(fault);
                match fault {
                    RequestFault::Stream(_) | RequestFault::Connection(_) => BodyError::Malformed,
                    RequestFault::Cancelled => BodyError::Cancelled,
                    RequestFault::TimedOut => BodyError::TimedOut,
                }
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }

    fn size_hint(&self) -> SizeHint {
        match self.expected {
            Some(expected) => SizeHint::with_exact(expected.saturating_sub(self.received)),
            None => SizeHint::default(),
        }
    }
}
