//! HTTP/2 (RFC 9113) over TLS: h2's frames and fields, and the limits that it lacks: how many frames a second, how many
//! cancelled requests, how much at once, and how long a stream may stall.

mod body;
mod counted;
mod order;
mod priorities;
mod settings;
mod stream;
mod tunnel;
mod window;

pub use super::frames::{Flood, Frames};
pub(super) use order::TurnState;
pub(super) use priorities::Http2Priorities;

use super::{
    connection::{Connection, NextStep},
    frames::UpdateFrame,
    phase::TcpEvent,
    share::SharedPiece,
};
use counted::{CountedStream, FrameNotice};
use h2::{Reason, server};
use litequic_base::lifecycle::pass_panic_on;
use litequic_exchange::Handler;
use litequic_resources::receive::ReceiveAccount;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    ops::RangeInclusive,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{JoinSet, yield_now},
    time::timeout,
};

/// What a connection's window may be at least (RFC 9113 §6.9.2) and at most (§6.9.1).
const WINDOWS: RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Bytes of a stream that h2 buffers before it takes no further piece. How much the pieces have is up to the send
/// budget; alone this bounds a tunnel. What a path needs is in the kernel's buffer; with a fourth of this a download
/// costs a third more CPU time, with more of it no less.
const SEND_BUFFER: usize = 64 * 1024;

/// Fields of requests that were accepted and not checked yet: no more are accepted before their tasks have begun, which
/// reject those with too many.
const FIELDS: u64 = 2048;
/// Bytes of memory that a field takes, of which HPACK's table may make one on the wire (RFC 7541 §6.1).
const FIELD: u64 = 128;
/// A request without fields counts for as many: its task.
const REQUEST: u64 = 32;

/// Requests that one read may bring together with their cancellation, and more: h2 bounds those that wait to be
/// accepted, and has no other limit for them than for a whole connection; `Limits::max_resets` counts them once they
/// are accepted.
const CANCELLED: usize = 1024;

/// How long a connection that ends at once may take to send GOAWAY with the reason (RFC 9113 §5.4.1).
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves requests from `stream` until the connection ends.
pub(super) async fn serve<H: Handler>(
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

/// A connection whose streams are accepted.
struct Accepting<S> {
    h2: server::Connection<S, SharedPiece>,
    /// HEADERS frames that were read since the last accepted stream: no more is read until they are accepted.
    heads: Rc<Cell<u32>>,
    /// Fields of accepted requests whose tasks have not begun, and [`REQUEST`] for each.
    fields: Rc<Cell<u64>>,
    account: ReceiveAccount,
    tasks: Rc<Tasks>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Accepting<S> {
    /// Reads and writes, and begins a task for each stream. Ready when the connection has ended.
    fn poll<H: Handler>(
        &mut self,
        connection: &Rc<Connection<H>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        let priorities = connection.priorities.get();
        if let Some(priorities) = priorities {
            priorities.on_run(connection.writes.queue_limit.get());
        }
        if let Poll::Ready(ended) = self.poll_accept(connection, cx) {
            return Poll::Ready(ended);
        }
        if priorities.is_some_and(|priorities| priorities.on_written(!connection.writes.is_blocked())) {
            // Once sockets were looked at: those that were sent before may have more at hand then.
            let _ = pin!(yield_now()).poll(cx);
        }
        if self.account.poll_over(cx).is_ready() && !connection.life.is_closed() {
            connection.metrics().shared.limit_receive_held.increment();
            connection.life.on(TcpEvent::Excessive);
        }
        Poll::Pending
    }

    /// Accepts each stream that has come.
    fn poll_accept<H: Handler>(
        &mut self,
        connection: &Rc<Connection<H>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            match self.h2.poll_accept(cx)? {
                Poll::Ready(Some((request, respond))) => {
                    self.heads.set(self.heads.get().saturating_sub(1));
                    let stream = respond.stream_id().as_u32();
                    connection.writes.open(stream);
                    if let Some(priorities) = connection.priorities.get() {
                        priorities.opened(stream);
                    }
                    let count = REQUEST.saturating_add(request.headers().len() as u64);
                    let (fields, connection) = (Rc::clone(&self.fields), Rc::clone(connection));
                    let (account, tasks) = (self.account.clone(), Rc::downgrade(&self.tasks));
                    self.fields.set(self.fields.get().saturating_add(count));
                    // Boxed where it runs: a task of its size would be copied several times on its way to the runtime.
                    self.tasks.spawn(async move {
                        fields.set(fields.get().saturating_sub(count));
                        Box::pin(stream::serve(connection, request, respond, account, tasks)).await;
                    });
                    if self.fields.get() > FIELDS {
                        // This task runs again behind those that were spawned.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                // What was not accepted are trailers, or requests that h2 rejects.
                Poll::Pending if self.heads.take() > 0 => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Ends the connection at once, with the reason.
    async fn close(&mut self, reason: Reason) {
        self.h2.abrupt_shutdown(reason);
        // A client that does not read it gets none.
        let _ = timeout(LAST_WORDS, poll_fn(|cx| self.h2.poll_closed(cx))).await;
    }
}

/// The tasks of a connection's streams: they belong to it, and end with it.
#[derive(Default)]
struct Tasks(RefCell<JoinSet<()>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.reap();
        self.0.borrow_mut().spawn_local(task);
    }

    fn reap(&self) {
        while let Some(ended) = self.0.borrow_mut().try_join_next() {
            pass_panic_on(ended);
        }
    }

    /// Ends what still runs.
    fn end(&self) {
        self.reap();
        self.0.borrow_mut().abort_all();
    }
}
