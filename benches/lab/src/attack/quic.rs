//! Attackers over QUIC: handshakes that never end, connections without a request, slow uploads, responses that are not
//! read or read slowly, event streams, resets.

use super::{
    Attacker, BYTE, SLOW, SLOW_PIECE, SLOW_READ, SLOW_WINDOW, SMALL, Shared, SlowUpload, TICK, UNREAD, due,
    wire::{self, Ask},
};
use crate::client::tls;
use anyhow::{Context as _, Result};
use bytes::BytesMut;
use litequic_testkit::h3;
use quinn::{ClientConfig, Connection, Endpoint, IdleTimeout, RecvStream, TransportConfig, VarInt};
use quinn_proto::{ConnectionHandle, DatagramEvent, EndpointConfig, EndpointEvent};
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::UdpSocket,
    task::{JoinSet, spawn_local},
    time::{sleep, timeout},
};

/// Handshakes a second that never end.
pub(super) const HANDSHAKE_RATE: u32 = 500;
/// Connections without a request: so many a second, and at most.
pub(super) const IDLE_RATE: u32 = 50;
pub(super) const IDLE: u64 = 1_000;
/// Unfinished handshakes that wait for the server's Retry.
const WAITING: usize = 2_048;
/// The largest datagram that is looked at.
const DATAGRAM: usize = 2_048; // bytes
/// Of a Retry's first byte: a long header, and its type (RFC 9000 §17.2.5).
const RETRY: (u8, u8) = (0xf0, 0xf0);
/// What is offered of windows to responses that are not read, a stream and a connection.
const STREAM_WINDOW: u32 = 256 << 10; // bytes
const CONNECTION_WINDOW: u32 = 64 << 20; // bytes
const KEEP_ALIVE: Duration = Duration::from_secs(3);
const IDLE_TIMEOUT: u32 = 30_000; // milliseconds
/// For a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// H3_REQUEST_CANCELLED.
const CANCELLED: VarInt = VarInt::from_u32(0x10c);

/// A connection's configuration.
pub(super) fn config(configs: &mut tls::Configs, keep_alive: Option<Duration>) -> Result<ClientConfig> {
    with_window(configs, keep_alive, STREAM_WINDOW)
}

/// The configuration of a connection with a flow-control window of `window` bytes for each stream.
fn with_window(configs: &mut tls::Configs, keep_alive: Option<Duration>, window: u32) -> Result<ClientConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(window.into())
        .receive_window(CONNECTION_WINDOW.into())
        .keep_alive_interval(keep_alive)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT))));
    let mut config = ClientConfig::new(configs.quic()?);
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A socket of an address.
pub(super) fn endpoint(from: IpAddr) -> Result<Endpoint> {
    Ok(Endpoint::client(SocketAddr::new(from, 0))?)
}

/// Opens an attacker's connection, with a socket of its own and a window of `window` bytes for each stream.
async fn connect(attacker: &Attacker, window: u32) -> Result<(Endpoint, Connection)> {
    let Attacker { shared, from, .. } = attacker;
    let config = with_window(&mut shared.tls.borrow_mut(), Some(KEEP_ALIVE), window)?;
    let endpoint = endpoint(*from)?;
    let connecting = endpoint.connect_with(config, shared.target.address, tls::NAME)?;
    let connection = timeout(CONNECT, connecting).await.context("no connection in time")??;
    shared.count(|tally| tally.connections += 1);
    Ok((endpoint, connection))
}

/// Opens an attacker's connection with the control stream that HTTP/3 requires. Streams end when they are dropped.
async fn connect_h3(attacker: &Attacker, window: u32) -> Result<(Endpoint, Connection, quinn::SendStream)> {
    let (endpoint, connection) = connect(attacker, window).await?;
    let mut control = connection.open_uni().await?;
    control.write_all(&h3::CONTROL_STREAM).await?;
    Ok((endpoint, connection, control))
}

