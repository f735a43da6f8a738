//! A QUIC client by hand (RFC 9000, 9001): any frames in packets of any encryption level, any transport parameters, any
//! ClientHello. It acknowledges nothing and repeats its last datagrams while nothing comes back; TLS comes from rustls.

use super::{
    client::tls_config,
    initial::{FULL, TAG_LEN, initial_keys, protected, with_length},
    prelude::*,
    raw::{read_varint, varint},
};
use litequic_quic::frame::FrameIter;
use rustls::quic::{ClientConnection, KeyChange, Keys, Version};
use std::collections::BTreeMap;
use tokio::{net::UdpSocket, time::Instant};

/// So long nothing came: what was sent last is sent again.
const REPEAT: Duration = Duration::from_secs(1);
const ID_LEN: usize = 8;
/// CRYPTO data in one datagram of the ClientHello, which so takes two: some servers' first datagram has a fate of its
/// own.
const HELLO_PIECE: usize = 1000;

/// The encryption levels (RFC 9001 §2.1), but 0-RTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Initial,
    Handshake,
    OneRtt,
}

/// How the server ended the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// CONNECTION_CLOSE of type 0x1c: the code.
    Transport(u64),
    /// Of type 0x1d.
    Application(u64),
}

/// What the first message is made of.
pub(crate) struct Hello {
    /// The client's connection ID,
    pub(crate) id: Vec<u8>,
    /// and transport parameters, in their order.
    pub(crate) parameters: Vec<(u64, Vec<u8>)>,
    pub(crate) tls: rustls::ClientConfig,
    /// rustls' name for the codepoint of the transport parameters.
    pub(crate) codepoint: Version,
    /// Changes the ClientHello itself: the handshake cannot complete.
    pub(crate) edit: fn(&mut Vec<u8>),
}

/// One packet to be.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) level: Level,
    pub(crate) frames: Vec<u8>,
    /// Flips bits of the first byte before it is protected.
    pub(crate) flip: u8,
}

/// What came so far at one level.
#[derive(Default)]
struct Space {
    keys: Option<Keys>,
    next: u32,
    largest: Option<u64>,
    /// CRYPTO data by its offset, and how much of it TLS has.
    crypto: BTreeMap<u64, Vec<u8>>,
    taken: u64,
    sent: u64,
}

/// One connection.
pub(crate) struct Wire {
    socket: UdpSocket,
    tls: ClientConnection,
    id: Vec<u8>,
    /// Of the client's own making, then the server's.
    pub(crate) destination: Vec<u8>,
    spaces: [Space; 3],
    level: Level,
    edit: fn(&mut Vec<u8>),
    last: Vec<Vec<u8>>,
    pub(crate) close: Option<Close>,
    handshake_done: bool,
    /// Data of streams that came, in the order of its coming, and how they ended.
    pub(crate) streams: BTreeMap<u64, Stream>,
}

/// What came on a stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) data: Vec<u8>,
    pub(crate) is_finished: bool,
    /// The code of a RESET_STREAM,
    pub(crate) reset: Option<u64>,
    /// and of a STOP_SENDING.
    pub(crate) stopped: Option<u64>,
}

impl Hello {
    /// One that litequic takes, for a client of `litequic`.
    pub(crate) fn to(litequic: &Litequic) -> Self {
        let id = rand::random::<[u8; ID_LEN]>().to_vec();
        let number = |id, value| (id, varint(value));
        let parameters = vec![
            (0x0f, id.clone()),
            number(0x04, 1 << 20), // initial_max_data, ..._stream_data
            number(0x05, 1 << 18),
            number(0x06, 1 << 18),
            number(0x07, 1 << 18),
            number(0x09, 100),             // initial_max_streams_uni
            (27 + 31 * 40, vec![7; FULL]), // reserved: makes it two datagrams
        ];
        Self { id, parameters, tls: tls_config(&litequic.cert_pem), codepoint: Version::V1, edit: |_| {} }
    }

    /// Sets the parameter `id` to `value`.
    pub(crate) fn set(&mut self, id: u64, value: Vec<u8>) {
        self.parameters.retain(|parameter| parameter.0 != id);
        self.parameters.push((id, value));
    }
}

impl Sent {
    /// A packet with `frames`.
    pub(crate) fn new(level: Level, frames: impl Into<Vec<u8>>) -> Self {
        Self { level, frames: frames.into(), flip: 0 }
    }
}

pub(crate) use super::initial::crypto;

/// A STREAM frame with offset and length.
pub(crate) fn stream(id: u64, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    [vec![0x0e | u8::from(fin)], varint(id), varint(offset), varint(data.len() as u64), data.to_vec()].concat()
}

