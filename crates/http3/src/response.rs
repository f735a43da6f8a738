//! Sends the response on a request stream: its header, its body as it comes, its trailers.

use super::{
    frame::{FrameHeader, FrameType},
    front::Connection,
    message,
    outcome::{Failure, RequestOutcome, code},
    send::Sender,
    send_error::SendError,
};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body as _, Frame};
use litequic_exchange::{Body, BodyError, Fields, Handler, IdleTimer, Record, Response, name, set_date};
use std::{
    cell::Cell,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::Poll,
};

/// Body chunks shorter than this travel in one piece with their DATA frame's header.
const SHORT: usize = 1024;
/// Whole bodies up to this are copied behind their header, unless they have room for it: a copy costs less than another
/// piece in QUIC's buffer.
const COPIED: usize = 4096;
/// Memory for a response's header that is kept for the next one at most.
const KEPT: usize = 16 * 1024;

thread_local! {
    /// What is encoded at present.
    static ENCODED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Sends a response: its header, its body, its trailers. A body whose length is known goes in one DATA frame.
pub(super) async fn respond<H: Handler>(
    response: Response,
    method: &Method,
    sender: &mut Sender,
    connection: &Connection<H>,
    outcome: &RequestOutcome,
    record: &Record,
) -> Result<(), Failure> {
    let Response { status, fields, body } = response;
    let mut body = pin!(body);
    let sent = send_response((status, fields), body.as_mut(), method, sender, connection, record).await;
    if let Err(failure) = sent {
        // Before the body is dropped, and with it what is left of the request.
        outcome.stop_with(code(outcome.fault().map_or(failure, Failure::Request)));
    }
    sent
}

/// A response without its body.
type ResponseHead = (StatusCode, Fields);

async fn send_response<H: Handler>(
    head: ResponseHead,
    mut body: Pin<&mut Body>,
    method: &Method,
    sender: &mut Sender,
    connection: &Connection<H>,
    record: &Record,
) -> Result<(), Failure> {
    let (status, mut fields) = within_bounds(head, body.as_mut(), connection, record)?;
    connection.advertise(status, &mut fields);
    let shared = &connection.front.metrics.shared;
    // Once QUIC has its header.
    let responded = |status| {
        shared.count_response(status);
        record.responded(status);
    };
    sender.respond();
    connection.priorities.response(sender.window(), &fields, record);
    let framing = DataFraming::new(method, status, body.size_hint().exact());
    match framing {
        DataFraming::Nothing => {
            sender.set_last();
            sender.send(header(status, &fields)?).await.map_err(Failure::Send)?;
            responded(status);
            return Ok(());
        }
        DataFraming::Whole(length) => {
            if !fields.contains(name::CONTENT_LENGTH) {
                fields.set_number(name::CONTENT_LENGTH, length);
            }
        }
        DataFraming::Pieces => {}
    }

    // What is there of the body already: if that is all of a short one it is sent in one piece with its header, and the
    // buffer that it was read into is freed.
    if framing != DataFraming::Pieces
        && let Some(whole) = body.take_whole()
    {
        let mut writer = Writer { framing, sent: 0, sender, record };
        let length = whole.len() as u64;
        let start = writer.begin(status, &fields, length, |start| whole.behind(start))?;
        writer.sender.set_last();
        writer.send(start).await?;
        responded(status);
        return writer.end();
    }
    let mut ahead = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
    let short = match &mut ahead {
        Poll::Ready(Some(Ok(frame))) => frame.data_mut().filter(|data| framing.is_short(data)).map(mem::take),
        _ => None,
    };
    if short.is_some() {
        ahead = Poll::Pending;
    }
    let mut writer = Writer { framing, sent: 0, sender, record };
    let short = short.unwrap_or_default();
    let start = writer.begin(status, &fields, short.len() as u64, |start| joined(start, &short))?;
    let is_last = writer.is_whole() && body.is_end_stream();
    if is_last {
        writer.sender.set_last();
    }
    writer.send(start).await?;
    responded(status);
    if is_last {
        return Ok(());
    }

    let mut idle = IdleTimer::new(writer.sender.pause());
    loop {
        body.allow(writer.sender.piece());
        let Some(frame) = next(body.as_mut(), &mut ahead, &mut writer, &mut idle).await? else { break };
        idle.touch();
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => writer.data(data).await?,
            Err(frame) => {
                // Trailers may be left out (RFC 9110 §6.5.1), and are if they are larger than the client accepts.
                if let Ok(trailers) = frame.into_trailers().map(Fields::from)
                    && connection.takes(None, &trailers)
                {
                    writer.trailers(&trailers).await?;
                }
            }
        }
    }
    writer.end()
}

/// The response, or a 502 in its place if the header is larger than the client accepts.
fn within_bounds<H: Handler>(
    (status, fields): ResponseHead,
    mut body: Pin<&mut Body>,
    connection: &Connection<H>,
    record: &Record,
) -> Result<ResponseHead, Failure> {
    if connection.takes(Some(status), &fields) {
        return Ok((status, fields));
    }
    let why = "the response's header is larger than the client accepts";
    let answer = own(StatusCode::BAD_GATEWAY, why, "litequic; error=http_response_header_section_size");
    if !connection.takes(Some(answer.status), &answer.fields) {
        return Err(Failure::Response);
    }
    record.error("http_response_header_section_size");
    body.set(answer.body);
    Ok((answer.status, answer.fields))
}

