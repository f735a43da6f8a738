//! HTTP/1.1 (RFC 9112) over TLS: hyper's server behind a guard that accepts only what two parsers read in the same way.

mod body;
mod chunks;
mod expectation;
mod guard;
mod head;
mod requests;

pub use guard::{Http1Requests, RequestGuardStream};
pub use head::Bounds;

use super::{
    answer::Answer,
    body::TcpResponseBody,
    connection::{Connection, NextStep},
    io::ClientSocket,
    tunnel::TunnelHandoff,
    writes::NO_STREAM,
};
use crate::exchange::{Abort, Handler};
use body::Http1Received;
use expectation::Expectation;
use http::{HeaderValue, header, response};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    pin::{Pin, pin},
    rc::{Rc, Weak},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that hyper buffers on their way in and out, beyond a head.
const BUFFER: usize = 64 * 1024;

/// Lines of a head that hyper parses without an allocation for them; as many as it accepts if nothing else is set.
const HYPERS_LINES: usize = 100;

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + ClientSocket + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let bounds = connection.bounds();
    let (patience, small) = (connection.timeouts.request_header, connection.limits.max_small_frames);
    let guard = RequestGuardStream::new(stream, bounds, patience, small, Rc::clone(&connection.pipeline));
    let guard = guard.lingering(connection.lingering());
    let handoff = connection.open_tunnel_slot();
    let service = hyper::service::service_fn(|request| answer(Rc::clone(&connection), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).auto_date_header(false);
    let head = BUFFER.saturating_add(bounds.bytes.saturating_mul(2));
    // The second is hyper's limit of trailers too, which would be 16 KiB. The guard has checked both before.
    builder.max_buf_size(head).max_header_size(head);
    // `Host` is a line of its own.
    let lines = bounds.fields.saturating_add(1);
    if lines > HYPERS_LINES {
        builder.max_headers(lines);
    }
    let mut serving = builder.serve_connection(TokioIo::new(guard), service);
    let failure = loop {
        match connection.next(&mut serving).await {
            NextStep::Ended(Ok(())) => break None,
            NextStep::Now => return connection.count_end(false),
            NextStep::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/1.1 connection failed");
                break Some(error);
            }
            NextStep::Soon => Pin::new(&mut serving).graceful_shutdown(),
        }
    };
    // hyper has shut the connection down unless it was to switch protocols.
    if failure.as_ref().is_some_and(hyper::Error::is_user) && !connection.pipeline.is_flooded() {
        // A response was cut off. hyper does not shut the connection down then.
        let mut guard = serving.into_parts().io.into_inner();
        let mut ending = pin!(guard.break_off());
        while let NextStep::Soon = connection.next(ending.as_mut()).await {}
    } else if failure.is_none()
        && let Some(handoff) = handoff.take()
    {
        let parts = serving.into_parts();
        let mut guard = parts.io.into_inner();
        guard.release(&parts.read_buf);
        let mut joining = pin!(handoff.join(guard));
        // A client of another protocol cannot be told to close: a drain waits for it as long as for any request.
        while let NextStep::Soon = connection.next(joining.as_mut()).await {}
    }
    connection.count_end(failure.is_some());
}

/// Answers one request.
async fn answer<H: Handler>(
    connection: Rc<Connection<H>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<TcpResponseBody<H>>, Abort> {
    let (parts, incoming) = request.into_parts();
    let (expectation, body) = if incoming.is_end_stream() {
        Default::default()
    } else {
        let (expectation, gate) = Expectation::new(&parts, connection.pipeline.has_body_come());
        (expectation, Some(Http1Received::new(incoming, Rc::clone(&connection.pipeline), gate)))
    };
    match connection.answer(parts, body, expectation.interim(), NO_STREAM).await? {
        Answer::Response(mut response) => {
            if expectation.end() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
        Answer::Tunnel(parts, handoff) => switch(&connection, parts, handoff),
    }
}

/// The answer that the protocol is switched; the connection's task joins the tunnel with the client's bytes when hyper
/// is done with them.
fn switch<H: Handler>(
    connection: &Connection<H>,
    mut parts: response::Parts,
    handoff: TunnelHandoff<H>,
) -> Result<http::Response<TcpResponseBody<H>>, Abort> {
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.insert(header::UPGRADE, handoff.tunnel.protocol().clone());
    // The guard is not notified: what follows is not a request, and kept for the tunnel.
    handoff.open.begin(parts.status);
    connection.tunnel_slot.get().and_then(Weak::upgrade).ok_or(Abort::Internal)?.set(Some(handoff));
    Ok(http::Response::from_parts(parts, TcpResponseBody::none()))
}
