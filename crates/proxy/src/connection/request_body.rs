//! Sends a request's body to the origin: checks it on the way, and reports its progress to the exchange.

use super::preemption::{BodyDirection, ClientTime, PreemptionReason, WaitingRequest, update_cell};
use crate::message::{
    FieldPolicy,
    request::{self, BodyFraming},
};
use crate::metrics::ProxyMetrics;
use crate::rules::RuleSet;
use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame};
use litequic_base::timers;
use litequic_exchange::{Body, BodyError, Fields};
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Longest wait for the first bytes of a body of unknown length before the request is sent without them.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of a body that are kept for another attempt: as many as are read ahead.
const MAX_KEPT_BYTES: usize = 16 * 1024;
/// Time added before a client's rate counts if the client waits for 100 (Continue): until litequic sends it, and a
/// round trip.
const CONTINUE_DELAY: Duration = Duration::from_secs(2);

/// A request's body and its progress; shared by the connection, which sends it, and the exchange, which watches it.
#[derive(Debug)]
pub(crate) struct Upload {
    body: RefCell<Option<Body>>,
    framing: BodyFraming,
    /// Bytes of `Content-Length` that have not come.
    owed: Cell<u64>,
    /// Bytes that the route still allows.
    allowed: Cell<u64>,
    /// Last piece of a body of known length: it is sent when the client's stream has ended where it should.
    last_piece: RefCell<Option<Bytes>>,
    progress: Cell<UploadProgress>,
    /// Time at which a frame was last received from the client.
    pub(crate) moved: Cell<Instant>,
    /// Whether a byte, or the trailers, were taken from the body to be sent.
    taken: Cell<bool>,
    ahead: RefCell<ReadAhead>,
    /// All that was taken, while it may have to be sent again; `None` once that is too much, or is not wanted.
    kept: RefCell<Option<ReadAhead>>,
    client: Cell<ClientTime>,
    /// Flag that is set once 100 (Continue) was sent, if the client waits for that before it sends.
    continued: OnceCell<Rc<Cell<bool>>>,
    /// Waker of the task that waits for the client.
    waker: RefCell<Option<Waker>>,
    trailers: Option<TrailerRules>,
    /// Whether the client may be silent, as in a streaming call.
    is_streaming: Cell<bool>,
}

/// Part of a request's body that was read before there was a connection for it.
#[derive(Debug, Default)]
struct ReadAhead {
    first: Option<Bytes>,
    /// Bytes behind `first`, copied: pieces may have one byte each.
    rest: BytesMut,
    trailers: Option<Fields>,
}

impl ReadAhead {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty() && self.trailers.is_none()
    }

    fn ahead_length(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.rest.len()
    }

    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.first.is_none() => self.first = Some(data),
            Ok(data) => self.rest.extend_from_slice(&data),
            Err(frame) => self.trailers = frame.into_trailers().ok().map(Fields::from),
        }
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let rest = |rest: &mut BytesMut| (!rest.is_empty()).then(|| rest.split().freeze());
        let data = self.first.take().or_else(|| rest(&mut self.rest));
        data.map(Frame::data).or_else(|| self.trailers.take().map(|fields| Frame::trailers(fields.into())))
    }
}

/// Rules for a request's trailers.
#[derive(Debug)]
pub(crate) struct TrailerRules {
    pub(crate) rules: Option<Arc<RuleSet>>,
    /// Whether the route has a condition on the method, or another one for the same paths has.
    pub(crate) methods_matter: bool,
    pub(crate) policy: FieldPolicy,
    pub(crate) metrics: Arc<ProxyMetrics>,
}

impl TrailerRules {
    fn apply_to_trailers(&self, fields: &mut Fields) {
        let is_ruled = |name: &str| self.rules.as_deref().is_some_and(|rules| rules.names_request_field(name));
        let removed = request::filter_request_trailers(fields, is_ruled, self.methods_matter, &self.policy);
        self.metrics.count_removed(removed);
    }
}

/// Progress of a request's body: the side that litequic waits for, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadProgress {
    /// litequic waits for the origin, which gets the bytes that were read.
    Origin,
    /// litequic waits for the client.
    Client,
    /// The whole body was taken to be sent.
    Done,
    Failed(BodyError),
}