/// Handshakes of one source that validate their address after a Retry, and never end.
pub(super) struct Unfinished {
    /// The number of the source.
    nth: u32,
    endpoint: quinn_proto::Endpoint,
    config: ClientConfig,
    socket: std::net::UdpSocket,
    /// The oldest first.
    waiting: VecDeque<(ConnectionHandle, quinn_proto::Connection)>,
}

impl Unfinished {
    pub(super) fn new(shared: &Shared, nth: u32) -> Result<Self> {
        let from = shared.sources.nth(nth, shared.target.address);
        let socket = std::net::UdpSocket::bind(SocketAddr::new(from, 0))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            nth,
            endpoint: quinn_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config: config(&mut shared.tls.borrow_mut(), None)?,
            socket,
            waiting: VecDeque::new(),
        })
    }

    /// Begins them at a rate until the time is over.
    pub(super) async fn run(mut self, shared: Rc<Shared>) {
        let Ok(socket) = self.socket.try_clone().and_then(UdpSocket::from_std) else { return };
        let (began, mut begun) = (Instant::now(), 0);
        let sources = u64::from(shared.sources.count);
        while !shared.is_over() {
            // Of all that are due, every so many-th one, beginning with the own number.
            let others = sources - 1 - u64::from(self.nth);
            while begun < (due(HANDSHAKE_RATE, began.elapsed()) + others) / sources {
                begun += 1;
                // A socket that is full is tried again in a moment.
                if self.begin(&socket, &shared).is_ok() {
                    shared.count(|tally| tally.connections += 1);
                }
            }
            self.answer(&socket, &shared);
            sleep(TICK).await;
        }
    }

    /// Sends a client's first flight.
    fn begin(&mut self, socket: &UdpSocket, shared: &Shared) -> Result<()> {
        let (handle, mut connection) =
            self.endpoint.connect(Instant::now(), self.config.clone(), shared.target.address, tls::NAME)?;
        flush(&mut connection, socket, shared);
        self.waiting.push_back((handle, connection));
        if self.waiting.len() > WAITING.div_ceil(shared.sources.count as usize)
            && let Some((oldest, _)) = self.waiting.pop_front()
        {
            self.endpoint.handle_event(oldest, EndpointEvent::drained());
        }
        Ok(())
    }

    /// Answers each Retry with the token that it brings, and nothing else.
    fn answer(&mut self, socket: &UdpSocket, shared: &Shared) {
        let (mut datagram, mut out) = ([0; DATAGRAM], Vec::new());
        while let Ok(length) = socket.try_recv(&mut datagram) {
            let Some(bytes) = datagram.get(..length) else { continue };
            if bytes.first().is_none_or(|first| first & RETRY.0 != RETRY.1) {
                continue;
            }
            let from = shared.target.address;
            let event = self.endpoint.handle(Instant::now(), from, None, None, BytesMut::from(bytes), &mut out);
            if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                && let Some((_, connection)) = self.waiting.iter_mut().find(|(own, _)| *own == handle)
            {
                connection.handle_event(event);
                flush(connection, socket, shared);
            }
        }
    }
}

/// Sends what a connection has to say.
fn flush(connection: &mut quinn_proto::Connection, socket: &UdpSocket, shared: &Shared) {
    let mut datagram = Vec::new();
    while let Some(transmit) = connection.poll_transmit(Instant::now(), 1, &mut datagram) {
        let bytes = datagram.get(..transmit.size).unwrap_or_default();
        // Lost as on the way.
        let _ = socket.try_send_to(bytes, shared.target.address);
        datagram.clear();
    }
}

/// Opens connections without a request, at a rate; each stays.
pub(super) async fn idle(shared: Rc<Shared>) {
    let (began, mut opened) = (Instant::now(), 0);
    while !shared.is_over() {
        while u64::from(opened) < due(IDLE_RATE, began.elapsed()).min(IDLE) {
            let from = shared.sources.nth(opened, shared.target.address);
            opened += 1;
            let attacker = Attacker { shared: Rc::clone(&shared), from, streams: 0, siblings: 1 };
            spawn_local(attacker.again_and_again(async |attacker: Attacker| {
                let (_endpoint, connection) = connect(&attacker, STREAM_WINDOW).await?;
                connection.closed().await;
                Ok(())
            }));
        }
        sleep(TICK).await;
    }
}

