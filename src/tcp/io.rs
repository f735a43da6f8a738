//! A connection's bytes on their way out: whoever takes none for `timeouts.send` is gone.

use crate::{exchange::IdleTimer, telemetry::WorkerMetrics};
use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long something may wait for a peer: runs only while it does.
#[derive(Debug)]
pub(super) struct Patience {
    timer: IdleTimer,
    waiting: bool,
}

impl Patience {
    pub(super) fn new(patience: Duration) -> Self {
        Self { timer: IdleTimer::new(patience), waiting: false }
    }

    /// The peer did something.
    pub(super) fn rest(&mut self) {
        self.waiting = false;
    }

    /// It is waited for; ready once that has lasted too long.
    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.waiting {
            self.waiting = true;
            self.timer.touch();
        }
        self.timer.poll_expired(cx)
    }
}

/// A stream whose writes have a deadline.
pub(super) struct Timed<S> {
    stream: S,
    patience: Patience,
    /// Whether the deadline has passed.
    stalled: Rc<Cell<bool>>,
    metrics: Arc<WorkerMetrics>,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, patience: Duration, stalled: Rc<Cell<bool>>, metrics: Arc<WorkerMetrics>) -> Self {
        Self { stream, patience: Patience::new(patience), stalled, metrics }
    }

    fn in_time<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.patience.rest();
        } else if self.patience.poll_wait(cx).is_ready() {
            self.metrics.timeout_send.increment();
            self.stalled.set(true);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.in_time(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.in_time(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.in_time(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(shut, cx)
    }
}
