//! HTTP/3 over quinn-proto, which is driven here by hand: one thread, one datagram at a time.

mod connection;
mod fields;
mod frames;
mod path;
mod socket;
mod threshold;

use super::{
    arguments::{AckThreshold, Arguments, Kind, Switch},
    body::Content,
    poller::Poller,
    report::Quic,
    tls::Tls,
    wire::{Counts, Happening, Wire},
};
use bytes::BytesMut;
use connection::{Common, Connection};
pub(crate) use path::Faults;
use path::Path;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent,
    TransportConfig, VarInt, crypto::rustls::QuicClientConfig,
};
use socket::{Buffers, Socket};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};
use threshold::{Crypto, Seen};

/// Flow control never holds a server back: at 1 Gbit/s and 100 ms 12.5 MB are in flight.
const STREAM_WINDOW: u32 = 32 << 20;
const CONNECTION_WINDOW: u32 = 128 << 20;

/// What an upload keeps for retransmission, a connection. Congestion control holds it back, not this.
const SEND_WINDOW: u64 = 32 << 20;

/// Sockets by default, at most: more add only what the client spends on polling.
const SOCKETS: u32 = 256;

/// After the time in which the server must move, so that what it sends for it never passes for moving; before servers
/// take an idle connection for dead, which is 30 s with the strictest.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Unidirectional streams a server may open; three are usual.
const UNIDIRECTIONAL: u32 = 16;

/// Datagrams between two pauses of a client that pauses.
const PAUSE_AFTER: u64 = 100;

/// A datagram that has come.
struct Datagram {
    from: SocketAddr,
    ecn: Option<EcnCodepoint>,
    bytes: BytesMut,
}

pub(super) struct Client {
    remote: SocketAddr,
    name: String,
    crypto: Arc<QuicClientConfig>,
    transport: Arc<TransportConfig>,
    threshold: AckThreshold,
    gaps_at_once: bool,
    tls: Tls,
    endpoint: Endpoint,
    sockets: Vec<Socket>,
    /// The way in, a socket.
    paths: Vec<Path<Datagram>>,
    /// Whether anything goes wrong on them.
    impaired: bool,
    /// What has come through and was not looked at yet.
    arrived: Vec<Datagram>,
    connections: Vec<Option<Connection>>,
    slots: HashMap<ConnectionHandle, usize>,
    common: Common,
    poller: Poller,
    buffers: Buffers,
    /// Slots that have something to read, write or send.
    dirty: Vec<usize>,
    /// Timers and their slots, the earliest first. One that its connection is not armed for is outdated.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    datagrams_received: u64,
    bytes_received: u64,
    /// How long the client sleeps after each [`PAUSE_AFTER`] datagrams, and at which number of them it does next.
    pause: Duration,
    pause_at: u64,
    /// Counters of connections that are no more.
    past: Quic,
}