/// The body's next frame, what was polled `ahead` first; `None` at its end.
async fn next(
    mut body: Pin<&mut Body>,
    ahead: &mut Polled,
    writer: &mut Writer<'_>,
    idle: &mut IdleTimer,
) -> Result<Option<Frame<Bytes>>, Failure> {
    let next = poll_fn(|cx| {
        if let Poll::Ready(next) = mem::replace(ahead, Poll::Pending) {
            return Poll::Ready(Ok(next));
        }
        if let Poll::Ready(next) = body.as_mut().poll_frame(cx) {
            return Poll::Ready(Ok(next));
        }
        // An event stream holds no budget between two events.
        while writer.sender.holds() && idle.poll_expired(cx).is_ready() {
            writer.sender.rest(cx);
            idle.touch();
        }
        writer.sender.poll_stopped(cx).map(Err)
    });
    match next.await {
        Err(()) => Err(Failure::Send(SendError::Stopped)),
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(error))) => {
            writer.record.broke_off(error);
            Err(Failure::Response)
        }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// How a body is framed in DATA frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataFraming {
    /// There is none: the header is all.
    Nothing,
    /// The body follows in one DATA frame of this length, in bytes.
    Whole(u64),
    /// In a DATA frame for each piece.
    Pieces,
}

impl DataFraming {
    /// For the response to `method` with a body of `length` bytes, if that is known.
    fn new(method: &Method, status: StatusCode, length: Option<u64>) -> Self {
        let has_none = *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match length {
            _ if has_none => Self::Nothing,
            Some(0) => Self::Nothing,
            Some(length) => Self::Whole(length),
            None => Self::Pieces,
        }
    }

    /// Whether `data` is all of the body, and short.
    fn is_short(self, data: &Bytes) -> bool {
        data.len() <= COPIED && self == Self::Whole(data.len() as u64)
    }
}

/// Sends a response in its framing, and counts its body.
struct Writer<'a> {
    framing: DataFraming,
    /// Bytes of the body so far.
    sent: u64,
    sender: &'a mut Sender,
    record: &'a Record,
}

impl Writer<'_> {
    /// The header, with which `join` joins the first `bytes` of the body, which count as sent.
    fn begin(
        &mut self,
        status: StatusCode,
        fields: &Fields,
        bytes: u64,
        join: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Bytes, Failure> {
        let encode = |start: &mut Vec<u8>| {
            encode_header(status, fields, start)?;
            if let DataFraming::Whole(length) = self.framing {
                FrameHeader { kind: FrameType::Data, length }.encode(start);
            }
            Ok(())
        };
        let start = encoded(encode, join)?;
        if bytes > 0 {
            self.count(bytes)?;
        }
        Ok(start)
    }

    /// A piece of the body.
    async fn data(&mut self, data: Bytes) -> Result<(), Failure> {
        self.count(data.len() as u64)?;
        if let DataFraming::Whole(_) = self.framing {
            return self.send(data).await;
        }
        let mut header = BytesMut::new();
        FrameHeader { kind: FrameType::Data, length: data.len() as u64 }.encode(&mut header);
        if data.len() < SHORT {
            header.extend_from_slice(&data);
            return self.send(header.freeze()).await;
        }
        self.send(header.freeze()).await?;
        self.send(data).await
    }

    async fn trailers(&mut self, trailers: &Fields) -> Result<(), Failure> {
        let mut out = Vec::new();
        message::encode_trailers(trailers, &mut out);
        self.send(out.into()).await
    }

    /// A body that is longer than announced fails before more of it is sent.
    fn count(&mut self, bytes: u64) -> Result<(), Failure> {
        self.sent = self.sent.saturating_add(bytes);
        if matches!(self.framing, DataFraming::Whole(length) if self.sent > length) {
            return Err(Failure::Response);
        }
        self.sender.count_body(bytes);
        self.record.note(|facts| facts.sent = self.sent);
        Ok(())
    }

    async fn send(&mut self, chunk: Bytes) -> Result<(), Failure> {
        self.sender.send(chunk).await.map_err(Failure::Send)
    }

    /// Whether all that was announced was sent.
    fn is_whole(&self) -> bool {
        self.framing == DataFraming::Whole(self.sent)
    }

    /// A body that is shorter than announced fails.
    fn end(&self) -> Result<(), Failure> {
        if self.framing == DataFraming::Pieces || self.is_whole() { Ok(()) } else { Err(Failure::Response) }
    }
}

/// A response's HEADERS frame.
pub(super) fn header(status: StatusCode, fields: &Fields) -> Result<Bytes, Failure> {
    encoded(|out| encode_header(status, fields, out), Bytes::copy_from_slice)
}

fn encode_header(status: StatusCode, fields: &Fields, out: &mut Vec<u8>) -> Result<(), Failure> {
    // Only 101 cannot be encoded, and the handler must not return it.
    message::encode_response(status, fields, out).map_err(|_| Failure::Response)
}

/// `start` and `body`, in memory of exactly their size: a client may acknowledge it late.
fn joined(start: &[u8], body: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(start.len() + body.len());
    bytes.extend_from_slice(start);
    bytes.extend_from_slice(body);
    bytes.into()
}

/// What `join` makes of what `encode` writes.
fn encoded(
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>,
    join: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Bytes, Failure> {
    let mut start = ENCODED.take();
    start.clear();
    let bytes = encode(&mut start).map(|()| join(&start));
    if start.capacity() <= KEPT {
        ENCODED.set(start);
    }
    bytes
}

/// An answer of the front end's own.
pub(super) fn own(status: StatusCode, why: &str, proxy_status: &'static str) -> Response {
    let mut response = Response::new(status, format!("{status}\n{why}\n"));
    response.fields.append(name::CONTENT_TYPE, b"text/plain; charset=utf-8");
    response.fields.append(name::PROXY_STATUS, proxy_status.as_bytes());
    set_date(&mut response.fields);
    response
}