/// Slow uploads. One that ends is followed by another.
pub(super) async fn upload(attacker: Attacker, slow: SlowUpload) -> Result<()> {
    on_each_stream(attacker, STREAM_WINDOW, move |connection: Connection, attacker: Attacker| async move {
        let (mut send, _receive) = connection.open_bi().await?;
        attacker.count(|tally| tally.requests += 1);
        send.write_all(&wire::h3_headers(slow.ask)).await?;
        loop {
            send.write_all(&h3::data(slow.piece)).await?;
            // Stopped: the server has had enough of it.
            if timeout(BYTE, send.stopped()).await.is_ok() {
                return Ok(());
            }
        }
    })
    .await
}

/// Responses, none of which is read. One that is reset is followed by another.
pub(super) async fn unread(attacker: Attacker) -> Result<()> {
    on_each_stream(attacker, STREAM_WINDOW, async |connection: Connection, attacker: Attacker| {
        let mut receive = get(&connection, &attacker, Ask::Get(UNREAD)).await?;
        receive.received_reset().await?;
        Ok(())
    })
    .await
}

/// Responses that are read slowly. One that ends is followed by another.
pub(super) async fn slow(attacker: Attacker) -> Result<()> {
    on_each_stream(attacker, SLOW_WINDOW, async |connection: Connection, attacker: Attacker| {
        let mut receive = get(&connection, &attacker, Ask::Get(SLOW)).await?;
        let mut piece = vec![0; usize::try_from(SLOW_PIECE)?];
        while receive.read(&mut piece).await?.is_some() {
            sleep(SLOW_READ).await;
        }
        Ok(())
    })
    .await
}

/// Responses that do not end, or begin late. One that ends is followed by another.
pub(super) async fn wait(attacker: Attacker, ask: Ask) -> Result<()> {
    on_each_stream(attacker, STREAM_WINDOW, move |connection: Connection, attacker: Attacker| async move {
        let mut receive = get(&connection, &attacker, ask).await?;
        let mut piece = vec![0; usize::try_from(SLOW_PIECE)?];
        while receive.read(&mut piece).await?.is_some() {}
        Ok(())
    })
    .await
}

/// Sends a request without a body on a new stream.
async fn get(connection: &Connection, attacker: &Attacker, ask: Ask) -> Result<RecvStream> {
    let (mut send, receive) = connection.open_bi().await?;
    attacker.count(|tally| tally.requests += 1);
    send.write_all(&wire::h3_headers(ask)).await?;
    send.finish()?;
    Ok(receive)
}

/// Has the same done on each stream of a connection again and again, until the connection ends.
async fn on_each_stream<F>(
    attacker: Attacker,
    window: u32,
    stream: impl Fn(Connection, Attacker) -> F + Copy + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + 'static,
{
    let (_endpoint, connection, _control) = connect_h3(&attacker, window).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..attacker.streams {
        let (connection, attacker) = (connection.clone(), attacker.clone());
        tasks.spawn_local(async move {
            while connection.close_reason().is_none() {
                let _ = stream(connection.clone(), attacker.clone()).await;
                sleep(TICK).await;
            }
        });
    }
    connection.closed().await;
    Ok(())
}

/// Requests that are reset as soon as they are sent.
pub(super) async fn resets(attacker: Attacker) -> Result<()> {
    let (_endpoint, connection, _control) = connect_h3(&attacker, STREAM_WINDOW).await?;
    let (began, mut sent) = (Instant::now(), 0);
    let request = wire::h3_headers(Ask::Get(SMALL));
    loop {
        while sent < due(super::tcp::RESET_RATE, began.elapsed()) / u64::from(attacker.siblings) {
            let (mut send, mut receive) = connection.open_bi().await?;
            send.write_all(&request).await?;
            send.reset(CANCELLED)?;
            receive.stop(CANCELLED)?;
            sent += 1;
            attacker.count(|tally| tally.requests += 1);
        }
        sleep(TICK).await;
    }
}
