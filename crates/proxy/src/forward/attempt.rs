//! Sends a request to an origin in one or several attempts: the state that the attempts share, and the outcome of each.

use super::authentication;
use super::header_wait::{self, InterimForwarder, WaitOutcome};
use super::open_exchange::{OpenExchange, finish_exchange};
use super::response_body::ResponseBody;
use super::retry::{self, AttemptFailure, RetryDecision};
use crate::answer::Error;
use crate::balance::{Affinity, ServerSet};
use crate::connection::{ProxiedClient, ReceivedHead, SendFailure, Upload, UploadProgress};
use crate::message::{StreamingCall, grpc, response};
use crate::origin::{Ticket, WorkerOrigin};
use crate::pool::{ConnectionNeeds, Deadline, PassedDeadline, PooledConnection};
use crate::rules::RuleSet;
use crate::tunnel::{ProtocolSwitch, TunnelSide};
use http::StatusCode;
use litequic_config::Timeouts;
use litequic_exchange::{
    Abort, Body, BodyError, Client, Head, InterimSender, RequestRecord, Response, Traceparent, Tunnel, TunnelExpiry,
    http1::HeadError,
    http2::{HeadFault, StreamFailure},
    name, rarely_has_body,
};
use litequic_resources::fairness::ClientSource;
use std::{
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// A request to be forwarded, with its context.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) head: &'a Head,
    /// Body of the request; `None` without one.
    pub(crate) upload: Option<Rc<Upload>>,
    pub(crate) client: &'a Client,
    /// Client by whose share of the pools the request is served.
    pub(crate) source: ClientSource,
    pub(crate) interim: &'a InterimSender,
    pub(crate) record: &'a RequestRecord,
    /// Record that gets a span for each attempt.
    pub(crate) traced: &'a RequestRecord,
    pub(crate) timeouts: &'a Timeouts,
    /// The streaming call that the request is, if it is one.
    pub(crate) call: Option<StreamingCall>,
    pub(crate) rules: Option<&'a Arc<RuleSet>>,
    /// Protocol switch that the request asks for.
    pub(crate) switch: Option<ProtocolSwitch>,
    /// Server on which the client is to stay.
    pub(crate) affinity: Affinity,
}

/// Failure to get a response from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardFailure {
    /// litequic answers with this error.
    Answer(Error),
    /// The request is aborted without a response.
    Abort(Abort),
}

impl From<Error> for ForwardFailure {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

/// Sends a request to `origin` and waits for its response's header.
///
/// # Errors
///
/// [`ForwardFailure`]
///
/// # Cancel safety
///
/// Dropping the future cancels the request: its connection is closed.
pub(crate) fn forward_request<'a>(
    origin: &'a Rc<WorkerOrigin>,
    sending: ForwardedRequest<'a>,
) -> impl Future<Output = Result<Response, ForwardFailure>> {
    // Outside of the future, which would hold `sending` as well.
    let mut attempts = Attempts::new(origin, sending);
    async move {
        attempts.prepare_upload().await?;
        for number in 0..=retry::MAX_RETRIES {
            let Some((ticket, connection)) = attempts.connect_attempt(number).await? else { continue };
            let outcome = attempts.send_attempt(&connection).await;
            if let Some(response) = attempts.conclude_attempt(number, outcome, ticket, connection)? {
                return Ok(response);
            }
        }
        Err(Error::Terminated.into())
    }
}

/// State of a request's attempts.
struct Attempts<'a> {
    origin: &'a Rc<WorkerOrigin>,
    request: ForwardedRequest<'a>,
    interims: InterimForwarder<'a>,
    needs: ConnectionNeeds,
    /// Trace context of this attempt.
    traceparent: Option<Traceparent>,
    deadline: Option<Deadline>,
    tried: ServerSet,
}

