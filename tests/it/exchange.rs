//! Requests that are served: what the origin gets, and what the client gets back.

use crate::support::{prelude::*, proxy::tcp};
use bytes::Buf;
use sha2::{Digest, Sha256};
use std::time::Instant;

const MB: usize = 1_000_000;

/// What the demo's origin sends as `/bytes/N`.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

fn digest(bytes: impl AsRef<[u8]>) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// A request's header with `more` behind the pseudo-headers.
fn header(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    raw::headers(&[raw::pseudo(method, path), more.to_vec()].concat())
}

#[tokio::test]
async fn a_large_download_arrives_unchanged() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/bytes/20M").await;
    assert_eq!((answer.status.as_u16(), answer.field("content-length")), (200, Some("20000000")));
    assert_eq!(digest(&answer.body), digest(pattern(20 * MB)));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_slow_reader_holds_no_more_than_its_send_buffer() {
    const BUFFER: u64 = 256 * 1024;
    const WINDOW: u64 = 512 * 1024;
    let litequic = Litequic::demo(|config| config.limits.stream_send_buffer = u32::try_from(BUFFER).unwrap()).await;
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(quinn::VarInt::from_u64(WINDOW).unwrap());
    let client = Client::with_transport(&litequic, transport).await;
    let mut stream = client.begin_get("/bytes/20M").await;
    client::header(&mut stream).await;
    // Nothing is read: the window fills up, then the send buffer.
    let sent = |litequic: &Litequic| litequic.sum(|worker| worker.shared.response_body_bytes.get());
    litequic
        .wait_until("the window is full", |worker| worker.shared.response_body_bytes.get(), |sent| sent > WINDOW)
        .await;
    litequic.wait_until("bytes are held", |worker| worker.worker.send_buffered.get(), |held| held > 0).await;
    let mut hash = Sha256::new();
    let mut read = 0;
    while let Some(mut chunk) = within("the body", stream.recv_data()).await.unwrap() {
        // Besides: a chunk that is on its way into the send buffer.
        assert!(sent(&litequic) <= read + 2 * WINDOW + BUFFER + 512 * 1024, "{} for {read}", sent(&litequic));
        assert!(litequic.sum(|worker| worker.worker.send_buffered.get()) <= BUFFER);
        read += chunk.remaining() as u64;
        hash.update(chunk.copy_to_bytes(chunk.remaining()));
    }
    assert_eq!(format!("{:x}", hash.finalize()), digest(pattern(20 * MB)));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_large_download_through_a_small_window_arrives_unchanged() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Raw::with_window(&litequic, 16 * 1024).await;
    let response = client.ask(&header("GET", "/bytes/20M", &[])).await.response();
    assert_eq!(digest(&response.body), digest(pattern(20 * MB)));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_download_paused_beyond_the_idle_timeout_continues() {
    // Long enough for a busy machine to let a PING and its answer through in half of it.
    let idle = Duration::from_secs(1);
    let litequic = Litequic::demo(|config| config.timeouts.idle = idle).await;
    let client = Raw::with_window(&litequic, 64 * 1024).await;
    let mut exchange = client.open(&header("GET", "/bytes/5M", &[])).await;
    exchange.finish();
    let paused = Instant::now();
    // litequic alone keeps the connection, three times as long as it would last.
    let kept = async {
        while paused.elapsed() < 3 * idle || client.quic.connection.stats().frame_rx.ping < 2 {
            assert_eq!(client.quic.connection.close_reason(), None);
            sleep(Duration::from_millis(5)).await;
        }
    };
    within("PING", kept).await;
    assert_eq!(digest(&exchange.outcome().await.response().body), digest(pattern(5 * MB)));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_client_that_changes_its_port_keeps_its_download_and_its_upload() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut download = client.open(&header("GET", "/bytes/20M", &[])).await;
    let mut upload = client.open(&[header("POST", "/echo", &[]), raw::data("before")].concat()).await;
    litequic.wait_until("bytes flow", |worker| worker.shared.response_body_bytes.get(), |sent| sent > 0).await;
    client.quic.change_port();
    upload.send(&raw::data("after")).await;
    upload.finish();
    assert_eq!(upload.outcome().await.response().body, b"beforeafter");
    assert_eq!(digest(download.outcome().await.response().body), digest(pattern(20 * MB)));
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn a_large_upload_arrives_unchanged_and_no_faster_than_the_origin_reads() {
    let body = pattern(20 * MB);
    let expected = digest(&body);
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Client::to(&litequic).await;
    let request = client.request(Method::PUT, "/").header("content-length", body.len());
    let upload = tokio::spawn(async move { client.fetch(request, body).await });
    let mut peer = origin.accept().await;
    let head = peer.head().await;
    assert_eq!((head.field("content-length"), head.field("transfer-encoding")), (Some("20000000"), None));
    // The kernel's buffers of both ends hold some megabytes; litequic's own hold less than another.
    litequic.wait_until("bytes come", |worker| worker.shared.request_body_bytes.get(), |bytes| bytes > MB as u64).await;
    let mut hash = Sha256::new();
    for step in 0..20 {
        let taken = litequic.sum(|worker| worker.shared.request_body_bytes.get());
        assert!(taken <= (step * MB + 14 * MB) as u64, "{taken} taken when {step} MB were read");
        hash.update(peer.exactly(MB).await);
    }
    assert_eq!(format!("{:x}", hash.finalize()), expected);
    peer.say(Always::EMPTY_200).await;
    assert_eq!(upload.await.unwrap().status, 200);
    litequic.stop().await;
}

#[tokio::test]
async fn an_echo_streams_both_ways_at_once() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    let stream = client.open(client.request(Method::POST, "/echo")).await;
    let (mut send, mut receive) = stream.split();
    // A piece goes out only when the one before has come back.
    send.send_data(Bytes::from(pattern(10_000))).await.unwrap();
    within("the header", receive.recv_response()).await.unwrap();
    for round in 0..20 {
        let mut back = 0;
        while back < 10_000 {
            back += within("an echo", receive.recv_data()).await.unwrap().expect("more").remaining();
        }
        assert_eq!(back, 10_000, "round {round}");
        send.send_data(Bytes::from(pattern(10_000))).await.unwrap();
    }
    let uploaded = Bytes::from(pattern(10 * MB));
    let expected = digest([&pattern(10_000)[..], &uploaded].concat());
    let sending = tokio::spawn(async move {
        send.send_data(uploaded).await.unwrap();
        send.finish().await.unwrap();
    });
    let mut hash = Sha256::new();
    while let Some(mut chunk) = within("an echo", receive.recv_data()).await.unwrap() {
        hash.update(chunk.copy_to_bytes(chunk.remaining()));
    }
    assert_eq!(format!("{:x}", hash.finalize()), expected);
    sending.await.unwrap();
    litequic.stop().await;
}

#[tokio::test]
async fn a_request_body_s_framing_is_said_explicitly() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let length = [("content-length", "3")];
    // Method, header, DATA frames, and what the origin gets: Content-Length, Transfer-Encoding, body.
    for (method, more, body, expected) in [
        ("POST", &length[..], &["a", "bc"][..], (Some("3"), None, "abc")),
        ("GET", &length[..], &["abc"], (Some("3"), None, "abc")),
        ("POST", &[], &["abc"], (None, Some("chunked"), "3\r\nabc\r\n0\r\n\r\n")),
        ("GET", &[], &["abc"], (None, Some("chunked"), "3\r\nabc\r\n0\r\n\r\n")),
        ("DELETE", &[], &["abc"], (None, Some("chunked"), "3\r\nabc\r\n0\r\n\r\n")),
        ("POST", &[], &[], (Some("0"), None, "")),
        ("PUT", &[], &[], (Some("0"), None, "")),
        ("PATCH", &[("content-length", "0")], &[], (Some("0"), None, "")),
        ("GET", &[], &[], (None, None, "")),
        ("OPTIONS", &[], &[], (None, None, "")),
    ] {
        let mut exchange = client.open(&header(method, "/", more)).await;
        for piece in body {
            exchange.send(&raw::data(piece)).await;
        }
        exchange.finish();
        let mut peer = origin.accept().await;
        let head = peer.head().await;
        let got = if expected.2.is_empty() { String::new() } else { peer.until(expected.2).await };
        let framing = (head.field("content-length"), head.field("transfer-encoding"), got.as_str());
        assert_eq!(framing, expected, "{method} {more:?} {body:?}");
        assert!(!peer.has_more());
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        assert_eq!(exchange.outcome().await.status(), 200);
    }
    litequic.stop().await;
}

