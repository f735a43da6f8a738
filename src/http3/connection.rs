//! One HTTP/3 connection: accepts its streams, holds it to the rules, and ends it with GOAWAY (RFC 9114 §5.2).

use super::{
    budget::{Budget, Lease},
    control,
    error::Code,
    frame::{Endpoint, encode_goaway},
    qpack::FieldLimits,
    request,
    send::{Sender, application_error},
    settings::Settings,
    uni::{StreamType, UniStreams},
};
use crate::{
    config::{Limits, Timeouts},
    exchange::{Client, Handler, Protocol},
    lifecycle::{Phase, Watch, pass_panic_on},
    telemetry::WorkerMetrics,
};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use s2n_quic::stream::{PeerStream, SendStream};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{select, sync::Notify, task::JoinSet, time::timeout};

/// The first GOAWAY's stream ID: the largest that a client may use, so that no running request is told to go elsewhere
/// (RFC 9114 §5.2).
const LAST_POSSIBLE_ID: u64 = (1 << 62) - 4;
/// How long the first GOAWAY's acknowledgement, a round trip, is waited for at most.
const ROUND_TRIP_WAIT: Duration = Duration::from_secs(1);
/// Unidirectional streams of unknown types (RFC 9114 §6.2.3) that a connection may open in all, to keep reserved types
/// from becoming a flood.
const MAX_UNKNOWN_STREAMS: u64 = 1_000;

/// Whether the certificate served for a server name (SNI) covers a host.
pub type Covers = dyn Fn(Option<&str>, &str) -> bool;

/// What the connections of one worker share.
pub struct Front {
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) field_limits: FieldLimits,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) covers: Box<Covers>,
    budget: Rc<Budget>,
    watch: Watch,
}

impl Front {
    /// A worker's front door.
    pub fn new(
        limits: Limits,
        timeouts: Timeouts,
        metrics: Arc<WorkerMetrics>,
        covers: Box<Covers>,
        watch: Watch,
    ) -> Self {
        let field_limits = FieldLimits { bytes: limits.max_header_bytes as usize, fields: limits.max_headers as usize };
        let budget = Budget::for_worker(limits.worker_send_buffer);
        Self { limits, timeouts, field_limits, metrics, covers, budget, watch }
    }

    /// Writes down how many response bytes are held; to be called now and then.
    pub fn observe(&self) {
        self.metrics.send_buffered.set(self.budget.used());
    }

    pub(super) fn count_response(&self, status: StatusCode) {
        match status.as_u16() / 100 {
            1 => self.metrics.responses_1xx.increment(),
            2 => self.metrics.responses_2xx.increment(),
            3 => self.metrics.responses_3xx.increment(),
            4 => self.metrics.responses_4xx.increment(),
            _ => self.metrics.responses_5xx.increment(),
        }
    }
}

/// One connection, as its streams see it.
pub(super) struct Connection<H> {
    pub(super) front: Rc<Front>,
    pub(super) handler: Rc<H>,
    pub(super) client: Rc<Client>,
    /// Which unidirectional streams the client has opened.
    pub(super) uni: RefCell<UniStreams>,
    /// Requests accepted so far.
    pub(super) accepted: Cell<u64>,
    budget: Rc<Budget>,
    handle: s2n_quic::connection::Handle,
    unknown_streams: Cell<u64>,
}

impl<H> Connection<H> {
    /// Closes the connection because the client broke a rule (RFC 9114 §8).
    pub(super) fn fail(&self, code: Code) {
        self.front.metrics.connection_errors.increment();
        tracing::debug!(client = %self.client.address, error = %code, "closing an HTTP/3 connection");
        self.handle.close(application_error(code));
    }

    pub(super) fn sender(&self, stream: SendStream) -> Sender {
        let limit = u64::from(self.front.limits.stream_send_buffer);
        let lease = Lease::new(Rc::clone(&self.budget), Rc::clone(&self.front.budget), limit);
        Sender::new(stream, lease, limit, self.front.timeouts.send, Arc::clone(&self.front.metrics))
    }

    /// Counts a stream of an unknown type; false once there were too many.
    pub(super) fn tolerates_unknown_stream(&self) -> bool {
        self.unknown_streams.set(self.unknown_streams.get() + 1);
        self.unknown_streams.get() <= MAX_UNKNOWN_STREAMS
    }
}

