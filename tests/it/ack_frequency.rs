//! How often clients acknowledge: those that offer to listen (draft-ietf-quic-ack-frequency; quinn always does, Firefox
//! by an older draft) get requests as in `litequic.ack_frequency`, and the others never.

use crate::support::{
    link::Which,
    neqo::{self, AckFrequency as Frame},
    prelude::*,
};
use litequic_config::{AckFrequency, Io};
use litequic_quic::{AckFrequencySupport, DraftVersion};
use litequic_telemetry::Gauge;
use quinn::ConnectionStats;

/// Bytes a second: slow enough that a client sees one packet after the other, 1.5 ms apart, and acknowledges as it
/// means to rather than as it gets round to.
const SLOW: u32 = 1_000_000;
const DOWNLOAD: usize = 400_000;
const PACKET: usize = 1452;

async fn start(ack_frequency: AckFrequency) -> Litequic {
    Litequic::demo(|config| config.litequic.ack_frequency = ack_frequency).await
}

/// What reaches clients passes a link of this kind.
fn down(way: Way) -> Faults {
    Faults { down: way, ..Faults::default() }
}

async fn connect(litequic: &Litequic, link: &Link) -> Client {
    let transport = quinn::TransportConfig::default();
    Client::connect(link.address, &litequic.cert_pem, transport).await
}

/// A client that reads the frame by the older draft, and as strictly as neqo.
async fn connect_as_neqo(litequic: &Litequic, link: &Link) -> (Client, neqo::Seen) {
    let (config, seen) = neqo::config(&litequic.cert_pem, quinn::TransportConfig::default());
    let quic = Quic::with_config(link.address, "localhost", config).await.unwrap();
    (Client::over(quic, "localhost").await, seen)
}

fn stats(client: &Client) -> ConnectionStats {
    client.quic.connection.stats()
}

/// Packets an ACK frame that the client sends during a slow download.
async fn packets_an_ack(litequic: &Litequic) -> (f64, ConnectionStats) {
    let link = slow_link(litequic);
    let client = connect(litequic, &link).await;
    packets_an_ack_of(&client).await
}

fn slow_link(litequic: &Litequic) -> Link {
    Link::between(litequic.address, down(Way { rate: Some(SLOW), ..Way::default() }))
}

async fn packets_an_ack_of(client: &Client) -> (f64, ConnectionStats) {
    client.get("/bytes/1").await;
    let before = stats(client);
    assert_eq!(client.get(&format!("/bytes/{DOWNLOAD}")).await.body.len(), DOWNLOAD);
    let after = stats(client);
    let packets = after.udp_rx.datagrams - before.udp_rx.datagrams;
    assert!(packets >= (DOWNLOAD / PACKET) as u64, "{packets} packets");
    let acks = after.frame_tx.acks - before.frame_tx.acks;
    (packets as f64 / acks as f64, after)
}

/// Waits until `count` frames were acknowledged; none may have failed to find its place.
async fn arrived(litequic: &Litequic, count: u64) {
    let acknowledged = |n| n >= count;
    litequic
        .wait_until("frames acknowledged", |worker| worker.quic.ack_frequency_acknowledged.get(), acknowledged)
        .await;
    assert_eq!(litequic.sum(|worker| worker.quic.ack_frequency_misplaced.get()), 0);
}

