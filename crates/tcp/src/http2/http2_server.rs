//! Serves an HTTP/2 connection from its first byte to its end: h2's settings, limits, GOAWAY, and the reason of the
//! end.

use super::{
    first_settings::FirstSettings,
    frame_limit_stream::{FrameLimitStream, FrameNotice},
    stream_acceptor::Http2StreamAcceptor,
    unread_frames::UnreadFrames,
};
use crate::{
    http2_frames::{FrameCounter, ReceivedPriority},
    priorities::Http2Priorities,
    tcp_connection::{ConnectionStep, TcpConnection},
    tcp_phase::{TcpEnd, TcpEvent},
};
use h2::{Reason, server};
use litequic_base::timers::{DeadlineTimer, Throttle};
use litequic_exchange::Handler;
use std::{cell::Cell, future::poll_fn, ops::RangeInclusive, pin::pin, rc::Rc, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// Smallest (RFC 9113 §6.9.2) and largest (RFC 9113 §6.9.1) window of a connection.
const WINDOW_RANGE: RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Largest number of bytes of a stream that h2 buffers. The send budget limits the pieces of a response, but only this
/// limit bounds a tunnel. The kernel's buffer holds the bytes that a path needs. A quarter of this value costs a third
/// more CPU time per download; more gains nothing.
const MAX_SEND_BUFFER: usize = 64 * 1024;

/// Memory of a field in bytes. HPACK's table may expand one byte on the wire to a field (RFC 7541 §6.1).
const FIELD_MEMORY: u64 = 128;

/// Smallest limit of cancelled requests that wait to be accepted. One read may bring a thousand, and h2 has no other
/// limit than one for a whole connection; `Limits::max_resets` counts these requests once accepted.
const MIN_PENDING_RESETS: usize = 1024;

/// Serves requests from `stream` until the connection ends.
pub(crate) async fn serve_http2<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    connection: Rc<TcpConnection<H>>,
) {
    let (limits, metrics) = (connection.terms.limits, &connection.worker.metrics);
    let receive = &connection.worker.receive;
    let window = limits.receive_window(receive.used_receive_bytes());
    if window < limits.connection_receive_buffer.into() {
        metrics.limit_receive_buffer.increment();
    }
    let grant = receive.grant_window(window, connection.admitted.entry.client_source().network);
    let stream_window = u32::try_from(limits.stream_receive_window(window)).unwrap_or(u32::MAX);
    let unread = UnreadFrames::new(window, grant.account.clone(), Arc::clone(metrics));
    let window = u32::try_from(window).unwrap_or(u32::MAX).clamp(*WINDOW_RANGE.start(), *WINDOW_RANGE.end());
    connection.account_received(grant.account.clone());
    let (mut frames, heads) = (FrameCounter::new(limits.max_control_frames), Rc::<Cell<_>>::default());
    if connection.has_ordered_responses() {
        let _ = connection.priorities.set(Http2Priorities::new(limits.max_streams, Arc::clone(metrics)));
        frames.updates = Some(Vec::new());
    }
    let (told, violation) = (Rc::clone(&connection), Rc::<Cell<_>>::default());
    connection.writes.expect_frames();
    let violates = Rc::clone(&violation);
    let notify = move |notice| {
        match notice {
            FrameNotice::Reset(stream) => return told.writes.on_client_reset(stream),
            FrameNotice::Update(update) => {
                if let Err(reason) = told.on_received_priority(&update) {
                    violates.set(Some(reason));
                    told.lifecycle.on_event(TcpEvent::Violation);
                }
                return;
            }
            FrameNotice::Slowed => return told.worker.metrics.shared.limit_small_frames.increment(),
            FrameNotice::Flood => told.worker.metrics.shared.limit_control_frames.increment(),
        }
        told.lifecycle.on_event(TcpEvent::Excessive);
    };
    let counted = FrameLimitStream {
        stream,
        frames,
        account: grant.account.clone(),
        heads: Rc::clone(&heads),
        small_frames: Throttle::new(limits.max_small_frames),
        pause: DeadlineTimer::default(),
        unread: Rc::clone(&unread),
        notify,
        flooded: false,
        drained: false,
        lingering: None,
        first: connection.priorities.get().map(|_| FirstSettings::default()),
    };
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(limits.max_streams)
        // Beyond this size h2 answers 431 by itself. Between max_header_bytes and this size `request_head` does, and
        // counts.
        .max_header_list_size(limits.max_header_bytes.saturating_mul(2))
        .initial_window_size(stream_window)
        .initial_connection_window_size(window)
        .max_pending_accept_reset_streams(
            usize::try_from(connection.lifecycle.max_resets_at_once()).unwrap_or(usize::MAX).max(MIN_PENDING_RESETS),
        )
        // `UnreadFrames` bounds the memory of frames: it stops reading rather than ending the connection.
        .data_frame_budget(usize::MAX)
        .max_send_buffer_size(MAX_SEND_BUFFER);
    if connection.terms.has_tunnels {
        // Sends SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3).
        builder.enable_connect_protocol();
    }
    let mut handshake = pin!(builder.handshake(counted));
    let h2 = loop {
        match connection.next_step(handshake.as_mut()).await {
            ConnectionStep::Ended(Ok(h2)) => break h2,
            ConnectionStep::Ended(Err(error)) => return end_http2(&connection, Err(error)),
            ConnectionStep::Close => return connection.finish_connection(false),
            // GOAWAY is sent once the connection has begun.
            ConnectionStep::GoAway => {}
        }
    };
    let fields = Rc::<Cell<u64>>::default();
    let unchecked = Rc::clone(&fields);
    connection.admitted.entry.add_memory_counter(move || unchecked.get().saturating_mul(FIELD_MEMORY));
    let (account, tasks) = (grant.account.clone(), Rc::default());
    let mut accepting = Http2StreamAcceptor { h2, heads, fields, account, unread, tasks };
    let mut was_told = connection.lifecycle.is_going_away();
    if was_told {
        accepting.h2.graceful_shutdown();
    }
    loop {
        match connection.next_step(poll_fn(|cx| accepting.poll_connection(&connection, cx))).await {
            ConnectionStep::Ended(result) => {
                end_http2(&connection, result);
                accepting.tasks.abort_tasks();
                break;
            }
            ConnectionStep::Close => {
                connection.finish_connection(false);
                accepting.tasks.abort_tasks();
                let is_excessive = connection.lifecycle.is_closed_for(TcpEnd::Excessive);
                let reason = if is_excessive { Some(Reason::ENHANCE_YOUR_CALM) } else { violation.get() };
                // A client that was to leave already has a GOAWAY.
                if reason.is_some() || !was_told {
                    accepting.close_with_reason(reason.unwrap_or(Reason::NO_ERROR)).await;
                }
                break;
            }
            ConnectionStep::GoAway => {
                was_told = true;
                accepting.h2.graceful_shutdown();
            }
        }
    }
}