/// litequic waits for a FIN that comes soon. On a machine that stalls it comes later, so that not every attempt counts.
#[tokio::test]
async fn a_get_whose_fin_comes_late_has_no_body_at_the_origin() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for round in 1..=10 {
        let mut exchange = client.open(&header("GET", "/", &[])).await;
        // The header leaves in a packet of its own.
        let sent = client.quic.connection.stats().udp_tx.datagrams;
        while client.quic.connection.stats().udp_tx.datagrams == sent {
            tokio::task::yield_now().await;
        }
        exchange.finish();
        assert_eq!(exchange.outcome().await.status(), 200);
        let chunked = origin.seen().matches("transfer-encoding").count();
        if chunked < round {
            break;
        }
        assert!(round < 10, "every one had a body");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn responses_arrive_as_the_origin_framed_them_in_whole_frames() {
    for (answer, status, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 200, "hello"),
        ("HTTP/1.1 404 Nowhere\r\nContent-Length: 4\r\n\r\ngone", 404, "gone"),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, ""),
    ] {
        let (origin, litequic) = Always::behind_litequic(answer, |_| {}).await;
        let client = Raw::to(&litequic).await;
        for _ in 0..2 {
            let response = client.ask(&header("GET", "/", &[])).await.response();
            assert_eq!((response.fields.status(), response.body.as_slice()), (status, body.as_bytes()), "{answer}");
            let known = response.fields.get("content-length").is_some();
            assert_eq!(known, answer.contains("Content-Length"), "{answer}");
            assert!(!known || response.data_frames == usize::from(!body.is_empty()), "{answer}");
        }
        assert_eq!(origin.connections(), 1, "the connection is used again");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn the_answer_to_head_has_a_length_and_no_body() {
    let (origin, litequic) = Always::behind_litequic("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", |_| {}).await;
    let client = Raw::to(&litequic).await;
    for _ in 0..2 {
        let response = client.ask(&header("HEAD", "/", &[])).await.response();
        assert_eq!((response.fields.get("content-length"), response.data_frames), (Some("5"), 0));
    }
    assert_eq!(origin.connections(), 1);
    assert!(origin.seen().starts_with("HEAD / HTTP/1.1\r\n"));
    litequic.stop().await;
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let fields = [("te", "trailers"), ("trailer", "x-sum")];
    let request = [header("POST", "/", &fields), raw::data("abc"), raw::headers(&[("x-sum", "1")])];
    let mut exchange = client.open(&request.concat()).await;
    exchange.finish();
    let mut peer = origin.accept().await;
    let head = peer.head().await;
    assert_eq!((head.field("te"), head.field("connection")), (Some("trailers"), Some("TE")));
    peer.until("3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n").await;
    peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Back\r\n\r\n").await;
    peer.say("2\r\nok\r\n0\r\nX-Back: 2\r\nContent-Length: 9\r\n\r\n").await;
    let response = exchange.outcome().await.response();
    assert_eq!(response.body, b"ok");
    assert_eq!(response.trailers.unwrap().0, [("x-back".to_owned(), "2".to_owned())]);
    litequic.stop().await;
}

#[tokio::test]
async fn an_independent_client_reads_the_trailers() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    let answer = client.fetch(client.request(Method::GET, "/trailers").header("te", "trailers"), "").await;
    assert_eq!(answer.text(), "a trailer follows\n");
    assert_eq!(answer.trailers.map(|trailers| trailers.len()), Some(1));
    litequic.stop().await;
}

