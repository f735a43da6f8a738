//! A filter for a connection's bytes to hyper, which counts its frames.

use super::frames::{Flood, Frames};
use crate::receive_budget::Account;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that fails once there are too many frames in it; `tell` is called first with the reason.
pub(super) struct Counted<S, T> {
    stream: S,
    frames: Frames,
    account: Account,
    tell: T,
}

impl<S, T: Fn(Flood)> Counted<S, T> {
    pub(super) fn new(stream: S, frames: Frames, account: Account, tell: T) -> Self {
        Self { stream, frames, account, tell }
    }
}

impl<S: AsyncRead + Unpin, T: Fn(Flood) + Unpin> AsyncRead for Counted<S, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        let came = out.filled().get(before..).unwrap_or_default();
        if let Err(flood) = self.frames.read(came, Instant::now()) {
            (self.tell)(flood);
            return Poll::Ready(Err(io::Error::other("too many frames that carry no data")));
        }
        let data = self.frames.take_data();
        if data > 0 {
            self.account.came(data);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, T: Unpin> AsyncWrite for Counted<S, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
