//! How soon litequic acknowledges what it receives: uploads, and responses of `litequic get`.

use crate::support::{prelude::*, process::litequic};
use std::time::Instant;

/// A packet of data follows another after 2.4 ms, so that s2n-quic's default delay of 25 ms would acknowledge ten at
/// once.
fn slow() -> Way {
    Way { rate: Some(500_000), ..Way::default() }
}

/// Bytes of a transfer: some 250 packets.
const AMOUNT: usize = 300_000;
/// Packets for each acknowledgement at most. One or two are the rule; on a machine that has no time they arrive in
/// bunches.
const PACKETS: u64 = 4;

/// Repeats `transfer`, which returns packets sent and ACK frames received for them, until packets are acknowledged
/// often.
async fn is_acknowledged_often(mut transfer: impl AsyncFnMut() -> (u64, u64)) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (packets, acks) = transfer().await;
        assert!(packets > 100, "{packets}");
        if acks * PACKETS >= packets {
            return;
        }
        assert!(Instant::now() < deadline, "{acks} acknowledgements of {packets} packets");
    }
}

#[tokio::test]
async fn an_upload_over_a_slow_link_is_acknowledged_every_few_packets() {
    let litequic = Litequic::demo(|_| {}).await;
    let link = Link::between(litequic.address, Faults { up: slow(), ..Faults::default() });
    let transport = quinn::TransportConfig::default();
    let quic = Quic::connect(link.address, "localhost", &litequic.cert_pem, transport).await;
    is_acknowledged_often(async || {
        let before = quic.connection.stats();
        let (mut send, mut receive) = within("a stream", quic.connection.open_bi()).await.unwrap();
        let request = [raw::request("POST", "/sink"), raw::data(vec![7; AMOUNT])].concat();
        within("the upload", send.write_all(&request)).await.unwrap();
        send.finish().unwrap();
        within("the response", receive.read_to_end(AMOUNT)).await.unwrap();
        let after = quic.connection.stats();
        (after.frame_tx.stream - before.frame_tx.stream, after.frame_rx.acks - before.frame_rx.acks)
    })
    .await;
    litequic.stop().await;
}

#[tokio::test]
async fn litequic_get_acknowledges_every_few_packets() {
    let litequic_server = Litequic::demo(|_| {}).await;
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic_server.sum(read);
    let counts = || (sum(|worker| worker.quic.packets_sent.get()), sum(|worker| worker.quic.ack_frames_received.get()));
    let link = Link::between(litequic_server.address, Faults { down: slow(), ..Faults::default() });
    is_acknowledged_often(async || {
        let before = counts();
        let url = format!("https://127.0.0.1:{}/bytes/{AMOUNT}", link.address.port());
        let ended = spawn_blocking(move || litequic(["get", "--insecure", &url, "-o", "/dev/null"])).await.unwrap();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    })
    .await;
    litequic_server.stop().await;
}

/// Several times in a row: another packet of litequic's may carry an acknowledgement early by chance. s2n-quic's
/// default is 25 ms.
#[tokio::test]
async fn a_packet_that_no_other_follows_is_acknowledged_within_a_few_milliseconds() {
    const SOON: Duration = Duration::from_millis(15);
    const IN_A_ROW: u32 = 5;
    let (_script, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut upload = client.open(&raw::request("POST", "/")).await;
    let acks = || client.quic.connection.stats().frame_rx.acks;
    let deadline = Instant::now() + DEADLINE;
    let mut in_a_row = 0;
    while in_a_row < IN_A_ROW {
        // Whatever is to be acknowledged beside it has been.
        sleep(Duration::from_millis(50)).await;
        let (before, began) = (acks(), Instant::now());
        upload.send(&raw::data("a message")).await;
        while acks() == before {
            assert!(Instant::now() < deadline, "no acknowledgement came");
            sleep(Duration::from_millis(1)).await;
        }
        in_a_row = if began.elapsed() < SOON { in_a_row + 1 } else { 0 };
        assert!(Instant::now() < deadline, "acknowledgements took longer than {SOON:?}");
    }
    litequic.stop().await;
}
