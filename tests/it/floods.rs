//! Hostile clients below and within HTTP/3: each limit bites while another client is served as if nothing were.

use crate::support::{
    prelude::*,
    raw::{data, headers, pseudo},
    stuffed::{self, Stuffed},
};
use futures_util::future;
use quinn::VarInt;
use std::time::Instant;

pub(crate) const EXCESSIVE_LOAD: u64 = 0x107;

/// A client that is served again and again, until `attack` is over and once more.
pub(crate) async fn beside<T>(litequic: &Litequic, attack: impl Future<Output = T>) -> T {
    let client = Client::to(litequic).await;
    let mut attack = std::pin::pin!(attack);
    let outcome = loop {
        let download = async {
            let answer = client.get("/bytes/100k").await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 100_000));
        };
        match future::select(&mut attack, std::pin::pin!(download)).await {
            future::Either::Left((outcome, download)) => {
                download.await;
                break outcome;
            }
            future::Either::Right(_) => {}
        }
    };
    assert_eq!(client.get("/status/204").await.status, 204);
    outcome
}

/// Closed for a flood, once, and everything given back.
async fn closed_once(litequic: Litequic, limit: impl Fn(&WorkerMetrics) -> u64) {
    assert_eq!(litequic.sum(limit), 1);
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 1);
    litequic.stop_when_idle().await;
}

fn few_control_frames(config: &mut Config) {
    config.limits.max_control_frames = 1_000;
}

/// Frames of every kind that s2n-quic takes in any number.
fn floods() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("PING", vec![0x01]),
        ("ACK", vec![0x02, 0, 0, 0, 0]),
        ("STOP_SENDING of a stream that is over", vec![0x05, 0, 0]),
        ("an empty CRYPTO", vec![0x06, 0, 0]),
        ("an empty STREAM", vec![0x0a, 0, 0]),
        ("MAX_DATA", vec![0x10, 0]),
        ("MAX_STREAMS", vec![0x12, 0]),
        ("DATA_BLOCKED", vec![0x14, 0]),
        ("STREAMS_BLOCKED", vec![0x16, 0]),
        ("PATH_CHALLENGE", vec![0x1a, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("PATH_RESPONSE", vec![0x1b, 1, 2, 3, 4, 5, 6, 7, 8]),
    ]
}

#[tokio::test]
async fn a_flood_of_frames_without_data_ends_its_connection_and_no_other() {
    for (what, frames) in floods() {
        let litequic = Litequic::demo(few_control_frames).await;
        let mut attacker = Stuffed::to(&litequic).await;
        let error = beside(&litequic, attacker.flood(&frames)).await;
        assert_eq!(stuffed::code(&error), EXCESSIVE_LOAD, "{what}");
        closed_once(litequic, |worker| worker.shared.limit_control_frames.get()).await;
    }
}

#[tokio::test]
async fn what_s2n_quic_forbids_a_client_ends_the_connection_at_once() {
    for (what, frame) in [
        ("NEW_TOKEN", vec![0x07, 1, 1]),
        ("HANDSHAKE_DONE", vec![0x1e]),
        ("more connection IDs than it may issue", new_connection_ids()),
        ("a connection ID retired that was never issued", vec![0x19, 60]),
        ("an unknown frame", vec![0x21]),
    ] {
        let litequic = Litequic::demo(|_| {}).await;
        let mut attacker = Stuffed::to(&litequic).await;
        let error = beside(&litequic, attacker.flood(&frame)).await;
        assert!(matches!(error, s2n_quic::connection::Error::Transport { .. }), "{what}: {error}");
        assert_eq!(litequic.sum(|worker| worker.shared.limit_control_frames.get()), 0);
        litequic.stop().await;
    }
}

/// Eight NEW_CONNECTION_ID frames that retire nothing.
fn new_connection_ids() -> Vec<u8> {
    (1u8..9).flat_map(|n| [vec![0x18, 32 + n, 0, 8], vec![n; 8], vec![n; 16]].concat()).collect()
}

fn few_resets(config: &mut Config) {
    config.limits.max_resets = 5;
}

/// Opens requests and cancels each by `cancel`, until litequic has had enough.
async fn rapid_reset(raw: &Raw, cancel: impl Fn(&mut quinn::SendStream, &mut quinn::RecvStream)) -> u64 {
    let request = headers(&pseudo("GET", "/drip/1000/60000"));
    let mut opened = 0;
    while let Ok((mut send, mut receive)) = within("a stream", raw.quic.connection.open_bi()).await {
        // Errors mean that litequic has closed the connection.
        let _ = send.write_all(&request).await;
        cancel(&mut send, &mut receive);
        opened += 1;
        assert!(opened < 100_000, "litequic takes it all");
    }
    raw.quic.closed().await
}

#[tokio::test]
async fn a_flood_of_stop_sending_ends_the_connection() {
    let litequic = Litequic::demo(few_resets).await;
    let raw = Raw::to(&litequic).await;
    let attack = rapid_reset(&raw, |send, receive| {
        let _ = send.finish();
        let _ = receive.stop(VarInt::from_u32(0x10c));
    });
    assert_eq!(beside(&litequic, attack).await, EXCESSIVE_LOAD);
    closed_once(litequic, |worker| worker.shared.limit_resets.get()).await;
}

