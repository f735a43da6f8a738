//! Frames and streams that a client must not send, or not there, close its connection; those that it may send and that
//! mean nothing are ignored.

use crate::support::{
    prelude::*,
    raw::{CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PUSH_PROMISE, RESERVED, SETTINGS, get, replaced, with},
};
use litequic_http3::ErrorCode;

/// Bytes before a stream's end.
type Bytes = Vec<u8>;

/// The type of a control stream and empty SETTINGS, with which it begins.
fn control() -> Bytes {
    [vec![0x00], raw::frame(SETTINGS, [])].concat()
}

/// What a test sends on streams of one connection, and the code with which litequic closes it.
struct Row {
    what: &'static str,
    unidirectional: Vec<Bytes>,
    request: Option<Bytes>,
    /// Ends the streams with FIN.
    finish: bool,
    code: ErrorCode,
}

async fn closes(rows: Vec<Row>) {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    for row in rows {
        let client = Raw::bare(&litequic).await;
        let mut open = Vec::new(); // kept, as a dropped stream ends
        for bytes in &row.unidirectional {
            let mut stream = client.uni(bytes).await;
            if row.finish {
                stream.finish().unwrap();
            }
            open.push(stream);
        }
        let mut request = None;
        if let Some(bytes) = &row.request {
            let mut exchange = client.open(bytes).await;
            if row.finish {
                exchange.finish();
            }
            request = Some(exchange);
        }
        assert_eq!(client.quic.closed().await, row.code.wire_value(), "{}", row.what);
        drop((open, request));
    }
    origin.saw_no_connection();
    litequic.stop().await;
}

/// A row of unidirectional streams that stay open.
fn streams(what: &'static str, unidirectional: Vec<Bytes>, code: ErrorCode) -> Row {
    Row { what, unidirectional, request: None, finish: false, code }
}

/// A row of a control stream with `frames` after its SETTINGS.
fn control_frames(what: &'static str, frames: &[Bytes], code: ErrorCode) -> Row {
    streams(what, vec![[control(), frames.concat()].concat()], code)
}

#[tokio::test]
async fn a_control_stream_that_breaks_the_rules_closes_the_connection() {
    let id = |id| raw::varint(id);
    closes(vec![
        streams(
            "no SETTINGS first",
            vec![[vec![0x00], raw::frame(GOAWAY, id(0))].concat()],
            ErrorCode::MissingSettings,
        ),
        streams("unknown first", vec![[vec![0x00], raw::frame(RESERVED, [])].concat()], ErrorCode::MissingSettings),
        control_frames("SETTINGS twice", &[raw::frame(SETTINGS, [])], ErrorCode::FrameUnexpected),
        control_frames("DATA", &[raw::data("x")], ErrorCode::FrameUnexpected),
        control_frames("HEADERS", &[get()], ErrorCode::FrameUnexpected),
        control_frames("PUSH_PROMISE", &[raw::frame(PUSH_PROMISE, [0, 0, 0])], ErrorCode::FrameUnexpected),
        control_frames("HTTP/2's PING", &[raw::frame(0x06, [0; 8])], ErrorCode::FrameUnexpected),
        control_frames("GOAWAY rises", &[raw::frame(GOAWAY, id(4)), raw::frame(GOAWAY, id(8))], ErrorCode::IdError),
        control_frames("GOAWAY without ID", &[raw::frame(GOAWAY, [])], ErrorCode::FrameError),
        control_frames("GOAWAY and more", &[raw::frame(GOAWAY, [0, 0])], ErrorCode::FrameError),
        control_frames(
            "MAX_PUSH_ID sinks",
            &[raw::frame(MAX_PUSH_ID, id(4)), raw::frame(MAX_PUSH_ID, id(3))],
            ErrorCode::IdError,
        ),
        control_frames("CANCEL_PUSH", &[raw::frame(CANCEL_PUSH, id(0))], ErrorCode::IdError),
        streams(
            "a setting of HTTP/2",
            vec![[vec![0x00], raw::frame(SETTINGS, [0x02, 0x00])].concat()],
            ErrorCode::SettingsError,
        ),
        streams(
            "a setting twice",
            vec![[vec![0x00], raw::frame(SETTINGS, [0x06, 0x10, 0x06, 0x10])].concat()],
            ErrorCode::SettingsError,
        ),
        streams("a setting cut", vec![[vec![0x00], raw::frame(SETTINGS, [0x06])].concat()], ErrorCode::FrameError),
        Row {
            what: "closed control stream",
            unidirectional: vec![control()],
            request: None,
            finish: true,
            code: ErrorCode::ClosedCriticalStream,
        },
    ])
    .await;
}

