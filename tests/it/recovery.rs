//! Loss recovery: large transfers over a link that loses, doubles, reorders and changes the client's address stay what
//! they are with everything on that litequic does about acknowledgements, and what is counted of losses and round-trip
//! times is what happened.

use crate::support::{link::Which, prelude::*, unasked};
use bytes::Buf;
use litequic_config::{AckFrequency, Io};
use sha2::{Digest, Sha256};
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

/// The environment variable for the bytes of a large transfer.
const TRANSFER: &str = "LITEQUIC_TEST_TRANSFER";
/// Without it: some ten thousand datagrams.
const MODEST: usize = 16_000_000;
/// Bytes a second that a large transfer has at least, on whatever machine, over this link, in a debug build.
const SLOWEST: usize = 200_000;
/// Whole periods of what `/bytes/N` answers.
const PERIODS: usize = 1024;
/// Datagrams each way within which a handshake is done.
const HANDSHAKE: u64 = 20;
/// So many the next ones pass that overtake a datagram: by three s2n-quic detects that it is lost (RFC 9002 §6.1.1).
const OVERTAKERS: u64 = 6;

/// Bytes in flight where every loss is counted.
const IN_FLIGHT: u32 = 48 * 1024;

fn amount() -> usize {
    env::var(TRANSFER).map_or(MODEST, |bytes| bytes.parse().expect(TRANSFER))
}

/// The body of every transfer.
struct Pattern(Bytes);

impl Pattern {
    fn new() -> Self {
        Self((0..=250).cycle().take(251 * PERIODS).collect())
    }

    /// What stands from `at` on: up to `most` bytes.
    fn from(&self, at: usize, most: usize) -> Bytes {
        let start = at % 251;
        self.0.slice(start..self.0.len().min(start + most))
    }

    fn matches(&self, at: usize, bytes: &[u8]) -> bool {
        let pieces = bytes.chunks(251 * (PERIODS - 1));
        pieces.enumerate().all(|(nth, piece)| self.from(at + nth * 251 * (PERIODS - 1), piece.len()) == piece)
    }
}

/// Downloads, compares every byte, and changes the port of a client that moves when half of it has come.
async fn download(client: &Client, moves: Option<&Link>, bytes: usize) {
    let pattern = Pattern::new();
    let mut stream = client.open(client.request(Method::GET, &format!("/bytes/{bytes}"))).await;
    within("the request's end", stream.finish()).await.unwrap();
    assert_eq!(client::header(&mut stream).await.status(), 200);
    let mut came = 0;
    while let Some(mut piece) = within("the body", stream.recv_data()).await.unwrap() {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            assert!(pattern.matches(came, chunk), "bytes from {came} on");
            if let Some(link) = moves.filter(|_| came < bytes / 2 && came + chunk.len() >= bytes / 2) {
                link.rebind();
            }
            came += chunk.len();
            piece.advance(chunk.len());
        }
    }
    assert_eq!(came, bytes);
}

/// Uploads, compares the digest of what the origin got, and changes the client's port when half of it has gone.
async fn upload(client: &Client, link: &Link, bytes: usize) {
    let (pattern, mut digest) = (Pattern::new(), Sha256::new());
    let mut stream = client.open(client.request(Method::POST, "/sink")).await;
    let mut sent = 0;
    while sent < bytes {
        let piece = pattern.from(sent, (bytes - sent).min(64 * 1024));
        digest.update(&piece);
        if sent < bytes / 2 && sent + piece.len() >= bytes / 2 {
            link.rebind();
        }
        sent += piece.len();
        within("flow control", stream.send_data(piece)).await.unwrap();
    }
    within("the upload's end", stream.finish()).await.unwrap();
    assert_eq!(client::answer(&mut stream).await.text(), format!("{bytes} {:x}\n", digest.finalize()));
}

