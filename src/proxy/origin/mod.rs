//! One origin: picks a server for each request, sends it over that server's pool and watches the clocks.

mod body;
mod check;
mod connect;
mod copy;
mod deadline;
mod driver;
mod pool;
mod proxied;
mod resolve;
mod server;
mod tunnel;
mod wait;

pub(super) use check::{Checked, check_all};
pub(super) use server::{Finding, Standing};

use super::{
    balance::{self, Budget, Set},
    error::Error,
    request::Framing,
    response,
    retry::{self, Decision, Failure},
    rules::Rules,
    upgrade::Switch,
};
use crate::{
    config::{self, Network, OriginAddress, Share, Timeouts},
    exchange::{Abort, Body, BodyError, Client, Interim, Record, Response, Tunnel, has_rarely_a_body},
    telemetry::WorkerMetrics,
};
use body::{Progress, RequestBody, ResponseBody, TrailerRules, Upload};
use copy::Copy;
use deadline::Deadline;
use http::{Method, Request, StatusCode, Version, header, request};
use hyper::body::Incoming;
use pool::Lease;
use proxied::Proxied;
use server::{Server, Ticket};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout, timeout_at};
use wait::{Attempt, Interims};

/// One worker's way to one origin.
#[derive(Debug)]
pub(super) struct Origin {
    name: Arc<str>,
    config: config::Origin,
    /// In the order of the configuration.
    servers: Vec<Rc<Server>>,
    /// Grows with each request.
    turn: Cell<usize>,
    budget: RefCell<Budget>,
    /// A reload has put another one in its place: what its last requests find leaves no server out there.
    replaced: Cell<bool>,
    metrics: Arc<WorkerMetrics>,
}

/// Everything that one request is sent by.
pub(super) struct Sending<'a> {
    pub(super) head: request::Parts,
    pub(super) framing: Framing,
    pub(super) body: Body,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) client: &'a Client,
    /// Where it is, as sources are limited.
    pub(super) source: Option<Network>,
    pub(super) interim: &'a Interim,
    pub(super) record: &'a Record,
    pub(super) timeouts: &'a Timeouts,
    /// The route's.
    pub(super) rules: Option<&'a Arc<Rules>>,
    /// What it is to switch to.
    pub(super) switch: Option<Switch>,
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

impl Origin {
    /// The way to the origin that is called `name`, whose servers' checks are told in `standings`. Servers that it shares
    /// with the one `before` stay, with their connections and with what is known of them.
    pub(super) fn new(
        name: &str,
        config: &config::Origin,
        standings: &[Arc<Standing>],
        before: Option<&Self>,
        metrics: &Arc<WorkerMetrics>,
    ) -> Self {
        let server = |(address, standing): (&OriginAddress, &Arc<Standing>)| {
            let mut kept = before.iter().flat_map(|before| &before.servers);
            let Some(kept) = kept.find(|server| server.pool.fits(config, address)) else {
                return Rc::new(Server::new(name, config, address, standing, metrics));
            };
            kept.follow(standing);
            Rc::clone(kept)
        };
        let servers: Vec<_> = config.servers.iter().zip(standings).map(server).collect();
        if let [alone] = &*servers {
            alone.pardon();
        }
        Self {
            name: name.into(),
            config: config.clone(),
            servers,
            // Not all workers begin with the same server.
            turn: Cell::new(rand::random_range(0..config.servers.len().max(1))),
            budget: RefCell::new(Budget::new(config.retry_share, config.retry_minimum)),
            replaced: Cell::new(false),
            metrics: Arc::clone(metrics),
        }
    }

    /// What it was made for.
    pub(super) fn config(&self) -> &config::Origin {
        &self.config
    }

    /// Its servers' checks are told in `standings` from now on.
    pub(super) fn follow(&self, standings: &[Arc<Standing>]) {
        self.servers.iter().zip(standings).for_each(|(server, standing)| server.follow(standing));
    }

