//! Initial packets by hand (RFC 9000 §17.2.2): a client that begins handshakes and completes none, with any connection
//! IDs, tokens, sizes and addresses. What a valid packet needs of TLS comes from rustls.

use super::{client::tls_config, prelude::*, raw::varint};
use rustls::{
    Side,
    crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
    quic::{ClientConnection, DirectionalKeys, Keys, Version},
};
use std::net::{IpAddr, Ipv6Addr};
use tokio::{net::UdpSocket, time::Instant};

/// The least that a datagram with an Initial has (RFC 9000 §14.1).
pub(crate) const FULL: usize = 1200;
/// A version that forces negotiation (RFC 9000 §15).
const NO_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
pub(crate) const TAG_LEN: usize = 16;
/// Between two sendings of a mark that is not answered.
const MARK_AGAIN: Duration = Duration::from_millis(500);

/// A client that sends what a test likes from one port.
pub(crate) struct Stranger {
    pub(crate) socket: UdpSocket,
    server: SocketAddr,
    /// Its connection ID.
    pub(crate) id: Vec<u8>,
    /// A real ClientHello.
    pub(crate) hello: Vec<u8>,
    /// Bytes of all that came back.
    pub(crate) received: usize,
}

/// An Initial to be.
#[derive(Debug, Clone)]
pub(crate) struct Initial<'a> {
    pub(crate) destination: &'a [u8],
    pub(crate) token: &'a [u8],
    /// Bytes in all, the tag among them.
    pub(crate) size: usize,
    pub(crate) number: u32,
}

/// The content of a Retry.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    /// The ID to which the client is to send from now on.
    pub(crate) id: Vec<u8>,
    pub(crate) token: Vec<u8>,
}

/// An unknown connection ID.
pub(crate) fn fresh_id() -> [u8; 8] {
    rand::random()
}

impl<'a> Initial<'a> {
    /// The first one of a handshake, as large as it has to be.
    pub(crate) fn to(destination: &'a [u8]) -> Self {
        Self { destination, token: &[], size: FULL, number: 0 }
    }
}

impl Stranger {
    /// A client of `litequic` at 127.0.0.1.
    pub(crate) async fn of(litequic: &Litequic) -> Self {
        Self::at(litequic, litequic.address).await
    }

    /// A client of `litequic` at `server`, one of this machine's addresses.
    pub(crate) async fn at(litequic: &Litequic, server: SocketAddr) -> Self {
        let local: IpAddr = if server.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        Self::between(local, litequic, server).await
    }

    /// A client of `litequic` at 127.0.0.1, from the address `local`.
    pub(crate) async fn from(local: Ipv4Addr, litequic: &Litequic) -> Self {
        Self::between(local.into(), litequic, litequic.address).await
    }

    async fn between(local: IpAddr, litequic: &Litequic, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((local, 0)).await.unwrap();
        let id = fresh_id().to_vec();
        // initial_source_connection_id (RFC 9000 §18.2) and windows to send into.
        let window = varint(1_000_000);
        let window = |kind: u8| [&[kind, u8::try_from(window.len()).unwrap()], &window[..]].concat();
        let parameters = [&[0x0f, 8][..], &id, &window(0x04), &window(0x05), &window(0x06), &window(0x07)].concat();
        let config = Arc::new(tls_config(&litequic.cert_pem));
        let name = "localhost".try_into().unwrap();
        let mut tls = ClientConnection::new(config, Version::V1, name, parameters).unwrap();
        let mut hello = Vec::new();
        tls.write_hs(&mut hello);
        Self { socket, server, id, hello, received: 0 }
    }

    /// The same client at another port.
    pub(crate) async fn elsewhere(&self) -> Self {
        let local = self.socket.local_addr().unwrap().ip();
        let socket = UdpSocket::bind((local, 0)).await.unwrap();
        Self { socket, server: self.server, id: self.id.clone(), hello: self.hello.clone(), received: 0 }
    }

    /// Sends to `litequic` from now on.
    pub(crate) fn turn_to(&mut self, litequic: &Litequic) {
        self.server = litequic.address;
    }

    /// `initial` with the ClientHello in it, padded and protected.
    pub(crate) fn packet(&self, initial: &Initial<'_>) -> Vec<u8> {
        self.sealed(initial, crypto(0, &self.hello))
    }

    /// `initial` with `frames` in it, padded and protected.
    pub(crate) fn sealed(&self, initial: &Initial<'_>, frames: Vec<u8>) -> Vec<u8> {
        let Initial { destination, token, size, number } = *initial;
        let ids = [with_length(destination), with_length(&self.id)].concat();
        let start = [&[0xc3, 0, 0, 0, 1][..], &ids, &varint(token.len() as u64), token].concat();
        let number_at = start.len() + 2;
        let mut payload = frames;
        payload.resize(size.saturating_sub(number_at + 4 + TAG_LEN).max(payload.len()), 0);
        // Two bytes, whatever the length (RFC 9000 §16).
        let length = u16::try_from(4 + payload.len() + TAG_LEN).unwrap() | 0x4000;
        let header = [&start[..], &length.to_be_bytes()].concat();
        protected(&initial_keys(destination).local, header, number, payload)
    }

