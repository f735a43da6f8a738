//! Bodies both ways, breaks, timeouts: by HTTP/1.1 and HTTP/2.

use crate::support::{
    http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields, get, status},
    prelude::*,
};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;

/// A client of hyper's, by HTTP/1.1 or HTTP/2.
enum Client<B> {
    One(hyper::client::conn::http1::SendRequest<B>),
    Two(hyper::client::conn::http2::SendRequest<B>),
}

impl<B> Client<B>
where
    B: http_body::Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static,
{
    async fn connect(litequic: &Litequic, protocol: &str) -> Self {
        let config = tls::config(&litequic.cert_pem, &[protocol]);
        let tls = Tls::connect(litequic.tcp[0], "localhost", config).await.unwrap();
        let io = TokioIo::new(tls.stream);
        if protocol == "h2" {
            let (send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            return Self::Two(send);
        }
        let (send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self::One(send)
    }

    async fn send(&mut self, request: http::Request<B>) -> hyper::Result<http::Response<hyper::body::Incoming>> {
        let (mut parts, body) = request.into_parts();
        match self {
            Self::One(send) => {
                let host = parts.uri.authority().unwrap().to_string();
                parts.headers.insert("host", host.parse().unwrap());
                parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
                within("a response", send.send_request(http::Request::from_parts(parts, body))).await
            }
            Self::Two(send) => within("a response", send.send_request(http::Request::from_parts(parts, body))).await,
        }
    }
}

type Whole = http_body_util::combinators::MapErr<Full<Bytes>, fn(std::convert::Infallible) -> io::Error>;

fn whole(bytes: impl Into<Bytes>) -> Whole {
    Full::new(bytes.into()).map_err(|never| match never {})
}

const BOTH: [&str; 2] = ["http/1.1", "h2"];

#[tokio::test]
async fn bodies_pass_both_ways_whole_and_an_origins_connection_is_used_again() {
    let litequic = Litequic::demo(|_| {}).await;
    for protocol in BOTH {
        let mut client = Client::connect(&litequic, protocol).await;
        let body: Bytes = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        for body in [Bytes::new(), Bytes::from("hello"), body] {
            let request = http::Request::post("https://localhost/echo").body(whole(body.clone())).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status(), 200, "{protocol}");
            let echoed = within("the echo", response.into_body().collect()).await.unwrap().to_bytes();
            assert!(echoed == body, "{protocol}: {} of {}", echoed.len(), body.len());
        }
        let request = http::Request::get("https://localhost/bytes/100000").body(whole("")).unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(response.headers()["content-length"], "100000");
        assert_eq!(within("it", response.into_body().collect()).await.unwrap().to_bytes().len(), 100_000);
    }
    litequic.wait_until_idle().await;
    assert_eq!(litequic.sum(|worker| worker.proxy.origin_connections.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_client.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn responses_without_body_do_not_consume_the_next_response() {
    let litequic = Litequic::demo(|_| {}).await;
    for protocol in BOTH {
        let mut client = Client::connect(&litequic, protocol).await;
        for (method, path, status, length) in [
            ("HEAD", "/bytes/1000", 200, Some("1000")),
            ("GET", "/status/204", 204, None),
            ("GET", "/status/304", 304, None),
            ("GET", "/bytes/10", 200, Some("10")),
        ] {
            let request = http::Request::builder().method(method).uri(format!("https://localhost{path}"));
            let response = client.send(request.body(whole("")).unwrap()).await.unwrap();
            assert_eq!(response.status(), status, "{protocol} {path}");
            if status != 304 {
                assert_eq!(
                    response.headers().get("content-length").map(|value| value.to_str().unwrap()),
                    length,
                    "{protocol} {path}"
                );
            }
            let body = within("its end", response.into_body().collect()).await.unwrap().to_bytes();
            assert_eq!(body.len(), if (method, status) == ("GET", 200) { 10 } else { 0 }, "{protocol} {path}");
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn the_length_that_a_304_names_passes_but_over_http1() {
    let answer = "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n";
    let (_origin, litequic) = Always::behind_litequic(answer, |_| {}).await;
    // hyper's server removes it, as RFC 9110 §15.4.5 lets it.
    for (protocol, length) in BOTH.into_iter().zip([None, Some("5")]) {
        let mut client = Client::connect(&litequic, protocol).await;
        let request = http::Request::get("https://localhost/").body(whole("")).unwrap();
        let response = client.send(request).await.unwrap();
        let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!((response.status().as_u16(), field("etag")), (304, Some("\"a\"")), "{protocol}");
        assert_eq!(field("content-length"), length, "{protocol}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let litequic = Litequic::demo(|_| {}).await;
    for protocol in BOTH {
        let mut client: Client<Whole> = Client::connect(&litequic, protocol).await;
        let request =
            http::Request::get("https://localhost/trailers").header("te", "trailers").header("connection", "TE");
        let mut request = request.body(whole("")).unwrap();
        if protocol == "h2" {
            request.headers_mut().remove("connection");
        }
        let response = client.send(request).await.unwrap();
        let body = within("it", response.into_body().collect()).await.unwrap();
        assert!(body.trailers().is_some_and(|trailers| !trailers.is_empty()), "{protocol}");
    }
    litequic.stop().await;
}

/// Over HTTP/1.1 there is neither a last chunk nor close_notify, over HTTP/2 a reset.
#[tokio::test]
async fn a_response_that_breaks_off_never_looks_whole() {
    for (answer, name) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "sized"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "chunked"),
    ] {
        let (script, litequic) = Script::behind_litequic(|_| {}).await;
        for version in ["1.1", "1.0"] {
            let mut client = Tls::http1(&litequic).await;
            client.say(format!("GET / HTTP/{version}\r\nHost: localhost\r\n\r\n")).await;
            let mut peer = script.accept_request().await;
            peer.say(answer).await;
            drop(peer);
            let (got, orderly) = client.rest().await;
            let body = got.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            assert!(!body.ends_with("0\r\n\r\n") && !orderly, "{name} {version}: {got} {orderly}");
        }
        let mut client = Http2::connect(&litequic, &[]).await;
        client.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
        let mut peer = script.accept_request().await;
        peer.say(answer).await;
        drop(peer);
        let end = loop {
            let frame = client.find(&[DATA, RST_STREAM, GOAWAY]).await.unwrap();
            assert!(frame.kind != DATA || frame.flags & END_STREAM == 0, "{name}");
            if frame.kind != DATA {
                break frame;
            }
        };
        assert_eq!((end.kind, end.code()), (RST_STREAM, 2), "{name}: INTERNAL_ERROR");
        litequic
            .wait_until("broken off", |worker| worker.shared.streams_reset_by_proxy.get(), |reset| reset == 3)
            .await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_request_at_the_origin() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    for protocol in BOTH {
        let config = tls::config(&litequic.cert_pem, &[protocol]);
        let mut client = Tls::connect(litequic.tcp[0], "localhost", config).await.unwrap();
        if protocol == "h2" {
            let headers = http2::frame(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[]));
            let settings = http2::frame(SETTINGS, 0, 0, &[]);
            client.say([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &headers].concat()).await;
        } else {
            client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        }
        let mut peer = script.accept_request().await;
        drop(client);
        assert_eq!(peer.rest().await, "", "{protocol}");
    }
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_stalled_upload_gets_408_and_a_large_one_413() {
    let (origin, litequic) = Always::behind_litequic("", |config| {
        config.timeouts.request_body = Duration::from_millis(200);
        config.limits.max_body_bytes = Some(10);
    })
    .await;
    for protocol in BOTH {
        let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Frame<Bytes>>>(1);
        let body = StreamBody::new(Box::pin(futures_util::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|frame| (frame, receiver))
        })));
        let mut client = Client::connect(&litequic, protocol).await;
        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
        let stalled = client.send(http::Request::post("https://localhost/").body(body).unwrap()).await.unwrap();
        assert_eq!(stalled.status(), 408, "{protocol}");
        drop(sender);
        let mut client = Client::connect(&litequic, protocol).await;
        let large =
            client.send(http::Request::post("https://localhost/").body(whole("hello hello")).unwrap()).await.unwrap();
        assert_eq!(large.status(), 413, "{protocol}");
    }
    assert!(!origin.seen().contains("\r\n0\r\n\r\n"), "{}", origin.seen());
    litequic.stop_when_idle().await;
}

/// The kernel would take the answer back with its reset if the rest were not read.
#[tokio::test]
async fn a_client_rejected_during_a_large_upload_reads_the_response() {
    let litequic = Litequic::demo(|config| config.limits.max_body_bytes = Some(10)).await;
    for request in [
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: elsewhere.test\r\nContent-Length: 20000000\r\n\r\n",
    ] {
        let mut client = Tls::http1(&litequic).await;
        client.say(request).await;
        let megabyte = vec![b'a'; 1 << 20];
        for _ in 0..19 {
            client.say(&megabyte).await;
        }
        let head = client.head().await;
        let expected = if request.contains("elsewhere") { "http/1.1 421 " } else { "http/1.1 413 " };
        assert!(head.starts_with(expected), "{head}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_reset_and_holds_back_its_origin() {
    let litequic = Litequic::demo(|config| config.timeouts.send = Duration::from_millis(300)).await;
    // HTTP/1.1: TCP's buffers are full. HTTP/2: the stream's window is, while the connection goes on.
    let mut one = Tls::http1(&litequic).await;
    one.say("GET /bytes/1G HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    litequic.wait_until("given up", |worker| worker.shared.timeout_send.get(), |times| times == 1).await;
    let mut two = Http2::connect(&litequic, &[0, 4, 0, 0, 0, 10]).await;
    let get = fields(&http2::pseudo("GET", "/bytes/1G"));
    two.say(HEADERS, END_HEADERS | END_STREAM, 1, &get).await;
    litequic.wait_until("given up", |worker| worker.shared.timeout_send.get(), |times| times == 2).await;
    assert!(litequic.sum(|worker| worker.shared.response_body_bytes.get()) < 64 << 20);
    let reset = two.find(&[RST_STREAM]).await.unwrap();
    assert_eq!((reset.stream, reset.code()), (1, 8), "CANCEL");
    let head = fields(&http2::pseudo("GET", "/status/204"));
    two.say(HEADERS, END_HEADERS | END_STREAM, 3, &head).await;
    assert_eq!(status(&two.find(&[HEADERS]).await.unwrap()), 204);
    drop(one);
    litequic.stop_when_idle().await;
}