    /// Makes way for `next`: closes idle connections, now and later, to the servers that it does not have.
    pub(super) fn close_but(&self, next: Option<&Self>) {
        self.replaced.set(!next.is_some_and(|next| std::ptr::eq(self, next)));
        let stays =
            |server: &Rc<Server>| next.is_some_and(|next| next.servers.iter().any(|kept| Rc::ptr_eq(kept, server)));
        for server in self.servers.iter().filter(|server| !stays(server)) {
            server.pool.close();
            server.pardon();
        }
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
    pub(super) async fn send(self: &Rc<Self>, sending: Sending<'_>) -> Result<Response, Outcome> {
        let Sending {
            mut head,
            framing,
            body,
            max_body_bytes,
            client,
            source,
            interim,
            record,
            timeouts,
            rules,
            switch,
        } = sending;
        let deadline = timeouts.request.map(|limit| Deadline::new(Instant::now(), limit));
        let upload = Upload::new(body, framing, max_body_bytes, || TrailerRules {
            rules: rules.cloned(),
            ambiguous: self.config.ambiguous_fields,
            metrics: Arc::clone(&self.metrics),
        });
        let interims = Interims::new(&head, interim, &self.metrics);
        let method = head.method.clone();
        let proxied = self.config.proxy_protocol.then(|| Proxied::of(client));
        self.budget.borrow_mut().earn();
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        match upload.as_deref() {
            Some(upload) if interims.is_expected() => upload.expects_continue(),
            // Boxed, so that the future of a request without a body is no larger for it.
            Some(upload) if self.config.request_buffer > 0 => {
                Box::pin(self.read_ahead(upload, &method, deadline)).await?;
            }
            _ => {}
        }
        let mut fresh = false;
        let mut tried = Set::default();
        for retries in 0..=retry::MAX_RETRIES {
            let ticket = self.choose(tried, turn).ok_or(Error::Connect)?;
            tried = tried.with(ticket.number);
            let server = ticket.server();
            record.note(|facts| facts.server = Some(Arc::clone(&server.name)));
            let mut lease = match server.pool.acquire(fresh, proxied, source, timeouts, deadline).await {
                Ok(lease) => lease,
                Err(error) => {
                    if error.is_servers() {
                        ticket.unreachable();
                    }
                    // Nothing was sent, so that any request may go to another server. One that is full says nothing against
                    // itself, so that only a server that is well is better, and costs nothing to ask.
                    let full = error == Error::QueueFull;
                    if error.is_before_sending()
                        && retries < retry::MAX_RETRIES
                        && (self.has_well_other(tried) || !full && self.has_other(tried))
                        && (full || self.may_retry())
                    {
                        tracing::debug!(%error, "sending a request to another server");
                        fresh = retries + 1 == retry::MAX_RETRIES;
                        continue;
                    }
                    return Err(error.into());
                }
            };
            let reused = lease.reused();
            // hyper takes the head; only over a used connection may it be wanted again.
            let copy = (reused && retry::is_idempotent(&method)).then(|| Copy::of(&head));
            let mut request = Request::from_parts(head, RequestBody::new(upload.clone()));
            interims.pass(&mut request);
            self.metrics.origin_requests.increment();
            let sent = lease.send(request);
            let attempt = wait::header(sent, upload.as_deref(), &interims, timeouts, deadline, &self.metrics).await;
            let mut failed = match attempt {
                Attempt::Response(response) => {
                    if let Some(switch) = switch {
                        return self
                            .switched(response, switch, &method, lease, ticket, rules, timeouts, deadline)
                            .await;
                    }
                    return self.respond(response, &method, lease, ticket, upload, rules, timeouts, deadline);
                }
                Attempt::Timeout(error) => {
                    if error.is_servers() {
                        ticket.failed();
                    }
                    return Err(error.into());
                }
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
            if !failure.is_stale() {
                ticket.failed();
            }
            let again = message.map(|message| message.into_parts().0).or_else(|| copy.map(Copy::restore));
            match (retry::decide(retries, &method, failure), again) {
                (Decision::Again { fresh: wanted }, Some(again)) if self.may_retry() => {
                    tracing::debug!(error = %failed.error(), "sending a request again");
                    head = again;
                    fresh = wanted;
                    if failure.is_stale() && !self.has_well_other(tried) {
                        // Its connection was to blame, and no other server is better.
                        tried = Set::default();
                    }
                }
                _ => {
                    tracing::warn!(origin = %server.name, error = %failed.error(), "no response");
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

    /// Reads of a request's body what is read before there is a connection for it.
    async fn read_ahead(&self, upload: &Upload, method: &Method, deadline: Option<Deadline>) -> Result<(), Outcome> {
        let read = upload.read_ahead(self.config.request_buffer, !has_rarely_a_body(method));
        let in_time = match deadline {
            Some(deadline) => timeout_at(deadline.at(), read).await.is_ok(),
            None => {
                read.await;
                true
            }
        };
        if !in_time {
            self.metrics.timeout_request.increment();
            return Err(Error::RequestTimeout { servers: false }.into());
        }
        match upload.progress() {
            Progress::Failed(cause) => Err(self.request_failed(cause)),
            _ => Ok(()),
        }
    }

    /// A server for a request that was tried at `tried`: another one, if there is one. `turn` is the request's.
    fn choose(self: &Rc<Self>, tried: Set, turn: usize) -> Option<Ticket> {
        // One alone gets everything, however it stands.
        if let [server] = &*self.servers {
            return Some(Ticket::only(self, server));
        }
        let now = server::now();
        let views = self.servers.iter().map(|server| server.view(now));
        let choose = |tried| balance::choose(self.config.balance, views.clone(), tried, turn);
        let choice = choose(tried).or_else(|| choose(Set::default()))?;
        if choice.panic {
            self.metrics.origin_panics.increment();
        }
        let server = self.servers.get(choice.server)?;
        Some(Ticket::new(self, choice.server, server, now, server.chosen(now)))
    }

    /// Whether there is a server that is not in `tried`.
    fn has_other(&self, tried: Set) -> bool {
        (0..self.servers.len()).any(|server| !tried.has(server))
    }

    /// Whether one of those is well.
    fn has_well_other(&self, tried: Set) -> bool {
        let now = server::now();
        self.servers.iter().enumerate().any(|(number, server)| {
            let view = (!tried.has(number)).then(|| server.view(now));
            view.is_some_and(|view| view.up && view.kept)
        })
    }

    /// Whether a request may be sent again; then it counts.
    fn may_retry(&self) -> bool {
        let may = self.budget.borrow_mut().spend(server::now());
        let counter = if may { &self.metrics.origin_retries } else { &self.metrics.origin_retries_refused };
        counter.increment();
        may
    }

    /// Whether the `number`th server may be left out: another one that is well is left, and not too many are out.
    fn may_eject(&self, number: usize, now: std::time::Instant) -> bool {
        let others = self.servers.iter().enumerate().filter(|(other, _)| *other != number);
        let (mut left, mut out) = (false, 0_u64);
        for (_, server) in others {
            let view = server.view(now);
            left |= view.up && view.kept;
            out += u64::from(!view.kept);
        }
        let most = self.servers.len() as u64 * u64::from(self.config.max_ejected.0) / u64::from(Share::ALL.0);
        left && out < most.max(1) && !self.replaced.get()
    }

    #[expect(clippy::too_many_arguments, reason = "what one response comes by")]
    fn respond(
        &self,
        response: http::Response<Incoming>,
        method: &Method,
        lease: Lease,
        ticket: Ticket,
        upload: Option<Rc<Upload>>,
        rules: Option<&Arc<Rules>>,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Response, Outcome> {
        let (mut parts, incoming) = response.into_parts();
        if self.config.eject_statuses.iter().any(|statuses| statuses.contain(parts.status.as_u16())) {
            ticket.failed();
        } else {
            ticket.answered();
        }
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
            tracing::warn!(origin = %ticket.server().name, %error, "bad response");
            ticket.failed();
            self.metrics.origin_errors.increment();
            return Err(error.into());
        }
        let (idle, metrics) = (timeouts.response_body, &self.metrics);
        let body = ResponseBody::wrap(incoming, lease, ticket, upload, rules, idle, deadline, metrics);
        Ok(Response::from_parts(parts, body))
    }

    /// The response to a request to switch protocols. A no is passed on as it is.
    #[expect(clippy::too_many_arguments, reason = "what one response comes by")]
    async fn switched(
        &self,
        response: http::Response<Incoming>,
        switch: Switch,
        method: &Method,
        lease: Lease,
        ticket: Ticket,
        rules: Option<&Arc<Rules>>,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Response, Outcome> {
        if switch.is_misleading(response.status()) {
            // The client's fault, who asks where there is no such thing: nothing is held against the server.
            ticket.answered();
            ticket.went_well();
            return Err(Error::SwitchFailed.into());
        }
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return self.respond(response, method, lease, ticket, None, rules, timeouts, deadline);
        }
        let failed = |error| {
            tracing::warn!(origin = %ticket.server().name, %error, "bad response");
            ticket.failed();
            self.metrics.origin_errors.increment();
            Outcome::Answer(error)
        };
        let (mut parts, _) = response.into_parts();
        switch.accept(&mut parts).map_err(failed)?;
        // hyper is done with it as soon as it has delivered the 101.
        let left = timeout(timeouts.response_header, lease.switch()).await.ok().flatten();
        let (stream, ahead) = left.ok_or_else(|| failed(Error::Terminated))?;
        ticket.answered();
        ticket.went_well();
        let Switch { protocol, place, .. } = switch;
        let end = tunnel::End::new(stream, ahead, place, &self.metrics);
        Ok(Response::from_parts(parts, Body::tunnel(Tunnel::new(protocol, end, timeouts.tunnel))))
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

/// Whether the server at `address` takes connections.
///
/// # Errors
///
/// Why it does not, in words for the operator.
pub(super) async fn probe(address: &OriginAddress, timeout: Duration) -> Result<(), Error> {
    connect::probe(address, timeout).await
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
