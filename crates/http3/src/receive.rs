//! The receiving half of a request stream: frames as they come, then the request's body as the proxy pulls it.

use super::{
    error::{Code, application_error},
    frame::{MessageStream, Part},
    life::Http3Life,
    linger::LingeringStreams,
    message,
    outcome::{RequestFault, RequestOutcome},
    qpack::{self, DecodeError, FieldLimits},
};
use crate::metrics::Metrics;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use litequic_exchange::{BodyError, ClientDeadline, Fields, MinimumRate, Record, TimeoutCause};
use litequic_resources::{connections::Motion, receive::Taken};
use s2n_quic::stream::ReceiveStream;
use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Chunks taken from QUIC in one call.
const CHUNKS: usize = 8;
/// Bytes of a stream that are taken a chunk at a time.
const FIRST: u64 = 64 * 1024;
/// Pieces of a body shorter than this are joined, as far as they have arrived, so that a client that frames byte by
/// byte does not cause a write, and a wake of the origin, for each byte.
const SHORT: usize = 1024;
/// The size of joined pieces: beyond it a piece costs little for each of its bytes.
const GATHERED: usize = 16 * 1024;

/// Reads a request stream. Dropped before the stream's end it discards the rest, or sends STOP_SENDING.
pub(super) struct Receiver {
    /// `None` once it is dropped.
    stream: Option<ReceiveStream>,
    message: MessageStream,
    /// Taken from QUIC and not read yet: those from `at` on. At first one chunk at a time, as a request may wait long
    /// with it for a connection to its origin, and it counts as read.
    chunk: Bytes,
    /// In place of `chunk` once there were [`FIRST`] bytes.
    chunks: Option<Box<[Bytes; CHUNKS]>>,
    at: usize,
    /// Bytes that were taken from QUIC.
    received: u64,
    /// The client has sent its last byte.
    finished: bool,
    outcome: Rc<RequestOutcome>,
    life: Rc<Http3Life>,
    lingering: Rc<LingeringStreams>,
    taken: Taken,
    motion: Motion,
}

const _: () = assert!(size_of::<Receiver>() <= 368);

impl Receiver {
    pub(super) fn new(
        stream: ReceiveStream,
        message: MessageStream,
        outcome: Rc<RequestOutcome>,
        life: Rc<Http3Life>,
        lingering: Rc<LingeringStreams>,
        taken: Taken,
        motion: Motion,
    ) -> Self {
        Self {
            stream: Some(stream),
            message,
            chunk: Bytes::new(),
            chunks: None,
            at: CHUNKS,
            received: 0,
            finished: false,
            outcome,
            life,
            lingering,
            taken,
            motion,
        }
    }

    /// The next part of the request, or `None` at its end. Losing a poll loses nothing.
    pub(super) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, RequestFault>> {
        loop {
            let chunks =
                self.chunks.as_deref_mut().map_or(slice::from_mut(&mut self.chunk), <[Bytes; CHUNKS]>::as_mut_slice);
            while let Some(chunk) = chunks.get_mut(self.at) {
                if let Some(part) = self.message.read(chunk).map_err(RequestFault::of)? {
                    return Poll::Ready(Ok(Some(part)));
                }
                self.at += 1;
            }
            // Once for all that came together: chunks are bounded, and with them what one reading costs.
            self.life.count_small_frames(self.message.take_small_frames()).map_err(RequestFault::Connection)?;
            if self.finished {
                self.message.finish().map_err(RequestFault::of)?;
                return Poll::Ready(Ok(None));
            }
            let stream = self.stream.as_mut().ok_or(RequestFault::Cancelled)?;
            let chunks = if self.received < FIRST {
                slice::from_mut(&mut self.chunk)
            } else {
                self.chunks.get_or_insert_default().as_mut_slice()
            };
            let (count, open) =
                ready!(stream.poll_receive_vectored(chunks, cx)).map_err(|_| RequestFault::Cancelled)?;
            let bytes = chunks.iter().take(count).map(|chunk| chunk.len() as u64).sum();
            self.taken.add(bytes);
            self.motion.received(bytes);
            self.received = self.received.saturating_add(bytes);
            self.at = 0;
            self.finished = !open;
        }
    }

    /// What follows the header is not a body, but a tunnel's bytes.
    pub(super) fn expect_data_alone(&mut self) {
        self.message.expect_data_alone();
    }

    /// The stream's end, of a request whose `Content-Length` is 0. Trailers may come before it; they are dropped, as
    /// HTTP/1.1 has none after a body of known length. Losing the future loses nothing but them.
    pub(super) async fn empty_body(&mut self, limits: &FieldLimits, metrics: &Metrics) -> Result<(), RequestFault> {
        while let Some(part) = poll_fn(|cx| self.poll_part(cx)).await? {
            match part {
                Part::Data(_) => return Err(RequestFault::Stream(Code::MessageError)),
                Part::Trailers(section) => drop(trailers(&section, limits, metrics)?),
                Part::TrailersTooLarge => return Err(trailers_too_large(metrics)),
                Part::Header(_) | Part::HeaderTooLarge => return Err(RequestFault::Connection(Code::FrameUnexpected)),
            }
        }
        Ok(())
    }

    /// True when no byte is left to read: the last read came with the stream's end.
    pub(super) fn is_finished(&self) -> bool {
        let chunks = self.chunks.as_deref().map_or(slice::from_ref(&self.chunk), <[Bytes; CHUNKS]>::as_slice);
        self.finished && chunks.iter().skip(self.at).all(Bytes::is_empty)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| !self.finished) else { return };
        let code = self.outcome.stop_code();
        if code == Code::NoError && self.lingering.is_on() && self.outcome.fault().is_none() {
            self.lingering.add(stream, Rc::clone(&self.outcome), self.taken.account().clone());
        } else {
            // An error means that the stream is gone already.
            let _ = stream.stop_sending(application_error(code));
        }
    }
}

