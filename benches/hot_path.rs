//! The pure code on the way of every request and packet: field sections, frames on a stream, frames of a packet, the
//! rules on fields. `cargo bench` measures; `cargo test` runs each once.

#![expect(clippy::expect_used, reason = "what is measured was checked to work")]

use bytes::{BufMut as _, Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput};
use http::{HeaderMap, HeaderValue, StatusCode};
use litequic::{
    http3::{
        frame::{Endpoint, MessageStream, Part},
        message,
        qpack::{FieldLimits, decode, encode_field, encode_prefix},
        varint,
    },
    quic::frame::Frames,
};
use std::hint::black_box;

const LIMITS: FieldLimits = FieldLimits { bytes: 32 * 1024, fields: 100 };

/// What a browser sends with a request for an image.
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

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    field_sections(&mut criterion);
    streams(&mut criterion);
    packets(&mut criterion);
    criterion.final_summary();
}

fn request_section() -> Bytes {
    let mut section = BytesMut::new();
    encode_prefix(&mut section);
    for (name, value) in REQUEST {
        encode_field(name, value.as_bytes(), false, &mut section);
    }
    section.freeze()
}

fn field_sections(criterion: &mut Criterion) {
    let section = request_section();
    let mut group = criterion.benchmark_group("fields");
    group.bench_function("decode a request's", |bencher| {
        bencher.iter(|| decode(black_box(section.clone()), &LIMITS).expect("ours"));
    });
    let fields = || decode(section.clone(), &LIMITS).expect("ours");
    group.bench_function("check a request's", |bencher| {
        bencher.iter_batched(fields, |fields| message::request(fields).expect("valid"), BatchSize::SmallInput);
    });
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("image/avif"));
    headers.insert("content-length", HeaderValue::from_static("183204"));
    headers.insert("cache-control", HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert("etag", HeaderValue::from_static("\"6565a1b2-2cba4\""));
    headers.insert("date", HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT"));
    group.bench_function("encode a response's", |bencher| {
        let mut out = BytesMut::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            message::encode_response(StatusCode::OK, black_box(&headers), &mut out).expect("valid");
        });
    });
    group.finish();
}

/// A request with a body, in the chunks in which QUIC hands a stream over.
fn streams(criterion: &mut Criterion) {
    const FRAME: usize = 16 * 1024;
    const FRAMES: usize = 16;
    let mut stream = BytesMut::new();
    let section = request_section();
    stream.put_u8(0x01);
    varint::encode(section.len() as u64, &mut stream);
    stream.put_slice(&section);
    for _ in 0..FRAMES {
        stream.put_u8(0x00);
        varint::encode(FRAME as u64, &mut stream);
        stream.put_bytes(7, FRAME);
    }
    let stream = stream.freeze();
    let mut group = criterion.benchmark_group("streams");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    group.bench_function("read a request's frames", |bencher| {
        bencher.iter(|| {
            let mut reader = MessageStream::new(Endpoint::Client, LIMITS.bytes);
            let (mut rest, mut body) = (stream.clone(), 0);
            while !rest.is_empty() {
                let mut chunk = rest.split_to(rest.len().min(1200));
                while let Some(part) = reader.read(&mut chunk).expect("valid") {
                    if let Part::Data(data) = part {
                        body += data.len();
                    }
                }
            }
            assert_eq!(body, FRAME * FRAMES);
        });
    });
    group.finish();
}

/// What a busy downloader sends, and what an uploader does.
fn packets(criterion: &mut Criterion) {
    // ACK: largest 1000, delay 5, two more ranges, then MAX_STREAM_DATA.
    let acks: &[u8] = &[0x02, 0x43, 0xe8, 0x05, 0x02, 0x10, 0x00, 0x08, 0x01, 0x20, 0x11, 0x00, 0x80, 0x10, 0x00, 0x00];
    // STREAM with an offset and without a length: the rest of the packet.
    let mut upload = vec![0x0c, 0x00, 0x80, 0x10, 0x00, 0x00];
    upload.resize(1200, 7);
    let mut group = criterion.benchmark_group("packets");
    for (name, payload, frames) in [("walk an ACK packet", acks, 2), ("walk a full packet", &upload, 1)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert_eq!(Frames::new(black_box(payload)).count(), frames));
        });
    }
    group.finish();
}
