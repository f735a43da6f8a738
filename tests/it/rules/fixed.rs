//! Fixed answers.

use super::{configured_in, started};
use crate::{
    reload::{Setup, saying},
    support::{
        http2::{DATA, END_HEADERS, END_STREAM, HEADERS},
        prelude::*,
    },
};

const FIXED: &str = r#"
[[routes]]
path = "/robots.txt"
respond = { body_file = "robots.txt" }

[[routes]]
path = "/health"
respond = { body = "{\"up\":true}\n" }
response_headers.set = { content-type = "application/json", cache-control = "no-store" }

[[routes]]
path_prefix = "/gone"
respond = { status = 410 }
response_headers.set = { x-route = "gone", x-host = "{host}" }

[[routes]]
path_prefix = "/nothing"
respond = { status = 204 }

[[routes]]
path_prefix = "/limited"
respond = { body = "ok" }
rate_limit = "1/h"
"#;

/// A directory with the file, which must live as long, litequic, and an origin that must not be reached.
async fn fixed() -> (Litequic, tempfile::TempDir, Script) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("robots.txt"), "User-agent: *\nDisallow: /\n").unwrap();
    let script = Script::new().await;
    let litequic = Litequic::with_config(&configured_in(directory.path(), script.address, FIXED)).await;
    (litequic, directory, script)
}

#[tokio::test]
async fn a_fixed_answer_has_its_status_its_body_and_its_fields() {
    let (litequic, _directory, script) = fixed().await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/robots.txt?a=b").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "User-agent: *\nDisallow: /\n"));
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!((answer.field("content-length"), answer.field("cache-control")), (Some("26"), None));
    assert!(answer.field("x-request-id").is_some() && answer.field("date").is_some());

    let answer = client.get("/health").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "{\"up\":true}\n"));
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));

    let answer = client.get("/gone/x").await;
    let asked = format!("localhost:{}", litequic.address.port());
    assert_eq!((answer.status.as_u16(), answer.text()), (410, ""));
    assert_eq!((answer.field("x-host"), answer.field("x-route")), (Some(&*asked), Some("gone")));
    assert_eq!(answer.field("content-length"), Some("0"));

    let answer = client.get("/nothing").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("content-length")), (204, "", None));

    assert_eq!(client.get("/limited").await.text(), "ok");
    assert_eq!(client.get("/limited").await.status, 429);
    script.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn the_answer_to_head_has_the_bodys_length_and_no_body() {
    let (litequic, _directory, script) = fixed().await;
    let client = Client::to(&litequic).await;
    let answer = client.fetch(client.request(Method::HEAD, "/robots.txt"), "").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("content-length")), (200, "", Some("26")));

    let mut tls = Tls::http1(&litequic).await;
    let request = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // The second answer would be seen in the first one's body.
    tls.say([request("HEAD", "/robots.txt"), request("GET", "/nothing"), request("GET", "/robots.txt")].concat()).await;
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("\r\ncontent-length: 26\r\n"), "{head}");
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 204 ") && !head.contains("content-length"), "{head}");
    assert!(tls.head().await.starts_with("http/1.1 200 "));
    tls.until("Disallow: /\n").await;

    let mut http2 = Http2::connect(&litequic, &[]).await;
    let fields = http2::fields(&http2::pseudo("HEAD", "/robots.txt"));
    http2.say(HEADERS, END_HEADERS | END_STREAM, 1, &fields).await;
    let headers = http2.find(&[HEADERS]).await.unwrap();
    assert_eq!((http2::status(&headers), headers.flags & END_STREAM), (200, END_STREAM));
    script.saw_no_connection();
    litequic.stop().await;
}

/// More than what a client may send ahead, and within what is discarded of such a body.
const UPLOAD: usize = 400_000;

#[tokio::test]
async fn an_upload_to_a_fixed_answer_does_not_hang() {
    let (litequic, _directory, script) = fixed().await;
    let client = Client::to(&litequic).await;
    for (path, status) in [("/health", 200), ("/nothing", 204), ("/gone", 410)] {
        assert_eq!(client.post(path, vec![b'a'; UPLOAD]).await.status, status, "{path}");
        // The answer comes before the body's end.
        let mut stream = client.open(client.request(Method::POST, path)).await;
        assert_eq!(client::header(&mut stream).await.status(), status, "{path}");
        within("the upload", stream.send_data(Bytes::from_static(b"late"))).await.unwrap();
        within("its end", stream.finish()).await.unwrap();
    }

    let mut tls = Tls::http1(&litequic).await;
    let post = format!("POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD}\r\n\r\n");
    tls.say([post.as_bytes(), &vec![b'a'; UPLOAD]].concat()).await;
    assert!(tls.head().await.starts_with("http/1.1 200 "));
    tls.until("{\"up\":true}\n").await;

    let mut http2 = Http2::connect(&litequic, &[]).await;
    let fields = |path: &str| http2::fields(&http2::pseudo("POST", path));
    for (stream, path, status) in [(1, "/health", 200), (3, "/nothing", 204)] {
        http2.say(HEADERS, END_HEADERS, stream, &fields(path)).await;
        http2.say(DATA, 0, stream, &[b'a'; 10_000]).await;
        let headers = http2.find(&[HEADERS]).await.unwrap();
        assert_eq!((headers.stream, http2::status(&headers)), (stream, status), "{path}");
        http2.say(DATA, END_STREAM, stream, b"end").await;
    }
    script.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn a_changed_body_file_is_reloaded_and_a_removed_one_kept() {
    let (setup, origin) = (Setup::new(), saying("the origin").await);
    fs::write(setup.path("robots.txt"), "first").unwrap();
    let text = "routes = [{ path = \"/robots.txt\", respond = { body_file = \"robots.txt\" } }]";
    let process = setup.start_with(origin.address, text).await;
    let client = setup.client().await;
    assert_eq!(client.get("/robots.txt").await.text(), "first");
    fs::write(setup.path("robots.txt"), "second").unwrap();
    process.await_stderr("robots.txt renewed");
    assert_eq!(client.get("/robots.txt").await.text(), "second");

    fs::remove_file(setup.path("robots.txt")).unwrap();
    let (status, told) = setup.reload().await;
    assert_eq!(status, 422);
    assert!(told.contains("routes[0].respond.body_file"), "{told}");
    assert!(told.contains("the body file ") && told.contains("robots.txt cannot be read: No such file"), "{told}");
    assert_eq!(client.get("/robots.txt").await.text(), "second");
    assert_eq!(client.get("/").await.text(), "the origin");
}

#[tokio::test]
async fn a_request_for_an_exact_path_is_rewritten_as_a_whole() {
    let script = Script::new().await;
    let text = "routes = [{ path = \"/old\", rewrite_prefix = \"/new\", origin = \"origin\" }]";
    let litequic = started(script.address, text).await;
    let client = Client::to(&litequic).await;
    let answered = async {
        let mut peer = script.accept().await;
        assert_eq!(peer.head().await.line(), "GET /new?a=b HTTP/1.1");
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    };
    let (answer, ()) = tokio::join!(client.get("/old?a=b"), answered);
    assert_eq!(answer.status, 200);
    litequic.stop().await;
}
