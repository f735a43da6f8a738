//! The network's faults: whatever a link does to datagrams, what is transferred stays what it is, and a client that
//! moves is served on.

use crate::support::{
    link::{Counts, Which},
    prelude::*,
};
use bytes::Buf;
use futures_util::future;
use quinn::crypto::rustls::QuicClientConfig;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a transfer: a few thousand datagrams.
const SIZE: usize = 2_000_000;
/// For a transfer over a bad link, in a debug build beside others.
const PATIENCE: Duration = Duration::from_secs(45);
/// Datagrams each way within which a handshake is done: what a test of transfers spares.
const HANDSHAKE: u64 = 20;

/// What `/bytes/N` answers.
fn pattern(size: usize) -> Vec<u8> {
    (0..=250).cycle().take(size).collect()
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// A client of `litequic` over `link`.
async fn connect(litequic: &Litequic, link: &Link) -> Client {
    Client::over(handshake(litequic, link).await, "localhost").await
}

async fn handshake(litequic: &Litequic, link: &Link) -> Quic {
    Quic::connect(link.address, "localhost", &litequic.cert_pem, quinn::TransportConfig::default()).await
}

/// A client that will move.
async fn connect_to_move(litequic: &Litequic, link: &Link) -> Client {
    let transport = client::transport_of_a_client_that_moves();
    Client::connect(link.address, &litequic.cert_pem, transport).await
}

async fn download(client: &Client) {
    let answer = client.get("/bytes/2M").await;
    assert_eq!(answer.body.len(), SIZE);
    assert_eq!(digest(&answer.body), digest(&pattern(SIZE)));
}

async fn upload(client: &Client) {
    let body = pattern(SIZE);
    let expected = format!("{SIZE} {}\n", digest(&body));
    let mut stream = client.open(client.request(Method::POST, "/sink")).await;
    for chunk in body.chunks(64 * 1024) {
        within("flow control", stream.send_data(chunk.to_vec().into())).await.unwrap();
    }
    within("the upload's end", stream.finish()).await.unwrap();
    assert_eq!(client::answer(&mut stream).await.text(), expected);
}

async fn small_requests(client: &Client) {
    for _ in 0..10 {
        assert_eq!(client.get("/bytes/17").await.body, pattern(17));
    }
}

fn chance(of: impl FnOnce(&mut Way)) -> Way {
    let mut way = Way { spare: HANDSHAKE, ..Way::default() };
    of(&mut way);
    way
}

/// Transfers both ways with small requests beside them, over a link that is `way` in both directions; `count` is what
/// it must have done.
async fn transfer_over(way: Way, count: fn(&Counts) -> u64) {
    let litequic = Litequic::demo(|_| {}).await;
    let link = Link::between(litequic.address, Faults::both(way));
    let client = connect(&litequic, &link).await;
    let all = future::join3(download(&client), upload(&client), small_requests(&client));
    timeout(PATIENCE, all).await.expect("transfers over a bad link");
    let (up, down) = (count(link.up()), count(link.down()));
    assert!(up > 0 && down > 0, "{up} faults up, {down} down: {:?}", (link.up(), link.down()));
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_loss_of_one_percent_changes_nothing_of_what_is_transferred() {
    transfer_over(chance(|way| way.lose = Which::Chance(0.01)), |counts| counts.lost.load(Relaxed)).await;
}

#[tokio::test]
async fn a_loss_of_ten_percent_changes_nothing_of_what_is_transferred() {
    transfer_over(chance(|way| way.lose = Which::Chance(0.1)), |counts| counts.lost.load(Relaxed)).await;
}

#[tokio::test]
async fn reordering_changes_nothing_of_what_is_transferred() {
    let way = chance(|way| {
        way.hold = Which::Chance(0.1);
        way.hold_for = 5;
    });
    transfer_over(way, |counts| counts.held.load(Relaxed)).await;
}

#[tokio::test]
async fn duplicates_change_nothing_of_what_is_transferred() {
    transfer_over(chance(|way| way.duplicate = Which::Chance(0.2)), |counts| counts.duplicated.load(Relaxed)).await;
}

#[tokio::test]
async fn corruption_changes_nothing_of_what_is_transferred() {
    transfer_over(chance(|way| way.corrupt = Which::Chance(0.03)), |counts| counts.corrupted.load(Relaxed)).await;
}

#[tokio::test]
async fn transfers_survive_all_link_faults_on_a_slow_link() {
    let way = chance(|way| {
        way.lose = Which::Chance(0.02);
        way.duplicate = Which::Chance(0.05);
        way.corrupt = Which::Chance(0.01);
        way.hold = Which::Chance(0.05);
        way.hold_for = 4;
        way.delay = Duration::from_millis(5);
        way.rate = Some(4_000_000);
    });
    let least = |counts: &Counts| {
        let all = [&counts.lost, &counts.duplicated, &counts.corrupted, &counts.held];
        all.map(|counter| counter.load(Relaxed)).into_iter().min().unwrap_or_default()
    };
    transfer_over(way, least).await;
}

/// Downloads, and changes the client's port when half of it has come.
async fn move_within_a_download(client: &Client, link: &Link) {
    let mut stream = client.open(client.request(Method::GET, "/bytes/2M")).await;
    within("the request's end", stream.finish()).await.unwrap();
    assert_eq!(client::header(&mut stream).await.status(), 200);
    let mut body = Vec::new();
    while let Some(mut chunk) = within("the body", stream.recv_data()).await.unwrap() {
        let before = body.len();
        body.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
        if before < SIZE / 2 && body.len() >= SIZE / 2 {
            link.rebind();
        }
    }
    assert_eq!(digest(&body), digest(&pattern(SIZE)));
}

/// Uploads, and changes the client's port when half of it has gone.
async fn move_within_an_upload(client: &Client, link: &Link) {
    let body = pattern(SIZE);
    let expected = format!("{SIZE} {}\n", digest(&body));
    let mut stream = client.open(client.request(Method::POST, "/sink")).await;
    let mut sent = 0;
    for chunk in body.chunks(50_000) {
        within("flow control", stream.send_data(chunk.to_vec().into())).await.unwrap();
        sent += chunk.len();
        if sent == SIZE / 2 {
            link.rebind();
        }
    }
    within("the upload's end", stream.finish()).await.unwrap();
    assert_eq!(client::answer(&mut stream).await.text(), expected);
}

#[tokio::test]
async fn nat_rebinding_does_not_interrupt_downloads_or_uploads() {
    let litequic = Litequic::demo(|_| {}).await;
    let link = Link::between(litequic.address, Faults::default());
    let client = connect_to_move(&litequic, &link).await;
    for _ in 0..2 {
        timeout(PATIENCE, move_within_a_download(&client, &link)).await.unwrap();
        timeout(PATIENCE, move_within_an_upload(&client, &link)).await.unwrap();
    }
    assert_eq!(link.moves(), 4);
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn the_origin_is_told_the_address_to_which_a_client_has_moved() {
    let litequic = Litequic::demo(|_| {}).await;
    let link = Link::between(litequic.address, Faults::default());
    let client = connect_to_move(&litequic, &link).await;
    let forwarded = async || client.get("/headers").await.text().to_owned();
    assert!(forwarded().await.contains("x-forwarded-for: 127.0.0.1\n"));
    link.rebind_to(Ipv4Addr::new(127, 0, 0, 2));
    // The first request from there may come before the new path is validated.
    within("the new address", async { while !forwarded().await.contains("x-forwarded-for: 127.0.0.2\n") {} }).await;
    // Back where it was proved to be before.
    link.rebind_to(Ipv4Addr::LOCALHOST);
    within("the old address", async { while !forwarded().await.contains("x-forwarded-for: 127.0.0.1\n") {} }).await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_unvalidated_address_is_neither_reported_nor_trusted() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        config.trusted_proxies = vec![Network { address: [127, 0, 0, 2].into(), prefix: 32 }];
    })
    .await;
    let link = Link::between(litequic.address, Faults::default());
    let client = connect(&litequic, &link).await;
    // Nothing comes back any more, as for an attacker that forges a source address; what was sent arrives.
    link.deafen(true);
    link.rebind_to(Ipv4Addr::new(127, 0, 0, 2));
    until("the move", async || link.moves() != 0).await;
    let request = client.request(Method::GET, "/").header("x-forwarded-for", "192.0.2.1");
    let mut stream = client.open(request).await;
    stream.finish().await.unwrap();
    let head = origin.accept().await.head().await;
    assert_eq!(head.field("x-forwarded-for"), Some("127.0.0.1"));
    litequic.stop().await;
}

/// A path of IPv4 with an MTU of 1340 bytes, as through two tunnels, which reports nothing (no ICMP).
#[tokio::test]
async fn packets_are_no_larger_than_the_configured_mtu_both_ways() {
    const LONGEST: u64 = 1340 - 28;
    for (max_mtu, probes_are_lost) in [(1340, false), (1500, true)] {
        let litequic = Litequic::start(origin::demo().await, |config| config.litequic.max_mtu = max_mtu).await;
        let way = Way { max_length: usize::try_from(LONGEST).unwrap(), ..Way::default() };
        let link = Link::between(litequic.address, Faults::both(way));
        let client = connect(&litequic, &link).await;
        timeout(PATIENCE, future::join(download(&client), upload(&client))).await.expect("transfers");
        let [up, down] = [link.up(), link.down()].map(|counts| counts.longest.load(Relaxed));
        if probes_are_lost {
            assert!(up > LONGEST && down > LONGEST, "{up} bytes up, {down} down");
            litequic.wait_until("lost probes", |worker| worker.quic.mtu_probes_lost.get(), |lost| lost > 0).await;
        } else {
            assert!(up <= LONGEST && down == LONGEST, "{up} bytes up, {down} down");
            assert_eq!(litequic.sum(|worker| worker.quic.mtu_probes_lost.get()), 0);
            assert_eq!(link.up().lost.load(Relaxed) + link.down().lost.load(Relaxed), 0);
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_silence_shorter_than_the_idle_timeout_ends_nothing() {
    let idle = Duration::from_secs(3);
    let litequic = Litequic::demo(|config| config.timeouts.idle = idle).await;
    let link = Link::between(litequic.address, Faults::default());
    let client = connect(&litequic, &link).await;
    small_requests(&client).await;
    link.cut(true);
    sleep(idle / 2).await; // the silence itself
    link.cut(false);
    small_requests(&client).await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_behind_a_dead_link_times_out_and_cancels_its_request() {
    let origin = Script::new().await;
    let idle = Duration::from_millis(500);
    let litequic = Litequic::start(origin.address, |config| config.timeouts.idle = idle).await;
    let link = Link::between(litequic.address, Faults::default());
    let client = connect(&litequic, &link).await;
    let _stream = client.begin_get("/").await;
    let mut peer = origin.accept_request().await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections_open.get()), 1);
    link.cut(true);
    assert_eq!(peer.rest().await, "");
    litequic.wait_until("connections_open = 0", |worker| worker.http3.connections_open.get(), |open| open == 0).await;
    litequic.wait_until("connections_held = 0", |worker| worker.quic.connections_held.get(), |held| held == 0).await;
    litequic.stop_when_idle().await;
}

fn these(numbers: &[u64]) -> Which {
    Which::These(numbers.to_vec())
}

fn losing(up: &[u64], down: &[u64]) -> Faults {
    let way = |numbers| Way { lose: these(numbers), ..Way::default() };
    Faults { up: way(up), down: way(down), seed: 1 }
}

/// Handshakes and one request, each over a link with faults of its own, at the same time.
async fn handshakes_over(litequic: &Litequic, table: &[(&str, Faults)]) {
    future::join_all(table.iter().map(async |(what, faults)| {
        let link = Link::between(litequic.address, faults.clone());
        let client = connect(litequic, &link).await;
        assert_eq!(client.get("/status/204").await.status, 204, "{what}");
        let befell = |counts: &Counts| {
            let all = [&counts.lost, &counts.duplicated, &counts.held, &counts.corrupted];
            all.map(|counter| counter.load(Relaxed)).iter().sum::<u64>()
        };
        assert!(befell(link.up()) + befell(link.down()) > 0, "{what}: nothing befell");
    }))
    .await;
    // One each: nothing of a handshake became a second connection.
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), table.len() as u64);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
}

#[tokio::test]
async fn a_handshake_survives_lost_doubled_and_reordered_flights() {
    let litequic = Litequic::demo(|_| {}).await;
    let doubled = Way { duplicate: these(&[0, 1, 2, 3]), ..Way::default() };
    let reordered = Way { hold: these(&[0, 2]), ..Way::default() };
    let corrupted = Way { corrupt: these(&[0, 1]), ..Way::default() };
    let table = [
        ("the client's first datagram is lost", losing(&[0], &[])),
        ("the client's first flight is lost", losing(&[0, 1], &[])),
        ("the server's first datagram is lost", losing(&[], &[0])),
        ("the server's first flight is lost", losing(&[], &[0, 1, 2])),
        ("the client's second flight is lost", losing(&[2, 3], &[])),
        ("both lose their first", losing(&[0], &[0])),
        ("Initials are doubled", Faults { up: doubled.clone(), ..Faults::default() }),
        ("everything is doubled", Faults::both(doubled)),
        ("the server's flight is reordered", Faults { down: reordered.clone(), ..Faults::default() }),
        ("all flights are reordered", Faults::both(reordered)),
        ("the first ones are corrupted", Faults::both(corrupted)),
    ];
    handshakes_over(&litequic, &table).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_handshake_with_a_retry_survives_losses() {
    let litequic = Litequic::demo(|config| config.limits.retry_handshakes = 0).await;
    let doubled = Way { duplicate: these(&[0, 1, 2, 3]), ..Way::default() };
    let table = [
        ("the client's first datagram is lost", losing(&[0], &[])),
        ("the Retry is lost", losing(&[], &[0])),
        ("the Initials with the token are lost", losing(&[2, 3], &[])),
        ("the server's first flight is lost", losing(&[], &[1, 2, 3])),
        ("everything is doubled", Faults::both(doubled)),
    ];
    handshakes_over(&litequic, &table).await;
    assert!(litequic.sum(|worker| worker.quic.retries.get()) >= table.len() as u64);
    litequic.stop().await;
}

/// Connects with a ClientHello of two datagrams.
async fn connect_with_a_large_hello(litequic: &Litequic, address: SocketAddr) -> Client {
    let mut tls = client::tls_config(&litequic.cert_pem);
    tls.alpn_protocols = (0..60).map(|number| format!("a-protocol-of-many-{number:04}").into_bytes()).collect();
    tls.alpn_protocols.push(b"h3".to_vec());
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    Client::over(Quic::with_config(address, "localhost", config).await.unwrap(), "localhost").await
}

#[tokio::test]
async fn a_client_hello_of_two_datagrams_survives_reordering_and_loss() {
    let litequic = Litequic::demo(|_| {}).await;
    let up = |way| Faults { up: way, ..Faults::default() };
    let table = [
        ("in order", Faults::default()),
        ("the other way round", up(Way { hold: these(&[0]), ..Way::default() })),
        ("the first one lost", up(Way { lose: these(&[0]), ..Way::default() })),
        ("the second one lost", up(Way { lose: these(&[1]), ..Way::default() })),
        ("both doubled", up(Way { duplicate: these(&[0, 1]), ..Way::default() })),
    ];
    future::join_all(table.iter().map(async |(what, faults)| {
        let link = Link::between(litequic.address, faults.clone());
        let client = connect_with_a_large_hello(&litequic, link.address).await;
        assert_eq!(client.get("/status/204").await.status, 204, "{what}");
    }))
    .await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), table.len() as u64);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_hello_of_two_datagrams_is_taken_after_a_retry() {
    let litequic = Litequic::demo(|config| config.limits.retry_handshakes = 0).await;
    for hold in [these(&[]), these(&[0]), these(&[2])] {
        let link = Link::between(litequic.address, Faults { up: Way { hold, ..Way::default() }, ..Faults::default() });
        let client = connect_with_a_large_hello(&litequic, link.address).await;
        assert_eq!(client.get("/status/204").await.status, 204);
    }
    litequic.stop().await;
}