impl Client {
    pub(super) fn new(arguments: &Arguments, tls: Tls) -> anyhow::Result<Self> {
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
            .send_window(SEND_WINDOW)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL))
            .initial_mtu(arguments.initial_mtu)
            .datagram_receive_buffer_size(None)
            // A connection may be idle for long, until the others have their last bodies.
            .max_idle_timeout(None)
            // For idle connections, only the server reports their end.
            .keep_alive_interval((arguments.kind != Kind::Idle).then_some(arguments.stall + KEEP_ALIVE));
        if arguments.kind == Kind::Handshakes {
            // Probes would cost the server more than the handshake.
            transport.mtu_discovery_config(None);
        }
        let count = arguments.sockets.unwrap_or(arguments.connections.min(SOCKETS));
        let poller = Poller::new()?;
        let faults = Faults { lose: arguments.lose, hold: arguments.hold };
        let delay = Duration::from_millis(arguments.delay);
        let (mut sockets, mut paths) = (Vec::new(), Vec::new());
        for index in 0..count as usize {
            let socket = Socket::bind(
                arguments.address,
                arguments.gro == Switch::On,
                arguments.receive_buffer,
                arguments.messages,
            )?;
            poller.add(&socket, index, false)?;
            sockets.push(socket);
            paths.push(Path::new(faults, delay, arguments.seed.wrapping_mul(1000).wrapping_add(index as u64)));
        }
        let authority = match arguments.address.port() {
            443 => arguments.name.clone(),
            port => format!("{}:{port}", arguments.name),
        };
        let body = (arguments.kind == Kind::Upload).then(|| arguments.bytes.unwrap_or(0));
        let mut more = if arguments.browser { fields::BROWSER.to_vec() } else { Vec::new() };
        more.extend(arguments.priority.as_deref().map(fields::priority).unwrap_or_default());
        let section = fields::request(&authority, &arguments.path, body, &more);
        let bulk = arguments.bulk.as_deref().map(|path| fields::request(&authority, path, None, &[]));
        Ok(Self {
            remote: arguments.address,
            name: arguments.name.clone(),
            crypto: Arc::new(QuicClientConfig::try_from(tls.config.clone())?),
            transport: Arc::new(transport),
            threshold: arguments.ack_threshold,
            gaps_at_once: arguments.ack_gaps,
            tls,
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            sockets,
            paths,
            impaired: !faults.is_none() || !delay.is_zero(),
            arrived: Vec::new(),
            connections: (0..arguments.connections).map(|_| None).collect(),
            slots: HashMap::new(),
            common: Common {
                streams: arguments.streams as usize,
                request: frames::request(&section, body),
                bulk: bulk.map(|section| frames::request(&section, None)),
                body: body.unwrap_or(0),
                content: Content::new(),
                tickets: arguments.resume,
                body_received: 0,
                body_sent: 0,
                handshakes: 0,
                out: Vec::new(),
            },
            poller,
            buffers: Buffers::new(),
            dirty: Vec::new(),
            timers: BinaryHeap::new(),
            datagrams_received: 0,
            bytes_received: 0,
            pause: Duration::from_millis(arguments.pause),
            pause_at: PAUSE_AFTER,
            past: Quic { mtu: u16::MAX, ..Quic::default() },
        })
    }

    /// Drives the connections that need it.
    fn drive(&mut self, happened: &mut Vec<Happening>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let now = Instant::now();
        for slot in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { continue };
            let Some(socket) = self.sockets.get_mut(connection.socket) else { continue };
            let before = happened.len();
            connection.drive(now, &mut self.endpoint, socket, &mut self.common, happened);
            arm(slot, connection, &mut self.timers);
            if happened.iter().skip(before).any(|happening| matches!(happening, Happening::Lost { .. })) {
                self.past.connections_lost += 1;
                self.forget(slot);
            }
        }
        self.dirty = dirty;
    }

    /// Runs the timers that are due.
    fn run_timers(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, slot))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { continue };
            if connection.armed != Some(at) {
                continue;
            }
            connection.armed = None;
            if connection.next_timeout().is_some_and(|at| at <= now) {
                connection.timeout(now);
                self.dirty.push(slot);
            } else {
                // It was put off meanwhile.
                arm(slot, connection, &mut self.timers);
            }
        }
    }

    /// Receives once from a socket.
    fn receive(&mut self, index: usize) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(index) else { return Ok(()) };
        let count = socket.receive(&mut self.buffers)?;
        let now = Instant::now();
        let mut arrived = std::mem::take(&mut self.arrived);
        for number in 0..count {
            let Some((meta, message)) = self.buffers.messages(count).nth(number) else { break };
            let Some(path) = self.paths.get_mut(index) else { break };
            self.past.gro_batches += 1;
            let mut message = BytesMut::from(message);
            while !message.is_empty() {
                let bytes = message.split_to(meta.stride.clamp(1, message.len()));
                self.datagrams_received += 1;
                self.bytes_received += bytes.len() as u64;
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                path.take(now, Datagram { from: meta.addr, ecn, bytes }, &mut arrived);
            }
            arrived.drain(..).for_each(|datagram| self.hand_over(now, datagram));
        }
        self.arrived = arrived;
        if !self.pause.is_zero() && self.datagrams_received >= self.pause_at {
            self.pause_at = self.datagrams_received + PAUSE_AFTER;
            thread::sleep(self.pause);
        }
        Ok(())
    }

    /// Takes what was held back on the way and is no longer.
    fn release(&mut self) {
        let now = Instant::now();
        let mut arrived = std::mem::take(&mut self.arrived);
        self.paths.iter_mut().for_each(|path| path.release(now, &mut arrived));
        arrived.drain(..).for_each(|datagram| self.hand_over(now, datagram));
        self.arrived = arrived;
    }

    /// Gives quinn a datagram, and its connection the chance to answer before the next.
    fn hand_over(&mut self, now: Instant, datagram: Datagram) {
        let Datagram { from, ecn, bytes } = datagram;
        self.common.out.clear();
        // Whatever the endpoint would answer to a stray datagram is of no concern to the load.
        let Some(DatagramEvent::ConnectionEvent(handle, event)) =
            self.endpoint.handle(now, from, None, ecn, bytes, &mut self.common.out)
        else {
            return;
        };
        let Some(slot) = self.slots.get(&handle).copied() else { return };
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(socket) = self.sockets.get_mut(connection.socket) {
            connection.receive(event, now, socket, &mut self.common);
        }
        if self.dirty.last() != Some(&slot) {
            self.dirty.push(slot);
        }
    }

    /// Keeps a connection's counters and forgets the rest.
    fn forget(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::take) else { return };
        add(&mut self.past, &connection);
        self.slots.remove(&connection.handle());
        self.endpoint.handle_event(connection.handle(), EndpointEvent::drained());
    }
}

