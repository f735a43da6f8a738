//! Holds the state that the requests of one TCP connection share, and ends the connection.

use super::{
    body_discard::LingerLimits,
    connection_writes::{self, ConnectionWrites, NO_STREAM, QueuedHead},
    listener_alt_svc::ListenerAltSvc,
    priorities::Http2Priorities,
    response_buffer::{MAX_CONNECTION_QUEUE, ResponseBuffer},
    tcp_lifecycle::TcpLifecycle,
    tcp_phase::{PhaseStep, TcpEnd, TcpEvent, TcpPhase},
    tcp_worker::{AdmittedConnection, TcpWorker},
    write_timeout::{ClientSocket, WriteTimeout},
};
use http::StatusCode;
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase},
    timers,
};
use litequic_exchange::{
    Client, Fields, LastAuthority, Protocol, RecordGuard, RequestEnd, RequestRecord, priority::Priority, terms::Terms,
};
use litequic_resources::{receive::ReceiveAccount, send::SendBudget};
use litequic_telemetry::clients::{ConnectionDescription, OpenConnection, TransportReport};
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

/// Idle timeout of a client that was requested to close (GOAWAY, `Connection: close`).
const GOAWAY_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after its handshake for which a client's first request is waited for when the process drains: a few round
/// trips.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);

pub(super) struct TcpConnection<H> {
    pub(super) worker: Rc<TcpWorker<H>>,
    pub(super) client: Rc<Client>,
    /// Limits in force when the connection began.
    pub(super) terms: Rc<Terms>,
    /// Registration of the connection, and of its memory.
    pub(super) admitted: AdmittedConnection,
    /// Budget for the bytes of responses.
    budget: Rc<SendBudget>,
    /// Over HTTP/2: bytes received from the client and not read.
    account: OnceCell<ReceiveAccount>,
    /// Priorities of the responses over HTTP/2, if responses are sent by their priorities.
    pub(super) priorities: OnceCell<Rc<Http2Priorities>>,
    /// Value of `Alt-Svc`, for connections over TLS.
    pub(super) alt_svc: Option<Rc<ListenerAltSvc>>,
    /// Authority of the connection's last request.
    pub(super) authority: LastAuthority,
    /// Responses on their way to the kernel.
    pub(super) writes: Rc<ConnectionWrites<ActiveRequest<H>>>,
    pub(super) lifecycle: Rc<TcpLifecycle>,
}

/// The next step of a connection.
pub(super) enum ConnectionStep<T> {
    /// The polled future has ended.
    Ended(T),
    /// The client is to be requested to close. The connection ends with its last request.
    GoAway,
    /// The connection is to be dropped.
    Close,
}

impl<H: 'static> OpenConnection for TcpConnection<H> {
    fn remote_address(&self) -> SocketAddr {
        self.client.address
    }

    fn http_version(&self) -> &'static str {
        self.client.protocol.protocol_name()
    }

    fn path_report(&self) -> TransportReport {
        self.writes.socket.get().map_or_else(TransportReport::default, self.worker.transport)
    }

    fn describe_connection(&self) -> ConnectionDescription {
        ConnectionDescription::of_client(&self.client, self.lifecycle.accepted.get())
    }
}

impl<H: 'static> TcpConnection<H> {
    pub(super) fn new(
        front: Rc<TcpWorker<H>>,
        client: Client,
        alt_svc: Option<Rc<ListenerAltSvc>>,
        admitted: AdmittedConnection,
    ) -> Rc<Self> {
        let terms = front.current_terms();
        let budget = SendBudget::for_connection(MAX_CONNECTION_QUEUE.min(terms.limits.connection_send_buffer.into()));
        let (holder, sends) = (&admitted.entry, Rc::clone(&budget));
        holder.add_memory_counter(move || sends.leased_bytes());
        holder.set_client_address(client.address);
        holder.mark_ready();
        let connection = Rc::new(Self {
            client: Rc::new(Client { connection: holder.id, ..client }),
            admitted,
            budget,
            account: OnceCell::new(),
            priorities: OnceCell::new(),
            alt_svc,
            authority: LastAuthority::default(),
            writes: Rc::new(ConnectionWrites::new(Arc::clone(&front.metrics))),
            lifecycle: Rc::new(TcpLifecycle::new(terms.limits.max_resets)),
            worker: front,
            terms,
        });
        let weak = Rc::downgrade(&connection);
        connection.admitted.entry.set_open_connection(weak);
        connection
    }
}

