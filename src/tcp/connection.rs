//! One TCP connection as its requests see it, and when it ends.

use super::{
    alt_svc::AltSvc,
    front::{Admitted, TcpWorker},
    http1::{Bounds, Http1Requests},
    io::{ClientSocket, WriteTimeout},
    linger::Lingering,
    share::{CONNECTION_QUEUE, ResponseBuffer},
    tunnel::TunnelHandoff,
    writes::{self, Head, NO_STREAM, Writes},
};
use crate::{
    budget::Budget,
    config::{Limits, Timeouts},
    exchange::{Client, MinimumRate, Protocol, Record, Recording, RequestEnd},
    lifecycle::{Phase, PhaseWatch},
    memory,
    rate::Bucket,
    receive_budget::ReceiveAccount,
    suspension,
    tcp::Metrics,
};
use http::StatusCode;
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::{Future, poll_fn},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{select, sync::Notify, time::Instant};

/// How long a client that was told to close (GOAWAY, `Connection: close`) may keep a connection without requests.
const GOAWAY_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after its handshake to wait for a client's first request when the process drains: a few round trips.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct Connection<H> {
    pub(super) front: Rc<TcpWorker<H>>,
    pub(super) client: Rc<Client>,
    /// Limits in force when the connection began.
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) has_tunnels: bool,
    /// Over HTTP/2: what its client has sent and was not read.
    account: OnceCell<ReceiveAccount>,
    /// The budget of its responses.
    budget: Rc<Budget>,
    /// The registered connection: what memory it holds.
    pub(super) admitted: Admitted,
    /// Set when it is to be closed for want of memory, or for another client.
    told_end: Cell<Option<memory::EvictionReason>>,
    /// The result of HTTP/1.1's guard, and the requests being served.
    pub(super) pipeline: Rc<Http1Requests>,
    /// The tunnel of an HTTP/1.1 connection, when hyper has sent the 101.
    pub(super) tunnel_slot: OnceCell<Weak<TunnelSlot<H>>>,
    /// Advertises HTTP/3, over TLS.
    pub(super) alt_svc: Option<Rc<AltSvc>>,
    /// Since when no request is being served.
    idle_since: Cell<Instant>,
    accepted: Cell<u64>,
    /// Rate limit of cancelled requests.
    resets: RefCell<Bucket>,
    /// Notified of the first request.
    begun: Notify,
    /// Notified once the connection has had `limits.max_requests`.
    exhausted: Notify,
    /// Notified when the client did something that ends the connection.
    failed: Notify,
    /// Told to close.
    leaving: Cell<bool>,
    /// Ended: the outcome of its requests is not a failure.
    over: Cell<bool>,
    /// The connection and its requests were ended for another client.
    evicted: Cell<bool>,
    /// What its client has got.
    pub(super) writes: Rc<Writes<ActiveRequest<H>>>,
    /// Why litequic ends it, if it does.
    reason: Cell<Option<Reason>>,
}

/// Why litequic ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Idle,
    Flood,
    /// Another client got its place.
    Evicted,
    /// The process drains or stops, or the connection has reached its number of requests.
    Done,
}

/// The channel of a tunnel from the request that opened it to the connection's task.
pub(super) type TunnelSlot<H> = Cell<Option<TunnelHandoff<H>>>;

/// The next step of a connection.
pub(super) enum NextStep<T> {
    /// The connection has ended.
    Ended(T),
    /// The connection is to end when its requests have.
    Soon,
    /// The connection is to be dropped.
    Now,
}

impl<H> Connection<H> {
    pub(super) fn new(
        front: Rc<TcpWorker<H>>,
        client: Client,
        alt_svc: Option<Rc<AltSvc>>,
        admitted: Admitted,
    ) -> Rc<Self> {
        let (limits, timeouts) = front.terms();
        let budget = Budget::for_connection(CONNECTION_QUEUE.min(limits.connection_send_buffer.into()));
        let (holder, sends) = (&admitted.holder, Rc::clone(&budget));
        holder.holds(move || sends.used());
        holder.serves(client.address);
        holder.ready();
        Rc::new(Self {
            client: Rc::new(Client { connection: holder.number(), ..client }),
            admitted,
            told_end: Cell::default(),
            budget,
            resets: RefCell::new(Bucket::new(limits.max_resets)),
            has_tunnels: front.has_tunnels(),
            account: OnceCell::new(),
            pipeline: Rc::default(),
            tunnel_slot: OnceCell::new(),
            idle_since: Cell::new(Instant::now()),
            accepted: Cell::new(0),
            begun: Notify::new(),
            exhausted: Notify::new(),
            failed: Notify::new(),
            leaving: Cell::new(false),
            over: Cell::new(false),
            evicted: Cell::new(false),
            writes: Rc::new(Writes::new(Arc::clone(&front.metrics))),
            reason: Cell::new(None),
            front,
            limits,
            timeouts,
            alt_svc,
        })
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.front.metrics
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { bytes: self.limits.max_header_bytes as usize, fields: self.limits.max_headers as usize }
    }

