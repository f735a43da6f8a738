//! One TCP connection as its requests see it, and when it ends.

use super::{
    body::{RequestBody, ResponseBody},
    front::Front,
    http1::{Bounds, Told},
    refusal::Refusal,
    request,
};
use crate::{
    config::{Limits, Timeouts},
    exchange::{
        Abort, Body, BodyError, Client, End, Exchange, Handler, Interim, Protocol, Record, Recording, Response,
    },
    lifecycle::{Phase, panic_if_asked},
    rate::Bucket,
    telemetry::WorkerMetrics,
};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep_until},
};

/// How long a client that was told to go may keep a connection on which nothing runs.
const GOODBYE: Duration = Duration::from_secs(5);

/// One connection.
pub(super) struct Connection<H> {
    pub(super) front: Rc<Front<H>>,
    pub(super) client: Rc<Client>,
    /// Those of its beginning.
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    /// What HTTP/1.1's guard found.
    pub(super) told: Rc<Told>,
    alt_svc: Option<HeaderValue>,
    /// Requests being served, and since when there are none.
    open: Cell<u32>,
    idle_since: Cell<Instant>,
    accepted: Cell<u64>,
    /// Requests that the client may cancel.
    resets: RefCell<Bucket>,
    /// It has had its share of requests.
    exhausted: Notify,
    /// Its client did what ends it.
    failed: Notify,
    /// Told to go.
    leaving: Cell<bool>,
    /// Ended: what its requests come to is nobody's doing.
    over: Cell<bool>,
}

/// What becomes of a connection next.
pub(super) enum Ending<T> {
    /// It has ended.
    Ended(T),
    /// It is to end when what runs has.
    Soon,
    /// It is to be dropped.
    Now,
}

impl<H> Connection<H> {
    pub(super) fn new(front: Rc<Front<H>>, client: Client, alt_svc: Option<HeaderValue>) -> Rc<Self> {
        let (limits, timeouts) = front.terms();
        Rc::new(Self {
            client: Rc::new(client),
            resets: RefCell::new(Bucket::new(limits.max_resets)),
            told: Rc::default(),
            open: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            accepted: Cell::new(0),
            exhausted: Notify::new(),
            failed: Notify::new(),
            leaving: Cell::new(false),
            over: Cell::new(false),
            front,
            limits,
            timeouts,
            alt_svc,
        })
    }

    pub(super) fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.front.metrics
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { bytes: self.limits.max_header_bytes as usize, fields: self.limits.max_headers as usize }
    }

    /// It has ended.
    pub(super) fn over(&self) {
        self.over.set(true);
    }

    /// What becomes of the connection that `serving` serves. To be asked again after [`Ending::Soon`], which comes once.
    pub(super) async fn next<T>(&self, serving: impl Future<Output = T>) -> Ending<T> {
        let (mut watch, mut stopping) = (self.front.watch.clone(), self.front.watch.clone());
        let leaving = self.leaving.get();
        let patience = if leaving { GOODBYE } else { self.timeouts.idle };
        let ending = select! {
            ended = serving => Ending::Ended(ended),
            () = stopping.reached(Phase::Stopping) => Ending::Now,
            () = self.failed.notified() => Ending::Now,
            () = watch.reached(Phase::Draining), if !leaving => Ending::Soon,
            () = self.exhausted.notified(), if !leaving => Ending::Soon,
            () = self.idle(patience) => if leaving { Ending::Now } else {
                self.metrics().timeout_idle.increment();
                Ending::Soon
            },
        };
        if matches!(ending, Ending::Soon) {
            self.leaving.set(true);
            self.idle_since.set(Instant::now());
        }
        ending
    }

    /// Waits until there was no request for `patience`.
    async fn idle(&self, patience: Duration) {
        loop {
            let now = Instant::now();
            let since = if self.open.get() == 0 { self.idle_since.get() } else { now };
            let end = since + patience;
            if end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Counts a request that its client cancelled; ends the connection once there were too many in too short a time
    /// (CVE-2023-44487: work begun and thrown away).
    fn count_reset(&self) {
        if self.over.get() {
            return;
        }
        self.metrics().streams_reset_by_client.increment();
        // One a connection is all that HTTP/1.1 can cancel.
        let admitted = self.resets.borrow_mut().take(1, std::time::Instant::now());
        if !admitted && self.client.protocol == Protocol::Http2 {
            self.metrics().limit_resets.increment();
            self.failed.notify_one();
        }
    }
}

/// A request that is being served, until its response has ended.
pub(super) struct Open<H> {
    connection: Rc<Connection<H>>,
    recording: Recording,
    began: Instant,
    ended: bool,
}

impl<H> Open<H> {
    fn new(connection: Rc<Connection<H>>) -> Self {
        connection.open.set(connection.open.get().saturating_add(1));
        connection.metrics().requests_open.increment();
        let recording = connection.front.records.begin(|| Rc::clone(&connection.client));
        Self { connection, recording, began: Instant::now(), ended: false }
    }

    pub(super) fn metrics(&self) -> &WorkerMetrics {
        self.connection.metrics()
    }

    pub(super) fn record(&self) -> &Record {
        self.recording.record()
    }

    /// The response was made to its end.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.recording.ended(End::Complete);
        }
    }

    /// The response breaks off, and not by the client.
    pub(super) fn fail(&mut self) {
        self.ended = true;
        self.recording.ended(End::Failed);
        self.metrics().streams_reset_by_proxy.increment();
    }
}

