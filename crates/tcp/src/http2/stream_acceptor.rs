//! Accepts the streams of a connection. Each request that h2 accepts gets a task.

use super::{request_stream, stream_tasks::StreamTasks, unread_frames::UnreadFrames};
use crate::{response_buffer::QueuedPiece, tcp_connection::TcpConnection, tcp_phase::TcpEvent};
use h2::{Reason, server};
use litequic_exchange::Handler;
use litequic_resources::receive::ReceiveAccount;
use std::{
    cell::Cell,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::yield_now,
    time::timeout,
};

/// Largest number of fields of accepted requests that were not checked yet. No more requests are accepted before their
/// tasks have begun, which reject those with too many fields.
const MAX_UNCHECKED_FIELDS: u64 = 2048;
/// Cost of a request's task, as a number of fields.
const REQUEST_COST: u64 = 32;

/// Longest wait for a connection that ends at once to send GOAWAY with the reason (RFC 9113 §5.4.1).
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Http2StreamAcceptor<S> {
    pub(super) h2: server::Connection<S, QueuedPiece>,
    /// HEADERS frames that were read since the last accepted stream. Nothing more is read until all are accepted.
    pub(super) heads: Rc<Cell<u32>>,
    /// Fields of accepted requests whose tasks have not begun, plus [`REQUEST_COST`] for each request.
    pub(super) fields: Rc<Cell<u64>>,
    pub(super) account: ReceiveAccount,
    pub(super) unread: Rc<UnreadFrames>,
    pub(super) tasks: Rc<StreamTasks>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2StreamAcceptor<S> {
    /// Reads and writes, and begins a task for each stream. Ready when the connection has ended.
    pub(super) fn poll_connection<H: Handler>(
        &mut self,
        connection: &Rc<TcpConnection<H>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        let priorities = connection.priorities.get();
        if let Some(priorities) = priorities {
            priorities.order.on_run(connection.writes.queue_limit.get());
        }
        connection.writes.collects.set(true);
        let accepted = self.poll_accept_requests(connection, cx);
        connection.writes.collects.set(false);
        if accepted.is_ready() {
            return accepted;
        }
        if priorities.is_some_and(|priorities| priorities.order.on_written(!connection.writes.is_blocked())) {
            // The sockets are polled before this task runs again, as responses that were sent before may have more
            // bytes then.
            let _ = pin!(yield_now()).poll(cx);
        }
        if self.account.poll_over_budget(cx).is_ready() && !connection.lifecycle.is_closed() {
            connection.worker.metrics.shared.limit_receive_held.increment();
            connection.lifecycle.on_event(TcpEvent::Excessive);
        }
        Poll::Pending
    }

    /// Accepts each stream that has arrived.
    fn poll_accept_requests<H: Handler>(
        &mut self,
        connection: &Rc<TcpConnection<H>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            match self.h2.poll_accept(cx)? {
                Poll::Ready(Some((request, respond))) => {
                    self.heads.set(self.heads.get().saturating_sub(1));
                    let stream = respond.stream_id().as_u32();
                    connection.writes.open_stream(stream);
                    if let Some(priorities) = connection.priorities.get() {
                        priorities.on_stream_opened(stream);
                    }
                    let count = REQUEST_COST.saturating_add(request.headers().len() as u64);
                    let (fields, connection) = (Rc::clone(&self.fields), Rc::clone(connection));
                    let (account, tasks) = (self.account.clone(), Rc::downgrade(&self.tasks));
                    let frames = self.unread.account_stream_frames(stream);
                    self.fields.set(self.fields.get().saturating_add(count));
                    // Boxed: a large task would be copied several times on its way to the runtime.
                    let served =
                        Box::pin(request_stream::serve_stream(connection, request, respond, account, frames, tasks));
                    self.tasks.spawn_task(async move {
                        fields.set(fields.get().saturating_sub(count));
                        if let Some(mut sending) = served.await {
                            poll_fn(|cx| sending.poll_sending(cx)).await;
                        }
                    });
                    if self.fields.get() > MAX_UNCHECKED_FIELDS {
                        // This task runs again behind the spawned tasks.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                // The remaining HEADERS are trailers, or requests that h2 rejects.
                Poll::Pending if self.heads.take() > 0 => {}
                // h2 flushes what was collected of its writes.
                Poll::Pending if connection.writes.collects.replace(false) && connection.writes.has_collected.get() => {
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Ends the connection at once, with the reason.
    pub(super) async fn close_with_reason(&mut self, reason: Reason) {
        self.h2.abrupt_shutdown(reason);
        // A client that does not read gets no GOAWAY.
        let _ = timeout(GOAWAY_TIMEOUT, poll_fn(|cx| self.h2.poll_closed(cx))).await;
    }
}
