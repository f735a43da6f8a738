//! `Date`: every final response has one (RFC 9110 §6.6.1), the origin's where it sent one.

use super::started;
use crate::support::prelude::*;
use http::{HeaderMap, Request};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::SystemTime;

const RULES: &str = r#"
[[routes]]
path_prefix = "/small"
origin = "origin"
max_body_bytes = 3
[[routes]]
path_prefix = "/moved"
redirect = "301 /away"
[[routes]]
path_prefix = "/kept"
redirect = "308 /away"
[[routes]]
path_prefix = "/limited"
origin = "origin"
rate_limit = "1/h burst=1"
[[routes]]
path_prefix = "/bare"
origin = "origin"
response_headers.remove = ["date"]
"#;

/// That of now, by the clock of this machine.
fn is_now(date: &str) -> bool {
    let Ok(date) = httpdate::parse_http_date(date) else { return false };
    let now = SystemTime::now();
    let apart = now.duration_since(date).or_else(|_| date.duration_since(now)).unwrap();
    apart < Duration::from_secs(60)
}

fn one(fields: &HeaderMap) -> Option<String> {
    let all: Vec<_> = fields.get_all("date").iter().map(|date| date.to_str().unwrap().to_owned()).collect();
    assert!(all.len() <= 1, "{all:?}");
    all.into_iter().next()
}

/// Status and `Date` of the answer to such a request, by HTTP/1.1, HTTP/2 and HTTP/3.
async fn asked(
    litequic: &Litequic,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    body: &'static str,
) -> [(u16, Option<String>); 3] {
    let request = |uri: String| {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
    };
    let connect = async |protocol: &str| {
        let config = tls::config(&litequic.cert_pem, &[protocol]);
        TokioIo::new(Tls::connect(litequic.tcp[0], "localhost", config).await.unwrap().stream)
    };
    let (mut send, connection) = hyper::client::conn::http1::handshake(connect("http/1.1").await).await.unwrap();
    tokio::spawn(connection);
    let mut asks = request(path.to_owned());
    asks.headers_mut().insert("host", "localhost".parse().unwrap());
    let h1 = within("a response", send.send_request(asks)).await.unwrap();
    let io = connect("h2").await;
    let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let h2 = within("a response", send.send_request(request(format!("https://localhost{path}")))).await.unwrap();
    let client = Client::to(litequic).await;
    let mut asks = client.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
    for (name, value) in more {
        asks = asks.header(*name, *value);
    }
    let h3 = client.fetch(asks, body).await;
    [
        (h1.status().as_u16(), one(h1.headers())),
        (h2.status().as_u16(), one(h2.headers())),
        (h3.status.as_u16(), one(&h3.fields)),
    ]
}

#[tokio::test]
async fn every_answer_of_litequic_has_a_date_by_each_protocol() {
    let without = Always::new("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let litequic = started(without.address, RULES).await;
    let before = asked(&litequic, "GET", "/limited", &[], "").await;
    assert!(before.iter().any(|(status, _)| *status == 429), "{before:?}");
    for (method, path, more, body, status) in [
        ("GET", "/", &[][..], "", 200),
        ("HEAD", "/", &[], "", 200),
        ("GET", "/moved", &[], "", 301),
        ("GET", "/kept", &[], "", 308),
        ("POST", "/small", &[], "hello", 413),
        ("GET", "/limited", &[], "", 429),
        ("OPTIONS", "/", &[("max-forwards", "0")], "", 204),
        ("GET", "/a/../b", &[], "", 400),
        ("TRACE", "/", &[], "", 501),
    ] {
        for (answered, date) in asked(&litequic, method, path, more, body).await {
            let date = date.unwrap_or_default();
            assert!(answered == status && is_now(&date), "{method} {path}: {answered} {date:?}");
        }
    }
    let bare = asked(&litequic, "GET", "/bare", &[], "").await;
    assert_eq!(bare, [(200, None), (200, None), (200, None)], "a rule has the last word");
    litequic.stop().await;

    let litequic = Litequic::start(origin::closed_port(), |_| {}).await;
    for (answered, date) in asked(&litequic, "GET", "/", &[], "").await {
        assert!(answered == 502 && is_now(&date.unwrap_or_default()));
    }
    litequic.stop().await;
}

#[tokio::test]
async fn an_origins_date_passes_as_it_came() {
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (_origin, litequic) =
        Always::behind_litequic(format!("HTTP/1.1 200 OK\r\nDate: {THEN}\r\nContent-Length: 2\r\n\r\nok"), |_| {})
            .await;
    for (_, date) in asked(&litequic, "GET", "/", &[], "").await {
        assert_eq!(date.as_deref(), Some(THEN));
    }
    litequic.stop().await;
}

#[tokio::test]
async fn an_interim_response_gets_no_date() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let response: raw::Response = exchange.outcome().await.response();
    assert_eq!(response.interim.iter().map(|interim| interim.get("date")).collect::<Vec<_>>(), [None]);
    assert!(response.fields.get("date").is_some_and(is_now));
    litequic.stop().await;
}

#[tokio::test]
async fn answers_without_tls_have_a_date() {
    let litequic =
        Litequic::start(origin::closed_port(), |config| config.listen.redirect = vec![([127, 0, 0, 1], 0).into()])
            .await;
    for (address, status) in [(litequic.redirects[0], 308), (litequic.tcp[0], 400)] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        within("the end", plain.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let fields = answer.lines().filter_map(|line| line.split_once(": "));
        let dates: Vec<_> = fields.filter(|(name, _)| name.eq_ignore_ascii_case("date")).collect();
        assert!(dates.len() == 1 && is_now(dates[0].1), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(answer.to_ascii_lowercase().contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    }
    litequic.stop().await;
}
