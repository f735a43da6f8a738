//! One request to an origin: the state that its attempts share, and the outcome of each.

use super::open::{Open, finish};
use super::response_body::ResponseBody;
use super::retry::{self, AttemptFailure, Decision};
use super::wait::{self, Interims, WaitOutcome};
use crate::answer::Error;
use crate::balance::{Set, Wish};
use crate::connection::{Progress, Proxied, ReceivedHead, SendFailure, TrailerRules, Upload};
use crate::message::{BodyFraming, response};
use crate::origin::{Origin, Ticket};
use crate::pool::{Deadline, Needs, Passed, PooledConnection};
use crate::rules::Rules;
use crate::tunnel::{Switch, TunnelSide};
use http::{Method, StatusCode};
use litequic_config::{CheckIdle, Timeouts};
use litequic_exchange::{
    Abort, Body, BodyError, Client, Head, Interim, Record, Response, Traceparent, Tunnel, has_rarely_a_body,
    http1::HeadError, name,
};
use litequic_resources::fairness::Source;
use std::{
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// The parts of sending one request.
pub(crate) struct Sending<'a> {
    pub(crate) head: &'a Head,
    pub(crate) framing: BodyFraming,
    pub(crate) body: Body,
    pub(crate) max_body_bytes: Option<u64>,
    pub(crate) client: &'a Client,
    /// The client by whose share of the pools it is served.
    pub(crate) source: Source,
    pub(crate) interim: &'a Interim,
    pub(crate) record: &'a Record,
    /// The record that gets a span for each attempt.
    pub(crate) traced: &'a Record,
    pub(crate) timeouts: &'a Timeouts,
    /// The route's rules.
    pub(crate) rules: Option<&'a Arc<Rules>>,
    /// Whether the route has a condition on the method, or another one for the same paths has.
    pub(crate) methods_matter: bool,
    /// The protocol to switch to.
    pub(crate) switch: Option<Switch>,
    /// The server on which its client is to stay.
    pub(crate) wish: Wish,
}

/// Why there is no response from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// litequic answers.
    Answer(Error),
    /// There is no answer.
    Abort(Abort),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

/// Sends a request to `origin` and waits for its response's header.
///
/// # Errors
///
/// [`Outcome`]
///
/// # Cancel safety
///
/// Dropping the future cancels the request: its connection is closed.
pub(crate) fn send<'a>(
    origin: &'a Rc<Origin>,
    sending: Sending<'a>,
) -> impl Future<Output = Result<Response, Outcome>> {
    let head = sending.head;
    // Outside of the future, which would hold `sending` as well.
    let mut attempts = Attempts::new(origin, sending);
    async move {
        attempts.prepare().await?;
        for number in 0..=retry::MAX_RETRIES {
            let Some((ticket, connection)) = attempts.connect(number).await? else { continue };
            let outcome = attempts.send(head, &connection).await;
            if let SentRequest::Answered(response) = attempts.end(number, outcome, ticket, connection)? {
                return Ok(response);
            }
        }
        Err(Error::Terminated.into())
    }
}

/// The outcome of an attempt.
enum SentRequest {
    Answered(Response),
    /// The request is to be sent once more.
    Again,
}

/// A request's attempts so far.
struct Attempts<'a> {
    origin: &'a Rc<Origin>,
    method: Method,
    upload: Option<Rc<Upload>>,
    interims: Interims<'a>,
    proxied: Option<Proxied>,
    source: Source,
    record: &'a Record,
    traced: &'a Record,
    /// The trace context of this attempt.
    traceparent: Option<Traceparent>,
    timeouts: &'a Timeouts,
    deadline: Option<Deadline>,
    rules: Option<&'a Arc<Rules>>,
    switch: Option<Switch>,
    /// The server on which its client is to stay.
    wish: Wish,
    /// Servers that were tried.
    tried: Set,
    /// Whether the next attempt is sent over a new connection.
    fresh: bool,
    /// Whether a connection is looked at before it is used again.
    checks_idle: bool,
}

