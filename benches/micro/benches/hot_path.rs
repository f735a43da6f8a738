//! Measures the pure code in the path of every packet and request, piece by piece: frames of a packet, frames on a
//! stream, field sections, heads. `cargo bench -p litequic-micro` measures; with `-- --test`, or by `cargo test -p
//! litequic-micro --bench hot_path`, each benchmark runs once. Nothing here fails for being slow.

#![expect(clippy::expect_used, reason = "what is measured was made here")]

use bytes::{BufMut as _, Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput};
use http::{Method, StatusCode, Uri};
use litequic::app::{ProcessMetrics, WorkerMetrics};
use litequic_config::{Config, RouteConfig};
use litequic_exchange::{
    Authority, Client, DecodedFields, FieldNameRef, Fields, Head, LastAuthority, LastForwarded, Protocol, TlsIdentity,
};
use litequic_http3::{
    frame::{FrameHeader, FrameType, MessagePart, MessageStream, PeerRole},
    message,
    qpack::{self, FieldLimits},
    varint,
};
use litequic_net::{SocketGroup, Steering, SteeringMask};
use litequic_proxy::{RouteName, Routing, convert_request_head, convert_response_head};
use litequic_quic::frame::FrameIter;
use std::{
    hint::black_box,
    net::{Ipv4Addr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

/// Defaults of `limits.max_header_bytes` and `limits.max_headers`.
const LIMITS: FieldLimits = FieldLimits { bytes: 32 * 1024, fields: 100 };
/// Bytes of a datagram on QUIC's smallest path, in which an upload arrives.
const DATAGRAM: usize = 1200;

/// Fields of a browser's request for an image.
const REQUEST: [(&str, &str); 12] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "www.example.org"),
    (":path", "/assets/images/hero-1920.avif?v=20260101"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    ("accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9"),
    ("referer", "https://www.example.org/"),
    ("cookie", "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"),
    ("sec-fetch-dest", "image"),
    ("priority", "u=2, i"),
];

/// Head of an origin's response over HTTP/1.1.
const RESPONSE: [(&str, &str); 9] = [
    ("server", "nginx"),
    ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ("content-type", "image/avif"),
    ("content-length", "183204"),
    ("last-modified", "Wed, 31 Dec 2025 12:00:00 GMT"),
    ("connection", "keep-alive"),
    ("etag", "\"6565a1b2-2cba4\""),
    ("cache-control", "public, max-age=31536000, immutable"),
    ("accept-ranges", "bytes"),
];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    packets(&mut criterion);
    streams(&mut criterion);
    field_sections(&mut criterion);
    heads(&mut criterion);
    scrape(&mut criterion);
    steering(&mut criterion);
    criterion.final_summary();
}

/// Reads the frames of a 1-RTT packet, with the queries for each.
fn packets(criterion: &mut Criterion) {
    // An ACK frame: largest 1000, delay 5, two more ranges.
    let ack = [0x02, 0x43, 0xe8, 0x05, 0x02, 0x10, 0x00, 0x08, 0x01, 0x20];
    // A STREAM frame with an offset and without a length takes the rest of the packet.
    let mut upload = vec![0x0c, 0x00, 0x80, 0x10, 0x00, 0x00];
    upload.resize(DATAGRAM, 7);
    // The frames are MAX_DATA, MAX_STREAM_DATA, MAX_STREAMS, STOP_SENDING, RESET_STREAM, RETIRE_CONNECTION_ID, PING.
    let control = [
        &[0x10, 0x80, 0x10, 0x00, 0x00, 0x11, 0x04, 0x80, 0x10, 0x00, 0x00, 0x12, 0x40, 0x80][..],
        &[0x05, 0x08, 0x41, 0x0c, 0x04, 0x08, 0x41, 0x0c, 0x44, 0x00, 0x19, 0x01, 0x01],
    ]
    .concat();
    let mut group = criterion.benchmark_group("packet");
    for (name, payload, frames) in [("ACK", &ack[..], 1), ("upload", &upload, 1), ("control frames", &control, 7)] {
        let mut walk = FrameIter::new(payload);
        assert_eq!((walk.by_ref().count(), walk.is_fully_parsed()), (frames, true), "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for frame in FrameIter::new(black_box(payload)) {
                    black_box((frame.max_stream_data(), frame.stop_sending(), frame.is_control()));
                }
            });
        });
    }
    group.finish();
}

