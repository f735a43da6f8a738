//! A filter for a connection's bytes to hyper: only valid ones are passed on (`requests`). In place of a rejected
//! request hyper reads one of litequic's own, so that its answer is sent after those of the requests before it.

use super::request_scanner::{CheckedBytes, RequestScanner};
use crate::{
    body_discard::{BodyDiscard, LingerLimits},
    refusal::Refusal,
    tcp_lifecycle::TcpLifecycle,
    write_timeout::ClientSocket,
};
use bytes::{Buf, Bytes, BytesMut};
use litequic_base::token_bucket::TokenBucket;
use litequic_exchange::{ClientDeadline, IdleTimer, MinimumRate, http1::SMALL_CHUNK, terms::FieldLimits};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The request that hyper reads in place of a rejected one: it calls the service in any case, which recognizes it by
/// its number.
const STAND_IN_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";

/// How long a client may continue to send once it was answered and the connection closed, when it has sent a complete
/// request or nothing is to be discarded: a few round trips.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that are read ahead of the answer to a request to switch protocols: so that the client's end is seen
/// meanwhile.
const MAX_READ_AHEAD: usize = 16 * 1024;

/// The state of a connection's pipelined requests (RFC 9112 §9.3.2), which the guard shares with the code that serves
/// them.
#[derive(Debug, Default)]
pub struct PipelineState {
    /// The course of the connection.
    lifecycle: Rc<TcpLifecycle>,
    /// The number of requests before a rejected one, and the answer to that.
    refusal: Cell<Option<(u64, Refusal)>>,
    /// How many requests hyper has read.
    read: Cell<u64>,
    /// How many requests were answered.
    answered: Cell<u64>,
    /// The waker of the task that reads on when the next one is.
    waiting: RefCell<Option<Waker>>,
    /// The last request of whose body bytes came.
    last_body: Cell<u64>,
    /// All that came was read.
    drained: Cell<bool>,
    /// The client sent too many pieces with next to nothing in them.
    flooded: Cell<bool>,
    /// The client sent trailers that are too large.
    large_trailers: Cell<bool>,
}

impl PipelineState {
    /// The state of a connection with the course `life`.
    pub(super) fn with_lifecycle(life: Rc<TcpLifecycle>) -> Self {
        Self { lifecycle: life, ..Self::default() }
    }

    /// hyper has read one more request. Returns its answer if it stands in for a rejected one.
    pub(super) fn count_read_request(&self) -> Option<Refusal> {
        let before = self.read.replace(self.read.get().saturating_add(1));
        self.refusal.get().filter(|(passed, _)| before >= *passed).map(|(_, refusal)| refusal)
    }

    /// Whether bytes came of the body of the request that hyper has delivered and [`read`](Self::read) has not counted
    /// yet.
    pub(super) fn has_body_arrived(&self) -> bool {
        self.last_body.get() > self.read.get()
    }

    /// Whether there is nothing more to be read.
    pub(super) fn is_input_drained(&self) -> bool {
        self.drained.get()
    }