const _: () = assert!(size_of::<Attempts<'static>>() <= 416);

impl<'a> Attempts<'a> {
    /// None yet.
    fn new(origin: &'a Rc<Origin>, sending: Sending<'a>) -> Self {
        let upload = Upload::new(sending.body, sending.framing, sending.max_body_bytes, || TrailerRules {
            rules: sending.rules.cloned(),
            methods_matter: sending.methods_matter,
            policy: origin.policy().clone(),
            metrics: Arc::clone(&origin.metrics),
        });
        origin.budget.borrow_mut().earn();
        let is_repeatable = upload.is_none() && retry::is_idempotent(&sending.head.method);
        let checks_idle = !is_repeatable || origin.config.check_idle == CheckIdle::Always;
        Self {
            origin,
            method: sending.head.method.clone(),
            interims: Interims::new(sending.head, upload.is_some(), sending.interim, &origin.metrics),
            upload,
            proxied: origin.config.proxy_protocol.then(|| Proxied::of(sending.client)),
            source: sending.source,
            record: sending.record,
            traced: sending.traced,
            traceparent: None,
            timeouts: sending.timeouts,
            deadline: sending.timeouts.request.map(|limit| Deadline::new(Instant::now(), limit)),
            rules: sending.rules,
            switch: sending.switch,
            wish: sending.wish,
            tried: Set::default(),
            fresh: false,
            checks_idle,
        }
    }

    /// Preparation for the first one.
    async fn prepare(&self) -> Result<(), Outcome> {
        match (self.upload.as_deref(), self.interims.continued()) {
            (Some(upload), Some(continued)) => upload.expects_continue(continued),
            // Boxed, so that the future of a request without a body is not larger because of it.
            (Some(upload), None) if self.origin.config.request_buffer > 0 => Box::pin(self.read_ahead(upload)).await?,
            _ => {}
        }
        Ok(())
    }

    /// Reads ahead of the request's body before there is a connection for it.
    async fn read_ahead(&self, upload: &Upload) -> Result<(), Outcome> {
        let read = upload.read_ahead(self.origin.config.request_buffer, !has_rarely_a_body(&self.method));
        match self.deadline {
            Some(deadline) => deadline.bound(read, &self.origin.metrics).await.map_err(Passed::elsewhere)?,
            None => read.await,
        }
        match upload.progress() {
            Progress::Failed(cause) => Err(self.request_failed(cause)),
            _ => Ok(()),
        }
    }

    /// A connection to a server for attempt `number`; `None` if there is none, and the next attempt may find another.
    async fn connect(&mut self, number: u32) -> Result<Option<(Ticket, PooledConnection)>, Outcome> {
        let ticket = self.origin.choose(self.tried, self.wish).ok_or(Error::Connect)?;
        self.tried = self.tried.with(ticket.number);
        let server = ticket.server();
        self.record.note(|facts| facts.server = Some(Arc::clone(&server.name)));
        self.traceparent = self.traced.begin_attempt(&self.origin.name, &server.name, number);
        let needs = Needs { fresh: self.fresh, quiet: self.checks_idle, proxied: self.proxied };
        let connection = server.pool.acquire(needs, self.source, self.timeouts, self.deadline).await;
        let error = match connection {
            Ok(connection) => {
                ticket.goes_to(connection.address());
                return Ok(Some((ticket, connection)));
            }
            Err(error) => error,
        };
        self.traced.attempt_ended(Err(error.table().1));
        if error.is_servers() {
            ticket.unreachable();
        }
        // Nothing was sent, so that any request may go to another server. A full one is not at fault, so
        // that only a healthy server is better, and costs nothing to try.
        let full = error == Error::QueueFull;
        if error.is_before_sending()
            && number < retry::MAX_RETRIES
            && (self.origin.has_well_other(self.tried) || !full && self.origin.has_other(self.tried))
            && (full || self.origin.may_retry())
        {
            tracing::debug!(%error, "sending a request to another server");
            self.fresh = number + 1 == retry::MAX_RETRIES;
            return Ok(None);
        }
        Err(error.into())
    }

    /// Sends the request over a connection and waits for the response's header.
    async fn send(&self, head: &Head, connection: &PooledConnection) -> WaitOutcome {
        let (upload, metrics) = (self.upload.as_deref(), &self.origin.metrics);
        metrics.origin_requests.increment();
        self.traced.attempt_sends(|| head.target(), connection.reused());
        connection.send(self.upload.as_ref(), self.traceparent);
        let poll_sent = |cx: &mut Context<'_>| connection.poll_sent(head, cx);
        let outcome = wait::header(poll_sent, upload, &self.interims, self.timeouts, self.deadline, metrics).await;
        self.note_end(&outcome, connection);
        outcome
    }

    /// What follows from the `outcome` of attempt `number`.
    fn end(
        &mut self,
        number: u32,
        outcome: WaitOutcome,
        ticket: Ticket,
        connection: PooledConnection,
    ) -> Result<SentRequest, Outcome> {
        let reused = connection.reused();
        match outcome {
            WaitOutcome::Response(response) if reused && number < retry::MAX_RETRIES && is_for_the_idle(&response) => {
                self.timed_out(number, response, connection, ticket)
            }
            WaitOutcome::Response(response) => match self.switch.take() {
                Some(switch) => self.switched(response, switch, connection, ticket),
                None => self.respond(response, connection, ticket),
            }
            .map(SentRequest::Answered),
            WaitOutcome::Timeout(error) => {
                if error.is_servers() {
                    ticket.failed();
                }
                Err(error.into())
            }
            WaitOutcome::Failed(failure) => {
                self.failed(number, &failure, &connection, &ticket).map(|()| SentRequest::Again)
            }
        }
    }

    /// Notes in the attempt's span how it ended.
    fn note_end(&self, outcome: &WaitOutcome, connection: &PooledConnection) {
        self.traced.attempt_ended(match outcome {
            WaitOutcome::Response(response) => Ok(response.status),
            WaitOutcome::Timeout(error) => Err(error.table().1),
            WaitOutcome::Failed(failure) => match self.upload.as_deref().map(Upload::progress) {
                // The client's fault, or litequic's: the request was never complete.
                Some(Progress::Failed(_)) => Err("http_request_error"),
                _ => Err(classify(failure, connection).table().1),
            },
        });
    }

    /// The origin had given the connection up when the request came (RFC 9110 §15.5.9): the request may be sent again,
    /// or this is the response.
    fn timed_out(
        &mut self,
        number: u32,
        response: ReceivedHead,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<SentRequest, Outcome> {
        let body_read = self.upload.as_deref().is_some_and(Upload::taken);
        let failure = AttemptFailure { handed_back: false, reused: true, closed: true, answered: false, body_read };
        match retry::decide(number, &self.method, failure) {
            Decision::Again { fresh } => {
                tracing::debug!("sending a request again: the origin closed an idle connection with 408");
                self.again_after_a_stale_one(number, fresh, &ticket);
                Ok(SentRequest::Again)
            }
            Decision::Fail => self.respond(response, connection, ticket).map(SentRequest::Answered),
        }
    }

    /// The connection was stale: the next attempt is on another one, or on a new one, and at the same server if the
    /// client is to stay there or no other is better. A server that is down refuses a new connection, so that it costs
    /// nothing of the retry budget.
    fn again_after_a_stale_one(&mut self, number: u32, fresh: bool, ticket: &Ticket) {
        self.origin.metrics.origin_retries.increment();
        self.fresh = fresh;
        if number == 0 && self.wish.is_for(ticket.number) {
            (self.tried, self.fresh) = (Set::default(), true);
        } else if !self.origin.has_well_other(self.tried) {
            self.tried = Set::default();
        }
    }

    /// The connection failed before there was a response, by `cause`: the request may be sent again, or fails.
    fn failed(
        &mut self,
        number: u32,
        cause: &SendFailure,
        connection: &PooledConnection,
        ticket: &Ticket,
    ) -> Result<(), Outcome> {
        let (upload, metrics) = (self.upload.as_deref(), &self.origin.metrics);
        if let Some(Progress::Failed(cause)) = upload.map(Upload::progress) {
            return Err(self.request_failed(cause));
        }
        let error = classify(cause, connection);
        let failure = AttemptFailure {
            handed_back: matches!(cause, SendFailure::Unsent),
            reused: connection.reused(),
            closed: error == Error::Terminated,
            answered: connection.answered(),
            body_read: upload.is_some_and(Upload::taken),
        };
        if !failure.is_stale() {
            ticket.broke();
        }
        match retry::decide(number, &self.method, failure) {
            Decision::Again { fresh } if failure.is_stale() => {
                tracing::debug!(error = %cause, "sending a request again: its connection was stale");
                self.again_after_a_stale_one(number, fresh, ticket);
                Ok(())
            }
            Decision::Again { fresh } if self.origin.may_retry() => {
                tracing::debug!(error = %cause, "sending a request again");
                self.fresh = fresh;
                Ok(())
            }
            _ => {
                if error.is_tls() {
                    let reason = connection.tls_failure().map(|failure| failure.to_string());
                    tracing::warn!(origin = %ticket.server().name, %error, reason, "no response");
                } else {
                    tracing::warn!(origin = %ticket.server().name, error = %cause, "no response");
                }
                if error == Error::HeaderTooLarge {
                    metrics.limit_response_header.increment();
                }
                metrics.origin_errors.increment();
                Err(error.into())
            }
        }
    }

    /// The response for the client. Its body is polled once, without a wait: one that has failed already is a 502, as
    /// nothing of the response was sent.
    fn respond(
        &mut self,
        response: ReceivedHead,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<Response, Outcome> {
        let ReceivedHead { status, mut fields, .. } = response;
        let origin = self.origin;
        let length = connection.size_hint().exact();
        if let Err(error) = response::translate(status, &mut fields, &self.method, length) {
            return Err(self.bad(&ticket, error));
        }
        let mut open = Open { connection, ticket };
        let whole = open.connection.take_whole();
        let ahead = match open.look() {
            Poll::Ready(Some(Err(error))) => return Err(self.broken(&open.ticket, error)),
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(frame)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        };
        if origin.config.eject_statuses.iter().any(|statuses| statuses.contain(status.as_u16())) {
            open.ticket.failed();
        } else {
            open.ticket.answered();
        }
        origin.stick(self.wish, open.ticket.number, &mut fields);
        let (upload, idle, record) = (self.upload.take(), self.timeouts.response_body, self.record);
        let (rules, deadline) = (self.rules, self.deadline);
        let body = match whole {
            Some(whole) => {
                finish(open, upload.as_ref());
                whole.into()
            }
            None => ResponseBody::wrap(open, ahead, upload, record, rules, idle, deadline, &origin.metrics),
        };
        Ok(Response { status, fields, body })
    }

    /// The body of the server's response has failed before anything of the response was passed on.
    fn broken(&self, ticket: &Ticket, error: BodyError) -> Outcome {
        // A request's body that fails ends the response, too.
        if let Some(Progress::Failed(cause)) = self.upload.as_deref().map(Upload::progress) {
            return self.request_failed(cause);
        }
        ticket.broke();
        self.bad(
            ticket,
            match error {
                BodyError::Malformed => Error::Protocol,
                _ => Error::Truncated,
            },
        )
    }

    /// The response to a request to switch protocols. A rejection is forwarded as it is.
    fn switched(
        &mut self,
        response: ReceivedHead,
        switch: Switch,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<Response, Outcome> {
        if switch.is_misleading(response.status) {
            // The client's fault, which requests an unsupported protocol: not a failure of the server.
            ticket.answered();
            ticket.went_well();
            return Err(Error::SwitchFailed.into());
        }
        if response.status != StatusCode::SWITCHING_PROTOCOLS {
            // Such a request has no body.
            self.upload = None;
            return self.respond(response, connection, ticket);
        }
        let ReceivedHead { status, mut fields, .. } = response;
        switch.accept(&mut fields).map_err(|error| self.bad(&ticket, error))?;
        let (connection, ahead) = connection.switch().ok_or_else(|| self.bad(&ticket, Error::Terminated))?;
        ticket.answered();
        ticket.went_well();
        self.origin.stick(self.wish, ticket.number, &mut fields);
        let Switch { protocol, slot, .. } = switch;
        let side = TunnelSide::new(connection, ahead, slot, &self.origin.metrics);
        let tunnel = Tunnel::new(protocol, side, self.timeouts.tunnel);
        let tunnel = tunnel.half_closed_for(self.timeouts.tunnel_half_closed);
        Ok(Response { status, fields, body: Body::tunnel(tunnel) })
    }

    /// The request's body failed before there was a response.
    fn request_failed(&self, cause: BodyError) -> Outcome {
        match cause {
            BodyError::TooLarge => {
                self.origin.metrics.limit_body_bytes.increment();
                Error::BodyTooLarge.into()
            }
            // Counted by the front end, whose timeout it was.
            BodyError::TimedOut => Error::ClientTooSlow.into(),
            BodyError::Evicted => Error::Evicted.into(),
            BodyError::Cancelled | BodyError::Malformed | BodyError::Truncated => Outcome::Abort(Abort::Request),
        }
    }

    /// The server's response is invalid.
    fn bad(&self, ticket: &Ticket, error: Error) -> Outcome {
        tracing::warn!(origin = %ticket.server().name, %error, "invalid response");
        ticket.failed();
        self.origin.metrics.origin_errors.increment();
        error.into()
    }
}

/// Whether `response` is the end of an idle connection rather than an answer: 408 with `Connection: close` (RFC 9110
/// §15.5.9), which an origin sends when it gives the connection up.
fn is_for_the_idle(response: &ReceivedHead) -> bool {
    let closes = || response.fields.members(name::CONNECTION).any(|option| option.eq_ignore_ascii_case(b"close"));
    response.status == StatusCode::REQUEST_TIMEOUT && (response.is_http_10 || closes())
}

/// The error for the client of a `failure` on `connection`.
fn classify(failure: &SendFailure, connection: &PooledConnection) -> Error {
    if let Some(failure) = connection.tls_failure() {
        return failure.error;
    }
    match failure {
        SendFailure::Head(HeadError::TooLarge) => Error::HeaderTooLarge,
        SendFailure::Head(HeadError::LengthTooLarge) => Error::ContentLength,
        SendFailure::Head(_) | SendFailure::Interims => Error::Protocol,
        SendFailure::Closed | SendFailure::Io(_) | SendFailure::Body if connection.answered() => Error::Incomplete,
        // Closed, reset, or never idle.
        SendFailure::Closed | SendFailure::Io(_) | SendFailure::Body | SendFailure::Unsent => Error::Terminated,
    }
}
