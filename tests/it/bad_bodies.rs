//! Responses whose body goes bad right after their header, and those whose body comes late: what clients get over
//! HTTP/1.1, HTTP/2 and HTTP/3.

use crate::support::{
    http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM},
    prelude::*,
    raw::Exchange,
};
use litequic_http3::ErrorCode;
use quinn::ReadError;

/// A client that has sent `GET /` over one of the protocols.
enum Asked {
    Http1(Tls),
    Http2(Http2),
    Http3(Exchange, #[expect(dead_code, reason = "its connection ends with it")] Raw),
}

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
    Http3,
}

const ALL: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];

impl Asked {
    async fn over(protocol: Protocol, litequic: &Litequic) -> Self {
        match protocol {
            Protocol::Http1 => {
                let mut client = Tls::http1(litequic).await;
                client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
                Self::Http1(client)
            }
            Protocol::Http2 => {
                let mut client = Http2::connect(litequic, &[]).await;
                client.say(HEADERS, END_HEADERS | END_STREAM, 1, &http2::get(&[])).await;
                Self::Http2(client)
            }
            Protocol::Http3 => {
                let client = Raw::to(litequic).await;
                let mut exchange = client.open(&raw::get()).await;
                exchange.finish();
                Self::Http3(exchange, client)
            }
        }
    }

    /// The status of the response, whose body may come later, and what came of the body with it.
    async fn status(&mut self) -> (u16, Vec<u8>) {
        match self {
            Self::Http1(client) => {
                let head = client.head().await;
                (head.split(' ').nth(1).unwrap().parse().unwrap(), Vec::new())
            }
            Self::Http2(client) => (http2::status(&client.find(&[HEADERS]).await.unwrap()), Vec::new()),
            Self::Http3(exchange, _) => {
                let (fields, rest) = exchange.header_and_rest().await;
                (fields.status(), rest)
            }
        }
    }

    /// Reads on until `text` has come; `seen` is what came before.
    async fn until(&mut self, text: &str, mut seen: Vec<u8>) {
        let has = |seen: &[u8]| seen.windows(text.len()).any(|window| window == text.as_bytes());
        while !has(&seen) {
            match self {
                Self::Http1(client) => seen.extend(client.exactly(1).await),
                Self::Http2(client) => seen.extend(client.find(&[DATA]).await.unwrap().payload),
                Self::Http3(exchange, _) => {
                    let chunk = exchange.receive.read_chunk(usize::MAX, true).await.unwrap();
                    seen.extend_from_slice(&chunk.unwrap().bytes);
                }
            }
        }
    }
}

impl Asked {
    /// What comes of the body until the response breaks off.
    async fn until_it_breaks_off(&mut self, mut seen: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Http1(client) => {
                let (rest, orderly) = client.rest().await;
                assert!(!orderly, "it looks complete");
                rest.into_bytes()
            }
            Self::Http2(client) => loop {
                let frame = client.find(&[DATA, RST_STREAM, GOAWAY]).await.unwrap();
                if frame.kind != DATA {
                    assert_eq!((frame.kind, frame.code()), (RST_STREAM, 2), "INTERNAL_ERROR");
                    return seen;
                }
                assert_eq!(frame.flags & END_STREAM, 0, "it looks complete");
                seen.extend(frame.payload);
            },
            Self::Http3(exchange, _) => loop {
                match exchange.receive.read_chunk(usize::MAX, true).await {
                    Ok(chunk) => seen.extend_from_slice(&chunk.expect("it looks complete").bytes),
                    Err(ReadError::Reset(code)) => {
                        assert_eq!(code.into_inner(), ErrorCode::InternalError.wire_value());
                        return seen;
                    }
                    Err(other) => panic!("ended otherwise: {other:?}"),
                }
            },
        }
    }
}

#[tokio::test]
async fn chunks_that_are_invalid_with_the_header_are_a_502() {
    for body in ["5\nhello\n0\n\n", "<html>PHP Fatal error</html>\r\n"] {
        let (_origin, litequic) =
            Always::behind_litequic(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"), |_| {})
                .await;
        for protocol in ALL {
            let mut client = Asked::over(protocol, &litequic).await;
            assert_eq!(client.status().await.0, 502, "{protocol:?}: {body}");
        }
        assert_eq!(litequic.sum(|worker| worker.proxy.origin_errors.get()), 3);
        assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()), 0);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn what_came_before_a_failure_reaches_the_client() {
    let large = format!("Content-Length: 100000\r\n\r\n{}", "x".repeat(60_000));
    for (answer, body) in [
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "hello"),
        ("Content-Length: 10\r\n\r\nhello", "hello"),
        (&large, &large[large.len() - 60_000..]),
    ] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        for protocol in ALL {
            let mut client = Asked::over(protocol, &litequic).await;
            let mut peer = script.accept_request().await;
            peer.say(format!("HTTP/1.1 200 OK\r\n{answer}")).await;
            drop(peer);
            let (status, seen) = client.status().await;
            assert_eq!(status, 200, "{protocol:?}");
            let seen = client.until_it_breaks_off(seen).await;
            let bodies = seen.windows(body.len()).filter(|window| *window == body.as_bytes()).count();
            assert_eq!(bodies, 1, "{protocol:?}: {} bytes", seen.len());
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_header_without_a_body_yet_and_each_event_leave_at_once() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    for protocol in ALL {
        let mut client = Asked::over(protocol, &litequic).await;
        let mut peer = script.accept_request().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await;
        let (status, mut seen) = client.status().await;
        assert_eq!(status, 200, "{protocol:?}");
        for event in ["data: one\n\n", "data: two\n\n"] {
            // The origin sends the next one once the client has this one.
            peer.say(event).await;
            client.until(event, std::mem::take(&mut seen)).await;
        }
    }
    litequic.stop().await;
}
