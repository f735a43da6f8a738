//! Networks that the operator denies: over each protocol, in each state of a connection, and until when.

use super::*;
use crate::support::tunnel::{self, HttpVersion};
use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;

/// `POST /deny` of `network` for an hour, with `more`.
async fn deny(litequic: &Litequic, network: &str, more: &str) -> (u16, String) {
    ask(litequic.admin.unwrap(), &format!("POST /deny?network={network}&seconds=3600{more}")).await
}

/// Whether a connection over TCP is closed before TLS.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    matches!(within("the end", stream.read(&mut byte)).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn a_denied_client_loses_its_connections_until_it_is_allowed() {
    let litequic = Litequic::start(tunnel::echo_beside("a page").await, |config| {
        edit(config);
        config.routes[0].upgrade = vec!["websocket".into()];
    })
    .await;
    let client = Client::over(Quic::at(OTHER, &litequic).await.unwrap(), "localhost").await;
    let mut over_http1 = http1(OTHER, &litequic).await;
    over_http1
        .say(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    assert!(over_http1.head().await.starts_with("http/1.1 101"), "a tunnel");
    let mut over_http2 = http2(OTHER, &litequic).await;
    let mut handshake = dial(OTHER, litequic.tcp[0]).await;
    litequic.wait_until("TCP", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 3).await;
    litequic.wait_until("HTTP/2", |worker| worker.tcp.tcp_connections_h2.get(), |open| open == 1).await;
    litequic.wait_until("a tunnel", |worker| worker.shared.requests_open.get(), |open| open == 1).await;
    let other = Client::to(&litequic).await;

    let (status, refused) = deny(&litequic, &OTHER.to_string(), "").await;
    assert_eq!(status, 422, "{refused}");
    assert!(refused.contains("loopback") && refused.contains("--force"), "{refused}");
    let denied = ctl(&litequic, &["deny", "127.0.0.2", "--for", "1h", "--force"]).await.answer();
    assert!(denied.starts_with("127.0.0.2/32 is denied for 1h; closed 4 connections\n"), "{denied}");
    assert!(denied.contains("restart") && denied.contains("[[routes]]"), "{denied}");
    assert_eq!(within("the end of an idle one", client.quic.closed()).await, NO_ERROR);
    over_http1.rest().await;
    assert_eq!(over_http2.find(&[http2::GOAWAY]).await.unwrap().code(), 0);
    while over_http2.next().await.is_some() {}
    assert!(is_closed(&mut handshake).await);

    let refused = Quic::at(OTHER, &litequic).await.map(drop).unwrap_err();
    let quinn::ConnectionError::ConnectionClosed(close) = &refused else { panic!("{refused}") };
    assert_eq!(close.error_code, quinn::TransportErrorCode::CONNECTION_REFUSED);
    assert!(is_closed(&mut dial(OTHER, litequic.tcp[0]).await).await);
    assert!(litequic.sum(|worker| worker.quic.denied.get()) >= 1);
    assert!(litequic.sum(|worker| worker.quic.handshakes_refused.get()) >= 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_denied.get()), 1);
    assert_eq!(other.get("/").await.text(), "a page", "another client is served");
    let listed = ctl(&litequic, &["denied"]).await.success();
    assert!(listed.starts_with("127.0.0.2/32  ") && listed.ends_with("1 of 1,024 networks are denied\n"), "{listed}");
    let json: Json = serde_json::from_str(&ctl(&litequic, &["denied", "--json"]).await.success()).unwrap();
    assert!((3_500..=3_600).contains(&json["denied"][0]["seconds"].as_u64().unwrap()), "{json}");
    let (_, status) = ask(litequic.admin.unwrap(), "GET /status").await;
    assert_eq!(serde_json::from_str::<Json>(&status).unwrap()["denied_networks"], 1);

    let allowed = ctl(&litequic, &["allow", "127.0.0.2"]).await.answer();
    assert_eq!(allowed, "127.0.0.2/32 is allowed again\n");
    assert_eq!(ctl(&litequic, &["allow", "127.0.0.2"]).await.code, Some(1));
    assert_eq!(ctl(&litequic, &["denied"]).await.success(), "no network is denied\n");
    Quic::at(OTHER, &litequic).await.unwrap();
    http1(OTHER, &litequic).await;
    litequic.stop().await;
}

/// A WebSocket that is open ends with its connection, by an order to deny its client, and by one to close at once; an
/// order that lets requests finish lets it go on.
#[tokio::test]
async fn a_websocket_of_a_denied_or_closed_client_ends() {
    let litequic = Litequic::start(tunnel::echo().await, edit).await;
    for over in HttpVersion::ALL {
        for at_once in ["POST /deny?network=127.0.0.1&seconds=60&force=on", "POST /close?client=127.0.0.1&now=on"] {
            let (mut socket, _kept) = tunnel::websocket(&litequic, over, "/chat").await;
            assert_eq!(close(&litequic, "client=127.0.0.1").await.0, 200);
            within("a message", socket.send(Message::text("hello"))).await.unwrap();
            let echo = within("its echo", socket.next()).await.unwrap().unwrap();
            assert_eq!(echo, Message::text("hello"), "{over:?}");
            let (status, done) = ask(litequic.admin.unwrap(), at_once).await;
            assert!(status == 200 && done.contains("closed 1 connection"), "{over:?}: {done}");
            while let Some(Ok(message)) = within("the end", socket.next()).await {
                assert!(message.is_close(), "{over:?}: {message}");
            }
            litequic.wait_until("the tunnel's end", |worker| worker.proxy.tunnels_open.get(), |open| open == 0).await;
            ask(litequic.admin.unwrap(), "POST /allow?network=127.0.0.1").await;
        }
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.tunnels.get()), 6);
    litequic.stop().await;
}

