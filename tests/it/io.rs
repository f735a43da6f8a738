//! I/O backends: each `litequic.io`, and each key beside it, serves the same, and has its documented effect.

use crate::support::{
    has_io_uring,
    prelude::*,
    process::{litequic, without},
};
use futures_util::future::join_all;
use litequic::app::ProcessMetrics;
use litequic_config::{AckFrequency, Io, LiteQuic};
use std::net::Ipv6Addr;

const DOWNLOAD: usize = 3_000_000;
const UPLOAD: usize = 1_000_000;

async fn start(litequic: LiteQuic) -> Litequic {
    Litequic::demo(|config| config.litequic = litequic).await
}

/// A download and an upload, both whole.
async fn serve(litequic: &Litequic) {
    let client = Client::to(litequic).await;
    assert_eq!(client.get(&format!("/bytes/{DOWNLOAD}")).await.body.len(), DOWNLOAD);
    let sent: Vec<u8> = (0..UPLOAD).map(|n| u8::try_from(n % 251).unwrap()).collect();
    assert_eq!(client.post("/echo", sent.clone()).await.body, sent);
}

fn own() -> LiteQuic {
    LiteQuic { io: Io::Epoll, ..LiteQuic::default() }
}

/// Each that there is here.
pub(crate) fn every_io() -> Vec<Io> {
    let io_uring = has_io_uring().then_some(Io::IoUring);
    [Io::Epoll, Io::S2nQuic].into_iter().chain(io_uring).collect()
}

#[tokio::test]
async fn every_combination_of_keys_serves_every_byte() {
    for io in every_io() {
        for (receive_batch, gso, gro, ack_merge) in
            [(128, true, true, true), (1, false, true, false), (1024, true, false, false), (3, false, false, true)]
        {
            let litequic = start(LiteQuic { io, receive_batch, gso, gro, ack_merge, ..LiteQuic::default() }).await;
            serve(&litequic).await;
            litequic.stop().await;
        }
    }
}

#[tokio::test]
async fn a_download_leaves_in_messages_of_many_segments_and_few_calls() {
    let litequic = start(own()).await;
    serve(&litequic).await;
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    let sent = sum(|worker| worker.net.datagrams_sent.get());
    assert!(sent >= (DOWNLOAD as u64 + UPLOAD as u64) / 1472, "{sent}");
    let bytes = sum(|worker| worker.net.datagram_bytes_sent.get());
    assert!(bytes >= DOWNLOAD as u64 + UPLOAD as u64 && bytes <= sent * 1472, "{bytes}");
    let (messages, segments) =
        (sum(|worker| worker.net.gso_messages.get()), sum(|worker| worker.net.gso_segments.get()));
    assert!(segments >= 10 * messages, "{segments} segments in {messages} messages");
    let calls = sum(|worker| worker.net.syscalls_sendmmsg.get());
    assert!(calls * 5 < sent, "{calls} calls for {sent} datagrams");
    let received = sum(|worker| worker.net.datagrams_received.get());
    assert!(received >= UPLOAD as u64 / 1472, "{received}");
    assert!(sum(|worker| worker.net.syscalls_recvmmsg.get()) >= sum(|worker| worker.net.receive_batches.get()));
    litequic.wait_until("waits", |worker| worker.wake.metrics.syscalls_epoll_wait.get(), |waits| waits > 0).await;
    let degraded = litequic.sum(|worker| {
        worker.net.io_degraded_gso_missing.get()
            + worker.net.io_degraded_gso_eio.get()
            + worker.net.io_degraded_gso_einval.get()
            + worker.net.io_degraded_gro.get()
    });
    let dropped = litequic
        .sum(|worker| worker.net.datagrams_dropped_refused.get() + worker.net.datagrams_dropped_truncated.get());
    assert_eq!((degraded, dropped), (0, 0));
    litequic.stop().await;
}

/// What `litequic` counted, once nothing changes it any more: two counters are not read at the same time.
async fn counted(litequic: Litequic) -> Arc<ProcessMetrics> {
    let metrics = Arc::clone(&litequic.metrics);
    litequic.stop().await;
    metrics
}

