//! Serves one HTTP/3 connection: accepts its streams, enforces its limits, and ends it with GOAWAY (RFC 9114 §5.2).

use super::{
    connection_requests::ConnectionRequests,
    error_code::{ErrorCode, to_application_error},
    frame::{encode_goaway, settings::Settings},
    http3_phase::{Http3End, Http3Event, Http3Phase},
    http3_worker::{ConnectionMemory, Http3Connection, Http3Worker, take_client},
    request_stream,
    stream_type::StreamType,
    unidirectional_streams,
};
use bytes::{Bytes, BytesMut};
use litequic_base::{
    lifecycle::{ProcessPhase, propagate_panic},
    timers::ClockTurn,
};
use litequic_exchange::Handler;
use litequic_resources::{
    connections::EvictionReason,
    transport::{Alert, ConnectionAlerts, SendWindow, Transport},
};
use s2n_quic::{
    connection::StreamAcceptor,
    stream::{BidirectionalStream, PeerStream, SendStream},
};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{select, task::JoinSet, time::timeout};

/// Stream ID in the first GOAWAY: the largest that a client may use, so that no running request is retried elsewhere
/// (RFC 9114 §5.2).
const MAX_STREAM_ID: u64 = (1 << 62) - 4;
/// Longest wait until a client allows the control stream. It has to allow three unidirectional streams from the
/// beginning (RFC 9114 §6.2). Without one there are no settings and no GOAWAY, and a drain waits for its deadline.
const CONTROL_STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the acknowledgement of a GOAWAY, which takes a round trip.
const GOAWAY_ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. Dropping the future ends its requests and the connection.
///
/// `windows` belongs to the endpoint that accepted the connection.
pub async fn serve_http3<H: Handler>(
    mut connection: s2n_quic::Connection,
    handler: Rc<H>,
    front: Rc<Http3Worker>,
    windows: Rc<dyn Transport>,
) {
    let Some(client) = take_client(&mut connection, &front) else { return }; // closed already
    let (handle, acceptor) = connection.split();
    let Some(account) = windows.receive_account(handle.id()) else { return };
    let Some(holder) = front.admit_quic_client(client.address) else {
        // No code says that a server is full, except in reply to the first packet. The client connects again later, or
        // over TCP.
        handle.close(to_application_error(ErrorCode::NoError));
        return;
    };
    let memory = ConnectionMemory::new(holder, account, &front.current_terms());
    let connection = Rc::new(Http3Connection::new(handle, client, handler, front, Rc::clone(&windows), memory));
    let weak = Rc::downgrade(&connection);
    connection.memory.entry.set_open_connection(weak);
    let front = &connection.worker;

    let (life, memory) = (&connection.lifecycle, &connection.memory);
    let mut streams = ClientStreams {
        acceptor,
        connection: &connection,
        windows: &*windows,
        serve: request_stream::serve_request,
        requests: ConnectionRequests::new(),
        unidirectional: JoinSet::new(),
    };
    let waker = streams.requests.connection_waker();
    let mut watch = front.watch.clone();
    let mut eviction = EvictionState::default();
    let alerts = windows.connection_alerts(connection.handle.id());
    let mut stopping = pin!(watch.wait_for_phase(ProcessPhase::Stopping));
    let mut goaway = pin!(run_control_stream(&connection));
    // Kept until the connection ends: closing a control stream is an error (RFC 9114 §6.2.1).
    let mut control_after_goaway = None;
    // Each turn does all that is ready: on a busy connection several requests begin and end in each.
    let reason = poll_fn(|task| {
        let _turn = ClockTurn::start_turn();
        let is_woken = streams.requests.begin_poll_turn(task);
        let cx = &mut Context::from_waker(&waker);
        if is_woken && streams.poll_accept_streams(cx).is_ready() {
            return Poll::Ready(None); // the connection is gone
        }
        let has_ended = streams.requests.poll_woken();
        // A request that begins here is polled in the next turn.
        if has_ended && !is_woken && streams.requests.is_empty() && streams.poll_accept_streams(cx).is_ready() {
            return Poll::Ready(None);
        }
        if streams.requests.has_woken() {
            task.waker().wake_by_ref();
        }
        if !is_woken && !has_ended {
            return Poll::Pending;
        }
        while let Poll::Ready(Some(ended)) = streams.unidirectional.poll_join_next(cx) {
            propagate_panic(ended);
        }
        connection.lingering.poll_discards(cx);
        memory.entry.set_open_requests(streams.requests.len());
        if let Poll::Ready(end) = eviction.poll_eviction_orders(cx, &connection) {
            return Poll::Ready(end);
        }
        if streams.requests.is_empty() && connection.lingering.is_empty() {
            // The loop above has accepted every stream that s2n-quic knows, so that no stream's bytes are unread.
            memory.received.release_unread();
        }
        if memory.received.poll_over_budget(cx).is_ready() {
            front.metrics.shared.limit_receive_held.increment();
            connection.close_for_violation(ErrorCode::ExcessiveLoad);
            return Poll::Ready(None);
        }
        if close_on_alert(cx, &*alerts, &connection) {
            return Poll::Ready(None);
        }
        // Polled after everything that may have exhausted the connection.
        if control_after_goaway.is_none()
            && let Poll::Ready(stream) = goaway.as_mut().poll(cx)
        {
            control_after_goaway = Some(stream);
        }
        let drained = control_after_goaway.is_some() && streams.requests.is_empty() && connection.lingering.is_empty();
        if drained || stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Http3End::Done));
        }
        Poll::Pending
    })
    .await;
    if let Some(reason) = reason {
        life.on_event(Http3Event::Close(reason));
        connection.handle.close(to_application_error(ErrorCode::NoError));
    }
}

