//! Answers a request to the demo's origin.

use super::{
    RawSocket,
    byte_pattern::{BytePattern, MAX_BYTES, RequestedRange, parse_range, parse_size},
    page,
};
use aws_lc_rs::digest;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, IF_RANGE, RANGE},
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use std::{fmt::Write, io::Write as _, time::Duration};
use tokio::time::sleep;

/// Body of an answer.
pub type DemoBody = UnsyncBoxBody<Bytes, DemoFailure>;
/// Answer of the demo's origin.
pub type DemoAnswer = Response<DemoBody>;

/// Error that ends a connection, with or without a cause of its own.
pub type DemoFailure = Box<dyn std::error::Error + Send + Sync>;

/// Maximum delay of an answer.
const MAX_WAIT_MS: u64 = 60_000;

const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Answers a request.
///
/// # Errors
///
/// The request's body broke off, or the client is gone: hyper then closes the connection without an answer.
pub async fn answer_request(request: Request<Incoming>, socket: RawSocket) -> Result<DemoAnswer, DemoFailure> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let takes_body = matches!(*segments, ["echo" | "sink"]);
    let allowed: &[Method] =
        if takes_body { &[Method::POST, Method::PUT] } else { &[Method::GET, Method::HEAD, Method::POST] };
    if !allowed.contains(request.method()) {
        let mut answer = text_answer(StatusCode::METHOD_NOT_ALLOWED, "method not allowed for this path\n");
        let allow = if takes_body { "POST, PUT" } else { "GET, HEAD, POST" };
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        return Ok(answer);
    }
    Ok(match *segments {
        [""] => content_answer("text/html; charset=utf-8", page::index_page()),
        ["image", name] => image_answer(name),
        ["bytes", size] => bytes_answer(size, request.headers()),
        ["echo"] => echo_answer(request),
        ["sink"] => digest_answer(request.into_body()).await?,
        ["slow", wait] => delayed_answer(wait).await,
        ["status", code] => status_answer(code),
        ["headers"] => content_answer(TEXT_TYPE, header_text(&request)),
        ["early-hints"] => {
            (&*socket).write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </image/0.svg>; rel=preload; as=image\r\n\r\n")?;
            text_answer(StatusCode::OK, "a 103 was sent first\n")
        }
        _ => text_answer(StatusCode::NOT_FOUND, "not found\n"),
    })
}

fn image_answer(name: &str) -> DemoAnswer {
    let Some(number) = name.strip_suffix(".svg").and_then(|number| number.parse().ok()) else {
        return text_answer(StatusCode::NOT_FOUND, "not found; try /image/0.svg\n");
    };
    let mut answer = content_answer("image/svg+xml", page::image_svg(number));
    // Each visit loads the images anew, to show their protocol.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn bytes_answer(size: &str, headers: &HeaderMap) -> DemoAnswer {
    let Some(size) = parse_size(size) else {
        return text_answer(
            StatusCode::BAD_REQUEST,
            format!("a size is like 17, 10k, 10M or 1G, at most {MAX_BYTES}\n"),
        );
    };
    let range = headers.get(RANGE).and_then(|field| field.to_str().ok());
    // Nothing here has a validator, so no If-Range matches (RFC 9110 §13.1.5).
    let range = if headers.contains_key(IF_RANGE) { RequestedRange::Whole } else { parse_range(range, size) };
    let whole = BytePattern { offset: 0, left: size };
    let (status, content_range, pattern) = match range {
        RequestedRange::Whole => (StatusCode::OK, None, whole),
        RequestedRange::Part(part) => {
            let range = format!("bytes {}-{}/{size}", part.offset, part.offset + part.left - 1);
            (StatusCode::PARTIAL_CONTENT, Some(range), part)
        }
        RequestedRange::Unsatisfiable => {
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

/// Echoes the body with backpressure: a piece is read once the one before it was taken.
fn echo_answer(request: Request<Incoming>) -> DemoAnswer {
    let content_type = request.headers().get(CONTENT_TYPE).cloned();
    let mut answer = Response::new(request.into_body().map_err(DemoFailure::from).boxed_unsync());
    if let Some(content_type) = content_type {
        answer.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    answer
}

/// Answers with the length and the digest of the body, so that a client can check its upload.
async fn digest_answer(mut body: Incoming) -> Result<DemoAnswer, DemoFailure> {
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
    Ok(text_answer(StatusCode::OK, line + "\n"))
}

async fn delayed_answer(wait: &str) -> DemoAnswer {
    let Some(wait) = wait.parse().ok().filter(|wait| *wait <= MAX_WAIT_MS) else {
        return text_answer(StatusCode::BAD_REQUEST, format!("a wait is in milliseconds, at most {MAX_WAIT_MS}\n"));
    };
    sleep(Duration::from_millis(wait)).await;
    text_answer(StatusCode::OK, format!("after {wait} ms\n"))
}

fn status_answer(code: &str) -> DemoAnswer {
    match code.parse().map(StatusCode::from_u16) {
        // Interim statuses are not answers.
        Ok(Ok(status)) if (200..600).contains(&status.as_u16()) => {
            let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            if bodiless { empty_answer(status) } else { text_answer(status, format!("{status}\n")) }
        }
        _ => text_answer(StatusCode::BAD_REQUEST, "a status is from 200 to 599\n"),
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

fn content_answer(content_type: &'static str, body: String) -> DemoAnswer {
    let mut answer = Response::new(full_body(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn text_answer(status: StatusCode, body: impl Into<Bytes>) -> DemoAnswer {
    let mut answer = empty_answer(status);
    *answer.body_mut() = full_body(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_TYPE));
    answer
}

fn empty_answer(status: StatusCode) -> DemoAnswer {
    let mut answer = Response::new(full_body(""));
    *answer.status_mut() = status;
    answer
}

fn full_body(body: impl Into<Bytes>) -> DemoBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}
