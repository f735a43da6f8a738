//! Requests that are not served: what HTTP/3's rules and the proxy's refuse, how the client is told, and that the origin
//! never hears of them.

use crate::support::{
    client::Quic,
    origin::{Always, Script},
    proxy::Litequic,
    raw::{self, CANCEL_PUSH, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, Outcome, PUSH_PROMISE, RESERVED, Raw, SETTINGS},
};
use litequic::http3::Code;

/// Bytes before a stream's end.
type Bytes = Vec<u8>;

/// The type of a control stream and empty SETTINGS, with which it begins.
fn control() -> Bytes {
    [vec![0x00], raw::frame(SETTINGS, [])].concat()
}

fn get() -> Bytes {
    raw::headers(&raw::pseudo("GET", "/"))
}

/// A request's header with `more` behind the pseudo-headers.
fn with(method: &str, more: &[(&str, &str)]) -> Bytes {
    raw::headers(&[raw::pseudo(method, "/"), more.to_vec()].concat())
}

/// A GET with one pseudo-header replaced.
fn replaced(name: &str, value: &str) -> Bytes {
    let fields = raw::pseudo("GET", "/").into_iter();
    raw::headers(&fields.map(|field| if field.0 == name { (name, value) } else { field }).collect::<Vec<_>>())
}

/// A GET without one pseudo-header, with `more` behind.
fn without(name: &str, more: &[(&str, &str)]) -> Bytes {
    let fields = raw::pseudo("GET", "/").into_iter().filter(|field| field.0 != name);
    raw::headers(&fields.chain(more.iter().copied()).collect::<Vec<_>>())
}

/// Asks `requests` on one connection, one after another, and checks that each gets `expected`, that the connection
/// stays, and that the origin got the one good request at the end and nothing else.
async fn all_get(expected: impl Fn(&Outcome) -> bool, requests: Vec<Bytes>) {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for request in &requests {
        let outcome = client.ask(request).await;
        assert!(expected(&outcome), "{outcome:?} for {:?}", String::from_utf8_lossy(request));
    }
    assert_eq!((origin.connections(), litequic.sum(|worker| worker.origin_requests.get())), (0, 0));
    assert_eq!(client.ask(&get()).await.status(), 200);
    assert_eq!(origin.seen().matches("HTTP/1.1").count(), 1);
    litequic.stop().await;
}

fn is_malformed(outcome: &Outcome) -> bool {
    *outcome == Outcome::Reset(Code::MessageError.value())
}

fn is(status: u16) -> impl Fn(&Outcome) -> bool {
    move |outcome| outcome.status() == status
}