#[tokio::test]
async fn a_client_acknowledges_as_rarely_as_it_is_asked_to() {
    for io in [Io::Epoll, Io::S2nQuic] {
        let litequic = Litequic::demo(|config| {
            config.litequic.io = io;
            config.litequic.ack_frequency = AckFrequency::Fixed(10);
        })
        .await;
        let (packets, stats) = packets_an_ack(&litequic).await;
        assert!((7.0..=20.0).contains(&packets), "{packets} packets an ACK over {io:?}");
        assert_eq!(stats.frame_rx.ack_frequency, 1, "over {io:?}");
        arrived(&litequic, 1).await;
        let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
        assert_eq!(sum(|worker| worker.quic.ack_frequency_offered.get()), 1);
        assert_eq!(sum(|worker| worker.quic.ack_frequency_sent.get()), 1);
        assert_eq!(sum(|worker| worker.quic.ack_frequency_lost.get()), 0);
        assert_eq!(
            (sum(|worker| worker.quic.ack_threshold_8.get()), sum(|worker| worker.quic.ack_threshold_2.get())),
            (1, 0)
        );
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_client_of_firefoxs_draft_follows_ack_frequency() {
    for threshold in [2, 10, 32] {
        let litequic = start(AckFrequency::Fixed(threshold)).await;
        let link = slow_link(&litequic);
        let (client, seen) = connect_as_neqo(&litequic, &link).await;
        let (packets, stats) = packets_an_ack_of(&client).await;
        let asked = f64::from(threshold);
        // quinn's 25 ms are 17 of these packets.
        assert!((0.6 * asked.min(17.0)..=2.0 * asked).contains(&packets), "{packets} packets an ACK of {threshold}");
        let frame = Frame { sequence: 0, tolerance: threshold.into(), delay: 25_000 };
        assert_eq!((*seen.lock().unwrap()).as_deref(), Ok(&[frame][..]));
        assert_eq!(stats.frame_rx.ack_frequency, 1, "quinn took it for its own draft's");
        arrived(&litequic, 1).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_lost_ack_frequency_of_firefoxs_draft_gets_a_new_number() {
    let litequic = start(AckFrequency::Fixed(10)).await;
    let mut again = 0;
    for lost in 0..6 {
        let way = Way { lose: Which::These(vec![lost]), ..Way::default() };
        let link = Link::between(litequic.address, down(way));
        let (client, seen) = connect_as_neqo(&litequic, &link).await;
        let asked = async {
            while stats(&client).frame_rx.ack_frequency == 0 {
                assert_eq!(client.get("/bytes/20000").await.body.len(), 20_000);
            }
        };
        within("the question", asked).await;
        let frames = seen.lock().unwrap().clone().unwrap();
        assert!(frames.iter().all(|frame| frame.tolerance == 10), "{frames:?}");
        assert!(frames.is_sorted_by_key(|frame| frame.sequence), "{frames:?}");
        again += u64::from(frames[0].sequence > 0);
    }
    assert!(again > 0, "no question was lost");
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_is_asked_for_nothing_acknowledges_as_it_likes() {
    for ack_frequency in [AckFrequency::Off, AckFrequency::Adaptive] {
        let litequic = start(ack_frequency).await;
        let (packets, stats) = packets_an_ack(&litequic).await;
        let (off, sent) =
            (ack_frequency == AckFrequency::Off, litequic.sum(|worker| worker.quic.ack_frequency_sent.get()));
        // Adaptive requests nothing either while nothing is busy, which no test can guarantee on its machine.
        assert!(sent == 0 || !off, "{sent} questions");
        if sent == 0 {
            assert!(packets < 6.0, "{packets} packets an ACK with {ack_frequency}");
            assert_eq!(stats.frame_rx.ack_frequency, 0, "with {ack_frequency}");
        }
        assert_eq!(litequic.sum(|worker| worker.quic.ack_frequency_offered.get()), u64::from(!off));
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_lost_the_question_is_asked_again() {
    let litequic = start(AckFrequency::Fixed(10)).await;
    // The handshake's datagrams and those behind it: the question is in one of them.
    for lost in 0..6 {
        let way = Way { lose: Which::These(vec![lost]), ..Way::default() };
        let link = Link::between(litequic.address, down(way));
        let client = connect(&litequic, &link).await;
        let asked = async {
            while stats(&client).frame_rx.ack_frequency == 0 {
                assert_eq!(client.get("/bytes/20000").await.body.len(), 20_000);
            }
        };
        within("the question", asked).await;
        arrived(&litequic, lost + 1).await;
    }
    let lost = litequic.sum(|worker| worker.quic.ack_frequency_lost.get());
    assert!(lost > 0, "no question was lost");
    assert_eq!(litequic.sum(|worker| worker.quic.ack_frequency_sent.get()), 6 + lost);
    litequic.stop().await;
}

#[tokio::test]
async fn questions_get_through_a_link_that_loses_and_reorders() {
    let litequic = start(AckFrequency::Fixed(30)).await;
    for seed in 0..12 {
        let way = Way { lose: Which::Chance(0.1), hold: Which::Chance(0.1), hold_for: 3, ..Way::default() };
        let link = Link::between(litequic.address, Faults { seed, ..Faults::both(way) });
        let client = connect(&litequic, &link).await;
        assert_eq!(client.get("/bytes/50000").await.body.len(), 50_000);
        let asked = async {
            while stats(&client).frame_rx.ack_frequency == 0 {
                client.get("/bytes/1000").await;
            }
        };
        within("the question", asked).await;
    }
    assert!(litequic.sum(|worker| worker.quic.ack_frequency_lost.get()) > 0, "no question was lost");
    assert_eq!(litequic.sum(|worker| worker.quic.ack_frequency_misplaced.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn many_acks_in_a_batch_trigger_one_ack_frequency() {
    piled_up(false).await;
}

#[tokio::test]
async fn many_acks_of_firefoxs_draft_trigger_ack_frequency() {
    piled_up(true).await;
}

async fn piled_up(as_neqo: bool) {
    let litequic = Litequic::demo(|config| config.litequic.io = Io::Epoll).await;
    // Fourteen come at once if one is for two packets: as on a worker that is behind.
    let up = Way { bunch: Some(Duration::from_millis(10)), ..Way::default() };
    let link = Link::between(litequic.address, Faults { up, ..down(Way { rate: Some(4_000_000), ..Way::default() }) });
    let (client, seen) = if as_neqo {
        let (client, seen) = connect_as_neqo(&litequic, &link).await;
        (client, Some(seen))
    } else {
        (connect(&litequic, &link).await, None)
    };
    assert_eq!(client.get("/bytes/6000000").await.body.len(), 6_000_000);
    arrived(&litequic, 1).await;
    let sent = litequic.sum(|worker| worker.quic.ack_frequency_sent.get());
    assert!((1..10).contains(&sent), "{sent} questions");
    // The link's queue overflows now and then.
    let heard = stats(&client).frame_rx.ack_frequency;
    assert!((1..=sent).contains(&heard), "{heard} of {sent} heard");
    let read = seen.map(|seen| seen.lock().unwrap().clone().unwrap());
    assert!(read.is_none_or(|frames| frames.len() as u64 == heard && frames.is_sorted_by_key(|frame| frame.sequence)));
    // How many fewer depends on how the machine runs link, client and worker.
    let fewer = |worker: &WorkerMetrics| {
        let small = worker.quic.ack_threshold_4.get() + worker.quic.ack_threshold_8.get();
        small + worker.quic.ack_threshold_16.get() + worker.quic.ack_threshold_32.get()
    };
    assert_eq!(litequic.sum(fewer), 1);
    // The connection's end takes it out of the gauges.
    drop(client);
    let open = |worker: &WorkerMetrics| {
        let gauges = [&worker.quic.ack_threshold_2, &worker.quic.ack_threshold_4, &worker.quic.ack_threshold_8];
        let larger = [&worker.quic.ack_threshold_16, &worker.quic.ack_threshold_32];
        gauges.into_iter().chain(larger).map(Gauge::get).sum()
    };
    litequic.wait_until("connections asked", open, |open| open == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_offers_nothing_is_served_and_asked_for_nothing() {
    let Some(python) = needs::python_module("aioquic.h3.connection") else { return };
    let litequic = start(AckFrequency::Fixed(10)).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aioquic.py");
    let mut command = Command::new(python);
    command.arg(script).arg(litequic.address.port().to_string());
    let run = move || Process::spawn(command).end_within(Duration::from_secs(60)).success();
    let said = spawn_blocking(run).await.unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("ok: ")).count(), 12, "{said}");
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    assert!(sum(|worker| worker.http3.connections.get()) > 0);
    assert_eq!(sum(|worker| worker.quic.ack_frequency_offered.get()), 0);
    assert_eq!(sum(|worker| worker.quic.ack_frequency_sent.get() + worker.quic.ack_frequency_misplaced.get()), 0);
    litequic.stop().await;
}

/// What clients sent in the first flights that `tests/fixtures/transport-parameters/capture.py` took: the table of
/// docs/adr/0013-adaptive-ack-frequency.md.
#[test]
fn clients_offer_by_two_drafts_or_not_at_all() {
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/transport-parameters");
    let offer = |draft, min_ms, max_ms| {
        let ms = Duration::from_millis;
        Some(AckFrequencySupport { draft, min_ack_delay: ms(min_ms), max_ack_delay: ms(max_ms) })
    };
    // Chromium's is 5000 µs.
    let table = [
        ("aioquic", None),
        ("chromium", None),
        ("chromium-afia", offer(DraftVersion::AckFrequency12, 5, 25)),
        ("curl", None),
        ("firefox", offer(DraftVersion::AckFrequency00, 1, 20)),
        ("h2load", None),
        ("quic-go", None),
        ("quinn", offer(DraftVersion::AckFrequency12, 1, 25)),
        ("s2n-quic", None),
    ];
    let files = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path());
    assert_eq!(files.filter(|file| file.extension().is_some_and(|ext| ext == "hex")).count(), table.len());
    for (client, expected) in table {
        let digits = fs::read_to_string(format!("{FOLDER}/{client}.hex")).unwrap();
        let digits = digits.trim().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let parameters: Vec<u8> = digits.chunks(2).map(byte).collect();
        assert_eq!(AckFrequencySupport::from_parameters(&parameters), expected, "{client}");
    }
}
