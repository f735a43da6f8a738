//! One TCP connection as its requests see it, and when it ends.

use super::{
    body::{RequestBody, ResponseBody},
    front::Front,
    http1::{Bounds, Told},
    http2::{Connected, Stall},
    io::Timed,
    linger::Lingering,
    refusal::Refusal,
    request,
    share::{CONNECTION_QUEUE, Share},
    tunnel::Joint,
};
use crate::{
    budget::Budget,
    config::{Limits, Timeouts},
    exchange::{
        Abort, Body, BodyError, Client, End, Exchange, Handler, Interim, Pace, Protocol, Record, Recording, Response,
    },
    lifecycle::{Phase, Watch, panic_if_asked},
    memory::{self, Holder},
    rate::Bucket,
    receive_budget::Account,
    telemetry::WorkerMetrics,
};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::{Future, poll_fn},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

/// How long a client that was told to go may keep a connection on which nothing runs.
const GOODBYE: Duration = Duration::from_secs(5);

/// How long after its handshake a client's first request is waited for when the process drains: a few round trips.
const GREETING: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct Connection<H> {
    pub(super) front: Rc<Front<H>>,
    pub(super) client: Rc<Client>,
    /// Those of its beginning.
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) has_tunnels: bool,
    /// Over HTTP/2: what its client has sent and was not read.
    account: OnceCell<Account>,
    /// What its responses may hold.
    budget: Rc<Budget>,
    /// What memory it holds.
    holder: Holder,
    /// Why it was told to end for want of memory.
    told_end: Cell<Option<memory::End>>,
    /// What HTTP/1.1's guard found, and the requests being served.
    pub(super) told: Rc<Told>,
    /// What an HTTP/1.1 connection goes on with when hyper has sent the 101.
    joint: OnceCell<Weak<NextJoint<H>>>,
    alt_svc: Option<HeaderValue>,
    /// Since when no request is being served.
    idle_since: Cell<Instant>,
    accepted: Cell<u64>,
    /// Requests that the client may cancel.
    resets: RefCell<Bucket>,
    /// Its first request is there.
    begun: Notify,
    /// It has had its share of requests.
    exhausted: Notify,
    /// Its client did what ends it.
    failed: Notify,
    /// Told to go.
    leaving: Cell<bool>,
    /// Ended: what its requests come to is nobody's doing.
    over: Cell<bool>,
    /// Its client took nothing in time.
    stalled: Rc<Cell<bool>>,
    /// The kernel takes nothing more of it.
    pub(super) blocked: Rc<Cell<bool>>,
    /// Why it is to end, as far as litequic wants it to.
    reason: Cell<Option<Reason>>,
}

/// Why litequic ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Idle,
    Flood,
    /// It drains or stops, or the connection has had its share.
    Done,
}

