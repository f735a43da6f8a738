//! From a request to the demo's origin to its answer.

use super::{
    bytes::{BytePattern, MAX_BYTES, Range, parse_range, parse_size},
    page,
    wire::Ahead,
};
use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::stream;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_RANGE, RANGE,
        TRAILER,
    },
};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use std::{fmt::Write, io, time::Duration};
use tokio::time::sleep;

type Body = UnsyncBoxBody<Bytes, Failure>;
type Answer = Response<Body>;

/// Ends a connection, with or without a cause of its own.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long an answer may be delayed, and a drop take.
const MAX_WAIT_MS: u64 = 60_000;

/// How many chunks drip.
const MAX_DROPS: u64 = 1_000;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers one request.
///
/// # Errors
///
/// On purpose: hyper then closes the connection without an answer.
pub(super) async fn answer(request: Request<Incoming>, ahead: Ahead) -> Result<Answer, Failure> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let takes_body = matches!(*segments, ["echo" | "sink"]);
    let allowed: &[Method] =
        if takes_body { &[Method::POST, Method::PUT] } else { &[Method::GET, Method::HEAD, Method::POST] };
    if !allowed.contains(request.method()) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed for this path\n");
        let allow = if takes_body { "POST, PUT" } else { "GET, HEAD, POST" };
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        return Ok(answer);
    }
    Ok(match *segments {
        [""] => content("text/html; charset=utf-8", page::index()),
        ["image", name] => image(name),
        ["bytes", size] => sized(size, request.headers()),
        ["echo"] => echo(request),
        ["sink"] => sink(request.into_body()).await?,
        ["slow", wait] => slow(wait).await,
        ["drip", drops, wait] => drip(drops, wait),
        ["status", code] => status(code),
        ["headers"] => content(TEXT, header_text(&request)),
        ["trailers"] => trailers(),
        ["early-hints"] => {
            ahead.set(b"HTTP/1.1 103 Early Hints\r\nlink: </image/0.svg>; rel=preload; as=image\r\n\r\n");
            text(StatusCode::OK, "a 103 was sent first\n")
        }
        ["fail", "close"] => return Err("closed as asked".into()),
        ["fail", "truncate"] => truncated(),
        ["fail", "garbage"] => {
            ahead.set(b"\x16\x03\x01 this is no HTTP\r\n\r\n");
            let mut answer = text(StatusCode::OK, "");
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            answer
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    })
}

fn image(name: &str) -> Answer {
    let Some(number) = name.strip_suffix(".svg").and_then(|number| number.parse().ok()) else {
        return text(StatusCode::NOT_FOUND, "not found; try /image/0.svg\n");
    };
    let mut answer = content("image/svg+xml", page::image(number));
    // Each visit loads them anew: the demo shows their protocol.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn sized(size: &str, headers: &HeaderMap) -> Answer {
    let Some(size) = parse_size(size) else {
        return text(StatusCode::BAD_REQUEST, format!("a size is like 17, 10k, 10M or 1G, at most {MAX_BYTES}\n"));
    };
    let range = headers.get(RANGE).and_then(|field| field.to_str().ok());
    // Nothing here has a validator, so no If-Range matches (RFC 9110 §13.1.5).
    let range = if headers.contains_key(IF_RANGE) { Range::Whole } else { parse_range(range, size) };
    let whole = BytePattern { offset: 0, left: size };
    let (status, content_range, pattern) = match range {
        Range::Whole => (StatusCode::OK, None, whole),
        Range::Part(part) => {
            let range = format!("bytes {}-{}/{size}", part.offset, part.offset + part.left - 1);
            (StatusCode::PARTIAL_CONTENT, Some(range), part)
        }
        Range::Unsatisfiable => {
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(format!("bytes */{size}")), BytePattern { offset: 0, left: 0 })
        }
    };
    let mut answer = Response::new(pattern.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(Ok(range)) = content_range.map(HeaderValue::try_from) {
        headers.insert(CONTENT_RANGE, range);
    }
    answer
}

