//! HTTP/1.1 (RFC 9112) over TLS: hyper's server behind a guard that accepts only what two parsers read in the same way.

mod chunks;
mod expectation;
mod guard;
mod head;
mod requests;

pub(super) use expectation::{Expectation, Gate};
pub use guard::{Guard, Pipeline};
pub use head::Bounds;

use super::connection::{Connection, Ending};
use crate::exchange::Handler;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    pin::{Pin, pin},
    rc::Rc,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that hyper buffers on their way in and out, beyond a head.
const BUFFER: usize = 64 * 1024;

/// Lines of a head that hyper parses without an allocation for them; as many as it accepts if nothing else is set.
const HYPERS_LINES: usize = 100;

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let bounds = connection.bounds();
    let (patience, small) = (connection.timeouts.request_header, connection.limits.max_small_frames);
    let guard = Guard::new(stream, bounds, patience, small, Rc::clone(&connection.pipeline));
    let guard = guard.lingering(connection.lingering());
    let joint = connection.next_joint();
    let service = hyper::service::service_fn(|request| connection.answer(request));
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
    let broke_off = loop {
        match connection.next(&mut serving).await {
            Ending::Ended(Ok(())) => break false,
            Ending::Now => return connection.count_end(false),
            Ending::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/1.1 connection failed");
                break true;
            }
            Ending::Soon => Pin::new(&mut serving).graceful_shutdown(),
        }
    };
    // hyper has shut the connection down unless it was to switch protocols.
    if !broke_off && let Some(joint) = joint.take() {
        let parts = serving.into_parts();
        let mut guard = parts.io.into_inner();
        guard.release(&parts.read_buf);
        let mut joining = pin!(joint.join(guard));
        // A client of another protocol cannot be told to close: a drain waits for it as long as for any request.
        while let Ending::Soon = connection.next(joining.as_mut()).await {}
    }
    connection.count_end(broke_off);
}