    /// The frames of the Initial at the beginning of `datagram`, which answers one to `destination`.
    pub(crate) fn opened(&self, destination: &[u8], datagram: &[u8]) -> Vec<u8> {
        assert_eq!(datagram[0] & 0xf0, 0xc0, "an Initial");
        assert_eq!(datagram[6..6 + usize::from(datagram[5])], self.id);
        let source_at = 6 + self.id.len();
        // No token, and a length of two bytes or one.
        let length_at = source_at + 1 + usize::from(datagram[source_at]) + 1;
        assert_eq!(datagram[length_at - 1], 0, "a server's Initial has no token");
        let long = usize::from(datagram[length_at] >> 6);
        assert!(long < 2);
        let length = datagram[length_at..=length_at + long].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let number_at = length_at + 1 + long;
        let mut packet = datagram[..number_at + (length & 0x3fff)].to_vec();
        let keys = initial_keys(destination).remote;
        let (head, sample) = packet.split_at_mut(number_at + 4);
        let (first, number) = head.split_at_mut(number_at);
        keys.header.decrypt_in_place(&sample[..keys.header.sample_len()], &mut first[0], number).unwrap();
        let payload_at = number_at + 1 + usize::from(first[0] & 3);
        let number = packet[number_at..payload_at].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (header, payload) = packet.split_at_mut(payload_at);
        keys.packet.decrypt_in_place(number, header, payload).unwrap().to_vec()
    }

    pub(crate) async fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.server).await.unwrap();
    }

    /// The next datagram.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        within("an answer", self.receive_whenever()).await
    }

    /// The same, however long it takes.
    pub(crate) async fn receive_whenever(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 2000];
        let (length, from) = self.socket.recv_from(&mut buffer).await.unwrap();
        // From another of its addresses a client would not take it.
        assert_eq!(from, self.server);
        self.received += length;
        buffer.truncate(length);
        buffer
    }

    /// Counts what comes until `done`.
    pub(crate) async fn receive_until(&mut self, done: impl Future<Output = ()>) {
        let mut done = std::pin::pin!(done);
        loop {
            tokio::select! {
                () = &mut done => return,
                _ = self.receive_whenever() => {}
            }
        }
    }

    /// Causes a Retry, which must come.
    pub(crate) async fn retry(&mut self) -> Retry {
        self.try_retry().await.expect("a Retry")
    }

    /// Sends an Initial; `None` if it is answered with anything but a Retry.
    pub(crate) async fn try_retry(&mut self) -> Option<Retry> {
        let id = fresh_id();
        self.send(&self.packet(&Initial::to(&id))).await;
        let answer = self.receive().await;
        if answer[0] & 0xf0 != 0xf0 {
            return None;
        }
        let own = usize::from(answer[5]);
        let (length, rest) = answer[6 + own..].split_first().unwrap();
        let (id, token) = rest.split_at(usize::from(*length));
        Some(Retry { id: id.to_vec(), token: token[..token.len() - TAG_LEN].to_vec() })
    }

    /// Everything that came until now: litequic has taken every datagram sent before, and answered what it answers. It
    /// answers a version that it does not know, which marks the place.
    pub(crate) async fn settled(&mut self) -> Vec<Vec<u8>> {
        let mut before = Vec::new();
        // Twice: answers of one turn may leave in any order.
        for _ in 0..2 {
            let mark = fresh_id();
            let deadline = Instant::now() + DEADLINE;
            self.send(&unknown_version(&mark, FULL)).await;
            loop {
                assert!(Instant::now() < deadline, "answers do not end");
                // After a flood a socket's buffer can be full, and the mark is dropped.
                let Ok(answer) = timeout(MARK_AGAIN, self.receive_whenever()).await else {
                    self.send(&unknown_version(&mark, FULL)).await;
                    continue;
                };
                // The IDs come back exchanged (RFC 9000 §17.2.1).
                if answer.get(1..5) == Some(&[0; 4]) && answer.windows(mark.len()).any(|id| id == mark) {
                    self.received -= answer.len();
                    break;
                }
                before.push(answer);
            }
        }
        before
    }
}

/// A CRYPTO frame (RFC 9000 §19.6).
pub(crate) fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    [&[0x06][..], &varint(offset), &varint(data.len() as u64), data].concat()
}

/// The keys that everyone can make of the ID that a client chose (RFC 9001 §5.2).
pub(crate) fn initial_keys(destination: &[u8]) -> Keys {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    Keys::initial(Version::V1, suite, suite.quic.unwrap(), destination, Side::Client)
}

/// A connection ID behind its length.
pub(crate) fn with_length(id: &[u8]) -> Vec<u8> {
    [&[u8::try_from(id.len()).unwrap()], id].concat()
}

/// The packet of `payload` with packet and header protection (RFC 9001 §5); `header` ends before its `number`, which
/// takes four bytes.
pub(crate) fn protected(keys: &DirectionalKeys, header: Vec<u8>, number: u32, mut payload: Vec<u8>) -> Vec<u8> {
    let number_at = header.len();
    let header = [header, number.to_be_bytes().to_vec()].concat();
    let tag = keys.packet.encrypt_in_place(number.into(), &header, &mut payload).unwrap();
    let mut packet = [&header, &payload, tag.as_ref()].concat();
    let (head, sample) = packet.split_at_mut(number_at + 4);
    let (first, number) = head.split_at_mut(number_at);
    keys.header.encrypt_in_place(&sample[..keys.header.sample_len()], &mut first[0], number).unwrap();
    packet
}

/// A long header of an unknown version, `size` bytes.
pub(crate) fn unknown_version(source: &[u8], size: usize) -> Vec<u8> {
    let length = u8::try_from(source.len()).unwrap();
    let mut datagram = [&[0xc0][..], &NO_VERSION, &[8, 1, 2, 3, 4, 5, 6, 7, 8, length], source].concat();
    datagram.resize(size.max(datagram.len()), 0);
    datagram
}
