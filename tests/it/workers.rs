//! Several workers on one port: connections spread over them, and each stays with its own wherever its client goes.

use crate::support::prelude::*;
use futures_util::future;
use std::{
    net::{IpAddr, Ipv6Addr, UdpSocket},
    num::NonZeroU16,
};
use tokio::task::yield_now;

const WORKERS: NonZeroU16 = NonZeroU16::new(4).unwrap();

/// Bytes that a client takes ahead on a stream: a download needs its word again and again.
const SMALL_WINDOW: quinn::VarInt = quinn::VarInt::from_u32(32 * 1024);

/// Whether every worker of 4 has some of so many connections: all but once in 10^7 times.
const CONNECTIONS: usize = 64;

fn four_workers(config: &mut Config) {
    config.listen.workers = Some(WORKERS);
}

fn at(address: impl Into<IpAddr>) -> impl FnOnce(&mut Config) {
    let address = SocketAddr::new(address.into(), 0);
    move |config| {
        four_workers(config);
        config.listen.udp = vec![address];
    }
}

fn of_each(litequic: &Litequic, read: impl Fn(&WorkerMetrics) -> u64) -> Vec<u64> {
    litequic.metrics.worker_metrics().iter().map(read).collect()
}

async fn connect(litequic: &Litequic, address: SocketAddr) -> Client {
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(SMALL_WINDOW);
    Client::connect(address, &litequic.cert_pem, transport).await
}

/// A request, a download in the middle of which the client's port changes, a request.
async fn go_on_elsewhere(client: &Client) {
    assert_eq!(client.get("/status/204").await.status, 204);

    let mut download = client.begin_get("/bytes/200k").await;
    assert_eq!(client::header(&mut download).await.status(), 200);
    let local = client.quic.endpoint.local_addr().unwrap();
    let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).unwrap();
    client.quic.endpoint.rebind(socket).unwrap();
    assert_ne!(client.quic.endpoint.local_addr().unwrap(), local);
    let body = client::body(&mut download).await;
    assert_eq!(body.len(), 200_000);
    assert!(body.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i % 251));

    assert_eq!(client.get("/status/204").await.status, 204);
}

/// Has `CONNECTIONS` clients of `address` go on elsewhere, and checks that none of their requests came to another
/// worker.
async fn all_go_on_elsewhere(litequic: &Litequic, address: SocketAddr) {
    let clients = future::join_all((0..CONNECTIONS).map(|_| connect(litequic, address))).await;
    let all = CONNECTIONS as u64;
    litequic.wait_until("connections", |worker| worker.http3.connections.get(), |count| count == all).await;
    let connections = of_each(litequic, |worker| worker.http3.connections.get());
    assert!(connections.iter().all(|count| *count > 0), "{connections:?}");

    // A few at a time: together they would only fill the sockets' buffers.
    for some in clients.chunks(8) {
        future::join_all(some.iter().map(go_on_elsewhere)).await;
    }
    let requests = of_each(litequic, |worker| worker.http3.requests.get());
    let expected: Vec<u64> = connections.iter().map(|count| count * 3).collect();
    assert_eq!(requests, expected);
    assert_eq!(of_each(litequic, |worker| worker.http3.connections.get()), connections);
    assert_eq!(of_each(litequic, |worker| worker.http3.connections_open.get()), connections);
}

#[tokio::test]
async fn connections_spread_over_all_workers_and_stay_when_their_client_moves() {
    let litequic = Litequic::demo(at(Ipv4Addr::LOCALHOST)).await;
    all_go_on_elsewhere(&litequic, litequic.address).await;
    litequic.stop().await;
}

#[tokio::test]
async fn the_same_holds_over_ipv6() {
    let litequic = Litequic::demo(at(Ipv6Addr::LOCALHOST)).await;
    all_go_on_elsewhere(&litequic, litequic.address).await;
    litequic.stop().await;
}

