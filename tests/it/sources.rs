//! One source cannot take a worker's slots from the others, and many clients behind one address are served while there
//! is room.
//! room.

use crate::support::{
    client::{Client, Quic},
    origin::{self, Script},
    proxy::Litequic,
    raw::{self, Raw},
    within,
};
use futures_util::future;
use litequic::config::{Config, Network};
use quinn::ConnectionError;
use std::{env, net::Ipv4Addr, time::Duration};
use tokio::{io::AsyncReadExt, net::TcpSocket, time::timeout};

/// The environment variable for the number of honest clients behind one address.
const CLIENTS: &str = "LITEQUIC_TEST_CLIENTS";
/// Without it; a multiple of [`TOGETHER`].
const FEW: usize = 200;
/// Clients that connect at the same time.
const TOGETHER: usize = 20;
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

fn limited(config: &mut Config) {
    config.sources.limited = true;
}

fn network(address: Ipv4Addr) -> Network {
    Network { address: address.into(), prefix: 32 }
}

#[tokio::test]
async fn a_source_that_holds_half_of_the_quic_connections_leaves_the_others_to_others() {
    let litequic = Litequic::start(origin::demo().await, |config| {
        limited(config);
        config.limits.max_connections = 16;
    })
    .await;
    let mut held = Vec::new();
    let refused = loop {
        match Quic::at(ATTACKER, &litequic).await {
            Ok(quic) => held.push(quic),
            Err(refused) => break refused,
        }
        assert!(held.len() < 16);
    };
    assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused:?}");
    assert_eq!(held.len(), 9, "half, and the one that makes it more");
    assert_eq!(litequic.sum(|worker| worker.quic.limit_source_connections.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.quic.limit_connections.get()), 0);
    let honest = Client::over(Quic::at(HONEST, &litequic).await.unwrap(), "localhost").await;
    assert_eq!(honest.get("/status/204").await.status, 204);
    // What the attacker gives back it may have again.
    drop(held);
    litequic.wait_until("gone", |worker| worker.quic.connections_held.get(), |held| held == 1).await;
    Quic::at(ATTACKER, &litequic).await.unwrap();
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

/// Beside an attacker elsewhere they are served still.
#[tokio::test]
async fn clients_behind_one_address_are_served_as_long_as_there_is_room_and_beside_an_attacker_if_exempt() {
    let count = env::var(CLIENTS).map_or(FEW, |clients| clients.parse().expect(CLIENTS));
    for exempt in [false, true] {
        let litequic = Litequic::start(origin::demo().await, |config| {
            limited(config);
            config.limits.max_connections = u32::try_from(2 * count).unwrap();
            if exempt {
                config.sources.exempt = vec![network(HONEST)];
            }
        })
        .await;
        // It requests more than half of the places, and gets these.
        let attackers = clients(ATTACKER, &litequic, if exempt { count + count / 5 } else { 0 }).await;
        assert_eq!(attackers.iter().any(Result::is_ok), exempt);
        let mut honest = Vec::new();
        for quic in clients(HONEST, &litequic, if exempt { count - count / 10 } else { count }).await {
            honest.push(Client::over(quic.unwrap(), "localhost").await);
        }
        for client in &honest {
            assert_eq!(client.get("/status/204").await.status, 204);
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_source_that_holds_half_of_the_tcp_connections_leaves_the_others_to_others() {
    let litequic = Litequic::start(origin::demo().await, |config| {
        limited(config);
        (config.limits.max_connections, config.limits.max_handshakes) = (16, 1000);
    })
    .await;
    let connect = async |local: Ipv4Addr| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((local, 0).into()).unwrap();
        within("a connection", socket.connect(litequic.tcp[0])).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(connect(ATTACKER).await);
    }
    litequic.wait_until("refused", |worker| worker.tcp.limit_source_connections.get(), |refused| refused == 7).await;
    let mut honest = connect(HONEST).await;
    // It stays open: its TLS handshake is waited for.
    assert!(timeout(Duration::from_millis(200), honest.read(&mut [0])).await.is_err());
    litequic.stop().await;
}

fn get(path: &str, client: &str) -> Vec<u8> {
    raw::headers(&[raw::pseudo("GET", path), vec![("x-forwarded-for", client)]].concat())
}

/// Behind a trusted proxy the client counts that the proxy names.
#[tokio::test]
async fn a_source_that_uses_all_connections_to_an_origin_and_fills_the_queue_leaves_what_becomes_free_to_others() {
    let script = Script::new().await;
    let litequic = Litequic::start(script.address, |config| {
        limited(config);
        config.trusted_proxies = vec![network(Ipv4Addr::LOCALHOST)];
        for origin in config.origins.values_mut() {
            (origin.max_connections, origin.max_queue) = (Some(8), Some(8));
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
    for _ in 0..8 {
        held.push(ask("192.0.2.1").await);
        let mut peer = script.accept().await;
        peer.head().await;
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
        let mut next = script.accept().await;
        next.head().await;
        next.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
        assert_eq!(exchange.outcome().await.status(), 204);
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.limit_origin_queue.get()), 3, "the newest three of eight");
    for mut exchange in waiting.split_off(5) {
        assert_eq!(exchange.outcome().await.status(), 503);
    }
    litequic.stop().await;
}
