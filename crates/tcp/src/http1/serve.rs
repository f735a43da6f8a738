//! A connection of HTTP/1.1 from its first request to its end, or to the tunnel that follows it.

use super::{
    body::Http1Received,
    expectation::Expectation,
    guard::{Http1Requests, RequestGuardStream},
};
use crate::{
    answer::Answer,
    body::TcpResponseBody,
    connection::{Connection, NextStep},
    io::ClientSocket,
    phase::TcpEvent,
    tunnel::TunnelHandoff,
    writes::NO_STREAM,
};
use http::{HeaderValue, header, response};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use litequic_exchange::{Abort, Handler};
use std::{
    cell::Cell,
    pin::{Pin, pin},
    rc::Rc,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that hyper buffers on their way in and out, beyond a head.
const BUFFER: usize = 64 * 1024;

/// Lines of a head that hyper parses without an allocation for them; as many as it accepts if nothing else is set.
const HYPERS_LINES: usize = 100;

/// A connection as its requests see it.
struct Server<H> {
    connection: Rc<Connection<H>>,
    pipeline: Rc<Http1Requests>,
    /// The tunnel that follows HTTP/1.1, from the request that opened it to the connection's task.
    tunnel: Cell<Option<TunnelHandoff<H>>>,
}

/// Serves requests from `stream` until the connection ends.
pub(crate) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + ClientSocket + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let terms = Rc::clone(&connection.terms);
    let pipeline = Rc::new(Http1Requests::of(Rc::clone(&connection.life)));
    let (patience, small) = (terms.timeouts.request_header, terms.limits.max_small_frames);
    let guard = RequestGuardStream::new(stream, terms.field_limits, patience, small, Rc::clone(&pipeline));
    let guard = guard.lingering(connection.lingering());
    let server = Rc::new(Server { connection, pipeline, tunnel: Cell::new(None) });
    let service = hyper::service::service_fn(|request| answer(Rc::clone(&server), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).auto_date_header(false);
    let head = BUFFER.saturating_add(terms.field_limits.bytes.saturating_mul(2));
    // The second is hyper's limit of trailers too, which would be 16 KiB. The guard has checked both before.
    builder.max_buf_size(head).max_header_size(head);
    // `Host` is a line of its own.
    let lines = terms.field_limits.fields.saturating_add(1);
    if lines > HYPERS_LINES {
        builder.max_headers(lines);
    }
    let connection = &server.connection;
    let mut serving = builder.serve_connection(TokioIo::new(guard), service);
    let failure = loop {
        match connection.next(&mut serving).await {
            NextStep::Ended(Ok(())) => break None,
            NextStep::Close => return server.end(false),
            NextStep::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/1.1 connection failed");
                break Some(error);
            }
            NextStep::GoAway => Pin::new(&mut serving).graceful_shutdown(),
        }
    };
    // hyper has shut the connection down unless it was to switch protocols.
    if failure.as_ref().is_some_and(hyper::Error::is_user) && !server.pipeline.is_flooded() {
        // A response was cut off. hyper does not shut the connection down then.
        let mut guard = serving.into_parts().io.into_inner();
        let mut ending = pin!(guard.break_off());
        while let NextStep::GoAway = connection.next(ending.as_mut()).await {}
    } else if failure.is_none()
        && let Some(handoff) = server.tunnel.take()
    {
        let parts = serving.into_parts();
        let mut guard = parts.io.into_inner();
        guard.release(&parts.read_buf);
        let mut joining = pin!(handoff.join(guard));
        // A client of another protocol cannot be told to close: a drain waits for it as long as for any request.
        while let NextStep::GoAway = connection.next(joining.as_mut()).await {}
    }
    server.end(failure.is_some());
}

impl<H> Server<H> {
    /// The connection has ended, after an error if it `broke_off`.
    fn end(&self, broke_off: bool) {
        let shared = &self.connection.metrics().shared;
        if self.pipeline.is_flooded() {
            shared.limit_small_frames.increment();
            self.connection.life.on(TcpEvent::Excessive);
        }
        if self.pipeline.has_large_trailers() {
            shared.limit_header_bytes.increment();
        }
        self.connection.end(broke_off);
    }
}

/// Answers one request.
async fn answer<H: Handler>(
    server: Rc<Server<H>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<TcpResponseBody<H>>, Abort> {
    let (parts, incoming) = request.into_parts();
    let (expectation, body) = if incoming.is_end_stream() {
        Default::default()
    } else {
        let (expectation, gate) = Expectation::new(&parts, server.pipeline.has_body_come());
        (expectation, Some(Http1Received::new(incoming, Rc::clone(&server.pipeline), gate)))
    };
    let request = server.pipeline.read().map_or(Ok((parts, body)), Err);
    match server.connection.answer(request, expectation.interim(), NO_STREAM).await? {
        Answer::Response(mut response) => {
            server.pipeline.answered();
            if expectation.end() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
        Answer::Tunnel(parts, handoff) => Ok(server.switch(parts, handoff)),
    }
}

impl<H: Handler> Server<H> {
    /// The answer that the protocol is switched; the connection's task joins the tunnel with the client's bytes when
    /// hyper is done with them.
    fn switch(&self, mut parts: response::Parts, handoff: TunnelHandoff<H>) -> http::Response<TcpResponseBody<H>> {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        // The protocol's name in the configuration is a token.
        if let Ok(protocol) = HeaderValue::from_str(handoff.tunnel.protocol()) {
            parts.headers.insert(header::UPGRADE, protocol);
        }
        // The guard is not notified: what follows is not a request, and kept for the tunnel.
        handoff.open.begin(parts.status);
        self.tunnel.set(Some(handoff));
        http::Response::from_parts(parts, TcpResponseBody::none())
    }
}
