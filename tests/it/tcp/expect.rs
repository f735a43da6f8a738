//! `Expect: 100-continue` (RFC 9110 §10.1.1) by HTTP/1.1: the origin's 100, or after a second litequic's own, and none
//! for an upload that is not wanted.

use crate::support::prelude::*;

const BODIES: [(&str, &str); 2] =
    [("Content-Length: 5", "hello"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")];

/// With and without `request_buffer`.
const BUFFERS: [fn(&mut Config); 2] = [|_| {}, crate::support::proxy::unbuffered];

/// A PUT whose client waits for 100, in this HTTP version and with this framing.
async fn put(client: &mut Tls, version: &str, framing: &str) {
    client.say(format!("PUT / HTTP/{version}\r\nHost: localhost\r\nExpect: 100-continue\r\n{framing}\r\n\r\n")).await;
}

async fn asked_at(script: &Script) -> Peer {
    let mut peer = script.accept().await;
    assert_eq!(peer.head().await.field("expect"), Some("100-continue"));
    peer
}

#[tokio::test]
async fn a_request_that_is_rejected_by_its_header_is_not_uploaded() {
    for edit in BUFFERS {
        let (script, litequic) = Script::behind_litequic(edit).await;
        for (framing, _) in BODIES {
            for status in ["403 Forbidden", "417 Expectation Failed", "307 Temporary Redirect\r\nLocation: /other"] {
                let mut client = Tls::http1(&litequic).await;
                put(&mut client, "1.1", framing).await;
                let mut peer = asked_at(&script).await;
                peer.say(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno")).await;
                let head = client.head().await;
                assert!(head.starts_with(&format!("http/1.1 {} ", &status[..3])), "{framing}: {head}");
                assert!(head.contains("\r\nconnection: close\r\n"), "the body may come or not: {head}");
                assert_eq!(client.rest().await, ("no".to_owned(), true), "{framing}");
                assert_eq!(peer.rest().await, "", "{framing}: nothing of the body");
            }
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_request_that_litequic_rejects_is_not_uploaded() {
    let (origin, litequic) =
        Always::behind_litequic(Always::EMPTY_200, |config| config.routes[0].max_body_bytes = Some(4)).await;
    let mut client = Tls::http1(&litequic).await;
    put(&mut client, "1.1", BODIES[0].0).await;
    let (got, orderly) = client.rest().await;
    let got = got.to_ascii_lowercase();
    assert!(got.starts_with("http/1.1 413 ") && got.contains("\r\nconnection: close\r\n") && orderly, "{got}");
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn an_origins_100_reaches_the_client_once_and_its_body_the_origin() {
    for edit in BUFFERS {
        let (script, litequic) = Script::behind_litequic(edit).await;
        for (framing, body) in BODIES {
            let mut client = Tls::http1(&litequic).await;
            put(&mut client, "1.1", framing).await;
            let mut peer = asked_at(&script).await;
            peer.say("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(20)).await;
            peer.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").await;
            assert_eq!(client.head().await, "http/1.1 100 continue\r\n\r\n", "{framing}");
            client.say(body).await;
            assert_eq!(peer.exactly(body.len()).await, body.as_bytes(), "{framing}");
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            let head = client.head().await;
            assert!(head.starts_with("http/1.1 200 ") && !head.contains("connection: close"), "{framing}: {head}");
            // The connection serves another request.
            client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            peer.head().await;
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            assert!(client.head().await.starts_with("http/1.1 204 "), "{framing}");
            drop(peer);
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn litequic_sends_100_for_a_silent_origin_once_despite_a_retry() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut stale = script.accept_request().await;
    stale.say("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.head().await;
    put(&mut client, "1.1", BODIES[0].0).await;
    stale.head().await;
    assert_eq!(client.head().await, "http/1.1 100 continue\r\n\r\n");
    drop(stale);
    let mut peer = asked_at(&script).await;
    peer.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.say("hello").await;
    assert_eq!(peer.exactly(5).await, b"hello");
    peer.say(Always::EMPTY_200).await;
    assert!(client.head().await.starts_with("http/1.1 200 "));
    litequic.stop().await;
}

/// The demo's `/echo` answers before it has read anything. A client may send its body after a final response.
#[tokio::test]
async fn a_body_that_comes_behind_an_early_response_reaches_the_origin() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    client.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("\r\nconnection: close\r\n"), "{head}");
    client.say("hello").await;
    client.until("hello").await;
    litequic.stop().await;
}

/// The body may come with the head.
#[tokio::test]
async fn a_client_that_does_not_wait_is_not_waited_for() {
    let (script, litequic) =
        Script::behind_litequic(|config| config.timeouts.response_header = Duration::from_secs(30)).await;
    for (framing, body) in BODIES {
        let mut client = Tls::http1(&litequic).await;
        let head = format!("PUT / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n{framing}\r\n\r\n");
        client.say(format!("{head}{body}")).await;
        let mut peer = asked_at(&script).await;
        assert_eq!(peer.exactly(body.len()).await, body.as_bytes());
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        let mut head = client.head().await;
        if head.starts_with("http/1.1 100 ") {
            head = client.head().await;
        }
        assert!(head.starts_with("http/1.1 200 "), "{head}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_of_http1_0_expects_nothing() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    put(&mut client, "1.0", "Content-Length: 5").await;
    client.say("hello").await;
    let mut peer = script.accept().await;
    assert_eq!(peer.head().await.field("expect"), None);
    assert_eq!(peer.exactly(5).await, b"hello");
    peer.say(Always::EMPTY_200).await;
    let (got, _) = client.rest().await;
    assert!(got.starts_with("HTTP/1.0 200 "), "no 100: {got}");
    litequic.stop().await;
}

#[tokio::test]
async fn the_time_until_100_is_the_origins() {
    for over_quic in [false, true] {
        let (script, litequic) =
            Script::behind_litequic(|config| config.timeouts.response_header = Duration::from_millis(100)).await;
        if over_quic {
            let client = Raw::to(&litequic).await;
            let fields = [("expect", "100-continue"), ("content-length", "5")];
            let mut exchange = client.open(&raw::with("PUT", &fields)).await;
            let _peer = asked_at(&script).await;
            assert_eq!(exchange.header().await.status(), 504);
        } else {
            let mut client = Tls::http1(&litequic).await;
            put(&mut client, "1.1", BODIES[0].0).await;
            let _peer = asked_at(&script).await;
            assert!(client.head().await.starts_with("http/1.1 504 "));
        }
        assert_eq!(litequic.sum(|worker| worker.proxy.timeout_response_header.get()), 1);
        litequic.stop().await;
    }
}