/// Queues a connection for its next timer, unless it is queued for an earlier moment: then it is looked at anyway.
fn arm(slot: usize, connection: &mut Connection, timers: &mut BinaryHeap<Reverse<(Instant, usize)>>) {
    let Some(at) = connection.next_timeout() else { return };
    if connection.armed.is_none_or(|armed| at < armed) {
        connection.armed = Some(at);
        timers.push(Reverse((at, slot)));
    }
}

/// Adds a connection's counters.
fn add(total: &mut Quic, connection: &Connection) {
    let stats = connection.quic.stats();
    total.packets_received += connection.seen.packets();
    total.packets_missing += connection.seen.missing();
    total.ack_packets_sent += stats.frame_tx.acks;
    total.ack_frames += stats.frame_tx.acks;
    total.ack_frequency_frames += stats.frame_rx.ack_frequency.saturating_sub(connection.seen.own_frames());
    total.packets_sent += stats.path.sent_packets;
    total.packets_lost += stats.path.lost_packets;
    total.datagrams_sent += stats.udp_tx.datagrams;
    total.bytes_sent += stats.udp_tx.bytes;
    total.rtt_us = total.rtt_us.max(u64::try_from(stats.path.rtt.as_micros()).unwrap_or(u64::MAX));
    total.mtu = total.mtu.min(stats.path.current_mtu);
}

impl Wire for Client {
    fn connect(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        let seen = Arc::new(Seen::default());
        let crypto = Crypto::new(self.crypto.clone(), self.threshold, self.gaps_at_once, seen.clone());
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(self.transport.clone());
        let (handle, quic) = self.endpoint.connect(now, config, self.remote, &self.name).map_err(io::Error::other)?;
        let socket = slot % self.sockets.len();
        self.slots.insert(handle, slot);
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(Connection::new(slot, handle, quic, seen, socket));
        }
        self.dirty.push(slot);
        Ok(())
    }

    fn request(&mut self, token: usize, _: Instant) {
        let slot = token / self.common.streams;
        if let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) {
            connection.request(token, &mut self.common);
            self.dirty.push(slot);
        }
    }

    fn close(&mut self, slot: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut)
            && let Some(socket) = self.sockets.get_mut(connection.socket)
        {
            connection.close(now, socket, &mut self.common);
        }
        self.forget(slot);
    }

    fn turn(&mut self, until: Instant, happened: &mut Vec<Happening>) -> io::Result<()> {
        self.drive(happened);
        self.run_timers();
        let now = Instant::now();
        let held = if self.impaired { self.paths.iter().filter_map(Path::next).min() } else { None };
        let until = match self.timers.peek() {
            _ if !self.dirty.is_empty() || !happened.is_empty() => now,
            Some(Reverse((timeout, _))) => until.min(*timeout),
            None => until,
        };
        let until = held.map_or(until, |held| until.min(held));
        let ready: Vec<usize> =
            self.poller.wait(until)?.filter(|ready| ready.readable).map(|ready| ready.socket).collect();
        for socket in ready {
            self.receive(socket)?;
        }
        if self.impaired {
            self.release();
        }
        self.run_timers();
        self.drive(happened);
        Ok(())
    }

    fn progress(&self) -> u64 {
        self.datagrams_received
    }

    fn counts(&self) -> Counts {
        let mut quic = self.past.clone();
        for connection in self.connections.iter().flatten() {
            add(&mut quic, connection);
        }
        quic.datagrams_received = self.datagrams_received;
        quic.bytes_received = self.bytes_received;
        quic.receive_calls = self.sockets.iter().map(|socket| socket.receive_calls).sum();
        quic.send_calls = self.sockets.iter().map(|socket| socket.sends).sum();
        quic.lost_on_purpose = self.paths.iter().map(|path| path.lost).sum();
        quic.reordered_on_purpose = self.paths.iter().map(|path| path.reordered).sum();
        quic.sends_dropped = self.sockets.iter().map(|socket| socket.sends_dropped).sum();
        quic.receive_buffer = self.sockets.iter().map(Socket::receive_buffer).min().unwrap_or(0);
        let handshakes = self.common.handshakes;
        Counts {
            body_received: self.common.body_received,
            body_sent: self.common.body_sent,
            handshakes,
            resumed: handshakes.saturating_sub(self.tls.certificates.load(Ordering::Relaxed)),
            quic: Some(quic),
        }
    }
}
