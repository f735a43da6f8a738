//! The PROXY protocol before each datagram of a load balancer.

use super::{configured, started};
use crate::support::{
    balancer::{Balancer, proxy_header as header},
    client::Quic,
    needs::{program, skip_everywhere},
    ports::free_udp_port,
    prelude::*,
    until,
};
use std::num::NonZeroU16;
use tokio::net::UdpSocket;

/// The balancer is one address, and the clients are others.
const EVERY: &str = "listen.proxy_protocol_from = [\"127.0.0.1\"]\nlisten.proxy_protocol_udp = \"every\"";
const FIRST: &str = "listen.proxy_protocol_from = [\"127.0.0.1\"]\nlisten.proxy_protocol_udp = \"first:1m\"";
/// The clients' address.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const OTHER_CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);

async fn through(balancer: &Balancer, local: Ipv4Addr, litequic: &Litequic) -> Client {
    let quic = Quic::from(local, balancer.address, &litequic.cert_pem).await.unwrap();
    Client::over(quic, "localhost").await
}

fn forwarded_for(origin: &Always) -> String {
    let seen = origin.seen().to_ascii_lowercase();
    seen.lines().rev().find_map(|line| line.strip_prefix("x-forwarded-for: ")).unwrap_or_default().to_owned()
}

/// Headers read, refused and forged.
fn counts_of(worker: &WorkerMetrics) -> [u64; 3] {
    let quic = &worker.quic;
    [&quic.udp_proxy_headers_read, &quic.udp_proxy_headers_refused, &quic.udp_proxy_headers_forged]
        .map(|count| count.get())
}

fn headers(litequic: &Litequic) -> [u64; 3] {
    [0, 1, 2].map(|kind| litequic.sum(|worker| counts_of(worker)[kind]))
}

#[tokio::test]
async fn the_client_is_whom_the_datagrams_name_whatever_the_balancers_port() {
    the_client_is_named(EVERY, |balancer| balancer).await;
}

#[tokio::test]
async fn the_first_datagram_of_a_flow_names_the_client() {
    the_client_is_named(FIRST, Balancer::mark_first).await;
    // A load balancer may also mark each datagram.
    the_client_is_named(FIRST, |balancer| balancer).await;
}

async fn the_client_is_named(keys: &str, mark: fn(Balancer) -> Balancer) {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut config = configured(origin.address, keys);
    config.listen.workers = Some(NonZeroU16::new(2).unwrap());
    // Tokens are bound to the client.
    config.limits.retry_handshakes = 0;
    let litequic = Litequic::with_config(&config).await;
    let balancer = mark(Balancer::with_headers(vec![litequic.address], vec![], header).await);
    for _ in 0..16 {
        let client = through(&balancer, CLIENT, &litequic).await;
        assert_eq!(client.get("/").await.status, 200);
        assert_eq!(forwarded_for(&origin), CLIENT.to_string());
        balancer.forget_flows();
        assert_eq!(client.get("/").await.status, 200);
        assert_eq!(forwarded_for(&origin), CLIENT.to_string());
        client.quic.change_port();
        assert_eq!(client.get("/").await.status, 200);
        assert_eq!(forwarded_for(&origin), CLIENT.to_string());
    }
    assert!(litequic.sum(|worker| worker.quic.retries.get()) >= 16);
    assert_eq!(litequic.sum(|worker| worker.quic.retry_tokens_refused.get()), 0);
    let [read, refused, forged] = headers(&litequic);
    assert!(read > 16 && (refused, forged) == (0, 0), "{read}, {refused}, {forged}");
    litequic.stop().await;
}