impl Upload {
    /// An upload of `body` with `framing`, of at most `max_bytes`; trailers are treated by `trailers`, and dropped
    /// without. `None` if there is no body.
    pub(crate) fn new(
        body: Body,
        framing: BodyFraming,
        max_bytes: Option<u64>,
        trailers: impl FnOnce() -> TrailerRules,
    ) -> Option<Rc<Self>> {
        let owed = match framing {
            BodyFraming::None => return None,
            BodyFraming::Length(length) => length,
            BodyFraming::Chunked => 0,
        };
        Some(Rc::new(Self {
            body: RefCell::new(Some(body)),
            framing,
            owed: Cell::new(owed),
            allowed: Cell::new(max_bytes.unwrap_or(u64::MAX)),
            last_piece: RefCell::new(None),
            // A body without bytes is never polled.
            progress: Cell::new(if framing == BodyFraming::Length(0) {
                UploadProgress::Done
            } else {
                UploadProgress::Origin
            }),
            moved: Cell::new(Instant::now()),
            taken: Cell::new(false),
            ahead: RefCell::default(),
            kept: RefCell::new(None),
            client: Cell::default(),
            continued: OnceCell::new(),
            waker: RefCell::default(),
            // HTTP/1.1 has trailers only after chunks.
            trailers: (framing == BodyFraming::Chunked).then(trailers),
            is_streaming: Cell::new(false),
        }))
    }

    /// Notes that the body is that of a streaming call: the client's silence is no fault, and it ends with the
    /// server's.
    pub(crate) fn set_streaming(&self) {
        self.is_streaming.set(true);
        if let Some(body) = &*self.body.borrow() {
            body.stop_client_deadline();
        }
    }

    /// Whether the body is that of a streaming call.
    pub(crate) fn is_streaming(&self) -> bool {
        self.is_streaming.get()
    }

    pub(crate) fn progress(&self) -> UploadProgress {
        match self.progress.get() {
            UploadProgress::Done if !self.ahead.borrow().is_empty() => UploadProgress::Origin,
            UploadProgress::Client if self.waits_for_continue() => UploadProgress::Origin,
            progress => progress,
        }
    }

    /// Whether the client waits for 100 (Continue), and so for the origin, and has sent no bytes.
    fn waits_for_continue(&self) -> bool {
        !self.taken.get() && self.continued.get().is_some_and(|continued| !continued.get())
    }

