//! Calls of gRPC over HTTP/2 and HTTP/3, before an origin by HTTP/1.1 that answers while it reads.

use crate::{
    floods::chunks,
    support::{
        http2::{self, ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields, frame},
        prelude::*,
        raw::{data, headers, pseudo},
    },
};
use futures_util::future;
use litequic_base::lifecycle::ProcessPhase;
use std::time::Instant;

const HEADER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";
const END: &str = "0\r\ngrpc-status: 0\r\ngrpc-message: fine\r\n\r\n";

/// The fields of a call's header.
fn call() -> Vec<(&'static str, &'static str)> {
    [pseudo("POST", "/test.Words/Count"), vec![("content-type", "application/grpc"), ("te", "trailers")]].concat()
}

/// Reads a call to its end, answers it, and returns the number of its bytes.
async fn count_bytes(script: &Script) -> usize {
    let mut peer = script.accept_request().await;
    let body = peer.until("0\r\n\r\n").await;
    peer.say(format!("{HEADER}{END}")).await;
    chunks(&body).1
}

#[tokio::test]
async fn a_stream_of_300_000_short_messages_passes() {
    const MESSAGES: usize = 300_000;
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    // The windows are those of litequic's SETTINGS from the ACK on.
    client.find(&[SETTINGS]).await.unwrap();
    client.say(SETTINGS, ACK, 0, b"").await;
    let (bytes, ()) = future::join(count_bytes(&script), async {
        client.say(HEADERS, END_HEADERS, 1, &fields(&call())).await;
        client.tls.say(frame(DATA, 0, 1, b"0123456789").repeat(MESSAGES)).await;
        client.say(DATA, END_STREAM, 1, b"").await;
        assert_eq!(client.find(&[HEADERS, GOAWAY, RST_STREAM]).await.unwrap().kind, HEADERS);
    })
    .await;
    assert_eq!(bytes, 10 * MESSAGES);
    let raw = Raw::to(&litequic).await;
    let request = [headers(&call()), data("0123456789").repeat(MESSAGES)].concat();
    let (bytes, outcome) = future::join(count_bytes(&script), raw.ask(&request)).await;
    assert_eq!(bytes, 10 * MESSAGES);
    let trailers = outcome.response().trailers.unwrap();
    assert_eq!((trailers.get("grpc-status"), trailers.get("grpc-message")), (Some("0"), Some("fine")));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_small_frames.get()), 0);
    assert_eq!(litequic.sum(|worker| worker.tcp.limit_h2.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_server_speaks_first_and_a_silent_call_lives() {
    let (script, litequic) = Script::behind_litequic(|config| {
        config.limits.rate_grace = Duration::from_millis(500);
        let timeouts = &mut config.timeouts;
        let short = Duration::from_secs(1);
        (timeouts.request_body, timeouts.response_header, timeouts.response_body) = (short, short, short);
    })
    .await;
    // Over HTTP/2.
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &fields(&call())).await;
    let mut peer = script.accept_request().await;
    assert!(client_is_silent(client.find(&[HEADERS, GOAWAY, RST_STREAM])).await, "no response's header yet");
    peer.say(format!("{HEADER}5\r\nfirst\r\n")).await;
    assert_eq!(client.find(&[DATA, GOAWAY, RST_STREAM]).await.unwrap().payload, b"first");
    assert!(client_is_silent(client.find(&[DATA, GOAWAY, RST_STREAM])).await);
    client.say(DATA, END_STREAM, 1, b"ping").await;
    peer.until("4\r\nping\r\n0\r\n\r\n").await;
    peer.say(END).await;
    assert_eq!(client.find(&[HEADERS, GOAWAY, RST_STREAM]).await.unwrap().kind, HEADERS);
    // Over HTTP/3.
    let raw = Raw::to(&litequic).await;
    let mut stream = raw.open(&headers(&call())).await;
    // Over the connection of the first call.
    peer.head().await;
    peer.say(HEADER).await;
    assert!(client_is_silent(future::pending::<()>()).await);
    stream.send(&data("ping")).await;
    stream.finish();
    peer.until("4\r\nping\r\n0\r\n\r\n").await;
    peer.say(END).await;
    let response = stream.outcome().await.response();
    assert_eq!((response.fields.status(), response.trailers.unwrap().get("grpc-status")), (200, Some("0")));
    litequic.stop().await;
}

/// Whether nothing comes for longer than any timeout of the test.
async fn client_is_silent<T>(next: impl Future<Output = T>) -> bool {
    timeout(Duration::from_millis(2_500), next).await.is_err()
}

#[tokio::test]
async fn errors_and_broken_responses_reach_a_client_as_trailers() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let (mut stream, mut peer) = (raw.open(&headers(&call())).await, script.accept_request().await);
    peer.say(format!("{HEADER}5\r\nfirst\r\n")).await;
    drop(peer);
    let response = stream.outcome().await.response();
    assert_eq!((response.fields.status(), response.body.as_slice()), (200, &b"first"[..]));
    assert_eq!(response.trailers.unwrap().get("grpc-status"), Some("14"));
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &fields(&call())).await;
    let mut peer = script.accept_request().await;
    peer.say(HEADER).await;
    let header = client.find(&[HEADERS, GOAWAY, RST_STREAM]).await.unwrap();
    assert_eq!((header.kind, header.flags & END_STREAM, http2::status(&header)), (HEADERS, 0, 200));
    drop(peer);
    let trailers = client.find(&[HEADERS, GOAWAY, RST_STREAM]).await.unwrap();
    assert_eq!((trailers.kind, trailers.flags & END_STREAM), (HEADERS, END_STREAM));
    drop(script);
    let refused = raw.ask(&headers(&call())).await.response();
    assert_eq!((refused.fields.status(), refused.fields.get("grpc-status")), (200, Some("14")));
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_with_many_unread_frames_is_read_later() {
    const FRAMES: usize = 2_000;
    let (script, litequic) = Script::behind_litequic(|config| {
        config.limits.connection_receive_buffer = 96 * 1024;
        config.origins.values_mut().for_each(|origin| origin.max_connections = Some(1));
    })
    .await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &fields(&call())).await;
    let mut peer = script.accept_request().await;
    // The second call waits for the connection of the first, and nothing reads it.
    client.say(HEADERS, END_HEADERS, 3, &fields(&call())).await;
    client.tls.say(frame(DATA, 0, 3, b"x").repeat(FRAMES)).await;
    client.say(DATA, END_STREAM, 3, b"").await;
    litequic.wait_until("the limit", |worker| worker.tcp.limit_unread_frames.get(), |count| count >= 1).await;
    peer.say(format!("{HEADER}{END}")).await;
    assert_eq!(count_bytes(&script).await, FRAMES);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_flood.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn calls_that_are_open_at_the_end_of_a_drain_get_unavailable() {
    let drain = Duration::from_secs(2);
    let (script, litequic) = Script::behind_litequic(|config| config.timeouts.drain = drain).await;
    let raw = Raw::to(&litequic).await;
    let mut begun = raw.open(&headers(&call())).await;
    let mut peer = script.accept_request().await;
    peer.say(format!("{HEADER}5\r\nfirst\r\n")).await;
    let mut silent = raw.open(&headers(&call())).await;
    let _no_answer = script.accept_request().await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &fields(&call())).await;
    let mut peer_of_http2 = script.accept_request().await;
    peer_of_http2.say(HEADER).await;
    client.find(&[HEADERS, GOAWAY, RST_STREAM]).await.unwrap();
    client.say(HEADERS, END_HEADERS, 3, &fields(&call())).await;
    let _no_answer_either = script.accept_request().await;

    let began = Instant::now();
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    let trailers = begun.outcome().await.response().trailers.unwrap();
    assert_eq!((trailers.get("grpc-status"), trailers.get("grpc-message")), (Some("14"), Some("litequic stops")));
    assert!(began.elapsed() >= drain / 2 && began.elapsed() < drain, "{:?}", began.elapsed());
    let response = silent.outcome().await.response();
    assert_eq!((response.fields.status(), response.fields.get("grpc-status")), (200, Some("14")));
    let mut ended = [1, 3].map(|stream| (stream, HEADERS, END_STREAM));
    for _ in 0..2 {
        let frame = client.find(&[HEADERS, RST_STREAM]).await.unwrap();
        ended =
            ended.map(|end| if end == (frame.stream, frame.kind, frame.flags & END_STREAM) { (0, 0, 0) } else { end });
    }
    assert_eq!(ended, [(0, 0, 0); 2]);
    assert_eq!(litequic.sum(|worker| worker.proxy.evicted_by_drain.get()), 4);
    litequic.ended().await;
}
