//! The two bodies of an exchange with an origin: the request's on its way in, checked as it goes, and the
//! response's on its way out, which holds the connection until its end.

use super::{deadline::Deadline, pool::Lease, server::Ticket};
use crate::{
    config::AmbiguousFields,
    exchange::{Body, BodyError},
    proxy::{
        request::{self, Framing},
        response,
        rules::Rules,
    },
    telemetry::WorkerMetrics,
};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// How long the first bytes of a body of unknown length are waited for before the request is sent without them.
const FIRST_BYTES: Duration = Duration::from_secs(1);
/// Bytes a second below which an upload is slow for which others wait: half of what EDGE does.
const SLOW: u64 = 16 * 1024;
/// From when on that is known: a few round trips, lost packets included.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How much later where the client waits for 100 (Continue): until litequic says it, and a round trip.
const CONTINUE: Duration = Duration::from_secs(2);

/// A request's body as hyper takes it.
#[derive(Debug)]
pub(super) struct RequestBody(Option<Rc<Upload>>);

/// A request's body and how far it has got; shared by hyper, which sends it, and the exchange, which watches it.
#[derive(Debug)]
pub(super) struct Upload {
    body: RefCell<Option<Body>>,
    framing: Framing,
    /// Bytes that `Content-Length` still owes.
    owed: Cell<u64>,
    /// Bytes that the route still allows.
    allowed: Cell<u64>,
    /// The last piece of a body of known length: it leaves when the client's stream has ended where it should.
    held: RefCell<Option<Bytes>>,
    progress: Cell<Progress>,
    /// When hyper last took something.
    moved: Cell<Instant>,
    /// At least one byte, or the trailers, were handed to hyper.
    taken: Cell<bool>,
    /// hyper has asked for a frame, and got one, or there is none.
    asked: Cell<bool>,
    ahead: RefCell<Ahead>,
    client: Cell<Client>,
    /// The client waits for 100 (Continue) before it sends anything.
    expects_continue: Cell<bool>,
    /// Of the task that waits for the client.
    waker: RefCell<Option<Waker>>,
    trailers: Option<TrailerRules>,
}

/// What was read of a request's body before there was a connection for it.
#[derive(Debug, Default)]
struct Ahead {
    first: Option<Bytes>,
    /// What came after that, copied: pieces may be a byte each.
    rest: BytesMut,
    trailers: Option<HeaderMap>,
}

impl Ahead {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty() && self.trailers.is_none()
    }

    fn length(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.rest.len()
    }

    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.first.is_none() => self.first = Some(data),
            Ok(data) => self.rest.extend_from_slice(&data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let rest = |rest: &mut BytesMut| (!rest.is_empty()).then(|| rest.split().freeze());
        let data = self.first.take().or_else(|| rest(&mut self.rest));
        data.map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers))
    }
}

/// How fast the client sends a request's body.
#[derive(Debug, Clone, Copy, Default)]
struct Client {
    bytes: u64,
    waited: Duration,
    /// Since when it is waited for, if it is.
    since: Option<Instant>,
}

impl Client {
    /// For how long it was waited for by `now`.
    fn waited(&self, now: Instant) -> Duration {
        let since = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited.saturating_add(since)
    }
}

/// What becomes of a request's trailers.
#[derive(Debug)]
pub(super) struct TrailerRules {
    /// The route's.
    pub(super) rules: Option<Arc<Rules>>,
    pub(super) ambiguous: AmbiguousFields,
    pub(super) metrics: Arc<WorkerMetrics>,
}

impl TrailerRules {
    fn apply(&self, fields: &mut HeaderMap) {
        let dropped = request::trailers(fields, self.rules.as_deref(), self.ambiguous);
        self.metrics.ambiguous_fields_dropped.add(dropped);
    }
}

/// Who is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The origin: what was read is on its way to it.
    Origin,
    /// The client.
    Client,
    /// Nobody: all was handed to hyper.
    Done,
    /// Nobody: it failed.
    Failed(BodyError),
}

