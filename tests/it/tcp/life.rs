//! Listeners and connections: ports, limits, drain, plain HTTP, clients' certificates.

use crate::support::{
    http2::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, get, status},
    prelude::*,
};
use litequic_base::lifecycle::ProcessPhase;
use std::num::NonZeroU16;

#[tokio::test]
async fn without_tcp_addresses_alt_svc_still_has_the_advertised_port() {
    let litequic = Litequic::demo(|config| config.listen.tcp.clear()).await;
    assert!(litequic.tcp.is_empty());
    assert!(TcpStream::connect(litequic.address).await.is_err());
    litequic.stop().await;

    let litequic = Litequic::demo(|config| config.listen.advertised_port = NonZeroU16::new(443)).await;
    let mut client = Tls::http1(&litequic).await;
    client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.contains("\r\nalt-svc: h3=\":443\"; ma=86400\r\n"), "{head}");
    litequic.stop().await;
}

/// A client that found HTTP/3 learns no less of it than over TCP, and once a connection is enough.
#[tokio::test]
async fn over_http3_the_first_response_has_alt_svc_where_litequic_serves_tcp() {
    let origin = Always::new("HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":1\"\r\nContent-Length: 0\r\n\r\n").await;
    for (has_tcp, port) in [(true, None), (true, NonZeroU16::new(443)), (false, NonZeroU16::new(443))] {
        let litequic = Litequic::start(origin.address, |config| {
            config.listen.advertised_port = port;
            if !has_tcp {
                config.listen.tcp.clear();
            }
        })
        .await;
        let port = port.map_or(litequic.address.port(), NonZeroU16::get);
        let expected = has_tcp.then(|| format!("h3=\":{port}\"; ma=86400"));
        let request = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "localhost")];
        for _connection in 0..2 {
            let client = Raw::to(&litequic).await;
            for expected in [expected.as_deref(), None] {
                let response = client.ask(&raw::headers(&request)).await.response();
                let of = response.fields.0.iter().find(|field| field.0 == "alt-svc");
                assert_eq!(of.map(|field| field.1.as_str()), expected);
            }
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn the_origins_alt_svc_is_replaced() {
    let (_origin, litequic) =
        Always::behind_litequic("HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":1\"\r\nContent-Length: 0\r\n\r\n", |_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!(head.matches("alt-svc").count(), 1, "{head}");
    assert!(!head.contains("h3=\":1\""), "{head}");
    litequic.stop().await;
}

/// Every request of plain HTTP leads to https at the port that clients reach, for hosts that have a certificate.
#[tokio::test]
async fn plain_http_is_sent_on_to_https() {
    let (origin, litequic) =
        Always::behind_litequic(Always::EMPTY_200, |config| config.listen.redirect = vec![([127, 0, 0, 1], 0).into()])
            .await;
    let port = litequic.tcp[0].port();
    let own = format!("\r\nlocation: https://localhost:{port}/a?b=c\r\n");
    let by_address = own.replace("localhost", "127.0.0.1");
    for (request, status, location) in [
        ("GET /a?b=c HTTP/1.1\r\nHost: localhost:80\r\n", 308, own.as_str()),
        ("POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n", 308, &own),
        ("GET / HTTP/1.1\r\nHost: elsewhere.test\r\n", 421, ""),
        ("GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1\r\n", 308, &by_address),
        ("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n", 421, ""),
        ("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n", 421, ""),
        ("GET / HTTP/1.1\r\nHost: user@localhost\r\n", 400, ""),
        ("GET / HTTP/1.1\r\n", 400, ""),
        ("\u{16}\u{3}\u{1}", 400, ""),
    ] {
        let mut plain = TcpStream::connect(litequic.redirects[0]).await.unwrap();
        plain.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = within("the end", plain.read_to_string(&mut answer)).await;
        let answer = answer.to_ascii_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{request:?}: {answer}");
        assert!(
            answer.contains(location) && answer.contains("location: ") != location.is_empty(),
            "{request:?}: {answer}"
        );
        assert!(!answer.contains("alt-svc"), "{answer}");
    }
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_redirects.get()), 3);
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn connections_and_handshakes_beyond_their_limits_are_closed_and_counted() {
    let litequic = Litequic::demo(|config| {
        config.limits.max_connections = 2;
        config.limits.max_handshakes = 1;
    })
    .await;
    let mut first = Tls::http1(&litequic).await;
    // It is in its handshake: another is one too many, and so is a third connection.
    let handshaking = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    litequic.wait_until("open", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 2).await;
    let mut third = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    assert_eq!(within("its end", third.read(&mut [0])).await.unwrap_or(0), 0);
    assert_eq!(litequic.sum(|worker| worker.tcp.limit_connections.get()), 1);
    drop(handshaking);
    litequic.wait_until("open", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 1).await;
    first.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(first.head().await.starts_with("http/1.1 204 "));
    litequic.stop().await;
}

/// As a load test from one machine opens its connections: all at once.
#[tokio::test]
async fn handshakes_beyond_their_limit_wait_for_those_before_and_are_served() {
    let litequic = Litequic::demo(|config| config.limits.max_handshakes = 2).await;
    let clients = (0..100).map(async |_| {
        let mut client = Tls::http1(&litequic).await;
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(client.head().await.starts_with("http/1.1 204 "));
        client
    });
    let clients = futures_util::future::join_all(clients).await;
    assert_eq!(litequic.sum(|worker| worker.tcp.limit_handshakes.get()), 0);
    drop(clients);
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_that_has_had_its_share_of_requests_ends_in_order() {
    let litequic = Litequic::demo(|config| config.limits.max_requests = 2).await;
    let mut one = Tls::http1(&litequic).await;
    for last in [false, true] {
        one.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let head = one.head().await;
        assert_eq!(head.contains("connection: close"), last, "{head}");
    }
    assert_eq!(one.rest().await, (String::new(), true));
    let mut two = Http2::connect(&litequic, &[]).await;
    two.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
    assert_eq!(status(&two.find(&[HEADERS]).await.unwrap()), 200);
    two.say(HEADERS, END_HEADERS | END_STREAM, 3, &get(&[])).await;
    let (mut goodbye, mut answered) = (false, false);
    while let Some(frame) = two.find(&[HEADERS, GOAWAY]).await {
        goodbye |= frame.kind == GOAWAY && frame.code() == 0;
        answered |= frame.kind == HEADERS && status(&frame) == 200;
    }
    assert!(goodbye && answered);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_requests.get()), 2);
    litequic.stop().await;
}

