//! The room for more on a stream: what its client's windows allow (RFC 9113 §5.2), and h2 buffers.

use crate::response_buffer::QueuedPiece;
use h2::SendStream;
use std::{
    io,
    task::{Context, Poll, ready},
};

/// Ready when something may be sent: the client has room for it, and h2 buffers less than its limit.
///
/// # Errors
///
/// The stream is gone.
pub(super) fn poll_send_capacity(stream: &mut SendStream<QueuedPiece>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
    Poll::Ready(Ok(()))
}
