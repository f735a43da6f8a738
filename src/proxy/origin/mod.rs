//! One origin: sends requests over its pool and watches the clocks.

mod body;
mod connect;
mod copy;
mod pool;
mod resolve;

use super::{
    error::Error,
    request::Framing,
    response,
    retry::{self, Decision, Failure},
};
use crate::{
    config::{self, Timeouts},
    exchange::{Abort, Body, BodyError, Interim, Response},
    telemetry::WorkerMetrics,
};
use body::{Progress, RequestBody, ResponseBody, Upload};
use copy::Copy;
use http::{Method, Request, StatusCode, Version, header, request};
use hyper::{body::Incoming, client::conn::TrySendError};
use pool::{Lease, Pool};
use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// A client that expects 100 (Continue) hears it from litequic when the origin has said nothing for that long: many
/// origins never do, and clients wait about as long themselves (RFC 9110 §10.1.1).
const CONTINUE_AFTER: Duration = Duration::from_secs(1);

/// One worker's way to one origin.
#[derive(Debug)]
pub(super) struct Origin {
    pool: Rc<Pool>,
    metrics: Arc<WorkerMetrics>,
}

/// Everything that one request is sent by.
pub(super) struct Sending<'a> {
    pub(super) head: request::Parts,
    pub(super) framing: Framing,
    pub(super) body: Body,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) interim: &'a Interim,
    pub(super) timeouts: &'a Timeouts,
    /// Of the whole exchange.
    pub(super) deadline: Option<Instant>,
}

/// Why there is no response from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// litequic answers.
    Answer(Error),
    /// Nobody answers.
    Abort(Abort),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

/// What came of sending a request once.
enum Attempt {
    Response(http::Response<Incoming>),
    Failed(TrySendError<Request<RequestBody>>),
    Timeout(Error),
}

impl Origin {
    /// The way to `origin`, with no connection yet.
    pub(super) fn new(origin: &config::Origin, metrics: Arc<WorkerMetrics>) -> Self {
        Self { pool: Pool::new(origin, Arc::clone(&metrics)), metrics }
    }

    /// What it was made for.
    pub(super) fn config(&self) -> &config::Origin {
        self.pool.origin()
    }

    /// Closes idle connections, now and later.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// Sends a request and waits for its response's header.
    ///
    /// # Errors
    ///
    /// [`Outcome`]
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request: its connection is closed.
    pub(super) async fn send(&self, sending: Sending<'_>) -> Result<Response, Outcome> {
        let Sending { mut head, framing, body, max_body_bytes, interim, timeouts, deadline } = sending;
        let upload = Upload::new(body, framing, max_body_bytes);
        // Its callback is shared with hyper, hence the lock-free flag rather than a Cell.
        let continued = Arc::new(AtomicBool::new(!expects_continue(&head)));
        let method = head.method.clone();
        let mut fresh = false;
        for retries in 0..=retry::MAX_RETRIES {
            let mut lease = self.acquire(fresh, timeouts, deadline).await?;
            let reused = lease.reused();
            // hyper takes the head; only over a used connection may it be wanted again.
            let copy = (reused && retry::is_idempotent(&method)).then(|| Copy::of(&head));
            let mut request = Request::from_parts(head, RequestBody::new(upload.clone()));
            pass_interim(&mut request, interim, &continued);
            self.metrics.origin_requests.increment();
            let sent = lease.send(request);
            let attempt = self.wait(sent, upload.as_deref(), interim, &continued, timeouts, deadline).await;
            let mut failed = match attempt {
                Attempt::Response(response) => {
                    return self.respond(response, &method, lease, upload, timeouts, deadline);
                }
                Attempt::Timeout(error) => return Err(error.into()),
                Attempt::Failed(failed) => failed,
            };
            if let Some(Progress::Failed(cause)) = upload.as_deref().map(Upload::progress) {
                return Err(self.request_failed(cause));
            }
            let message = failed.take_message();
            let error = classify(failed.error(), lease.answered());
            let failure = Failure {
                handed_back: message.is_some(),
                reused,
                closed: error == Error::Terminated,
                answered: lease.answered(),
                body_read: upload.as_deref().is_some_and(Upload::taken),
            };
            let again = message.map(|message| message.into_parts().0).or_else(|| copy.map(Copy::restore));
            match (retry::decide(retries, &method, failure), again) {
                (Decision::Again { fresh: wanted }, Some(again)) => {
                    tracing::debug!(error = %failed.error(), "sending a request again");
                    self.metrics.origin_retries.increment();
                    head = again;
                    fresh = wanted;
                }
                _ => {
                    tracing::warn!(origin = %self.config().address, error = %failed.error(), "no response");
                    if error == Error::HeaderTooLarge {
                        self.metrics.limit_response_header.increment();
                    }
                    self.metrics.origin_errors.increment();
                    return Err(error.into());
                }
            }
        }
        Err(Error::Terminated.into())
    }

    async fn acquire(&self, fresh: bool, timeouts: &Timeouts, deadline: Option<Instant>) -> Result<Lease, Outcome> {
        let acquired = self.pool.acquire(fresh, timeouts.queue, timeouts.connect);
        let Some(deadline) = deadline else { return Ok(acquired.await?) };
        match tokio::time::timeout_at(deadline, acquired).await {
            Ok(acquired) => Ok(acquired?),
            Err(_) => {
                self.metrics.timeout_request.increment();
                Err(Error::RequestTimeout.into())
            }
        }
    }

