//! Filters a connection's bytes for hyper, and passes only valid ones on ([`RequestScanner`]). In place of a rejected
//! request hyper reads the connection's end, once the kernel has the responses to all earlier requests.

use super::request_scanner::{CheckedBytes, RequestScanner};
use crate::{
    body_discard::LingerLimits, refusal::Refusal, tcp_lifecycle::TcpLifecycle, tcp_metrics::TcpMetrics,
    write_timeout::ClientSocket,
};
use bytes::{Buf, BytesMut};
use litequic_base::timers::{DeadlineTimer, IdleTimer, Throttle};
use litequic_exchange::{ClientDeadline, MinimumRate, http1::SMALL_CHUNK, terms::FieldLimits};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Time for which a client may continue to send after the connection was closed, if its request was complete or nothing
/// is to be discarded: a few round trips.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest number of bytes read before the response to a request to switch protocols. Reading ahead detects the
/// client's end.
const MAX_READ_AHEAD: usize = 16 * 1024;

/// State of a connection's pipelined requests (RFC 9112 §9.3.2), shared by the guard and the code that serves the
/// requests.
#[derive(Debug, Default)]
pub struct PipelineState {
    lifecycle: Rc<TcpLifecycle>,
    metrics: Arc<TcpMetrics>,
    /// The response to a rejected request, once hyper has read the connection's end in its place.
    pub(super) refusal: Cell<Option<Refusal>>,
    /// Number of requests that were passed on and not answered.
    unanswered: Cell<u64>,
    /// Bytes were received of the body of the last request that was passed on.
    has_last_body: Cell<bool>,
    /// Waker of the task that continues to read after the next response.
    waiting: RefCell<Option<Waker>>,
    /// All received bytes were read.
    pub(super) is_drained: Cell<bool>,
    /// The connection ends because its client sent trailers beyond their limit.
    pub(super) has_large_trailers: Cell<bool>,
}

impl PipelineState {
    /// Creates the state of a connection with the lifecycle `life`, which counts in `metrics`.
    pub(super) fn with_lifecycle(life: Rc<TcpLifecycle>, metrics: Arc<TcpMetrics>) -> Self {
        Self { lifecycle: life, metrics, ..Self::default() }
    }

    /// Whether bytes were received of the body of the first request that was not answered. Those of all but the last
    /// one are complete.
    pub(super) fn has_body_arrived(&self) -> bool {
        self.unanswered.get() > 1 || self.has_last_body.get()
    }

