//! Many requests, many connections: none is lost, none is in another's way. How fast it goes is the benchmarks' matter.

use crate::support::prelude::*;
use futures_util::future;

/// Unoptimized code does a fifth in the same time.
const CONNECTIONS: u64 = if cfg!(debug_assertions) { 50 } else { 100 };
const REQUESTS: u64 = if cfg!(debug_assertions) { 2_000 } else { 10_000 };
/// Of a connection, at a time.
const AT_ONCE: usize = 10;
const IDLE: u64 = 200;

fn two_workers(config: &mut Config) {
    config.listen.workers = Some(2.try_into().unwrap());
}

#[tokio::test]
async fn of_thousands_of_requests_none_is_lost() {
    let body: String = (b'a'..=b'z').cycle().take(1024).map(char::from).collect();
    let (_origin, litequic) =
        Always::behind_litequic(format!("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n{body}"), two_workers).await;
    let clients = future::join_all((0..CONNECTIONS).map(|_| Client::to(&litequic))).await;
    future::join_all(clients.iter().map(async |client| {
        let mut left = usize::try_from(REQUESTS / CONNECTIONS).unwrap();
        while left > 0 {
            let answers = future::join_all((0..left.min(AT_ONCE)).map(|_| client.get("/"))).await;
            for answer in &answers {
                assert_eq!((answer.status.as_u16(), answer.text()), (200, body.as_str()));
            }
            left -= answers.len();
        }
    }))
    .await;
    litequic.wait_until_idle().await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), CONNECTIONS);
    assert_eq!(litequic.sum(|worker| worker.http3.requests.get()), REQUESTS);
    assert_eq!(litequic.sum(|worker| worker.shared.responses_2xx.get()), REQUESTS);
    assert_eq!(litequic.sum(|worker| worker.shared.response_body_bytes.get()), REQUESTS * 1024);
    assert_eq!(litequic.sum(|worker| worker.proxy.origin_requests.get()), REQUESTS);
    // Connections are used again.
    let opened = litequic.sum(|worker| worker.proxy.origin_connections.get());
    assert!(opened <= CONNECTIONS * AT_ONCE as u64, "{opened}");
    litequic.stop().await;
}

#[tokio::test]
async fn idle_connections_stay_open_and_usable() {
    let litequic = Litequic::demo(two_workers).await;
    let mut clients = Vec::new();
    for _ in 0..IDLE / 20 {
        clients.extend(future::join_all((0..20).map(|_| Client::to(&litequic))).await);
    }
    litequic.wait_until("open connections", |worker| worker.http3.connections_open.get(), |open| open == IDLE).await;
    for some in clients.chunks(20) {
        for answer in future::join_all(some.iter().map(|client| client.get("/bytes/10"))).await {
            assert_eq!(answer.body.len(), 10);
        }
    }
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), IDLE);
    assert_eq!(litequic.sum(|worker| worker.http3.connections_open.get()), IDLE);
    drop(clients);
    litequic.wait_until("open connections", |worker| worker.http3.connections_open.get(), |open| open == 0).await;
    litequic.stop().await;
}
