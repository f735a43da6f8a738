//! Which requests may switch protocols, what the origin gets, and which of its answers are a success.

use super::{
    ASK, CONNECT, H3_FRAME_UNEXPECTED, H3_MESSAGE_ERROR, PROTOCOL_ERROR, YES, is_reset, no_tunnel_is_open, other,
    raw_tunnel,
};
use crate::support::{
    prelude::*,
    tunnel::{self, switch},
};

#[tokio::test]
async fn the_origin_is_asked_in_http_1_1_whatever_the_client_speaks() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    for over in HttpVersion::ALL {
        let asked = async {
            let mut peer = origin.accept().await;
            let head = peer.head().await;
            peer.say("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno").await;
            head
        };
        let more = [("sec-websocket-protocol", "a, b"), ("te", "trailers"), ("origin", "https://localhost")];
        let (switched, head) = tokio::join!(switch(&litequic, over, "/a?b", "websocket", &more), asked);
        assert_eq!(switched.status, 403, "what the origin says passes");
        assert_eq!(head.line(), "GET /a?b HTTP/1.1");
        for (field, expected) in [
            ("host", "localhost"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "a, b"),
            ("origin", "https://localhost"),
            ("x-forwarded-proto", "https"),
        ] {
            assert_eq!(head.field(field), Some(expected), "{over:?}: {head:?}");
        }
        for absent in ["te", "content-length", "transfer-encoding"] {
            assert_eq!(head.field(absent), None, "{over:?}: {head:?}");
        }
        let key = head.field("sec-websocket-key").unwrap();
        assert_eq!((key.len(), key == "dGhlIHNhbXBsZSBub25jZQ=="), (24, over == HttpVersion::Http1), "{over:?}");
    }
    litequic.stop().await;
}

/// The answer `over` an HTTP version when the origin sends `answer` to a request for a WebSocket.
async fn answered(litequic: &Litequic, origin: &Script, over: HttpVersion, answer: &str) -> (u16, String, String) {
    let serve = async {
        let mut peer = origin.accept_request().await;
        peer.say(answer).await;
        peer
    };
    let (switched, _peer) = tokio::join!(switch(litequic, over, "/", "websocket", &[]), serve);
    (switched.status, switched.head, switched.body)
}