#[tokio::test]
async fn a_control_stream_that_is_reset_closes_the_connection() {
    let (_origin, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Raw::to(&litequic).await;
    // Served, so that the control stream was read.
    assert_eq!(client.ask(&replaced(":path", "/..")).await.status(), 400);
    client.control().reset(quinn::VarInt::from_u32(0x100)).unwrap();
    assert_eq!(client.quic.closed().await, ErrorCode::ClosedCriticalStream.wire_value());
    litequic.wait_until("connection errors", |worker| worker.http3.connection_errors.get(), |errors| errors == 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn unidirectional_streams_that_a_client_may_not_open_close_the_connection() {
    closes(vec![
        streams("a second control stream", vec![control(), control()], ErrorCode::StreamCreationError),
        streams("a push stream", vec![control(), vec![0x01, 0x00]], ErrorCode::StreamCreationError),
        streams("a second encoder stream", vec![vec![0x02], vec![0x02]], ErrorCode::StreamCreationError),
        streams("a second decoder stream", vec![vec![0x03], vec![0x03]], ErrorCode::StreamCreationError),
        streams("an insertion", vec![vec![0x02, 0x41, b'a', 0x01, b'b']], ErrorCode::QpackEncoderStreamError),
        streams("a capacity", vec![vec![0x02, 0x3f, 0x01]], ErrorCode::QpackEncoderStreamError),
        streams("an acknowledgement", vec![vec![0x03, 0x80]], ErrorCode::QpackDecoderStreamError),
        streams("an increment", vec![vec![0x03, 0x01]], ErrorCode::QpackDecoderStreamError),
        Row {
            what: "closed encoder stream",
            unidirectional: vec![vec![0x02]],
            request: None,
            finish: true,
            code: ErrorCode::ClosedCriticalStream,
        },
        Row {
            what: "closed decoder stream",
            unidirectional: vec![vec![0x03]],
            request: None,
            finish: true,
            code: ErrorCode::ClosedCriticalStream,
        },
    ])
    .await;
}

#[tokio::test]
async fn misordered_or_truncated_frames_close_the_connection() {
    let request = |what, finish, code, frames: &[Bytes]| Row {
        what,
        unidirectional: Vec::new(),
        request: Some(frames.concat()),
        finish,
        code,
    };
    closes(vec![
        request("DATA first", false, ErrorCode::FrameUnexpected, &[raw::data("x")]),
        request("SETTINGS", false, ErrorCode::FrameUnexpected, &[raw::frame(SETTINGS, [])]),
        request("GOAWAY", false, ErrorCode::FrameUnexpected, &[raw::frame(GOAWAY, [0])]),
        request("CANCEL_PUSH", false, ErrorCode::FrameUnexpected, &[raw::frame(CANCEL_PUSH, [0])]),
        request("MAX_PUSH_ID", false, ErrorCode::FrameUnexpected, &[raw::frame(MAX_PUSH_ID, [0])]),
        request("PUSH_PROMISE", false, ErrorCode::FrameUnexpected, &[raw::frame(PUSH_PROMISE, [0, 0, 0])]),
        request("HTTP/2's PRIORITY", false, ErrorCode::FrameUnexpected, &[raw::frame(0x02, [0; 5])]),
        request("HEADERS cut", true, ErrorCode::FrameError, &[get()[..10].to_vec()]),
        request("a type alone", true, ErrorCode::FrameError, &[vec![0x01]]),
        request("half an integer", true, ErrorCode::FrameError, &[vec![0x40]]),
        request("no field section", true, ErrorCode::QpackDecompressionFailed, &[raw::frame(HEADERS, [])]),
        request("the dynamic table", true, ErrorCode::QpackDecompressionFailed, &[raw::frame(HEADERS, [2, 0, 0x80])]),
        request("a field cut", true, ErrorCode::QpackDecompressionFailed, &[raw::frame(HEADERS, [0, 0, 0x21])]),
        request("no such field", true, ErrorCode::QpackDecompressionFailed, &[raw::frame(HEADERS, [0, 0, 0xff, 0x40])]),
    ])
    .await;
}

#[tokio::test]
async fn frames_after_trailers_close_the_connection_without_a_last_chunk() {
    let trailers = || raw::headers(&[("x", "y")]);
    for (frames, code) in [
        ([trailers(), trailers()].concat(), ErrorCode::FrameUnexpected),
        ([trailers(), raw::data("x")].concat(), ErrorCode::FrameUnexpected),
        (raw::frame(SETTINGS, []), ErrorCode::FrameUnexpected),
        ([raw::varint(DATA), raw::varint(9), b"def".to_vec()].concat(), ErrorCode::FrameError),
    ] {
        let (origin, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
        let mut peer = origin.accept().await;
        peer.until("3\r\nabc\r\n").await;
        exchange.send(&frames).await;
        exchange.finish();
        assert_eq!(client.quic.closed().await, code.wire_value(), "{frames:02x?}");
        let rest = peer.rest().await;
        assert!(!rest.contains("0\r\n"), "{frames:02x?}: {rest:?}");
        litequic.stop_when_idle().await;
    }
}

#[tokio::test]
async fn unknown_frames_streams_and_settings_are_ignored() {
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::bare(&litequic).await;
    let grease = raw::frame(RESERVED, "grease");
    let settings = [raw::varint(RESERVED), raw::varint(7)].concat();
    let control = client.uni(&[vec![0x00], raw::frame(SETTINGS, settings), grease.clone()].concat()).await;
    let unknown = client.uni(&[raw::varint(0x21 + 0x1f * 1_000), b"anything".to_vec()].concat()).await;
    let qpack = (client.uni(&[0x02, 0x20]).await, client.uni(&[0x03]).await); // a capacity of 0 is allowed
    let post = [
        grease.clone(),
        with("POST", &[]),
        grease.clone(),
        raw::data("abc"),
        raw::frame(0x21 + 0x1f * 1_000_000, vec![0; 10_000]),
        raw::data(""),
        raw::headers(&[("x", "y")]),
        grease,
    ];
    assert_eq!(client.ask(&post.concat()).await.status(), 200);
    // RFC 9114 §6.2.3
    let stopped = unknown.stopped().await.unwrap().map(quinn::VarInt::into_inner);
    assert_eq!(stopped, Some(ErrorCode::StreamCreationError.wire_value()));
    assert_eq!(client.ask(&get()).await.status(), 200);
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 0);
    drop((control, qpack));
    litequic.stop().await;
}

#[tokio::test]
async fn frames_that_carry_nothing_are_a_flood_after_a_while() {
    let flood = raw::data("").repeat(1_000);
    let (_origin, litequic) = Always::behind_litequic("", |_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[with("POST", &[]), flood].concat()).await;
    assert_eq!(exchange.outcome().await, Outcome::Closed(ErrorCode::ExcessiveLoad.wire_value()));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_client_that_takes_no_control_stream_is_closed() {
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_uni_streams(0_u32.into());
    let quic = Quic::connect(litequic.address, "localhost", &litequic.cert_pem, transport).await;
    assert_eq!(quic.closed().await, ErrorCode::GeneralProtocolError.wire_value());
    litequic.stop().await;
}
