//! Joins a client over TCP that has switched protocols with its origin, until both sides have ended.

use super::tcp_connection::ActiveRequest;
use litequic_exchange::{BodyError, ExpiryCause, TUNNEL_BUFFER, Tunnel};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    select,
};

/// A tunnel on its way to the task that joins it with the client.
pub(super) struct TunnelHandoff<H> {
    pub(super) tunnel: Tunnel,
    /// The request, open as long as its tunnel.
    pub(super) request: ActiveRequest<H>,
}

impl<H> TunnelHandoff<H> {
    /// Joins both sides until both have ended. The end of one side is forwarded to the other (half close). Both are
    /// dropped, which is no orderly end, after an error, an idle time of `timeouts.tunnel`, or of
    /// half a minute once one side has ended, and if the tunnel makes room for another client's.
    /// Dropping the future does the same.
    pub(super) async fn join_until_end(self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let Self { mut tunnel, request: mut open } = self;
        let quiet = tunnel.expiry_handle();
        let mut client = MeteredClient { stream: client, is_end_forwarded: false, failed: false, request: &open };
        let copied = select! {
            copied = copy_bidirectional_with_sizes(&mut client, &mut tunnel, TUNNEL_BUFFER, TUNNEL_BUFFER) => Ok(copied),
            silenced = quiet.wait_for_expiry() => Err(silenced),
        };
        let failed = client.failed;
        match copied {
            Ok(Ok(_)) => open.hand_over_response(),
            // The record of the request has this failure already.
            Ok(Err(error)) if failed => tracing::debug!(%error, "a tunnel's connection to its client failed"),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a tunnel's connection to its origin failed");
                open.request_record().record_broken_body(BodyError::Truncated);
                open.fail_request();
            }
            Err(ExpiryCause::Evicted) => open.evict_request(),
            Err(silenced @ (ExpiryCause::TimedOut | ExpiryCause::HalfClosed)) => {
                let shared = &open.connection.worker.metrics.shared;
                let is_half_closed = silenced == ExpiryCause::HalfClosed;
                if is_half_closed { &shared.timeout_tunnel_half_closed } else { &shared.timeout_tunnel }.increment();
                open.request_record().record_broken_body(BodyError::TimedOut);
                open.fail_request();
            }
        }
    }
}

/// The client's side, which counts its bytes and remembers whether it failed.
struct MeteredClient<'a, S, H> {
    stream: S,
    /// The origin's end was forwarded to the client.
    is_end_forwarded: bool,
    failed: bool,
    request: &'a ActiveRequest<H>,
}

impl<S, H> MeteredClient<'_, S, H> {
    fn note_failure<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.failed |= matches!(result, Poll::Ready(Err(_)));
        result
    }
}

impl<S: AsyncRead + Unpin, H> AsyncRead for MeteredClient<'_, S, H> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        if self.is_end_forwarded && matches!(read, Poll::Ready(Err(_))) {
            // Both sides have ended: many clients then close without TLS' close_notify.
            return Poll::Ready(Ok(()));
        }
        ready!(self.note_failure(read))?;
        let bytes = out.filled().len().saturating_sub(before) as u64;
        self.request.connection.worker.metrics.shared.request_body_bytes.increment_by(bytes);
        self.request.request_record().update_facts(|facts| facts.received = facts.received.saturating_add(bytes));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, H> AsyncWrite for MeteredClient<'_, S, H> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let written = ready!(self.note_failure(written))?;
        self.request.connection.worker.metrics.shared.response_body_bytes.increment_by(written as u64);
        self.request.request_record().update_facts(|facts| facts.sent = facts.sent.saturating_add(written as u64));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note_failure(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.is_end_forwarded |= matches!(shut, Poll::Ready(Ok(())));
        self.note_failure(shut)
    }
}
