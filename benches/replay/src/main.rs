//! Replays the packets and requests of a load through litequic's own code, in this process and without a clock, so that
//! its instructions are the same each time: `benches/gate.sh` counts them by callgrind and compares them with
//! benches/replay/replay.txt. s2n-quic, rustls, hyper and the kernel are not part of it: `benches/instructions.sh`
//! counts the whole server's instructions.
//!
//! ```text
//! litequic-replay CASE TIMES
//! ```

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unreachable,
    reason = "what is replayed was made here"
)]

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, StatusCode};
use litequic_config::{Config, ServerId};
use litequic_exchange::{Client, FieldNameRef, Fields, LastAuthority, LastForwarded, Protocol, TlsIdentity};
use litequic_http3::{
    Http3Metrics,
    frame::{FrameHeader, FrameType, MessagePart, MessageStream, PeerRole},
    message,
    qpack::{self, FieldLimits},
    varint,
};
use litequic_net::datagram::OutgoingBatch;
use litequic_proxy::{Routing, convert_request_head, convert_response_head};
use litequic_quic::{
    AckFrequencySupport, AckReordering, AcknowledgedNumbers, Arrival, ConnectionIdFormat, IdScheme,
    frame::{AckRanges, FrameIter, kind},
};
use litequic_resources::fairness::{ClientSource, FairPool};
use s2n_quic_core::{
    connection::id::{ConnectionInfo, Generator as _, Validator as _},
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    collections::VecDeque,
    env,
    hint::black_box,
    net::Ipv4Addr,
    path::PathBuf,
    time::{Duration, Instant},
};

const LIMITS: FieldLimits = FieldLimits { bytes: 32 * 1024, fields: 100 };
/// Bytes of a full datagram, and of the STREAM frame's data in the datagram.
const DATAGRAM: usize = 1452;
const DATA: usize = 1410;
/// Number of datagrams of a MB.
const MEGABYTE: u64 = 1_000_000 / DATA as u64;
/// Bytes of a DATA frame that litequic sends.
const FRAME: usize = 16 * 1024;
/// Number of datagrams that are received together.
const BATCH: usize = 16;

/// Field section of the laboratory's loader: `:method: GET`, `:scheme: https` by the static table; `:authority`,
/// `:path` as literals.
const SMALL: &[u8] = b"\0\0\xd1\xd7\x50\x09localhost\x51\x05/1000";
/// Further fields of a browser's request, as ls-qpack encodes them, with Huffman.
const BROWSER: &[u8] = include_bytes!("../../lab/src/load/h3/browser.section");
/// Transport parameters of Firefox, from the captures of tests/fixtures.
const PARAMETERS: &str = include_str!("../../../tests/fixtures/transport-parameters/firefox.hex");

/// Head of a response of nginx.
const RESPONSE: [(&str, &str); 8] = [
    ("server", "nginx"),
    ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ("content-type", "text/plain"),
    ("content-length", "1000"),
    ("last-modified", "Wed, 31 Dec 2025 12:00:00 GMT"),
    ("connection", "keep-alive"),
    ("etag", "\"6565a1b2-2cba4\""),
    ("accept-ranges", "bytes"),
];

fn main() {
    let arguments: Vec<String> = env::args().filter(|argument| argument != "--bench").collect();
    let [_, case, times] = arguments.as_slice() else {
        // `cargo test` and `cargo bench` pass no arguments: each case runs once.
        CASES.iter().for_each(|(_, prepare)| prepare()());
        return;
    };
    let (_, prepare) = CASES.iter().find(|(name, _)| name == case).expect("a case");
    let mut replay = prepare();
    (0..times.parse().expect("a number")).for_each(|_| replay());
}

