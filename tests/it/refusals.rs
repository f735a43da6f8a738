//! Handshakes that litequic rejects: the client gets a CONNECTION_CLOSE with the code of the reason, at once, also
//! where its whole ClientHello is in one datagram. s2n-quic by itself answers nothing then, and the client waits for
//! its own timeout.

use crate::support::{
    initial::{FULL, Initial, Stranger, crypto, fresh_id},
    prelude::*,
    raw::varint,
};
use litequic_quic::frame::{FrameIter, kind};

/// CRYPTO_ERROR (RFC 9000 §20.1): with the alert's number (RFC 8446 §6) added.
const ALERT: u64 = 0x100;
const UNEXPECTED_MESSAGE: u64 = ALERT + 10;
const HANDSHAKE_FAILURE: u64 = ALERT + 40;
const ILLEGAL_PARAMETER: u64 = ALERT + 47;
const DECODE_ERROR: u64 = ALERT + 50;
const PROTOCOL_VERSION: u64 = ALERT + 70;
const MISSING_EXTENSION: u64 = ALERT + 109;
const NO_APPLICATION_PROTOCOL: u64 = ALERT + 120;
const TRANSPORT_PARAMETER_ERROR: u64 = 0x08;

/// Extensions (RFC 8446 §4.2, RFC 9001 §8.2).
const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;
const TRANSPORT_PARAMETERS: u16 = 57;

/// A ClientHello (RFC 8446 §4.1.2), taken apart.
struct Hello {
    /// Version, random and session ID.
    head: Vec<u8>,
    suites: Vec<u8>,
    compression: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// `data` behind its length in `bytes` bytes.
fn sized(bytes: usize, data: &[u8]) -> Vec<u8> {
    [&data.len().to_be_bytes()[size_of::<usize>() - bytes..], data].concat()
}

impl Hello {
    fn parse(message: &[u8]) -> Self {
        let (head, rest) = message[4..].split_at(2 + 32 + 1 + usize::from(message[4 + 34]));
        let (suites, rest) = rest[2..].split_at(number(&rest[..2]));
        let (compression, rest) = rest[1..].split_at(usize::from(rest[0]));
        let (mut rest, mut extensions) = (&rest[2..], Vec::new());
        while let [a, b, c, d, after @ ..] = rest {
            let (data, after) = after.split_at(number(&[*c, *d]));
            extensions.push((u16::from_be_bytes([*a, *b]), data.to_vec()));
            rest = after;
        }
        Self { head: head.to_vec(), suites: suites.to_vec(), compression: compression.to_vec(), extensions }
    }

    fn encode(&self) -> Vec<u8> {
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &sized(2, data)].concat())
            .collect();
        let body = [self.head.clone(), sized(2, &self.suites), sized(1, &self.compression), sized(2, &extensions)];
        [vec![1], sized(3, &body.concat())].concat()
    }

    fn extension(&mut self, kind: u16) -> &mut Vec<u8> {
        &mut self.extensions.iter_mut().find(|(other, _)| *other == kind).unwrap().1
    }

    fn without(&mut self, kind: u16) {
        let before = self.extensions.len();
        self.extensions.retain(|(other, _)| *other != kind);
        assert_eq!(self.extensions.len() + 1, before);
    }

    /// One transport parameter more.
    fn parameter(&mut self, id: u64, value: &[u8]) {
        let more = [varint(id), varint(value.len() as u64), value.to_vec()].concat();
        self.extension(TRANSPORT_PARAMETERS).extend(more);
    }
}

type Edit = fn(&mut Hello);

