//! Requests that are not served: what HTTP/3's rules and the proxy's reject, the client's answer, and that the origin
//! gets nothing of them.

use crate::support::{
    prelude::*,
    proxy::unbuffered,
    raw::{HEADERS, RESERVED, get, replaced, with},
};
use litequic_http3::ErrorCode;

/// Bytes before a stream's end.
type Bytes = Vec<u8>;

/// A GET without one pseudo-header, with `more` behind.
fn without(name: &str, more: &[(&str, &str)]) -> Bytes {
    let fields = raw::pseudo("GET", "/").into_iter().filter(|field| field.0 != name);
    raw::headers(&fields.chain(more.iter().copied()).collect::<Vec<_>>())
}

/// Sends `requests` on one connection, one after another, and checks that each gets `expected`, that the connection
/// stays, and that the origin got the one good request at the end and nothing else.
async fn all_get(expected: impl Fn(&Outcome) -> bool, requests: Vec<Bytes>) {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for request in &requests {
        let outcome = client.ask(request).await;
        assert!(expected(&outcome), "{outcome:?} for {:?}", String::from_utf8_lossy(request));
    }
    assert_eq!((origin.connections(), litequic.sum(|worker| worker.proxy.origin_requests.get())), (0, 0));
    assert_eq!(client.ask(&get()).await.status(), 200);
    assert_eq!(origin.seen().matches("HTTP/1.1").count(), 1);
    litequic.stop().await;
}

fn is_malformed(outcome: &Outcome) -> bool {
    *outcome == Outcome::Reset(ErrorCode::MessageError.wire_value())
}

fn is(status: u16) -> impl Fn(&Outcome) -> bool {
    move |outcome| outcome.status() == status
}