/// Reads a request with a body, in the pieces in which QUIC delivers a stream; and the headers of DATA frames alone.
fn streams(criterion: &mut Criterion) {
    const FRAME: usize = 16 * 1024;
    const FRAMES: usize = 16;
    let section = section(&REQUEST);
    let mut stream = BytesMut::new();
    frame_header(FrameType::Headers, section.len(), &mut stream);
    stream.put_slice(&section);
    for _ in 0..FRAMES {
        frame_header(FrameType::Data, FRAME, &mut stream);
        stream.put_bytes(7, FRAME);
    }
    let stream = stream.freeze();
    let mut group = criterion.benchmark_group("stream");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    group.bench_function("frames of an upload", |bencher| {
        bencher.iter(|| {
            let mut reader = MessageStream::new(PeerRole::Client, LIMITS.bytes);
            let (mut rest, mut body) = (stream.clone(), 0);
            while !rest.is_empty() {
                let mut piece = rest.split_to(rest.len().min(DATAGRAM));
                while let Some(part) = reader.read_part(&mut piece).expect("valid") {
                    if let MessagePart::Data(data) = part {
                        body += data.len();
                    }
                }
            }
            assert_eq!(body, FRAME * FRAMES);
        });
    });
    group.finish();

    let mut header = BytesMut::new();
    frame_header(FrameType::Data, FRAME, &mut header);
    let mut group = criterion.benchmark_group("DATA frame's header");
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let (kind, at) = varint::decode_varint(black_box(&header)).expect("whole");
            let (length, _) = varint::decode_varint(header.get(at..).expect("more")).expect("whole");
            (FrameType::from_value(kind), length)
        });
    });
    group.bench_function("write", |bencher| {
        let mut out = BytesMut::with_capacity(FrameHeader::MAX_HEADER_LEN);
        bencher.iter(|| {
            out.clear();
            frame_header(FrameType::Data, black_box(FRAME), &mut out);
        });
    });
    group.finish();
}

fn field_sections(criterion: &mut Criterion) {
    let (request, response) = (section(&REQUEST), response_section());
    let decode = |section: &Bytes| qpack::decode_section(section, &LIMITS).expect("ours");
    let mut group = criterion.benchmark_group("field section");
    group.bench_function("decode a request's", |bencher| bencher.iter(|| decode(black_box(&request))));
    group.bench_function("decode a response's", |bencher| bencher.iter(|| decode(black_box(&response))));
    group.bench_function("check a request's", |bencher| {
        let fields = || decode(&request);
        bencher.iter_batched(
            fields,
            |fields: DecodedFields| message::decode_request(fields, false, &LastAuthority::default()).expect("valid"),
            BatchSize::SmallInput,
        );
    });
    let head = request_parts();
    let uri = Uri::from_static("https://www.example.org/assets/images/hero-1920.avif?v=20260101");
    group.bench_function("encode a request's", |bencher| {
        let mut out = Vec::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            message::encode_request(&head.method, &uri, black_box(&head.fields), &mut out).expect("valid");
        });
    });
    let fields = response_fields();
    group.bench_function("encode a response's", |bencher| {
        let mut out = Vec::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            message::encode_response(StatusCode::OK, black_box(&fields), &mut out).expect("valid");
        });
    });
    group.finish();
}

/// Translates a request from HTTP/3 to the origin's HTTP/1.1, and the response back.
fn heads(criterion: &mut Criterion) {
    let address = (Ipv4Addr::LOCALHOST, 443).into();
    let origin = "http://127.0.0.1:8080".parse().expect("an address");
    let mut config = Config::with_defaults(address, origin, PathBuf::new(), PathBuf::new());
    let routing = Routing::new(&config);
    config.routes.extend(
        (0..10).map(|n| RouteConfig {
            path_prefix: format!("/service/{n}"),
            ..RouteConfig::catch_all(Config::ORIGIN_NAME)
        }),
    );
    let ten_more = Routing::new(&config);
    let client = Client {
        address: (Ipv4Addr::new(192, 0, 2, 7), 4711).into(),
        local: address,
        protocol: Protocol::Http3,
        server_name: Some("www.example.org".into()),
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    };
    let mut group = criterion.benchmark_group("head");
    group.bench_function("a request's to HTTP/1.1", |bencher| {
        let translate = |head: &mut Head| {
            convert_request_head(&routing, head, &client).expect("has a route");
        };
        bencher.iter_batched_ref(request_parts, translate, BatchSize::SmallInput);
    });
    // Cases: a path without an escape, one that has to be decoded, and the longest that `limits.max_header_bytes`
    // allows.
    let parameters = format!("/;{}", "%25%32%66;".repeat(3_200));
    for (name, path) in [("plain", None), ("escaped", Some("/assets/caf%C3%A9/1")), ("hostile", Some(&*parameters))] {
        let parts = || {
            let head = request_parts();
            match path {
                Some(path) => Head::new(Method::GET, Authority::new("www.example.org"), path, head.fields),
                None => head,
            }
        };
        group.bench_function(format!("a request's past ten routes, {name}"), |bencher| {
            let translate = |head: &mut Head| {
                let _ = black_box(convert_request_head(&ten_more, head, &client).is_ok());
            };
            bencher.iter_batched_ref(parts, translate, BatchSize::SmallInput);
        });
    }
    group.bench_function("a response's from HTTP/1.1", |bencher| {
        let translate = |fields: &mut Fields| {
            convert_response_head(StatusCode::OK, fields, &Method::GET, Some(183_204)).expect("a plain response");
        };
        bencher.iter_batched_ref(response_fields, translate, BatchSize::SmallInput);
    });
    group.finish();
}

