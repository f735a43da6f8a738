//! Clients that stay on one server, weights and backup servers, over HTTP/1.1, HTTP/2 and HTTP/3: several real origins,
//! of which one is lost and comes back.

use crate::{
    origins::{before, origin},
    support::{prelude::*, proxy::tcp, tunnel},
};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use litequic_config::{OriginServer, Sticky};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

/// An origin that answers each request with its name, and ends as a process does, with every connection.
#[derive(Debug)]
struct Named {
    name: char,
    address: SocketAddr,
    running: Option<JoinHandle<()>>,
}

impl Named {
    async fn start(name: char) -> Self {
        let mut this = Self { name, address: (Ipv4Addr::LOCALHOST, 0).into(), running: None };
        this.revive().await;
        this
    }

    /// So many, called `a`, `b` and so on.
    async fn several<const N: usize>() -> [Self; N] {
        let mut all = Vec::new();
        for name in ('a'..).take(N) {
            all.push(Self::start(name).await);
        }
        all.try_into().unwrap()
    }

    async fn revive(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let name = self.name;
        self.running = Some(tokio::spawn(async move {
            // Those that are left end with this task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
                connections.spawn(origin::answer_heads(stream, answer));
            }
        }));
    }

    async fn kill(&mut self) {
        let running = self.running.take().unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
    }
}

/// litequic in front of `servers`, with two workers and cookies, unless `edit` changes that.
async fn sticky(servers: &[Named], edit: impl FnOnce(&mut Config)) -> Litequic {
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    before(&addresses, |config| {
        config.listen.workers = Some(2.try_into().unwrap());
        origin(config).sticky = Some(Sticky::default());
        origin(config).eject_after = Some(1);
        origin(config).eject_time = Duration::from_millis(100);
        edit(config);
    })
    .await
}

/// The server that answered, and the cookie that it set, as a client sends it back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    server: char,
    cookie: Option<String>,
}

/// Asks once with `fields`, on a connection of its own `over` an HTTP version.
async fn ask(litequic: &Litequic, over: HttpVersion, fields: &[(&str, &str)]) -> Got {
    let (status, header, body) = within("an answer", async {
        match over {
            HttpVersion::Http3 => {
                let client = Client::to(litequic).await;
                let request = fields
                    .iter()
                    .fold(client.request(Method::GET, "/"), |request, (name, value)| request.header(*name, *value));
                let answer = client.fetch(request, Bytes::new()).await;
                (answer.status, answer.fields, answer.body)
            }
            HttpVersion::Http1 | HttpVersion::Http2 => by_tcp(litequic, over, fields).await,
        }
    })
    .await;
    assert_eq!(status, 200, "{header:?}");
    let mut set = header.get_all("set-cookie").iter().map(|field| field.to_str().unwrap());
    let cookie = set.next().map(|field| {
        let (pair, attributes) = field.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
        pair.to_owned()
    });
    assert_eq!(set.next(), None);
    Got { server: char::from(body[0]), cookie }
}

async fn by_tcp(
    litequic: &Litequic,
    over: HttpVersion,
    fields: &[(&str, &str)],
) -> (http::StatusCode, HeaderMap, Vec<u8>) {
    let host = format!("localhost:{}", litequic.tcp[0].port());
    let protocol = if over == HttpVersion::Http1 { "http/1.1" } else { "h2" };
    let tls = Tls::connect(litequic.tcp[0], "localhost", tls::config(&litequic.cert_pem, &[protocol])).await.unwrap();
    let stream = TokioIo::new(tls.stream);
    let mut tasks = JoinSet::new();
    // The request reports how the connection ends.
    let response = if over == HttpVersion::Http1 {
        let request = Request::get("/").header("host", host);
        let (mut requests, connection) = http1::handshake(stream).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        requests.send_request(filled(request, fields)).await.unwrap()
    } else {
        let request = Request::get(format!("https://{host}/"));
        let (mut requests, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        requests.send_request(filled(request, fields)).await.unwrap()
    };
    let (head, body) = response.into_parts();
    (head.status, head.headers, body.collect().await.unwrap().to_bytes().to_vec())
}

fn filled(request: http::request::Builder, fields: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Empty::new()).unwrap()
}

