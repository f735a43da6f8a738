//! HTTP/1.1 over TLS 1.3 over TCP by rustls, on the same kind of loop as HTTP/3: the ceiling that the latter is held
//! against. Large reads, so that the client is not what is measured.

mod connection;
mod response;

use super::{
    arguments::{Arguments, Kind},
    body::Content,
    poller::{Poller, Ready},
    tls::Tls,
    wire::{Counts, Happening, Wire},
};
use connection::{Common, Connection};
use rustls::{ClientConnection, pki_types::ServerName};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::SocketAddr,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Ciphertext read in one call.
const READ: usize = 256 * 1024;

/// Plaintext taken from rustls at a time: a record holds 16 KB.
const PLAIN: usize = 64 * 1024;

/// What rustls holds back of an upload until the socket takes it.
const WRITE: usize = 512 * 1024;

pub(super) struct Client {
    remote: SocketAddr,
    name: ServerName<'static>,
    tls: Tls,
    /// Whether connections are torn down: thousands a second would otherwise leave every port in TIME_WAIT.
    tears_down: bool,
    connections: Vec<Option<Connection>>,
    common: Common,
    poller: Poller,
    ready: Vec<Ready>,
    /// Slots with something new to send.
    dirty: Vec<usize>,
}

impl Client {
    pub(super) fn new(arguments: &Arguments, tls: Tls) -> anyhow::Result<Self> {
        anyhow::ensure!(arguments.streams == 1, "HTTP/1.1 has one request at a time on a connection: --streams 1");
        let host = match arguments.address.port() {
            443 => arguments.name.clone(),
            port => format!("{}:{port}", arguments.name),
        };
        let body = arguments.bytes.filter(|_| arguments.kind == Kind::Upload);
        let head = match body {
            Some(length) => {
                format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n", arguments.path)
            }
            None => format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", arguments.path),
        };
        Ok(Self {
            remote: arguments.address,
            name: ServerName::try_from(arguments.name.clone())?,
            tls,
            tears_down: arguments.kind == Kind::Handshakes,
            connections: (0..arguments.connections).map(|_| None).collect(),
            common: Common {
                head: head.into_bytes(),
                body: body.unwrap_or(0),
                content: Content::new(),
                tickets: arguments.resume,
                buffer: vec![0; READ],
                plain: vec![0; PLAIN],
                received: 0,
                body_received: 0,
                body_sent: 0,
                handshakes: 0,
            },
            poller: Poller::new()?,
            ready: Vec::new(),
            dirty: Vec::new(),
        })
    }

    /// Lets a connection read and write, and forgets it when it is lost.
    fn drive(&mut self, slot: usize, readable: bool, happened: &mut Vec<Happening>) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return Ok(()) };
        let before = happened.len();
        connection.drive(readable, &mut self.common, happened);
        if happened.iter().skip(before).any(|happening| matches!(happening, Happening::Lost { .. })) {
            if let Some(place) = self.connections.get_mut(slot) {
                *place = None;
            }
            return Ok(());
        }
        let wants_room = connection.wants_room(&self.common);
        if wants_room != connection.watched_for_room {
            connection.watched_for_room = wants_room;
            self.poller.set(&connection.tcp, slot, wants_room)?;
        }
        Ok(())
    }
}

impl Wire for Client {
    fn connect(&mut self, slot: usize, _: Instant) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(self.remote), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if self.tears_down {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        match socket.connect(&self.remote.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let mut tls = ClientConnection::new(self.tls.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(WRITE));
        let connection = Connection::new(slot, socket.into(), tls);
        self.poller.add(&connection.tcp, slot, true)?;
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(connection);
        }
        Ok(())
    }

    fn request(&mut self, token: usize, _: Instant) {
        // One request a connection: the token is the slot.
        if let Some(connection) = self.connections.get_mut(token).and_then(Option::as_mut) {
            connection.request(token);
            self.dirty.push(token);
        }
    }

    fn close(&mut self, slot: usize, _: Instant) {
        if let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) {
            connection.close();
        }
    }

    fn turn(&mut self, until: Instant, happened: &mut Vec<Happening>) -> io::Result<()> {
        for slot in std::mem::take(&mut self.dirty) {
            self.drive(slot, false, happened)?;
        }
        let mut until = if happened.is_empty() { until } else { Instant::now() };
        if self.common.tickets {
            let timeouts = self.connections.iter().flatten().filter_map(Connection::next_timeout);
            until = timeouts.fold(until, Instant::min);
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.poller.wait(until)?);
        for event in ready.drain(..) {
            self.drive(event.socket, event.readable, happened)?;
        }
        self.ready = ready;
        if self.common.tickets {
            for slot in 0..self.connections.len() {
                self.drive(slot, false, happened)?;
            }
        }
        Ok(())
    }

    fn progress(&self) -> u64 {
        self.common.received
    }

    fn counts(&self) -> Counts {
        let handshakes = self.common.handshakes;
        Counts {
            body_received: self.common.body_received,
            body_sent: self.common.body_sent,
            handshakes,
            resumed: handshakes.saturating_sub(self.tls.certificates.load(Ordering::Relaxed)),
            quic: None,
        }
    }
}
