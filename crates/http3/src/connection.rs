//! One HTTP/3 connection: accepts its streams, enforces its limits, and ends it with GOAWAY (RFC 9114 §5.2).

use super::{
    control,
    error::{Code, application_error},
    exchanges::Exchanges,
    frame::{encode_goaway, settings::Settings},
    front::{Connection, ConnectionMemory, Http3Worker, client_of},
    phase::{Http3End, Http3Event, Http3Phase},
    request,
    uni::StreamType,
};
use bytes::{Bytes, BytesMut};
use litequic_base::{
    lifecycle::{Phase, pass_panic_on},
    timers::Turn,
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

/// The first GOAWAY's stream ID: the largest that a client may use, so that no running request is retried elsewhere
/// (RFC 9114 §5.2).
const LAST_POSSIBLE_ID: u64 = (1 << 62) - 4;
/// How long a client may delay the control stream. It has to allow three such streams from the beginning
/// (RFC 9114 §6.2); without one there are no settings and no GOAWAY, and a drain waits for its deadline.
const CONTROL_STREAM_WAIT: Duration = Duration::from_secs(1);
/// How long the first GOAWAY's acknowledgement, a round trip, is waited for at most.
const ROUND_TRIP_WAIT: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. Dropping the future ends its requests and the connection.
///
/// `windows` are those of the endpoint that accepted it.
pub async fn serve<H: Handler>(
    mut connection: s2n_quic::Connection,
    handler: Rc<H>,
    front: Rc<Http3Worker>,
    windows: Rc<dyn Transport>,
) {
    let Some(client) = client_of(&mut connection, &front) else { return }; // closed already
    let (handle, acceptor) = connection.split();
    let Some(account) = windows.account(handle.id()) else { return };
    let Some(holder) = front.admit(client.address) else {
        // No code says that a server is full, but that to the first packet: clients then connect anew, later or over
        // TCP.
        handle.close(application_error(Code::NoError));
        return;
    };
    let memory = ConnectionMemory::new(holder, account, &front.terms());
    let connection = Rc::new(Connection::new(handle, client, handler, front, Rc::clone(&windows), memory));
    let weak = Rc::downgrade(&connection);
    connection.memory.holder.represents(weak);
    let front = &connection.front;

    let (life, memory) = (&connection.life, &connection.memory);
    let mut streams = Streams::new(acceptor, &connection, &*windows, request::serve);
    let waker = streams.requests.connection_waker();
    let mut watch = front.watch.clone();
    let mut eviction = Eviction::default();
    let alerts = windows.alerts(connection.handle.id());
    let mut stopping = pin!(watch.reached(Phase::Stopping));
    let mut goaway = pin!(goaway(&connection));
    // Kept until the connection's end: closing a control stream is an error (RFC 9114 §6.2.1).
    let mut control_after_goaway = None;
    // All that is ready in one turn: on a busy connection several requests begin and end in each.
    let reason = poll_fn(|task| {
        let _turn = Turn::begin();
        let is_woken = streams.requests.begin_turn(task);
        let cx = &mut Context::from_waker(&waker);
        if is_woken && streams.poll_accept(cx).is_ready() {
            return Poll::Ready(None); // the connection is gone
        }
        let has_ended = streams.requests.poll();
        // One that has begun now is polled in the next turn.
        if has_ended && !is_woken && streams.requests.is_empty() && streams.poll_accept(cx).is_ready() {
            return Poll::Ready(None);
        }
        if streams.requests.has_more() {
            task.waker().wake_by_ref();
        }
        if !is_woken && !has_ended {
            return Poll::Pending;
        }
        streams.join(cx);
        connection.lingering.poll(cx);
        memory.holder.serving(streams.requests.len());
        if let Poll::Ready(end) = eviction.poll(cx, &connection) {
            return Poll::Ready(end);
        }
        if streams.requests.is_empty() && connection.lingering.is_empty() {
            // Every stream that s2n-quic knows was accepted above: none is left that was reset, or is queued.
            memory.received.none_is_left();
        }
        if memory.received.poll_over(cx).is_ready() {
            front.metrics.shared.limit_receive_held.increment();
            connection.fail(Code::ExcessiveLoad);
            return Poll::Ready(None);
        }
        if is_excessive(cx, &*alerts, &connection) {
            return Poll::Ready(None);
        }
        // After whatever may have exhausted the connection.
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
        life.on(Http3Event::Close(reason));
        connection.handle.close(application_error(reason.code()));
    }
}

/// The orders to end that a connection has received, for want of memory or slots, and from the operator.
#[derive(Default)]
struct Eviction {
    /// The last reason that was acted on.
    reported: Option<EvictionReason>,
    is_leaving: bool,
    is_closed_by_operator: bool,
}

impl Eviction {
    /// Acts on each new order, and counts it. Ready once the connection is to be closed at once, with `None` if that is
    /// done already.
    fn poll<H>(&mut self, cx: &Context<'_>, connection: &Connection<H>) -> Poll<Option<Http3End>> {
        let (life, metrics) = (&connection.life, &connection.front.metrics);
        while let Poll::Ready(end) = connection.memory.holder.poll_end(cx, &mut self.reported) {
            match end {
                EvictionReason::Idle => _ = life.on(Http3Event::Leave),
                EvictionReason::Drained => {
                    self.is_leaving = true;
                    metrics.evicted_idle.increment();
                    life.on(Http3Event::Leave);
                }
                EvictionReason::Evicted => {
                    // A connection that was to leave, and is still open, is counted already.
                    if !std::mem::replace(&mut self.is_leaving, true) {
                        metrics.evicted_in_use.increment();
                    }
                    return Poll::Ready(Some(Http3End::Evicted));
                }
                EvictionReason::Operator => {
                    if !std::mem::replace(&mut self.is_closed_by_operator, true) {
                        metrics.closed_by_operator.increment();
                    }
                    life.on(Http3Event::Leave);
                }
                EvictionReason::OperatorNow => {
                    if !self.is_closed_by_operator {
                        metrics.closed_by_operator.increment();
                    }
                    return Poll::Ready(Some(Http3End::Operator));
                }
                EvictionReason::Heaviest => {
                    connection.fail(Code::ExcessiveLoad);
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Pending
    }
}

/// Reads the transport's reports of excess. True: the connection was closed for one of them.
fn is_excessive<H: Handler>(cx: &mut Context<'_>, alerts: &dyn ConnectionAlerts, connection: &Connection<H>) -> bool {
    let metrics = &connection.front.metrics;
    while let Poll::Ready(alert) = alerts.poll(cx) {
        match alert {
            Alert::Flood => {
                metrics.shared.limit_control_frames.increment();
                connection.fail(Code::ExcessiveLoad);
                return true;
            }
            // A stream whose reading side is stopped is closed (RFC 9000 §3.5).
            Alert::CriticalStreamStopped => {
                connection.fail(Code::ClosedCriticalStream);
                return true;
            }
            Alert::LastAddress => {
                metrics.limit_addresses.increment();
                connection.life.on(Http3Event::Leave);
            }
        }
    }
    false
}

/// The client's streams. Requests are served by the connection's task, the others by a task each.
struct Streams<'c, H, F> {
    acceptor: StreamAcceptor,
    connection: &'c Rc<Connection<H>>,
    windows: &'c dyn Transport,
    serve: Serve<H, F>,
    requests: Exchanges<F>,
    unidirectional: JoinSet<()>,
}

/// What serves a request: [`request::serve`], whose future has no name.
type Serve<H, F> = fn(BidirectionalStream, Box<dyn SendWindow>, Rc<Connection<H>>) -> F;

impl<'c, H: Handler, F: Future<Output = ()>> Streams<'c, H, F> {
    fn new(
        acceptor: StreamAcceptor,
        connection: &'c Rc<Connection<H>>,
        windows: &'c dyn Transport,
        serve: Serve<H, F>,
    ) -> Self {
        let (requests, unidirectional) = (Exchanges::new(), JoinSet::new());
        Self { acceptor, connection, windows, serve, requests, unidirectional }
    }

    /// Serves every stream that has come. Ready once the connection is gone.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.acceptor.poll_accept(cx)) {
                Ok(Some(PeerStream::Bidirectional(stream))) => self.request(stream),
                Ok(Some(PeerStream::Receive(stream))) => {
                    self.unidirectional.spawn_local(control::serve(stream, Rc::clone(self.connection)));
                }
                Ok(None) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn request(&mut self, mut stream: BidirectionalStream) {
        let (id, connection) = (stream.id(), self.connection);
        let window = self.windows.open(connection.handle.id(), id);
        connection.priorities.opened(id);
        let Some(accepted) = connection.life.accept(id) else {
            refuse(&mut stream);
            return;
        };
        if accepted == connection.terms.limits.max_requests {
            connection.front.metrics.shared.limit_requests.increment();
            connection.life.on(Http3Event::Leave);
        }
        let (serve, connection) = (self.serve, Rc::clone(connection));
        self.requests.begin(|| serve(stream, window, connection));
    }

    /// Removes the unidirectional streams that have ended.
    fn join(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(ended)) = self.unidirectional.poll_join_next(cx) {
            pass_panic_on(ended);
        }
    }
}

/// A request that came after GOAWAY (RFC 9114 §5.2).
fn refuse(stream: &mut BidirectionalStream) {
    let code = application_error(Code::RequestRejected);
    // Errors mean that the stream is gone already.
    let _ = stream.stop_sending(code);
    let _ = stream.reset(code);
}

/// Opens the control stream and sends SETTINGS; when it is time to drain, or the connection has reached its number of
/// requests, sends GOAWAY twice, a round trip apart.
async fn goaway<H>(connection: &Connection<H>) -> SendStream {
    let mut stream = match timeout(CONTROL_STREAM_WAIT, control_stream(connection)).await {
        Ok(Ok(stream)) => stream,
        gone => {
            if gone.is_err() {
                connection.fail(Code::GeneralProtocolError);
            }
            return std::future::pending().await; // the connection is gone, which the accept loop sees
        }
    };
    let (life, mut watch) = (&connection.life, connection.front.watch.clone());
    // The connection's task polls this after whatever may have it leave.
    let leaves = poll_fn(|_| if life.phase() == Http3Phase::Open { Poll::Pending } else { Poll::Ready(()) });
    select! {
        () = watch.reached(Phase::Draining) => {}
        () = connection.front.switched_off() => {}
        () = leaves => {}
    }
    life.on(Http3Event::Leave);
    // Errors mean that the connection is gone.
    let _ = stream.send(goaway_frame(LAST_POSSIBLE_ID)).await;
    let _ = timeout(ROUND_TRIP_WAIT, stream.flush()).await;
    let _ = stream.send(goaway_frame(life.told())).await;
    let _ = timeout(ROUND_TRIP_WAIT, stream.flush()).await;
    stream
}

async fn control_stream<H>(connection: &Connection<H>) -> Result<SendStream, s2n_quic::connection::Error> {
    let mut handle = connection.handle.clone();
    let mut stream = handle.open_send_stream().await?;
    let mut out = BytesMut::new();
    StreamType::Control.encode(&mut out);
    let max_field_section_size = Some(u64::from(connection.terms.limits.max_header_bytes));
    let enable_connect_protocol = connection.terms.has_tunnels;
    Settings { max_field_section_size, enable_connect_protocol, ..Settings::default() }.encode(None, &mut out);
    // An error means that the connection is gone.
    let _ = stream.send(out.freeze()).await;
    Ok(stream)
}

fn goaway_frame(id: u64) -> Bytes {
    let mut out = BytesMut::new();
    encode_goaway(id, &mut out);
    out.freeze()
}