/// Over each HTTP version, and no request beside them ends.
#[tokio::test]
async fn uploads_of_a_denied_client_end_and_those_of_others_go_on() {
    let litequic = start().await;
    let mut uploads = Vec::new();
    for local in [OTHER, Ipv4Addr::LOCALHOST] {
        let client = Client::over(Quic::at(local, &litequic).await.unwrap(), "localhost").await;
        let mut upload = client.open(client.request(Method::POST, "/echo")).await;
        upload.send_data("half of it".into()).await.unwrap();
        uploads.push((client, upload));
    }
    let mut over_http1 = http1(OTHER, &litequic).await;
    over_http1.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nhalf of it").await;
    let mut over_http2 = http2(OTHER, &litequic).await;
    let fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/echo")];
    over_http2.say(http2::HEADERS, http2::END_HEADERS, 1, &http2::fields(&fields)).await;
    litequic.wait_until("uploads", |worker| worker.shared.requests_open.get(), |open| open == 4).await;
    assert_eq!(deny(&litequic, "127.0.0.2", "&force=on").await.0, 200);
    let (client, _upload) = &uploads[0];
    assert_eq!(within("the end of an upload", client.quic.closed()).await, NO_ERROR);
    over_http1.rest().await;
    while over_http2.next().await.is_some() {}
    let (_other, upload) = &mut uploads[1];
    upload.send_data("the rest".into()).await.unwrap();
    upload.finish().await.unwrap();
    assert_eq!(client::answer(upload).await.text(), "half of itthe rest");
    litequic.stop().await;
}

/// Its handshake had begun before.
#[tokio::test]
async fn a_client_denied_during_its_quic_handshake_is_closed_after_it() {
    let litequic = start().await;
    let client = Quic::with_late_last_flight(&litequic).await;
    litequic.wait_until("a handshake", |worker| worker.quic.handshakes_open.get(), |open| open == 1).await;
    assert_eq!(deny(&litequic, "127.0.0.1", "&force=on").await.0, 200);
    client.reappear();
    assert_eq!(within("the end", client.closed()).await, NO_ERROR);
    assert_eq!(litequic.sum(|worker| worker.http3.denied.get()), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_a_proxy_names_is_denied_by_that_name() {
    let litequic = Litequic::demo(|config| {
        edit(config);
        config.listen.proxy_protocol_from = vec![Network { address: OTHER.into(), prefix: 32 }];
        config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 32 }];
    })
    .await;
    for (network, status) in [("192.0.2.0/24", 200), ("2001:db8::/32", 200), ("127.0.0.2", 422), ("127.0.0.1", 422)] {
        assert_eq!(deny(&litequic, network, "").await.0, status, "{network}");
    }
    for (header, denied) in [
        ("PROXY TCP6 2001:db8::7 2001:db8::1 5555 443\r\n", true),
        ("PROXY TCP4 192.0.2.7 192.0.2.1 5555 443\r\n", true),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.1 5555 443\r\n", true),
        ("PROXY TCP4 198.51.100.7 192.0.2.1 5555 443\r\n", false),
    ] {
        let mut stream = dial(OTHER, litequic.tcp[0]).await;
        stream.write_all(header.as_bytes()).await.unwrap();
        if denied {
            assert!(is_closed(&mut stream).await, "{header}");
        } else {
            Tls::over(stream, "localhost", tls::config(&litequic.cert_pem, &["http/1.1"])).await.unwrap();
        }
    }
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_denied.get()), 3);

    // Over each HTTP version, behind a trusted proxy.
    let client = Client::to(&litequic).await;
    let mut over_http1 = http1(Ipv4Addr::LOCALHOST, &litequic).await;
    for (forwarded, status) in
        [("192.0.2.7", 403), ("2001:db8::7", 403), ("198.51.100.7, 192.0.2.7", 403), ("198.51.100.7", 204)]
    {
        let mut over_http2 = http2(Ipv4Addr::LOCALHOST, &litequic).await;
        let request = client.request(Method::GET, "/status/204").header("x-forwarded-for", forwarded);
        assert_eq!(client.fetch(request, "").await.status, status, "{forwarded}");
        over_http1
            .say(format!("GET /status/204 HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {forwarded}\r\n\r\n"))
            .await;
        let head = over_http1.head().await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        if let Some(length) = head.split("content-length: ").nth(1) {
            over_http1.exactly(length.split_once('\r').unwrap().0.parse().unwrap()).await;
        }
        let fields = http2::fields(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/status/204"),
            ("x-forwarded-for", forwarded),
        ]);
        over_http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &fields).await;
        assert_eq!(http2::status(&over_http2.find(&[http2::HEADERS]).await.unwrap()), status, "{forwarded}");
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.denied.get()), 9);
    litequic.stop().await;
}

#[tokio::test]
async fn the_list_takes_1024_networks() {
    let litequic = start().await;
    for nth in 0..1_024_u32 {
        let network = Ipv4Addr::from_bits(0x0a00_0000 + nth);
        let (status, text) = deny(&litequic, &network.to_string(), "").await;
        assert_eq!(status, 200, "{text}");
    }
    let (status, full) = deny(&litequic, "10.9.9.9", "").await;
    assert!(status == 422 && full.starts_with("1024 networks are denied already"), "{full}");
    assert_eq!(deny(&litequic, "10.0.0.1", "").await.0, 200, "it is on the list");
    assert_eq!(ask(litequic.admin.unwrap(), "POST /allow?network=10.0.0.0/8").await.0, 200);
    assert_eq!(deny(&litequic, "10.9.9.9", "").await.0, 200);
    litequic.stop().await;
}