impl<H> TcpConnection<H> {
    pub(super) fn linger_limits(&self) -> LingerLimits {
        let Terms { limits, timeouts, .. } = &*self.terms;
        let metrics = Arc::clone(&self.worker.metrics);
        LingerLimits { bytes: limits.max_lingering_bytes, timeout: timeouts.lingering, metrics }
    }

    /// Sets the account of bytes received from the client. To be called once, by the connection's task.
    pub(super) fn account_received(&self, account: ReceiveAccount) {
        let received = account.clone();
        self.admitted.entry.add_memory_counter(move || received.unread_bytes());
        let _ = self.account.set(account);
    }

    /// Whether responses are sent by their priorities.
    pub(super) fn has_ordered_responses(&self) -> bool {
        self.client.protocol == Protocol::Http2 && self.terms.config.orders_responses(self.client.address.ip())
    }

    /// Returns `stream` with a deadline for writes, and with accounting of its bytes.
    pub(super) fn with_write_timeout<S: ClientSocket>(&self, stream: S) -> WriteTimeout<S, ActiveRequest<H>> {
        let timed = WriteTimeout::new(
            stream,
            self.terms.minimum_download_rate(),
            Rc::clone(&self.writes),
            self.admitted.entry.traffic_counter(),
            Arc::clone(&self.worker.metrics),
        );
        if self.has_ordered_responses() { timed.with_queue_limit(self.worker.transport) } else { timed }
    }