#[tokio::test]
async fn without_gso_every_datagram_is_a_message() {
    let litequic = start(LiteQuic { gso: false, ..own() }).await;
    serve(&litequic).await;
    let counted = counted(litequic).await;
    assert_eq!(counted.sum_over_workers(|worker| worker.net.gso_messages.get()), 0);
    let sent = counted.sum_over_workers(|worker| worker.net.datagrams_sent.get());
    assert_eq!(counted.sum_over_workers(|worker| worker.net.send_messages.get()), sent);
}

#[tokio::test]
async fn without_gro_every_message_is_a_datagram() {
    let litequic = start(LiteQuic { gro: false, ..own() }).await;
    serve(&litequic).await;
    let counted = counted(litequic).await;
    let received = counted.sum_over_workers(|worker| worker.net.datagrams_received.get());
    assert_eq!(counted.sum_over_workers(|worker| worker.net.receive_messages.get()), received);
}

/// Clients at a distance download at once. Whether the worker takes datagrams at fixed times depends on how busy the
/// machine is: a busy one receives batches anyway.
#[tokio::test]
async fn parallel_downloads_over_a_long_path_arrive_with_receive_moderation() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 3;
    let is_own = |io: &Io| *io != Io::S2nQuic;
    for (io, receive_moderation) in every_io().into_iter().filter(is_own).flat_map(|io| [(io, true), (io, false)]) {
        let ack_frequency = AckFrequency::Off;
        let litequic = start(LiteQuic { io, receive_moderation, ack_frequency, ..LiteQuic::default() }).await;
        let way = Way { delay: Duration::from_millis(15), rate: Some(3_000_000), ..Way::default() };
        let link = Link::between(litequic.address, Faults { down: way, ..Faults::default() });
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let transport = quinn::TransportConfig::default();
            let quic = Quic::connect(link.address, "localhost", &litequic.cert_pem, transport).await;
            clients.push(Client::over(quic, "localhost").await);
        }
        for _ in 0..if receive_moderation { ROUNDS } else { 1 } {
            let path = format!("/bytes/{DOWNLOAD}");
            for answer in join_all(clients.iter().map(|client| client.get(&path))).await {
                assert_eq!(answer.body.len(), DOWNLOAD, "{io:?}");
            }
        }
        // Arrivals are events again.
        serve(&litequic).await;
        let counted = counted(litequic).await;
        let began = counted.sum_over_workers(|worker| worker.quic.receive_moderations.get());
        let turns = counted.sum_over_workers(|worker| worker.wake.metrics.wakes_moderation.get());
        assert!(receive_moderation || began == 0, "{io:?}: {began}");
        assert!(began > 0 || turns == 0, "{io:?}: {turns} turns");
    }
}

#[tokio::test]
async fn a_receive_batch_of_one_is_a_call_a_message() {
    let litequic = start(LiteQuic { receive_batch: 1, ..own() }).await;
    serve(&litequic).await;
    let counted = counted(litequic).await;
    let messages = counted.sum_over_workers(|worker| worker.net.receive_messages.get());
    assert_eq!(counted.sum_over_workers(|worker| worker.net.receive_batches.get()), messages);
    assert!(counted.sum_over_workers(|worker| worker.net.syscalls_recvmmsg.get()) >= messages);
}

