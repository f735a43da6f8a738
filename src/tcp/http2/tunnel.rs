//! The stream of an extended CONNECT (RFC 8441) as bytes both ways.

use super::Stall;
use crate::tcp::io::Timed;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Dropped before both its ends, it resets the stream with CANCEL (RFC 8441 §5); hyper alone would end it as if all had
/// been sent.
pub(in crate::tcp) struct Connected {
    stream: Timed<TokioIo<Upgraded>>,
    stall: Rc<Stall>,
    /// The end was seen once.
    looked: bool,
    read_ended: bool,
    write_ended: bool,
}

impl Connected {
    pub(in crate::tcp) fn new(stream: Timed<TokioIo<Upgraded>>, stall: Rc<Stall>) -> Self {
        Self { stream, stall, looked: false, read_ended: false, write_ended: false }
    }
}

impl AsyncRead for Connected {
    /// hyper reads a reset with CANCEL as an end. The task that sends is woken by the same frame and distinguishes
    /// them: the tunnel is over, although no end was sent.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        let read = out.filled().len().saturating_sub(before);
        if read > 0 {
            self.stall.taken(read as u64);
        }
        if read > 0 || out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !std::mem::replace(&mut self.looked, true) {
            // Behind it in the queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.stall.is_sent() && !self.write_ended {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.read_ended = true;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connected {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_ended = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if !(self.read_ended && self.write_ended) {
            self.stall.reset();
        }
    }
}
