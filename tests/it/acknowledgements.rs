//! `litequic.ack_merge`: acknowledgements have the same effect as without it, whatever happens on the path and
//! whichever client sends them.

use crate::support::{link::Which, prelude::*, raw::varint, stuffed::Stuffed};
use litequic_config::Io;
use s2n_quic::connection::Error;
use std::{sync::atomic::Ordering::Relaxed, time::Instant};

const DOWNLOAD: usize = 2_000_000;

async fn start(ack_merge: bool) -> Litequic {
    Litequic::demo(|config| {
        config.litequic.io = Io::Epoll;
        config.litequic.ack_merge = ack_merge;
    })
    .await
}

async fn download(client: &Client) {
    let expected: Vec<u8> = (0..=250).cycle().take(DOWNLOAD).collect();
    assert!(client.get("/bytes/2M").await.body == expected);
}

fn merged(litequic: &Litequic) -> u64 {
    litequic.sum(|worker| worker.quic.ack_frames_merged.get())
}

/// A client over a link that is `up` towards litequic.
async fn over(litequic: &Litequic, up: Way) -> (Client, Link) {
    let link = Link::between(litequic.address, Faults { up, ..Faults::default() });
    let transport = quinn::TransportConfig::default();
    let quic = Quic::connect(link.address, "localhost", &litequic.cert_pem, transport).await;
    (Client::over(quic, "localhost").await, link)
}

#[tokio::test]
async fn reordered_acks_are_merged_only_if_configured_and_lose_nothing() {
    for ack_merge in [true, false] {
        let litequic = start(ack_merge).await;
        let up = Way { spare: 20, hold: Which::Chance(0.2), hold_for: 3, lose: Which::Chance(0.02), ..Way::default() };
        let (client, link) = over(&litequic, up).await;
        within("a download", download(&client)).await;
        assert!(link.up().held.load(Relaxed) > 0 && link.up().lost.load(Relaxed) > 0);
        assert_eq!(merged(&litequic) > 0, ack_merge, "{}", merged(&litequic));
        assert!(litequic.sum(|worker| worker.quic.ack_frames_received.get()) > merged(&litequic));
        litequic.stop().await;
    }
}

#[tokio::test]
async fn acknowledgements_are_counted_and_leave_congestion_marks_valid() {
    let litequic = start(true).await;
    let client = Client::to(&litequic).await;
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    // Each is read before what it cannot exceed, which goes on rising.
    let batches_and_acks = || {
        let batches = sum(|worker| worker.quic.ack_batches.get());
        (batches, sum(|worker| worker.quic.ack_frames_received.get()))
    };
    let came_together = || {
        let (batches, acks) = batches_and_acks();
        acks > batches && merged(&litequic) > 0
    };
    let deadline = Instant::now() + DEADLINE;
    while !came_together() {
        assert!(Instant::now() < deadline, "no two acknowledgements came together");
        download(&client).await;
    }
    let (batches, acks) = batches_and_acks();
    let received = sum(|worker| worker.quic.packets_received.get());
    assert!(batches > 0 && batches <= sum(|worker| worker.net.receive_batches.get()), "{batches}");
    assert!(received >= acks && received <= sum(|worker| worker.net.datagrams_received.get()), "{received}");
    let sent = sum(|worker| worker.quic.packets_sent.get());
    assert!(sent >= DOWNLOAD as u64 / 1472, "{sent}");
    litequic
        .wait_until("packets in datagrams", |worker| worker.net.datagrams_sent.get(), |datagrams| datagrams >= sent)
        .await;
    let (capable, failed) = (sum(|worker| worker.quic.ecn_capable.get()), sum(|worker| worker.quic.ecn_failed.get()));
    assert_eq!((capable, failed), (1, 0));
    litequic.stop().await;
}

#[tokio::test]
async fn forgeries_behind_every_acknowledgement_hold_up_nothing() {
    let litequic = start(true).await;
    let (client, link) = over(&litequic, Way { spare: 20, forge: Which::Chance(1.0), ..Way::default() }).await;
    let heard = || litequic.sum(|worker| worker.quic.ack_frames_received.get());
    while heard() < 200 {
        within("a download", download(&client)).await;
    }
    // But for a few of the handshake, there is one behind each.
    assert!(link.up().forged.load(Relaxed) + 20 >= heard());
    // None was taken for the client's.
    assert!(litequic.sum(|worker| worker.quic.packets_received.get()) <= link.up().came.load(Relaxed));
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 0);
    litequic.stop().await;
}

/// How the connection of a client ends that acknowledges what it must not.
async fn end(ack_merge: bool, ack: Option<&[u8]>) -> String {
    let litequic = start(ack_merge).await;
    let mut client = Stuffed::to(&litequic).await;
    let error = match ack {
        Some(ack) => client.acknowledge(ack).await,
        None => client.acknowledge_unseen().await,
    };
    let Error::Transport { code, reason, .. } = error else { panic!("{error}") };
    litequic.stop_when_idle().await;
    format!("{code:?}: {reason}")
}

#[tokio::test]
async fn acks_of_unsent_packets_get_one_error_with_and_without_merging() {
    const NEVER: u64 = 1 << 30;
    let ack = |largest: u64, ranges: u64, body: &[u8]| {
        [&[0x02], &varint(largest)[..], &[0], &varint(ranges)[..], body].concat()
    };
    let most = varint((1 << 62) - 1);
    let table: &[(&str, Option<Vec<u8>>)] = &[
        ("a number that was never sent", Some(ack(NEVER, 0, &[0]))),
        ("every number up to one", Some(ack(NEVER, 0, &varint(NEVER)))),
        ("the largest number", Some(ack((1 << 62) - 1, 0, &[0]))),
        ("below zero", Some(ack(3, 0, &[9]))),
        ("below zero in the second range", Some(ack(3, 1, &[0, 2, 9]))),
        ("a gap that overflows", Some(ack(3, 1, &[&[0][..], &most, &[0]].concat()))),
        ("as many ranges as a packet holds", Some(ack(NEVER, 500, &[1; 1001]))),
        ("ten thousand ranges, of which there are five hundred", Some(ack(NEVER, 10_000, &[1; 1001]))),
        ("the numbers that were left out on purpose", None),
    ];
    for (what, ack) in table {
        let [without, with] = [end(false, ack.as_deref()).await, end(true, ack.as_deref()).await];
        assert_eq!(without, with, "{what}");
        assert!(without.contains("PROTOCOL_VIOLATION") || without.contains("FRAME_ENCODING"), "{what}: {without}");
    }
}
