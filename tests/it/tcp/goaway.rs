//! The end of an HTTP/2 connection that reaches a limit: GOAWAY with the reason (RFC 9113 §5.4.1). And what reaches
//! none.

use super::http2::Uploads;
use crate::support::{
    http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, fields, frame, get, status},
    prelude::*,
};
use futures_util::future::select_all;

const ENHANCE_YOUR_CALM: u32 = 11;

/// Requests from stream `first` on, each cancelled as soon as it was sent.
fn cancelled(first: u32, count: u32) -> Vec<u8> {
    let section = get(&[]);
    let pair = |stream| {
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &section), reset].concat()
    };
    (0..count).flat_map(|n| pair(first + 2 * n)).collect()
}

fn post() -> Vec<u8> {
    fields(&http2::pseudo("POST", "/"))
}

/// The end of a connection to which litequic sends GOAWAY.
async fn end(what: &str, client: &mut Http2) {
    let goaway = client.find(&[GOAWAY]).await.unwrap_or_else(|| panic!("{what}: closed without GOAWAY"));
    assert_eq!(goaway.code(), ENHANCE_YOUR_CALM, "{what}: {goaway:?}");
    assert_eq!(client.next().await, None, "{what}: its end");
}

/// A page that is left before its images have come: ten seconds' worth of `limits.max_resets` at once.
#[tokio::test]
async fn a_burst_of_cancelled_requests_keeps_a_concurrent_upload() {
    const CANCELLED: u32 = 600;
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &post()).await;
    let mut peer = origin.accept_request().await;
    // In as few records as they need.
    assert!(client.try_say(&cancelled(3, CANCELLED)).await);
    let seen = |worker: &WorkerMetrics| worker.shared.streams_reset_by_client.get();
    litequic.wait_until("all are cancelled", seen, |now| now == u64::from(CANCELLED)).await;
    client.say(DATA, END_STREAM, 1, b"abc").await;
    peer.until("0\r\n\r\n").await;
    peer.say(Always::EMPTY_200).await;
    let answer = client.find(&[HEADERS, GOAWAY]).await.unwrap();
    assert_eq!((answer.kind, status(&answer)), (HEADERS, 200));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_resets.get()), 0);
    // The origin got none of those that were cancelled before they began.
    origin.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn exceeding_a_frame_or_reset_limit_ends_the_connection_with_its_reason() {
    let (_origin, litequic) = Always::behind_litequic("", |config| {
        config.limits.max_control_frames = 60;
        config.limits.max_resets = 20;
    })
    .await;
    for (what, flood) in [
        ("PING", frame(PING, 0, 0, &[7; 8]).repeat(700)),
        // A limit of h2's own.
        ("empty DATA", frame(DATA, 0, 1, b"").repeat(500)),
        // RST_STREAM is a control frame.
        ("resets", cancelled(3, 500)),
    ] {
        let mut client = Http2::connect(&litequic, &[]).await;
        client.say(HEADERS, END_HEADERS, 1, &post()).await;
        assert!(client.try_say(&flood).await, "{what}");
        end(what, &mut client).await;
    }
    litequic.wait_until_idle().await;
    let limits = |worker: &WorkerMetrics| {
        let shared = &worker.shared;
        [&shared.limit_control_frames, &worker.tcp.limit_h2, &shared.limit_resets].map(|limit| limit.get())
    };
    let counted = (0..3).map(|nth: usize| litequic.sum(|worker| limits(worker)[nth])).collect::<Vec<_>>();
    assert_eq!(counted, [1, 1, 1]);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_flood.get()), 3);
    litequic.stop().await;
}

/// A limit of h2's own: requests that it rejects.
#[tokio::test]
async fn a_connection_that_reaches_a_limit_of_h2_counts_as_a_flood() {
    let (_origin, litequic) = Always::behind_litequic("", |_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let malformed = fields(&[(":method", "GET")]);
    let flood: Vec<u8> =
        (0..2_000).flat_map(|n| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &malformed)).collect();
    client.try_say(&flood).await;
    end("malformed requests", &mut client).await;
    drop(client);
    litequic.wait_until("its end", |worker| worker.tcp.tcp_closed_flood.get(), |closed| closed == 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_that_holds_too_much_ends_with_goaway_and_the_reason() {
    let mut uploads = Uploads::begin().await;
    let ends = uploads.clients.iter_mut().map(|client| Box::pin(client.find(&[GOAWAY])));
    let (goaway, ..) = select_all(ends).await;
    assert_eq!(goaway.expect("GOAWAY").code(), ENHANCE_YOUR_CALM);
    let Uploads { litequic, .. } = uploads;
    assert!(litequic.sum(|worker| worker.shared.limit_receive_held.get()) > 0);
    litequic.stop().await;
}
