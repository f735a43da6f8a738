//! What clients share is divided between their sources: one may have all of it, and gives way once another one comes.

use crate::support::prelude::*;
use futures_util::future;
use quinn::ConnectionError;
use std::num::NonZeroU16;
use tokio::net::TcpSocket;

/// The environment variable for the number of honest clients behind one address.
const CLIENTS: &str = "LITEQUIC_TEST_CLIENTS";
/// Without it; a multiple of [`TOGETHER`].
const FEW: usize = 200;
/// Clients that connect at the same time.
const TOGETHER: usize = 20;
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Connections of a worker in these tests.
const MOST: u32 = 32;
/// A connection is idle once it had no request for a second: nothing but time brings that about.
const IDLE: Duration = Duration::from_millis(1_100);

fn limited(config: &mut Config) {
    config.sources.exempt.clear();
}

fn network(address: Ipv4Addr) -> Network {
    Network { address: address.into(), prefix: 32 }
}

/// litequic before the demo's origin, with `workers` of [`MOST`] connections each.
async fn small(workers: u16) -> Litequic {
    Litequic::demo(|config| {
        limited(config);
        config.listen.workers = Some(NonZeroU16::new(workers).unwrap());
        config.limits.max_connections = MOST;
    })
    .await
}

async fn dial(local: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((local, 0).into()).unwrap();
    within("a connection", socket.connect(to)).await.unwrap()
}

async fn tls(local: Ipv4Addr, litequic: &Litequic, protocol: &str) -> std::io::Result<Tls> {
    let config = tls::config(&litequic.cert_pem, &[protocol]);
    Tls::over(dial(local, litequic.tcp[0]).await, "localhost", config).await
}

/// A request over each protocol, from `local`: whether it is answered.
async fn served(local: Ipv4Addr, litequic: &Litequic) -> [bool; 3] {
    let http1 = async {
        let Ok(mut tls) = tls(local, litequic, "http/1.1").await else { return false };
        tls.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        tls.until("\r\n\r\n").await.starts_with("HTTP/1.1 204")
    };
    let http2 = async {
        let Ok(tls) = tls(local, litequic, "h2").await else { return false };
        let mut client = Http2::over(tls, &[]).await;
        client.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::get(&[])).await;
        client.find(&[http2::HEADERS]).await.is_some_and(|answer| http2::status(&answer) == 200)
    };
    let http3 = async {
        let Ok(quic) = Quic::at(local, litequic).await else { return false };
        Client::over(quic, "localhost").await.get("/status/204").await.status == 204
    };
    [http1.await, http2.await, http3.await]
}

/// Idle connections over HTTP/2 that have had a request each.
async fn idle_http2(litequic: &Litequic, count: u32) -> Vec<Http2> {
    let mut idle = Vec::new();
    for _ in 0..count {
        let mut client = Http2::over(tls(ATTACKER, litequic, "h2").await.unwrap(), &[]).await;
        client.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::get(&[])).await;
        assert!(client.find(&[http2::HEADERS]).await.is_some());
        idle.push(client);
    }
    idle
}