/// A tunnel on its way from the request that asked for it to who serves its connection.
pub(super) type NextJoint<H> = Cell<Option<Joint<H>>>;

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
        let budget = Budget::for_connection(CONNECTION_QUEUE.min(limits.connection_send_buffer.into()));
        let (holder, sends) = (front.budgets.holders.begin(), Rc::clone(&budget));
        holder.holds(move || sends.used());
        Rc::new(Self {
            holder,
            told_end: Cell::default(),
            budget,
            client: Rc::new(client),
            resets: RefCell::new(Bucket::new(limits.max_resets)),
            has_tunnels: front.has_tunnels(),
            account: OnceCell::new(),
            told: Rc::default(),
            joint: OnceCell::new(),
            idle_since: Cell::new(Instant::now()),
            accepted: Cell::new(0),
            begun: Notify::new(),
            exhausted: Notify::new(),
            failed: Notify::new(),
            leaving: Cell::new(false),
            over: Cell::new(false),
            stalled: Rc::default(),
            blocked: Rc::default(),
            reason: Cell::new(None),
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

    /// Of its requests' bodies.
    fn upload_pace(&self) -> Pace {
        Pace::new(self.timeouts.request_body, self.limits.min_upload_rate, self.limits.rate_grace)
    }

    /// Of its responses.
    pub(super) fn download_pace(&self) -> Pace {
        Pace::new(self.timeouts.send, self.limits.min_download_rate, self.limits.rate_grace)
    }

    pub(super) fn lingering(&self) -> Lingering {
        Lingering::new(&self.limits, &self.timeouts, Arc::clone(self.metrics()))
    }

    /// Where the tunnel will be that follows HTTP/1.1, if one does. To be asked once, by who serves the connection.
    pub(super) fn next_joint(&self) -> Rc<NextJoint<H>> {
        let next = Rc::default();
        // Its own, it would never end: the tunnel's request has the connection.
        let _ = self.joint.set(Rc::downgrade(&next));
        next
    }

    /// What its client sends is accounted in `account`. To be said once, by who serves the connection.
    pub(super) fn hold(&self, account: Account) {
        let received = account.clone();
        self.holder.holds(move || received.held());
        let _ = self.account.set(account);
    }

    /// Waits until it is to be closed because it holds too much.
    async fn held_too_much(&self) {
        poll_fn(|cx| self.account.get().map_or(Poll::Pending, |account| account.poll_over(cx))).await;
    }

    /// Waits until it is to end for want of memory. One that is `leaving` ends soon by itself: not for being idle.
    async fn ends_for_memory(&self, leaving: bool) -> memory::End {
        poll_fn(|cx| {
            let mut told = self.told_end.get();
            loop {
                let end = ready!(self.holder.poll_end(cx, &mut told));
                self.told_end.set(told);
                if !(leaving && end == memory::End::Idle) {
                    return Poll::Ready(end);
                }
            }
        })
        .await
    }

    /// What it goes over, with the deadline of its writes.
    pub(super) fn timed<S>(&self, stream: S) -> Timed<S> {
        Timed::new(
            stream,
            self.download_pace(),
            Rc::clone(&self.stalled),
            Rc::clone(&self.blocked),
            Arc::clone(self.metrics()),
        )
    }

    /// It is about to end by its client's flood.
    pub(super) fn flooded(&self) {
        self.reason.set(self.reason.get().or(Some(Reason::Flood)));
    }

    /// Counts its end; `broke_off` is one that hyper calls an error.
    pub(super) fn count_end(&self, broke_off: bool) {
        let metrics = self.metrics();
        if self.told.is_flooded() {
            metrics.limit_small_frames.increment();
            self.flooded();
        }
        match self.reason.get() {
            _ if self.stalled.get() => metrics.tcp_closed_stalled.increment(),
            Some(Reason::Idle) => metrics.tcp_closed_idle.increment(),
            Some(Reason::Flood) => metrics.tcp_closed_flood.increment(),
            Some(Reason::Done) => metrics.tcp_closed_litequic.increment(),
            None if broke_off => metrics.tcp_closed_broken.increment(),
            None => metrics.tcp_closed_client.increment(),
        }
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
        let (ending, reason) = select! {
            ended = serving => (Ending::Ended(ended), None),
            () = stopping.reached(Phase::Stopping) => (Ending::Now, Some(Reason::Done)),
            () = self.failed.notified() => (Ending::Now, Some(Reason::Flood)),
            () = self.held_too_much() => {
                self.metrics().limit_receive_held.increment();
                (Ending::Now, Some(Reason::Flood))
            }
            end = self.ends_for_memory(leaving) => match end {
                memory::End::Heaviest => (Ending::Now, Some(Reason::Flood)),
                memory::End::Idle => (Ending::Soon, Some(Reason::Idle)),
            },
            () = self.drained(&mut watch), if !leaving => (Ending::Soon, Some(Reason::Done)),
            () = self.exhausted.notified(), if !leaving => (Ending::Soon, Some(Reason::Done)),
            () = self.idle(patience) => if leaving { (Ending::Now, None) } else {
                self.metrics().timeout_idle.increment();
                (Ending::Soon, Some(Reason::Idle))
            },
        };
        self.reason.set(self.reason.get().or(reason));
        if matches!(ending, Ending::Soon) {
            self.leaving.set(true);
            self.idle_since.set(Instant::now());
        }
        ending
    }

    /// Waits for the drain, and on HTTP/1.1 for a first request of a client that has just connected: it has sent one
    /// already, or is about to, and nothing in that protocol would tell it that it was not heard.
    async fn drained(&self, watch: &mut Watch) {
        watch.reached(Phase::Draining).await;
        if self.client.protocol == Protocol::Http1 && self.accepted.get() == 0 {
            let _ = timeout_at(self.idle_since.get() + GREETING, self.begun.notified()).await;
        }
    }

    /// Waits until there was no request for `patience`.
    async fn idle(&self, patience: Duration) {
        loop {
            let now = Instant::now();
            let since = if self.told.is_serving() { now } else { self.idle_since.get() };
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
    /// Bytes of the response's body so far, once there is a response.
    size: Option<u64>,
    ended: bool,
}

impl<H> Open<H> {
    fn new(connection: Rc<Connection<H>>) -> Self {
        connection.told.opened();
        connection.holder.serving(connection.told.serving());
        connection.metrics().requests_open.increment();
        let recording = connection.front.records.begin(|| Rc::clone(&connection.client));
        Self { connection, recording, began: Instant::now(), size: None, ended: false }
    }

    pub(super) fn metrics(&self) -> &WorkerMetrics {
        self.connection.metrics()
    }

    pub(super) fn record(&self) -> &Record {
        self.recording.record()
    }

    /// Its response's share of the send budget.
    pub(super) fn share(&self, stall: Option<Rc<Stall>>) -> Rc<Share> {
        let connection = &self.connection;
        let budgets = (&connection.budget, &connection.front.budgets.send);
        let limit = connection.limits.stream_send_buffer.into();
        Share::new(budgets, limit, stall, Arc::clone(connection.metrics()))
    }

    /// `bytes` more of the response's body were handed over.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.metrics().response_body_bytes.add(bytes);
        self.size = self.size.map(|size| size.saturating_add(bytes));
        self.record().note(|facts| facts.sent = facts.sent.saturating_add(bytes));
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
        self.break_off(End::Failed);
    }

    /// The client takes no more of the response.
    pub(super) fn stall(&mut self) {
        if !self.ended {
            self.break_off(End::Stalled);
        }
    }

    fn break_off(&mut self, end: End) {
        self.ended = true;
        self.recording.ended(end);
        self.metrics().streams_reset_by_proxy.increment();
    }
}

impl<H> Drop for Open<H> {
    fn drop(&mut self) {
        if self.connection.stalled.get() {
            self.stall();
        }
        let connection = &self.connection;
        connection.told.closed();
        if let Some(account) = connection.account.get().filter(|_| !connection.told.is_serving()) {
            account.none_is_left();
        }
        connection.holder.serving(connection.told.serving());
        connection.idle_since.set(Instant::now());
        connection.metrics().request_duration.observe(self.began.elapsed());
        if let Some(size) = self.size {
            connection.metrics().response_size.observe(size);
        }
        connection.metrics().requests_open.decrement();
        if !self.ended {
            connection.count_reset();
        }
    }
}

impl<H: Handler> Connection<H> {
    /// Answers one request. Dropped before its end, it cancels the exchange.
    pub(super) fn answer(
        self: &Rc<Self>,
        mut request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<ResponseBody<H>>, Abort>> + use<H> {
        let connection = Rc::clone(self);
        async move {
            let stream = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
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
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    connection.switch(response, open, stream)
                }
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
        self.begun.notify_one();
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
        if let Some(refusal) = self.told.read() {
            return Err(refusal);
        }
        let (mut parts, incoming) = request.into_parts();
        request::note(&parts, record);
        // Before anything is refused: what it does not read is discarded.
        let body = (!incoming.is_end_stream()).then(|| {
            let (metrics, fault) = (Arc::clone(self.metrics()), Rc::clone(fault));
            let (pace, lingering) = (self.upload_pace(), self.lingering());
            let told = (self.client.protocol == Protocol::Http1).then(|| Rc::clone(&self.told));
            RequestBody::new(incoming, told, pace, fault, metrics, record.clone(), lingering)
        });
        request::translate(&mut parts, self.client.protocol, &self.bounds())?;
        if let Some(host) = parts.uri.host()
            && !(self.front.covers)(&self.client, host)
        {
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this connection is not for that name"));
        }
        let body = match body {
            Some(body) => body.unless_empty(&parts.method).await.map_or_else(Body::empty, Body::stream),
            None => Body::empty(),
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
        mut open: Open<H>,
        close: bool,
    ) -> hyper::Response<ResponseBody<H>> {
        let (mut parts, body) = response.into_parts();
        open.size = Some(0);
        self.answered(parts.status, &open);
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

    /// Answers that the protocol is switched, and has the tunnel joined with what the client sends from now on: when hyper
    /// is done with the connection (HTTP/1.1), or as a task of its own beside the response (HTTP/2, where a yes is 200).
    fn switch(
        &self,
        response: Response,
        open: Open<H>,
        stream: Option<OnUpgrade>,
    ) -> Result<hyper::Response<ResponseBody<H>>, Abort> {
        let (mut parts, body) = response.into_parts();
        // The handler's word for it is a 101 with a tunnel.
        let tunnel = body.into_tunnel().map_err(|_| Abort::Internal)?;
        let fields = &mut parts.headers;
        match (stream, Stall::current()) {
            (None, _) => {
                fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                fields.insert(header::UPGRADE, tunnel.protocol().clone());
                // The guard is not told: what follows is no request, and held for the tunnel.
                self.count(parts.status, &open);
                let next = self.joint.get().and_then(Weak::upgrade).ok_or(Abort::Internal)?;
                next.set(Some(Joint { tunnel, open }));
            }
            (Some(stream), Some(stall)) => {
                parts.status = StatusCode::OK;
                self.answered(parts.status, &open);
                let (pace, metrics) = (Pace::any(self.timeouts.send), Arc::clone(self.metrics()));
                let joint = Joint { tunnel, open };
                let client = Rc::clone(&stall);
                stall.spawn(async move {
                    // An error means that the client has gone before it was told.
                    if let Ok(stream) = stream.await {
                        // A tunnel that stalls ends alone: its connection goes on.
                        let stream = Timed::new(TokioIo::new(stream), pace, Rc::default(), Rc::default(), metrics);
                        joint.join(Connected::new(stream, client)).await;
                    }
                });
            }
            (Some(_), None) => return Err(Abort::Internal), // every stream of HTTP/2 has one
        }
        Ok(http::Response::from_parts(parts, ResponseBody::none()))
    }

    /// Counts and records a response, behind which the next request may be read.
    fn answered(&self, status: StatusCode, open: &Open<H>) {
        self.told.answered();
        self.count(status, open);
    }

    fn count(&self, status: StatusCode, open: &Open<H>) {
        self.metrics().count_response(status);
        open.record().responded(status);
    }
}