async fn ask_with(litequic: &Litequic, over: HttpVersion, cookie: &str) -> Got {
    ask(litequic, over, &[("cookie", cookie)]).await
}

/// Sends requests without a cookie until `server` answers, and returns its cookie.
async fn cookie_of(litequic: &Litequic, over: HttpVersion, server: char) -> String {
    within("that server", async {
        loop {
            let got = ask(litequic, over, &[]).await;
            let cookie = got.cookie.expect("a cookie for a client without one");
            if got.server == server {
                break cookie;
            }
        }
    })
    .await
}

fn refused(litequic: &Litequic) -> u64 {
    litequic.sum(|worker| worker.proxy.sticky_cookies_refused.get())
}

#[tokio::test]
async fn an_affinity_cookie_holds_over_all_protocols_and_workers() {
    let servers: [Named; 3] = Named::several().await;
    let litequic = sticky(&servers, |_| {}).await;
    for over in HttpVersion::ALL {
        for server in ['a', 'b', 'c'] {
            let cookie = cookie_of(&litequic, over, server).await;
            assert!(!servers.iter().any(|server| cookie.contains(&server.address.port().to_string())), "{cookie}");
            for other in HttpVersion::ALL.into_iter().cycle().take(6) {
                let got = ask_with(&litequic, other, &format!("theme=dark; {cookie}; lang=en")).await;
                assert_eq!(got, Got { server, cookie: None }, "{over:?}, {other:?}");
            }
        }
    }
    assert_eq!(refused(&litequic), 0);
    for (refusals, over) in HttpVersion::ALL.into_iter().enumerate() {
        let forged = format!("origin_server={}", "0".repeat(32));
        let got = ask_with(&litequic, over, &forged).await;
        let given = got.cookie.expect("a cookie in its place");
        assert_eq!(ask_with(&litequic, over, &given).await, Got { server: got.server, cookie: None });
        assert_eq!(refused(&litequic), refusals as u64 + 1);
    }
    litequic.stop().await;
}

#[tokio::test]
async fn the_clients_of_a_lost_server_move_once_and_no_others_do() {
    for over in HttpVersion::ALL {
        let mut servers: [Named; 3] = Named::several().await;
        let litequic = sticky(&servers, |_| {}).await;
        let mut cookies = Vec::new();
        for server in ['a', 'b', 'c'] {
            cookies.push(cookie_of(&litequic, over, server).await);
        }
        servers[0].kill().await;
        let moved = ask_with(&litequic, over, &cookies[0]).await;
        let given = moved.cookie.expect("the cookie of the server that answered");
        assert_ne!(moved.server, 'a');
        for _ in 0..5 {
            assert_eq!(ask_with(&litequic, over, &given).await, Got { server: moved.server, cookie: None });
            assert_eq!(ask_with(&litequic, over, &cookies[1]).await, Got { server: 'b', cookie: None });
            assert_eq!(ask_with(&litequic, over, &cookies[2]).await, Got { server: 'c', cookie: None });
        }
        servers[0].revive().await;
        let again = cookie_of(&litequic, over, 'a').await;
        assert_eq!(again, cookies[0], "the same, although the server was away");
        assert_eq!(ask_with(&litequic, over, &given).await, Got { server: moved.server, cookie: None }, "{over:?}");
        litequic.stop().await;
    }
}

/// The server of each of so many users.
async fn homes(litequic: &Litequic, over: HttpVersion, field: &str, users: &[String]) -> Vec<char> {
    let mut homes = Vec::new();
    for user in users {
        let got = ask(litequic, over, &[(field, user)]).await;
        assert_eq!(got.cookie, None);
        homes.push(got.server);
    }
    homes
}