#[tokio::test]
async fn only_the_answer_to_what_was_asked_opens_a_tunnel() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    let to = |fields: &str| format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n");
    let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let table = [
        // What HTTP/1.1 gets, and what the others do: a 2xx would be a yes there.
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno".to_owned(), 200, 502),
        ("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".into(), 204, 502),
        ("HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".into(), 302, 302),
        (
            "HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"
                .into(),
            426,
            426,
        ),
        (to("Upgrade: websocket\r\n"), 502, 502),
        (to(&format!("Connection: Upgrade\r\n{accept}")), 502, 502),
        (to(&format!("Connection: Upgrade\r\nUpgrade: other\r\n{accept}")), 502, 502),
        // The answer to another key than ours; by HTTP/1.1 that is the client's to see.
        (to(&format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{accept}")), 101, 502),
        (to("Connection: Upgrade\r\nUpgrade: websocket\r\n"), 101, 502),
    ];
    for (answer, by_http1, by_others) in &table {
        for over in HttpVersion::ALL {
            let expected = if over == HttpVersion::Http1 { *by_http1 } else { *by_others };
            let (status, head, body) = answered(&litequic, &origin, over, answer).await;
            assert_eq!(status, expected, "{over:?}: {answer}");
            if status == 502 {
                let said = format!("{head}{body}");
                assert!(said.contains("http_upgrade_failed"), "{said}");
            }
        }
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn what_comes_with_the_101_and_before_it_is_not_lost() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    let ask = ASK.to_owned() + "early";

    let mut client = Tls::http1(&litequic).await;
    client.say(ask).await;
    let mut peer = origin.accept_request().await;
    assert!(!peer.has_more(), "bytes before the answer");
    peer.say(format!("{YES}at once")).await;
    assert_eq!(peer.exactly(5).await, b"early");
    let head = client.head().await;
    assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: other\r\n"), "{head}");
    assert!(head.contains("x-kept: 1"), "{head}");
    client.until("at once").await;

    let raw = Raw::to(&litequic).await;
    let mut exchange = raw.open(&[tunnel::connect("/", "other", &[]), raw::data("early")].concat()).await;
    let mut peer = origin.accept_request().await;
    peer.say(format!("{YES}at once")).await;
    assert_eq!(peer.exactly(5).await, b"early");
    exchange.finish();
    assert_eq!(peer.rest().await, "");
    drop(peer);
    let response = exchange.outcome().await.response();
    assert_eq!((response.fields.status(), &response.body[..]), (200, &b"at once"[..]));
    assert_eq!(response.fields.get("x-kept"), Some("1"));
    for name in ["upgrade", "connection", "content-length"] {
        assert_eq!(response.fields.get(name), None);
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_refused_upgrade_continues_with_http_1_1() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = other(origin.address, |_| {}).await;
    let plain = "GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let with = |fields: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    for (request, asks) in [
        (ASK.to_owned(), true),
        (with("Connection: keep-alive, UPGRADE\r\nUpgrade: h2c, Other\r\n"), true),
        (with("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: other\r\n"), true),
        // The rest is served as if there were no `Upgrade` (RFC 9110 §7.8).
        (with("Upgrade: other\r\n"), false),
        (with("Connection: Upgrade\r\n"), false),
        (with("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), false),
        (with("Connection: Upgrade\r\nUpgrade: TLS/1.3\r\n"), false),
        (with("Connection: Upgrade\r\nUpgrade: unknown\r\n"), false),
        (with("Connection: Upgrade\r\nUpgrade: other/2\r\n"), false),
        (with("Connection: Upgrade\r\nUpgrade: other\r\nContent-Length: 2\r\n") + "ab", false),
        (with("Connection: Upgrade\r\nUpgrade: other\r\n").replace("GET", "POST"), false),
        (with("Connection: Upgrade\r\nUpgrade: other\r\n").replace("GET", "HEAD"), false),
    ] {
        let before = origin.seen().len();
        let mut client = Tls::http1(&litequic).await;
        // Both at once: the second is looked at when the first was answered.
        client.say(format!("{request}{plain}")).await;
        for _ in 0..2 {
            let head = client.head().await;
            assert!(head.starts_with("http/1.1 200 "), "{request:?}: {head}");
        }
        let seen = origin.seen()[before..].to_ascii_lowercase();
        assert_eq!(seen.contains("\r\nupgrade: other\r\n"), asks, "{request:?}: {seen}");
        assert_eq!(seen.contains("upgrade"), asks, "{request:?}: {seen}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn an_extended_connect_that_breaks_the_rules_never_reaches_the_origin() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = other(origin.address, |_| {}).await;
    let replaced = |name: &str, value: &'static str| {
        CONNECT.map(|(other, before)| (other, if other == name { value } else { before })).to_vec()
    };
    let without = |name: &str| CONNECT.into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>();
    let with = |field: (&'static str, &'static str)| [&CONNECT[..], &[field]].concat();
    // 0 is malformed.
    for (fields, by_http2, by_http3) in [
        (replaced(":method", "GET"), 0, 0),
        (without(":path"), 0, 0),
        (without(":scheme"), 0, 0),
        (without(":authority"), 400, 0),
        (replaced(":protocol", ""), 501, 0),
        (replaced(":protocol", "web socket"), 501, 0),
        (with(("upgrade", "other")), 0, 0),
        (with(("connection", "upgrade")), 0, 0),
        (replaced(":path", "x"), 0, 400),
        (replaced(":protocol", "unknown"), 501, 501),
        (replaced(":protocol", "h2c"), 501, 501),
        (with(("content-length", "0")), 400, 400),
        (vec![(":method", "CONNECT"), (":authority", "localhost:443")], 501, 501),
    ] {
        let raw = Raw::to(&litequic).await;
        match raw.ask(&raw::headers(&fields)).await {
            Outcome::Reset(code) => assert_eq!((by_http3, code), (0, H3_MESSAGE_ERROR), "{fields:?}"),
            outcome => assert_eq!(outcome.status(), by_http3, "{fields:?}"),
        }
        let mut client = Http2::connect(&litequic, &[]).await;
        client.say(http2::HEADERS, http2::END_HEADERS, 1, &http2::fields(&fields)).await;
        let frame = client.find(&[http2::HEADERS, http2::RST_STREAM, http2::GOAWAY]).await.unwrap();
        match frame.kind {
            http2::HEADERS => assert_eq!(http2::status(&frame), by_http2, "{fields:?}"),
            _ => assert_eq!((by_http2, frame.code()), (0, PROTOCOL_ERROR), "{fields:?}"),
        }
    }
    assert_eq!(origin.seen(), "");
    litequic.stop().await;
}

#[tokio::test]
async fn nothing_but_data_follows_an_extended_connect() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    let raw = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = raw_tunnel(&raw, &origin).await;
    exchange.send(&raw::headers(&[("trailer", "1")])).await;
    assert_eq!(raw.quic.closed().await, H3_FRAME_UNEXPECTED);
    assert!(is_reset(&mut peer).await);
    litequic.stop().await;
}

#[tokio::test]
async fn where_no_route_lets_anything_pass_nothing_is_offered() {
    let edit = |config: &mut Config| config.routes[0].upgrade.clear();
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, edit).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let settings = client.find(&[http2::SETTINGS]).await.unwrap();
    assert!(!settings.payload.chunks(6).any(|setting| setting.starts_with(&[0, 8])), "{settings:?}");
    client.say(http2::HEADERS, http2::END_HEADERS, 1, &http2::fields(&CONNECT)).await;
    assert_eq!(client.find(&[http2::HEADERS, http2::RST_STREAM]).await.unwrap().code(), PROTOCOL_ERROR);
    let raw = Raw::to(&litequic).await;
    assert_eq!(raw.ask(&raw::headers(&CONNECT)).await, Outcome::Reset(H3_MESSAGE_ERROR));
    let switched = switch(&litequic, HttpVersion::Http1, "/", "websocket", &[]).await;
    assert_eq!(switched.status, 200);
    assert!(!origin.seen().to_ascii_lowercase().contains("upgrade"), "{}", origin.seen());
    litequic.stop().await;
}
