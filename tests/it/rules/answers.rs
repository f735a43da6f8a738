//! Redirects, timeouts and pages.

use super::{configured_in, started};
use crate::support::prelude::*;

#[tokio::test]
async fn a_route_that_redirects_answers_by_itself_and_leads_where_it_says() {
    let script = Script::new().await;
    let litequic = started(
        script.address,
        r#"
        [[routes]]
        path_prefix = "/old"
        rewrite_prefix = "/new"
        redirect = "308 https://{host}{path}"
        [[routes]]
        path_prefix = "/away"
        rewrite_prefix = "/"
        redirect = "301 https://elsewhere.test{path}"
        response_headers.set = { cache-control = "max-age=60" }
        [[routes]]
        path_prefix = "/login"
        redirect = "/sign-in"
        "#,
    )
    .await;
    let client = Client::to(&litequic).await;
    let port = litequic.address.port();
    let own = |path: &str| format!("https://localhost:{port}{path}");
    for (path, status, location) in [
        ("/old/a?b=c", 308, own("/new/a?b=c")),
        ("/old", 308, own("/new")),
        ("/away", 301, "https://elsewhere.test/".into()),
        // No way to another host.
        ("/away//evil.test/", 301, "https://elsewhere.test//evil.test/".into()),
        ("/away/@evil.test", 301, "https://elsewhere.test/@evil.test".into()),
        ("/away?//evil.test", 301, "https://elsewhere.test/?//evil.test".into()),
        ("/login/?next=https://evil.test", 307, "/sign-in".into()),
    ] {
        let answer = client.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.field("location")), (status, Some(&*location)), "{path}");
        assert!(answer.body.is_empty() && answer.field("x-request-id").is_some());
        assert_eq!(answer.field("cache-control").is_some(), path.starts_with("/away"));
    }
    assert_eq!(client.post("/login", vec![b'a'; 100_000]).await.status, 307);

    let mut tls = Tls::http1(&litequic).await;
    tls.say(format!("GET /old/a HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")).await;
    let head = tls.head().await;
    assert!(
        head.starts_with("http/1.1 308 ") && head.contains(&format!("\r\nlocation: {}\r\n", own("/new/a"))),
        "{head}"
    );
    script.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn a_routes_own_timeouts_hold_in_place_of_the_general_ones() {
    let litequic = started(
        origin::demo().await,
        r#"
        [timeouts]
        response_header = "100ms"
        [[routes]]
        path_prefix = "/slow/301"
        timeouts = { response_header = "1m" }
        origin = "origin"
        [[routes]]
        path_prefix = "/drip"
        timeouts = { request = "300ms" }
        origin = "origin"
        "#,
    )
    .await;
    let client = Client::to(&litequic).await;
    assert_eq!(client.get("/slow/300").await.status, 504);
    assert_eq!(client.get("/slow/301").await.status, 200);
    assert_eq!(litequic.sum(|worker| worker.proxy.timeout_response_header.get()), 1);

    let mut stream = client.begin_get("/drip/1000/50").await;
    assert_eq!(client::header(&mut stream).await.status(), 200);
    while let Ok(Some(_)) = within("the body", stream.recv_data()).await {}
    litequic.wait_until("timeout_request = 1", |worker| worker.proxy.timeout_request.get(), |count| count == 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_response_that_stalls_longer_than_its_route_allows_is_reset() {
    let script = Script::new().await;
    let text = "routes = [{ origin = \"origin\", timeouts = { response_body = \"100ms\" } }]";
    let litequic = started(script.address, text).await;
    let client = Client::to(&litequic).await;
    let mut stream = client.begin_get("/").await;
    let mut peer = script.accept_request().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345").await;
    while let Ok(Some(_)) = within("the body", stream.recv_data()).await {}
    litequic
        .wait_until("timeout_response_body = 1", |worker| worker.proxy.timeout_response_body.get(), |count| count == 1)
        .await;
    litequic.stop().await;
}

/// litequic in front of an origin that answers `answer`, with pages in a directory that must exist as long.
async fn with_pages(answer: &str) -> (Litequic, tempfile::TempDir, Always) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in
        [("general.html", "<p>general"), ("5xx.json", "{\"error\":true}"), ("404.txt", "not here"), ("401.txt", "who?")]
    {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let gone = origin::closed_port();
    let origin = Always::new(answer).await;
    let text = format!(
        r#"
        routes = [
            {{ host = "localhost", path_prefix = "/own", origin = "origin", error_pages = {{ "404" = "404.txt", "401" = "401.txt" }}, intercept_errors = true }},
            {{ host = "localhost", path_prefix = "/gone", origin = "gone", error_pages = {{ 5xx = "5xx.json" }} }},
            {{ host = "localhost", path_prefix = "/as-it-is", origin = "origin" }},
            {{ host = "other.test", origin = "origin" }},
        ]
        [error_pages]
        404 = "general.html"
        5xx = "general.html"
        [origins.gone]
        url = "http://{gone}"
        "#
    );
    let mut config = configured_in(directory.path(), origin.address, &text);
    // That which `[origin]` brings.
    config.routes.retain(|route| route.host.is_some());
    (Litequic::with_config(&config).await, directory, origin)
}

#[tokio::test]
async fn local_errors_use_the_routes_or_the_general_pages() {
    let (litequic, _directory, _origin) = with_pages(Always::EMPTY_200).await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/gone").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (502, "{\"error\":true}"));
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("content-length"), Some("14"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let id = answer.field("x-request-id").unwrap();
    assert!(answer.field("proxy-status").unwrap().contains(id));

    let answer = client.fetch(client.request(Method::HEAD, "/gone"), "").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("content-length")), (502, "", Some("14")));

    // No route.
    let answer = client.get("/").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (404, "<p>general"));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));

    let mut tls = Tls::http1(&litequic).await;
    tls.say("HEAD /gone HTTP/1.1\r\nHost: localhost\r\n\r\nGET /gone HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 502 ") && head.contains("\r\ncontent-length: 14\r\n"), "{head}");
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 502 "), "{head}");
    tls.until("{\"error\":true}").await;
    litequic.stop().await;
}

#[tokio::test]
async fn origin_errors_get_the_routes_page_and_keep_the_connection() {
    let (litequic, _directory, origin) = with_pages(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\nContent-Encoding: br\r\nETag: \"a\"\r\nAllow: GET\r\n\r\ngarble",
    )
    .await;
    let client = Client::to(&litequic).await;
    for _ in 0..3 {
        let answer = client.get("/own").await;
        assert_eq!((answer.status.as_u16(), answer.text()), (404, "not here"));
        assert_eq!((answer.field("etag"), answer.field("content-encoding")), (None, None));
        assert_eq!((answer.field("allow"), answer.field("content-length")), (Some("GET"), Some("8")));
    }
    let answer = client.fetch(client.request(Method::HEAD, "/own"), "").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("content-length")), (404, "", Some("8")));
    assert_eq!(client.get("/as-it-is").await.text(), "garble");
    // A HEAD's answer with a body is the one that costs a connection.
    assert!(origin.connections() <= 2, "{}", origin.connections());
    litequic.stop().await;
}

#[tokio::test]
async fn an_origins_error_without_a_page_passes_and_is_bounded() {
    let (litequic, _directory, _origin) = with_pages("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!").await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/own").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (403, "no!"));
    litequic.stop().await;

    let (litequic, _directory, _origin) = with_pages(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nmore…",
    )
    .await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/own").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (401, "who?"));
    assert_eq!(answer.field("www-authenticate"), Some("Basic"));
    litequic.stop().await;
}
