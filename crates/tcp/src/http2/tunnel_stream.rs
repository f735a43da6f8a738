//! Reads and writes the stream of an extended CONNECT (RFC 8441) by `AsyncRead` and `AsyncWrite`.

use super::{send_capacity::poll_send_capacity, unread_frames::StreamFrames};
use crate::{http2_frames::data_frame_overhead, response_buffer::QueuedPiece, write_timeout::ClientSocket};
use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use litequic_resources::receive::ReceiveAccount;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Byte stream of an extended CONNECT. If it is dropped before both sides have ended, h2 resets the stream with CANCEL
/// (RFC 8441 §5).
pub(super) struct Http2TunnelStream {
    pub(super) send: SendStream<QueuedPiece>,
    pub(super) receive: RecvStream,
    /// Received bytes that were not read yet.
    pub(super) ahead: Bytes,
    pub(super) account: ReceiveAccount,
    pub(super) frames: StreamFrames,
}

impl AsyncRead for Http2TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.ahead.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                Some(data) => {
                    self.ahead = data.map_err(|error| reset_error(&error))?;
                    self.frames.count_frame_read(data_frame_overhead(self.ahead.len()));
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        let bytes = self.ahead.len().min(out.remaining());
        out.put_slice(self.ahead.get(..bytes).unwrap_or_default());
        self.ahead.advance(bytes);
        // An error means that the stream is gone.
        let _ = self.receive.flow_control().release_capacity(bytes);
        self.account.count_taken(bytes as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Reserved bytes are taken from the connection's window, so only one byte is reserved, which is sure to be
        // used.
        self.send.reserve_capacity(1);
        ready!(poll_send_capacity(&mut self.send, cx))?;
        let piece = QueuedPiece::without_budget(Bytes::copy_from_slice(bytes));
        self.send.send_data(piece, false).map_err(|error| reset_error(&error))?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.send.send_data(QueuedPiece::without_budget(Bytes::new()), true);
        Poll::Ready(sent.map_err(|error| reset_error(&error)))
    }
}

/// h2 takes written bytes at once, and the connection accounts for its own writes.
impl ClientSocket for Http2TunnelStream {
    fn unsent_bytes(&mut self) -> u64 {
        0
    }

    fn end_writes(&self) {}
}

/// Converts h2's error: the client has reset the stream, or is gone.
pub(super) fn reset_error(error: &h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())
}
