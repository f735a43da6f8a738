//! Interim responses over HTTP/2: before the final one, and 100 from the origin, or from litequic after a second.

use crate::support::{
    http2::{DATA, END_HEADERS, END_STREAM, Frame, HEADERS, RST_STREAM, fields, get, status},
    prelude::*,
};

/// An upload of three bytes that expects 100.
fn expecting() -> Vec<u8> {
    fields(&[
        (":method", "PUT"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/"),
        ("content-length", "3"),
        ("expect", "100-continue"),
    ])
}

/// litequic, a client whose upload on stream 1 waits for 100, and its origin, which has the header.
async fn waiting() -> (Litequic, Http2, Peer) {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let (client, peer) = another(&litequic, &origin).await;
    (litequic, client, peer)
}

async fn another(litequic: &Litequic, origin: &Script) -> (Http2, Peer) {
    let mut client = Http2::connect(litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &expecting()).await;
    let mut peer = origin.accept().await;
    assert_eq!(peer.head().await.field("expect"), Some("100-continue"));
    (client, peer)
}

async fn head(client: &mut Http2) -> Frame {
    client.find(&[HEADERS, RST_STREAM]).await.expect("a response")
}

#[tokio::test]
async fn interim_responses_come_before_the_final_one_over_http2() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
    let mut peer = origin.accept_request().await;
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x\r\nX: y\r\n\r\n";
    // Before the final one is known.
    peer.say([hints, "HTTP/1.1 102 Processing\r\n\r\n"].concat()).await;
    for expected in [103, 102] {
        let interim = head(&mut client).await;
        assert_eq!((status(&interim), interim.flags & END_STREAM, interim.stream), (expected, 0, 1));
        assert_eq!(interim.payload.len() > 10, expected == 103, "its fields: {interim:?}");
    }
    peer.say(["HTTP/1.1 199 Other\r\n\r\n", Always::EMPTY_200].concat()).await;
    assert_eq!(status(&head(&mut client).await), 199);
    let last = head(&mut client).await;
    assert_eq!((status(&last), last.flags & END_STREAM), (200, END_STREAM));
    // Counted once they are written.
    litequic.wait_until("three", |worker| worker.shared.responses_1xx.get(), |interim| interim == 3).await;
    litequic.stop().await;
}

#[tokio::test]
async fn expect_100_gets_one_100_from_the_origin_over_http2() {
    let (litequic, mut client, mut peer) = waiting().await;
    peer.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(status(&head(&mut client).await), 100);
    client.say(DATA, END_STREAM, 1, b"abc").await;
    peer.until("abc").await;
    peer.say(Always::EMPTY_200).await;
    assert_eq!(status(&head(&mut client).await), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_expects_100_gets_a_final_answer_instead_over_http2() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    for (answer, expected) in [
        ("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", 417),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403),
        ("HTTP/1.1 307 Temporary Redirect\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", 307),
    ] {
        let (mut client, mut peer) = another(&litequic, &origin).await;
        peer.say(answer).await;
        assert_eq!(status(&head(&mut client).await), expected);
        assert_eq!(peer.rest().await, "", "no body was sent");
    }
    assert_eq!(litequic.sum(|worker| worker.shared.responses_1xx.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn expect_100_gets_litequics_100_before_a_silent_origin_over_http2() {
    let (litequic, mut client, mut peer) = waiting().await;
    assert_eq!(status(&head(&mut client).await), 100);
    // Too late: the client has one.
    peer.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.say(DATA, END_STREAM, 1, b"abc").await;
    peer.until("abc").await;
    peer.say(Always::EMPTY_200).await;
    assert_eq!(status(&head(&mut client).await), 200);
    litequic.stop().await;
}

/// A client that sends its body without waiting needs no 100.
#[tokio::test]
async fn expect_100_without_waiting_is_served_over_http2() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS, 1, &expecting()).await;
    client.say(DATA, END_STREAM, 1, b"abc").await;
    let mut peer = origin.accept_request().await;
    peer.say(Always::EMPTY_200).await;
    assert_eq!(status(&head(&mut client).await), 200);
    litequic.stop().await;
}
