//! Injects bytes that hyper would not write into a connection: 103 (Early Hints).

use bytes::{Buf, Bytes};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes that are sent before the answer that hyper writes next.
#[derive(Debug, Clone, Default)]
pub struct InjectedBytes(Arc<Mutex<Bytes>>);

impl InjectedBytes {
    /// Sets the bytes to send first. hyper requests one answer at a time, so no other is in progress.
    pub fn inject_bytes(&self, bytes: &'static [u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Bytes::from_static(bytes);
    }
}

/// Connection that writes [`InjectedBytes`] before anything else.
#[derive(Debug)]
pub struct InjectingStream {
    stream: TcpStream,
    ahead: InjectedBytes,
}

impl InjectingStream {
    /// Wraps a connection.
    pub fn new(stream: TcpStream) -> (Self, InjectedBytes) {
        let ahead = InjectedBytes::default();
        (Self { stream, ahead: ahead.clone() }, ahead)
    }

    fn poll_injected(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ahead = self.ahead.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !ahead.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &ahead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ahead.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for InjectingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for InjectingStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_injected(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_injected(context))?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_injected(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