/// Renders `/metrics`, of two workers and a configuration of a hundred routes, as the control thread does outside the
/// path of requests; and measures the part of a request.
fn scrape(criterion: &mut Criterion) {
    let metrics = ProcessMetrics::new(2);
    for worker in metrics.worker_metrics() {
        (0..100)
            .for_each(|n| drop(worker.proxy.routes.counters_for(&RouteName(format!("host-{n}.example.org/").into()))));
    }
    let registry = metrics.registry();
    let mut group = criterion.benchmark_group("metrics");
    group.bench_function("scrape", |bencher| bencher.iter(|| black_box(&registry).render_metrics()));
    let worker = WorkerMetrics::default();
    group.bench_function("count a request's time and size", |bencher| {
        bencher.iter(|| {
            let worker = black_box(&worker);
            worker.http3.requests.increment();
            worker.shared.request_duration.observe_time(black_box(Duration::from_micros(1234)));
            worker.shared.response_size.observe_size(black_box(183_204));
        });
    });
    group.finish();
}

/// Sends a datagram over loopback to a group of one socket, by the kernel's program for each layout of connection IDs;
/// the differences are the cost of the program.
fn steering(criterion: &mut Criterion) {
    let mask = |hashed| Some(SteeringMask { key: [1, 2], hashed });
    let steering = |id_len, first_byte, issuer_offset, mask| Steering {
        id_len,
        first_byte,
        issuer_offset,
        mask,
        skips_proxy_header: false,
    };
    let layouts = [
        ("without a server ID", steering(16, (0xff, 0xef), 1, None)),
        ("8 + 7", steering(16, (0x1f, 15), 14, mask(9..14))),
        ("8 + 8 with a key", steering(19, (0x1f, 18), 17, mask(1..17))),
    ];
    let mut group = criterion.benchmark_group("steering");
    for (name, steering) in layouts {
        let mut sockets = SocketGroup::new((Ipv4Addr::LOCALHOST, 0).into());
        let [receiver] = &sockets.add_process(0, 1).expect("a free port")[..] else { return };
        sockets.steer(&steering, 0).expect("a kernel that steers");
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        sender.connect(sockets.address).expect("loopback");
        let (_, first_byte) = steering.first_byte;
        let mut datagram = [0x41; 64];
        datagram[1] = first_byte;
        let mut buffer = [0; 64];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                sender.send(&datagram).expect("loopback");
                receiver.recv(&mut buffer).expect("it has arrived");
            });
        });
    }
    group.finish();
}

fn frame_header(kind: FrameType, length: usize, out: &mut BytesMut) {
    FrameHeader { kind, length: length as u64 }.encode_frame_header(out);
}

fn section(fields: &[(&str, &str)]) -> Bytes {
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        qpack::encode_field(FieldNameRef::from_lower_case_token(name), value.as_bytes(), false, &mut section);
    }
    section.into()
}

/// Encodes a field section as a client receives it.
fn response_section() -> Bytes {
    let fields: Vec<_> = RESPONSE.into_iter().filter(|(name, _)| *name != "connection").collect();
    section(&[&[(":status", "200")], &fields[..]].concat())
}

/// Request in the form that the front end passes on.
fn request_parts() -> Head {
    let fields = qpack::decode_section(&section(&REQUEST), &LIMITS).expect("ours");
    message::decode_request(fields, false, &LastAuthority::default()).expect("valid").head
}

/// Fields of an origin's response.
fn response_fields() -> Fields {
    RESPONSE.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect()
}
