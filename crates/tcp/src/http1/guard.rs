//! A filter for a connection's bytes to hyper: only valid ones are passed on (`requests`). In place of a rejected
//! request hyper reads one of litequic's own, so that its answer is sent after those of the requests before it.

use super::requests::{CheckedRequest, Requests};
use crate::{
    io::ClientSocket,
    life::TcpLife,
    linger::{Discarding, Lingering},
    refusal::Refusal,
};
use bytes::{Buf, Bytes, BytesMut};
use litequic_base::rate::Bucket;
use litequic_exchange::{ClientDeadline, IdleTimer, MinimumRate, http1::SMALL, terms::FieldLimits};
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
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";

/// How long a client may continue to send once it was answered and the connection closed, when it has sent a complete
/// request or nothing is to be discarded: a few round trips.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes that are read ahead of the answer to a request to switch protocols: so that the client's end is seen
/// meanwhile.
const AHEAD: usize = 16 * 1024;

/// The state of a connection's pipelined requests (RFC 9112 §9.3.2), which the guard shares with the code that serves
/// them.
#[derive(Debug, Default)]
pub struct Http1Requests {
    /// The course of the connection.
    life: Rc<TcpLife>,
    /// The number of requests before a rejected one, and the answer to that.
    refusal: Cell<Option<(u64, Refusal)>>,
    /// How many requests hyper has read.
    read: Cell<u64>,
    /// How many requests were answered.
    answered: Cell<u64>,
    /// The waker of the task that reads on when the next one is.
    waiting: RefCell<Option<Waker>>,
    /// The last request of whose body bytes came.
    body_of: Cell<u64>,
    /// All that came was read.
    drained: Cell<bool>,
    /// The client sent too many pieces with next to nothing in them.
    flooded: Cell<bool>,
    /// The client sent trailers that are too large.
    large_trailers: Cell<bool>,
}

impl Http1Requests {
    /// The state of a connection with the course `life`.
    pub(super) fn of(life: Rc<TcpLife>) -> Self {
        Self { life, ..Self::default() }
    }

    /// hyper has read one more request. Returns its answer if it stands in for a rejected one.
    pub(super) fn read(&self) -> Option<Refusal> {
        let before = self.read.replace(self.read.get().saturating_add(1));
        self.refusal.get().filter(|(passed, _)| before >= *passed).map(|(_, refusal)| refusal)
    }

    /// Whether bytes came of the body of the request that hyper has delivered and [`read`](Self::read) has not counted
    /// yet.
    pub(super) fn has_body_come(&self) -> bool {
        self.body_of.get() > self.read.get()
    }