impl<H> Drop for Open<H> {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.open.set(connection.open.get().saturating_sub(1));
        connection.idle_since.set(Instant::now());
        connection.metrics().requests_open.decrement();
        connection.metrics().request_duration.observe(self.began.elapsed());
        if !self.ended {
            connection.count_reset();
        }
    }
}

impl<H: Handler> Connection<H> {
    /// Answers one request. Dropped before its end, it cancels the exchange.
    pub(super) fn answer(
        self: &Rc<Self>,
        request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<ResponseBody<H>>, Abort>> + use<H> {
        let connection = Rc::clone(self);
        async move {
            let mut open = Open::new(Rc::clone(&connection));
            panic_if_asked("request");
            let method = request.method().clone();
            let fault = Rc::new(Cell::new(None));
            let request = match connection.accept(request, &fault, open.record()).await {
                Ok(request) => request,
                Err(refusal) => return Ok(connection.refuse(refusal, open)),
            };
            connection.count_request();
            let exchange = Exchange {
                request,
                client: Rc::clone(&connection.client),
                interim: Interim::default(),
                record: open.record().clone(),
            };
            match connection.front.handler.handle(exchange).await {
                Ok(response) => Ok(connection.finish(response, &method, open, false)),
                Err(_) if fault.get() == Some(BodyError::Malformed) => {
                    Ok(connection.refuse(Refusal::bad("the request's body is malformed"), open))
                }
                Err(abort) => {
                    open.fail();
                    Err(abort)
                }
            }
        }
    }

    fn count_request(&self) {
        match self.client.protocol {
            Protocol::Http2 => self.metrics().requests_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().requests_h1.increment(),
        }
        self.accepted.set(self.accepted.get().saturating_add(1));
        if self.accepted.get() == self.limits.max_requests {
            self.metrics().limit_requests.increment();
            self.exhausted.notify_one();
        }
    }

    /// Checks a request, and makes it what the handler takes.
    async fn accept(
        &self,
        request: hyper::Request<Incoming>,
        fault: &Rc<Cell<Option<BodyError>>>,
        record: &Record,
    ) -> Result<crate::exchange::Request, Refusal> {
        if let Some(refusal) = self.told.refusal(request.method()) {
            return Err(refusal);
        }
        let (mut parts, incoming) = request.into_parts();
        request::note(&parts, record);
        request::translate(&mut parts, self.client.protocol, &self.bounds())?;
        if let Some(host) = parts.uri.host()
            && !(self.front.covers)(&self.client, host)
        {
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this connection is not for that name"));
        }
        let body = if incoming.is_end_stream() {
            Body::empty()
        } else {
            let metrics = Arc::clone(self.metrics());
            let patience = self.timeouts.request_body;
            let body = RequestBody::new(incoming, patience, Rc::clone(fault), metrics, record.clone());
            body.unless_empty(&parts.method).await.map_or_else(Body::empty, Body::stream)
        };
        Ok(http::Request::from_parts(parts, body))
    }

    /// The front door's own answer, after which an HTTP/1.1 connection closes: what follows may be anything.
    fn refuse(&self, refusal: Refusal, open: Open<H>) -> hyper::Response<ResponseBody<H>> {
        tracing::debug!(client = %self.client.address, error = %refusal, "a request was refused");
        refusal.count(self.metrics());
        open.record().error("http_request_error");
        match self.client.protocol {
            Protocol::Http2 => self.metrics().tcp_refused_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().tcp_refused_h1.increment(),
        }
        self.finish(refusal.response(), &Method::GET, open, true)
    }

    fn finish(
        &self,
        response: Response,
        method: &Method,
        open: Open<H>,
        close: bool,
    ) -> hyper::Response<ResponseBody<H>> {
        let (mut parts, body) = response.into_parts();
        self.front.count_response(parts.status);
        open.record().responded(parts.status);
        if let Some(alt_svc) = &self.alt_svc
            && self.front.watch.phase() < Phase::Draining
        {
            parts.headers.insert(header::ALT_SVC, alt_svc.clone());
        }
        if close && self.client.protocol == Protocol::Http1 {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let bodiless =
            *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if bodiless { Body::empty() } else { body };
        http::Response::from_parts(parts, ResponseBody::new(body, open))
    }
}