    /// The minimum rate of requests' bodies.
    pub(super) fn upload_pace(&self) -> MinimumRate {
        MinimumRate::new(self.timeouts.request_body, self.limits.min_upload_rate, self.limits.rate_grace)
    }

    /// The minimum rate of responses.
    pub(super) fn download_pace(&self) -> MinimumRate {
        MinimumRate::new(self.timeouts.send, self.limits.min_download_rate, self.limits.rate_grace)
    }

    pub(super) fn lingering(&self) -> Lingering {
        Lingering::new(&self.limits, &self.timeouts, Arc::clone(self.metrics()))
    }

    /// Receives the tunnel that follows HTTP/1.1, if one does. To be called once, by the connection's task.
    pub(super) fn open_tunnel_slot(&self) -> Rc<TunnelSlot<H>> {
        let next = Rc::default();
        // With a reference of its own it would never end: the tunnel's request has the connection.
        let _ = self.tunnel_slot.set(Rc::downgrade(&next));
        next
    }

    /// Accounts the client's bytes in `account`. To be called once, by the connection's task.
    pub(super) fn hold(&self, account: ReceiveAccount) {
        let received = account.clone();
        self.admitted.holder.holds(move || received.held());
        let _ = self.account.set(account);
    }

    /// Waits until it is to be closed because it holds too much.
    async fn held_too_much(&self) {
        poll_fn(|cx| self.account.get().map_or(Poll::Pending, |account| account.poll_over(cx))).await;
    }

    /// Waits until it is to be closed for want of memory, or for another client. One that is `leaving` ends soon by
    /// itself: not for being idle.
    async fn ends_for_others(&self, leaving: bool) -> memory::EvictionReason {
        poll_fn(|cx| {
            let mut told = self.told_end.get();
            loop {
                let end = ready!(self.admitted.holder.poll_end(cx, &mut told));
                self.told_end.set(told);
                if !(leaving && matches!(end, memory::EvictionReason::Idle | memory::EvictionReason::Drained)) {
                    return Poll::Ready(end);
                }
            }
        })
        .await
    }

    /// Returns `stream` with a deadline for writes, whose bytes are accounted.
    pub(super) fn timed<S: ClientSocket>(&self, stream: S) -> WriteTimeout<S, ActiveRequest<H>> {
        WriteTimeout::new(
            stream,
            self.download_pace(),
            Rc::clone(&self.writes),
            self.admitted.holder.motion(),
            Arc::clone(self.metrics()),
        )
    }

    /// Ends it for its client's flood.
    pub(super) fn end_flood(&self) {
        self.reason.set(self.reason.get().or(Some(Reason::Flood)));
        self.failed.notify_one();
    }

    /// Whether it ends for what its client did, or holds.
    pub(super) fn is_flooded(&self) -> bool {
        self.reason.get() == Some(Reason::Flood)
    }

    /// Whether it was told to close.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Counts its end; `broke_off` is an error by hyper.
    pub(super) fn count_end(&self, broke_off: bool) {
        let metrics = self.metrics();
        if self.pipeline.is_flooded() {
            metrics.shared.limit_small_frames.increment();
            self.end_flood();
        }
        if self.pipeline.has_large_trailers() {
            metrics.shared.limit_header_bytes.increment();
        }
        match self.reason.get() {
            _ if self.writes.stalled.get() => metrics.tcp_closed_stalled.increment(),
            _ if self.evicted.get() => metrics.tcp_closed_evicted.increment(),
            Some(Reason::Idle) => metrics.tcp_closed_idle.increment(),
            Some(Reason::Flood) => metrics.tcp_closed_flood.increment(),
            Some(Reason::Evicted) => metrics.tcp_closed_evicted.increment(),
            Some(Reason::Done) => metrics.tcp_closed_litequic.increment(),
            None if broke_off => metrics.tcp_closed_broken.increment(),
            None => metrics.tcp_closed_client.increment(),
        }
    }