/// Everything that litequic has for acknowledgements, whatever the suite's `litequic.io`.
async fn everything_on() -> Litequic {
    Litequic::demo(|config| {
        config.litequic.io = Io::Epoll;
        config.limits.max_body_bytes = None;
        let now = &config.litequic;
        assert!(now.gso && now.gro && now.ack_merge && now.ack_frequency == AckFrequency::Adaptive);
    })
    .await
}

/// A client that may move, and supports ACK_FREQUENCY, if it `offers` that.
async fn connect(litequic: &Litequic, link: &Link, offers: bool) -> Client {
    connect_with(litequic, link, offers, client::transport_of_a_client_that_moves()).await
}

async fn connect_with(litequic: &Litequic, link: &Link, offers: bool, transport: quinn::TransportConfig) -> Client {
    let quic = if offers {
        Quic::connect(link.address, "localhost", &litequic.cert_pem, transport).await
    } else {
        let config = unasked::config(&litequic.cert_pem, transport);
        Quic::with_config(link.address, "localhost", config).await.unwrap()
    };
    Client::over(quic, "localhost").await
}

/// A large download and a large upload with everything on, over a link that does everything.
async fn large_transfers(offers: bool) {
    let bytes = amount();
    let litequic = everything_on().await;
    let way = Way {
        spare: HANDSHAKE,
        lose: Which::Chance(0.0004),
        duplicate: Which::Chance(0.002),
        hold: Which::Chance(0.0004),
        hold_for: OVERTAKERS,
        ..Way::default()
    };
    // Acknowledgements come in bunches, as to a worker that is behind.
    let up = Way { bunch: Some(Duration::from_millis(2)), ..way.clone() };
    let link = Link::between(litequic.address, Faults { up, down: way, seed: 11 });
    let client = connect(&litequic, &link, offers).await;
    let patience = Duration::from_secs(45) + Duration::from_secs((bytes / SLOWEST) as u64);
    let started = Instant::now();
    timeout(patience, download(&client, Some(&link), bytes)).await.expect("a download over a bad link");
    let downloaded = started.elapsed();
    timeout(patience, upload(&client, &link, bytes)).await.expect("an upload over a bad link");
    let uploaded = started.elapsed() - downloaded;

    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    println!(
        "{bytes} bytes down in {downloaded:.1?}, up in {uploaded:.1?}, {} moves\n  up: {:?}\n  down: {:?}\n  litequic: {} \
         packets sent, {} declared lost, {} of them wrongly, {} ACK frames, {} merged, {} ACK_FREQUENCY frames",
        link.moves(),
        link.up(),
        link.down(),
        sum(|worker| worker.quic.packets_sent.get()),
        sum(|worker| worker.quic.packets_lost.get()),
        sum(|worker| worker.quic.spurious_losses.get()),
        sum(|worker| worker.quic.ack_frames_received.get()),
        sum(|worker| worker.quic.ack_frames_merged.get()),
        sum(|worker| worker.quic.ack_frequency_sent.get()),
    );
    for counts in [link.up(), link.down()] {
        assert!([&counts.lost, &counts.duplicated, &counts.held].iter().all(|count| count.load(Relaxed) > 0));
    }
    assert_eq!(link.moves(), 2);
    assert_eq!(sum(|worker| worker.http3.connections.get()), 1);
    assert_eq!(sum(|worker| worker.http3.connection_errors.get()), 0);
    assert!(sum(|worker| worker.quic.ack_frames_merged.get()) > 0, "nothing was merged");
    assert_eq!(sum(|worker| worker.quic.ack_frequency_offered.get()) > 0, offers);
    assert_eq!(sum(|worker| worker.quic.ack_frequency_sent.get()) > 0, offers);
    assert_eq!(sum(|worker| worker.quic.ack_frequency_misplaced.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn large_transfers_survive_a_bad_link_with_ack_frequency() {
    large_transfers(true).await;
}

#[tokio::test]
async fn large_transfers_survive_a_bad_link_without_ack_frequency() {
    large_transfers(false).await;
}

/// Most downloads until one has what a busy machine may hide.
const ATTEMPTS: u32 = 5;

/// A download over a link that does this to the server's datagrams; packets that litequic declared lost, and those of
/// them that were not.
async fn losses_over(down: Way) -> (Litequic, Client, Link) {
    let litequic = everything_on().await;
    let link = Link::between(litequic.address, Faults { down, seed: 3, ..Faults::default() });
    // So little is in flight that no socket's buffer overflows: nothing is lost but by the link.
    let mut transport = client::transport_of_a_client_that_moves();
    transport.stream_receive_window(IN_FLIGHT.into());
    let client = connect_with(&litequic, &link, true, transport).await;
    timeout(Duration::from_secs(45), download(&client, None, 4_000_000)).await.expect("a download over a bad link");
    (litequic, client, link)
}

#[tokio::test]
async fn lost_packets_are_counted_and_none_as_spurious() {
    let way = Way { spare: HANDSHAKE, lose: Which::Chance(0.005), ..Way::default() };
    let (litequic, _client, link) = losses_over(way).await;
    assert!(link.down().lost.load(Relaxed) > 0);
    assert!(litequic.sum(|worker| worker.quic.packets_lost.get()) > 0);
    assert_eq!(litequic.sum(|worker| worker.quic.spurious_losses.get()), 0);
    assert_eq!(litequic.sum(|worker| worker.quic.reductions_undone.get()), 0);
    assert_eq!(litequic.sum(|worker| worker.quic.reductions_awaited.get()), 0, "the path keeps the order");
    litequic.stop().await;
}

#[tokio::test]
async fn reordered_packets_are_spurious_losses_and_keep_the_window() {
    // Long enough that an acknowledgement with the gap is seen alone, even where many come at once and are merged.
    let delay = Duration::from_millis(5);
    let undone = |worker: &WorkerMetrics| worker.quic.reductions_undone.get();
    let mut attempts = 0;
    let litequic = loop {
        let way =
            Way { spare: HANDSHAKE, hold: Which::Chance(0.01), hold_for: 2 * OVERTAKERS, delay, ..Way::default() };
        let (litequic, _client, link) = losses_over(way).await;
        assert!(link.down().held.load(Relaxed) > 0);
        litequic.wait_until("wrong losses", |worker| worker.quic.spurious_losses.get(), |wrong| wrong > 0).await;
        // Most are: a client may forget an overtaken packet before it acknowledges it, and then it stays unknown.
        let right =
            |worker: &WorkerMetrics| worker.quic.packets_lost.get().saturating_sub(worker.quic.spurious_losses.get());
        let lost = litequic.sum(|worker| worker.quic.packets_lost.get());
        litequic.wait_until("losses that were none", right, |right| right <= lost / 2).await;
        attempts += 1;
        // On a machine that others keep busy the lateness may be known before the first reduction: each is awaited.
        if litequic.sum(undone) > 0 || attempts == ATTEMPTS {
            break litequic;
        }
        litequic.stop().await;
    };
    assert!(litequic.sum(undone) > 0);
    assert!(litequic.sum(|worker| worker.quic.reductions_awaited.get()) > 0);
    litequic.stop().await;
}

#[tokio::test]
async fn round_trip_times_are_those_of_the_path() {
    let litequic = everything_on().await;
    let way = Way { delay: Duration::from_millis(20), ..Way::default() };
    let link = Link::between(litequic.address, Faults::both(way));
    let client = connect(&litequic, &link, true).await;
    // All of one scrape: a sample may come between two.
    let scrape = || litequic.metrics.registry().render_metrics();
    let sample = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("litequic_smoothed_rtt_seconds_")?.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse::<f64>().unwrap()
    };
    within("round-trip times", async {
        while sample(&scrape(), "count") < 5.0 {
            client.get("/bytes/10000").await;
        }
    })
    .await;
    let text = scrape();
    assert_eq!(sample(&text, "bucket{le=\"0.03\"}"), 0.0, "quicker than the path");
    let mean = sample(&text, "sum") / sample(&text, "count");
    assert!((0.04..0.2).contains(&mean), "{mean} s");
    litequic.stop().await;
}