    /// Counts a request that was answered.
    pub(super) fn count_answered(&self) {
        self.unanswered.set(self.unanswered.get().saturating_sub(1));
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

/// A stream that passes only valid requests on.
#[derive(Debug)]
pub struct RequestGuardStream<S> {
    stream: S,
    requests: RequestScanner,
    /// Received bytes that were not passed on yet.
    held: BytesMut,
    /// Number of bytes of `held` that may be passed on.
    passed: usize,
    /// The response to a rejected request, behind which nothing is read.
    refusal: Option<Refusal>,
    /// Deadline for the rest of a head. It does not run while an earlier request is being served.
    deadline: ClientDeadline,
    pipeline: Rc<PipelineState>,
    /// The client has switched protocols, so that its bytes are no longer HTTP.
    released: bool,
    pieces: PieceLimit,
}

/// Rate limit of small pieces of bodies and tunnels.
#[derive(Debug)]
struct PieceLimit {
    throttle: Throttle,
    pause: DeadlineTimer,
    /// The last piece was short.
    short: bool,
}

impl PieceLimit {
    /// Counts `read` bytes that arrived at once, with `chunks` small chunks. A short read counts only if it follows
    /// another, as each write of a fast client may end in a short record. Returns whether a pause begins.
    fn count_small_pieces(&mut self, read: usize, chunks: u32) -> bool {
        let short = (read as u64) < SMALL_CHUNK;
        let again = std::mem::replace(&mut self.short, short) && short;
        self.throttle.count_things(chunks.max(u32::from(again)))
    }
}

impl<S> RequestGuardStream<S> {
    /// Creates a guard for requests with heads within `bounds`, each received within `timeout` of its first byte. More
    /// than `small` small pieces a second are slowed.
    pub fn new(stream: S, bounds: FieldLimits, timeout: Duration, small: u32, pipeline: Rc<PipelineState>) -> Self {
        Self {
            stream,
            requests: RequestScanner::new(bounds),
            held: BytesMut::new(),
            passed: 0,
            refusal: None,
            deadline: ClientDeadline::new(MinimumRate::without_rate(timeout)),
            pipeline,
            released: false,
            pieces: PieceLimit { throttle: Throttle::new(small), pause: DeadlineTimer::default(), short: false },
        }
    }

    /// Passes all bytes on from now on, `ahead` first, as the client has switched protocols.
    pub(super) fn release_to_tunnel(&mut self, ahead: &[u8]) {
        let held = std::mem::take(&mut self.held);
        self.held.extend_from_slice(ahead);
        self.held.extend_from_slice(&held);
        self.passed = self.held.len();
        self.released = true;
    }

    /// Counts a piece of a body: after too many small ones nothing is read for a while.
    fn count_piece(&mut self, read: usize) {
        let chunks = std::mem::take(&mut self.requests.small);
        if self.pieces.count_small_pieces(read, chunks) {
            self.pipeline.metrics.shared.limit_small_frames.increment();
        }
    }

    /// Rejects a request. hyper flushes its responses as it is polled once more.
    fn refuse_request(&mut self, refusal: Refusal, cx: &Context<'_>) {
        self.held.clear();
        self.refusal = Some(refusal);
        cx.waker().wake_by_ref();
    }

    /// Applies the result of a scan, and returns the number of valid bytes. Fails for a malformed body.
    fn apply_checked(&mut self, checked: CheckedBytes, cx: &Context<'_>) -> io::Result<usize> {
        let unanswered = &self.pipeline.unanswered;
        unanswered.set(unanswered.get().saturating_add(std::mem::take(&mut self.requests.accepted)));
        self.pipeline.has_last_body.set(self.requests.has_last_body);
        match checked {
            CheckedBytes::Pass(passed) => Ok(passed),
            CheckedBytes::Refused(refusal) => {
                self.refuse_request(refusal, cx);
                Ok(0)
            }
            CheckedBytes::Malformed => {
                self.pipeline.has_large_trailers.set(self.requests.has_large_trailers);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

impl<S: AsyncRead + Unpin> RequestGuardStream<S> {
    /// Reads valid bytes from the stream into `out`. Returns false if there were none, and another source may have
    /// bytes.
    fn poll_valid_bytes(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = out.filled().len();
        let pending = Pin::new(&mut self.stream).poll_read(cx, out)?.is_pending();
        self.pipeline.is_drained.set(pending);
        if pending {
            // A head that arrives while an earlier request is being served is not late, as litequic could not serve it
            // yet.
            if !self.requests.in_head() || self.pipeline.lifecycle.is_serving() {
                self.deadline.on_progress(0);
                return Poll::Pending;
            }
            ready!(self.deadline.poll_wait(cx));
            self.refuse_request(Refusal::request_timeout(), cx);
            return Poll::Ready(Ok(false));
        }
        let came = out.filled().get(before..).unwrap_or_default();
        if came.is_empty() {
            return Poll::Ready(Ok(true));
        }
        if !self.held.is_empty() {
            self.held.extend_from_slice(came);
            out.set_filled(before);
            return Poll::Ready(Ok(false));
        }
        // Most often all bytes are valid, and are passed on without a copy.
        let (read, was_in_body) = (came.len(), self.requests.in_body());
        let checked = self.requests.scan_bytes(came);
        let passed = self.apply_checked(checked, cx)?;
        if self.refusal.is_some() {
            out.set_filled(before);
            return Poll::Ready(Ok(false));
        }
        self.held.extend_from_slice(came.get(passed..).unwrap_or_default());
        out.set_filled(before.saturating_add(passed));
        if was_in_body {
            self.count_piece(read);
        }
        if passed > 0 {
            self.deadline.on_progress(0);
        }
        Poll::Ready(Ok(passed > 0))
    }

    /// Reads and keeps the bytes behind a request to switch protocols. Ready at the client's end.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper expects a wake from a reader without bytes.
        self.pipeline.waiting.replace(Some(cx.waker().clone()));
        while self.held.len() < MAX_READ_AHEAD {
            let mut buffer = [0; 1024];
            let mut came = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut came))?;
            if came.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(came.filled());
        }
        Poll::Pending
    }

    /// Ends the connection after a response that was cut off. No byte follows those in the kernel, so that the response
    /// does not look complete.
    pub(super) async fn break_off(&mut self, limits: &LingerLimits)
    where
        S: ClientSocket,
    {
        self.stream.end_writes();
        self.discard_input(limits).await;
    }

    /// Closes the writing side.
    pub(super) async fn close_orderly(&mut self, limits: &LingerLimits) -> io::Result<()>
    where
        S: AsyncWrite,
    {
        self.stream.shutdown().await?;
        self.discard_input(limits).await;
        Ok(())
    }

    /// Reads and discards the rest of the client's bytes: of a request that was answered before its end, within
    /// `limits`. The kernel would answer unread bytes with a reset, which discards responses that the client has not
    /// read yet, above all a 413 (RFC 9112 §9.6).
    async fn discard_input(&mut self, limits: &LingerLimits) {
        let mut discarding = self.requests.in_request().then(|| limits.begin_discard()).flatten();
        let mut timer = IdleTimer::new(LINGER_TIMEOUT);
        poll_fn(|cx| {
            let mut buffer = [0; 16 * 1024];
            loop {
                let mut out = ReadBuf::new(&mut buffer);
                let read = Pin::new(&mut self.stream).poll_read(cx, &mut out);
                let came = out.filled().len();
                let is_over = match (&mut discarding, read.is_pending()) {
                    (Some(discarding), true) => return discarding.poll_discard_timeout(cx),
                    (None, true) => return timer.poll_expired(cx),
                    (Some(discarding), false) => !discarding.count_discarded(came as u64),
                    (None, false) => timer.poll_expired(cx).is_ready(),
                };
                if came == 0 || is_over {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestGuardStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.passed > 0 {
                // Valid bytes end the head that was awaited. The next head has its own deadline.
                this.deadline.on_progress(0);
                let count = this.passed.min(out.remaining());
                out.put_slice(this.held.get(..count).unwrap_or_default());
                this.held.advance(count);
                this.passed = this.passed.saturating_sub(count);
                return Poll::Ready(Ok(()));
            }
            // The timeout for a head does not run meanwhile: only bodies and tunnels have pieces.
            ready!(this.pieces.throttle.poll_pause(&mut this.pieces.pause, cx));
            if this.released {
                let before = out.filled().len();
                ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
                this.count_piece(out.filled().len().saturating_sub(before));
                return Poll::Ready(Ok(()));
            }
            if this.pipeline.refusal.get().is_some() {
                return Poll::Ready(Ok(()));
            }
            if this.refusal.is_some() {
                return Poll::Pending;
            }
            if this.requests.awaits_switch() {
                if this.pipeline.unanswered.get() > 0 {
                    return this.poll_read_ahead(cx);
                }
                this.requests.resume_after_switch();
            }
            if !this.held.is_empty() {
                let checked = this.requests.scan_bytes(&this.held);
                this.passed = this.apply_checked(checked, cx)?;
                if this.passed > 0 || this.refusal.is_some() {
                    continue;
                }
            }
            if ready!(this.poll_valid_bytes(cx, out))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RequestGuardStream<S> {
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
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.refusal.is_some() && self.pipeline.unanswered.get() == 0 && !self.pipeline.lifecycle.is_serving() {
            // hyper has written all responses. It reads again once it is woken.
            let refusal = self.refusal.take();
            self.pipeline.refusal.set(refusal);
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// Closes a tunnel's writing side. That of HTTP is closed once hyper has ended, perhaps behind another response.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.released { Pin::new(&mut self.stream).poll_shutdown(cx) } else { Poll::Ready(Ok(())) }
    }
}