#[tokio::test]
async fn access_rules_hold_for_the_named_client() {
    let origin = Always::new(Always::EMPTY_200).await;
    let rules = format!("{EVERY}\n[[routes]]\norigin = \"origin\"\nallow = [\"{CLIENT}\"]");
    let litequic = started(origin.address, &rules).await;
    let balancer = Balancer::with_headers(vec![litequic.address], vec![], header).await;
    for (local, status) in [(CLIENT, 200), (OTHER_CLIENT, 403)] {
        assert_eq!(through(&balancer, local, &litequic).await.get("/").await.status, status, "{local}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn datagrams_of_the_balancer_without_a_header_of_its_own_are_dropped() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, EVERY).await;
    let balancer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &[7; 1300]].concat();
    let cut = &header((CLIENT, 1).into())[..30];
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (datagram, counts) in [
        (&initial[..], [0, 1]),
        (cut, [0, 2]),
        (b"PROXY UDP4 127.0.0.9 198.51.100.1 1 443\r\n", [0, 3]),
        (&local[..], [1, 3]),
        (&header((CLIENT, 1).into()), [2, 3]),
        // What follows the balancer's header is the client's, and no packet.
        (&[header((CLIENT, 1).into()), header((OTHER_CLIENT, 1).into()), initial.clone()].concat(), [3, 3]),
    ] {
        balancer.send_to(datagram, litequic.address).await.unwrap();
        let [read, refused] = counts;
        litequic.wait_until("headers read", |worker| worker.quic.udp_proxy_headers_read.get(), |n| n == read).await;
        let count = |worker: &WorkerMetrics| worker.quic.udp_proxy_headers_refused.get();
        litequic.wait_until("headers refused", count, |n| n == refused).await;
    }
    assert_eq!(litequic.sum(|worker| worker.quic.connections_held.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_flow_whose_headers_name_two_clients_is_dropped() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, FIRST).await;
    let flow = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let [client, other] = [CLIENT, OTHER_CLIENT].map(|address| header((address, 1).into()));
    for (datagram, counts) in [
        (&b"without a header"[..], [0, 1, 0]),
        (&client, [1, 1, 0]),
        (b"without a header", [1, 1, 0]),
        (&[&client[..], b"the same"].concat(), [2, 1, 0]),
        (&[&other[..], b"forged"].concat(), [2, 1, 1]),
        (b"without a header", [2, 1, 2]),
        (&client, [2, 1, 3]),
    ] {
        flow.send_to(datagram, litequic.address).await.unwrap();
        let counted = |[read, refused, forged]: [u64; 3]| read * 100 + refused * 10 + forged;
        let read = |worker: &WorkerMetrics| counted(counts_of(worker));
        litequic.wait_until("headers", read, |n| n == counted(counts)).await;
    }
    litequic.stop().await;
}

#[tokio::test]
async fn others_than_the_balancer_send_no_headers() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, EVERY).await;
    let client = Client::over(Quic::at(CLIENT, &litequic).await.unwrap(), "localhost").await;
    assert_eq!(client.get("/").await.status, 200);
    assert_eq!((forwarded_for(&origin), headers(&litequic)), (CLIENT.to_string(), [0; 3]));
    let stranger = UdpSocket::bind((OTHER_CLIENT, 0)).await.unwrap();
    stranger.send_to(&header((CLIENT, 1).into()), litequic.address).await.unwrap();
    assert_eq!(client.get("/").await.status, 200);
    assert_eq!(headers(&litequic), [0; 3]);
    litequic.stop().await;
}

/// The version that `nginx -V` prints, if it has UDP servers.
fn stream_version(nginx: &Path) -> Option<Vec<u32>> {
    let built = String::from_utf8(Command::new(nginx).arg("-V").output().unwrap().stderr).unwrap();
    let version = built.split_once("nginx/")?.1.split_whitespace().next()?;
    let version = version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    built.contains("--with-stream").then_some(version)
}

#[tokio::test]
async fn nginx_names_the_client_of_each_flow() {
    let Some(nginx) = program("nginx") else { return };
    if stream_version(&nginx).is_none_or(|version| version < vec![1, 31, 4]) {
        return skip_everywhere("nginx is older than 1.31.4, or was built without --with-stream");
    }
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, FIRST).await;
    let (folder, port) = (tempfile::tempdir().unwrap(), free_udp_port());
    let (file, pid) = (folder.path().join("nginx.conf"), folder.path().join("pid"));
    let server = format!("listen 127.0.0.1:{port} udp; proxy_pass {}; proxy_protocol v2;", litequic.address);
    let text = format!(
        "daemon off; master_process off; pid {}; events {{}} stream {{ server {{ {server} }} }}",
        pid.display()
    );
    fs::write(&file, text).unwrap();
    let mut command = tokio::process::Command::new(nginx);
    command.arg("-c").arg(&file).arg("-e").arg("stderr").kill_on_drop(true);
    let _running = command.spawn().unwrap();
    until("nginx runs", async || pid.is_file()).await;
    for local in [CLIENT, OTHER_CLIENT] {
        let quic = Quic::from(local, (Ipv4Addr::LOCALHOST, port).into(), &litequic.cert_pem).await.unwrap();
        let client = Client::over(quic, "localhost").await;
        for _ in 0..2 {
            assert_eq!(client.get("/").await.status, 200);
            assert_eq!(forwarded_for(&origin), local.to_string());
            client.quic.change_port();
        }
    }
    assert_eq!(headers(&litequic)[1..], [0, 0]);
    litequic.stop().await;
}