const _: () = assert!(size_of::<Attempts<'static>>() <= 416);

impl<'a> Attempts<'a> {
    fn new(origin: &'a Rc<WorkerOrigin>, request: ForwardedRequest<'a>) -> Self {
        let has_body = request.upload.is_some();
        if let (Some(upload), Some(_)) = (&request.upload, request.call) {
            upload.set_streaming();
        }
        origin.budget.borrow_mut().earn_share();
        let needs = ConnectionNeeds {
            fresh: false,
            // Another request may be sent again, if its connection turns out to be closed.
            quiet: has_body || !retry::is_idempotent(&request.head.method),
            proxied: origin.config.proxy_protocol.then(|| ProxiedClient::from_client(request.client)),
            has_body,
            switches: request.switch.is_some(),
        };
        let call_timeout = request.call.and_then(StreamingCall::call_timeout);
        Self {
            origin,
            interims: InterimForwarder::new(request.head, has_body, request.interim, &origin.metrics),
            needs,
            traceparent: None,
            deadline: Deadline::earlier_of(Instant::now(), request.timeouts.request, call_timeout),
            tried: ServerSet::default(),
            request,
        }
    }

    /// Prepares the request's body for the first attempt.
    async fn prepare_upload(&self) -> Result<(), ForwardFailure> {
        match (self.request.upload.as_deref(), self.interims.continue_flag()) {
            (Some(upload), Some(continued)) => upload.expect_continue(continued),
            // Boxed, so that the future of a request without a body is not larger because of it.
            (Some(upload), None) if self.origin.config.request_buffer > 0 => {
                Box::pin(self.read_upload_ahead(upload)).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the beginning of the request's body before there is a connection for it.
    async fn read_upload_ahead(&self, upload: &Upload) -> Result<(), ForwardFailure> {
        let read =
            upload.read_beginning(self.origin.config.request_buffer, !rarely_has_body(&self.request.head.method));
        match self.deadline {
            Some(deadline) => {
                deadline.run_within(read, &self.origin.metrics).await.map_err(PassedDeadline::error_without_server)?;
            }
            None => read.await,
        }
        match upload.progress() {
            UploadProgress::Failed(cause) => Err(self.upload_failure(cause)),
            _ => Ok(()),
        }
    }

    /// Gets a connection to a server for attempt `number`; `None` if there is none, and the next attempt may find
    /// another server.
    async fn connect_attempt(&mut self, number: u32) -> Result<Option<(Ticket, PooledConnection)>, ForwardFailure> {
        let ticket = self.origin.issue_ticket(self.tried, self.request.affinity).ok_or(Error::Connect)?;
        self.tried = self.tried.with_server(ticket.number);
        let server = &ticket.server;
        self.request.record.update_facts(|facts| facts.server = Some(Arc::clone(&server.name)));
        self.traceparent = self.request.traced.begin_attempt(&self.origin.name, &server.name, number);
        let connection =
            server.pool.acquire(&self.needs, self.request.source, self.request.timeouts, self.deadline).await;
        let error = match connection {
            Ok(connection) => {
                ticket.set_address(connection.server_address());
                return Ok(Some((ticket, connection)));
            }
            Err(error) => error,
        };
        self.request.traced.end_attempt(Err(error.status_and_kind().1));
        if error.is_servers_fault() {
            ticket.report_unreachable();
        }
        // No byte was sent, so that any request may go to another server. A full server is not at fault, so that only a
        // healthy one is better, and costs no part of the retry budget. Nor does one that refuses at once, as it does
        // while it is restarted: that costs no server anything.
        let full = error == Error::QueueFull;
        if error.is_before_sending()
            && number < retry::MAX_RETRIES
            && (self.origin.has_healthy_untried(self.tried) || !full && self.origin.has_untried(self.tried))
            && (full || self.origin.may_retry(error != Error::Refused))
        {
            tracing::debug!(%error, "sending a request to another server");
            self.needs.fresh = number + 1 == retry::MAX_RETRIES;
            return Ok(None);
        }
        Err(error.into())
    }

    /// Sends the request over a connection and waits for the response's header.
    async fn send_attempt(&self, connection: &PooledConnection) -> WaitOutcome {
        let Self { request: ForwardedRequest { head, upload, timeouts, traced, .. }, interims, deadline, .. } = self;
        let metrics = &self.origin.metrics;
        metrics.origin_requests.increment();
        traced.begin_sending(|| head.target(), connection.is_reused());
        connection.start_request(upload.as_ref(), self.traceparent);
        let poll_sent = |cx: &mut Context<'_>| connection.poll_sent(head, cx);
        let outcome =
            header_wait::wait_for_header(poll_sent, upload.as_deref(), interims, timeouts, *deadline, metrics).await;
        if let WaitOutcome::Response(response) = &outcome
            && authentication::binds_connection(&head.fields, response.status, &response.fields)
        {
            connection.reserve_for_client(self.request.source.connection);
        }
        self.note_end(&outcome, connection);
        outcome
    }

    /// Returns the response, decides on another attempt, or fails, by the `outcome` of attempt `number`.
    fn conclude_attempt(
        &mut self,
        number: u32,
        outcome: WaitOutcome,
        ticket: Ticket,
        connection: PooledConnection,
    ) -> Result<Option<Response>, ForwardFailure> {
        let reused = connection.is_reused();
        match outcome {
            WaitOutcome::Response(response)
                if reused && number < retry::MAX_RETRIES && is_idle_timeout_response(&response) =>
            {
                self.handle_idle_timeout(number, response, connection, ticket)
            }
            WaitOutcome::Response(response) => match self.request.switch.take() {
                Some(switch) => self.accept_switch(response, switch, connection, ticket),
                None => self.pass_response(response, connection, ticket),
            }
            .map(Some),
            WaitOutcome::Timeout(error) => {
                if error.is_servers_fault() {
                    ticket.report_failed();
                }
                Err(error.into())
            }
            WaitOutcome::Failed(failure) => {
                self.handle_send_failure(number, &failure, &connection, &ticket).map(|()| None)
            }
        }
    }

    /// Notes the outcome in the attempt's span.
    fn note_end(&self, outcome: &WaitOutcome, connection: &PooledConnection) {
        self.request.traced.end_attempt(match outcome {
            WaitOutcome::Response(response) => Ok(response.status),
            WaitOutcome::Timeout(error) => Err(error.status_and_kind().1),
            WaitOutcome::Failed(failure) => match self.request.upload.as_deref().map(Upload::progress) {
                // The client's fault, or litequic's: the request was never complete.
                Some(UploadProgress::Failed(_)) => Err("http_request_error"),
                _ => Err(classify_send_failure(failure, connection).status_and_kind().1),
            },
        });
    }

    /// Handles a 408 of an origin that gave the idle connection up when the request came (RFC 9110 §15.5.9): the
    /// request may be sent again, or this is the response.
    fn handle_idle_timeout(
        &mut self,
        number: u32,
        response: ReceivedHead,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<Option<Response>, ForwardFailure> {
        let body_read = self.request.upload.as_deref().is_some_and(Upload::was_taken);
        let failure = AttemptFailure { handed_back: false, reused: true, closed: true, answered: false, body_read };
        match retry::decide_retry(number, &self.request.head.method, failure) {
            RetryDecision::Again { fresh } => {
                tracing::debug!("sending a request again: the origin closed an idle connection with 408");
                self.retry_after_stale(number, fresh, &ticket);
                Ok(None)
            }
            RetryDecision::Fail => self.pass_response(response, connection, ticket).map(Some),
        }
    }

    /// Prepares the attempt after one on a stale connection: on another connection, or on a new one, and at the same
    /// server if the client is to stay there or no other is better. A server that is down refuses a new connection, so
    /// that this costs nothing of the retry budget.
    fn retry_after_stale(&mut self, number: u32, fresh: bool, ticket: &Ticket) {
        self.origin.metrics.origin_retries.increment();
        self.needs.fresh = fresh;
        if number == 0 && self.request.affinity.prefers_server(ticket.number) {
            (self.tried, self.needs.fresh) = (ServerSet::default(), true);
        } else if !self.origin.has_healthy_untried(self.tried) {
            self.tried = ServerSet::default();
        }
    }

    /// Handles a connection that failed before there was a response, by `cause`: the request may be sent again, or
    /// fails.
    fn handle_send_failure(
        &mut self,
        number: u32,
        cause: &SendFailure,
        connection: &PooledConnection,
        ticket: &Ticket,
    ) -> Result<(), ForwardFailure> {
        let (upload, metrics) = (self.request.upload.as_deref(), &self.origin.metrics);
        if let Some(UploadProgress::Failed(cause)) = upload.map(Upload::progress) {
            return Err(self.upload_failure(cause));
        }
        let error = classify_send_failure(cause, connection);
        if error == Error::Evicted {
            return Err(error.into());
        }
        if matches!(cause, SendFailure::Stream(StreamFailure::Reset(_)))
            && let (Some(call), Some(deadline)) = (self.request.call, self.deadline)
            && call.call_timeout().is_some()
            && deadline.ends_at() <= Instant::now() + grpc::DEADLINE_MARGIN
        {
            // The server knows the client's deadline too, and has ended the call.
            return Err(Error::RequestTimeout { servers: false }.into());
        }
        let failure = AttemptFailure {
            handed_back: matches!(cause, SendFailure::Unsent) && upload.is_none_or(Upload::rewind_upload),
            reused: connection.is_reused(),
            closed: error == Error::Terminated,
            answered: connection.has_answered(),
            body_read: upload.is_some_and(Upload::was_taken),
        };
        if !failure.is_stale_connection() {
            ticket.report_connection_broken();
        }
        match retry::decide_retry(number, &self.request.head.method, failure) {
            RetryDecision::Again { fresh } if failure.is_stale_connection() => {
                tracing::debug!(error = %cause, "sending a request again: its connection was stale");
                self.retry_after_stale(number, fresh, ticket);
                Ok(())
            }
            RetryDecision::Again { fresh } if self.origin.may_retry(true) => {
                tracing::debug!(error = %cause, "sending a request again");
                self.needs.fresh = fresh;
                Ok(())
            }
            _ => {
                if error.is_tls_failure() {
                    let reason = connection.tls_failure().map(|failure| failure.to_string());
                    tracing::warn!(origin = %ticket.server.name, %error, reason, "no response");
                } else {
                    tracing::warn!(origin = %ticket.server.name, error = %cause, "no response");
                }
                if error == Error::HeaderTooLarge {
                    metrics.limit_response_header.increment();
                }
                metrics.origin_errors.increment();
                Err(error.into())
            }
        }
    }

    /// Converts the response for the client. Its body is polled once, without a wait: one that has failed already gets
    /// 502, as no byte of the response was sent.
    fn pass_response(
        &mut self,
        response: ReceivedHead,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<Response, ForwardFailure> {
        let ReceivedHead { status, mut fields, .. } = response;
        let origin = self.origin;
        let length = connection.size_hint().exact();
        if let Err(error) = response::translate_response(status, &mut fields, &self.request.head.method, length) {
            return Err(self.invalid_response(&ticket, error));
        }
        let mut open = OpenExchange { connection, ticket };
        let whole = open.connection.take_response_body();
        let ahead = match open.poll_without_waker() {
            Poll::Ready(Some(Err(error))) => return Err(self.fail_broken_body(&open.ticket, error)),
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(frame)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        };
        if origin.config.eject_statuses.iter().any(|statuses| statuses.contains_status(status.as_u16())) {
            open.ticket.report_failed();
        } else {
            open.ticket.report_answered();
        }
        origin.set_sticky_cookie(self.request.affinity, open.ticket.number, &mut fields);
        let (upload, idle, record) =
            (self.request.upload.take(), self.request.timeouts.response_body, self.request.record);
        let (rules, deadline, call) = (self.request.rules, self.deadline, self.request.call);
        let body = match whole {
            Some(whole) => {
                finish_exchange(open, upload.as_ref());
                whole.into()
            }
            None => ResponseBody::wrap_body(open, ahead, upload, record, rules, idle, deadline, call, &origin.metrics),
        };
        Ok(Response { status, fields, body })
    }

    /// Handles a response's body that has failed before any part of the response was forwarded.
    fn fail_broken_body(&self, ticket: &Ticket, error: BodyError) -> ForwardFailure {
        // A request's body that fails ends the response, too.
        if let Some(UploadProgress::Failed(cause)) = self.request.upload.as_deref().map(Upload::progress) {
            return self.upload_failure(cause);
        }
        ticket.report_connection_broken();
        self.invalid_response(
            ticket,
            match error {
                BodyError::Malformed => Error::Protocol,
                _ => Error::Truncated,
            },
        )
    }

    /// Handles the response to a request to switch protocols. A rejection is forwarded as it is.
    fn accept_switch(
        &mut self,
        response: ReceivedHead,
        switch: ProtocolSwitch,
        connection: PooledConnection,
        ticket: Ticket,
    ) -> Result<Response, ForwardFailure> {
        if switch.is_misleading(response.status) {
            // The client requested an unsupported protocol: not a failure of the server.
            ticket.report_answered();
            ticket.report_completed();
            return Err(Error::SwitchFailed.into());
        }
        if response.status != StatusCode::SWITCHING_PROTOCOLS {
            // A request with a protocol switch has no body.
            self.request.upload = None;
            return self.pass_response(response, connection, ticket);
        }
        let ReceivedHead { status, mut fields, .. } = response;
        switch.accept_response(&mut fields).map_err(|error| self.invalid_response(&ticket, error))?;
        let (connection, ahead) =
            connection.switch_protocols().ok_or_else(|| self.invalid_response(&ticket, Error::Terminated))?;
        ticket.report_answered();
        ticket.report_completed();
        self.origin.set_sticky_cookie(self.request.affinity, ticket.number, &mut fields);
        let ProtocolSwitch { protocol, slot, .. } = switch;
        let expiry = TunnelExpiry::new(self.request.timeouts.tunnel, self.request.timeouts.tunnel_half_closed);
        slot.set_quiet(&expiry);
        let tunnel = Tunnel::new(protocol, TunnelSide::new(connection, ahead, slot, &self.origin.metrics), expiry);
        Ok(Response { status, fields, body: Body::from_tunnel(tunnel) })
    }

    /// The failure for a request whose body failed before there was a response.
    fn upload_failure(&self, cause: BodyError) -> ForwardFailure {
        match cause {
            BodyError::TooLarge => {
                self.origin.metrics.limit_body_bytes.increment();
                Error::BodyTooLarge.into()
            }
            // The front end has counted its timeout.
            BodyError::TimedOut => Error::ClientTooSlow.into(),
            BodyError::Evicted => Error::Evicted.into(),
            BodyError::Cancelled | BodyError::Malformed | BodyError::Truncated => ForwardFailure::Abort(Abort::Request),
        }
    }

    /// The failure for an invalid response of the server.
    fn invalid_response(&self, ticket: &Ticket, error: Error) -> ForwardFailure {
        tracing::warn!(origin = %ticket.server.name, %error, "invalid response");
        ticket.report_failed();
        self.origin.metrics.origin_errors.increment();
        error.into()
    }
}

/// Whether `response` is the end of an idle connection rather than an answer: 408 with `Connection: close` (RFC 9110
/// §15.5.9), which an origin sends when it gives the connection up.
fn is_idle_timeout_response(response: &ReceivedHead) -> bool {
    let closes = || response.fields.list_members(name::CONNECTION).any(|option| option.eq_ignore_ascii_case(b"close"));
    response.status == StatusCode::REQUEST_TIMEOUT && (response.is_http_10 || closes())
}

/// The error for the client of a `failure` on `connection`.
fn classify_send_failure(failure: &SendFailure, connection: &PooledConnection) -> Error {
    if let Some(failure) = connection.tls_failure() {
        return failure.error;
    }
    match failure {
        SendFailure::Evicted => Error::Evicted,
        SendFailure::Head(HeadError::TooLarge) => Error::HeaderTooLarge,
        SendFailure::Head(HeadError::LengthTooLarge) => Error::ContentLength,
        SendFailure::Stream(StreamFailure::Head(HeadFault::TooLarge)) => Error::HeaderTooLarge,
        SendFailure::Stream(StreamFailure::Head(_) | StreamFailure::Malformed | StreamFailure::Interims)
        | SendFailure::Head(_)
        | SendFailure::Interims => Error::Protocol,
        SendFailure::Closed | SendFailure::Io(_) | SendFailure::Body | SendFailure::Stream(_)
            if connection.has_answered() =>
        {
            Error::Incomplete
        }
        // The connection was closed, reset, or never idle.
        SendFailure::Closed | SendFailure::Io(_) | SendFailure::Body | SendFailure::Stream(_) | SendFailure::Unsent => {
            Error::Terminated
        }
    }
}