    /// Whether the connection ends because its client sent too many pieces with next to nothing in them.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.get()
    }

    /// Whether the connection ends because its client sent trailers that are too large.
    pub(super) fn has_large_trailers(&self) -> bool {
        self.large_trailers.get()
    }

    /// One more request was answered.
    pub(super) fn count_answered(&self) {
        self.answered.set(self.answered.get().saturating_add(1));
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

/// A stream on which only valid requests are read.
#[derive(Debug)]
pub struct RequestGuardStream<S> {
    stream: S,
    requests: RequestScanner,
    /// Received, and not passed on yet.
    held: BytesMut,
    /// How many of `held` may be passed on.
    passed: usize,
    /// Bytes of litequic's own, to be read before anything else.
    stand_in: Bytes,
    /// The deadline for the rest of a head, while no request before it is being served.
    deadline: ClientDeadline,
    pipeline: Rc<PipelineState>,
    /// The limit of what is discarded of a request that is answered before it has ended.
    lingering: Option<LingerLimits>,
    /// Once litequic's side is closed: how long the client may continue.
    closed: Option<LingerState>,
    /// The bytes are no longer HTTP.
    released: bool,
    pieces: PieceLimit,
}

/// Counts pieces of bodies, and of tunnels, with next to nothing in them.
#[derive(Debug)]
struct PieceLimit {
    bucket: TokenBucket,
    /// The last one was short.
    short: bool,
}

impl PieceLimit {
    /// `read` bytes came at once, and `chunks` with next to nothing in them. Of what came at once that is short only
    /// counts what follows its like: of a client that sends much, each write may end in a short record. False once
    /// there were too many.
    fn admit_piece(&mut self, read: usize, chunks: u32) -> bool {
        let short = (read as u64) < SMALL_CHUNK;
        let again = std::mem::replace(&mut self.short, short) && short;
        let small = chunks.max(u32::from(again));
        small == 0 || self.bucket.take_tokens(small, Instant::now())
    }
}

/// The rest of the client's bytes.
#[derive(Debug)]
enum LingerState {
    /// The rest of its request.
    Request(BodyDiscard),
    /// Anything.
    Soon(IdleTimer),
}

impl<S> RequestGuardStream<S> {
    /// Reads requests with heads within `bounds`, each within `patience` of its first byte.
    /// More than `small` pieces a second with next to nothing in them are an error.
    pub fn new(stream: S, bounds: FieldLimits, patience: Duration, small: u32, pipeline: Rc<PipelineState>) -> Self {
        Self {
            stream,
            requests: RequestScanner::new(bounds),
            held: BytesMut::new(),
            passed: 0,
            stand_in: Bytes::new(),
            deadline: ClientDeadline::new(MinimumRate::without_rate(patience)),
            pipeline,
            lingering: None,
            closed: None,
            released: false,
            pieces: PieceLimit { bucket: TokenBucket::new(small), short: false },
        }
    }

    /// The limit of what is discarded of a request that is answered before it has ended.
    pub(super) fn with_linger_limits(self, lingering: LingerLimits) -> Self {
        Self { lingering: Some(lingering), ..self }
    }

    /// Passes everything on from now on, `ahead` first, as the client has switched protocols.
    pub(super) fn release_to_tunnel(&mut self, ahead: &[u8]) {
        let held = std::mem::take(&mut self.held);
        self.held.extend_from_slice(ahead);
        self.held.extend_from_slice(&held);
        self.passed = self.held.len();
        self.released = true;
    }

    /// Counts received bytes of a body.
    fn count_piece(&mut self, read: usize) -> io::Result<()> {
        let chunks = self.requests.take_small_chunk_count();
        if self.pieces.admit_piece(read, chunks) {
            return Ok(());
        }
        self.pipeline.flooded.set(true);
        Err(io::Error::other("too many pieces with next to nothing in them"))
    }

    /// The error of a body that is malformed.
    fn malformed_error(&self) -> io::Error {
        self.pipeline.large_trailers.set(self.requests.has_large_trailers());
        io::ErrorKind::InvalidData.into()
    }

    fn refuse_request(&mut self, refusal: Refusal) {
        self.held.clear();
        self.pipeline.refusal.set(Some((self.requests.accepted_heads(), refusal)));
        self.stand_in = Bytes::from_static(STAND_IN_REQUEST);
    }

    /// Checks the held bytes. Malformed bodies are an error.
    fn check_held(&mut self) -> io::Result<()> {
        let checked = self.requests.scan_bytes(&self.held);
        self.pipeline.last_body.set(self.requests.last_body_number());
        match checked {
            CheckedBytes::Pass(passed) => self.passed = passed,
            CheckedBytes::Refused(refusal) => self.refuse_request(refusal),
            CheckedBytes::Malformed => return Err(self.malformed_error()),
        }
        Ok(())
    }
}

/// The source of hyper's next read.
enum NextRead {
    /// The stand-in of a rejected request.
    StandIn,
    /// Held bytes that are valid.
    Held,
    /// All received bytes: it is no longer HTTP.
    Anything,
    /// Nothing before the answer to a request to switch protocols.
    Answer,
    /// Nothing any more: hyper is to answer and close.
    Nothing,
    /// Received bytes, as far as they are valid.
    Stream,
}

impl<S: AsyncRead + Unpin> RequestGuardStream<S> {
    fn next_read(&mut self) -> io::Result<NextRead> {
        if self.stand_in.is_empty() && self.passed == 0 && !self.released {
            if let Some(number) = self.requests.awaited_switch() {
                if self.pipeline.answered.get() < number {
                    return Ok(NextRead::Answer);
                }
                self.requests.resume_after_switch();
            }
            if self.pipeline.refusal.get().is_some() {
                return Ok(NextRead::Nothing);
            }
            if !self.held.is_empty() {
                self.check_held()?;
            }
        }
        Ok(match () {
            () if !self.stand_in.is_empty() => NextRead::StandIn,
            () if self.passed > 0 => NextRead::Held,
            () if self.released => NextRead::Anything,
            () => NextRead::Stream,
        })
    }

    /// Reads valid bytes from the stream into `out`. False: there were none, and what is next may be something else.
    fn poll_valid_bytes(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = out.filled().len();
        let pending = Pin::new(&mut self.stream).poll_read(cx, out)?.is_pending();
        self.pipeline.drained.set(pending);
        if pending {
            // A head that comes while a request before it is being served is not late: litequic could not serve it yet.
            if !self.requests.in_head() || self.pipeline.lifecycle.is_serving() {
                self.deadline.on_progress(0);
                return Poll::Pending;
            }
            ready!(self.deadline.poll_wait(cx));
            self.refuse_request(Refusal::request_timeout());
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
        // Most often all of it is valid, and passed on from where it was read.
        let (read, was_in_body) = (came.len(), self.requests.in_body());
        let checked = self.requests.scan_bytes(came);
        self.pipeline.last_body.set(self.requests.last_body_number());
        let passed = match checked {
            CheckedBytes::Pass(passed) => passed,
            CheckedBytes::Refused(refusal) => {
                out.set_filled(before);
                self.refuse_request(refusal);
                return Poll::Ready(Ok(false));
            }
            CheckedBytes::Malformed => return Poll::Ready(Err(self.malformed_error())),
        };
        self.held.extend_from_slice(came.get(passed..).unwrap_or_default());
        out.set_filled(before.saturating_add(passed));
        if was_in_body {
            self.count_piece(read)?;
        }
        if passed > 0 {
            self.deadline.on_progress(0);
        }
        Poll::Ready(Ok(passed > 0))
    }

    /// Reads the bytes behind a request to switch protocols and keeps them; ready at the client's end.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper expects a wake from a reader that has nothing.
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
}

impl<S: AsyncRead + Unpin> RequestGuardStream<S> {
    /// Ends the connection after a response that was cut off: nothing follows what the kernel has of it, nor does it
    /// look complete, and the rest of the client's bytes is discarded, as after an orderly end.
    pub(super) async fn break_off(&mut self)
    where
        S: ClientSocket,
    {
        self.stream.end_writes();
        poll_fn(|cx| self.poll_linger(cx)).await;
    }

    /// Reads and discards the rest of the client's bytes, within bounds.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let closed = match &mut self.closed {
            Some(closed) => closed,
            None => {
                let lingering = self.lingering.as_ref().filter(|_| self.requests.in_request());
                let soon = || LingerState::Soon(IdleTimer::new(LINGER_TIMEOUT));
                self.closed
                    .insert(lingering.and_then(LingerLimits::begin_discard).map_or_else(soon, LingerState::Request))
            }
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            let mut out = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut out);
            let came = out.filled().len();
            let goes_on = match (read, &mut *closed) {
                (Poll::Pending, LingerState::Request(discarding)) => return discarding.poll_discard_timeout(cx),
                (Poll::Pending, LingerState::Soon(timer)) => return timer.poll_expired(cx),
                (Poll::Ready(Err(_)), _) => false,
                (Poll::Ready(Ok(())), _) if came == 0 => false,
                (Poll::Ready(Ok(())), LingerState::Request(discarding)) => discarding.count_discarded(came as u64),
                (Poll::Ready(Ok(())), LingerState::Soon(timer)) => timer.poll_expired(cx).is_pending(),
            };
            if !goes_on {
                return Poll::Ready(());
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestGuardStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.next_read()? {
                NextRead::StandIn => {
                    let count = this.stand_in.len().min(out.remaining());
                    out.put_slice(&this.stand_in.split_to(count));
                    return Poll::Ready(Ok(()));
                }
                NextRead::Held => {
                    // Valid bytes end a head, if one was awaited; the next one has its own time.
                    this.deadline.on_progress(0);
                    let count = this.passed.min(out.remaining());
                    out.put_slice(this.held.get(..count).unwrap_or_default());
                    this.held.advance(count);
                    this.passed = this.passed.saturating_sub(count);
                    return Poll::Ready(Ok(()));
                }
                NextRead::Anything => {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
                    return Poll::Ready(this.count_piece(out.filled().len().saturating_sub(before)));
                }
                NextRead::Answer => return this.poll_read_ahead(cx),
                NextRead::Nothing => return Poll::Pending,
                NextRead::Stream => {
                    if ready!(this.poll_valid_bytes(cx, out))? {
                        return Poll::Ready(Ok(()));
                    }
                }
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
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes the writing side, and reads the rest of the client's bytes: the kernel would answer them with a reset,
    /// which discards what the client has not read yet, above all a 413 (RFC 9112 §9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.released || this.closed.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if this.released { Poll::Ready(Ok(())) } else { this.poll_linger(cx).map(Ok) }
    }
}