/// By a hash: `field` has one of `users`, who are spread over all servers.
async fn a_hash_keeps_clients(field: &str, users: &[String], edit: impl FnOnce(&mut Config)) {
    let mut servers: [Named; 3] = Named::several().await;
    let litequic = sticky(&servers, edit).await;
    let before = homes(&litequic, HttpVersion::Http3, field, users).await;
    assert!(['a', 'b', 'c'].iter().all(|server| before.contains(server)), "{before:?}");
    for over in [HttpVersion::Http1, HttpVersion::Http2] {
        assert_eq!(homes(&litequic, over, field, users).await, before, "{over:?}");
    }
    servers[0].kill().await;
    for over in HttpVersion::ALL {
        for (home, now) in before.iter().zip(homes(&litequic, over, field, users).await) {
            assert!(if *home == 'a' { now != 'a' } else { now == *home }, "{over:?}: {home} {now}");
        }
    }
    servers[0].revive().await;
    // Each worker finds out for itself.
    until("all clients at home", async || homes(&litequic, HttpVersion::Http3, field, users).await == before).await;
    for over in [HttpVersion::Http1, HttpVersion::Http2] {
        until("all clients at home", async || homes(&litequic, over, field, users).await == before).await;
    }
    litequic.stop().await;
}

#[tokio::test]
async fn affinity_by_header_field_returns_after_the_server_recovers() {
    let users: Vec<_> = (0..40).map(|user| format!("user-{user}")).collect();
    a_hash_keeps_clients("x-user", &users, |config| {
        origin(config).sticky = Some(Sticky::Header("x-user".parse().unwrap()));
    })
    .await;
}

#[tokio::test]
async fn affinity_by_forwarded_address_returns_after_the_server_recovers() {
    let users: Vec<_> = (0..40).map(|user| format!("192.0.2.{user}")).collect();
    a_hash_keeps_clients("x-forwarded-for", &users, |config| {
        config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 32 }];
        origin(config).sticky = Some(Sticky::Address);
    })
    .await;
}

#[tokio::test]
async fn a_server_of_three_times_the_weight_gets_three_times_the_requests() {
    let servers: [Named; 2] = Named::several().await;
    let addresses = servers.each_ref().map(|server| server.address);
    let litequic = before(&addresses, |config| {
        config.listen.workers = Some(1.try_into().unwrap());
        origin(config).servers[0].weight = 3;
    })
    .await;
    for over in HttpVersion::ALL {
        let mut counts = [0; 2];
        for _ in 0..20 {
            counts[usize::from(ask(&litequic, over, &[]).await.server == 'b')] += 1;
        }
        assert_eq!(counts, [15, 5], "{over:?}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_backup_server_serves_while_all_others_are_lost() {
    for over in HttpVersion::ALL {
        let mut servers: [Named; 3] = Named::several().await;
        let addresses = servers.each_ref().map(|server| server.address);
        let litequic = before(&addresses, |config| {
            config.listen.workers = Some(1.try_into().unwrap());
            let backup = OriginServer { backup: true, ..tcp(addresses[2]).into() };
            origin(config).servers[2] = backup;
            origin(config).eject_after = Some(1);
            origin(config).eject_time = Duration::from_millis(100);
        })
        .await;
        for _ in 0..6 {
            assert_ne!(ask(&litequic, over, &[]).await.server, 'c');
        }
        servers[0].kill().await;
        for _ in 0..6 {
            assert_eq!(ask(&litequic, over, &[]).await.server, 'b');
        }
        servers[1].kill().await;
        for _ in 0..6 {
            assert_eq!(ask(&litequic, over, &[]).await.server, 'c', "{over:?}");
        }
        servers[0].revive().await;
        until("the first one", async || ask(&litequic, over, &[]).await.server == 'a').await;
        for _ in 0..6 {
            assert_eq!(ask(&litequic, over, &[]).await.server, 'a', "{over:?}");
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_websocket_gets_the_cookie_of_its_server() {
    let servers = [tunnel::echo().await, tunnel::echo().await];
    let litequic = before(&servers, |config| origin(config).sticky = Some(Sticky::default())).await;
    for over in HttpVersion::ALL {
        let version = [("sec-websocket-version", "13")];
        let more: &[(&str, &str)] = if over == HttpVersion::Http1 { &[] } else { &version };
        let switched = tunnel::switch(&litequic, over, "/", "websocket", more).await;
        assert_eq!(switched.status, over.yes());
        assert!(switched.head.contains("origin_server="), "{over:?}: {}", switched.head);
    }
    litequic.stop().await;
}
