//! Routes by method, field, parameter and exact path.

use super::started;
use crate::support::{
    http2::{END_HEADERS, END_STREAM, HEADERS},
    prelude::*,
};

const MATCHING: &str = r#"
[[routes]]
respond = { status = 410 }

[[routes]]
path = "/robots.txt"
respond = { status = 201 }

[[routes]]
match.methods = ["POST"]
respond = { status = 202 }

[[routes]]
match.headers = { x-canary = "*" }
respond = { status = 203 }

[[routes]]
match.headers = { x-canary = "v2*" }
respond = { status = 404 }

[[routes]]
match.query = { preview = "1" }
respond = { status = 206 }
"#;

/// Method, path, a value of `x-canary`, the status of the route.
const TABLE: [(&str, &str, Option<&str>, u16); 9] = [
    ("GET", "/", None, 410),
    ("GET", "/robots.txt", None, 201),
    ("GET", "/robots.txt?preview=1", Some("1"), 201),
    ("GET", "/robots.txt/", None, 410),
    ("POST", "/a", Some("v2"), 202),
    ("GET", "/a", Some("1"), 203),
    ("GET", "/a", Some("v2.1"), 404),
    ("GET", "/a?b=c&preview=1", None, 206),
    ("GET", "/%72obots.txt", None, 400),
];

#[tokio::test]
async fn a_route_is_chosen_by_what_a_request_is_over_every_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, MATCHING).await;
    let client = Client::to(&litequic).await;
    let mut http1 = Tls::http1(&litequic).await;
    for (method, path, canary, status) in TABLE {
        let mut request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
        if let Some(value) = canary {
            request = request.header("x-canary", value);
        }
        assert_eq!(client.fetch(request, "").await.status, status, "HTTP/3 {method} {path} {canary:?}");

        let field = canary.map(|value| format!("X-Canary: {value}\r\n")).unwrap_or_default();
        http1.say(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{field}\r\n")).await;
        let head = http1.head().await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{method} {path} {canary:?}: {head}");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        http1.exactly(length.map_or(0, |length| length.parse().unwrap())).await;

        let head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
        let fields = http2::fields(
            &[&head[..], &canary.map(|value| ("x-canary", value)).into_iter().collect::<Vec<_>>()].concat(),
        );
        // A connection each: the encoder has no status of another response in its table.
        let mut http2 = Http2::connect(&litequic, &[]).await;
        http2.say(HEADERS, END_HEADERS | END_STREAM, 1, &fields).await;
        let found = http2::status(&http2.find(&[HEADERS]).await.unwrap());
        assert_eq!(found, status, "HTTP/2 {method} {path} {canary:?}");
    }
    assert!(origin.seen().is_empty());
    litequic.stop().await;
}

/// A WebSocket is a GET, whatever its client speaks; and a fixed answer is no tunnel.
#[tokio::test]
async fn a_fixed_answer_is_never_taken_for_a_tunnel() {
    let origin = Always::new(Always::EMPTY_200).await;
    let text = r#"
        [[routes]]
        match.methods = ["GET"]
        respond = { body = "no tunnel" }
    "#;
    let litequic: Litequic = started(origin.address, text).await;
    let mut http2 = Http2::connect(&litequic, &[]).await;
    let fields = http2::fields(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
        ("sec-websocket-version", "13"),
    ]);
    // The server's SETTINGS, which say that it takes such requests, come first.
    http2.find(&[http2::SETTINGS]).await.unwrap();
    http2.say(HEADERS, END_HEADERS, 1, &fields).await;
    assert_eq!(http2::status(&http2.find(&[HEADERS]).await.unwrap()), 501);

    let mut tls = Tls::http1(&litequic).await;
    tls.say(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    )
    .await;
    assert!(tls.head().await.starts_with("http/1.1 200 "));
    tls.until("no tunnel").await;
    litequic.stop().await;
}