#[tokio::test]
async fn invalid_pseudo_headers_reset_the_stream() {
    let mut requests = Vec::new();
    for (name, value) in raw::pseudo("GET", "/") {
        requests.push(without(name, &[]));
        requests.push(without(name, &[("x", "y"), (name, value)]));
        requests.push(with("GET", &[(name, value)]));
        requests.push(raw::headers(&[vec![(name, value)], raw::pseudo("GET", "/")].concat()));
        requests.push(replaced(name, ""));
    }
    for name in [":status", ":protocol", ":unknown", ":"] {
        requests.push(raw::headers(&[vec![(name, "200")], raw::pseudo("GET", "/")].concat()));
    }
    let connect = [(":method", "CONNECT"), (":authority", "localhost:1")];
    requests.push(raw::headers(&connect[..1]));
    requests.push(raw::headers(&[&connect[..], &[(":path", "/")]].concat()));
    requests.push(raw::headers(&[&connect[..], &[(":scheme", "https")]].concat()));
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn an_authority_and_a_host_that_differ_reset_the_stream() {
    let requests = vec![
        with("GET", &[("host", "127.0.0.1")]),
        with("GET", &[("host", "localhost:444")]),
        with("GET", &[("host", "")]),
        with("GET", &[("host", "localhost"), ("host", "localhost")]),
        without(":authority", &[("host", "")]),
        without(":authority", &[("host", "localhost"), ("host", "a.test")]),
    ];
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn field_names_and_values_that_http_does_not_have_reset_the_stream() {
    let mut requests = Vec::new();
    for name in ["X-A", "", "a b", "a:", "a\r\nb", "a\0", "é", "a(", "transfer-encoding "] {
        requests.push(with("GET", &[(name, "v")]));
    }
    for value in ["a\0b", "a\rb", "a\nb", "a\r\nx: y", " a", "a ", "\ta", "a\t", "a\u{1}"] {
        requests.push(with("GET", &[("x", value)]));
        requests.push(replaced(":path", &format!("/{value}")).clone());
    }
    // A blank or control byte within the path is another row's.
    requests.retain(|request| !["/ a", "/\ta", "/a\u{1}"].iter().any(|path| contains(request, path.as_bytes())));
    all_get(is_malformed, requests).await;
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn fields_of_the_connection_reset_the_stream_and_are_never_cleaned() {
    let fields = [
        ("connection", "close"),
        ("connection", "x"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ];
    all_get(is_malformed, fields.iter().map(|field| with("POST", &[*field])).collect()).await;
}

#[tokio::test]
async fn a_content_length_that_is_not_one_plain_number_resets_the_stream() {
    let mut requests = vec![
        with("POST", &[("content-length", "0"), ("content-length", "0")]),
        with("POST", &[("content-length", "0"), ("content-length", "1")]),
    ];
    for value in ["", "+0", "-0", "0, 0", "0x0", "0.0", "zero", "18446744073709551616"] {
        requests.push(with("POST", &[("content-length", value)]));
    }
    // Declared, but nothing came; not declared, but something came.
    requests.push(with("POST", &[("content-length", "1")]));
    requests.push([with("POST", &[("content-length", "0")]), raw::data("x")].concat());
    all_get(is_malformed, requests).await;
}

#[tokio::test]
async fn a_path_that_origins_could_read_in_two_ways_is_answered_400() {
    let paths = [
        "*",
        "a",
        "?a",
        "http://localhost/",
        "/a b",
        "/a#b",
        "/a?b#c",
        "/\u{7f}",
        "/a\tb",
        "/.",
        "/..",
        "/a/../b",
        "/a/./b",
        "/%2e%2E/",
        "/.%2e/",
        "/a%2f..%2fb",
        "/a/..%5cb",
        "/..;/a",
        "/a\\..\\b",
    ];
    all_get(is(400), paths.iter().map(|path| replaced(":path", path)).collect()).await;
}

#[tokio::test]
async fn an_authority_with_userinfo_or_no_host_is_answered_400() {
    let authorities = ["user@localhost", "user:password@localhost", "localhost:", "localhost:x", "a b", "[::1", "/"];
    let mut requests: Vec<_> = authorities.iter().map(|authority| replaced(":authority", authority)).collect();
    requests.push(without(":authority", &[("host", "user@localhost")]));
    requests.push(replaced(":scheme", "ftp"));
    all_get(is(400), requests).await;
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_cover_is_answered_421() {
    let names = ["other.test", "x.a.test", "192.0.2.1", "localhost.other.test", "wild.test", "x.y.wild.test"];
    all_get(is(421), names.iter().map(|name| replaced(":authority", name)).collect()).await;
}

#[tokio::test]
async fn a_refusal_of_head_has_no_body() {
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let client = Raw::to(&litequic).await;
    for (authority, path, status) in [("other.test", "/", 421), ("localhost", "/..", 400)] {
        let fields = [(":method", "HEAD"), (":scheme", "https"), (":authority", authority), (":path", path)];
        let response = client.ask(&raw::headers(&fields)).await.response();
        assert_eq!((response.fields.status(), response.data_frames), (status, 0), "{authority}{path}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn connect_is_answered_501() {
    all_get(is(501), vec![raw::headers(&[(":method", "CONNECT"), (":authority", "localhost:1")])]).await;
}

#[tokio::test]
async fn a_header_with_too_many_bytes_or_fields_is_answered_431() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| {
        config.limits.max_header_bytes = 1_000;
        config.limits.max_headers = 10;
    })
    .await;
    let client = Raw::to(&litequic).await;
    let long = "v".repeat(2_000);
    let nearly = "v".repeat(800); // with 32 bytes a field it is beyond (RFC 9114 §4.2.2), encoded it is not
    assert_eq!(client.ask(&with("GET", &[("x", &long)])).await.status(), 431);
    assert_eq!(client.ask(&with("GET", &[("x", &nearly)])).await.status(), 431);
    assert_eq!(client.ask(&with("GET", &[("x", "y"); 11])).await.status(), 431);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_header_bytes.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_headers.get()), 1);
    assert_eq!(origin.connections(), 0);
    assert_eq!(client.ask(&with("GET", &[("x", "y"); 10])).await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_header_announced_with_a_gigabyte_is_answered_431_before_it_comes() {
    let (origin, litequic) = Script::behind_litequic(|config| config.limits.max_lingering_bytes = 0).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[raw::varint(HEADERS), raw::varint(1 << 30), vec![0; 1_000]].concat()).await;
    assert_eq!(exchange.outcome().await.status(), 431);
    assert_eq!(exchange.stopped().await, Some(ErrorCode::NoError.wire_value()));
    origin.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn a_wrong_content_length_resets_the_stream_and_truncates_the_upload() {
    for (length, pieces) in [("5", &["abc"][..]), ("5", &["abc", "def"]), ("5", &["abcde", "f"])] {
        let (origin, litequic) = Script::behind_litequic(unbuffered).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&with("POST", &[("content-length", length)])).await;
        exchange.send(&raw::data(pieces[0])).await;
        let mut peer = origin.accept().await;
        assert_eq!(peer.head().await.field("content-length"), Some(length));
        for piece in &pieces[1..] {
            exchange.send(&raw::data(piece)).await;
        }
        exchange.finish();
        assert!(is_malformed(&exchange.outcome().await), "{pieces:?}");
        let body = peer.rest().await;
        assert!(body.len() < 5, "{pieces:?}: {body:?}");
        litequic.wait_until("malformed_requests = 1", |worker| worker.http3.malformed_requests.get(), |n| n == 1).await;
        litequic.wait_until("no origin", |worker| worker.proxy.origin_connections_open.get(), |open| open == 0).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn invalid_trailers_reset_the_stream_and_send_no_last_chunk() {
    for field in [(":path", "/"), (":status", "200"), ("X-A", "b"), ("connection", "close"), ("x", "a\r\nb: c")] {
        let (origin, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
        let mut peer = origin.accept().await;
        peer.until("3\r\nabc\r\n").await;
        exchange.send(&raw::headers(&[field])).await;
        exchange.finish();
        assert!(is_malformed(&exchange.outcome().await), "{field:?}");
        assert_eq!(peer.rest().await, "", "{field:?}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_bad_request_leaves_the_other_streams_of_its_connection_undisturbed() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut good = client.open(&[with("POST", &[]), raw::data("before")].concat()).await;
    let mut peer = origin.accept().await;
    peer.until("before\r\n").await;
    assert!(is_malformed(&client.ask(&with("GET", &[("connection", "close")])).await));
    assert_eq!(client.ask(&replaced(":path", "/..")).await.status(), 400);
    good.send(&raw::data("after")).await;
    good.finish();
    peer.until("after\r\n0\r\n\r\n").await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(good.outcome().await.response().body, b"ok");
    litequic.stop().await;
}

#[tokio::test]
async fn an_empty_request_stream_is_reset_and_the_connection_stays() {
    let expected = |outcome: &Outcome| *outcome == Outcome::Reset(ErrorCode::RequestIncomplete.wire_value());
    all_get(expected, vec![Vec::new(), raw::frame(RESERVED, "x")]).await;
}
