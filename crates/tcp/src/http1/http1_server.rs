//! Serves an HTTP/1.1 connection from its first request to its end, or to the tunnel that follows.

use super::{
    body::Http1IncomingBody,
    expectation::ContinueExpectation,
    request_guard::{PipelineState, RequestGuardStream},
};
use crate::{
    connection_writes::NO_STREAM,
    refusal::Refusal,
    request_answer::RequestAnswer,
    tcp_body::TcpResponseBody,
    tcp_connection::{ActiveRequest, ConnectionStep, TcpConnection},
    tunnel_handoff::TunnelHandoff,
    write_timeout::ClientSocket,
};
use bytes::BufMut;
use http::{HeaderValue, header, response};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use litequic_exchange::{Abort, Handler, http1::write_fields};
use std::{cell::Cell, future::poll_fn, io, pin::Pin, rc::Rc, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Bytes that hyper buffers in each direction, beyond a head.
const HYPER_BUFFER: usize = 64 * 1024;

/// Number of lines for which hyper parses a head without an allocation; also hyper's default limit.
const HYPER_MAX_LINES: usize = 100;

/// The shared state of one connection's requests.
struct Http1Server<H> {
    connection: Rc<TcpConnection<H>>,
    pipeline: Rc<PipelineState>,
    /// The tunnel that follows HTTP/1.1, on its way from the request that opened it to the connection's task.
    tunnel: Cell<Option<TunnelHandoff<H>>>,
}

/// Serves requests from `stream` until the connection ends.
pub(crate) async fn serve_http1<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + ClientSocket + Unpin + 'static,
    connection: Rc<TcpConnection<H>>,
) {
    let terms = Rc::clone(&connection.terms);
    let pipeline = Rc::new(PipelineState::with_lifecycle(
        Rc::clone(&connection.lifecycle),
        Arc::clone(&connection.worker.metrics),
    ));
    let (timeout, small) = (terms.timeouts.request_header, terms.limits.max_small_frames);
    let guard = RequestGuardStream::new(stream, terms.field_limits, timeout, small, Rc::clone(&pipeline));
    let server = Rc::new(Http1Server { connection, pipeline, tunnel: Cell::new(None) });
    let service = hyper::service::service_fn(|request| answer_http1(Rc::clone(&server), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).auto_date_header(false);
    let head = HYPER_BUFFER.saturating_add(terms.field_limits.bytes.saturating_mul(2));
    // `max_header_size` is hyper's limit of trailers, too, which would otherwise be 16 KiB. The guard has checked head
    // and trailers before.
    builder.max_buf_size(head).max_header_size(head);
    // `Host` is a line of the head, but does not count as a field.
    let lines = terms.field_limits.fields.saturating_add(1);
    if lines > HYPER_MAX_LINES {
        builder.max_headers(lines);
    }
    let connection = &server.connection;
    let mut serving = builder.serve_connection(TokioIo::new(guard), service);
    let failure = loop {
        match connection.next_step(&mut serving).await {
            ConnectionStep::Ended(Ok(())) => break None,
            ConnectionStep::Close => return server.count_connection_end(false),
            ConnectionStep::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/1.1 connection failed");
                break Some(error);
            }
            ConnectionStep::GoAway => Pin::new(&mut serving).graceful_shutdown(),
        }
    };
    let is_cut_off = failure.as_ref().is_some_and(hyper::Error::is_user);
    let mut broke_off = failure.is_some();
    let (parts, limits) = (serving.into_parts(), connection.linger_limits());
    let mut guard = parts.io.into_inner();
    if is_cut_off {
        connection.run_to_end(guard.break_off(&limits)).await;
    } else if let Some(handoff) = server.tunnel.take().filter(|_| !broke_off) {
        guard.release_to_tunnel(&parts.read_buf);
        // A client of another protocol cannot be requested to close. A drain waits for it as for any request.
        connection.run_to_end(handoff.join_until_end(guard)).await;
    } else if !broke_off {
        let ending = async {
            if let Some(refusal) = server.pipeline.refusal.take() {
                write_refusal(connection, &mut guard, refusal).await?;
            }
            guard.close_orderly(&limits).await
        };
        broke_off = matches!(connection.run_to_end(ending).await, Some(Err(_)));
    }
    server.count_connection_end(broke_off);
}

impl<H> Http1Server<H> {
    /// Counts the end of the connection, after an error if it `broke_off`.
    fn count_connection_end(&self, broke_off: bool) {
        let shared = &self.connection.worker.metrics.shared;
        if self.pipeline.has_large_trailers.get() {
            shared.limit_header_bytes.increment();
        }
        self.connection.finish_connection(broke_off);
    }
}

/// Writes the response to a request that the guard has refused: a short text.
async fn write_refusal<H: Handler>(
    connection: &Rc<TcpConnection<H>>,
    stream: &mut (impl AsyncWrite + Unpin),
    refusal: Refusal,
) -> io::Result<()> {
    let open = ActiveRequest::new(Rc::clone(connection), NO_STREAM);
    let (parts, mut body) = connection.answer_refusal(refusal, open).into_parts();
    let mut bytes = format!("{:?} {}\r\n", parts.version, parts.status).into_bytes();
    let length = HeaderValue::from(body.size_hint().exact().unwrap_or(0));
    let fields = parts.headers.iter().chain([(&header::CONTENT_LENGTH, &length)]);
    write_fields(&mut bytes, fields.map(|(name, value)| (name.as_str(), value.as_bytes())));
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            bytes.put(data);
        }
    }
    stream.write_all(&bytes).await
}

async fn answer_http1<H: Handler>(
    server: Rc<Http1Server<H>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<TcpResponseBody<H>>, Abort> {
    let (parts, incoming) = request.into_parts();
    let (expectation, body) = if incoming.is_end_stream() {
        Default::default()
    } else {
        let (expectation, gate) = ContinueExpectation::new(&parts, server.pipeline.has_body_arrived());
        (expectation, Some(Http1IncomingBody { incoming, pipeline: Rc::clone(&server.pipeline), gate }))
    };
    match server.connection.answer_tcp_request(parts, body, expectation.interim_sender(), NO_STREAM).await? {
        RequestAnswer::Response(mut response) => {
            server.pipeline.count_answered();
            if expectation.finish_expectation() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
        RequestAnswer::Tunnel(parts, handoff) => Ok(server.begin_protocol_switch(parts, handoff)),
    }
}

impl<H: Handler> Http1Server<H> {
    /// Returns the response that the protocol is switched. The connection's task joins the tunnel with the client's
    /// bytes once hyper is done.
    fn begin_protocol_switch(
        &self,
        mut parts: response::Parts,
        handoff: TunnelHandoff<H>,
    ) -> http::Response<TcpResponseBody<H>> {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        // The name of a protocol in the configuration is a token.
        if let Ok(protocol) = HeaderValue::from_str(&handoff.tunnel.protocol) {
            parts.headers.insert(header::UPGRADE, protocol);
        }
        // The guard is not notified of the response: the bytes that follow belong to the tunnel.
        handoff.request.begin_response_head(parts.status);
        self.tunnel.set(Some(handoff));
        http::Response::from_parts(parts, TcpResponseBody::for_tunnel())
    }
}