/// The fault of a ClientHello, how it was made, and its code.
const REFUSED: &[(&str, Edit, u64)] = &[
    ("another protocol", |hello| *hello.extension(ALPN) = sized(2, &sized(1, b"h2")), NO_APPLICATION_PROTOCOL),
    ("no protocol", |hello| hello.without(ALPN), NO_APPLICATION_PROTOCOL),
    ("protocols that are none", |hello| *hello.extension(ALPN) = vec![0, 9, 2], DECODE_ERROR),
    ("no cipher suite in common", |hello| hello.suites = vec![0x13, 0x05], HANDSHAKE_FAILURE),
    ("no cipher suites", |hello| hello.suites = vec![], DECODE_ERROR),
    ("TLS 1.2", |hello| hello.without(SUPPORTED_VERSIONS), PROTOCOL_VERSION),
    ("TLS 1.4", |hello| *hello.extension(SUPPORTED_VERSIONS) = vec![2, 3, 5], PROTOCOL_VERSION),
    ("no group in common", |hello| *hello.extension(SUPPORTED_GROUPS) = vec![0, 2, 0x1a, 0x1a], HANDSHAKE_FAILURE),
    ("no groups", |hello| hello.without(SUPPORTED_GROUPS), HANDSHAKE_FAILURE),
    ("no key share", |hello| hello.without(KEY_SHARE), MISSING_EXTENSION),
    ("no signature algorithms", |hello| hello.without(SIGNATURE_ALGORITHMS), MISSING_EXTENSION),
    ("compression", |hello| hello.compression = vec![1], ILLEGAL_PARAMETER),
    ("a name that is none", |hello| *hello.extension(SERVER_NAME) = sized(2, &[0, 0, 1]), DECODE_ERROR),
    ("an extension twice", |hello| hello.extensions.push((ALPN, sized(2, &sized(1, b"h3")))), ILLEGAL_PARAMETER),
    ("no transport parameters", |hello| hello.without(TRANSPORT_PARAMETERS), MISSING_EXTENSION),
    ("an empty list of them", |hello| hello.extension(TRANSPORT_PARAMETERS).clear(), TRANSPORT_PARAMETER_ERROR),
    ("one that ends early", |hello| hello.extension(TRANSPORT_PARAMETERS).extend([4, 8, 0]), TRANSPORT_PARAMETER_ERROR),
    ("one twice", |hello| hello.parameter(0x04, &[1]), TRANSPORT_PARAMETER_ERROR),
    ("a source ID twice", |hello| hello.parameter(0x0f, &[1; 8]), TRANSPORT_PARAMETER_ERROR),
    (
        "another source ID",
        |hello| {
            hello.extension(TRANSPORT_PARAMETERS).clear();
            hello.parameter(0x0f, &[7; 8]);
        },
        TRANSPORT_PARAMETER_ERROR,
    ),
    (
        "a server's: original_destination_connection_id",
        |hello| hello.parameter(0x00, &[1; 8]),
        TRANSPORT_PARAMETER_ERROR,
    ),
    ("a server's: stateless_reset_token", |hello| hello.parameter(0x02, &[1; 16]), TRANSPORT_PARAMETER_ERROR),
    ("a server's: preferred_address", |hello| hello.parameter(0x0d, &[1; 50]), TRANSPORT_PARAMETER_ERROR),
    ("a server's: retry_source_connection_id", |hello| hello.parameter(0x10, &[1; 8]), TRANSPORT_PARAMETER_ERROR),
    ("max_udp_payload_size = 1199", |hello| hello.parameter(0x03, &varint(1199)), TRANSPORT_PARAMETER_ERROR),
    ("ack_delay_exponent = 21", |hello| hello.parameter(0x0a, &[21]), TRANSPORT_PARAMETER_ERROR),
    ("max_ack_delay = 2^14", |hello| hello.parameter(0x0b, &varint(1 << 14)), TRANSPORT_PARAMETER_ERROR),
    ("active_connection_id_limit = 1", |hello| hello.parameter(0x0e, &[1]), TRANSPORT_PARAMETER_ERROR),
    (
        "initial_max_streams_bidi = 2^60 + 1",
        |hello| hello.parameter(0x08, &varint((1 << 60) + 1)),
        TRANSPORT_PARAMETER_ERROR,
    ),
    (
        "initial_max_streams_uni = 2^60 + 1",
        |hello| hello.parameter(0x09, &varint((1 << 60) + 1)),
        TRANSPORT_PARAMETER_ERROR,
    ),
    ("disable_active_migration with a value", |hello| hello.parameter(0x0c, &[1]), TRANSPORT_PARAMETER_ERROR),
    ("a number with something behind it", |hello| hello.parameter(0x01, &[1, 1]), TRANSPORT_PARAMETER_ERROR),
];

/// How a client sends its ClientHello.
#[derive(Debug, Clone, Copy)]
enum Way {
    OneDatagram,
    TwoDatagrams,
    /// In two Initials of one datagram.
    TwoPackets,
    /// In one Initial, with another behind it in its datagram.
    WithAnother,
}

impl Way {
    const ALL: [Self; 4] = [Self::OneDatagram, Self::TwoDatagrams, Self::TwoPackets, Self::WithAnother];

    /// The datagrams of `stranger` to `id`.
    fn datagrams(self, stranger: &Stranger, id: &[u8]) -> Vec<Vec<u8>> {
        let (one, two) = stranger.hello.split_at(stranger.hello.len() / 2);
        let packet = |number, size, frames| stranger.sealed(&Initial { number, size, ..Initial::to(id) }, frames);
        match self {
            Self::OneDatagram => vec![packet(0, FULL, crypto(0, &stranger.hello))],
            Self::TwoDatagrams => vec![packet(0, FULL, crypto(0, one)), packet(1, FULL, crypto(one.len() as u64, two))],
            Self::TwoPackets => {
                vec![[packet(0, 0, crypto(0, one)), packet(1, FULL, crypto(one.len() as u64, two))].concat()]
            }
            Self::WithAnother => vec![[packet(0, 0, crypto(0, &stranger.hello)), packet(1, FULL, vec![1; 4])].concat()],
        }
    }
}

