//! A connection's bytes on their way to hyper, its frames counted.

use super::frames::{Flood, Frames};
use crate::telemetry::WorkerMetrics;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that fails once there are too many frames in it.
pub(super) struct Counted<S> {
    stream: S,
    frames: Frames,
    metrics: Arc<WorkerMetrics>,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, frames: Frames, metrics: Arc<WorkerMetrics>) -> Self {
        Self { stream, frames, metrics }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        let came = out.filled().get(before..).unwrap_or_default();
        if let Err(flood) = self.frames.read(came, Instant::now()) {
            match flood {
                Flood::Control => self.metrics.limit_control_frames.increment(),
                Flood::Small => self.metrics.limit_small_frames.increment(),
            }
            return Poll::Ready(Err(io::Error::other("too many frames that move nothing")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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
