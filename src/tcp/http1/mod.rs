//! HTTP/1.1 (RFC 9112) over TLS: hyper's server behind a guard that lets pass what two parsers can read in one way alone.

mod chunks;
mod guard;
mod head;
mod requests;

pub(super) use guard::{Guard, Told};
pub(super) use head::Bounds;

use super::connection::{Connection, Ending};
use crate::exchange::Handler;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{pin::pin, rc::Rc};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that hyper buffers on their way in and out, beyond a head.
const BUFFER: usize = 64 * 1024;

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let bounds = connection.bounds();
    let guard = Guard::new(stream, bounds, connection.timeouts.request_header, Rc::clone(&connection.told));
    let service = hyper::service::service_fn(|request| connection.answer(request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).auto_date_header(false);
    builder.max_buf_size(BUFFER.saturating_add(bounds.bytes.saturating_mul(2)));
    if bounds.fields > 100 {
        // hyper's own bound, with which it needs no allocation for them.
        builder.max_headers(bounds.fields);
    }
    let mut serving = pin!(builder.serve_connection(TokioIo::new(guard), service));
    loop {
        match connection.next(serving.as_mut()).await {
            Ending::Ended(Ok(())) | Ending::Now => return,
            Ending::Ended(Err(error)) => {
                tracing::debug!(client = %connection.client.address, %error, "an HTTP/1.1 connection broke off");
                return;
            }
            Ending::Soon => serving.as_mut().graceful_shutdown(),
        }
    }
}