#[tokio::test]
async fn a_drain_lets_running_requests_finish_and_says_goodbye() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut one = Tls::http1(&litequic).await;
    one.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut peer_of_one = script.accept_request().await;
    let mut two = Http2::connect(&litequic, &[]).await;
    two.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
    let mut peer_of_two = script.accept_request().await;
    let mut idle = Tls::http1(&litequic).await;

    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    assert_eq!(two.find(&[GOAWAY]).await.unwrap().code(), 0);
    assert_eq!(idle.rest().await, (String::new(), true));
    assert!(TcpStream::connect(litequic.tcp[0]).await.is_err(), "no new connection is accepted");
    peer_of_one.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    peer_of_two.say(Always::EMPTY_200).await;
    let head = one.head().await;
    assert!(head.contains("\r\nconnection: close\r\n") && !head.contains("alt-svc"), "{head}");
    assert_eq!(one.rest().await, ("hello".into(), true));
    assert_eq!(status(&two.find(&[HEADERS]).await.unwrap()), 200);
    while two.next().await.is_some() {}
    litequic.ended().await;
}

#[tokio::test]
async fn a_drain_cuts_at_its_deadline_what_still_runs() {
    let (script, litequic) = Script::behind_litequic(|config| config.timeouts.drain = Duration::from_millis(200)).await;
    let mut one = Tls::http1(&litequic).await;
    one.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let _peer = script.accept_request().await;
    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    let (answer, orderly) = one.rest().await;
    assert_eq!((answer.as_str(), orderly), ("", false));
    litequic.ended().await;
}