/// The code in the CONNECTION_CLOSE that comes.
async fn close_code(stranger: &mut Stranger, id: &[u8], what: &str) -> u64 {
    loop {
        let received = timeout(DEADLINE, stranger.receive_whenever()).await;
        let datagram = received.unwrap_or_else(|_| panic!("{what}: no CONNECTION_CLOSE"));
        // An acknowledgement comes before it, and for one that s2n-quic finds by itself the server's flight.
        if datagram[0] & 0xf0 != 0xc0 {
            continue;
        }
        let frames = stranger.opened(id, &datagram);
        let close = FrameIter::new(&frames).find(|frame| frame.kind == kind::CONNECTION_CLOSE);
        if let Some(close) = close {
            let length = 1 << (close.body[0] >> 6);
            return number(&close.body[..length]) as u64 & !(0xc0 << (8 * (length - 1)));
        }
    }
}

fn failed(worker: &WorkerMetrics) -> [u64; 2] {
    [worker.quic.handshakes_failed_tls.get(), worker.quic.handshakes_failed_other.get()]
}

#[tokio::test]
async fn a_refused_handshake_is_closed_with_its_reason() {
    let litequic = Litequic::demo(|_| {}).await;
    for way in Way::ALL {
        for (what, edit, code) in REFUSED {
            let what = format!("{what}, {way:?}");
            let mut stranger = Stranger::of(&litequic).await;
            let mut hello = Hello::parse(&stranger.hello);
            assert_eq!(hello.encode(), stranger.hello);
            edit(&mut hello);
            stranger.hello = hello.encode();
            let before = [0, 1].map(|index| litequic.sum(|worker| failed(worker)[index]));
            let id = fresh_id();
            for datagram in way.datagrams(&stranger, &id) {
                stranger.send(&datagram).await;
            }
            let closed = close_code(&mut stranger, &id, &what).await;
            assert_eq!(closed, *code, "{what}: {closed:#x}");
            let counted = [0, 1].map(|index| litequic.sum(|worker| failed(worker)[index]) - before[index]);
            assert_eq!(counted, if *code < ALERT { [0, 1] } else { [1, 0] }, "{what}");
        }
    }
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.wait_until("connections_held = 0", |worker| worker.quic.connections_held.get(), |held| held == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn what_is_no_client_hello_is_refused_as_such() {
    let litequic = Litequic::demo(|_| {}).await;
    let table: [(&str, &[u8], u64); 4] = [
        ("a ServerHello", &[2, 0, 0, 2, 3, 3], DECODE_ERROR),
        ("a Finished", &[20, 0, 0, 2, 3, 3], UNEXPECTED_MESSAGE),
        ("an empty one", &[1, 0, 0, 0], DECODE_ERROR),
        ("a type that there is not", &[200, 0, 0, 1, 0], UNEXPECTED_MESSAGE),
    ];
    for (what, message, code) in table {
        let mut stranger = Stranger::of(&litequic).await;
        let id = fresh_id();
        stranger.send(&stranger.sealed(&Initial::to(&id), crypto(0, message))).await;
        let closed = close_code(&mut stranger, &id, what).await;
        assert_eq!(closed, code, "{what}: {closed:#x}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_flood_of_handshakes_to_be_refused_is_bounded_as_any_other() {
    const LIMIT: u64 = 8;
    let litequic = Litequic::demo(|config| config.limits.retry_handshakes = u32::try_from(LIMIT).unwrap()).await;
    let mut stranger = Stranger::of(&litequic).await;
    let mut hello = Hello::parse(&stranger.hello);
    hello.without(ALPN);
    stranger.hello = hello.encode();
    let mut sent = 0;
    for _ in 0..100 {
        let datagram = stranger.packet(&Initial::to(&fresh_id()));
        sent += datagram.len();
        stranger.send(&datagram).await;
        stranger.settled().await;
        assert!(litequic.sum(|worker| worker.quic.handshakes_open.get()) <= LIMIT);
    }
    assert!(litequic.sum(|worker| worker.quic.retries.get()) > 0);
    assert!(stranger.received < sent, "{} for {sent}", stranger.received);
    // Clients that prove their address get in.
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.stop().await;
}