    /// Reports that the connection has ended.
    pub(super) fn over(&self) {
        self.over.set(true);
    }

    /// The next step of the connection of `serving`. To be called again after [`NextStep::Soon`], which comes once.
    pub(super) async fn next<T>(&self, serving: impl Future<Output = T>) -> NextStep<T> {
        let (mut watch, mut stopping) = (self.front.watch.clone(), self.front.watch.clone());
        let leaving = self.leaving.get();
        let patience = if leaving { GOAWAY_IDLE_TIMEOUT } else { self.timeouts.idle };
        let (ending, reason) = select! {
            ended = serving => (NextStep::Ended(ended), None),
            () = stopping.reached(Phase::Stopping) => (NextStep::Now, Some(Reason::Done)),
            () = self.failed.notified() => (NextStep::Now, Some(Reason::Flood)),
            () = self.held_too_much() => {
                self.metrics().shared.limit_receive_held.increment();
                (NextStep::Now, Some(Reason::Flood))
            }
            end = self.ends_for_others(leaving) => match end {
                memory::EvictionReason::Heaviest => (NextStep::Now, Some(Reason::Flood)),
                memory::EvictionReason::Idle => (NextStep::Soon, Some(Reason::Idle)),
                memory::EvictionReason::Drained => (NextStep::Soon, Some(Reason::Evicted)),
                memory::EvictionReason::Evicted => {
                    self.evicted.set(true);
                    (NextStep::Now, Some(Reason::Evicted))
                }
            },
            () = self.drained(&mut watch), if !leaving => (NextStep::Soon, Some(Reason::Done)),
            () = self.exhausted.notified(), if !leaving => (NextStep::Soon, Some(Reason::Done)),
            () = self.idle(patience) => if leaving { (NextStep::Now, None) } else {
                self.metrics().timeout_idle.increment();
                (NextStep::Soon, Some(Reason::Idle))
            },
        };
        self.reason.set(self.reason.get().or(reason));
        if matches!(ending, NextStep::Soon) {
            self.leaving.set(true);
            self.idle_since.set(Instant::now());
        }
        ending
    }

    /// Waits for the drain, and on HTTP/1.1 for a first request of a client that has just connected: it has sent one
    /// already, or is about to, and nothing in that protocol would tell it that it was not read.
    async fn drained(&self, watch: &mut PhaseWatch) {
        watch.reached(Phase::Draining).await;
        if self.client.protocol == Protocol::Http1 && self.accepted.get() == 0 {
            let _ = suspension::timeout_at(self.idle_since.get() + FIRST_REQUEST_GRACE, self.begun.notified()).await;
        }
    }

    /// Waits until there was no request for `patience`. A connection that is being closed has deadlines of its own.
    async fn idle(&self, patience: Duration) {
        loop {
            let now = Instant::now();
            let since =
                if self.pipeline.is_serving() || self.writes.closing.get() { now } else { self.idle_since.get() };
            let end = since + patience;
            if end <= now && suspension::grace().is_none() {
                return;
            }
            suspension::elapsed_at(end).await;
        }
    }

    /// Counts a request that was accepted; the last one that the connection may have ends it.
    pub(super) fn count_request(&self) {
        match self.client.protocol {
            Protocol::Http2 => self.metrics().requests_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().requests_h1.increment(),
        }
        self.accepted.set(self.accepted.get().saturating_add(1));
        self.begun.notify_one();
        if self.accepted.get() == self.limits.max_requests {
            self.metrics().shared.limit_requests.increment();
            self.exhausted.notify_one();
        }
    }

    /// Requests that its client may cancel at once.
    pub(super) fn resets_at_once(&self) -> u64 {
        self.resets.borrow().capacity()
    }

    /// Counts a request that its client cancelled; ends the connection once there were too many in too short a time
    /// (CVE-2023-44487: rapid reset).
    fn count_reset(&self) {
        if self.over.get() {
            return;
        }
        self.metrics().shared.streams_reset_by_client.increment();
        // One a connection is all that HTTP/1.1 can cancel.
        let admitted = self.resets.borrow_mut().take(1, std::time::Instant::now());
        if !admitted && self.client.protocol == Protocol::Http2 && !self.is_flooded() {
            self.metrics().shared.limit_resets.increment();
            self.end_flood();
        }
    }
}

/// A request that is being served, until the kernel has its response.
pub(super) struct ActiveRequest<H> {
    connection: Rc<Connection<H>>,
    recording: Recording,
    began: Instant,
    /// The stream of HTTP/2, or [`NO_STREAM`].
    stream: u32,
    /// There is a response that is not a tunnel.
    responded: bool,
    /// Once a piece of the response's body was handed over.
    share: Option<Rc<ResponseBuffer>>,
    /// The handler, or what has the response's body, is not done.
    serving: bool,
    ended: bool,
}