/// A request's body, pulled by the handler: what is not pulled stays with the client (QUIC flow control).
pub(super) struct RequestBody {
    receiver: Receiver,
    /// Read ahead, to find out whether there is a body at all, or whether more can be joined.
    ahead: Option<Result<Option<Part>, RequestFault>>,
    /// A tunnel has its own.
    patience: Option<ClientDeadline>,
    limits: FieldLimits,
    /// The value of `Content-Length`.
    expected: Option<u64>,
    received: u64,
    /// Kept until the stream's end: what comes after them makes the request malformed, and must do so before it is
    /// complete.
    trailers: Option<Fields>,
    done: bool,
    metrics: Arc<Metrics>,
    record: Record,
}

impl RequestBody {
    pub(super) fn new(
        receiver: Receiver,
        ahead: Option<Part>,
        expected: Option<u64>,
        pace: Option<MinimumRate>,
        limits: FieldLimits,
        metrics: Arc<Metrics>,
        record: Record,
    ) -> Self {
        let patience = pace.map(ClientDeadline::new);
        let ahead = ahead.map(|part| Ok(Some(part)));
        Self { receiver, ahead, patience, limits, expected, received: 0, trailers: None, done: false, metrics, record }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, RequestFault>> {
        loop {
            let part = match self.ahead.take() {
                Some(part) => part?,
                None => match self.receiver.poll_part(cx) {
                    Poll::Ready(part) => part?,
                    Poll::Pending => {
                        let Some(patience) = &mut self.patience else { return Poll::Pending };
                        match ready!(patience.poll_wait(cx)) {
                            TimeoutCause::Idle => self.metrics.shared.timeout_request_body.increment(),
                            TimeoutCause::Slow => self.metrics.shared.limit_upload_rate.increment(),
                        }
                        return Poll::Ready(Err(RequestFault::TimedOut));
                    }
                },
            };
            let part = match part {
                Some(Part::Data(data)) if data.len() < SHORT => Some(Part::Data(self.gather(data, cx))),
                part => part,
            };
            if let Some(patience) = &mut self.patience {
                let data = if let Some(Part::Data(data)) = &part { data.len() } else { 0 };
                patience.rest(data as u64);
            }
            let ended = part.is_none();
            let frame = self.take(part)?;
            if ended || frame.is_some() {
                return Poll::Ready(Ok(frame));
            }
        }
    }

    /// `first` and the short pieces after it that have arrived. What ends them is kept for next time.
    fn gather(&mut self, first: Bytes, cx: &mut Context<'_>) -> Bytes {
        let mut gathered = BytesMut::new();
        while gathered.len() < GATHERED {
            match self.receiver.poll_part(cx) {
                Poll::Ready(Ok(Some(Part::Data(data)))) if data.len() < SHORT => {
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

    /// The body's next frame. `None` at its end, or for trailers, which wait for it.
    fn take(&mut self, part: Option<Part>) -> Result<Option<Frame<Bytes>>, RequestFault> {
        match part {
            Some(Part::Data(data)) => {
                self.received += data.len() as u64;
                self.metrics.shared.request_body_bytes.add(data.len() as u64);
                self.record.note(|facts| facts.received = self.received);
                if self.expected.is_some_and(|expected| self.received > expected) {
                    return Err(RequestFault::Stream(Code::MessageError));
                }
                Ok(Some(Frame::data(data)))
            }
            Some(Part::Trailers(section)) => {
                self.check_length()?;
                self.trailers = Some(trailers(&section, &self.limits, &self.metrics)?);
                Ok(None)
            }
            Some(Part::TrailersTooLarge) => Err(trailers_too_large(&self.metrics)),
            // A request has one header, which was read before its body.
            Some(Part::Header(_) | Part::HeaderTooLarge) => Err(RequestFault::Connection(Code::FrameUnexpected)),
            None => self.check_length().map(|()| self.trailers.take().map(|fields| Frame::trailers(fields.into()))),
        }
    }

    /// At the body's end: it must be as long as announced (RFC 9114 §4.1.2).
    fn check_length(&self) -> Result<(), RequestFault> {
        match self.expected {
            Some(expected) if expected != self.received => Err(RequestFault::Stream(Code::MessageError)),
            _ => Ok(()),
        }
    }
}

/// Reads and checks trailers.
fn trailers(section: &[u8], limits: &FieldLimits, metrics: &Metrics) -> Result<Fields, RequestFault> {
    let fields = qpack::decode(section, limits).map_err(|error| match error {
        DecodeError::Failed(_) => RequestFault::Connection(Code::QpackDecompressionFailed),
        DecodeError::TooManyBytes => trailers_too_large(metrics),
        DecodeError::TooManyFields => {
            metrics.shared.limit_headers.increment();
            RequestFault::Stream(Code::ExcessiveLoad)
        }
    })?;
    message::trailers(fields).map_err(|_| RequestFault::Stream(Code::MessageError))
}

fn trailers_too_large(metrics: &Metrics) -> RequestFault {
    metrics.shared.limit_header_bytes.increment();
    RequestFault::Stream(Code::ExcessiveLoad)
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // An empty body is not an upload, nor is a tunnel, which has its own timeout.
        if self.patience.is_some() && (self.received > 0 || !self.done) {
            self.metrics.shared.request_size.observe(self.received);
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
        let part = ready!(self.poll_next(cx));
        self.done = !matches!(part, Ok(Some(_)));
        Poll::Ready(part.transpose().map(|part| {
            part.map_err(|fault| {
                self.receiver.outcome.note(fault);
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
