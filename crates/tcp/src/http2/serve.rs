//! A connection of HTTP/2 from its first byte to its end: h2's settings, its limits, GOAWAY, and why it ended.

use super::{
    accepting::Accepting,
    counted::{CountedStream, FrameNotice},
};
use crate::{
    connection::{Connection, NextStep},
    frames::{Flood, Frames, UpdateFrame},
    phase::TcpEvent,
    priorities::Http2Priorities,
};
use h2::{Reason, server};
use litequic_exchange::Handler;
use std::{cell::Cell, future::poll_fn, ops::RangeInclusive, pin::pin, rc::Rc, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection's window may be at least (RFC 9113 §6.9.2) and at most (§6.9.1).
const WINDOWS: RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Bytes of a stream that h2 buffers before it takes no further piece. How much the pieces have is up to the send
/// budget; alone this bounds a tunnel. What a path needs is in the kernel's buffer; with a fourth of this a download
/// costs a third more CPU time, with more of it no less.
const SEND_BUFFER: usize = 64 * 1024;

/// Bytes of memory that a field takes, of which HPACK's table may make one on the wire (RFC 7541 §6.1).
const FIELD: u64 = 128;

/// Requests that one read may bring together with their cancellation, and more: h2 bounds those that wait to be
/// accepted, and has no other limit for them than for a whole connection; `Limits::max_resets` counts them once they
/// are accepted.
const CANCELLED: usize = 1024;

/// Serves requests from `stream` until the connection ends.
pub(crate) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<Connection<H>>,
) {
    let (limits, metrics) = (connection.terms.limits, connection.metrics());
    let receive = &connection.front.receive;
    let window = limits.receive_window(receive.used());
    if window < limits.connection_receive_buffer.into() {
        metrics.limit_receive_buffer.increment();
    }
    let grant = receive.begin(window, connection.admitted.holder.source().network());
    let window = u32::try_from(window).unwrap_or(u32::MAX).clamp(*WINDOWS.start(), *WINDOWS.end());
    connection.hold(grant.account());
    let (mut frames, heads) =
        (Frames::new(limits.max_control_frames, limits.max_small_frames), Rc::<Cell<_>>::default());
    if connection.is_ordered() {
        let _ = connection.priorities.set(Http2Priorities::new(limits.max_streams, Arc::clone(metrics)));
        frames = frames.with_updates();
    }
    let (told, violation) = (Rc::clone(&connection), Rc::<Cell<_>>::default());
    connection.writes.are_frames();
    let violates = Rc::clone(&violation);
    let mut counted = CountedStream::new(stream, frames, grant.account(), Rc::clone(&heads), move |notice| {
        match notice {
            FrameNotice::Reset(stream) => return told.writes.reset_by_client(stream),
            FrameNotice::Update(update) => {
                if let Err(reason) = told.on_update(&update) {
                    violates.set(Some(reason));
                    told.life.on(TcpEvent::Violation);
                }
                return;
            }
            FrameNotice::Flood(Flood::Control) => told.metrics().shared.limit_control_frames.increment(),
            FrameNotice::Flood(Flood::Small) => told.metrics().shared.limit_small_frames.increment(),
        }
        told.life.on(TcpEvent::Excessive);
    });
    if connection.priorities.get().is_some() {
        counted = counted.without_tree();
    }
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(limits.max_streams)
        // Beyond it h2 answers 431 by itself; up to it, and beyond max_header_bytes, `request` does, and counts.
        .max_header_list_size(limits.max_header_bytes.saturating_mul(2))
        .initial_window_size(limits.stream_receive_buffer.min(window))
        .initial_connection_window_size(window)
        .max_pending_accept_reset_streams(
            usize::try_from(connection.life.resets_at_once()).unwrap_or(usize::MAX).max(CANCELLED),
        )
        .max_send_buffer_size(SEND_BUFFER);
    if connection.terms.has_tunnels {
        // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3)
        builder.enable_connect_protocol();
    }
    let mut handshake = pin!(builder.handshake(counted));
    let h2 = loop {
        match connection.next(handshake.as_mut()).await {
            NextStep::Ended(Ok(h2)) => break h2,
            NextStep::Ended(Err(error)) => return ended(&connection, Err(error)),
            NextStep::Close => return connection.end(false),
            // The client is told once the connection has begun.
            NextStep::GoAway => {}
        }
    };
    let fields = Rc::<Cell<u64>>::default();
    let unchecked = Rc::clone(&fields);
    connection.admitted.holder.holds(move || unchecked.get().saturating_mul(FIELD));
    let mut accepting = Accepting { h2, heads, fields, account: grant.account(), tasks: Rc::default() };
    let mut was_told = connection.life.is_going_away();
    if was_told {
        accepting.h2.graceful_shutdown();
    }
    loop {
        match connection.next(poll_fn(|cx| accepting.poll(&connection, cx))).await {
            NextStep::Ended(result) => {
                ended(&connection, result);
                accepting.tasks.end();
                break;
            }
            NextStep::Close => {
                connection.end(false);
                accepting.tasks.end();
                let is_excessive = connection.is_excessive();
                let reason = if is_excessive { Some(Reason::ENHANCE_YOUR_CALM) } else { violation.get() };
                // A client that leaves has its GOAWAY.
                if reason.is_some() || !was_told {
                    accepting.close(reason.unwrap_or(Reason::NO_ERROR)).await;
                }
                break;
            }
            NextStep::GoAway => {
                was_told = true;
                accepting.h2.graceful_shutdown();
            }
        }
    }
}

impl<H> Connection<H> {
    /// A PRIORITY_UPDATE frame came.
    ///
    /// # Errors
    ///
    /// The frame violates the protocol, and the connection ends for that reason.
    fn on_update(&self, update: &UpdateFrame) -> Result<(), Reason> {
        let Some(priorities) = self.priorities.get() else { return Ok(()) };
        match update {
            UpdateFrame::Whole(update) => priorities.update(update, &self.writes).map_err(|()| Reason::PROTOCOL_ERROR),
            UpdateFrame::Weight { stream, urgency } => {
                priorities.weight(*stream, *urgency, &self.writes);
                Ok(())
            }
            UpdateFrame::Skipped => {
                self.metrics().shared.priority_updates_skipped.increment();
                Ok(())
            }
            UpdateFrame::OnStream => Err(Reason::PROTOCOL_ERROR),
            UpdateFrame::Short => Err(Reason::FRAME_SIZE_ERROR),
        }
    }
}

/// The connection has ended by itself.
fn ended<H>(connection: &Connection<H>, result: Result<(), h2::Error>) {
    if let Err(error) = &result {
        tracing::debug!(client = %connection.client.address, %error, "an HTTP/2 connection failed");
        // A limit of h2's, which has sent GOAWAY.
        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            connection.life.on(TcpEvent::Excessive);
        }
    }
    connection.end(result.is_err());
}
