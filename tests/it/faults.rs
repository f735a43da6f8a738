//! Peers at their worst: origins whose bytes could be taken for something else, and clients whose requests must not
//! reach an origin. What exchanges that merely fail look like is in `failures`.

use crate::support::{
    prelude::*,
    proxy::unbuffered,
    raw::{Exchange, HEADERS, RESERVED, with},
};
use futures_util::FutureExt;
use litequic_config::AmbiguousFields;
use litequic_http3::ErrorCode;
use quinn::VarInt;

const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The same over a connection that the origin has from an earlier request.
async fn again(client: &Raw, peer: &mut Peer) -> Exchange {
    let mut exchange = client.open(&with("GET", &[])).await;
    exchange.finish();
    peer.head().await;
    exchange
}

async fn no_connection_is_left(litequic: &Litequic) {
    litequic.wait_until_idle().await;
    litequic.wait_until("no origin", |worker| worker.proxy.origin_connections_open.get(), |open| open == 0).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_502() {
    let (_script, litequic) = Script::behind_litequic(|config| {
        let origin = config.origins.values_mut().next().unwrap();
        origin.servers = vec![OriginAddress::Tcp { host: "absent.invalid".into(), port: 80 }.into()];
    })
    .await;
    let response = Raw::to(&litequic).await.ask(&with("GET", &[])).await.response();
    assert_eq!(response.fields.status(), 502);
    assert!(response.fields.get("proxy-status").unwrap().contains("dns_error"));
    assert!(!String::from_utf8_lossy(&response.body).contains("absent.invalid"));
    litequic.stop().await;
}

#[tokio::test]
async fn invalid_response_heads_get_502_and_never_reach_the_client() {
    for head in [
        "",                           // HTTP/0.9: a body and nothing else
        "<html>hello</html>\r\n\r\n", // the same
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 2000 High\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        peer.say(format!("{head}hello")).await;
        peer.stream.shutdown().await.unwrap();
        let response = exchange.outcome().await.response();
        assert_eq!(response.fields.status(), 502, "{head:?}");
        assert!(!String::from_utf8_lossy(&response.body).contains("hello"), "{head:?}");
        peer.rest().await;
        no_connection_is_left(&litequic).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn chunks_that_are_none_never_look_whole() {
    // Those that are invalid from their beginning are a 502.
    for (body, at_once) in [
        ("-5\r\nhello\r\n0\r\n\r\n", true),
        ("0x5\r\nhello\r\n0\r\n\r\n", true),
        ("5\r\nhello0\r\n\r\n", false),                    // no end of line
        ("ffffffffffffffff\r\nhello\r\n0\r\n\r\n", false), // as long as there is
        ("1ffffffffffffffff\r\nhello\r\n0\r\n\r\n", true),
        ("5\r\nhello\r\n\r\n", false), // no size
        ("5\r\nhello\r\n0\r\nbad trailer\r\n\r\n", false),
    ] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        peer.say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).await;
        peer.stream.shutdown().await.unwrap();
        match exchange.outcome().await {
            Outcome::Response(response) => assert!(at_once && response.fields.status() == 502, "{body:?}"),
            other => assert!(
                !at_once && other == Outcome::Reset(ErrorCode::InternalError.wire_value()),
                "{body:?}: {other:?}"
            ),
        }
        no_connection_is_left(&litequic).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn chunk_extensions_are_nothing_but_skipped_and_not_without_end() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = client.asked_at(&script).await;
    peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n").await;
    assert_eq!(exchange.outcome().await.response().body, b"hello");
    let mut exchange = again(&client, &mut peer).await;
    peer.say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;{}", "a".repeat(1 << 20))).now_or_never();
    match exchange.outcome().await {
        // Too much of it came with the header.
        Outcome::Response(response) => assert_eq!(response.fields.status(), 502),
        other => assert_eq!(other, Outcome::Reset(ErrorCode::InternalError.wire_value())),
    }
    no_connection_is_left(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn bytes_beyond_a_response_are_no_answer_to_the_next_request() {
    const SPLIT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    // With the response, and while the connection is idle.
    for late in [false, true] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        if late {
            peer.say(HELLO).await;
            assert_eq!(exchange.outcome().await.response().body, b"hello");
            peer.say(SPLIT).await;
        } else {
            peer.say(format!("{HELLO}{SPLIT}")).await;
            assert_eq!(exchange.outcome().await.response().body, b"hello");
        }
        // The next request gets a connection of its own and that one's answer.
        let (mut exchange, mut fresh) = client.asked_at(&script).await;
        fresh.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue").await;
        assert_eq!(exchange.outcome().await.response().body, b"true", "late: {late}");
        peer.rest().await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_http_1_0_response_ends_with_its_connection() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = client.asked_at(&script).await;
    peer.say("HTTP/1.0 200 OK\r\n\r\nhello").await;
    peer.stream.shutdown().await.unwrap();
    assert_eq!(exchange.outcome().await.response().body, b"hello");
    peer.rest().await;
    let (mut exchange, mut peer) = client.asked_at(&script).await;
    peer.say("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(exchange.outcome().await.response().body, b"hello");
    assert_eq!(peer.rest().await, "", "closed");
    litequic.stop().await;
}

#[tokio::test]
async fn a_trickling_response_header_arrives_and_a_slow_one_gets_504() {
    let script = Script::new().await;
    let limit = Duration::from_secs(1);
    let litequic = Litequic::start(script.address, |config| config.timeouts.response_header = limit).await;
    let client = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = client.asked_at(&script).await;
    peer.stream.set_nodelay(true).unwrap();
    for byte in HELLO.bytes() {
        peer.say([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(exchange.outcome().await.response().body, b"hello");
    let mut exchange = again(&client, &mut peer).await;
    let trickle = async {
        peer.say("HTTP/1.1 200 OK\r\n").await;
        while peer.stream.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let (outcome, ()) = futures_util::future::join(exchange.outcome(), within("the end", trickle)).await;
    assert_eq!(outcome.status(), 504, "a byte now and then does not put the deadline off");
    no_connection_is_left(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_closed_under_a_request_is_retried_for_get_alone() {
    for (method, status) in [("GET", 200), ("POST", 502)] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        peer.say(HELLO).await;
        assert_eq!(exchange.outcome().await.status(), 200);
        let mut exchange = client.open(&with(method, &[])).await;
        exchange.finish();
        peer.head().await;
        drop(peer);
        if status == 200 {
            let mut fresh = script.accept_request().await;
            fresh.say(HELLO).await;
        }
        assert_eq!(exchange.outcome().await.status(), status, "{method}");
        script.saw_no_connection();
        assert_eq!(litequic.sum(|worker| worker.proxy.origin_retries.get()), u64::from(status == 200));
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_upload_failing_during_a_response_is_stopped_with_an_error_code() {
    for (fault, code) in [
        ("length", ErrorCode::MessageError),
        ("limit", ErrorCode::InternalError),
        ("slow", ErrorCode::RequestCancelled),
    ] {
        let (script, litequic) = Script::behind_litequic(|config| {
            unbuffered(config);
            if fault == "limit" {
                config.limits.max_body_bytes = Some(10);
            }
            if fault == "slow" {
                config.timeouts.request_body = Duration::from_millis(200);
            }
        })
        .await;
        let client = Raw::to(&litequic).await;
        let length: &[_] = if fault == "length" { &[("content-length", "4")] } else { &[] };
        let mut exchange = client.open(&[with("POST", length), raw::data("abc")].concat()).await;
        let mut peer = script.accept().await;
        peer.until(if fault == "length" { "abc" } else { "abc\r\n" }).await;
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        exchange.header().await;
        if fault != "slow" {
            exchange.send(&raw::data("0123456789")).await;
        }
        assert_eq!(exchange.outcome().await, Outcome::Reset(code.wire_value()), "{fault}");
        assert_eq!(exchange.stopped().await, Some(code.wire_value()), "{fault}");
        assert_eq!(peer.rest().await, "", "no last chunk");
        no_connection_is_left(&litequic).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn late_bytes_after_content_length_0_are_malformed() {
    let (always, litequic) = Always::behind_litequic(HELLO, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for method in ["POST", "GET"] {
        let mut exchange = client.open(&with(method, &[("content-length", "0")])).await;
        // The header was read: it counts, and waits for the end.
        litequic.wait_until("open", |worker| worker.shared.requests_open.get(), |open| open == 1).await;
        assert!(exchange.receive.read_chunk(1, true).now_or_never().is_none());
        exchange.send(&raw::data("late")).await;
        assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::MessageError.wire_value()), "{method}");
        litequic.wait_until_idle().await;
    }
    // Trailers are no bytes of the body, bad ones are malformed all the same.
    let empty = with("POST", &[("content-length", "0")]);
    assert_eq!(client.ask(&[empty.clone(), raw::headers(&[("x", "y")])].concat()).await.status(), 200);
    let bad = client.ask(&[empty.clone(), raw::headers(&[(":path", "/")])].concat()).await;
    assert_eq!(bad, Outcome::Reset(ErrorCode::MessageError.wire_value()));
    assert_eq!(always.seen().matches("HTTP/1.1").count(), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn what_an_origin_s_environment_would_take_for_its_own_is_removed() {
    let (always, litequic) = Always::behind_litequic(HELLO, |config| {
        // Even where the origin does not confuse names.
        config.origins.get_mut(Config::ORIGIN_NAME).unwrap().ambiguous_fields = AmbiguousFields::Pass;
    })
    .await;
    let client = Raw::to(&litequic).await;
    let fields = [
        ("proxy", "http://evil.test"),
        ("content_length", "5"),
        ("transfer_encoding", "chunked"),
        ("x_forwarded_for", "192.0.2.1"),
        ("x_other", "kept"),
    ];
    assert_eq!(client.ask(&with("GET", &fields)).await.status(), 200);
    let seen = always.seen().to_ascii_lowercase();
    for name in ["proxy:", "content_length", "transfer_encoding", "x_forwarded_for"] {
        assert!(!seen.contains(&format!("\n{name}")), "{seen}");
    }
    assert!(seen.contains("\nx_other: kept"), "{seen}");
    litequic.stop().await;
}

#[tokio::test]
async fn trace_gets_501_and_options_obeys_max_forwards() {
    let (always, litequic) = Always::behind_litequic(HELLO, |_| {}).await;
    let client = Raw::to(&litequic).await;
    assert_eq!(client.ask(&with("TRACE", &[])).await.status(), 501);
    assert_eq!(client.ask(&with("TRACE", &[("max-forwards", "5")])).await.status(), 501);
    let last = client.ask(&with("OPTIONS", &[("max-forwards", "0")])).await.response();
    assert_eq!((last.fields.status(), last.data_frames), (204, 0));
    assert_eq!(always.connections(), 0);
    assert_eq!(client.ask(&with("OPTIONS", &[("max-forwards", "3")])).await.status(), 200);
    assert!(always.seen().to_ascii_lowercase().contains("max-forwards: 2\r\n"), "{}", always.seen());
    litequic.stop().await;
}

#[tokio::test]
async fn half_a_request_that_is_reset_or_left_never_reaches_the_origin() {
    let (always, litequic) = Always::behind_litequic(HELLO, |_| {}).await;
    let client = Raw::to(&litequic).await;
    let whole = with("GET", &[("x-marker", "half")]);
    for cut in 1..whole.len() {
        let mut half = client.open(&whole[..cut]).await;
        half.send.reset(REQUEST_CANCELLED).unwrap();
        let outcome = half.outcome().await;
        assert_eq!(outcome, Outcome::Reset(ErrorCode::RequestCancelled.wire_value()), "{cut}");
    }
    let gone = Raw::to(&litequic).await;
    let half = gone.open(&whole[..whole.len() - 1]).await;
    litequic.wait_until("open", |worker| worker.shared.requests_open.get(), |open| open == 1).await;
    gone.quic.connection.close(VarInt::from_u32(0x100), b"");
    litequic.wait_until_idle().await;
    drop(half);
    assert_eq!(client.ask(&with("GET", &[])).await.status(), 200);
    assert!(!always.seen().contains("half"), "{}", always.seen());
    litequic.stop().await;
}

#[tokio::test]
async fn invalid_qpack_field_sections_close_the_connection() {
    let (always, litequic) = Always::behind_litequic(HELLO, |_| {}).await;
    let good = raw::section(&raw::pseudo("GET", "/marker"));
    let broken: [(&str, Vec<u8>); 12] = [
        ("no prefix", vec![]),
        ("half a prefix", vec![0]),
        ("a required insert count", [&[1, 0], &good[2..]].concat()),
        ("a base below zero", [&[0, 0x80], &good[2..]].concat()),
        ("a dynamic field", [&good[..], &[0x80]].concat()),
        ("a post-base field", [&good[..], &[0x10]].concat()),
        ("a dynamic name", [&good[..], &[0x40, 0x00]].concat()),
        ("a post-base name", [&good[..], &[0x00, 0x00]].concat()),
        ("a static field that there is not", [&good[..], &[0xff, 0x7f]].concat()),
        ("an integer without end", [&good[..], &[0xff], &[0xff; 12][..]].concat()),
        ("a cut string", [&good[..], &[0x23, b'a']].concat()),
        ("Huffman's EOS", [&good[..], &[0x2c, 0xff, 0xff, 0xff, 0xff, 0x00]].concat()),
    ];
    for (what, section) in broken {
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&raw::frame(HEADERS, section)).await;
        exchange.finish();
        assert_eq!(
            exchange.outcome().await,
            Outcome::Closed(ErrorCode::QpackDecompressionFailed.wire_value()),
            "{what}"
        );
    }
    assert_eq!(always.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_slow_reader_and_a_slow_sender_get_and_send_all() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::with_window(&litequic, 1_000).await;
    let mut exchange = client.open(&with("POST", &[])).await;
    let mut peer = script.accept_request().await;
    let mut chunked = String::new();
    for byte in b'a'..=b'z' {
        exchange.send(&raw::varint(RESERVED)[..]).await;
        exchange.send(&[1, 0]).await; // a frame in three pieces
        exchange.send(&raw::data([byte])).await;
        if byte % 5 == 0 {
            chunked += &peer.until(&format!("{}\r\n", char::from(byte))).await;
        }
    }
    exchange.finish();
    chunked += &peer.until("0\r\n\r\n").await;
    // Pieces that came together go on together.
    let letters: String = chunked.lines().skip(1).step_by(2).collect();
    assert_eq!(letters, "abcdefghijklmnopqrstuvwxyz");
    let body = "x".repeat(50_000);
    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n{body}")).await;
    assert_eq!(exchange.outcome().await.response().body, body.as_bytes());
    litequic.stop().await;
}