#[tokio::test]
async fn the_same_holds_for_ipv4_on_an_ipv6_socket() {
    let litequic = Litequic::demo(at(Ipv6Addr::UNSPECIFIED)).await;
    all_go_on_elsewhere(&litequic, (Ipv4Addr::LOCALHOST, litequic.address.port()).into()).await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_ipv6_socket_serves_both_and_shows_ipv4_plainly() {
    let litequic = Litequic::demo(at(Ipv6Addr::UNSPECIFIED)).await;
    let table = [
        (IpAddr::from(Ipv4Addr::LOCALHOST), "x-forwarded-for: 127.0.0.1\n"),
        (IpAddr::from(Ipv6Addr::LOCALHOST), "x-forwarded-for: ::1\n"),
    ];
    for (ip, expected) in table {
        let client = connect(&litequic, SocketAddr::new(ip, litequic.address.port())).await;
        let answer = client.get("/headers").await;
        assert!(answer.text().contains(expected), "{}", answer.text());
        assert!(!answer.text().contains("ffff"), "{}", answer.text());
    }
    litequic.stop().await;
}

#[tokio::test]
async fn two_addresses_are_served_at_once() {
    let litequic = Litequic::demo(|config| {
        four_workers(config);
        config.listen.udp = vec![(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
    })
    .await;
    let [one, other] = litequic.addresses[..] else { panic!("{:?}", litequic.addresses) };
    assert!(one.is_ipv4() && other.is_ipv6());
    for address in [one, other, one, other] {
        go_on_elsewhere(&connect(&litequic, address).await).await;
    }
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 4);
    litequic.stop().await;
}

#[tokio::test]
async fn clients_that_must_prove_their_address_get_in_on_every_worker() {
    let litequic = Litequic::demo(|config| {
        four_workers(config);
        config.limits.retry_handshakes = 0;
    })
    .await;
    let clients = future::join_all((0..CONNECTIONS).map(|_| connect(&litequic, litequic.address))).await;
    for client in &clients {
        assert_eq!(client.get("/status/204").await.status, 204);
    }
    let connections = of_each(&litequic, |worker| worker.http3.connections.get());
    assert_eq!(connections.iter().sum::<u64>(), CONNECTIONS as u64);
    assert!(connections.iter().all(|count| *count > 0), "{connections:?}");
    let retries = of_each(&litequic, |worker| worker.quic.retries.get());
    // A client whose Retry was slow tries again.
    assert!(retries.iter().zip(&connections).all(|(retries, connections)| retries >= connections), "{retries:?}");
    litequic.stop().await;
}

/// What looks like a packet of QUIC, and is none: every kind of first byte, any worker's connection ID.
fn forged() -> Vec<u8> {
    let mut datagram: Vec<u8> = (0..rand::random_range(1..1400)).map(|_| rand::random()).collect();
    match rand::random_range(0..3) {
        0 => {}
        // A short header with an ID as litequic's are: first byte, generation, worker.
        1 => datagram.splice(..datagram.len().min(4), [0x41, 0xef, 0, rand::random_range(0..5)]).for_each(drop),
        // A long header of version 1.
        _ => {
            let kind = 0xc0 | rand::random_range(0..4) << 4;
            datagram.splice(..datagram.len().min(6), [kind, 0, 0, 0, 1, 16]).for_each(drop);
        }
    }
    datagram
}

#[tokio::test]
async fn forged_datagrams_disturb_nobody() {
    let litequic = Litequic::demo(four_workers).await;
    let clients = future::join_all((0..8).map(|_| connect(&litequic, litequic.address))).await;
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    noise.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let storm = async {
        loop {
            for _ in 0..32 {
                // An error means that a buffer is full.
                sent += u32::from(noise.send_to(&forged(), litequic.address).is_ok());
            }
            yield_now().await;
        }
    };
    let downloads = future::join_all(clients.iter().map(async |client| {
        let answer = client.get("/bytes/1M").await;
        assert_eq!(answer.body.len(), 1_000_000);
    }));
    tokio::select! {
        _ = within("the downloads", downloads) => {}
        () = storm => {}
    }
    assert!(sent > 500, "{sent}");
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 9);
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 0);
    litequic.stop().await;
}