    /// Waits for the response's header, with one timer for every clock: when it fires, it is found which of them
    /// has run out, and set for the next.
    async fn wait(
        &self,
        sent: impl Future<Output = Result<http::Response<Incoming>, TrySendError<Request<RequestBody>>>>,
        upload: Option<&Upload>,
        interim: &Interim,
        continued: &AtomicBool,
        timeouts: &Timeouts,
        deadline: Option<Instant>,
    ) -> Attempt {
        let started = Instant::now();
        let expected_by = || (!continued.load(Relaxed)).then(|| started + CONTINUE_AFTER);
        let header_by = |now: Instant| match upload.map(|upload| (upload.progress(), upload.moved())) {
            // As long as the client is waited for, the origin owes nothing.
            Some((Progress::Client, _)) => now + timeouts.response_header,
            Some((_, moved)) => moved.max(started) + timeouts.response_header,
            None => started + timeouts.response_header,
        };
        let next = |now: Instant| {
            let header = header_by(now);
            [expected_by(), deadline].into_iter().flatten().fold(header, Instant::min)
        };
        let mut sent = pin!(sent);
        let mut timer = pin!(sleep_until(next(started)));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(result) = sent.as_mut().poll(cx) {
                return Poll::Ready(result.map_or_else(Attempt::Failed, Attempt::Response));
            }
            while timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.metrics.timeout_request.increment();
                    return Poll::Ready(Attempt::Timeout(Error::RequestTimeout));
                }
                if header_by(now) <= now {
                    self.metrics.timeout_response_header.increment();
                    return Poll::Ready(Attempt::Timeout(Error::ResponseTimeout));
                }
                if expected_by().is_some_and(|by| by <= now) && !continued.swap(true, Relaxed) {
                    interim.send(StatusCode::CONTINUE, http::HeaderMap::new());
                }
                timer.as_mut().reset(next(now));
            }
            Poll::Pending
        })
        .await
    }

    fn respond(
        &self,
        response: http::Response<Incoming>,
        method: &Method,
        lease: Lease,
        upload: Option<Rc<Upload>>,
        timeouts: &Timeouts,
        deadline: Option<Instant>,
    ) -> Result<Response, Outcome> {
        let (mut parts, incoming) = response.into_parts();
        if parts.version != Version::HTTP_11 {
            // hyper would speak HTTP/1.0 from now on, and send no chunked body at all.
            lease.do_not_reuse();
        }
        if parts.headers.contains_key(header::TRANSFER_ENCODING) && parts.headers.contains_key(header::CONTENT_LENGTH) {
            // Who made it may have meant the other framing (RFC 9112 §6.3): what follows may be no response.
            lease.do_not_reuse();
        }
        let length = http_body::Body::size_hint(&incoming).exact();
        if let Err(error) = response::translate(&mut parts, method, length) {
            tracing::warn!(origin = %self.config().address, %error, "bad response");
            self.metrics.origin_errors.increment();
            return Err(error.into());
        }
        let body = ResponseBody::wrap(incoming, lease, upload, timeouts.response_body, deadline, &self.metrics);
        Ok(Response::from_parts(parts, body))
    }

    /// The request's body failed before there was a response.
    fn request_failed(&self, cause: BodyError) -> Outcome {
        match cause {
            BodyError::TooLarge => {
                self.metrics.limit_body_bytes.increment();
                Error::BodyTooLarge.into()
            }
            // Counted by the front door, whose clock it was.
            BodyError::TimedOut => Error::ClientTooSlow.into(),
            BodyError::Cancelled | BodyError::Malformed | BodyError::Truncated => Outcome::Abort(Abort::Request),
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Idle connections hold their pool.
        self.pool.close();
    }
}

/// Whether `origin` takes connections.
///
/// # Errors
///
/// Why it does not, in words for the operator.
pub(super) async fn probe(origin: &config::Origin, timeout: Duration) -> Result<(), Error> {
    connect::probe(&origin.address, timeout).await
}

fn expects_continue(head: &request::Parts) -> bool {
    head.headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Interim responses go to the client as they come. 100 goes once at most, and only to a client that waits for it.
fn pass_interim(request: &mut Request<RequestBody>, interim: &Interim, continued: &Arc<AtomicBool>) {
    let interim = interim.clone();
    let continued = Arc::clone(continued);
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE && continued.swap(true, Relaxed) {
            return;
        }
        let mut fields = response.headers().clone();
        response::remove_hop_by_hop(&mut fields);
        fields.remove(header::CONTENT_LENGTH);
        fields.remove(header::ALT_SVC);
        interim.send(response.status(), fields);
    });
}

/// What hyper's error says of the origin. `answered`: at least one byte came.
fn classify(error: &hyper::Error, answered: bool) -> Error {
    if error.is_parse_too_large() {
        Error::HeaderTooLarge
    } else if error.is_parse() {
        Error::Protocol
    } else if answered {
        Error::Incomplete
    } else {
        // Closed, reset, or handed back because it closed.
        Error::Terminated
    }
}
