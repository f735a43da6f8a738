//! Wraps the socket of a connection to an origin: TCP, TLS or a Unix socket.

use super::tls::OriginTlsStream;
use litequic_resources::send::TRAIN_BYTES;
use socket2::SockRef;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// Bytes of one read before a response's body is requested: its header, and most bodies as a whole. A stream may hold
/// as much whatever the other streams do.
pub(super) const FIRST_READ: usize = TRAIN_BYTES;

/// Socket to an origin.
#[derive(Debug)]
pub(crate) enum OriginSocket {
    Tcp(TcpStream),
    Tls(OriginTlsStream),
    Unix(UnixStream),
}

impl OriginSocket {
    pub(crate) const fn is_tls_socket(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Calls `act` with the kernel's socket, beneath TLS.
    pub(super) fn with_raw_socket<T>(&self, act: impl FnOnce(SockRef<'_>) -> T) -> T {
        act(match self {
            Self::Tcp(stream) => SockRef::from(stream),
            Self::Tls(stream) => SockRef::from(&stream.tls.get_ref().0.stream),
            Self::Unix(stream) => SockRef::from(stream),
        })
    }

    /// Whether no bytes were received that no read has returned.
    pub(super) fn is_fully_read(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.is_fully_read(),
            Self::Tcp(_) | Self::Unix(_) => true,
        }
    }

    fn as_writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        Pin::new(match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &mut *stream.tls,
            Self::Unix(stream) => stream,
        })
    }
}

impl AsyncRead for OriginSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => stream.poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OriginSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.as_writer().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.as_writer().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer().poll_shutdown(cx)
    }
}
