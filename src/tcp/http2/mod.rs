//! HTTP/2 (RFC 9113) over TLS: hyper's server, with h2's frames and fields, and the limits that those lack: how many
//! frames a second, how many cancelled requests, and how long a stream may stall.

mod counted;
mod frames;
mod streams;
mod tunnel;

pub use frames::{Flood, Frames};
pub(super) use streams::Stall;
pub(super) use tunnel::Connected;

use super::connection::{Connection, Ending};
use crate::exchange::Handler;
use counted::Counted;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{ops::RangeInclusive, pin::pin, rc::Rc, sync::Arc};
use streams::Streams;
use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection's window may be at least (RFC 9113 §6.9.2) and at most (§6.9.1).
const WINDOWS: RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Bytes of a stream that h2 buffers before it takes no further piece. How much the pieces have is up to the send
/// budget; alone this bounds a tunnel. What a path needs is in the kernel's buffer; with a fourth of this a download
/// costs a third more CPU time, with more of it no less.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let (limits, metrics) = (connection.limits, connection.metrics());
    let receive = &connection.front.budgets.receive;
    let window = limits.receive_window(receive.used());
    if window < limits.connection_receive_buffer.into() {
        metrics.limit_receive_buffer.increment();
    }
    let grant = receive.begin(window, connection.admitted.holder.source().network());
    let window = u32::try_from(window).unwrap_or(u32::MAX).clamp(*WINDOWS.start(), *WINDOWS.end());
    connection.hold(grant.account());
    let frames = Frames::new(limits.max_control_frames, limits.max_small_frames);
    let told = Rc::clone(&connection);
    let counted = Counted::new(stream, frames, grant.account(), move |flood| {
        match flood {
            Flood::Control => told.metrics().shared.limit_control_frames.increment(),
            Flood::Small => told.metrics().shared.limit_small_frames.increment(),
        }
        told.flooded();
    });
    let streams =
        Streams::new(connection.download_pace(), Rc::clone(&connection.blocked), grant.account(), Arc::clone(metrics));
    let service = hyper::service::service_fn(|request| connection.answer(request));
    let mut builder = http2::Builder::new(streams.clone());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(limits.max_streams)
        // Beyond it h2 answers 431 by itself; up to it, and beyond max_header_bytes, `request` does, and counts.
        .max_header_list_size(limits.max_header_bytes.saturating_mul(2))
        .initial_stream_window_size(limits.stream_receive_buffer.min(window))
        .initial_connection_window_size(window)
        .max_send_buf_size(SEND_BUFFER);
    if connection.has_tunnels {
        // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3)
        builder.enable_connect_protocol();
    }
    let mut serving = pin!(builder.serve_connection(TokioIo::new(counted), service));
    let broke_off = loop {
        match connection.next(serving.as_mut()).await {
            Ending::Ended(Ok(())) | Ending::Now => break false,
            Ending::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/2 connection failed");
                break true;
            }
            Ending::Soon => serving.as_mut().graceful_shutdown(),
        }
    };
    connection.count_end(broke_off);
    connection.over();
    streams.end();
}