#[tokio::test]
async fn streams_that_are_reset_before_a_byte_was_sent_end_their_connection() {
    let litequic = Litequic::demo(few_resets).await;
    let raw = Raw::to(&litequic).await;
    let attack = rapid_reset(&raw, |send, receive| {
        let _ = send.reset(VarInt::from_u32(0x10c));
        let _ = receive.stop(VarInt::from_u32(0x10c));
    });
    assert_eq!(beside(&litequic, attack).await, EXCESSIVE_LOAD);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_control_frames.get()), 0);
    closed_once(litequic, |worker| worker.shared.limit_resets.get()).await;
}

#[tokio::test]
async fn a_client_that_leaves_one_page_after_the_other_is_served() {
    let litequic = Litequic::demo(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let request = headers(&pseudo("GET", "/drip/1000/60000"));
    for _ in 0..5 {
        let mut page = future::join_all((0..100).map(|_| raw.open(&request))).await;
        for exchange in &mut page {
            exchange.finish();
        }
        future::join_all(page.iter_mut().map(|exchange| exchange.header())).await;
        for exchange in &mut page {
            exchange.receive.stop(VarInt::from_u32(0x10c)).unwrap();
        }
    }
    litequic.wait_until("cancelled", |worker| worker.shared.streams_reset_by_client.get(), |count| count == 500).await;
    assert_eq!(raw.ask(&headers(&pseudo("GET", "/status/204"))).await.status(), 204);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_resets.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn an_upload_byte_by_byte_is_slowed_and_arrives() {
    let litequic = Litequic::demo(|config| config.limits.max_small_frames = 100).await;
    let raw = Raw::to(&litequic).await;
    // The first frame of a stream is free, and ten seconds' worth are.
    let request = [headers(&pseudo("POST", "/sink")), data("x").repeat(1_001 + 150)].concat();
    let began = Instant::now();
    assert_eq!(beside(&litequic, raw.ask(&request)).await.status(), 200);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(litequic.sum(|worker| worker.shared.limit_small_frames.get()) >= 1);
    litequic.stop().await;
}

/// Data of a chunked body that begins in `text`: how many chunks, how many bytes.
pub(crate) fn chunks(mut text: &str) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        count += 1;
        bytes += size;
        text = &rest[size + 2..];
    }
    (count, bytes)
}

#[tokio::test]
async fn an_upload_byte_by_byte_reaches_the_origin_in_pieces_worth_writing() {
    const BYTES: usize = 50_000;
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let request = [headers(&pseudo("POST", "/")), data("x").repeat(BYTES)].concat();
    let (outcome, (count, bytes)) = future::join(raw.ask(&request), async {
        let mut peer = script.accept_request().await;
        let body = peer.until("\r\n0\r\n\r\n").await;
        peer.say(Always::EMPTY_200).await;
        chunks(&body)
    })
    .await;
    assert_eq!((outcome.status(), bytes), (200, BYTES));
    assert!(count < BYTES / 50, "{count} pieces");
    litequic.stop().await;
}

#[tokio::test]
async fn a_slow_stream_of_small_messages_is_passed_on_message_by_message() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let mut stream = raw.open(&headers(&pseudo("POST", "/"))).await;
    let mut peer = script.accept_request().await;
    for _ in 0..200 {
        stream.send(&data("a message of 20 byte")).await;
        peer.until("14\r\na message of 20 byte\r\n").await;
    }
    stream.finish();
    peer.until("0\r\n\r\n").await;
    peer.say(Always::EMPTY_200).await;
    assert_eq!(stream.outcome().await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_migrated_client_is_served_and_gets_goaway_before_routing_fails() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    for moves in 1..=4 {
        assert_eq!(litequic.sum(|worker| worker.http3.limit_addresses.get()), 0, "{moves}");
        client.quic.change_port();
        let answer = client.get("/bytes/100k").await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 100_000), "{moves}");
    }
    litequic.wait_until("the last address", |worker| worker.http3.limit_addresses.get(), |count| count == 1).await;
    // GOAWAY, and nothing to wait for: the connection ends in order.
    assert!(client.ended().await.is_h3_no_error());
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_client_that_moves_without_end_disturbs_no_other() {
    let litequic = Litequic::demo(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let attack = async {
        // What keeps the connection from ending with its GOAWAY.
        let _open = raw.open(&headers(&pseudo("GET", "/drip/1000/60000"))).await;
        for _ in 0..200 {
            raw.quic.change_port();
            let _ = raw.quic.connection.open_uni().await;
            tokio::task::yield_now().await;
        }
    };
    beside(&litequic, timeout(Duration::from_secs(5), attack)).await.unwrap_or_default();
    litequic.wait_until("the last address", |worker| worker.http3.limit_addresses.get(), |count| count == 1).await;
    litequic.stop().await;
}