/// The body is echoed with backpressure: a piece is read once the one before it was taken.
fn echo(request: Request<Incoming>) -> Answer {
    let content_type = request.headers().get(CONTENT_TYPE).cloned();
    let mut answer = Response::new(request.into_body().map_err(Failure::from).boxed_unsync());
    if let Some(content_type) = content_type {
        answer.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    answer
}

/// Bytes and their digest: a client can check whether its whole upload came, in order.
async fn sink(mut body: Incoming) -> Result<Answer, Failure> {
    let mut count = 0_u64;
    let mut digest = digest::Context::new(&digest::SHA256);
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            count += piece.len() as u64;
            digest.update(&piece);
        }
    }
    let mut line = format!("{count} ");
    for byte in digest.finish().as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    Ok(text(StatusCode::OK, line + "\n"))
}

async fn slow(wait: &str) -> Answer {
    let Some(wait) = milliseconds(wait) else { return bad_wait() };
    sleep(wait).await;
    text(StatusCode::OK, format!("after {} ms\n", wait.as_millis()))
}

fn drip(drops: &str, wait: &str) -> Answer {
    let Some(wait) = milliseconds(wait) else { return bad_wait() };
    let Some(drops) = drops.parse::<u64>().ok().filter(|drops| *drops <= MAX_DROPS) else {
        return text(StatusCode::BAD_REQUEST, format!("at most {MAX_DROPS} drops\n"));
    };
    let drops = stream::unfold(0, move |drop| async move {
        if drop == drops {
            return None;
        }
        sleep(wait).await;
        Some((Ok::<_, Failure>(Frame::data(format!("drop {drop}\n").into())), drop + 1))
    });
    streamed(StreamBody::new(drops).boxed_unsync())
}

fn status(code: &str) -> Answer {
    match code.parse().map(StatusCode::from_u16) {
        // Interim statuses are not answers.
        Ok(Ok(status)) if (200..600).contains(&status.as_u16()) => {
            let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            if bodiless { empty(status) } else { text(status, format!("{status}\n")) }
        }
        _ => text(StatusCode::BAD_REQUEST, "a status is from 200 to 599\n"),
    }
}

fn header_text(request: &Request<Incoming>) -> String {
    let mut list = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    list
}

/// hyper sends a trailer that was announced, to a client that sent `TE: trailers` (RFC 9110 §6.5.1).
fn trailers() -> Answer {
    let trailer = HeaderName::from_static("x-demo-trailer");
    let mut fields = HeaderMap::new();
    fields.insert(trailer.clone(), HeaderValue::from_static("the end"));
    let frames = [Frame::data(Bytes::from_static(b"a trailer follows\n")), Frame::trailers(fields)];
    let mut answer = streamed(StreamBody::new(stream::iter(frames.map(Ok))).boxed_unsync());
    answer.headers_mut().insert(TRAILER, trailer.into());
    answer
}

/// 10 of 1000 bytes, then the end.
fn truncated() -> Answer {
    let pieces = stream::unfold(0, |piece| async move {
        match piece {
            0 => Some((Ok(Frame::data(Bytes::from_static(b"truncated\n"))), 1)),
            // Let hyper write the first piece before the connection closes.
            1 => {
                sleep(Duration::from_millis(20)).await;
                Some((Err(Failure::from(io::Error::other("truncated as asked"))), 2))
            }
            _ => None,
        }
    });
    let mut answer = streamed(StreamBody::new(pieces).boxed_unsync());
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(1000));
    answer
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|wait| *wait <= MAX_WAIT_MS).map(Duration::from_millis)
}

fn bad_wait() -> Answer {
    text(StatusCode::BAD_REQUEST, format!("a wait is in milliseconds, at most {MAX_WAIT_MS}\n"))
}

fn streamed(body: Body) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    answer
}

fn content(content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(full(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = streamed(full(body));
    *answer.status_mut() = status;
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(full(""));
    *answer.status_mut() = status;
    answer
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}
