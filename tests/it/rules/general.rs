//! Header rules for all routes: `[request_headers]` and `[response_headers]` at the top.

use super::started;
use crate::support::{client::Answer, prelude::*};

const RULES: &str = r#"
[request_headers]
remove = ["x-secret"]
set = { x-real-ip = "{client}", x-tenant = "general" }

[response_headers]
remove = ["server"]
set = { strict-transport-security = "max-age=63072000", x-frame-options = "DENY", x-id = "{request_id}" }
add = { vary = "accept" }

[[routes]]
host = "localhost"
path_prefix = "/app"
origin = "origin"
request_headers = { set = { x-tenant = "app" } }
response_headers = { set = { x-frame-options = "SAMEORIGIN" }, remove = ["vary"] }

[[routes]]
host = "localhost"
path = "/fixed"
respond = { body = "ok" }

[[routes]]
host = "localhost"
path_prefix = "/moved"
redirect = "/app"
"#;

#[tokio::test]
async fn route_rules_override_general_rules_by_field() {
    let script = Script::new().await;
    let litequic = started(script.address, RULES).await;
    let client = Client::to(&litequic).await;
    let request = client.request(Method::GET, "/app/a").header("x-secret", "1").header("x-real-ip", "6.6.6.6");
    let asked = client.fetch(request, "");
    let answering = async {
        let mut origin = script.accept().await;
        let head = origin.head().await.0.to_ascii_lowercase();
        origin.say("HTTP/1.1 200 OK\r\nServer: origin\r\nVary: cookie\r\nContent-Length: 0\r\n\r\n").await;
        (head, origin)
    };
    let (answer, (head, _origin)) = tokio::join!(asked, answering);
    assert!(head.contains("\r\nx-real-ip: 127.0.0.1\r\n") && head.contains("\r\nx-tenant: app\r\n"), "{head}");
    assert!(!head.contains("x-secret") && !head.contains("general"), "{head}");
    let fields = |answer: &Answer| {
        ["server", "strict-transport-security", "x-frame-options", "vary"]
            .map(|name| answer.field(name).unwrap_or("-").to_owned())
            .join(" ")
    };
    assert_eq!(fields(&answer), "- max-age=63072000 SAMEORIGIN -");

    // Answers of litequic's own: of routes, and one that could be of either.
    for (path, status) in [("/fixed", 200), ("/moved", 307), ("/Fixed", 400)] {
        let answer = client.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(fields(&answer), "- max-age=63072000 DENY accept", "{path}");
        assert_eq!(answer.field("x-id"), answer.field("x-request-id"), "{path}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn general_rules_are_in_answers_to_requests_that_are_rejected_at_once() {
    let script = Script::new().await;
    let litequic = started(script.address, RULES).await;
    let mut tls = Tls::http1(&litequic).await;
    tls.say("GET / HTTP/1.1\r\nHost: a b\r\n\r\n").await;
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 400 ") && head.contains("\r\nx-frame-options: deny\r\n"), "{head}");
    assert!(head.contains("\r\nstrict-transport-security: max-age=63072000\r\n"), "{head}");
    let client = Client::to(&litequic).await;
    let answer = client.fetch(client.request(Method::TRACE, "/app"), "").await;
    assert_eq!(answer.status.as_u16(), 501);
    assert_eq!(answer.field("x-frame-options"), Some("DENY"));
    litequic.stop().await;
}

#[tokio::test]
async fn general_rules_apply_without_a_route_but_not_to_421() {
    let script = Script::new().await;
    let config = format!("{RULES}[[routes]]\nhost = \"other.test\"\norigin = \"origin\"\n");
    let mut config = super::configured(script.address, &config);
    // Without the catch-all of `[origin]`.
    config.routes.retain(|route| route.host.is_some());
    let litequic = Litequic::with_config(&config).await;
    let mut tls = Tls::http1(&litequic).await;
    tls.say("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 404 ") && head.contains("\r\nx-frame-options: deny\r\n"), "{head}");
    assert!(head.contains("\r\nstrict-transport-security: max-age=63072000\r\n"), "{head}");
    let mut tls = Tls::http1(&litequic).await;
    tls.say("GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n").await;
    let head = tls.head().await;
    assert!(head.starts_with("http/1.1 421 "), "{head}");
    assert!(!head.contains("strict-transport-security") && !head.contains("x-frame-options"), "{head}");
    litequic.stop().await;
}