impl Wire {
    /// A client that has sent nothing yet.
    pub(crate) async fn new(litequic: &Litequic, hello: Hello) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(litequic.address).await.unwrap();
        let parameters: Vec<_> = hello.parameters.iter().flat_map(|(id, value)| parameter(*id, value)).collect();
        let name = "localhost".try_into().unwrap();
        let tls = ClientConnection::new(Arc::new(hello.tls), hello.codepoint, name, parameters).unwrap();
        let destination = rand::random::<[u8; ID_LEN]>().to_vec();
        let initial = Space { keys: Some(initial_keys(&destination)), ..Space::default() };
        Self {
            socket,
            tls,
            id: hello.id,
            destination,
            spaces: [initial, Space::default(), Space::default()],
            level: Level::Initial,
            edit: hello.edit,
            last: Vec::new(),
            close: None,
            handshake_done: false,
            streams: BTreeMap::new(),
        }
    }

    /// Does the handshake, or the rest of it, until it is confirmed; false if it is not.
    pub(crate) async fn handshake(&mut self) -> bool {
        if self.level == Level::Initial {
            self.hello().await;
        }
        self.until(|wire| wire.handshake_done).await
    }

    /// Sends the ClientHello and reads until there are Handshake keys, and sends nothing more.
    pub(crate) async fn half_a_handshake(&mut self) {
        self.hello().await;
        let deadline = Instant::now() + DEADLINE;
        while self.level == Level::Initial && self.close.is_none() {
            assert!(Instant::now() < deadline, "no Handshake keys");
            self.receive().await;
            self.read();
            let change = self.tls.write_hs(&mut Vec::new());
            self.change(change);
        }
    }

    async fn hello(&mut self) {
        let mut hello = Vec::new();
        assert!(self.tls.write_hs(&mut hello).is_none());
        (self.edit)(&mut hello);
        let pieces: Vec<_> = hello.chunks(HELLO_PIECE).zip(0..).map(|(piece, n)| crypto(n * 1000, piece)).collect();
        let mut datagrams = Vec::new();
        for piece in pieces {
            datagrams.push(self.packet(&Sent::new(Level::Initial, piece)));
        }
        self.send_datagrams(datagrams).await;
    }

    /// Reads until `done`; false if the connection closes before, or it does not come to it within the deadline.
    pub(crate) async fn until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + DEADLINE;
        while !done(self) {
            if self.close.is_some() || Instant::now() > deadline {
                return false;
            }
            self.receive().await;
            self.progress().await;
        }
        true
    }

    /// Sends each packet in a datagram of its own.
    pub(crate) async fn send(&mut self, packets: &[Sent]) {
        let datagrams = packets.iter().map(|sent| self.packet(sent)).collect();
        self.send_datagrams(datagrams).await;
    }

    async fn send_datagrams(&mut self, datagrams: Vec<Vec<u8>>) {
        self.last = datagrams;
        self.send_last().await;
    }

    async fn send_last(&self) {
        for datagram in &self.last {
            // An error is an ICMP message about an earlier one.
            let _ = self.socket.send(datagram).await;
        }
    }

    fn space(&mut self, level: Level) -> &mut Space {
        &mut self.spaces[level as usize]
    }

    /// A protected packet; one with an Initial is as large as a datagram must be.
    pub(crate) fn packet(&mut self, sent: &Sent) -> Vec<u8> {
        let Sent { level, ref frames, flip } = *sent;
        let (destination, id) = (self.destination.clone(), self.id.clone());
        let space = self.space(level);
        let number = space.next;
        space.next += 1;
        let mut payload = frames.clone();
        let mut header = match level {
            Level::OneRtt => [&[0x43], &destination[..]].concat(),
            Level::Initial | Level::Handshake => {
                let first = if level == Level::Initial { 0xc3 } else { 0xe3 };
                [&[first, 0, 0, 0, 1][..], &with_length(&destination), &with_length(&id)].concat()
            }
        };
        if level == Level::Initial {
            header.push(0); // no token
            payload.resize((FULL - header.len() - 2 - 4 - TAG_LEN).max(payload.len()), 0);
        }
        if level != Level::OneRtt {
            let length = u16::try_from(4 + payload.len() + TAG_LEN).unwrap() | 0x4000;
            header.extend(length.to_be_bytes());
        }
        header[0] ^= flip;
        protected(&space.keys.as_ref().expect("keys of that level").local, header, number, payload)
    }

    /// Takes the next datagram, or repeats what was sent last if none comes.
    pub(crate) async fn receive(&mut self) {
        let mut buffer = vec![0; 2000];
        match timeout(REPEAT, self.socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                buffer.truncate(length);
                self.datagram(&buffer);
            }
            Ok(Err(_)) => {}
            Err(_) => self.send_last().await,
        }
    }

    fn datagram(&mut self, mut datagram: &[u8]) {
        while let Some((&first, _)) = datagram.split_first() {
            let is_long = first & 0x80 != 0;
            let (level, number_at, end) = if is_long {
                let Some((level, number_at, end)) = self.long(datagram) else { return };
                (level, number_at, end)
            } else {
                (Level::OneRtt, 1 + self.id.len(), datagram.len())
            };
            let (packet, rest) = datagram.split_at(end.min(datagram.len()));
            datagram = rest;
            if let Some(payload) = self.open(level, number_at, packet) {
                self.frames(level, &payload);
            }
        }
    }

    /// Level, place of the packet number and end of a long-header packet.
    fn long(&mut self, datagram: &[u8]) -> Option<(Level, usize, usize)> {
        let level = match datagram[0] & 0x30 {
            0x00 => Level::Initial,
            0x20 => Level::Handshake,
            _ => return None,
        };
        let rest = datagram.get(5..)?;
        let (&own, rest) = rest.split_first()?;
        let rest = rest.get(usize::from(own)..)?;
        let (&length, rest) = rest.split_first()?;
        let (id, mut rest) = rest.split_at_checked(length.into())?;
        if level == Level::Initial {
            let (token, after) = read_varint(rest)?;
            rest = after.get(usize::try_from(token).unwrap()..)?;
        }
        let (length, after) = read_varint(rest)?;
        self.destination = id.to_vec();
        let number_at = datagram.len() - after.len();
        Some((level, number_at, number_at + usize::try_from(length).unwrap()))
    }

    fn open(&mut self, level: Level, number_at: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let space = self.space(level);
        let keys = &space.keys.as_ref()?.remote;
        let mut header = packet.get(..number_at + 4)?.to_vec();
        let sample = packet.get(number_at + 4..number_at + 4 + keys.header.sample_len())?;
        let (first, number) = header.split_at_mut(number_at);
        keys.header.decrypt_in_place(sample, &mut first[0], number).ok()?;
        let length = usize::from(first[0] & 3) + 1;
        header.truncate(number_at + length);
        let truncated = header[number_at..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        // RFC 9000 §A.3
        let (window, expected) = (1 << (8 * length), space.largest.map_or(0, |largest| largest + 1));
        let mut number = (expected & !(window - 1)) | truncated;
        if number + window / 2 <= expected {
            number += window;
        } else if number > expected + window / 2 && number >= window {
            number -= window;
        }
        let mut payload = packet[number_at + length..].to_vec();
        let payload = keys.packet.decrypt_in_place(number, &header, &mut payload).ok()?.to_vec();
        space.largest = space.largest.max(Some(number));
        Some(payload)
    }

    fn frames(&mut self, level: Level, payload: &[u8]) {
        for frame in FrameIter::new(payload) {
            let body = frame.body;
            let first = read_varint(body);
            match frame.kind {
                0x04 | 0x05 => {
                    let Some((id, rest)) = first else { return };
                    let code = read_varint(rest).map(|(code, _)| code);
                    let stream = self.streams.entry(id).or_default();
                    if frame.kind == 0x04 { stream.reset = code } else { stream.stopped = code }
                }
                0x06 => {
                    let Some((offset, rest)) = first else { return };
                    let Some((_, data)) = read_varint(rest) else { return };
                    self.space(level).crypto.insert(offset, data.to_vec());
                }
                kind @ 0x08..=0x0f => {
                    let Some((id, mut rest)) = first else { return };
                    for flag in [0x04, 0x02] {
                        if kind & flag != 0 {
                            let Some((_, after)) = read_varint(rest) else { return };
                            rest = after;
                        }
                    }
                    let stream = self.streams.entry(id).or_default();
                    stream.data.extend_from_slice(rest);
                    stream.is_finished |= kind & 1 != 0;
                }
                0x1c => self.close = first.map(|(code, _)| Close::Transport(code)),
                0x1d => self.close = first.map(|(code, _)| Close::Application(code)),
                0x1e => self.handshake_done = true,
                _ => {}
            }
        }
    }

    /// Passes CRYPTO data to TLS, and sends its answer.
    async fn progress(&mut self) {
        loop {
            self.read();
            let mut message = Vec::new();
            let change = self.tls.write_hs(&mut message);
            let level = self.level;
            if !message.is_empty() {
                let offset = std::mem::replace(&mut self.space(level).sent, message.len() as u64);
                self.send(&[Sent::new(level, crypto(offset, &message))]).await;
            }
            let is_over = change.is_none() && message.is_empty();
            self.change(change);
            if is_over {
                return;
            }
        }
    }

    fn change(&mut self, change: Option<KeyChange>) {
        let (level, keys) = match change {
            Some(KeyChange::Handshake { keys }) => (Level::Handshake, keys),
            Some(KeyChange::OneRtt { keys, .. }) => (Level::OneRtt, keys),
            None => return,
        };
        self.space(level).keys = Some(keys);
        self.level = level;
    }

    /// Hands CRYPTO data to TLS.
    fn read(&mut self) {
        for space in &mut self.spaces {
            while let Some((&offset, data)) = space.crypto.range(..=space.taken).next_back() {
                let end = offset + data.len() as u64;
                let Some(fresh) = data.get(usize::try_from(space.taken - offset).unwrap()..) else { break };
                if fresh.is_empty() {
                    break;
                }
                // An error: the test has changed the ClientHello, and looks for a CONNECTION_CLOSE alone.
                let _ = self.tls.read_hs(fresh);
                space.taken = end;
            }
        }
    }
}

/// An encoded transport parameter.
fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    [varint(id), varint(value.len() as u64), value.to_vec()].concat()
}