/// Serves a connection until it ends. Dropping the future ends its requests and the connection.
pub async fn serve<H: Handler>(connection: s2n_quic::Connection, handler: Rc<H>, front: Rc<Front>) {
    let Some(client) = client(&connection) else { return }; // gone already
    let (handle, mut acceptor) = connection.split();
    let connection = Rc::new(Connection {
        budget: Budget::for_connection(u64::from(front.limits.connection_send_buffer)),
        client: Rc::new(client),
        uni: RefCell::new(UniStreams::new(Endpoint::Client)),
        accepted: Cell::new(0),
        unknown_streams: Cell::new(0),
        handle,
        handler,
        front,
    });
    let front = &connection.front;
    front.metrics.connections.increment();
    front.metrics.connections_open.increment();

    let mut requests = JoinSet::new();
    let mut unidirectional = JoinSet::new();
    let exhausted = Notify::new();
    let next_id = Cell::new(0);
    // From this stream ID on requests are refused: they were not processed, and may be sent again elsewhere.
    let refused_from = Cell::new(None);
    let mut watch = front.watch.clone();
    let mut stopping = pin!(watch.reached(Phase::Stopping));
    let mut goaway = pin!(goaway(&connection, &exhausted, &next_id, &refused_from));
    // Kept until the connection's end: closing a control stream is an error (RFC 9114 §6.2.1).
    let mut control_after_goaway = None;
    let code = loop {
        select! {
            stream = poll_fn(|cx| acceptor.poll_accept(cx)) => match stream {
                Ok(Some(PeerStream::Bidirectional(mut stream))) => {
                    let id = stream.id();
                    if refused_from.get().is_some_and(|first| id >= first) {
                        refuse(&mut stream);
                        continue;
                    }
                    next_id.set(next_id.get().max(id + 4));
                    connection.accepted.set(connection.accepted.get() + 1);
                    if connection.accepted.get() == front.limits.max_requests {
                        front.metrics.limit_requests.increment();
                        exhausted.notify_one();
                    }
                    requests.spawn_local(request::serve(stream, Rc::clone(&connection)));
                }
                Ok(Some(PeerStream::Receive(stream))) => {
                    unidirectional.spawn_local(control::serve(stream, Rc::clone(&connection)));
                }
                Ok(None) | Err(_) => break None, // the connection is gone
            },
            Some(ended) = requests.join_next() => pass_panic_on(ended),
            Some(ended) = unidirectional.join_next() => pass_panic_on(ended),
            stream = &mut goaway, if control_after_goaway.is_none() => control_after_goaway = Some(stream),
            () = &mut stopping => break Some(Code::NoError),
        }
        if control_after_goaway.is_some() && requests.is_empty() {
            break Some(Code::NoError);
        }
    };
    drop(requests); // resets what still runs
    if let Some(code) = code {
        connection.handle.close(application_error(code));
    }
    front.metrics.connections_open.decrement();
}

fn client(connection: &s2n_quic::Connection) -> Option<Client> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Some(Client {
        address: plain(connection.remote_addr().ok()?),
        local: plain(connection.local_addr().ok()?),
        protocol: Protocol::Http3,
        server_name: connection.server_name().ok()?.map(|name| Arc::from(name.to_ascii_lowercase())),
    })
}

/// A request that came after GOAWAY (RFC 9114 §5.2).
fn refuse(stream: &mut s2n_quic::stream::BidirectionalStream) {
    let code = application_error(Code::RequestRejected);
    // Errors say that the stream is gone already.
    let _ = stream.stop_sending(code);
    let _ = stream.reset(code);
}

/// Opens the control stream and sends SETTINGS; when it is time to drain, or the connection has had its share of
/// requests, sends GOAWAY twice, a round trip apart.
async fn goaway<H>(
    connection: &Connection<H>,
    exhausted: &Notify,
    next_id: &Cell<u64>,
    refused_from: &Cell<Option<u64>>,
) -> SendStream {
    let Ok(mut stream) = control_stream(connection).await else {
        return std::future::pending().await; // the connection is gone, which the accept loop sees
    };
    let mut watch = connection.front.watch.clone();
    select! {
        () = watch.reached(Phase::Draining) => {}
        () = exhausted.notified() => {}
    }
    // Errors mean that the connection is gone.
    let _ = stream.send(goaway_frame(LAST_POSSIBLE_ID)).await;
    let _ = timeout(ROUND_TRIP_WAIT, stream.flush()).await;
    refused_from.set(Some(next_id.get()));
    let _ = stream.send(goaway_frame(next_id.get())).await;
    let _ = timeout(ROUND_TRIP_WAIT, stream.flush()).await;
    stream
}

async fn control_stream<H>(connection: &Connection<H>) -> Result<SendStream, s2n_quic::connection::Error> {
    let mut handle = connection.handle.clone();
    let mut stream = handle.open_send_stream().await?;
    let mut out = BytesMut::new();
    StreamType::Control.encode(&mut out);
    let max_field_section_size = Some(u64::from(connection.front.limits.max_header_bytes));
    Settings { max_field_section_size, ..Settings::default() }.encode(None, &mut out);
    // An error means that the connection is gone.
    let _ = stream.send(out.freeze()).await;
    Ok(stream)
}

fn goaway_frame(id: u64) -> Bytes {
    let mut out = BytesMut::new();
    encode_goaway(id, &mut out);
    out.freeze()
}
