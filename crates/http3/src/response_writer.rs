//! Sends the response on a request stream: header, body and trailers.

use super::{
    frame::{FrameHeader, FrameType},
    http3_worker::Http3Connection,
    message,
    request_outcome::{RequestOutcome, ResponseFailure, StreamSendError, reset_code},
    response_sender::ResponseSender,
};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body as _, Frame};
use litequic_base::timers::IdleTimer;
use litequic_exchange::{Body, BodyError, Fields, Handler, RequestRecord, Response, name};
use std::{
    cell::Cell,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
};

/// Length below which a piece of a body is copied behind its DATA frame's header, in bytes.
const SMALL_PIECE: usize = 1024;
/// Length up to which a whole body without room in front is copied behind its header, in bytes. A copy costs less than
/// another piece in QUIC's buffer.
const MAX_COPIED_BODY: usize = 4096;
/// Largest memory of an encoded header that is kept for the next one, in bytes.
const MAX_RETAINED_HEADER: usize = 16 * 1024;

thread_local! {
    /// Buffer for the header that is being encoded.
    static HEADER_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

type StatusAndFields = (StatusCode, Fields);

/// Writer of the responses to one request: interim ones, and the final one in its framing. Counts the body's bytes.
pub(super) struct ResponseWriter<'a, H> {
    pub(super) sender: ResponseSender,
    pub(super) connection: &'a Http3Connection<H>,
    pub(super) outcome: Rc<RequestOutcome>,
    pub(super) record: &'a RequestRecord,
    framing: DataFraming,
}

impl<'a, H: Handler> ResponseWriter<'a, H> {
    pub(super) fn new(
        sender: ResponseSender,
        connection: &'a Http3Connection<H>,
        outcome: Rc<RequestOutcome>,
        record: &'a RequestRecord,
    ) -> Self {
        Self { sender, connection, outcome, record, framing: DataFraming::Nothing }
    }

    /// Sends a response. A body of known length goes in one DATA frame.
    pub(super) async fn relay_checked_response(
        &mut self,
        response: Response,
        method: &Method,
    ) -> Result<(), ResponseFailure> {
        let Response { status, fields, body } = response;
        let mut body = pin!(body);
        let sent = self.write_header_and_body((status, fields), body.as_mut(), method).await;
        if let Err(failure) = sent {
            // Set before the body is dropped, and with it the rest of the request, which sends STOP_SENDING.
            self.outcome.stop_code.set(reset_code(self.outcome.fault.get().map_or(failure, ResponseFailure::Request)));
        }
        sent
    }