    /// Counts the end of the connection by its reason: hyper or h2 has ended it, after an error if it `broke_off`, or
    /// litequic has closed it. To be called once, by the connection's task.
    pub(super) fn finish_connection(&self, broke_off: bool) {
        if self.writes.is_stalled() {
            self.lifecycle.on_event(TcpEvent::Stalled);
        }
        self.lifecycle.on_event(TcpEvent::Ended { broke_off });
        let TcpPhase::Closed { reason } = self.lifecycle.tcp_phase() else { return };
        let metrics = &self.worker.metrics;
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

    /// Waits for the connection's next step, while `serving` is polled. To be called again after
    /// [`ConnectionStep::GoAway`], which is returned once.
    pub(super) async fn next_step<T>(&self, serving: impl Future<Output = T>) -> ConnectionStep<T> {
        let (mut watch, mut stop) = (self.worker.watch.clone(), self.worker.watch.clone());
        let (mut serving, mut idle) = (pin!(serving), pin!(self.wait_for_idle_timeout()));
        let mut stopping = pin!(stop.wait_for_phase(ProcessPhase::Stopping));
        let mut draining = pin!(self.wait_for_drain(&mut watch));
        let goes_away = self.lifecycle.is_going_away();
        // Polls for the first event. No future is polled again once it is ready: its event ends the wait, or the
        // connection.
        let mut poll_event = |cx: &mut Context<'_>| {
            if let Poll::Ready(reason) = self.lifecycle.poll_eviction_reason(&self.admitted.entry, cx) {
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
                    self.worker.metrics.timeout_idle.increment();
                }
                TcpEvent::TimedOut
            })
        };
        poll_fn(|cx| {
            if let Poll::Ready(ended) = serving.as_mut().poll(cx) {
                return Poll::Ready(ConnectionStep::Ended(ended));
            }
            self.lifecycle.register_task(cx);
            loop {
                match self.lifecycle.take_step() {
                    PhaseStep::Continue => {}
                    PhaseStep::GoAway => return Poll::Ready(ConnectionStep::GoAway),
                    PhaseStep::Close => return Poll::Ready(ConnectionStep::Close),
                }
                match poll_event(cx) {
                    Poll::Ready(event) => self.lifecycle.on_event(event),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Polls `ending` to its end, without a request to the client to close. Returns `None` if the connection is to be
    /// dropped before.
    pub(super) async fn run_to_end<T>(&self, ending: impl Future<Output = T>) -> Option<T> {
        let mut ending = pin!(ending);
        loop {
            match self.next_step(ending.as_mut()).await {
                ConnectionStep::Ended(output) => return Some(output),
                ConnectionStep::GoAway => {}
                ConnectionStep::Close => return None,
            }
        }
    }

    /// Waits for the drain. On HTTP/1.1 also waits for the first request of a client that has just connected: the
    /// request is probably on its way, and HTTP/1.1 has no message that it was not read.
    async fn wait_for_drain(&self, watch: &mut PhaseWatch) {
        watch.wait_for_phase(ProcessPhase::Draining).await;
        if self.client.protocol == Protocol::Http1
            && let TcpPhase::New { since } = self.lifecycle.tcp_phase()
        {
            // The task that polls this future reads the request.
            let begun = poll_fn(|_| match self.lifecycle.tcp_phase() {
                TcpPhase::New { .. } => Poll::Pending,
                _ => Poll::Ready(()),
            });
            let _ = timers::timeout_at(since + FIRST_REQUEST_GRACE, begun).await;
        }
    }

    /// Waits until the connection has been idle for the timeout of its phase. A connection that is being closed has
    /// deadlines of its own.
    async fn wait_for_idle_timeout(&self) {
        let timeout = if self.lifecycle.is_going_away() { GOAWAY_IDLE_TIMEOUT } else { self.terms.timeouts.idle };
        loop {
            let now = Instant::now();
            let since =
                self.lifecycle.tcp_phase().phase_idle_since().filter(|_| !self.writes.closing.get()).unwrap_or(now);
            let end = since + timeout;
            if end <= now && timers::grace_deadline().is_none() {
                return;
            }
            timers::sleep_until_counted(end).await;
        }
    }

    /// Counts an accepted request. The last one that the connection may have ends it.
    pub(super) fn count_request(&self) {
        match self.client.protocol {
            Protocol::Http2 => self.worker.metrics.requests_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.worker.metrics.requests_h1.increment(),
        }
        if self.lifecycle.count_accepted() == self.terms.limits.max_requests {
            self.worker.metrics.shared.limit_requests.increment();
            self.lifecycle.on_event(TcpEvent::Exhausted);
        }
    }

    /// Counts a request that its client cancelled. Ends the connection after too many in too short a time
    /// (CVE-2023-44487: rapid reset).
    fn count_reset(&self) {
        let is_http2 = self.client.protocol == Protocol::Http2;
        // The end of a connection ends its requests, which is no reset.
        if is_http2 && self.lifecycle.is_closed() {
            return;
        }
        self.worker.metrics.shared.streams_reset_by_client.increment();
        // HTTP/1.1 can cancel only one request a connection.
        if is_http2 && !self.lifecycle.on_request_cancelled() {
            self.worker.metrics.shared.limit_resets.increment();
            self.lifecycle.on_event(TcpEvent::Excessive);
        }
    }
}

/// A request in progress, until the kernel has its response.
pub(super) struct ActiveRequest<H> {
    pub(super) connection: Rc<TcpConnection<H>>,
    recording: RecordGuard,
    began: Instant,
    /// Stream of HTTP/2, or [`NO_STREAM`].
    stream: u32,
    responded: bool,
    /// `None` before the first piece of the response's body.
    buffer: Option<Rc<ResponseBuffer>>,
    /// Priority of the request, if responses are sent by their priorities.
    pub(super) priority: Option<Priority>,
    /// The request counts as being served.
    serving: bool,
    ended: bool,
}

impl<H> ActiveRequest<H> {
    pub(super) fn new(connection: Rc<TcpConnection<H>>, stream: u32) -> Self {
        connection.lifecycle.on_request_began();
        connection.admitted.entry.set_open_requests(connection.lifecycle.serving.get() as usize);
        connection.worker.metrics.shared.requests_open.increment();
        let recording = connection.worker.records.begin_record(|| Rc::clone(&connection.client));
        let began = Instant::now();
        Self {
            connection,
            recording,
            began,
            stream,
            responded: false,
            buffer: None,
            priority: None,
            serving: true,
            ended: false,
        }
    }

    pub(super) fn request_record(&self) -> &RequestRecord {
        &self.recording.0
    }

    /// Whether the kernel accepts nothing more over HTTP/1.1. Over HTTP/2 each piece reports its write.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.stream == NO_STREAM && self.connection.writes.is_blocked()
    }

    /// Sets the priority of the request, which has `fields`.
    pub(super) fn set_initial_priority(&mut self, fields: &Fields, is_tunnel: bool) {
        let Some(priorities) = self.connection.priorities.get() else { return };
        let priority = priorities.assign_request_priority(self.stream, fields, is_tunnel);
        self.priority = Some(priority);
        self.request_record().update_facts(|facts| facts.priority = Some(priority));
    }

    /// Applies the priority in the response's `fields`.
    pub(super) fn on_response_fields(&mut self, fields: &Fields) {
        self.responded = true;
        if let (Some(priorities), Some(priority)) = (self.connection.priorities.get(), self.priority)
            && let Some(priority) = priorities.merge_response_priority(self.stream, priority, fields)
        {
            self.request_record().update_facts(|facts| facts.priority = Some(priority));
        }
    }

    /// Queues the header of a response with `status`, which counts once the kernel has its first byte.
    pub(super) fn begin_response_head(&self, status: StatusCode) {
        self.connection
            .writes
            .queue_head(self.stream, QueuedHead::from_final_status(status, self.request_record().clone()));
    }

    /// Ready once h2 has written the response's header.
    pub(super) fn poll_head_written(&self, cx: &Context<'_>) -> Poll<()> {
        self.connection.writes.poll_stream_head_written(self.stream, cx)
    }

    /// Creates the buffer of the response in the send budget.
    pub(super) fn open_buffer(&mut self) -> Rc<ResponseBuffer> {
        let connection = &self.connection;
        let (own, worker) = (&connection.budget, &connection.worker.send);
        let limit = connection.terms.limits.stream_send_buffer.into();
        let metrics = Arc::clone(&connection.worker.metrics);
        let share = ResponseBuffer::new(own, worker, limit, metrics, self.request_record().clone());
        self.buffer = Some(Rc::clone(&share));
        share
    }

    /// Reports that hyper or h2 has the whole response, which is complete once the kernel has it. Until then the
    /// connection counts as idle: a client that leaves its window shut gets as much time as one that sends no request.
    pub(super) fn hand_over_response(mut self) {
        if !self.ended {
            self.end_serving();
            let writes = Rc::clone(&self.connection.writes);
            writes.queue_response_end(self.stream, self);
        }
    }

    /// Ends the request because its response was cut off, and not by the client.
    pub(super) fn fail_request(&mut self) {
        self.cut_off_request(RequestEnd::Failed);
    }

    /// Ends the request because its client stopped reading the response.
    pub(super) fn stall_request(&mut self) {
        if !self.ended {
            self.cut_off_request(RequestEnd::Stalled);
        }
    }

    /// Ends the request, to make room for another client's request or connection.
    pub(super) fn evict_request(&mut self) {
        if !self.ended {
            self.cut_off_request(RequestEnd::Evicted);
        }
    }

    fn end_serving(&mut self) {
        if !std::mem::take(&mut self.serving) {
            return;
        }
        let connection = &self.connection;
        connection.lifecycle.on_request_done();
        if let Some(account) = connection.account.get().filter(|_| !connection.lifecycle.is_serving()) {
            account.release_unread();
        }
        connection.admitted.entry.set_open_requests(connection.lifecycle.serving.get() as usize);
    }

    fn cut_off_request(&mut self, end: RequestEnd) {
        self.ended = true;
        self.recording.set_end(end);
        self.connection.worker.metrics.shared.streams_reset_by_proxy.increment();
        self.connection.writes.drop_response(self.stream);
    }
}

impl<H> connection_writes::OpenResponse for ActiveRequest<H> {
    fn complete_response(mut self) {
        self.ended = true;
        if let Some(share) = &self.buffer {
            share.on_all_written();
        }
        self.recording.set_end(RequestEnd::Complete);
    }
}

impl<H> Drop for ActiveRequest<H> {
    fn drop(&mut self) {
        if self.connection.writes.is_stalled() {
            self.stall_request();
        } else if self.connection.lifecycle.is_closed_for(TcpEnd::Evicted) {
            self.evict_request();
        } else if !self.ended && self.connection.lifecycle.is_closed_for(TcpEnd::Operator) {
            self.cut_off_request(RequestEnd::Closed);
        }
        self.end_serving();
        let connection = &self.connection;
        connection.worker.metrics.shared.request_duration.observe_time(self.began.elapsed());
        if self.responded {
            connection
                .worker
                .metrics
                .shared
                .response_size
                .observe_size(self.buffer.as_ref().map_or(0, |share| share.written_bytes()));
        }
        connection.worker.metrics.shared.requests_open.decrement();
        if let Some(priorities) = connection.priorities.get() {
            priorities.order.forget_overrides(self.stream.into());
        }
        if !self.ended {
            connection.writes.drop_response(self.stream);
            connection.count_reset();
        }
    }
}