#[tokio::test]
async fn interim_responses_come_before_the_final_one() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&header("GET", "/", &[])).await;
    exchange.finish();
    let mut peer = origin.accept_request().await;
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x\r\nX: y\r\n\r\n";
    peer.say([hints, hints, Always::EMPTY_200].concat()).await;
    let response = exchange.outcome().await.response();
    assert_eq!(response.fields.status(), 200);
    let statuses: Vec<_> = response.interim.iter().map(raw::Fields::status).collect();
    assert_eq!(statuses, [103, 103]);
    assert_eq!(response.interim[0].get("link"), Some("</a.css>; rel=preload"));
    assert_eq!((response.interim[0].get("connection"), response.interim[0].get("x")), (None, None));
    litequic.stop().await;
}

#[tokio::test]
async fn expect_100_gets_100_or_a_final_response_from_the_origin() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let expecting = header("POST", "/", &[("expect", "100-continue"), ("content-length", "3")]);
    let mut exchange = client.open(&expecting).await;
    let mut peer = origin.accept().await;
    assert_eq!(peer.head().await.field("expect"), Some("100-continue"));
    peer.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    litequic.wait_until("100 was sent", |worker| worker.shared.responses_1xx.get(), |sent| sent == 1).await;
    exchange.send(&raw::data("abc")).await;
    exchange.finish();
    peer.until("abc").await;
    peer.say(Always::EMPTY_200).await;
    let response = exchange.outcome().await.response();
    assert_eq!((response.interim.len(), response.interim[0].status(), response.fields.status()), (1, 100, 200));

    let mut exchange = client.open(&expecting).await;
    assert_eq!(peer.head().await.field("expect"), Some("100-continue"));
    peer.say("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n").await;
    let response = exchange.outcome().await.response();
    assert_eq!((response.interim.len(), response.fields.status()), (0, 417));
    litequic.stop().await;
}