impl Upload {
    /// `body` with `framing`, of at most `max_bytes`; trailers go by what `trailers` makes, and not without. `None` where
    /// there is no body.
    pub(super) fn new(
        body: Body,
        framing: Framing,
        max_bytes: Option<u64>,
        trailers: impl FnOnce() -> TrailerRules,
    ) -> Option<Rc<Self>> {
        let owed = match framing {
            Framing::None => return None,
            Framing::Length(length) => length,
            Framing::Chunked => 0,
        };
        Some(Rc::new(Self {
            body: RefCell::new(Some(body)),
            framing,
            owed: Cell::new(owed),
            allowed: Cell::new(max_bytes.unwrap_or(u64::MAX)),
            held: RefCell::new(None),
            // hyper never asks for a body of no bytes.
            progress: Cell::new(if framing == Framing::Length(0) { Progress::Done } else { Progress::Origin }),
            moved: Cell::new(Instant::now()),
            taken: Cell::new(false),
            asked: Cell::new(framing == Framing::Length(0)),
            ahead: RefCell::default(),
            client: Cell::default(),
            expects_continue: Cell::new(false),
            waker: RefCell::default(),
            // HTTP/1.1 has trailers only after chunks.
            trailers: (framing == Framing::Chunked).then(trailers),
        }))
    }

    /// How it stands.
    pub(super) fn progress(&self) -> Progress {
        match self.progress.get() {
            Progress::Done if !self.ahead.borrow().is_empty() => Progress::Origin,
            progress => progress,
        }
    }

