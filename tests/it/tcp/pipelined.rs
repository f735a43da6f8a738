//! HTTP/1.1 requests of which one begins before the one before it was answered: whose time runs, and whose does not.

use crate::support::prelude::*;

/// `timeouts.request_header` of these tests.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long that it has passed for sure. That something does not happen has no event to wait for.
const LONGER: Duration = Duration::from_millis(2_500);

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn started(origin: &Script) -> Litequic {
    Litequic::start(origin.address, |config| config.timeouts.request_header = PATIENCE).await
}

/// hyper reads on while it serves a request, so as to see its client's end.
#[tokio::test]
async fn a_pipelined_heads_timeout_starts_after_the_previous_response() {
    let origin = Script::new().await;
    let litequic = started(&origin).await;
    let mut client = Tls::http1(&litequic).await;
    let (begin, rest) = GET.split_at(20);
    // In one read.
    client.say(format!("{GET}{begin}")).await;
    let mut peer = origin.accept_request().await;
    sleep(LONGER).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none").await;
    assert!(client.head().await.starts_with("http/1.1 200 "));
    client.say(rest).await;
    assert_eq!(client.until("one").await, "one");
    peer.head().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo").await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!(client.until("two").await, "two");
    assert_eq!(litequic.sum(|worker| worker.shared.timeout_request_header.get()), 0);

    // From there on it has no more than that.
    client.say(begin).await;
    let (answer, _) = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(litequic.sum(|worker| worker.shared.timeout_request_header.get()), 1);
    litequic.stop().await;
}

/// Nor does the time count that the head before it took.
#[tokio::test]
async fn a_heads_timeout_starts_with_its_first_byte() {
    let origin = Script::new().await;
    let litequic = started(&origin).await;
    let mut client = Tls::http1(&litequic).await;
    let (begin, rest) = GET.split_at(20);
    client.say(begin).await;
    litequic.wait_until("a connection", |worker| worker.tcp.tcp_connections_h1.get(), |open| open == 1).await;
    client.say(format!("{rest}{begin}")).await;
    let mut peer = origin.accept_request().await;
    sleep(LONGER).await;
    peer.say(Always::EMPTY_200).await;
    assert!(client.head().await.starts_with("http/1.1 200 "));
    client.say(rest).await;
    peer.head().await;
    peer.say(Always::EMPTY_200).await;
    let head = client.head().await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!(litequic.sum(|worker| worker.shared.timeout_request_header.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_hundred_pipelined_requests_are_answered_and_a_truncated_one_gets_408() {
    let (origin, litequic) = Always::behind_litequic("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", |config| {
        config.timeouts.request_header = PATIENCE;
    })
    .await;
    let mut client = Tls::http1(&litequic).await;
    client.say(format!("{}GET / HT", GET.repeat(100))).await;
    let (answers, orderly) = client.rest().await;
    assert!(orderly);
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 100, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 408 ").count(), 1, "{answers}");
    assert_eq!(origin.seen().matches("GET / HTTP/1.1\r\n").count(), 100);
    litequic.stop().await;
}

/// An idle connection is one without a request, however long its response takes.
#[tokio::test]
async fn a_connection_is_not_idle_while_a_response_is_in_flight() {
    let (origin, litequic) = Script::behind_litequic(|config| config.timeouts.idle = PATIENCE).await;
    let mut client = Tls::http1(&litequic).await;
    client.say(GET).await;
    let mut peer = origin.accept_request().await;
    sleep(LONGER).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none").await;
    client.head().await;
    sleep(LONGER).await;
    peer.say("two").await;
    let (answer, orderly) = client.rest().await;
    assert_eq!((answer.as_str(), orderly), ("onetwo", true), "and is closed then");
    assert_eq!(litequic.sum(|worker| worker.tcp.timeout_idle.get()), 1);
    litequic.stop().await;
}