    async fn write_header_and_body(
        &mut self,
        head: StatusAndFields,
        mut body: Pin<&mut Body>,
        method: &Method,
    ) -> Result<(), ResponseFailure> {
        let (status, mut fields) = self.limit_response_header(head, body.as_mut())?;
        self.connection.advertise_http3(status, &mut fields);
        self.sender.has_response = true;
        self.connection.priorities.apply_response_priority(&*self.sender.window, &fields, self.record);
        self.framing = DataFraming::new(method, status, body.size_hint().exact(), body.is_end_stream());
        match self.framing {
            DataFraming::Nothing => {
                self.sender.is_last = true;
                self.send_header(status, &fields).await?;
                self.record_status(status);
                return Ok(());
            }
            DataFraming::Whole(length) => {
                if !fields.contains(name::CONTENT_LENGTH) {
                    fields.set_number_field(name::CONTENT_LENGTH, length);
                }
            }
            DataFraming::Pieces => {}
        }

        // A short body that is complete is sent in one piece with its header, which frees the buffer that it was read
        // into.
        if self.framing != DataFraming::Pieces
            && let Some(whole) = body.take_buffered_body()
        {
            let length = whole.len() as u64;
            let start = self.encode_start(status, &fields, length, |start| whole.prepend_header(start))?;
            self.sender.is_last = true;
            self.send_chunk(start).await?;
            self.record_status(status);
            return self.check_all_sent();
        }
        let mut ahead = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
        let short = match &mut ahead {
            Poll::Ready(Some(Ok(frame))) => {
                frame.data_mut().filter(|data| self.framing.is_short_whole(data)).map(mem::take)
            }
            _ => None,
        };
        if short.is_some() {
            ahead = Poll::Pending;
        }
        let short = short.unwrap_or_default();
        // In memory of exactly its size, as a client may acknowledge it late.
        let start = self.encode_start(status, &fields, short.len() as u64, |start| [start, &short].concat().into())?;
        let is_last = self.is_all_sent() && body.is_end_stream();
        if is_last {
            self.sender.is_last = true;
        }
        self.send_chunk(start).await?;
        self.record_status(status);
        if is_last {
            return Ok(());
        }

        let mut idle = IdleTimer::new(self.sender.paused_streams.delay);
        loop {
            body.set_piece_limit(self.sender.piece_limit());
            let Some(frame) = self.next_body_frame(body.as_mut(), &mut ahead, &mut idle).await? else { break };
            idle.on_activity();
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => self.write_data(data).await?,
                Err(frame) => {
                    // Trailers may be left out (RFC 9110 §6.5.1), as here if they are larger than the client accepts.
                    if let Ok(trailers) = frame.into_trailers().map(Fields::from)
                        && self.connection.accepts_section(None, &trailers)
                    {
                        self.write_response_trailers(&trailers).await?;
                    }
                }
            }
        }
        self.check_all_sent()
    }

    /// Counts and records a response whose header QUIC has.
    fn record_status(&self, status: StatusCode) {
        self.connection.worker.metrics.shared.count_response(status);
        self.record.record_response_status(status);
    }

    /// Returns the response's head, or that of a 502 in its place if the header is larger than the client accepts.
    fn limit_response_header(
        &self,
        (status, fields): StatusAndFields,
        mut body: Pin<&mut Body>,
    ) -> Result<StatusAndFields, ResponseFailure> {
        if self.connection.accepts_section(Some(status), &fields) {
            return Ok((status, fields));
        }
        let why = "the response's header is larger than the client accepts";
        let answer =
            Response::with_reason(StatusCode::BAD_GATEWAY, why, "litequic; error=http_response_header_section_size");
        if !self.connection.accepts_section(Some(answer.status), &answer.fields) {
            return Err(ResponseFailure::Response);
        }
        self.record.record_error("http_response_header_section_size");
        body.set(answer.body);
        Ok((answer.status, answer.fields))
    }

    /// Returns the body's next frame, beginning with the one polled `ahead`; `None` at the body's end.
    async fn next_body_frame(
        &mut self,
        mut body: Pin<&mut Body>,
        ahead: &mut PolledBodyFrame,
        idle: &mut IdleTimer,
    ) -> Result<Option<Frame<Bytes>>, ResponseFailure> {
        let sender = &mut self.sender;
        let next = poll_fn(|cx| {
            if let Poll::Ready(next) = mem::replace(ahead, Poll::Pending) {
                return Poll::Ready(Ok(next));
            }
            if let Poll::Ready(next) = body.as_mut().poll_frame(cx) {
                return Poll::Ready(Ok(next));
            }
            // An event stream holds no budget between two events.
            while sender.lease.held_bytes() > 0 && idle.poll_expired(cx).is_ready() {
                sender.release_unused_lease(cx);
                idle.on_activity();
            }
            sender.poll_stopped(cx).map(Err)
        });
        match next.await {
            Err(()) => Err(ResponseFailure::Send(StreamSendError::Stopped)),
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => Ok(Some(frame)),
            Ok(Some(Err(error))) => {
                self.record.record_broken_body(error);
                Err(ResponseFailure::Response)
            }
        }
    }

    /// Sends a HEADERS frame without a body.
    pub(super) async fn send_header(&mut self, status: StatusCode, fields: &Fields) -> Result<(), ResponseFailure> {
        let header = encode_and_join(|out| append_header_frame(status, fields, out), Bytes::copy_from_slice)?;
        self.send_chunk(header).await
    }

    /// Encodes the header, and joins it by `join` with the first `bytes` of the body, which count as sent.
    fn encode_start(
        &mut self,
        status: StatusCode,
        fields: &Fields,
        bytes: u64,
        join: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Bytes, ResponseFailure> {
        let encode = |start: &mut Vec<u8>| {
            append_header_frame(status, fields, start)?;
            if let DataFraming::Whole(length) = self.framing {
                FrameHeader { kind: FrameType::Data, length }.encode_frame_header(start);
            }
            Ok(())
        };
        let start = encode_and_join(encode, join)?;
        if bytes > 0 {
            self.count_written_body(bytes)?;
        }
        Ok(start)
    }

    async fn write_data(&mut self, data: Bytes) -> Result<(), ResponseFailure> {
        self.count_written_body(data.len() as u64)?;
        if let DataFraming::Whole(_) = self.framing {
            return self.send_chunk(data).await;
        }
        let mut header = BytesMut::new();
        FrameHeader { kind: FrameType::Data, length: data.len() as u64 }.encode_frame_header(&mut header);
        if data.len() < SMALL_PIECE {
            header.extend_from_slice(&data);
            return self.send_chunk(header.freeze()).await;
        }
        self.send_chunk(header.freeze()).await?;
        self.send_chunk(data).await
    }

    async fn write_response_trailers(&mut self, trailers: &Fields) -> Result<(), ResponseFailure> {
        let mut out = Vec::new();
        message::encode_trailers(trailers, &mut out);
        self.send_chunk(out.into()).await
    }

    /// Counts bytes of the body. A body that is longer than announced fails before more of it is sent.
    fn count_written_body(&mut self, bytes: u64) -> Result<(), ResponseFailure> {
        let body_bytes = self.sender.body_bytes.saturating_add(bytes);
        if matches!(self.framing, DataFraming::Whole(length) if body_bytes > length) {
            return Err(ResponseFailure::Response);
        }
        self.sender.metrics.shared.response_body_bytes.increment_by(bytes);
        self.sender.body_bytes = body_bytes;
        self.record.update_facts(|facts| facts.sent = body_bytes);
        Ok(())
    }

    async fn send_chunk(&mut self, chunk: Bytes) -> Result<(), ResponseFailure> {
        self.sender.send_bytes(chunk).await.map_err(ResponseFailure::Send)
    }

    /// Whether the whole announced body was sent.
    fn is_all_sent(&self) -> bool {
        self.framing == DataFraming::Whole(self.sender.body_bytes)
    }

    /// Checks at the body's end that it has the announced length.
    fn check_all_sent(&self) -> Result<(), ResponseFailure> {
        if self.framing == DataFraming::Pieces || self.is_all_sent() { Ok(()) } else { Err(ResponseFailure::Response) }
    }
}

type PolledBodyFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// Framing of a body in DATA frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataFraming {
    /// The response has no body.
    Nothing,
    /// One DATA frame of this length in bytes has the whole body.
    Whole(u64),
    /// Each piece has a DATA frame.
    Pieces,
}

impl DataFraming {
    /// Returns the framing of the response to `method`, whose body has `length` bytes, if that is known, and may have
    /// trailers unless it is at its end.
    fn new(method: &Method, status: StatusCode, length: Option<u64>, is_end: bool) -> Self {
        let has_none = *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match length {
            _ if has_none => Self::Nothing,
            Some(0) if is_end => Self::Nothing,
            Some(0) => Self::Pieces,
            Some(length) => Self::Whole(length),
            None => Self::Pieces,
        }
    }

    /// Whether `data` is the whole body, and short.
    fn is_short_whole(self, data: &Bytes) -> bool {
        data.len() <= MAX_COPIED_BODY && self == Self::Whole(data.len() as u64)
    }
}

fn append_header_frame(status: StatusCode, fields: &Fields, out: &mut Vec<u8>) -> Result<(), ResponseFailure> {
    // Only status 101 cannot be encoded, and the handler must not return it.
    message::encode_response(status, fields, out).map_err(|_| ResponseFailure::Response)
}

/// Returns the bytes that `join` makes of those that `encode` writes.
fn encode_and_join(
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), ResponseFailure>,
    join: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Bytes, ResponseFailure> {
    let mut start = HEADER_BUFFER.take();
    start.clear();
    let bytes = encode(&mut start).map(|()| join(&start));
    if start.capacity() <= MAX_RETAINED_HEADER {
        HEADER_BUFFER.set(start);
    }
    bytes
}
