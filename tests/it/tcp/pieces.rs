//! Uploads in pieces with next to nothing in them, over HTTP/1.1 and HTTP/2: put together before the origin, and
//! counted.

use crate::{
    floods::chunks,
    support::{
        http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, fields, frame, status},
        prelude::*,
    },
};
use futures_util::future;
use std::time::Instant;

const CHUNKED: &str = "POST /sink HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
const SIZED: &str = "POST /sink HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n";

fn few(config: &mut Config) {
    config.limits.max_small_frames = 100;
}

/// What an origin gets of a body that is sent by `upload`: in how many chunks, how many bytes.
async fn received(script: &Script, upload: impl Future<Output = ()>) -> (usize, usize) {
    let (chunks, ()) = future::join(
        async {
            let mut peer = script.accept_request().await;
            let body = peer.until("0\r\n\r\n").await;
            peer.say(Always::EMPTY_200).await;
            chunks(&body)
        },
        upload,
    )
    .await;
    chunks
}

#[tokio::test]
async fn chunks_of_a_byte_reach_the_origin_in_pieces_worth_writing() {
    const BYTES: usize = 20_000;
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    let (count, bytes) = received(&script, async {
        client.say([CHUNKED, &"1\r\nx\r\n".repeat(BYTES), "0\r\n\r\n"].concat()).await;
        assert!(client.head().await.starts_with("http/1.1 200"));
    })
    .await;
    assert_eq!(bytes, BYTES);
    assert!(count < BYTES / 50, "{count} pieces");
    litequic.stop().await;
}

#[tokio::test]
async fn data_frames_of_a_byte_reach_the_origin_in_pieces_worth_writing() {
    const BYTES: usize = 20_000;
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let head = fields(&http2::pseudo("POST", "/"));
    let (count, bytes) = received(&script, async {
        client.say(HEADERS, END_HEADERS, 1, &head).await;
        client.tls.say([frame(DATA, 0, 1, b"x").repeat(BYTES), frame(DATA, END_STREAM, 1, b"")].concat()).await;
        let answer = client.find(&[HEADERS, GOAWAY]).await.unwrap();
        assert_eq!(answer.kind, HEADERS, "{answer:?}");
        assert_eq!(status(&answer), 200);
    })
    .await;
    assert_eq!(bytes, BYTES);
    assert!(count < BYTES / 50, "{count} pieces");
    litequic.stop().await;
}

#[tokio::test]
async fn a_slow_stream_of_small_chunks_is_passed_on_chunk_by_chunk() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Tls::http1(&litequic).await;
    client.say(CHUNKED).await;
    let mut peer = script.accept_request().await;
    for _ in 0..200 {
        client.say("14\r\na message of 20 byte\r\n").await;
        peer.until("14\r\na message of 20 byte\r\n").await;
    }
    client.say("0\r\n\r\n").await;
    peer.until("0\r\n\r\n").await;
    peer.say(Always::EMPTY_200).await;
    assert!(client.head().await.starts_with("http/1.1 200"));
    litequic.stop().await;
}

/// Sends `piece` again and again, a record each, until litequic reads no more for a while.
pub(crate) async fn send_until_slowed(litequic: &Litequic, client: &mut Tls, piece: &str) {
    let mut sent = 0;
    while litequic.sum(|worker| worker.shared.limit_small_frames.get()) == 0 {
        client.say(piece).await;
        sent += 1;
        assert!(sent < 1_000_000, "litequic takes it all");
    }
}

#[tokio::test]
async fn an_upload_by_the_byte_is_slowed_and_its_connection_lives() {
    let litequic = Litequic::demo(few).await;
    let mut chunked = Tls::http1(&litequic).await;
    chunked.say(CHUNKED).await;
    litequic.wait_until("the head", |worker| worker.shared.requests_open.get(), |open| open == 1).await;
    chunked.say("1\r\nx\r\n".repeat(1_001 + 200)).await;
    litequic.wait_until("the limit", |worker| worker.shared.limit_small_frames.get(), |count| count == 1).await;
    chunked.say("0\r\n\r\n").await;
    assert!(chunked.head().await.starts_with("http/1.1 200"));

    let other = Litequic::demo(few).await;
    let mut sized = Tls::http1(&other).await;
    sized.say(SIZED).await;
    send_until_slowed(&other, &mut sized, "x").await;
    for litequic in [litequic, other] {
        assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_flood.get()), 0);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_upload_in_data_frames_of_a_byte_is_slowed() {
    let litequic = Litequic::demo(few).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &fields(&http2::pseudo("POST", "/sink"))).await;
    client.tls.say(frame(DATA, 0, 1, b"x").repeat(1_001 + 200)).await;
    litequic.wait_until("the limit", |worker| worker.shared.limit_small_frames.get(), |count| count == 1).await;
    let began = Instant::now();
    client.say(DATA, END_STREAM, 1, b"").await;
    let answer = client.find(&[HEADERS, GOAWAY]).await.unwrap();
    assert_eq!((answer.kind, status(&answer)), (HEADERS, 200));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    litequic.stop().await;
}

/// What a client writes seldom fills its last record: that makes no flood of an upload.
#[tokio::test]
async fn an_upload_in_large_chunks_whose_records_end_short_is_no_flood() {
    let litequic = Litequic::demo(|config| config.limits.max_small_frames = 1).await;
    let mut client = Tls::http1(&litequic).await;
    client.say(CHUNKED).await;
    for _ in 0..200 {
        client.say(format!("4000\r\n{}", "x".repeat(0x4000 - 6))).await;
        client.say("xxxxxx\r\n").await;
    }
    client.say("0\r\n\r\n").await;
    assert!(client.head().await.starts_with("http/1.1 200"));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_small_frames.get()), 0);
    litequic.stop().await;
}
