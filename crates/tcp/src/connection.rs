//! One TCP connection as its requests see it, and when it ends.

use super::{
    alt_svc::AltSvc,
    front::{Admitted, TcpWorker},
    io::{ClientSocket, WriteTimeout},
    life::TcpLife,
    linger::Lingering,
    phase::{PhaseStep, TcpEnd, TcpEvent, TcpPhase},
    priorities::Http2Priorities,
    share::{CONNECTION_QUEUE, ResponseBuffer},
    writes::{self, NO_STREAM, QueuedHead, Writes},
};
use crate::metrics::Metrics;
use http::StatusCode;
use litequic_base::{
    lifecycle::{Phase, PhaseWatch},
    timers,
};
use litequic_exchange::{
    Client, ClientTls, Fields, LastAuthority, Protocol, Record, Recording, RequestEnd, priority::Priority, terms::Terms,
};
use litequic_resources::{receive::ReceiveAccount, send::Budget};
use litequic_telemetry::clients::{Description, OpenConnection, TransportReport};
use std::{
    cell::OnceCell,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// How long a client that was told to close (GOAWAY, `Connection: close`) may keep a connection without requests.
const GOAWAY_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after its handshake to wait for a client's first request when the process drains: a few round trips.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct Connection<H> {
    pub(super) front: Rc<TcpWorker<H>>,
    pub(super) client: Rc<Client>,
    /// Limits in force when the connection began.
    pub(super) terms: Rc<Terms>,
    /// The registered connection: what memory it holds.
    pub(super) admitted: Admitted,
    /// The budget of its responses.
    budget: Rc<Budget>,
    /// Over HTTP/2: what its client has sent and was not read.
    account: OnceCell<ReceiveAccount>,
    /// Over HTTP/2, if its responses are sent by their priorities.
    pub(super) priorities: OnceCell<Rc<Http2Priorities>>,
    /// Advertises HTTP/3, over TLS.
    pub(super) alt_svc: Option<Rc<AltSvc>>,
    /// The authority of its last request.
    pub(super) authority: LastAuthority,
    /// What its client has got.
    pub(super) writes: Rc<Writes<ActiveRequest<H>>>,
    /// Where it stands.
    pub(super) life: Rc<TcpLife>,
}

/// The next step of a connection.
pub(super) enum NextStep<T> {
    /// What was served has ended.
    Ended(T),
    /// The client is to be told to close; the connection ends when its requests have.
    GoAway,
    /// The connection is to be dropped.
    Close,
}

impl<H: 'static> OpenConnection for Connection<H> {
    fn address(&self) -> SocketAddr {
        self.client.address
    }

    fn protocol(&self) -> &'static str {
        self.client.protocol.name()
    }

    fn transport(&self) -> TransportReport {
        self.writes.socket.get().map_or_else(TransportReport::default, self.front.transport)
    }

    fn describe(&self) -> Description {
        let Client { local, server_name, identity, .. } = &*self.client;
        Description {
            local: *local,
            server_name: server_name.clone(),
            tls: identity.tls.name(),
            group: identity.group_name(),
            resumed: (identity.tls != ClientTls::Plain).then_some(identity.resumed),
            certificate: identity.certificate.as_ref().map(|certificate| certificate.leaf.clone()),
            requests: self.life.accepted(),
        }
    }
}

impl<H: 'static> Connection<H> {
    pub(super) fn new(
        front: Rc<TcpWorker<H>>,
        client: Client,
        alt_svc: Option<Rc<AltSvc>>,
        admitted: Admitted,
    ) -> Rc<Self> {
        let terms = front.terms();
        let budget = Budget::for_connection(CONNECTION_QUEUE.min(terms.limits.connection_send_buffer.into()));
        let (holder, sends) = (&admitted.holder, Rc::clone(&budget));
        holder.holds(move || sends.used());
        holder.serves(client.address);
        holder.ready();
        let connection = Rc::new(Self {
            client: Rc::new(Client { connection: holder.number(), ..client }),
            admitted,
            budget,
            account: OnceCell::new(),
            priorities: OnceCell::new(),
            alt_svc,
            authority: LastAuthority::default(),
            writes: Rc::new(Writes::new(Arc::clone(&front.metrics))),
            life: Rc::new(TcpLife::new(terms.limits.max_resets)),
            front,
            terms,
        });
        let weak = Rc::downgrade(&connection);
        connection.admitted.holder.represents(weak);
        connection
    }
}

