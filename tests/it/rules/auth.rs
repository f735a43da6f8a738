//! `auth`: another server decides about a route's requests.

use super::configured;
use crate::{
    fields::{PROTOCOLS, Protocol, Request},
    support::{
        origin::Head,
        prelude::*,
        tunnel::{self, switch},
    },
};
use futures_util::{SinkExt, StreamExt};
use litequic_config::AmbiguousFields;
use tokio_tungstenite::tungstenite::Message;

/// Paths of the server, and what it answers there.
const ANSWERS: &[(&str, &str)] = &[
    ("/yes", "HTTP/1.1 200 OK\r\nRemote-User: alice\r\nSet-Cookie: no=1\r\nContent-Length: 2\r\n\r\nok"),
    ("/empty", "HTTP/1.1 204 No Content\r\n\r\n"),
    ("/twice", "HTTP/1.1 200 OK\r\nRemote-User: alice\r\nRemote-User: root\r\nContent-Length: 0\r\n\r\n"),
    ("/spelt", "HTTP/1.1 200 OK\r\nRemote_User: root\r\nContent-Length: 0\r\n\r\n"),
    (
        "/who",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
         X-Inner: 1\r\nContent-Type: text/html\r\nContent-Length: 8\r\n\r\n<p>who?\n",
    ),
    ("/no", "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n"),
    (
        "/away",
        "HTTP/1.1 302 Found\r\nLocation: https://id.test/?rd=1\r\nSet-Cookie: csrf=1\r\nContent-Length: 0\r\n\r\n",
    ),
    ("/lost", "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
    ("/none", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    ("/broken", "HTTP/1.1 500 Internal Server Error\r\nRemote-User: alice\r\nContent-Length: 0\r\n\r\n"),
    ("/unmodified", "HTTP/1.1 304 Not Modified\r\n\r\n"),
    ("/early", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\nRemote-User: bob\r\n\r\n"),
    ("/garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("/switch", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    ("/half", "HTTP/1.1 401 Unauthorized\r\nContent-Length: 100\r\n\r\nhalf"),
    ("/hang", ""),
];

/// A server that answers by path, and records what it got. `/large` and `/large-yes` have 100 KB; `/close` closes.
pub(super) struct Decider {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    _server: Server,
}

impl Decider {
    pub(super) async fn new() -> Self {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let heads = Arc::clone(&seen);
        let server = Server::start(move |stream| decide(stream, Arc::clone(&heads))).await;
        Self { address: server.address, seen, _server: server }
    }

    fn heads(&self) -> Vec<Head> {
        self.seen.lock().unwrap().iter().cloned().map(Head).collect()
    }
}

async fn decide(mut stream: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    loop {
        while !read.ends_with(b"\r\n\r\n") {
            if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
                return;
            }
        }
        let head = String::from_utf8(std::mem::take(&mut read)).unwrap();
        let path = head.split([' ', '?']).nth(1).unwrap().to_owned();
        seen.lock().unwrap().push(head);
        let large = "x".repeat(100_000);
        let answer = match &*path {
            "/close" => return,
            "/large" => format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{large}", large.len()),
            "/large-yes" => {
                format!("HTTP/1.1 200 OK\r\nRemote-User: carol\r\nContent-Length: {}\r\n\r\n{large}", large.len())
            }
            path => ANSWERS.iter().find(|(known, _)| *known == path).unwrap().1.to_owned(),
        };
        // litequic may have closed it.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Each path of `auth`'s is a route whose requests it decides about by that path.
fn guarded(origin: SocketAddr, auth: SocketAddr, paths: &[&str]) -> Config {
    let route = |path: &&str| {
        format!(
            "{{ path_prefix = \"{path}\", origin = \"origin\", auth = {{ origin = \"auth\", path = \"{path}?a=b\", \
             copy = [\"Remote-User\", \"remote-groups\"] }} }},\n"
        )
    };
    let routes: String = paths.iter().map(route).collect();
    let mut config =
        configured(origin, &format!("routes = [\n{routes}]\norigins.auth = {{ url = \"http://{auth}\" }}\n"));
    config.origins.get_mut("origin").unwrap().ambiguous_fields = AmbiguousFields::Pass;
    config.timeouts.response_header = Duration::from_millis(500);
    config
}

const ALL: [&str; 19] = [
    "/yes",
    "/empty",
    "/twice",
    "/spelt",
    "/who",
    "/no",
    "/away",
    "/lost",
    "/none",
    "/broken",
    "/unmodified",
    "/early",
    "/garbage",
    "/switch",
    "/half",
    "/hang",
    "/large",
    "/large-yes",
    "/close",
];

/// What a client sends to be taken for another.
const CLAIMS: [(&str, &str); 8] = [
    ("remote-user", "root"),
    ("remote_user", "root"),
    ("remote-groups", "wheel"),
    ("remote.groups", "wheel"),
    ("x-forwarded-uri", "/public"),
    ("x-forwarded-method", "OPTIONS"),
    ("x-original-url", "https://localhost/public"),
    ("cookie", "session=1"),
];

fn fields(protocol: Protocol) -> Vec<(&'static str, &'static str)> {
    let mut fields = CLAIMS.to_vec();
    if protocol == Protocol::Http1 {
        // What it has of its own belongs to the connection.
        fields.push(("connection", "remote-user"));
        fields.retain(|(name, _)| *name != "remote-user");
    }
    fields
}

#[tokio::test]
async fn the_origin_gets_the_authorizers_fields_and_no_forged_ones() {
    let (origin, auth) = (origin::demo().await, Decider::new().await);
    let seen = Always::new(Always::EMPTY_200).await;
    for protocol in PROTOCOLS {
        let litequic = Litequic::with_config(&guarded(seen.address, auth.address, &ALL)).await;
        for (path, user) in [
            ("/yes", Some("alice")),
            ("/empty", None),
            ("/spelt", None),
            ("/early", Some("bob")),
            ("/large-yes", Some("carol")),
        ] {
            let before = seen.seen().len();
            let request = Request::get(path, &fields(protocol));
            let (status, _) = request.ask(&litequic, protocol).await.unwrap();
            assert_eq!(status, 200, "{protocol:?} {path}");
            let head = Head(seen.seen().split_off(before));
            assert_eq!(head.field("remote-user"), user, "{protocol:?} {path}");
            for absent in ["remote_user", "remote-groups", "remote.groups", "x-original-url", "set-cookie"] {
                assert_eq!(head.field(absent), None, "{protocol:?} {path}: {head:?}");
            }
            assert_eq!(head.field("cookie"), Some("session=1"));
        }
        litequic.stop().await;
    }
    for head in auth.heads() {
        let path = head.field("x-forwarded-uri").unwrap().to_owned();
        assert_eq!(head.line(), format!("GET {path}?a=b HTTP/1.1"));
        for (field, value) in [
            ("x-forwarded-method", "GET"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost"),
            ("x-forwarded-for", "127.0.0.1"),
            ("host", "localhost"),
            ("cookie", "session=1"),
        ] {
            assert_eq!(head.field(field), Some(value), "{head:?}");
        }
        for absent in ["remote-user", "remote_user", "remote-groups", "x-original-url", "content-length"] {
            assert_eq!(head.field(absent), None, "{head:?}");
        }
    }
    // Trailers, which an origin may merge into the header.
    let litequic = Litequic::with_config(&guarded(origin, auth.address, &ALL)).await;
    for protocol in PROTOCOLS {
        let trailers = [("remote-user", "root"), ("remote_user", "root"), ("x-kept", "1")];
        let declared = [("trailer", "remote-user, remote_user, x-kept"), ("x-original-method", "GET")];
        let script = Script::new().await;
        let litequic = Litequic::with_config(&guarded(script.address, auth.address, &ALL)).await;
        let request = Request::with_trailers("/yes", &declared, &trailers);
        let serve = async {
            let mut peer = script.accept().await;
            let head = peer.head().await;
            let body = peer.until("\r\n\r\n").await;
            peer.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
            (head, body)
        };
        let (answer, (head, body)) = tokio::join!(request.ask(&litequic, protocol), serve);
        assert_eq!(answer.unwrap().0, 200);
        assert_eq!(head.field("remote-user"), Some("alice"));
        assert!(body.contains("x-kept: 1") && !body.contains("root"), "{protocol:?}: {body}");
        litequic.stop().await;
    }
    let asked = auth.heads().pop().unwrap();
    assert_eq!((asked.field("x-forwarded-method"), asked.field("transfer-encoding")), (Some("POST"), None));
    litequic.stop().await;
}

#[tokio::test]
async fn a_refusal_or_redirect_of_the_authorizer_stops_the_request() {
    let (origin, auth) = (Always::new(Always::EMPTY_200).await, Decider::new().await);
    let litequic = Litequic::with_config(&guarded(origin.address, auth.address, &ALL)).await;
    let client = Client::to(&litequic).await;
    let who = client.get("/who/further").await;
    assert_eq!((who.status.as_u16(), who.text()), (401, "<p>who?\n"));
    assert_eq!(who.fields.get_all("set-cookie").iter().count(), 2);
    assert_eq!(who.field("www-authenticate"), Some("Bearer"));
    assert_eq!((who.field("content-type"), who.field("cache-control")), (Some("text/html"), Some("no-store")));
    assert_eq!(who.field("x-inner"), None);
    assert!(who.field("date").is_some() && who.field("x-request-id").is_some());
    let away = client.get("/away").await;
    assert_eq!((away.status.as_u16(), away.field("location")), (302, Some("https://id.test/?rd=1")));
    assert_eq!(away.field("set-cookie"), Some("csrf=1"));
    assert_eq!(client.fetch(client.request(Method::HEAD, "/who"), "").await.text(), "");
    let upload = client.post("/no", vec![b'x'; 1 << 20]).await;
    assert_eq!((upload.status.as_u16(), upload.text()), (403, "no\n"));
    for protocol in PROTOCOLS {
        for (path, status) in [("/who", 401), ("/no", 403), ("/away", 302)] {
            assert_eq!(
                Request::get(path, &[]).ask(&litequic, protocol).await.unwrap().0,
                status,
                "{protocol:?} {path}"
            );
        }
    }
    for over in HttpVersion::ALL {
        for (path, status) in [("/who", 401), ("/no", 403), ("/away", 302), ("/none", 404)] {
            assert_eq!(switch(&litequic, over, path, "websocket", &[]).await.status, status, "{over:?} {path}");
        }
    }
    assert_eq!(origin.connections(), 0);
    let count = |read: fn(&litequic_proxy::ProxyMetrics) -> u64| litequic.sum(|worker| read(&worker.proxy));
    assert_eq!(count(|metrics| metrics.auth_denied.get()), 3 + 6 + 9);
    assert_eq!(count(|metrics| metrics.auth_redirected.get()), 1 + 3 + 3);
    let text = litequic.metrics.registry().render_metrics();
    assert!(text.contains("litequic_route_denied_total{route=\"*/away\",by=\"auth\"} 7\n"), "{text}");
    assert!(text.contains("litequic_auth_requests_total{result=\"unusable\"} 0\n"), "{text}");
    litequic.stop().await;
}

#[tokio::test]
async fn a_server_that_lies_hangs_or_is_gone_lets_no_request_pass() {
    let (origin, auth) = (Always::new(Always::EMPTY_200).await, Decider::new().await);
    let litequic = Litequic::with_config(&guarded(origin.address, auth.address, &ALL)).await;
    let client = Client::to(&litequic).await;
    for (path, status, reason) in [
        ("/twice", 502, "http_protocol_error"),
        ("/lost", 502, "http_protocol_error"),
        ("/broken", 502, "http_protocol_error"),
        ("/unmodified", 502, "http_protocol_error"),
        ("/large", 502, "http_protocol_error"),
        ("/garbage", 502, "http_protocol_error"),
        ("/switch", 502, "http_upgrade_failed"),
        ("/close", 502, "connection_terminated"),
        ("/half", 504, "http_response_timeout"),
        ("/hang", 504, "http_response_timeout"),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        let expected = format!("litequic; error={reason}; ");
        assert!(answer.field("proxy-status").unwrap().starts_with(&expected), "{path}: {:?}", answer.fields);
        assert_eq!(answer.field("remote-user"), None);
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.auth_unusable.get()), 5);
    assert_eq!(litequic.sum(|worker| worker.proxy.auth_failed.get()), 5);
    litequic.stop().await;

    let gone = guarded(origin.address, origin::closed_port(), &["/yes"]);
    let litequic = Litequic::with_config(&gone).await;
    let answer = Client::to(&litequic).await.get("/yes").await;
    assert_eq!(answer.status, 502);
    assert!(answer.field("proxy-status").unwrap().contains("connection_refused"));
    litequic.stop().await;
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_full_queue_of_the_server_is_a_503() {
    let (origin, auth) = (Always::new(Always::EMPTY_200).await, Decider::new().await);
    let mut config = guarded(origin.address, auth.address, &ALL);
    config.timeouts.response_header = Duration::from_secs(60);
    let server = config.origins.get_mut("auth").unwrap();
    (server.max_connections, server.max_queue) = (Some(1), Some(0));
    let litequic = Litequic::with_config(&config).await;
    let (held, other) = (Client::to(&litequic).await, Client::to(&litequic).await);
    let hanging = tokio::spawn(async move { held.get("/hang").await.status });
    let open = |worker: &WorkerMetrics| worker.proxy.origin_connections_open.get();
    litequic.wait_until("the first request at the server", open, |open| open == 1).await;
    let answer = other.get("/yes").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(litequic.sum(|worker| worker.proxy.limit_origin_queue.get()), 1);
    hanging.abort();
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

/// The server decides before anything of the body is read.
#[tokio::test]
async fn an_upload_waits_for_the_decision_and_then_arrives_whole() {
    let (demo, auth) = (origin::demo().await, Script::new().await);
    let mut config = guarded(demo, auth.address, &["/echo"]);
    config.timeouts.response_header = Duration::from_secs(60);
    let litequic = Litequic::with_config(&config).await;
    let client = Client::to(&litequic).await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let decide = async {
        let mut peer = auth.accept().await;
        let head = peer.head().await;
        assert_eq!((head.field("x-forwarded-method"), head.field("content-length")), (Some("POST"), None));
        assert!(!peer.has_more(), "a body");
        assert_eq!(litequic.sum(|worker| worker.proxy.origin_requests.get()), 1, "the origin has been asked");
        peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
        peer
    };
    let (answer, _peer) = tokio::join!(client.post("/echo", body.clone()), decide);
    assert_eq!(answer.status, 200);
    assert!(answer.body == body);
    litequic.stop().await;
}

#[tokio::test]
async fn a_websocket_opens_once_the_server_admits_its_client() {
    let (echo, auth) = (tunnel::echo().await, Decider::new().await);
    let litequic = Litequic::with_config(&guarded(echo, auth.address, &["/yes"])).await;
    for over in HttpVersion::ALL {
        let (mut socket, _kept) = tunnel::websocket(&litequic, over, "/yes").await;
        socket.send(Message::text("hello")).await.unwrap();
        let answer = within("an echo", socket.next()).await.unwrap().unwrap();
        assert_eq!(answer.to_text().unwrap(), "hello", "{over:?}");
    }
    let head = auth.heads().pop().unwrap();
    assert_eq!((head.field("upgrade"), head.field("connection")), (None, None), "{head:?}");
    litequic.stop().await;
}

#[tokio::test]
async fn answers_of_litequics_own_are_behind_the_decision_too() {
    let auth = Decider::new().await;
    let text = format!(
        "origins.auth = {{ url = \"http://{}\" }}\nroutes = [\n\
         {{ path_prefix = \"/fixed\", respond = {{ body = \"fixed\" }}, auth = {{ origin = \"auth\", path = \"/yes\" }} }},\n\
         {{ path_prefix = \"/never\", respond = {{ body = \"fixed\" }}, auth = {{ origin = \"auth\", path = \"/no\" }} }},\n\
         {{ path_prefix = \"/moved\", redirect = \"/\", auth = {{ origin = \"auth\", path = \"/who\" }} }},\n\
         {{ path_prefix = \"/limited\", respond = {{ body = \"\" }}, auth = {{ origin = \"auth\", path = \"/no\" }}, \
         rate_limit = \"1/h\" }},\n]",
        auth.address
    );
    let litequic = Litequic::with_config(&configured(auth.address, &text)).await;
    let client = Client::to(&litequic).await;
    for (path, status) in [("/fixed", 200), ("/never", 403), ("/moved", 401), ("/limited", 403), ("/limited", 429)] {
        assert_eq!(client.get(path).await.status, status, "{path}");
    }
    // Who is over the limit costs the server nothing.
    assert_eq!(auth.heads().len(), 4);
    litequic.stop().await;
}