impl<H> ActiveRequest<H> {
    pub(super) fn new(connection: Rc<Connection<H>>, stream: u32) -> Self {
        connection.pipeline.opened();
        connection.admitted.holder.serving(connection.pipeline.serving());
        connection.metrics().shared.requests_open.increment();
        let recording = connection.front.records.begin(|| Rc::clone(&connection.client));
        let began = Instant::now();
        Self { connection, recording, began, stream, responded: false, share: None, serving: true, ended: false }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        self.connection.metrics()
    }

    pub(super) fn record(&self) -> &Record {
        self.recording.record()
    }

    /// Whether the kernel takes nothing more over HTTP/1.1. Over HTTP/2 each piece reports that it was written.
    pub(super) fn is_blocked(&self) -> bool {
        self.stream == NO_STREAM && self.connection.writes.blocked.get()
    }

    /// There is a response.
    pub(super) fn respond(&mut self) {
        self.responded = true;
    }

    /// hyper or h2 gets the header of a response with `status`, which counts once the kernel has its first byte.
    pub(super) fn begin(&self, status: StatusCode) {
        self.connection.writes.begin(self.stream, Head::last(status, self.record().clone()));
    }

    /// Ready once h2 has written the response's header.
    pub(super) fn poll_begun(&self, cx: &Context<'_>) -> Poll<()> {
        self.connection.writes.poll_begun(self.stream, cx)
    }

    /// The share of the response in the send budget.
    pub(super) fn share(&mut self) -> Rc<ResponseBuffer> {
        let connection = &self.connection;
        let budgets = (&connection.budget, &connection.front.budgets.send);
        let limit = connection.limits.stream_send_buffer.into();
        let share = ResponseBuffer::new(budgets, limit, Arc::clone(connection.metrics()), self.record().clone());
        self.share = Some(Rc::clone(&share));
        share
    }

    /// hyper or h2 has all of the response, unless it was cut off. It is complete once the kernel has it. Until then
    /// the connection counts as idle: a client that gives no room in its window for the rest may take as long as any
    /// that sends no request.
    pub(super) fn handed_over(mut self) {
        if !self.ended {
            self.served();
            let writes = Rc::clone(&self.connection.writes);
            writes.end(self.stream, self);
        }
    }

    /// The response was cut off, and not by the client.
    pub(super) fn fail(&mut self) {
        self.break_off(RequestEnd::Failed);
    }

    /// The client stopped reading the response.
    pub(super) fn stall(&mut self) {
        if !self.ended {
            self.break_off(RequestEnd::Stalled);
        }
    }

    /// Another client gets the place of the request, or of its connection.
    pub(super) fn evict(&mut self) {
        if !self.ended {
            self.break_off(RequestEnd::Evicted);
        }
    }

    fn served(&mut self) {
        if !std::mem::take(&mut self.serving) {
            return;
        }
        let connection = &self.connection;
        connection.pipeline.closed();
        if let Some(account) = connection.account.get().filter(|_| !connection.pipeline.is_serving()) {
            account.none_is_left();
        }
        connection.admitted.holder.serving(connection.pipeline.serving());
        connection.idle_since.set(Instant::now());
    }

    fn break_off(&mut self, end: RequestEnd) {
        self.ended = true;
        self.recording.ended(end);
        self.metrics().shared.streams_reset_by_proxy.increment();
        self.connection.writes.forget(self.stream);
    }
}

impl<H> writes::Response for ActiveRequest<H> {
    fn complete(mut self) {
        self.ended = true;
        if let Some(share) = &self.share {
            share.complete();
        }
        self.recording.ended(RequestEnd::Complete);
    }
}

impl<H> Drop for ActiveRequest<H> {
    fn drop(&mut self) {
        if self.connection.writes.stalled.get() {
            self.stall();
        } else if self.connection.evicted.get() {
            self.evict();
        }
        self.served();
        let connection = &self.connection;
        connection.metrics().shared.request_duration.observe(self.began.elapsed());
        if self.responded {
            connection.metrics().shared.response_size.observe(self.share.as_ref().map_or(0, |share| share.written()));
        }
        connection.metrics().shared.requests_open.decrement();
        if !self.ended {
            connection.writes.forget(self.stream);
            connection.count_reset();
        }
    }
}
