//! Polls for room on a stream, in the client's windows (RFC 9113 §5.2) and in h2's buffer.

use crate::response_buffer::QueuedPiece;
use h2::SendStream;
use std::{
    io,
    task::{Context, Poll, ready},
};

/// Ready when bytes may be sent: the client's windows have room, and h2's buffer is below its limit.
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