    /// Whether there is nothing more to be read.
    pub(super) fn is_drained(&self) -> bool {
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
    pub(super) fn answered(&self) {
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
    requests: Requests,
    /// Received, and not passed on yet.
    held: BytesMut,
    /// How many of `held` may be passed on.
    passed: usize,
    /// Bytes of litequic's own, to be read before anything else.
    stand_in: Bytes,
    /// The deadline for the rest of a head, while no request before it is being served.
    patience: ClientDeadline,
    pipeline: Rc<Http1Requests>,
    /// The limit of what is discarded of a request that is answered before it has ended.
    lingering: Option<Lingering>,
    /// Once litequic's side is closed: how long the client may continue.
    closed: Option<Closed>,
    /// The bytes are no longer HTTP.
    released: bool,
    pieces: Pieces,
}

/// Counts pieces of bodies, and of tunnels, with next to nothing in them.
#[derive(Debug)]
struct Pieces {
    bucket: Bucket,
    /// The last one was short.
    short: bool,
}

impl Pieces {
    /// `read` bytes came at once, and `chunks` with next to nothing in them. Of what came at once that is short only
    /// counts what follows its like: of a client that sends much, each write may end in a short record. False once
    /// there were too many.
    fn admit(&mut self, read: usize, chunks: u32) -> bool {
        let short = (read as u64) < SMALL;
        let again = std::mem::replace(&mut self.short, short) && short;
        let small = chunks.max(u32::from(again));
        small == 0 || self.bucket.take(small, Instant::now())
    }
}

/// The rest of the client's bytes.
#[derive(Debug)]
enum Closed {
    /// The rest of its request.
    Request(Discarding),
    /// Anything.
    Soon(IdleTimer),
}

impl<S> RequestGuardStream<S> {
    /// Reads requests with heads within `bounds`, each within `patience` of its first byte.
    /// More than `small` pieces a second with next to nothing in them are an error.
    pub fn new(stream: S, bounds: FieldLimits, patience: Duration, small: u32, pipeline: Rc<Http1Requests>) -> Self {
        Self {
            stream,
            requests: Requests::new(bounds),
            held: BytesMut::new(),
            passed: 0,
            stand_in: Bytes::new(),
            patience: ClientDeadline::new(MinimumRate::any(patience)),
            pipeline,
            lingering: None,
            closed: None,
            released: false,
            pieces: Pieces { bucket: Bucket::new(small), short: false },
        }
    }

    /// The limit of what is discarded of a request that is answered before it has ended.
    pub(super) fn lingering(self, lingering: Lingering) -> Self {
        Self { lingering: Some(lingering), ..self }
    }

    /// Passes everything on from now on, `ahead` first, as the client has switched protocols.
    pub(super) fn release(&mut self, ahead: &[u8]) {
        let held = std::mem::take(&mut self.held);
        self.held.extend_from_slice(ahead);
        self.held.extend_from_slice(&held);
        self.passed = self.held.len();
        self.released = true;
    }

    /// Counts received bytes of a body.
    fn count(&mut self, read: usize) -> io::Result<()> {
        let chunks = self.requests.take_small();
        if self.pieces.admit(read, chunks) {
            return Ok(());
        }
        self.pipeline.flooded.set(true);
        Err(io::Error::other("too many pieces with next to nothing in them"))
    }

    /// The error of a body that is malformed.
    fn malformed(&self) -> io::Error {
        self.pipeline.large_trailers.set(self.requests.has_large_trailers());
        io::ErrorKind::InvalidData.into()
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.held.clear();
        self.pipeline.refusal.set(Some((self.requests.passed(), refusal)));
        self.stand_in = Bytes::from_static(STAND_IN);
    }

    /// Checks the held bytes. Malformed bodies are an error.
    fn check(&mut self) -> io::Result<()> {
        let checked = self.requests.check(&self.held);
        self.pipeline.body_of.set(self.requests.body_of());
        match checked {
            CheckedRequest::Pass(passed) => self.passed = passed,
            CheckedRequest::Refused(refusal) => self.refuse(refusal),
            CheckedRequest::Malformed => return Err(self.malformed()),
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
    fn next(&mut self) -> io::Result<NextRead> {
        if self.stand_in.is_empty() && self.passed == 0 && !self.released {
            if let Some(number) = self.requests.waits_for() {
                if self.pipeline.answered.get() < number {
                    return Ok(NextRead::Answer);
                }
                self.requests.go_on();
            }
            if self.pipeline.refusal.get().is_some() {
                return Ok(NextRead::Nothing);
            }
            if !self.held.is_empty() {
                self.check()?;
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
    fn poll_stream(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = out.filled().len();
        let pending = Pin::new(&mut self.stream).poll_read(cx, out)?.is_pending();
        self.pipeline.drained.set(pending);
        if pending {
            // A head that comes while a request before it is being served is not late: litequic could not serve it yet.
            if !self.requests.in_head() || self.pipeline.life.is_serving() {
                self.patience.rest(0);
                return Poll::Pending;
            }
            ready!(self.patience.poll_wait(cx));
            self.refuse(Refusal::too_slow());
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
        let checked = self.requests.check(came);
        self.pipeline.body_of.set(self.requests.body_of());
        let passed = match checked {
            CheckedRequest::Pass(passed) => passed,
            CheckedRequest::Refused(refusal) => {
                out.set_filled(before);
                self.refuse(refusal);
                return Poll::Ready(Ok(false));
            }
            CheckedRequest::Malformed => return Poll::Ready(Err(self.malformed())),
        };
        self.held.extend_from_slice(came.get(passed..).unwrap_or_default());
        out.set_filled(before.saturating_add(passed));
        if was_in_body {
            self.count(read)?;
        }
        if passed > 0 {
            self.patience.rest(0);
        }
        Poll::Ready(Ok(passed > 0))
    }

    /// Reads the bytes behind a request to switch protocols and keeps them; ready at the client's end.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper expects a wake from a reader that has nothing.
        self.pipeline.waiting.replace(Some(cx.waker().clone()));
        while self.held.len() < AHEAD {
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
        self.stream.end();
        poll_fn(|cx| self.poll_linger(cx)).await;
    }

    /// Reads and discards the rest of the client's bytes, within bounds.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let closed = match &mut self.closed {
            Some(closed) => closed,
            None => {
                let lingering = self.lingering.as_ref().filter(|_| self.requests.in_request());
                let soon = || Closed::Soon(IdleTimer::new(LINGER));
                self.closed.insert(lingering.and_then(Lingering::begin).map_or_else(soon, Closed::Request))
            }
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            let mut out = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut out);
            let came = out.filled().len();
            let goes_on = match (read, &mut *closed) {
                (Poll::Pending, Closed::Request(discarding)) => return discarding.poll_over(cx),
                (Poll::Pending, Closed::Soon(timer)) => return timer.poll_expired(cx),
                (Poll::Ready(Err(_)), _) => false,
                (Poll::Ready(Ok(())), _) if came == 0 => false,
                (Poll::Ready(Ok(())), Closed::Request(discarding)) => discarding.took(came as u64),
                (Poll::Ready(Ok(())), Closed::Soon(timer)) => timer.poll_expired(cx).is_pending(),
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
            match this.next()? {
                NextRead::StandIn => {
                    let count = this.stand_in.len().min(out.remaining());
                    out.put_slice(&this.stand_in.split_to(count));
                    return Poll::Ready(Ok(()));
                }
                NextRead::Held => {
                    // Valid bytes end a head, if one was awaited; the next one has its own time.
                    this.patience.rest(0);
                    let count = this.passed.min(out.remaining());
                    out.put_slice(this.held.get(..count).unwrap_or_default());
                    this.held.advance(count);
                    this.passed = this.passed.saturating_sub(count);
                    return Poll::Ready(Ok(()));
                }
                NextRead::Anything => {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
                    return Poll::Ready(this.count(out.filled().len().saturating_sub(before)));
                }
                NextRead::Answer => return this.poll_ahead(cx),
                NextRead::Nothing => return Poll::Pending,
                NextRead::Stream => {
                    if ready!(this.poll_stream(cx, out))? {
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
