//! Fields and paths.

use super::started;
use crate::support::prelude::*;

const FIELDS: &str = r#"
[[routes]]
origin = "origin"
[routes.request_headers]
remove = ["accept-encoding", "X-Absent"]
set = { x-real-ip = "{client}", authorization = "Basic c2VjcmV0", "X-Asked" = "{host}" }
add = { x-tag = "litequic" }
[routes.response_headers]
remove = ["Server", "x-powered-by"]
set = { strict-transport-security = "max-age=63072000", nel = '{"report_to":"a"}' }
add = { set-cookie = "b=2", x-id = "{request_id}" }
"#;

#[tokio::test]
async fn fields_are_removed_set_and_added_on_both_ways_by_every_protocol() {
    let origin = Always::new(
        "HTTP/1.1 200 OK\r\nServer: origin\r\nX-Powered-By: PHP\r\nSet-Cookie: a=1\r\nNel: old\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let litequic = started(origin.address, FIELDS).await;

    let client = Client::to(&litequic).await;
    let mut request = client.request(Method::GET, "/");
    for (name, value) in [("accept-encoding", "br"), ("x-real-ip", "6.6.6.6"), ("x-tag", "client")] {
        request = request.header(name, value);
    }
    let answer = client.fetch(request, "").await;
    assert_eq!((answer.field("server"), answer.field("x-powered-by")), (None, None));
    assert_eq!(answer.field("strict-transport-security"), Some("max-age=63072000"));
    assert_eq!(answer.field("nel"), Some("{\"report_to\":\"a\"}"));
    let cookies: Vec<_> = answer.fields.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    let asked = format!("localhost:{}", litequic.address.port());

    let mut tls = Tls::http1(&litequic).await;
    tls.say(format!(
        "GET / HTTP/1.1\r\nHost: {asked}\r\nAccept-Encoding: br\r\nX-Real-IP: 6.6.6.6\r\nX-Tag: client\r\n\r\n"
    ))
    .await;
    let head = tls.head().await;
    assert!(head.contains("\r\nstrict-transport-security: max-age=63072000\r\n"), "{head}");
    assert!(!head.contains("\r\nserver:") && head.contains("\r\nset-cookie: b=2\r\n"), "{head}");

    let seen = origin.seen().to_ascii_lowercase();
    for line in ["x-real-ip: 127.0.0.1\r\n", "authorization: basic c2vjcmv0\r\n", &format!("x-asked: {asked}\r\n")] {
        assert_eq!(seen.matches(line).count(), 2, "{line} in {seen}");
    }
    assert_eq!(seen.matches("x-tag: litequic\r\n").count(), 2, "{seen}");
    assert_eq!(seen.matches("x-tag: client\r\n").count(), 2, "{seen}");
    assert!(!seen.contains("accept-encoding") && !seen.contains("6.6.6.6"), "{seen}");
    litequic.stop().await;
}

/// As nginx' `always` has it; the request's ID in both is the same.
#[tokio::test]
async fn local_responses_get_the_routes_fields() {
    let fields = FIELDS.replace("origin = \"origin\"", "path_prefix = \"/a\"\norigin = \"gone\"");
    let gone = origin::closed_port();
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, &format!("{fields}\n[origins.gone]\nurl = \"http://{gone}\"")).await;
    let client = Client::to(&litequic).await;
    let answer = client.get("/a").await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.field("strict-transport-security"), Some("max-age=63072000"));
    assert_eq!(answer.field("x-id"), answer.field("x-request-id"));
    assert_eq!(client.get("/").await.field("strict-transport-security"), None);
    litequic.stop().await;
}

#[tokio::test]
async fn the_origin_gets_a_path_with_the_other_prefix() {
    let script = Script::new().await;
    let litequic = started(
        script.address,
        "routes = [\n\
         { path_prefix = \"/api/\", rewrite_prefix = \"/\", origin = \"origin\" },\n\
         { path_prefix = \"/v1\", rewrite_prefix = \"/app/v2\", origin = \"origin\" }]",
    )
    .await;
    let client = Client::to(&litequic).await;
    let mut peer = None;
    for (path, expected) in [
        ("/api", "/"),
        ("/api/", "/"),
        ("/api/users/?a=/api", "/users/?a=/api"),
        ("/api?q", "/?q"),
        ("/api/a%2Fb%20;c", "/a%2Fb%20;c"),
        ("/v1/users", "/app/v2/users"),
        ("/v1", "/app/v2"),
        ("/v10", "/v10"),
        ("/other", "/other"),
    ] {
        let asked = client.get(path);
        let answered = async {
            let peer = match &mut peer {
                Some(peer) => peer,
                none => none.insert(script.accept().await),
            };
            let head = peer.head().await;
            assert_eq!(head.line(), format!("GET {expected} HTTP/1.1"), "{path}");
            peer.say(Always::EMPTY_200).await;
        };
        let (answer, ()) = tokio::join!(asked, answered);
        assert_eq!(answer.status, 200);
    }
    litequic.stop().await;
}
