//! The response on a request stream: its header, its body as it comes, its trailers.

use super::{
    frame::{FrameHeader, FrameType},
    front::Connection,
    message,
    receive::Verdict,
    request::{Failure, code, own},
    send::{SendError, Sender},
};
use crate::exchange::{Body, Handler, IdleTimer, Record, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header as name, response};
use http_body::Body as _;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

/// Body chunks shorter than this travel in one piece with their DATA frame's header.
const SHORT: usize = 1024;
/// Whole bodies up to this are copied behind their header: a copy costs less than another piece in QUIC's buffer, and than
/// another buffer of 8 KiB for the origin's next response while the client has not acknowledged this one.
const COPIED: usize = 4096;
/// Bytes that the HEADERS frame of most responses does not exceed, and the DATA frame's header behind it.
const USUAL_HEADER: usize = 512;

/// Sends a response: its header, its body, its trailers. A body whose length is known goes in one DATA frame.
pub(super) async fn respond<H: Handler>(
    response: Response,
    method: &Method,
    sender: &mut Sender,
    connection: &Connection<H>,
    verdict: &Verdict,
    record: &Record,
) -> Result<(), Failure> {
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    let sent = send_response(parts, body.as_mut(), method, sender, connection, record).await;
    if let Err(failure) = sent {
        // Before the body goes, and with it what is left of the request.
        verdict.stop_with(code(verdict.fault().map_or(failure, Failure::Request)));
    }
    sent
}

async fn send_response<H: Handler>(
    mut parts: response::Parts,
    mut body: Pin<&mut Body>,
    method: &Method,
    sender: &mut Sender,
    connection: &Connection<H>,
    record: &Record,
) -> Result<(), Failure> {
    if !connection.takes(Some(parts.status), &parts.headers) {
        let why = "the response's header is larger than the client takes";
        let answer = own(StatusCode::BAD_GATEWAY, why, "litequic; error=http_response_header_section_size");
        let (own_parts, own_body) = answer.into_parts();
        if !connection.takes(Some(own_parts.status), &own_parts.headers) {
            return Err(Failure::Response);
        }
        record.error("http_response_header_section_size");
        parts = own_parts;
        body.set(own_body);
    }
    connection.front.metrics.count_response(parts.status);
    record.responded(parts.status);
    sender.respond();
    let length = body.size_hint().exact();
    let without_body = *method == Method::HEAD
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || length == Some(0);
    if !without_body && let Some(length) = length {
        parts.headers.entry(name::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    if without_body {
        return sender.send(header(parts.status, &parts.headers, 0)?.freeze()).await.map_err(Failure::Send);
    }
    // What is there of the body already: if that is all of a short one it travels in one piece with its header, and lets go
    // of the buffer that it was read into.
    let mut ahead = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
    let short = match &mut ahead {
        Poll::Ready(Some(Ok(frame))) => frame.data_mut().filter(|data| is_short_and_whole(data, length)),
        _ => None,
    };
    let mut sent: u64 = 0;
    let mut start = header(parts.status, &parts.headers, short.as_ref().map_or(0, |data| data.len()))?;
    if let Some(length) = length {
        FrameHeader { kind: FrameType::Data, length }.encode(&mut start);
    }
    if let Some(data) = short {
        start.extend_from_slice(data);
        sent = data.len() as u64;
        sender.count_body(sent);
        record.note(|facts| facts.sent = sent);
        ahead = Poll::Pending;
    }
    sender.send(start.freeze()).await.map_err(Failure::Send)?;
    if length == Some(sent) && body.is_end_stream() {
        return Ok(());
    }

    let mut idle = IdleTimer::new(sender.pause());
    loop {
        body.allow(sender.piece());
        let next = poll_fn(|cx| match std::mem::replace(&mut ahead, Poll::Pending) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending => match body.as_mut().poll_frame(cx) {
                Poll::Ready(next) => Poll::Ready(Ok(next)),
                Poll::Pending => {
                    // An event stream holds nothing between two events.
                    while sender.holds() && idle.poll_expired(cx).is_ready() {
                        sender.rest(cx);
                        idle.touch();
                    }
                    sender.poll_stopped(cx).map(Err)
                }
            },
        });
        let frame = match next.await {
            Err(()) => return Err(Failure::Send(SendError::Stopped)),
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                record.broke_off(error);
                return Err(Failure::Response);
            }
            Ok(Some(Ok(frame))) => frame,
        };
        idle.touch();
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                sent = sent.saturating_add(data.len() as u64);
                if length.is_some_and(|length| sent > length) {
                    return Err(Failure::Response);
                }
                sender.count_body(data.len() as u64);
                record.note(|facts| facts.sent = sent);
                if length.is_some() {
                    sender.send(data).await.map_err(Failure::Send)?;
                } else {
                    send_data_frame(data, sender).await?;
                }
            }
            Err(frame) => {
                // Trailers may be left out (RFC 9110 §6.5.1), and are for a client that takes none so large.
                if let Ok(trailers) = frame.into_trailers()
                    && connection.takes(None, &trailers)
                {
                    let mut out = BytesMut::new();
                    message::encode_trailers(&trailers, &mut out);
                    sender.send(out.freeze()).await.map_err(Failure::Send)?;
                }
            }
        }
    }
    match length {
        Some(length) if length != sent => Err(Failure::Response),
        _ => Ok(()),
    }
}

async fn send_data_frame(data: Bytes, sender: &mut Sender) -> Result<(), Failure> {
    let mut header = BytesMut::new();
    FrameHeader { kind: FrameType::Data, length: data.len() as u64 }.encode(&mut header);
    if data.len() < SHORT {
        header.extend_from_slice(&data);
        return sender.send(header.freeze()).await.map_err(Failure::Send);
    }
    sender.send(header.freeze()).await.map_err(Failure::Send)?;
    sender.send(data).await.map_err(Failure::Send)
}

/// Whether `data` is all of a body of `length` bytes, and short.
fn is_short_and_whole(data: &Bytes, length: Option<u64>) -> bool {
    data.len() <= COPIED && length == Some(data.len() as u64)
}

/// A response's HEADERS frame, and room for `room` bytes of a body behind it.
pub(super) fn header(status: StatusCode, fields: &HeaderMap, room: usize) -> Result<BytesMut, Failure> {
    let mut out = BytesMut::with_capacity(USUAL_HEADER + room);
    // 101 alone cannot be said, and the handler is told not to.
    message::encode_response(status, fields, &mut out).map_err(|_| Failure::Response)?;
    Ok(out)
}