    /// Reads the beginning of the body, so that no connection is held while the client sends nothing yet: a whole body
    /// whose length is known to be at most `bound` bytes, the beginning of any other one. A body of unknown length may
    /// be that of a client which waits for its response first: the wait for it is at most [`FIRST_BYTES_TIMEOUT`], and
    /// none unless it is `expected`. Of a streaming call, of any length, no byte is waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn read_beginning(&self, bound: u64, expected: bool) {
        let whole = matches!(self.framing, BodyFraming::Length(length) if length <= bound);
        let read = poll_fn(|cx| {
            loop {
                let length = self.ahead.borrow().ahead_length() as u64;
                let ended = matches!(self.progress.get(), UploadProgress::Done | UploadProgress::Failed(_));
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
        let is_streaming = self.is_streaming();
        if self.framing == BodyFraming::Chunked || is_streaming {
            // After the timeout the request is sent without its body's beginning.
            let wait = if expected && !is_streaming { FIRST_BYTES_TIMEOUT } else { Duration::ZERO };
            let _ = timeout(wait, read).await;
        } else {
            read.await;
        }
        // Other requests wait for this upload only from now on.
        self.client.set(ClientTime::default());
    }

    /// Notes that the client waits for 100 (Continue) before it sends anything, until `continued` is set.
    pub(crate) fn expect_continue(&self, continued: Rc<Cell<bool>>) {
        // A request calls this once.
        let _ = self.continued.set(continued);
    }

    /// The reason to preempt the upload for `taker`, if litequic waits for a slow client.
    pub(crate) fn upload_preemption(&self, taker: WaitingRequest) -> Option<PreemptionReason> {
        if self.progress() != UploadProgress::Client {
            return None;
        }
        let rest = matches!(self.framing, BodyFraming::Length(_)).then(|| self.owed.get());
        let later = if self.continued.get().is_some() { CONTINUE_DELAY } else { Duration::ZERO };
        self.client.get().slow_reason(BodyDirection::Upload, rest, later, taker)
    }

    /// Ends the upload for another client's request.
    pub(crate) fn evict_upload(&self) {
        self.progress.set(UploadProgress::Failed(BodyError::Evicted));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Start of the wait for the server, for a wait that began at `began`: as long as `upload` waits for its client,
    /// the server is not late, unless both may be silent in a streaming call.
    pub(crate) fn server_wait_start(upload: Option<&Self>, began: Instant, now: impl FnOnce() -> Instant) -> Instant {
        match upload {
            Some(upload) if upload.progress() == UploadProgress::Client && !upload.is_streaming() => now(),
            Some(upload) => upload.moved.get().max(began),
            None => began,
        }
    }

    /// Whether a byte or trailers were taken from the upload to be sent: the request cannot be sent again.
    pub(crate) fn was_taken(&self) -> bool {
        self.taken.get()
    }

    /// Drops the client's stream.
    pub(crate) fn cancel_upload(&self) {
        // Dropped after the borrow: dropping a stream may call this upload again.
        let body = self.body.borrow_mut().take();
        drop(body);
    }

    fn fail_upload(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.set(UploadProgress::Failed(error));
        Poll::Ready(Some(Err(error)))
    }

    fn end_upload(&self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.owed.get() > 0 {
            return self.fail_upload(BodyError::Malformed);
        }
        self.moved.set(Instant::now());
        self.progress.set(UploadProgress::Done);
        Poll::Ready(self.last_piece.take().map(|piece| Ok(Frame::data(piece))))
    }

    /// Whether the request's head says that the body has no bytes: it is not polled.
    pub(crate) fn is_empty(&self) -> bool {
        self.framing == BodyFraming::Length(0)
    }

    pub(super) fn is_chunked(&self) -> bool {
        self.framing == BodyFraming::Chunked
    }

    /// Reads the next frame to be sent.
    pub(crate) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let ahead = self.ahead.borrow_mut().pop();
        let next = match ahead {
            Some(frame) => {
                if self.progress.get() == UploadProgress::Client {
                    // The client had more to send when this was read ahead; now the origin is to take this first.
                    self.progress.set(UploadProgress::Origin);
                    self.moved.set(Instant::now());
                    update_cell(&self.client, |client| client.end_client_wait(timers::elapsed_since_resume));
                }
                Some(Ok(frame))
            }
            None => ready!(self.poll_client(cx)),
        };
        if let Some(Ok(frame)) = &next
            && frame.data_ref().is_none_or(|data| !data.is_empty())
        {
            self.taken.set(true);
            self.keep_frame(frame);
        }
        Poll::Ready(next)
    }

    /// Keeps the beginning of the body from now on, so that [`Self::rewind_upload`] can put it back: an HTTP/2 server
    /// may say that it has not processed the request.
    pub(super) fn keep_beginning(&self) {
        if !self.taken.get() {
            self.kept.replace(Some(ReadAhead::default()));
        }
    }

    /// Keeps nothing any more: the server has processed the request.
    pub(super) fn forget_beginning(&self) {
        self.kept.take();
    }

    fn keep_frame(&self, frame: &Frame<Bytes>) {
        let kept = &mut *self.kept.borrow_mut();
        let Some(all) = kept else { return };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if all.ahead_length().saturating_add(bytes) > MAX_KEPT_BYTES {
            *kept = None;
        } else {
            match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => all.push(Frame::data(data.clone())),
                (None, Some(trailers)) => all.push(Frame::trailers(trailers.clone())),
                (None, None) => {}
            }
        }
    }

    /// Puts back all that was taken, for another attempt, and returns whether the body is whole again.
    pub(crate) fn rewind_upload(&self) -> bool {
        if !self.taken.get() {
            return true;
        }
        let Some(mut kept) = self.kept.take() else { return false };
        let mut ahead = self.ahead.borrow_mut();
        while let Some(frame) = ahead.pop() {
            kept.push(frame);
        }
        *ahead = kept;
        self.taken.set(false);
        true
    }

    /// Reads the next frame of the client.
    fn poll_client(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.progress.get() {
            UploadProgress::Done => return Poll::Ready(None),
            UploadProgress::Failed(error) => return Poll::Ready(Some(Err(error))),
            UploadProgress::Origin | UploadProgress::Client => {}
        }
        loop {
            let (polled, ended) = match &mut *self.body.borrow_mut() {
                Some(body) => (Pin::new(&mut *body).poll_frame(cx), body.is_end_stream()),
                // A cancelled body has no clean end, of which the last chunk would be made.
                None => return self.fail_upload(BodyError::Cancelled),
            };
            let frame = match polled {
                Poll::Pending => {
                    self.progress.set(UploadProgress::Client);
                    update_cell(&self.client, |client| client.begin_client_wait(Instant::now));
                    self.waker.replace(Some(cx.waker().clone()));
                    return Poll::Pending;
                }
                Poll::Ready(None) => return self.end_upload(),
                Poll::Ready(Some(Err(error))) => return self.fail_upload(error),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            self.progress.set(UploadProgress::Origin);
            let now = Instant::now();
            self.moved.set(now);
            update_cell(&self.client, |client| client.end_client_wait(timers::elapsed_since_resume));
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => match (frame.into_trailers(), &self.trailers) {
                    (Ok(trailers), Some(rules)) => {
                        let mut fields = Fields::from(trailers);
                        rules.apply_to_trailers(&mut fields);
                        self.progress.set(UploadProgress::Done);
                        return Poll::Ready(Some(Ok(Frame::trailers(fields.into()))));
                    }
                    (Ok(_), None) => return self.end_upload(),
                    (Err(_), _) => continue,
                },
            };
            if data.is_empty() && !ended {
                continue;
            }
            let length = data.len() as u64;
            update_cell(&self.client, |client| client.count_moved(length));
            match self.allowed.get().checked_sub(length) {
                Some(allowed) => self.allowed.set(allowed),
                None => return self.fail_upload(BodyError::TooLarge),
            }
            if let BodyFraming::Length(_) = self.framing {
                match self.owed.get().checked_sub(length) {
                    Some(owed) => self.owed.set(owed),
                    None => return self.fail_upload(BodyError::Malformed),
                }
                if self.owed.get() == 0 && !ended {
                    self.last_piece.replace(Some(data));
                    continue;
                }
            }
            if !ended {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if !data.is_empty() {
                self.last_piece.replace(Some(data));
            }
            return self.end_upload();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_rules() -> TrailerRules {
        TrailerRules { rules: None, methods_matter: false, policy: FieldPolicy::default(), metrics: Arc::default() }
    }

    #[test]
    fn waits_for_the_client_and_pieces_restart_the_time_of_the_server() {
        let trailers = no_rules;
        let upload = Upload::new(Body::empty(), BodyFraming::Chunked, None, trailers).unwrap();
        let earlier = Instant::now();
        let [began, later, now] = [1, 3, 9].map(|seconds| earlier + Duration::from_secs(seconds));
        for (progress, moved, since) in [
            (UploadProgress::Client, later, now),
            (UploadProgress::Origin, later, later),
            (UploadProgress::Done, later, later),
            (UploadProgress::Origin, earlier, began),
            (UploadProgress::Done, earlier, began),
        ] {
            upload.progress.set(progress);
            upload.moved.set(moved);
            assert_eq!(Upload::server_wait_start(Some(&upload), began, || now), since, "{progress:?}");
        }
        assert_eq!(Upload::server_wait_start(None, began, || now), began);
    }

    #[test]
    fn waiting_for_100_counts_as_the_origins_time() {
        let trailers = no_rules;
        let upload = Upload::new(Body::empty(), BodyFraming::Length(5), None, trailers).unwrap();
        let continued = Rc::new(Cell::new(false));
        upload.expect_continue(Rc::clone(&continued));
        upload.progress.set(UploadProgress::Client);
        for (taken, sent, progress) in [
            (false, false, UploadProgress::Origin),
            (true, false, UploadProgress::Client),
            (false, true, UploadProgress::Client),
        ] {
            upload.taken.set(taken);
            continued.set(sent);
            assert_eq!(upload.progress(), progress, "{taken} {sent}");
        }
    }
}