impl<H> TcpConnection<H> {
    /// Applies a priority signal.
    ///
    /// # Errors
    ///
    /// The code of the violation for which the connection is to be closed.
    fn on_received_priority(&self, update: &ReceivedPriority) -> Result<(), Reason> {
        let Some(priorities) = self.priorities.get() else { return Ok(()) };
        match update {
            ReceivedPriority::Whole(update) => {
                priorities.apply_priority_update(update, &self.writes).map_err(|()| Reason::PROTOCOL_ERROR)
            }
            ReceivedPriority::Weight { stream, urgency } => {
                priorities.apply_weight(*stream, *urgency, &self.writes);
                Ok(())
            }
            ReceivedPriority::Skipped => {
                self.worker.metrics.shared.priority_updates_skipped.increment();
                Ok(())
            }
            ReceivedPriority::OnStream => Err(Reason::PROTOCOL_ERROR),
            ReceivedPriority::Short => Err(Reason::FRAME_SIZE_ERROR),
        }
    }
}

/// Records that h2 has ended the connection.
fn end_http2<H>(connection: &TcpConnection<H>, result: Result<(), h2::Error>) {
    if let Err(error) = &result {
        tracing::debug!(client = %connection.client.address, %error, "an HTTP/2 connection failed");
        // A limit of h2 was reached, and h2 has sent GOAWAY.
        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            tracing::info!(client = %connection.client.address, %error, "an HTTP/2 connection reached a limit of h2");
            connection.worker.metrics.limit_h2.increment();
            connection.lifecycle.on_event(TcpEvent::Excessive);
        }
    }
    connection.finish_connection(result.is_err());
}