type Replay = Box<dyn FnMut()>;
/// Name of a case, and the function that makes its replay.
type Case = (&'static str, fn() -> Replay);

const CASES: &[Case] = &[
    ("request", || request(SMALL.to_vec())),
    ("browser", || request([SMALL, BROWSER].concat())),
    ("ack2", || download(2)),
    ("ack10", || download(10)),
    ("ack100", || download(100)),
    ("upload", upload),
    ("handshake", handshake),
    ("ids", || ids(None)),
    ("server_ids", || ids(Some(SERVER_ID))),
    ("encrypted", || ids(Some(ENCRYPTED_ID))),
    ("headers", || headers(None)),
    ("server_hdr", || headers(Some(SERVER_ID))),
    ("encr_hdr", || headers(Some(ENCRYPTED_ID))),
    ("pool", || pool(0)),
    ("queue", || pool(1_000)),
];

/// Formats of IDs with a server ID of 8 bytes: the nonce's length in bytes, and whether there is a key.
type Layout = (u8, bool);
const SERVER_ID: Layout = (7, false);
const ENCRYPTED_ID: Layout = (8, true);
/// Number of packets of [`headers`].
const PACKETS: usize = 100;

fn format(layout: Option<Layout>) -> ConnectionIdFormat {
    let of =
        |(nonce, encrypted): Layout| ServerId::from_digits("0102030405060708", nonce, encrypted.then(PathBuf::new));
    let server_id = layout.map(of);
    let key = Some([7; 16].into());
    ConnectionIdFormat::for_only_worker(IdScheme::new(server_id.as_ref(), key, Some([1, 2])).expect("memory").into())
}

/// Four connection IDs that a connection gets.
fn ids(layout: Option<Layout>) -> Replay {
    let (mut format, address) = (format(layout), SocketAddress::default());
    Box::new(move || {
        for _ in 0..4 {
            black_box(format.generate(&ConnectionInfo::new(&address)));
            black_box(format.lifetime());
        }
    })
}

/// Connection IDs of short headers, as received.
fn headers(layout: Option<Layout>) -> Replay {
    let (mut format, address) = (format(layout), SocketAddress::default());
    let id = format.generate(&ConnectionInfo::new(&address));
    let packet = [id.as_bytes(), &[0; 40]].concat();
    Box::new(move || {
        for _ in 0..PACKETS {
            assert!(format.validate(&ConnectionInfo::new(&address), black_box(&packet)).is_some());
        }
    })
}

/// Takes and releases a slot of a pool of 512 connections, while `waiting` requests of sixteen connections of one
/// client wait.
fn pool(waiting: u64) -> Replay {
    let (mut pool, now) = (FairPool::new(512), Instant::now());
    let source = |number: u64| ClientSource::new(Some((Ipv4Addr::LOCALHOST.into(), 32)), number % 16);
    let wait = move |pool: &mut FairPool<u64>, number| {
        black_box(pool.enqueue_request(source(number), now, u32::MAX, number));
    };
    let mut used = VecDeque::new();
    if waiting > 0 {
        used.extend((0..512).map_while(|number| pool.take_slot(source(number))));
        (0..waiting).for_each(|number| wait(&mut pool, number));
    }
    let mut number = waiting;
    Box::new(move || {
        number += 1;
        match pool.take_slot(source(number)) {
            Some(slot) => used.push_back(slot),
            None => wait(&mut pool, number),
        }
        pool.release_slot(used.pop_front().expect("a slot in use"));
        used.extend(pool.grant_slot().map(|(request, slot)| {
            black_box(request);
            slot
        }));
    })
}

/// Serves a request with the field section `section`, and its response of 1 KB: from the stream's bytes to the origin's
/// head, and back.
fn request(section: Vec<u8>) -> Replay {
    let mut stream = BytesMut::new();
    FrameHeader { kind: FrameType::Headers, length: section.len() as u64 }.encode_frame_header(&mut stream);
    stream.extend_from_slice(&section);
    let stream = stream.freeze();
    let address = (Ipv4Addr::LOCALHOST, 443).into();
    let origin = "http://127.0.0.1:8080".parse().expect("an address");
    let config = Config::with_defaults(address, origin, PathBuf::new(), PathBuf::new());
    let routing = Routing::new(&config);
    let client = Client {
        address: (Ipv4Addr::new(192, 0, 2, 7), 4711).into(),
        local: address,
        protocol: Protocol::Http3,
        server_name: Some("localhost".into()),
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    };
    let metrics = Http3Metrics::default();
    let response: Fields =
        RESPONSE.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect();
    let mut out = Vec::with_capacity(2048);
    let last = LastAuthority::default();
    Box::new(move || {
        let mut reader = MessageStream::new(PeerRole::Client, LIMITS.bytes);
        let mut input = stream.clone();
        let Some(MessagePart::Header(section)) = reader.read_part(&mut input).expect("valid") else {
            unreachable!("a header")
        };
        let decoded = qpack::decode_section(&section, &LIMITS).expect("valid");
        let mut head = message::decode_request(decoded, false, &last).expect("valid").head;
        convert_request_head(&routing, &mut head, &client).expect("has a route");
        black_box(&head);
        let mut fields = response.clone();
        convert_response_head(StatusCode::OK, &mut fields, &Method::GET, Some(1000)).expect("a plain response");
        out.clear();
        message::encode_response(StatusCode::OK, &fields, &mut out).expect("valid");
        FrameHeader { kind: FrameType::Data, length: 1000 }.encode_frame_header(&mut out);
        metrics.requests.increment();
        metrics.shared.request_duration.observe_time(Duration::from_micros(1234));
        metrics.shared.response_size.observe_size(1000);
        black_box(&out);
    })
}

/// ACK frame of a client that has all packets up to `largest`, as ngtcp2 sends it while nothing is lost.
fn ack(largest: u64) -> Vec<u8> {
    let mut frame = BytesMut::new();
    for number in [kind::ACK, largest, 12, 0, largest] {
        varint::encode_varint(number, &mut frame);
    }
    frame.into()
}

/// Sends a MB to a client that acknowledges every `packets` packets: datagrams out, acknowledgements in, one batch
/// after the other.
fn download(packets: u64) -> Replay {
    let acks: Vec<Vec<u8>> = (1..=MEGABYTE / packets).map(|n| ack(n * packets)).collect();
    let mut outgoing = OutgoingBatch::new(DATAGRAM);
    let anyone = SocketAddress::default();
    let path = Tuple { remote_address: anyone.into(), local_address: anyone.into() }.into();
    let mut order = AckReordering::default();
    Box::new(move || {
        let mut acknowledged = AcknowledgedNumbers::default();
        for batch in acks.chunks(BATCH) {
            let arrival = |ack: &Vec<u8>| Some(Arrival { connection: 7, path: 0_u8, len: ack.len() + 26 });
            order.order_batch(batch.iter().map(arrival));
            order.for_each_index(|index| {
                for frame in FrameIter::new(black_box(&batch[index])) {
                    let ranges = AckRanges::new(frame.body).expect("an ACK frame");
                    black_box(acknowledged.is_news(ranges));
                }
            });
        }
        let mut header = BytesMut::with_capacity(FrameHeader::MAX_HEADER_LEN);
        (0..1_000_000 / FRAME).for_each(|_| {
            header.clear();
            FrameHeader { kind: FrameType::Data, length: FRAME as u64 }.encode_frame_header(&mut header);
        });
        for _ in 0..MEGABYTE {
            // QUIC writes the data, so it is not counted as litequic's.
            let full = |room: &mut [u8]| Ok::<_, ()>(room.len());
            let joined = outgoing.join_message(full).expect("no error");
            if joined == 0 {
                if outgoing.is_buffer_full() {
                    outgoing.remove_messages(outgoing.messages().len());
                }
                outgoing.begin_message(path, Ecn::NotEct, true, full).expect("no error");
            }
        }
        outgoing.remove_messages(outgoing.messages().len());
    })
}

/// Receives a MB that a client uploads: packets of a STREAM frame each, and the body's frames in them.
fn upload() -> Replay {
    let mut stream = BytesMut::new();
    FrameHeader { kind: FrameType::Headers, length: SMALL.len() as u64 }.encode_frame_header(&mut stream);
    stream.extend_from_slice(SMALL);
    for _ in 0..1_000_000 / FRAME {
        FrameHeader { kind: FrameType::Data, length: FRAME as u64 }.encode_frame_header(&mut stream);
        stream.resize(stream.len() + FRAME, 7);
    }
    let stream = stream.freeze();
    let packets: Vec<Bytes> = (0..stream.len())
        .step_by(DATA)
        .map(|at| {
            // A STREAM frame with an offset and without a length takes the rest of the packet.
            let mut packet = BytesMut::from(&[0x0c, 0x00][..]);
            varint::encode_varint(at as u64, &mut packet);
            packet.extend_from_slice(&stream[at..stream.len().min(at + DATA)]);
            packet.freeze()
        })
        .collect();
    Box::new(move || {
        let mut reader = MessageStream::new(PeerRole::Client, LIMITS.bytes);
        let mut body = 0;
        for packet in &packets {
            for frame in FrameIter::new(black_box(packet)) {
                black_box((frame.is_control(), frame.is_latency_critical()));
            }
            let mut piece = packet.clone();
            piece.advance(packet.len() - piece_of(packet));
            while let Some(part) = reader.read_part(&mut piece).expect("valid") {
                if let MessagePart::Data(data) = part {
                    body += data.len();
                }
            }
        }
        assert_eq!(body, 1_000_000 / FRAME * FRAME);
    })
}

/// Number of bytes of stream data in a packet of [`upload`].
fn piece_of(packet: &[u8]) -> usize {
    let offset = packet.get(2).map_or(0, |first| 1 << (first >> 6));
    packet.len() - 2 - offset
}

/// Reads a client's transport parameters as litequic does.
fn handshake() -> Replay {
    let digits = PARAMETERS.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("digits");
    let parameters: Vec<u8> = digits.chunks(2).map(byte).collect();
    Box::new(move || assert!(black_box(AckFrequencySupport::from_parameters(black_box(&parameters))).is_some()))
}
