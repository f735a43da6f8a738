//! Implements the origin's end of a tunnel: its connection, once the origin has switched protocols.

use super::slots::TunnelSlot;
use crate::{connection::OriginConnection, metrics::ProxyMetrics};
use bytes::{Buf, Bytes};
use litequic_telemetry::GaugeGuard;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The origin's end of a tunnel. Dropped before both directions have ended, it resets the connection.
pub(crate) struct TunnelSide {
    connection: Rc<OriginConnection>,
    /// Bytes behind the 101.
    ahead: Bytes,
    read_ended: bool,
    write_ended: bool,
    _open: GaugeGuard<ProxyMetrics>,
    _slot: TunnelSlot,
}

impl TunnelSide {
    pub(crate) fn new(
        connection: Rc<OriginConnection>,
        ahead: Bytes,
        slot: TunnelSlot,
        metrics: &Arc<ProxyMetrics>,
    ) -> Self {
        metrics.tunnels.increment();
        let open = GaugeGuard::new(metrics, |metrics| &metrics.tunnels_open);
        Self { connection, ahead, read_ended: false, write_ended: false, _open: open, _slot: slot }
    }
}

impl Drop for TunnelSide {
    fn drop(&mut self) {
        if !(self.read_ended && self.write_ended) {
            self.connection.reset_on_drop();
        }
    }
}

impl AsyncRead for TunnelSide {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(out.remaining());
            out.put_slice(this.ahead.get(..count).unwrap_or_default());
            this.ahead.advance(count);
            return Poll::Ready(Ok(()));
        }
        let read = ready!(this.connection.poll_read(cx, out))?;
        this.read_ended |= read == 0 && out.remaining() > 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelSide {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_write(&[IoSlice::new(bytes)], cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.with_socket(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(self.connection.with_socket(|socket| socket.poll_shutdown(cx)));
        // An origin that has ended as well may have closed altogether (shutdown(2), ENOTCONN).
        let gone = self.read_ended && shut.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected);
        self.write_ended = shut.is_ok() || gone;
        Poll::Ready(if gone { Ok(()) } else { shut })
    }
}