    /// Reads ahead, so that no connection is held while the client sends nothing yet: the whole of a body whose length is known
    /// to be at most `bound` bytes, the beginning of any other one. A body of unknown length may be that of a client which
    /// waits for its response first: it is waited for no longer than [`FIRST_BYTES`], and not at all unless it is `expected`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn read_ahead(&self, bound: u64, expected: bool) {
        let whole = matches!(self.framing, Framing::Length(length) if length <= bound);
        let read = poll_fn(|cx| {
            loop {
                let length = self.ahead.borrow().length() as u64;
                let ended = matches!(self.progress.get(), Progress::Done | Progress::Failed(_));
                if ended || !whole && length >= bound {
                    return Poll::Ready(());
                }
                match self.poll_client(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.ahead.borrow_mut().push(frame),
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                    Poll::Pending if !whole && length > 0 => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        if self.framing == Framing::Chunked {
            // What comes later, comes later.
            let _ = timeout(if expected { FIRST_BYTES } else { Duration::ZERO }, read).await;
        } else {
            read.await;
        }
        // From now on it is others whom it keeps waiting.
        self.client.set(Client::default());
    }

    /// The client waits for 100 (Continue) before it sends anything.
    pub(super) fn expects_continue(&self) {
        self.expects_continue.set(true);
    }

    /// Its bytes a second for as long as its client was waited for, if that are too few to hold a connection that another
    /// request waits for.
    pub(super) fn slow(&self, now: Instant) -> Option<u64> {
        let client = self.client.get();
        let waited = client.waited(now);
        let after = SLOW_AFTER + if self.expects_continue.get() { CONTINUE } else { Duration::ZERO };
        let rate = client.bytes.saturating_mul(1000) / u64::try_from(waited.as_millis()).unwrap_or(u64::MAX).max(1);
        (self.progress() == Progress::Client && waited >= after && rate < SLOW).then_some(rate)
    }

    /// Another request is to have its connection.
    pub(super) fn give_way(&self) {
        self.progress.set(Progress::Failed(BodyError::TimedOut));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Since when it is the server that is waited for, of the time that `began` then: as long as `upload` waits for its
    /// client, a server owes nothing.
    pub(super) fn server_since(upload: Option<&Self>, began: Instant, now: impl FnOnce() -> Instant) -> Instant {
        match upload.map(|upload| (upload.progress(), upload.moved.get())) {
            Some((Progress::Client, _)) => now(),
            Some((_, moved)) => moved.max(began),
            None => began,
        }
    }

    /// Whether a byte or trailers were handed to hyper: these cannot be sent again.
    pub(super) fn taken(&self) -> bool {
        self.taken.get()
    }

    /// Lets go of the client's stream.
    pub(super) fn cancel(&self) {
        // Dropped after the borrow: the front door may do much then.
        let body = self.body.borrow_mut().take();
        drop(body);
    }

    fn fail(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.set(Progress::Failed(error));
        Poll::Ready(Some(Err(error)))
    }

    fn end(&self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.owed.get() > 0 {
            return self.fail(BodyError::Malformed);
        }
        self.moved.set(Instant::now());
        self.progress.set(Progress::Done);
        Poll::Ready(self.held.take().map(|piece| Ok(Frame::data(piece))))
    }

    /// The next frame for hyper.
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let ahead = self.ahead.borrow_mut().pop();
        let next = match ahead {
            Some(frame) => Some(Ok(frame)),
            None => ready!(self.poll_client(cx)),
        };
        self.asked.set(true);
        let took = |frame: &Frame<Bytes>| frame.data_ref().is_none_or(|data| !data.is_empty());
        self.taken.set(self.taken.get() || matches!(&next, Some(Ok(frame)) if took(frame)));
        Poll::Ready(next)
    }

    /// The next frame of the client.
    fn poll_client(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.progress.get() {
            Progress::Done => return Poll::Ready(None),
            Progress::Failed(error) => return Poll::Ready(Some(Err(error))),
            Progress::Origin | Progress::Client => {}
        }
        loop {
            let (polled, ended) = match &mut *self.body.borrow_mut() {
                Some(body) => (Pin::new(&mut *body).poll_frame(cx), body.is_end_stream()),
                // Cancelled: never a clean end, which hyper would make the last chunk of.
                None => return self.fail(BodyError::Cancelled),
            };
            let frame = match polled {
                Poll::Pending => {
                    self.progress.set(Progress::Client);
                    let client = self.client.get();
                    let since = Some(client.since.unwrap_or_else(Instant::now));
                    self.client.set(Client { since, ..client });
                    self.waker.replace(Some(cx.waker().clone()));
                    return Poll::Pending;
                }
                Poll::Ready(None) => return self.end(),
                Poll::Ready(Some(Err(error))) => return self.fail(error),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            self.progress.set(Progress::Origin);
            let now = Instant::now();
            self.moved.set(now);
            let client = self.client.get();
            self.client.set(Client { waited: client.waited(now), since: None, ..client });
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => match (frame.into_trailers(), &self.trailers) {
                    (Ok(mut fields), Some(rules)) => {
                        rules.apply(&mut fields);
                        self.progress.set(Progress::Done);
                        return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                    }
                    (Ok(_), None) => return self.end(),
                    (Err(_), _) => continue,
                },
            };
            if data.is_empty() && !ended {
                continue;
            }
            let length = data.len() as u64;
            let client = self.client.get();
            self.client.set(Client { bytes: client.bytes.saturating_add(length), ..client });
            match self.allowed.get().checked_sub(length) {
                Some(allowed) => self.allowed.set(allowed),
                None => return self.fail(BodyError::TooLarge),
            }
            if let Framing::Length(_) = self.framing {
                match self.owed.get().checked_sub(length) {
                    Some(owed) => self.owed.set(owed),
                    None => return self.fail(BodyError::Malformed),
                }
                if self.owed.get() == 0 && !ended {
                    self.held.replace(Some(data));
                    continue;
                }
            }
            if !ended {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if !data.is_empty() {
                self.held.replace(Some(data));
            }
            return self.end();
        }
    }
}

impl RequestBody {
    /// What it is of, unless all of that was handed to hyper.
    pub(super) fn upload(&self) -> Option<&Rc<Upload>> {
        self.0.as_ref().filter(|upload| upload.progress() != Progress::Done)
    }

    /// What hyper sends of `upload`.
    pub(super) fn new(upload: Option<Rc<Upload>>) -> Self {
        Self(upload)
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &self.0 {
            Some(upload) => upload.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    /// Never true before hyper has asked, so that hyper's framing is the one decided on, whatever came meanwhile.
    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|upload| upload.asked.get() && upload.progress() == Progress::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.as_ref().map(|upload| upload.framing) {
            None | Some(Framing::None) => SizeHint::with_exact(0),
            Some(Framing::Length(length)) => SizeHint::with_exact(length),
            Some(Framing::Chunked) => SizeHint::default(),
        }
    }
}

/// A response's body. Its end gives the connection back; anything else closes it.
pub(super) struct ResponseBody {
    incoming: Incoming,
    lease: Option<Lease>,
    ticket: Ticket,
    upload: Option<Rc<Upload>>,
    /// The route's, for trailers.
    rules: Option<Arc<Rules>>,
    /// Between two reads.
    idle: Duration,
    /// Of the whole exchange.
    deadline: Option<Deadline>,
    /// Since when the origin is waited for.
    waiting: Option<Instant>,
    /// One timer a body, made at the first wait and set again only when it fires too early.
    timer: Option<Pin<Box<Sleep>>>,
    metrics: Arc<WorkerMetrics>,
}

impl ResponseBody {
    /// The body of a response that came over `lease`; at once given back when there is none.
    #[expect(clippy::too_many_arguments, reason = "what one response comes by")]
    pub(super) fn wrap(
        incoming: Incoming,
        lease: Lease,
        ticket: Ticket,
        upload: Option<Rc<Upload>>,
        rules: Option<&Arc<Rules>>,
        idle: Duration,
        deadline: Option<Deadline>,
        metrics: &Arc<WorkerMetrics>,
    ) -> Body {
        let (rules, metrics) = (rules.cloned(), Arc::clone(metrics));
        let room = lease.room();
        let (lease, waiting, timer) = (Some(lease), None, None);
        let mut this = Self { incoming, lease, ticket, upload, rules, idle, deadline, waiting, timer, metrics };
        if this.incoming.is_end_stream() {
            this.finish();
            return Body::empty();
        }
        if let (Some(lease), Some(upload)) = (&mut this.lease, &this.upload)
            && upload.progress() != Progress::Done
        {
            lease.keep_sending();
        }
        Body::stream_within(room, this)
    }

    /// The response is whole: another request may use the connection, unless this one's body is still on its way.
    fn finish(&mut self) {
        self.ticket.went_well();
        let sent = self.upload.as_ref().is_none_or(|upload| upload.progress() == Progress::Done);
        if let Some(lease) = self.lease.take().filter(|_| sent) {
            lease.give_back();
        }
        self.cancel();
    }

    /// Closes the connection, if it is still ours, and lets go of the client's stream.
    fn cancel(&mut self) {
        self.lease = None;
        if let Some(upload) = self.upload.take() {
            upload.cancel();
        }
    }

    /// Closes the connection. The client's stream is let go of when this is dropped: the front door must have said by
    /// then with which code it is stopped.
    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Whether a deadline has passed, and the counter of it.
    fn poll_timeout(&mut self, cx: &mut Context<'_>, since: Instant) -> Poll<()> {
        let idle = since + self.idle;
        let next = self.deadline.map_or(idle, |deadline| deadline.at().min(idle));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if timer.deadline() > next {
            timer.as_mut().reset(next);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= next {
                let servers = match self.deadline.filter(|_| next != idle) {
                    None => {
                        self.metrics.timeout_response_body.increment();
                        true
                    }
                    Some(deadline) => {
                        self.metrics.timeout_request.increment();
                        deadline.passed(since, Instant::now()).is_servers()
                    }
                };
                if servers {
                    self.ticket.failed();
                }
                return Poll::Ready(());
            }
            timer.as_mut().reset(next);
        }
        Poll::Pending
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(lease) = &mut this.lease else { return Poll::Ready(None) };
        match lease.poll_frame(&mut this.incoming, cx) {
            Poll::Pending => {
                let waiting = *this.waiting.get_or_insert_with(Instant::now);
                // An origin that answered early may want the rest of the request before it goes on.
                let since = Upload::server_since(this.upload.as_deref(), waiting, Instant::now);
                match this.poll_timeout(cx, since) {
                    Poll::Ready(()) => this.fail(BodyError::TimedOut),
                    Poll::Pending => Poll::Pending,
                }
            }
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                // A request's body that fails takes the response down with it.
                if let Some(Progress::Failed(cause)) = this.upload.as_deref().map(Upload::progress) {
                    return this.fail(cause);
                }
                tracing::debug!(%error, "the origin broke off its response");
                this.metrics.origin_errors.increment();
                this.ticket.failed();
                this.fail(BodyError::Truncated)
            }
            Poll::Ready(Some(Ok(frame))) => {
                this.waiting = None;
                if this.deadline.is_some_and(|deadline| deadline.is_over(Instant::now())) {
                    this.metrics.timeout_request.increment();
                    return this.fail(BodyError::TimedOut);
                }
                let frame = match frame.into_trailers() {
                    Ok(mut fields) => {
                        response::trailers(&mut fields, this.rules.as_deref());
                        Frame::trailers(fields)
                    }
                    Err(frame) => frame,
                };
                if frame.is_trailers() || this.incoming.is_end_stream() {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_owes_nothing_while_its_client_is_waited_for_and_has_its_time_anew_with_each_piece() {
        let trailers = || TrailerRules { rules: None, ambiguous: AmbiguousFields::Drop, metrics: Arc::default() };
        let upload = Upload::new(Body::empty(), Framing::Chunked, None, trailers).unwrap();
        let earlier = Instant::now();
        let [began, later, now] = [1, 3, 9].map(|seconds| earlier + Duration::from_secs(seconds));
        for (progress, moved, since) in [
            (Progress::Client, later, now),
            (Progress::Origin, later, later),
            (Progress::Done, later, later),
            (Progress::Origin, earlier, began),
            (Progress::Done, earlier, began),
        ] {
            upload.progress.set(progress);
            upload.moved.set(moved);
            assert_eq!(Upload::server_since(Some(&upload), began, || now), since, "{progress:?}");
        }
        assert_eq!(Upload::server_since(None, began, || now), began);
    }
}