/// Orders to end that a connection has received: for want of memory or slots, or from the operator.
#[derive(Default)]
struct EvictionState {
    reported: Option<EvictionReason>,
    is_leaving: bool,
    is_closed_by_operator: bool,
}

impl EvictionState {
    /// Acts on each new order, and counts it. Ready once the connection is to be closed at once, with `None` if it is
    /// closed already.
    fn poll_eviction_orders<H>(&mut self, cx: &Context<'_>, connection: &Http3Connection<H>) -> Poll<Option<Http3End>> {
        let (life, metrics) = (&connection.lifecycle, &connection.worker.metrics);
        while let Poll::Ready(end) = connection.memory.entry.poll_eviction(cx, &mut self.reported) {
            match end {
                EvictionReason::Idle => _ = life.on_event(Http3Event::Leave),
                EvictionReason::Drained => {
                    self.is_leaving = true;
                    metrics.evicted_idle.increment();
                    life.on_event(Http3Event::Leave);
                }
                EvictionReason::Evicted => {
                    // An earlier order to leave has counted the connection.
                    if !std::mem::replace(&mut self.is_leaving, true) {
                        metrics.evicted_in_use.increment();
                    }
                    return Poll::Ready(Some(Http3End::Evicted));
                }
                EvictionReason::Operator => {
                    if !std::mem::replace(&mut self.is_closed_by_operator, true) {
                        metrics.closed_by_operator.increment();
                    }
                    life.on_event(Http3Event::Leave);
                }
                EvictionReason::OperatorNow => {
                    if !self.is_closed_by_operator {
                        metrics.closed_by_operator.increment();
                    }
                    return Poll::Ready(Some(Http3End::Operator));
                }
                EvictionReason::Heaviest => {
                    connection.close_for_violation(ErrorCode::ExcessiveLoad);
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Pending
    }
}

/// Acts on the transport's alerts. Returns whether the connection was closed for one.
fn close_on_alert<H: Handler>(
    cx: &mut Context<'_>,
    alerts: &dyn ConnectionAlerts,
    connection: &Http3Connection<H>,
) -> bool {
    let metrics = &connection.worker.metrics;
    while let Poll::Ready(alert) = alerts.poll_alert(cx) {
        match alert {
            Alert::Flood => {
                metrics.shared.limit_control_frames.increment();
                connection.close_for_violation(ErrorCode::ExcessiveLoad);
                return true;
            }
            // A stream whose peer has stopped reading counts as closed (RFC 9000 §3.5).
            Alert::CriticalStreamStopped => {
                connection.close_for_violation(ErrorCode::ClosedCriticalStream);
                return true;
            }
            Alert::LastAddress => {
                metrics.limit_addresses.increment();
                connection.lifecycle.on_event(Http3Event::Leave);
            }
        }
    }
    false
}

/// The streams of one client. The connection's task serves the requests; each unidirectional stream has a task.
struct ClientStreams<'c, H, F> {
    acceptor: StreamAcceptor,
    connection: &'c Rc<Http3Connection<H>>,
    windows: &'c dyn Transport,
    serve: ServeRequest<H, F>,
    requests: ConnectionRequests<F>,
    unidirectional: JoinSet<()>,
}

/// The function that serves a request. Its future has no name: [`request_stream::serve_request`].
type ServeRequest<H, F> = fn(BidirectionalStream, Box<dyn SendWindow>, Rc<Http3Connection<H>>) -> F;

impl<H: Handler, F: Future<Output = ()>> ClientStreams<'_, H, F> {
    /// Accepts every stream that has arrived. Ready once the connection is gone.
    fn poll_accept_streams(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.acceptor.poll_accept(cx)) {
                Ok(Some(PeerStream::Bidirectional(stream))) => self.begin_request_stream(stream),
                Ok(Some(PeerStream::Receive(stream))) => {
                    self.unidirectional
                        .spawn_local(unidirectional_streams::serve_unidirectional(stream, Rc::clone(self.connection)));
                }
                Ok(None) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn begin_request_stream(&mut self, mut stream: BidirectionalStream) {
        let (id, connection) = (stream.id(), self.connection);
        let window = self.windows.open_send_window(connection.handle.id(), id);
        connection.priorities.on_stream_opened(id);
        let Some(accepted) = connection.lifecycle.accept_request(id) else {
            reject_stream(&mut stream);
            return;
        };
        if accepted == connection.terms.limits.max_requests {
            connection.worker.metrics.shared.limit_requests.increment();
            connection.lifecycle.on_event(Http3Event::Leave);
        }
        let (serve, connection) = (self.serve, Rc::clone(connection));
        self.requests.begin_serving(|| serve(stream, window, connection));
    }
}

/// Rejects a request that arrived after GOAWAY (RFC 9114 §5.2).
fn reject_stream(stream: &mut BidirectionalStream) {
    let code = to_application_error(ErrorCode::RequestRejected);
    // Errors mean that the stream is gone already.
    let _ = stream.stop_sending(code);
    let _ = stream.reset(code);
}

/// Opens the control stream and sends SETTINGS. Once the connection is to leave, sends GOAWAY twice, a round trip
/// apart.
async fn run_control_stream<H>(connection: &Http3Connection<H>) -> SendStream {
    let mut stream = match timeout(CONTROL_STREAM_TIMEOUT, open_control_stream(connection)).await {
        Ok(Ok(stream)) => stream,
        gone => {
            if gone.is_err() {
                connection.close_for_violation(ErrorCode::GeneralProtocolError);
            }
            return std::future::pending().await; // the connection is gone, which the accept loop sees
        }
    };
    let (life, mut watch) = (&connection.lifecycle, connection.worker.watch.clone());
    // The connection's task polls this future after everything that may have the connection leave.
    let leaves = poll_fn(|_| if life.http3_phase() == Http3Phase::Open { Poll::Pending } else { Poll::Ready(()) });
    select! {
        () = watch.wait_for_phase(ProcessPhase::Draining) => {}
        () = connection.worker.wait_until_disabled() => {}
        () = leaves => {}
    }
    life.on_event(Http3Event::Leave);
    // Errors mean that the connection is gone.
    let _ = stream.send(goaway_frame_bytes(MAX_STREAM_ID)).await;
    let _ = timeout(GOAWAY_ACK_TIMEOUT, stream.flush()).await;
    let _ = stream.send(goaway_frame_bytes(life.on_goaway_received())).await;
    let _ = timeout(GOAWAY_ACK_TIMEOUT, stream.flush()).await;
    stream
}

async fn open_control_stream<H>(connection: &Http3Connection<H>) -> Result<SendStream, s2n_quic::connection::Error> {
    let mut handle = connection.handle.clone();
    let mut stream = handle.open_send_stream().await?;
    let mut out = BytesMut::new();
    StreamType::Control.encode_stream_type(&mut out);
    let max_field_section_size = Some(u64::from(connection.terms.limits.max_header_bytes));
    let enable_connect_protocol = connection.terms.has_tunnels;
    Settings { max_field_section_size, enable_connect_protocol, ..Settings::default() }.encode_settings(&mut out);
    // An error means that the connection is gone.
    let _ = stream.send(out.freeze()).await;
    Ok(stream)
}

fn goaway_frame_bytes(id: u64) -> Bytes {
    let mut out = BytesMut::new();
    encode_goaway(id, &mut out);
    out.freeze()
}