#[tokio::test]
async fn the_librarys_own_io_leaves_ours_alone() {
    let litequic = start(LiteQuic { io: Io::S2nQuic, ..LiteQuic::default() }).await;
    serve(&litequic).await;
    assert_eq!(litequic.sum(|worker| worker.net.datagrams_received.get() + worker.net.datagrams_sent.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_dual_stack_listener_replies_from_the_destination_address() {
    for io in every_io() {
        let litequic = Litequic::demo(|config| {
            config.listen.udp = vec![(Ipv6Addr::UNSPECIFIED, 0).into()];
            config.litequic.io = io;
        })
        .await;
        // A client drops packets from an address that it did not send to: 127.0.0.2 is not what the kernel would
        // choose.
        for ip in ["127.0.0.1", "127.0.0.2", "::1"] {
            let address = SocketAddr::new(ip.parse().unwrap(), litequic.address.port());
            let transport = quinn::TransportConfig::default();
            let client = Client::connect(address, &litequic.cert_pem, transport).await;
            let answer = client.fetch(client.request(Method::GET, "/bytes/100000"), "").await;
            assert_eq!(answer.body.len(), 100_000, "{ip} over {io:?}");
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn io_uring_needs_fewer_calls_and_no_other() {
    if !has_io_uring() {
        return;
    }
    let litequic = start(LiteQuic { io: Io::IoUring, ..LiteQuic::default() }).await;
    serve(&litequic).await;
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    assert_eq!(sum(|worker| worker.net.syscalls_recvmmsg.get() + worker.net.syscalls_sendmmsg.get()), 0);
    let (sent, received) =
        (sum(|worker| worker.net.datagrams_sent.get()), sum(|worker| worker.net.datagrams_received.get()));
    assert!(sent >= (DOWNLOAD as u64 + UPLOAD as u64) / 1472 && received >= UPLOAD as u64 / 1472, "{sent}, {received}");
    let calls = sum(|worker| worker.net.syscalls_io_uring_enter.get());
    assert!(calls > 0 && calls * 5 < sent + received, "{calls} calls for {sent} and {received} datagrams");
    let (messages, segments) =
        (sum(|worker| worker.net.gso_messages.get()), sum(|worker| worker.net.gso_segments.get()));
    assert!(segments >= 10 * messages, "{segments} segments in {messages} messages");
    assert_eq!(sum(|worker| worker.net.receive_rearmed_other.get()), 0);
    assert_eq!(sum(|worker| worker.net.io_degraded_io_uring_broken.get()), 0);
    litequic.stop().await;
}

/// `litequic` with `arguments`, whose io_uring_setup(2) is answered by EPERM, as containers do.
fn without_io_uring(arguments: &[&str]) -> Option<Process> {
    without("io_uring", &command(arguments)).map(Process::spawn)
}

#[tokio::test]
async fn a_forbidden_io_uring_falls_back_to_epoll_with_one_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let (config, certificate) = (folder.path().join("litequic.toml"), folder.path().join("cert.pem"));
    let key = folder.path().join("key.pem");
    let signed = make_self_signed(["localhost"]).unwrap();
    fs::write(&certificate, &signed.cert_pem).unwrap();
    fs::write(&key, &signed.key_pem).unwrap();
    let origin = origin::demo().await;
    let port = free_udp_port();
    let text = format!(
        "[listen]\nudp = ['127.0.0.1:{port}']\nworkers = 2\n[origin]\nurl = 'http://{origin}'\n\
         [litequic]\nio = 'io-uring'\n[[certificates]]\ncert = '{}'\nkey = '{}'\n",
        certificate.display(),
        key.display()
    );
    fs::write(&config, text).unwrap();
    let Some(process) = without_io_uring(&["run", "--config", config.to_str().unwrap()]) else { return };
    let address = process.address();
    let client = Client::connect(address, &signed.cert_pem, quinn::TransportConfig::default()).await;
    assert_eq!(client.get("/bytes/100000").await.body.len(), 100_000);
    let log = process.stderr();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("io_uring")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("Operation not permitted") && said[0].contains("falling back to epoll"), "{log}");

    let Some(probe) = without_io_uring(&["probe", "--config", config.to_str().unwrap()]) else { return };
    let text = probe.end().success();
    let line = "io_uring                         no: io_uring_setup: Operation not permitted (os error 1)";
    assert!(text.lines().any(|other| other == line), "{text}");
    assert!(text.lines().last().unwrap().starts_with("litequic would use: epoll (io_uring is unavailable)"), "{text}");
}

#[test]
fn probe_says_what_the_kernel_has_and_what_would_be_used() {
    let text = litequic(["probe"]).success();
    for line in ["recvmmsg, sendmmsg, IPv4         yes", "GSO (UDP_SEGMENT), IPv4          yes"] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    let used = text.lines().last().unwrap();
    assert_eq!(
        used,
        "litequic would use: epoll, batches of 128, GSO of up to 64 segments, GRO, ECN, ACK merge, receive moderation, adaptive ACK frequency, CUBIC"
    );

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config/invalid/five-faults.toml");
    assert_eq!(litequic(["probe", "--config", file]).code, Some(78));
}