#[tokio::test]
async fn the_largest_sources_idle_connection_is_evicted_over_each_protocol() {
    let litequic = small(1).await;
    let mut over_tcp = idle_http2(&litequic, MOST).await;
    let mut over_quic = Vec::new();
    for _ in 0..MOST {
        let client = Client::over(Quic::at(ATTACKER, &litequic).await.unwrap(), "localhost").await;
        assert_eq!(client.get("/status/204").await.status, 204);
        over_quic.push(client);
    }
    assert_eq!(litequic.sum(|worker| worker.http3.connections_open.get()), u64::from(MOST));
    sleep(IDLE).await;
    for _ in 0..3 {
        assert_eq!(served(HONEST, &litequic).await, [true; 3]);
    }
    // The longest idle one learns of it by GOAWAY, and no request of it is lost.
    assert!(over_tcp[0].find(&[http2::GOAWAY]).await.is_some_and(|goaway| goaway.code() == 0));
    let first = within("the end of the longest idle", over_quic.remove(0).ended()).await;
    assert!(format!("{first:?}").contains("H3_NO_ERROR") || format!("{first:?}").contains("256"), "{first:?}");
    litequic.wait_until("evicted", |worker| worker.tcp.tcp_closed_evicted.get(), |evicted| evicted > 0).await;
    assert!(litequic.sum(|worker| worker.http3.evicted_idle.get()) > 0);
    assert_eq!(litequic.sum(|worker| worker.http3.evicted_in_use.get()), 0);
    assert_eq!(litequic.sum(|worker| worker.tcp.limit_connections.get() + worker.quic.limit_connections.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn an_idle_connection_over_http_1_is_closed_between_requests() {
    let litequic = small(1).await;
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut client = tls(ATTACKER, &litequic, "http/1.1").await.unwrap();
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 204"));
        held.push(client);
    }
    sleep(IDLE).await;
    assert!(served(HONEST, &litequic).await[0]);
    // With TLS' close_notify: an end, not an error.
    assert_eq!(within("an end", held[0].stream.read(&mut [0])).await.unwrap(), 0);
    litequic.wait_until("evicted", |worker| worker.tcp.tcp_closed_evicted.get(), |evicted| evicted > 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn one_source_has_all_connections_and_its_newest_is_refused_only_beyond() {
    let litequic = small(1).await;
    let mut over_quic = Vec::new();
    for _ in 0..MOST {
        over_quic.push(Quic::at(ATTACKER, &litequic).await.unwrap());
    }
    let refused = Quic::at(ATTACKER, &litequic).await.err().unwrap();
    assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused:?}");
    let mut over_tcp = Vec::new();
    for _ in 0..MOST {
        over_tcp.push(dial(ATTACKER, litequic.tcp[0]).await);
    }
    litequic.wait_until("open", |worker| worker.tcp.tcp_connections_open.get(), |open| open == u64::from(MOST)).await;
    let mut refused = dial(ATTACKER, litequic.tcp[0]).await;
    assert!(within("an end", refused.read(&mut [0])).await.is_ok_and(|count| count == 0));
    assert_eq!(litequic.sum(|worker| worker.quic.limit_connections.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.limit_connections.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_handshakes_evicted.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn silent_requests_of_one_source_give_way_to_another() {
    for workers in [1, 2, 4] {
        let litequic = small(workers).await;
        let mut held = Vec::new();
        // Connections are spread over the workers by their addresses: twice as many as all have fill each.
        for _ in 0..2 * MOST * u32::from(workers) {
            if let Ok(mut client) = tls(ATTACKER, &litequic, "http/1.1").await {
                // A request whose header never ends is not one: this waits for its body.
                client.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n").await;
                held.push(client);
            }
        }
        let full = u64::from(MOST) * u64::from(workers);
        litequic.wait_until("open", |worker| worker.tcp.tcp_connections_open.get(), |open| open == full).await;
        for last in 3..8 {
            let honest = Ipv4Addr::new(127, 0, 0, last);
            assert_eq!(served(honest, &litequic).await, [true; 3], "{workers} workers, from {honest}");
        }
        litequic.wait_until("evicted", |worker| worker.tcp.tcp_closed_evicted.get(), |evicted| evicted > 0).await;
        assert_eq!(litequic.sum(|worker| worker.shared.limit_resets.get()), 0);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn silent_tls_handshakes_of_five_sources_give_way_to_another() {
    let litequic = Litequic::demo(|config| {
        limited(config);
        (config.limits.max_connections, config.limits.max_handshakes) = (1_000, 20);
    })
    .await;
    let mut held = Vec::new();
    for nth in 0..200_u8 {
        let mut silent = dial(Ipv4Addr::new(127, 0, 0, 10 + nth % 5), litequic.tcp[0]).await;
        // A ClientHello that does not end.
        silent.write_all(&[22, 3, 1, 1, 0]).await.unwrap();
        held.push(silent);
    }
    // Twenty have begun, and the others wait.
    litequic.wait_until("open", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 200).await;
    for last in 100..110 {
        let [http1, http2, _] = served(Ipv4Addr::new(127, 0, 0, last), &litequic).await;
        assert!(http1 && http2, "from 127.0.0.{last}");
    }
    assert!(litequic.sum(|worker| worker.tcp.tcp_handshakes_evicted.get()) > 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_counts_for_the_client_that_its_proxy_header_names() {
    let litequic = Litequic::demo(|config| {
        limited(config);
        config.limits.max_connections = 8;
        config.listen.proxy_protocol_from = vec![network(Ipv4Addr::LOCALHOST)];
    })
    .await;
    let connect = async |client: &str| {
        let mut stream = dial(Ipv4Addr::LOCALHOST, litequic.tcp[0]).await;
        stream.write_all(format!("PROXY TCP4 {client} 127.0.0.1 1 443\r\n").as_bytes()).await.unwrap();
        Tls::over(stream, "localhost", tls::config(&litequic.cert_pem, &["http/1.1"])).await
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(connect("192.0.2.1").await.unwrap());
    }
    litequic.wait_until("open", |worker| worker.tcp.tcp_connections_h1.get(), |open| open == 8).await;
    let mut honest = connect("198.51.100.1").await.unwrap();
    honest.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(honest.until("\r\n\r\n").await.starts_with("HTTP/1.1 204"));
    litequic.wait_until("evicted", |worker| worker.tcp.tcp_closed_evicted.get(), |evicted| evicted == 1).await;
    litequic.stop().await;
}

/// As many from `local` as make `count`.
async fn clients(local: Ipv4Addr, litequic: &Litequic, count: usize) -> Vec<Result<Quic, ConnectionError>> {
    let mut clients = Vec::new();
    for _ in 0..count.div_ceil(TOGETHER) {
        clients.extend(future::join_all((0..TOGETHER).map(|_| Quic::at(local, litequic))).await);
    }
    clients
}

/// An attacker elsewhere that asks for all connections leaves them theirs.
#[tokio::test]
async fn clients_behind_one_address_are_served_beside_an_attacker() {
    let count = env::var(CLIENTS).map_or(FEW, |clients| clients.parse().expect(CLIENTS));
    for attacked in [false, true] {
        let litequic = Litequic::demo(|config| {
            limited(config);
            config.limits.max_connections = u32::try_from(2 * count).unwrap();
        })
        .await;
        let attackers = clients(ATTACKER, &litequic, if attacked { 3 * count } else { 0 }).await;
        assert_eq!(attackers.iter().any(Result::is_ok), attacked);
        sleep(if attacked { IDLE } else { Duration::ZERO }).await;
        let mut honest = Vec::new();
        for _ in 0..(count - count / 10) / TOGETHER {
            // Those that give way are known to QUIC for some round trips longer: there is a sixteenth for them.
            let has_room = |held| held <= 2 * count as u64;
            litequic.wait_until("room", |worker| worker.quic.connections_held.get(), has_room).await;
            for quic in clients(HONEST, &litequic, TOGETHER).await {
                honest.push(Client::over(quic.unwrap(), "localhost").await);
            }
        }
        for client in &honest {
            assert_eq!(client.get("/status/204").await.status, 204);
        }
        litequic.stop().await;
    }
}

fn get(path: &str, client: &str) -> Vec<u8> {
    raw::headers(&[raw::pseudo("GET", path), vec![("x-forwarded-for", client)]].concat())
}

/// Behind a trusted proxy the client counts that the proxy names.
#[tokio::test]
async fn a_source_that_fills_pool_and_queue_yields_freed_connections() {
    let (script, litequic) = Script::behind_litequic(|config| {
        limited(config);
        config.trusted_proxies = vec![network(Ipv4Addr::LOCALHOST)];
        for origin in config.origins.values_mut() {
            // Fewer than eight: there is no reserve for newcomers.
            (origin.max_connections, origin.max_queue) = (Some(7), Some(8));
        }
    })
    .await;
    let client = Raw::to(&litequic).await;
    let ask = async |of: &str| {
        let mut exchange = client.open(&get("/", of)).await;
        exchange.finish();
        exchange
    };
    let (mut held, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        held.push(ask("192.0.2.1").await);
        let peer = script.accept_request().await;
        peers.push(peer);
    }
    let mut waiting = Vec::new();
    for queued in 1..=8 {
        waiting.push(ask("192.0.2.1").await);
        litequic
            .wait_until("in the queue", |worker| worker.proxy.limit_origin_connections.get(), |count| count == queued)
            .await;
    }
    let mut honest = Vec::new();
    for (of, queued) in ["2001:db8::1", "198.51.100.3", "192.0.2.2"].into_iter().zip(9..) {
        honest.push(ask(of).await);
        litequic
            .wait_until("in the queue", |worker| worker.proxy.limit_origin_connections.get(), |count| count == queued)
            .await;
    }
    for (mut exchange, peer) in honest.into_iter().zip(&mut peers) {
        peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
        let mut next = script.accept_request().await;
        next.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
        assert_eq!(exchange.outcome().await.status(), 204);
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.limit_origin_queue.get()), 3, "the newest three of eight");
    for mut exchange in waiting.split_off(5) {
        assert_eq!(exchange.outcome().await.status(), 503);
    }
    litequic.stop().await;
}