#[tokio::test]
async fn pseudo_headers_that_are_missing_repeated_empty_late_or_unknown_reset_the_stream() {
    let mut requests = Vec::new();
    for (name, value) in raw::pseudo("GET", "/") {
        requests.push(without(name, &[]));
        requests.push(without(name, &[("x", "y"), (name, value)]));
        requests.push(with("GET", &[(name, value)]));
        requests.push(raw::headers(&[vec![(name, value)], raw::pseudo("GET", "/")].concat()));
        requests.push(replaced(name, ""));
    }
    for name in [":status", ":protocol", ":unknown", ":"] {
        requests.push(raw::headers(&[vec![(name, "200")], raw::pseudo("GET", "/")].concat()));
    }
    let connect = [(":method", "CONNECT"), (":authority", "localhost:1")];
    requests.push(raw::headers(&connect[..1]));
    requests.push(raw::headers(&[&connect[..], &[(":path", "/")]].concat()));
    requests.push(raw::headers(&[&connect[..], &[(":scheme", "https")]].concat()));
    requests.push(raw::headers(&[&raw::pseudo("CONNECT", "/")[..], &[(":protocol", "websocket")]].concat()));
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn an_authority_and_a_host_that_differ_reset_the_stream() {
    let requests = vec![
        with("GET", &[("host", "127.0.0.1")]),
        with("GET", &[("host", "LOCALHOST")]),
        with("GET", &[("host", "")]),
        with("GET", &[("host", "localhost"), ("host", "localhost")]),
        without(":authority", &[("host", "")]),
        without(":authority", &[("host", "localhost"), ("host", "a.test")]),
    ];
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn field_names_and_values_that_http_does_not_have_reset_the_stream() {
    let mut requests = Vec::new();
    for name in ["X-A", "", "a b", "a:", "a\r\nb", "a\0", "é", "a(", "transfer-encoding "] {
        requests.push(with("GET", &[(name, "v")]));
    }
    for value in ["a\0b", "a\rb", "a\nb", "a\r\nx: y", " a", "a ", "\ta", "a\t", "a\u{1}"] {
        requests.push(with("GET", &[("x", value)]));
        requests.push(replaced(":path", &format!("/{value}")).clone());
    }
    // A blank or control byte within the path is another row's.
    requests.retain(|request| !["/ a", "/\ta", "/a\u{1}"].iter().any(|path| contains(request, path.as_bytes())));
    all_get(is_malformed, requests).await;
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn fields_of_the_connection_reset_the_stream_and_are_never_cleaned() {
    let fields = [
        ("connection", "close"),
        ("connection", "x"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ];
    all_get(is_malformed, fields.iter().map(|field| with("POST", &[*field])).collect()).await;
}

#[tokio::test]
async fn a_content_length_that_is_not_one_plain_number_resets_the_stream() {
    let mut requests = vec![
        with("POST", &[("content-length", "0"), ("content-length", "0")]),
        with("POST", &[("content-length", "0"), ("content-length", "1")]),
    ];
    for value in ["", "+0", "-0", "0, 0", "0x0", "0.0", "zero", "18446744073709551616"] {
        requests.push(with("POST", &[("content-length", value)]));
    }
    // Said, but nothing came; nothing said, but something came.
    requests.push(with("POST", &[("content-length", "1")]));
    requests.push([with("POST", &[("content-length", "0")]), raw::data("x")].concat());
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn a_path_that_origins_could_read_in_two_ways_is_answered_400() {
    let paths = [
        "*",
        "a",
        "?a",
        "http://localhost/",
        "/a b",
        "/a#b",
        "/a?b#c",
        "/\u{7f}",
        "/a\tb",
        "/.",
        "/..",
        "/a/../b",
        "/a/./b",
        "/%2e%2E/",
        "/.%2e/",
        "/a%2f..%2fb",
        "/a/..%5cb",
        "/..;/a",
        "/a\\..\\b",
    ];
    all_get(is(400), paths.iter().map(|path| replaced(":path", path)).collect()).await;
}

#[tokio::test]
async fn an_authority_with_userinfo_or_no_host_is_answered_400() {
    let authorities = ["user@localhost", "user:password@localhost", "localhost:", "localhost:x", "a b", "[::1", "/"];
    let mut requests: Vec<_> = authorities.iter().map(|authority| replaced(":authority", authority)).collect();
    requests.push(without(":authority", &[("host", "user@localhost")]));
    requests.push(replaced(":scheme", "ftp"));
    all_get(is(400), requests).await;
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_cover_is_answered_421() {
    let names = ["other.test", "x.a.test", "192.0.2.1", "localhost.other.test", "wild.test", "x.y.wild.test"];
    all_get(is(421), names.iter().map(|name| replaced(":authority", name)).collect()).await;
}

#[tokio::test]
async fn a_refusal_of_head_has_no_body() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for (authority, path, status) in [("other.test", "/", 421), ("localhost", "/..", 400)] {
        let fields = [(":method", "HEAD"), (":scheme", "https"), (":authority", authority), (":path", path)];
        let response = client.ask(&raw::headers(&fields)).await.response();
        assert_eq!((response.fields.status(), response.data_frames), (status, 0), "{authority}{path}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn connect_is_answered_501() {
    all_get(is(501), vec![raw::headers(&[(":method", "CONNECT"), (":authority", "localhost:1")])]).await;
}

#[tokio::test]
async fn a_header_with_too_many_bytes_or_fields_is_answered_431() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = Litequic::start(origin.address, |config| {
        config.limits.max_header_bytes = 1_000;
        config.limits.max_headers = 10;
    })
    .await;
    let client = Raw::to(&litequic).await;
    let long = "v".repeat(2_000);
    let nearly = "v".repeat(800); // with 32 bytes a field it is beyond (RFC 9114 §4.2.2), encoded it is not
    assert_eq!(client.ask(&with("GET", &[("x", &long)])).await.status(), 431);
    assert_eq!(client.ask(&with("GET", &[("x", &nearly)])).await.status(), 431);
    assert_eq!(client.ask(&with("GET", &[("x", "y"); 7])).await.status(), 431);
    assert_eq!(litequic.sum(|worker| worker.limit_header_bytes.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.limit_headers.get()), 1);
    assert_eq!(origin.connections(), 0);
    assert_eq!(client.ask(&with("GET", &[("x", "y"); 6])).await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_header_announced_with_a_gigabyte_is_answered_431_before_it_comes() {
    let origin = Script::new().await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[raw::varint(HEADERS), raw::varint(1 << 30), vec![0; 1_000]].concat()).await;
    assert_eq!(exchange.outcome().await.status(), 431);
    assert_eq!(exchange.stopped().await, Some(Code::NoError.value()));
    origin.saw_nobody();
    litequic.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_announced_resets_the_stream_and_never_looks_whole_to_the_origin() {
    for (length, pieces) in [("5", &["abc"][..]), ("5", &["abc", "def"]), ("5", &["abcde", "f"])] {
        let origin = Script::new().await;
        let litequic = Litequic::start(origin.address, |_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&with("POST", &[("content-length", length)])).await;
        exchange.send(&raw::data(pieces[0])).await;
        let mut peer = origin.accept().await;
        assert_eq!(peer.head().await.field("content-length"), Some(length));
        for piece in &pieces[1..] {
            exchange.send(&raw::data(piece)).await;
        }
        exchange.finish();
        assert!(is_malformed(&exchange.outcome().await), "{pieces:?}");
        let body = peer.rest().await;
        assert!(body.len() < 5, "{pieces:?}: {body:?}");
        litequic.wait_until("malformed_requests = 1", |worker| worker.malformed_requests.get(), |n| n == 1).await;
        litequic.wait_until("no origin", |worker| worker.origin_connections_open.get(), |open| open == 0).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn trailers_with_pseudo_headers_or_bad_names_reset_the_stream_and_the_upload_gets_no_last_chunk() {
    for field in [(":path", "/"), (":status", "200"), ("X-A", "b"), ("connection", "close"), ("x", "a\r\nb: c")] {
        let origin = Script::new().await;
        let litequic = Litequic::start(origin.address, |_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
        let mut peer = origin.accept().await;
        peer.until("3\r\nabc\r\n").await;
        exchange.send(&raw::headers(&[field])).await;
        exchange.finish();
        assert!(is_malformed(&exchange.outcome().await), "{field:?}");
        assert_eq!(peer.rest().await, "", "{field:?}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_bad_request_leaves_the_other_streams_of_its_connection_undisturbed() {
    let origin = Script::new().await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut good = client.open(&[with("POST", &[]), raw::data("before")].concat()).await;
    let mut peer = origin.accept().await;
    peer.until("before\r\n").await;
    assert!(is_malformed(&client.ask(&with("GET", &[("connection", "close")])).await));
    assert_eq!(client.ask(&replaced(":path", "/..")).await.status(), 400);
    good.send(&raw::data("after")).await;
    good.finish();
    peer.until("after\r\n0\r\n\r\n").await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(good.outcome().await.response().body, b"ok");
    litequic.stop().await;
}

/// What a test sends on streams of one connection, and the code with which litequic closes it.
struct Row {
    what: &'static str,
    unidirectional: Vec<Bytes>,
    request: Option<Bytes>,
    /// Ends the streams with FIN.
    finish: bool,
    code: Code,
}

async fn closes(rows: Vec<Row>) {
    let origin = Script::new().await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
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
        assert_eq!(client.quic.closed().await, row.code.value(), "{}", row.what);
        drop((open, request));
    }
    origin.saw_nobody();
    litequic.stop().await;
}

/// A row of unidirectional streams that stay open.
fn streams(what: &'static str, unidirectional: Vec<Bytes>, code: Code) -> Row {
    Row { what, unidirectional, request: None, finish: false, code }
}

/// A row of a control stream with `frames` after its SETTINGS.
fn control_frames(what: &'static str, frames: &[Bytes], code: Code) -> Row {
    streams(what, vec![[control(), frames.concat()].concat()], code)
}

#[tokio::test]
async fn a_control_stream_that_breaks_the_rules_closes_the_connection() {
    let id = |id| raw::varint(id);
    closes(vec![
        streams("no SETTINGS first", vec![[vec![0x00], raw::frame(GOAWAY, id(0))].concat()], Code::MissingSettings),
        streams("unknown first", vec![[vec![0x00], raw::frame(RESERVED, [])].concat()], Code::MissingSettings),
        control_frames("SETTINGS twice", &[raw::frame(SETTINGS, [])], Code::FrameUnexpected),
        control_frames("DATA", &[raw::data("x")], Code::FrameUnexpected),
        control_frames("HEADERS", &[get()], Code::FrameUnexpected),
        control_frames("PUSH_PROMISE", &[raw::frame(PUSH_PROMISE, [0, 0, 0])], Code::FrameUnexpected),
        control_frames("HTTP/2's PING", &[raw::frame(0x06, [0; 8])], Code::FrameUnexpected),
        control_frames("GOAWAY rises", &[raw::frame(GOAWAY, id(4)), raw::frame(GOAWAY, id(8))], Code::IdError),
        control_frames("GOAWAY without ID", &[raw::frame(GOAWAY, [])], Code::FrameError),
        control_frames("GOAWAY and more", &[raw::frame(GOAWAY, [0, 0])], Code::FrameError),
        control_frames(
            "MAX_PUSH_ID sinks",
            &[raw::frame(MAX_PUSH_ID, id(4)), raw::frame(MAX_PUSH_ID, id(3))],
            Code::IdError,
        ),
        control_frames("CANCEL_PUSH", &[raw::frame(CANCEL_PUSH, id(0))], Code::IdError),
        streams(
            "a setting of HTTP/2",
            vec![[vec![0x00], raw::frame(SETTINGS, [0x02, 0x00])].concat()],
            Code::SettingsError,
        ),
        streams(
            "a setting twice",
            vec![[vec![0x00], raw::frame(SETTINGS, [0x06, 0x10, 0x06, 0x10])].concat()],
            Code::SettingsError,
        ),
        streams("a setting cut", vec![[vec![0x00], raw::frame(SETTINGS, [0x06])].concat()], Code::FrameError),
        Row {
            what: "closed control stream",
            unidirectional: vec![control()],
            request: None,
            finish: true,
            code: Code::ClosedCriticalStream,
        },
    ])
    .await;
}

#[tokio::test]
async fn a_control_stream_that_is_reset_closes_the_connection() {
    let origin = Script::new().await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let mut client = Raw::to(&litequic).await;
    // Served, so that the control stream was read.
    assert_eq!(client.ask(&replaced(":path", "/..")).await.status(), 400);
    client.control().reset(quinn::VarInt::from_u32(0x100)).unwrap();
    assert_eq!(client.quic.closed().await, Code::ClosedCriticalStream.value());
    litequic.wait_until("connection errors", |worker| worker.connection_errors.get(), |errors| errors == 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn unidirectional_streams_that_a_client_may_not_open_close_the_connection() {
    closes(vec![
        streams("a second control stream", vec![control(), control()], Code::StreamCreationError),
        streams("a push stream", vec![control(), vec![0x01, 0x00]], Code::StreamCreationError),
        streams("a second encoder stream", vec![vec![0x02], vec![0x02]], Code::StreamCreationError),
        streams("a second decoder stream", vec![vec![0x03], vec![0x03]], Code::StreamCreationError),
        streams("an insertion", vec![vec![0x02, 0x41, b'a', 0x01, b'b']], Code::QpackEncoderStreamError),
        streams("a capacity", vec![vec![0x02, 0x3f, 0x01]], Code::QpackEncoderStreamError),
        streams("an acknowledgement", vec![vec![0x03, 0x80]], Code::QpackDecoderStreamError),
        streams("an increment", vec![vec![0x03, 0x01]], Code::QpackDecoderStreamError),
        Row {
            what: "closed encoder stream",
            unidirectional: vec![vec![0x02]],
            request: None,
            finish: true,
            code: Code::ClosedCriticalStream,
        },
        Row {
            what: "closed decoder stream",
            unidirectional: vec![vec![0x03]],
            request: None,
            finish: true,
            code: Code::ClosedCriticalStream,
        },
    ])
    .await;
}

#[tokio::test]
async fn frames_out_of_order_or_cut_on_a_request_stream_close_the_connection() {
    let request = |what, finish, code, frames: &[Bytes]| Row {
        what,
        unidirectional: Vec::new(),
        request: Some(frames.concat()),
        finish,
        code,
    };
    closes(vec![
        request("DATA first", false, Code::FrameUnexpected, &[raw::data("x")]),
        request("SETTINGS", false, Code::FrameUnexpected, &[raw::frame(SETTINGS, [])]),
        request("GOAWAY", false, Code::FrameUnexpected, &[raw::frame(GOAWAY, [0])]),
        request("CANCEL_PUSH", false, Code::FrameUnexpected, &[raw::frame(CANCEL_PUSH, [0])]),
        request("MAX_PUSH_ID", false, Code::FrameUnexpected, &[raw::frame(MAX_PUSH_ID, [0])]),
        request("PUSH_PROMISE", false, Code::FrameUnexpected, &[raw::frame(PUSH_PROMISE, [0, 0, 0])]),
        request("HTTP/2's PRIORITY", false, Code::FrameUnexpected, &[raw::frame(0x02, [0; 5])]),
        request("HEADERS cut", true, Code::FrameError, &[get()[..10].to_vec()]),
        request("a type alone", true, Code::FrameError, &[vec![0x01]]),
        request("half an integer", true, Code::FrameError, &[vec![0x40]]),
        request("no field section", true, Code::QpackDecompressionFailed, &[raw::frame(HEADERS, [])]),
        request("the dynamic table", true, Code::QpackDecompressionFailed, &[raw::frame(HEADERS, [2, 0, 0x80])]),
        request("a field cut", true, Code::QpackDecompressionFailed, &[raw::frame(HEADERS, [0, 0, 0x21])]),
        request("no such field", true, Code::QpackDecompressionFailed, &[raw::frame(HEADERS, [0, 0, 0xff, 0x40])]),
    ])
    .await;
}

#[tokio::test]
async fn frames_after_the_trailers_and_a_body_cut_close_the_connection_and_the_upload_gets_no_last_chunk() {
    let trailers = || raw::headers(&[("x", "y")]);
    for (frames, code) in [
        ([trailers(), trailers()].concat(), Code::FrameUnexpected),
        ([trailers(), raw::data("x")].concat(), Code::FrameUnexpected),
        (raw::frame(SETTINGS, []), Code::FrameUnexpected),
        ([raw::varint(DATA), raw::varint(9), b"def".to_vec()].concat(), Code::FrameError),
    ] {
        let origin = Script::new().await;
        let litequic = Litequic::start(origin.address, |_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
        let mut peer = origin.accept().await;
        peer.until("3\r\nabc\r\n").await;
        exchange.send(&frames).await;
        exchange.finish();
        assert_eq!(client.quic.closed().await, code.value(), "{frames:02x?}");
        let rest = peer.rest().await;
        assert!(!rest.contains("0\r\n"), "{frames:02x?}: {rest:?}");
        litequic.wait_until_idle().await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_request_is_reset_and_the_connection_stays() {
    let expected = |outcome: &Outcome| *outcome == Outcome::Reset(Code::RequestIncomplete.value());
    all_get(expected, vec![Vec::new(), raw::frame(RESERVED, "x")]).await;
}

#[tokio::test]
async fn unknown_frames_streams_and_settings_are_ignored() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
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
    assert_eq!(stopped, Some(Code::StreamCreationError.value()));
    assert_eq!(client.ask(&get()).await.status(), 200);
    assert_eq!(litequic.sum(|worker| worker.connection_errors.get()), 0);
    drop((control, qpack));
    litequic.stop().await;
}

#[tokio::test]
async fn frames_that_carry_nothing_are_a_flood_after_a_while() {
    let flood = raw::data("").repeat(1_000);
    let origin = Always::new("").await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[with("POST", &[]), flood].concat()).await;
    assert_eq!(exchange.outcome().await, Outcome::Closed(Code::ExcessiveLoad.value()));
    litequic.wait_until_idle().await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_no_control_stream_is_closed() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_uni_streams(0_u32.into());
    let quic = Quic::connect(litequic.address, "localhost", &litequic.cert_pem, transport).await;
    assert_eq!(quic.closed().await, Code::GeneralProtocolError.value());
    litequic.stop().await;
}