impl<H> Connection<H> {
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.front.metrics
    }

    pub(super) fn lingering(&self) -> Lingering {
        Lingering::new(&self.terms.limits, &self.terms.timeouts, Arc::clone(self.metrics()))
    }

    /// Accounts the client's bytes in `account`. To be called once, by the connection's task.
    pub(super) fn hold(&self, account: ReceiveAccount) {
        let received = account.clone();
        self.admitted.holder.holds(move || received.held());
        let _ = self.account.set(account);
    }

    /// Whether its responses are sent by their priorities.
    pub(super) fn is_ordered(&self) -> bool {
        self.client.protocol == Protocol::Http2 && self.terms.config.is_ordered(self.client.address.ip())
    }

    /// Returns `stream` with a deadline for writes, whose bytes are accounted.
    pub(super) fn timed<S: ClientSocket>(&self, stream: S) -> WriteTimeout<S, ActiveRequest<H>> {
        let timed = WriteTimeout::new(
            stream,
            self.terms.download_pace(),
            Rc::clone(&self.writes),
            self.admitted.holder.motion(),
            Arc::clone(self.metrics()),
        );
        if self.is_ordered() { timed.with_short_queues(self.front.transport) } else { timed }
    }

    /// Whether the operator has closed it.
    fn is_closed_by_operator(&self) -> bool {
        self.life.phase() == TcpPhase::Closed { reason: TcpEnd::Operator }
    }

    /// Whether it ends for what its client did, or holds.
    pub(super) fn is_excessive(&self) -> bool {
        self.life.phase() == TcpPhase::Closed { reason: TcpEnd::Excessive }
    }

    /// The library of its protocol is done with it, after an error if it `broke_off`, or litequic has closed it. Counts
    /// why it ended. To be called once, by the connection's task.
    pub(super) fn end(&self, broke_off: bool) {
        if self.writes.is_stalled() {
            self.life.on(TcpEvent::Stalled);
        }
        self.life.on(TcpEvent::Ended { broke_off });
        let TcpPhase::Closed { reason } = self.life.phase() else { return };
        let metrics = self.metrics();
        match reason {
            TcpEnd::Client => &metrics.tcp_closed_client,
            TcpEnd::Broken => &metrics.tcp_closed_broken,
            TcpEnd::Idle => &metrics.tcp_closed_idle,
            TcpEnd::Excessive => &metrics.tcp_closed_flood,
            TcpEnd::Stalled => &metrics.tcp_closed_stalled,
            TcpEnd::MakesRoom | TcpEnd::Evicted => &metrics.tcp_closed_evicted,
            TcpEnd::Operator => &metrics.tcp_closed_operator,
            TcpEnd::Done => &metrics.tcp_closed_litequic,
        }
        .increment();
    }

    /// The next step of the connection of `serving`. To be called again after [`NextStep::GoAway`], which comes once.
    pub(super) async fn next<T>(&self, serving: impl Future<Output = T>) -> NextStep<T> {
        let (mut watch, mut stop) = (self.front.watch.clone(), self.front.watch.clone());
        let (mut serving, mut idle) = (pin!(serving), pin!(self.idle()));
        let mut stopping = pin!(stop.reached(Phase::Stopping));
        let mut draining = pin!(self.drained(&mut watch));
        let goes_away = self.life.is_going_away();
        // The first of the events that has come. None is polled again once it has: it ends the wait, or the connection.
        let mut poll_event = |cx: &mut Context<'_>| {
            if let Poll::Ready(reason) = self.life.poll_evicted(&self.admitted.holder, cx) {
                return Poll::Ready(TcpEvent::Evict(reason));
            }
            if stopping.as_mut().poll(cx).is_ready() {
                return Poll::Ready(TcpEvent::Stop);
            }
            if !goes_away && draining.as_mut().poll(cx).is_ready() {
                return Poll::Ready(TcpEvent::Drain);
            }
            idle.as_mut().poll(cx).map(|()| {
                if !goes_away {
                    self.metrics().timeout_idle.increment();
                }
                TcpEvent::TimedOut
            })
        };
        poll_fn(|cx| {
            if let Poll::Ready(ended) = serving.as_mut().poll(cx) {
                return Poll::Ready(NextStep::Ended(ended));
            }
            self.life.register(cx);
            loop {
                match self.life.take_step() {
                    PhaseStep::Continue => {}
                    PhaseStep::GoAway => return Poll::Ready(NextStep::GoAway),
                    PhaseStep::Close => return Poll::Ready(NextStep::Close),
                }
                match poll_event(cx) {
                    Poll::Ready(event) => self.life.on(event),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Waits for the drain, and on HTTP/1.1 for a first request of a client that has just connected: it has sent one
    /// already, or is about to, and nothing in that protocol would tell it that it was not read.
    async fn drained(&self, watch: &mut PhaseWatch) {
        watch.reached(Phase::Draining).await;
        if self.client.protocol == Protocol::Http1
            && let TcpPhase::New { since } = self.life.phase()
        {
            // A request is read by the task that polls this.
            let begun = poll_fn(|_| match self.life.phase() {
                TcpPhase::New { .. } => Poll::Pending,
                _ => Poll::Ready(()),
            });
            let _ = timers::timeout_at(since + FIRST_REQUEST_GRACE, begun).await;
        }
    }

    /// Waits until there was no request for as long as the phase allows. A connection that is being closed has
    /// deadlines of its own.
    async fn idle(&self) {
        let patience = if self.life.is_going_away() { GOAWAY_IDLE_TIMEOUT } else { self.terms.timeouts.idle };
        loop {
            let now = Instant::now();
            let since = self.life.phase().idle_since().filter(|_| !self.writes.closing.get()).unwrap_or(now);
            let end = since + patience;
            if end <= now && timers::grace().is_none() {
                return;
            }
            timers::elapsed_at(end).await;
        }
    }

    /// Counts a request that was accepted; the last one that the connection may have ends it.
    pub(super) fn count_request(&self) {
        match self.client.protocol {
            Protocol::Http2 => self.metrics().requests_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().requests_h1.increment(),
        }
        if self.life.request_accepted() == self.terms.limits.max_requests {
            self.metrics().shared.limit_requests.increment();
            self.life.on(TcpEvent::Exhausted);
        }
    }

    /// Counts a request that its client cancelled; ends the connection once there were too many in too short a time
    /// (CVE-2023-44487: rapid reset).
    fn count_reset(&self) {
        let is_http2 = self.client.protocol == Protocol::Http2;
        // What ends its connection ends its requests.
        if is_http2 && self.life.is_closed() {
            return;
        }
        self.metrics().shared.streams_reset_by_client.increment();
        // One a connection is all that HTTP/1.1 can cancel.
        if is_http2 && !self.life.request_cancelled() {
            self.metrics().shared.limit_resets.increment();
            self.life.on(TcpEvent::Excessive);
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
    /// The priority by the request, if responses are sent by their priorities.
    priority: Option<Priority>,
    /// The handler, or what has the response's body, is not done.
    serving: bool,
    ended: bool,
}

impl<H> ActiveRequest<H> {
    pub(super) fn new(connection: Rc<Connection<H>>, stream: u32) -> Self {
        connection.life.request_began();
        connection.admitted.holder.serving(connection.life.serving());
        connection.metrics().shared.requests_open.increment();
        let recording = connection.front.records.begin(|| Rc::clone(&connection.client));
        let began = Instant::now();
        Self {
            connection,
            recording,
            began,
            stream,
            responded: false,
            share: None,
            priority: None,
            serving: true,
            ended: false,
        }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        self.connection.metrics()
    }

    pub(super) fn record(&self) -> &Record {
        self.recording.record()
    }

    /// Whether the kernel takes nothing more over HTTP/1.1. Over HTTP/2 each piece reports that it was written.
    pub(super) fn is_blocked(&self) -> bool {
        self.stream == NO_STREAM && self.connection.writes.is_blocked()
    }

    /// The request has come, with `fields`.
    pub(super) fn prioritize(&mut self, fields: &Fields, is_tunnel: bool) {
        let Some(priorities) = self.connection.priorities.get() else { return };
        let priority = priorities.request(self.stream, fields, is_tunnel);
        self.priority = Some(priority);
        self.record().note(|facts| facts.priority = Some(priority));
    }

    /// The priority by the request, if responses are sent by their priorities.
    pub(super) const fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// There is a response, with `fields`.
    pub(super) fn respond(&mut self, fields: &Fields) {
        self.responded = true;
        if let (Some(priorities), Some(priority)) = (self.connection.priorities.get(), self.priority)
            && let Some(priority) = priorities.response(self.stream, priority, fields)
        {
            self.record().note(|facts| facts.priority = Some(priority));
        }
    }

    /// hyper or h2 gets the header of a response with `status`, which counts once the kernel has its first byte.
    pub(super) fn begin(&self, status: StatusCode) {
        self.connection.writes.begin(self.stream, QueuedHead::last(status, self.record().clone()));
    }

    /// Ready once h2 has written the response's header.
    pub(super) fn poll_begun(&self, cx: &Context<'_>) -> Poll<()> {
        self.connection.writes.poll_begun(self.stream, cx)
    }

    /// The share of the response in the send budget.
    pub(super) fn share(&mut self) -> Rc<ResponseBuffer> {
        let connection = &self.connection;
        let (own, worker) = (&connection.budget, &connection.front.send);
        let limit = connection.terms.limits.stream_send_buffer.into();
        let metrics = Arc::clone(connection.metrics());
        let share = ResponseBuffer::new(own, worker, limit, metrics, self.record().clone());
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
        connection.life.request_ended();
        if let Some(account) = connection.account.get().filter(|_| !connection.life.is_serving()) {
            account.none_is_left();
        }
        connection.admitted.holder.serving(connection.life.serving());
    }

    fn break_off(&mut self, end: RequestEnd) {
        self.ended = true;
        self.recording.ended(end);
        self.metrics().shared.streams_reset_by_proxy.increment();
        self.connection.writes.forget(self.stream);
    }
}

impl<H> writes::OpenResponse for ActiveRequest<H> {
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
        if self.connection.writes.is_stalled() {
            self.stall();
        } else if self.connection.life.phase() == (TcpPhase::Closed { reason: TcpEnd::Evicted }) {
            self.evict();
        } else if !self.ended && self.connection.is_closed_by_operator() {
            self.break_off(RequestEnd::Closed);
        }
        self.served();
        let connection = &self.connection;
        connection.metrics().shared.request_duration.observe(self.began.elapsed());
        if self.responded {
            connection.metrics().shared.response_size.observe(self.share.as_ref().map_or(0, |share| share.written()));
        }
        connection.metrics().shared.requests_open.decrement();
        if let Some(priorities) = connection.priorities.get() {
            priorities.forget(self.stream);
        }
        if !self.ended {
            connection.writes.forget(self.stream);
            connection.count_reset();
        }
    }
}
