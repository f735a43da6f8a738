//! HTTP/2 (RFC 9113) over TLS: hyper's server, which reads frames and fields by h2's rules, beside what those leave open:
//! how many frames a second, how many cancelled requests, and how long a stream may stand still.

mod counted;
mod frames;
mod streams;

pub(super) use streams::Stall;

use super::connection::{Connection, Ending};
use crate::exchange::Handler;
use counted::Counted;
use frames::Frames;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{pin::pin, rc::Rc, sync::Arc};
use streams::Streams;
use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection's window may be at least (RFC 9113 §6.9.2) and at most (§6.9.1).
const WINDOWS: std::ops::RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let (limits, metrics) = (connection.limits, connection.metrics());
    let frames = Frames::new(limits.max_control_frames, limits.max_small_frames);
    let counted = Counted::new(stream, frames, Arc::clone(metrics));
    let streams = Streams::new(connection.timeouts.send, Arc::clone(metrics));
    let service = hyper::service::service_fn(|request| connection.answer(request));
    let mut builder = http2::Builder::new(streams.clone());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(limits.max_streams)
        // Beyond it h2 answers 431 by itself; up to it, and beyond max_header_bytes, `request` does, and counts.
        .max_header_list_size(limits.max_header_bytes.saturating_mul(2))
        .initial_stream_window_size(limits.stream_receive_buffer.min(*WINDOWS.end()))
        .initial_connection_window_size(limits.connection_receive_buffer.clamp(*WINDOWS.start(), *WINDOWS.end()))
        .max_send_buf_size(limits.stream_send_buffer as usize);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(counted), service));
    loop {
        match connection.next(serving.as_mut()).await {
            Ending::Ended(Ok(())) | Ending::Now => break,
            Ending::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/2 connection broke off");
                break;
            }
            Ending::Soon => serving.as_mut().graceful_shutdown(),
        }
    }
    connection.over();
    streams.end();
}
