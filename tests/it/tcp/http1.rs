//! What HTTP/1.1 must reject, as raw bytes over TLS: the rows of docs/proxying.md. None of it reaches the origin.

use crate::support::prelude::*;

/// How litequic answers `request`, byte for byte all of it, and that it then closes.
async fn answer(litequic: &Litequic, request: &[u8]) -> String {
    let mut client = Tls::http1(litequic).await;
    client.say(request).await;
    client.rest().await.0
}

#[tokio::test]
async fn what_two_parsers_could_read_differently_is_refused_and_the_connection_closed() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(70_000));
    let large = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let without_end = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}", "x: y\r\n".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "x: y\r\n".repeat(101));
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\n";
    let with = |fields: &str| format!("{post}{fields}\r\n");
    let table: &[(&str, u16)] = &[
        // Framing
        (&with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400),
        (&with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
        (&with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400),
        (&with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        (&with("Content-Length: 5, 5\r\n"), 400),
        (&with("Content-Length: +5\r\n"), 400),
        (&with("Content-Length: -5\r\n"), 400),
        (&with("Content-Length: 0x5\r\n"), 400),
        (&with("Content-Length: 5 5\r\n"), 400),
        (&with("Content-Length:\r\n"), 400),
        (&with("Content-Length: 99999999999999999999\r\n"), 400),
        (&with("Content-Length : 5\r\n"), 400),
        (&with("Transfer-Encoding : chunked\r\n"), 400),
        (&with("Transfer-Encoding: chunked, gzip\r\n"), 400),
        (&with("Transfer-Encoding: identity\r\n"), 400),
        (&with("Transfer-Encoding: xchunked\r\n"), 400),
        (&with("Transfer-Encoding: \"chunked\"\r\n"), 400),
        (&with("Transfer-Encoding: chunked;a=b\r\n"), 400),
        (&with("Transfer-Encoding:\r\n"), 400),
        (&with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
        (&with("Transfer-Encoding: chunked, chunked\r\n"), 400),
        (&with("Transfer-Encoding: gzip, chunked\r\n"), 501),
        ("POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        // Lines
        (&with("X: a\r\n b\r\n"), 400),
        (&with(" X: a\r\n"), 400),
        (&with("X: a\rb\r\n"), 400),
        (&with("X: a\r\r\n"), 400),
        (&with("X: a\nY: b\r\n"), 400),
        (&with("X: a\0b\r\n"), 400),
        (&with("X: a\u{7f}\r\n"), 400),
        (&with("X\r\n"), 400),
        (&with(": a\r\n"), 400),
        (&with("X Y: a\r\n"), 400),
        (&with("X\"Y: a\r\n"), 400),
        ("GET / HTTP/1.1\nHost: localhost\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\n", 400),
        ("\n\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        // Host
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost, a.test\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost:http\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: local host\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost/a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 421),
        // Targets
        ("GET https://a.test/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET https://localhost:1/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET https://user@localhost/ HTTP/1.1\r\nHost: user@localhost\r\n\r\n", 400),
        ("GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n", 400),
        ("CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n", 501),
        ("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        ("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET https://localhost/a#b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /a/../b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /%2e%2e/b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /a\\b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        // Request lines
        ("GET /\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/1.2\r\nHost: localhost\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("G{T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        // Sizes
        (&long, 414),
        (&large, 431),
        (&without_end, 431),
        (&many, 431),
        // What belongs to the connection
        (&with("Connection: close, Host\r\n"), 400),
        (&with("Connection: Content-Length\r\nContent-Length: 0\r\n"), 400),
    ];
    for (request, status) in table {
        let answer = answer(&litequic, request.as_bytes()).await;
        let shown = &request[..request.floor_char_boundary(120)];
        // A client of HTTP/1.0 may get either version.
        let line = answer.strip_prefix("HTTP/1.1 ").or_else(|| answer.strip_prefix("HTTP/1.0 "));
        let is_answered = line.is_some_and(|line| line.starts_with(&format!("{status} ")));
        assert!(is_answered, "{shown:?} is answered {answer:?}");
        assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{shown:?}: {answer:?}");
    }
    assert_eq!(origin.connections(), 0);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_refused_h1.get()), table.len() as u64);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_headers.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_header_bytes.get()), 3);
    litequic.stop().await;
}

#[tokio::test]
async fn invalid_chunked_coding_gets_400_and_the_origin_no_last_chunk() {
    let (origin, litequic) = Always::behind_litequic("", |_| {}).await;
    for chunks in [
        "5\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello",
        "5\r\nhelloX\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let post =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n{chunks}");
        let answer = answer(&litequic, post.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer:?}");
    }
    litequic.wait_until_idle().await;
    assert!(!origin.seen().contains("\r\n0\r\n\r\n"), "{}", origin.seen());
    litequic.stop().await;
}

/// A rejected request is answered in its turn; earlier ones are served.
#[tokio::test]
async fn a_request_that_is_refused_is_answered_behind_those_before_it() {
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = answer(&litequic, format!("{get}\r\n{get}GET /\r\n\r\n{get}").as_bytes()).await;
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
    litequic.stop().await;
}

#[tokio::test]
async fn every_valid_target_form_reaches_the_origin_as_a_path() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    for (line, host, path) in [
        ("GET /a?b", "localhost", "GET /a?b HTTP/1.1\r\n"),
        ("GET https://localhost/c%20?d", "LocalHost", "GET /c%20?d HTTP/1.1\r\n"),
        ("GET http://localhost:8443?e", "localhost:8443", "GET /?e HTTP/1.1\r\n"),
        ("GET https://localhost", "localhost", "GET / HTTP/1.1\r\n"),
        ("OPTIONS *", "localhost", "OPTIONS * HTTP/1.1\r\n"),
    ] {
        let answer =
            answer(&litequic, format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{line}: {answer}");
        assert!(origin.seen().contains(path), "{line}: {}", origin.seen());
    }
    litequic.stop().await;
}

#[tokio::test]
async fn what_belongs_to_the_connection_stays_there_and_cookies_are_one() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let answer = answer(
        &litequic,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Hop, Upgrade, HTTP2-Settings, TE\r\nX-Hop: 1\r\n\
          Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nKeep-Alive: timeout=5\r\nTE: gzip, trailers\r\n\
          Proxy-Connection: keep-alive\r\nCookie: a=b\r\nX-Forwarded-For: 192.0.2.1\r\nCookie: c=d\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = origin.seen().to_ascii_lowercase();
    for gone in ["x-hop", "upgrade", "http2-settings", "keep-alive", "proxy-connection", "gzip", "192.0.2.1"] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
    for kept in ["\r\nte: trailers\r\n", "\r\ncookie: a=b; c=d\r\n", "\r\nx-forwarded-for: 127.0.0.1\r\n"] {
        assert!(seen.contains(kept), "{kept}: {seen}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_slow_head_gets_408_and_an_idle_connection_is_closed() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| {
        config.timeouts.request_header = Duration::from_millis(200);
        config.timeouts.idle = Duration::from_millis(600);
    })
    .await;
    let answer = answer(&litequic, b"GET / HTTP/1.1\r\nHost: lo").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(litequic.sum(|worker| worker.shared.timeout_request_header.get()), 1);
    let mut idle = Tls::http1(&litequic).await;
    assert_eq!(idle.rest().await, (String::new(), true));
    assert_eq!(litequic.sum(|worker| worker.tcp.timeout_idle.get()), 1);
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn http1_0_is_served_and_its_connection_closed() {
    let (_origin, litequic) =
        Always::behind_litequic("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", |_| {})
            .await;
    let mut client = Tls::http1(&litequic).await;
    client.say("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
    let (answer, orderly) = client.rest().await;
    assert!(answer.starts_with("HTTP/1.0 200 ") || answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello") && orderly, "{answer}");
    litequic.stop().await;
}

/// RFC 9112 §2.3: a gateway sends its own version. An origin's HTTP/1.0 costs a client that speaks HTTP/1.1 neither the
/// coding of a body of unknown length nor its connection.
#[tokio::test]
async fn an_origins_version_and_a_status_without_a_phrase_stay_behind_litequic() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    for (answer, line, body) in [
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "http/1.1 200 ok\r\n", "hello"),
        ("HTTP/1.0 200 OK\r\n\r\nhello", "http/1.1 200 ok\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("HTTP/1.0 999 Denied\r\nContent-Length: 5\r\n\r\nhello", "http/1.1 999 \r\n", "hello"),
        ("HTTP/1.1 299 Other Words\r\nContent-Length: 5\r\n\r\nhello", "http/1.1 299 \r\n", "hello"),
    ] {
        client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let mut peer = script.accept_request().await;
        peer.say(answer).await;
        drop(peer);
        let head = client.head().await;
        assert!(head.starts_with(line) && !head.contains("connection: close"), "{answer}: {head}");
        assert_eq!(String::from_utf8(client.exactly(body.len()).await).unwrap(), body, "{answer}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn plain_http_at_the_tls_port_gets_400_and_junk_nothing() {
    let litequic = Litequic::start(origin::closed_port(), |_| {}).await;
    for (said, expected) in [("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 "), ("\0\0\0\0", "")] {
        let mut plain = TcpStream::connect(litequic.tcp[0]).await.unwrap();
        plain.write_all(said.as_bytes()).await.unwrap();
        plain.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = within("the end", plain.read_to_string(&mut answer)).await;
        assert!(answer.starts_with(expected) && answer.is_empty() == expected.is_empty(), "{said:?}: {answer:?}");
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        }
    }
    litequic.wait_until("plain", |worker| worker.tcp.tcp_handshakes_plain.get(), |plain| plain == 2).await;
    litequic.stop().await;
}

#[tokio::test]
async fn failed_stalled_and_unsupported_handshakes_are_counted_and_closed() {
    let litequic =
        Litequic::start(origin::closed_port(), |config| config.timeouts.handshake = Duration::from_millis(200)).await;
    let mut silent = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    assert_eq!(within("the end", silent.read(&mut [0])).await.unwrap(), 0);
    litequic.wait_until("given up", |worker| worker.tcp.timeout_handshake.get(), |times| times == 1).await;

    let nothing = tls::config(&litequic.cert_pem, &["spdy/3"]);
    assert!(Tls::connect(litequic.tcp[0], "localhost", nothing).await.is_err());
    litequic.wait_until("tls", |worker| worker.tcp.tcp_handshakes_tls.get(), |failed| failed == 1).await;
    // Who offers nothing speaks HTTP/1.1.
    let mut plain = Tls::connect(litequic.tcp[0], "localhost", tls::config(&litequic.cert_pem, &[])).await.unwrap();
    plain.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(plain.rest().await.0.starts_with("HTTP/1.1 502 "));
    litequic.stop().await;
}