#[tokio::test]
async fn the_origin_learns_who_asks_and_spoofed_fields_are_removed() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let spoofed = [
        ("x-forwarded-for", "10.0.0.1"),
        ("x_forwarded_for", "10.0.0.1"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-prefix", "/spoofed"),
        ("forwarded", "for=10.0.0.1"),
        ("x-real-ip", "10.0.0.1"),
        ("x-request-id", "spoofed"),
        ("client-cert", ":spoofed:"),
        ("client_cert", ":spoofed:"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x", "kept"),
    ];
    assert_eq!(client.ask(&header("GET", "/a%20b?c=d&e", &spoofed)).await.status(), 200);
    let seen = origin::Head(origin.seen());
    assert_eq!(seen.line(), "GET /a%20b?c=d&e HTTP/1.1");
    assert!(!seen.0.contains("10.0.0.1") && !seen.0.contains("spoofed") && !seen.0.contains("gopher"), "{}", seen.0);
    assert_eq!(seen.field("host"), Some("localhost"));
    assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.field("x-forwarded-host"), Some("localhost"));
    assert_eq!(seen.field("forwarded"), Some("for=127.0.0.1;host=localhost;proto=https"));
    assert_eq!(seen.field("cookie"), Some("a=1; b=2"));
    assert_eq!(seen.field("x"), Some("kept"));
    assert_eq!(seen.field("x-request-id").map(str::len), Some(32));
    litequic.stop().await;
}

#[tokio::test]
async fn a_trusted_peer_is_appended_to_instead() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| {
        config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 8 }];
    })
    .await;
    let client = Raw::to(&litequic).await;
    let said = [("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1"), ("x-request-id", "theirs")];
    assert_eq!(client.ask(&header("GET", "/", &said)).await.status(), 200);
    let seen = origin::Head(origin.seen());
    assert_eq!(seen.field("x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
    assert_eq!(seen.field("forwarded"), Some("for=10.0.0.1, for=127.0.0.1;host=localhost;proto=https"));
    assert_eq!(seen.field("x-request-id"), Some("theirs"));
    litequic.stop().await;
}

#[tokio::test]
async fn the_host_may_come_as_a_field_or_with_a_port() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let field = [(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "a.test")];
    assert_eq!(client.ask(&raw::headers(&field)).await.status(), 200);
    let port = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "B.test:8443")];
    assert_eq!(client.ask(&raw::headers(&port)).await.status(), 200);
    assert_eq!(origin::Head(origin.seen()).all("host"), ["a.test", "B.test:8443"]);
    litequic.stop().await;
}

#[tokio::test]
async fn fields_of_the_origin_s_connection_are_dropped() {
    let origin = Always::new(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive, X-Named\r\nKeep-Alive: timeout=5\r\n\
         X-Named: a\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nAlt-Svc: h3=\":1\"\r\nServer: theirs\r\n\
         Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Kept: b\r\n\r\n",
    )
    .await;
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let response = client.ask(&header("GET", "/", &[])).await.response();
    let mut names: Vec<_> = response.fields.0.iter().map(|field| field.0.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [":status", "alt-svc", "content-length", "date", "server", "set-cookie", "set-cookie", "x-kept"]);
    litequic.stop().await;
}

fn route(host: Option<&str>, path_prefix: &str, origin: &str) -> RouteConfig {
    let (host, path_prefix) = (host.map(str::to_owned), path_prefix.to_owned());
    RouteConfig { host, path_prefix, ..RouteConfig::catch_all(origin) }
}

fn add_origin(config: &mut Config, name: &str, address: SocketAddr) {
    let address = tcp(address);
    config.origins.insert(name.into(), OriginConfig::new(address));
}

#[tokio::test]
async fn host_and_path_choose_the_origin_or_404() {
    let named = |name| format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
    let (a, b, c) = (Always::new(named("a")).await, Always::new(named("b")).await, Always::new(named("c")).await);
    let litequic = Litequic::start(a.address, |config| {
        add_origin(config, "b", b.address);
        add_origin(config, "c", c.address);
        config.routes = vec![
            route(Some("a.test"), "/", Config::ORIGIN_NAME),
            route(Some("a.test"), "/api", "b"),
            route(Some("*.wild.test"), "/", "c"),
        ];
    })
    .await;
    let client = Raw::to(&litequic).await;
    for (authority, path, expected) in [
        ("a.test", "/", "a"),
        ("A.TEST.:8443", "/", "a"),
        ("a.test", "/api", "b"),
        ("a.test", "/api/x", "b"),
        ("a.test", "/api?x", "b"),
        ("a.test", "/apix", "a"),
        ("x.wild.test", "/api", "c"),
        ("b.test", "/", ""),
        ("localhost", "/api", ""),
    ] {
        let request = [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path)];
        let response = client.ask(&raw::headers(&request)).await.response();
        if expected.is_empty() {
            assert_eq!(response.fields.status(), 404, "{authority}{path}");
        } else {
            assert_eq!(response.body, expected.as_bytes(), "{authority}{path}");
        }
    }
    litequic.stop().await;
}
