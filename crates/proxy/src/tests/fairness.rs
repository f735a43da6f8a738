//! Tests fairness among clients that share an origin's connections: which requests wait, and which exchanges are
//! preempted.

use super::{
    Feed, Peer, Response, Script, Setup, data, fed, get, on_a_worker, origin, proxy_status, request, settle, setup_at,
    text, with_a_jumping_clock,
};
use http::Method;
use http_body_util::BodyExt;
use litequic_config::Sources;
use litequic_exchange::{Abort, Body, BodyError};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

type Sent = JoinHandle<Result<Response, Abort>>;

/// Last byte of the address of a client with most connections.
const GREEDY: u8 = 1;
const OTHER: u8 = 2;
/// First of the clients that have a network of their own each.
const NEWCOMER: u8 = 200;
const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A proxy with four connections to its origin, which tells sources apart.
async fn four(script: &Script) -> Setup {
    script.proxy(|config| {
        origin(config).max_connections = Some(4);
        config.sources = Sources::default();
        config.timeouts.queue = Duration::from_secs(5);
    })
}

async fn status(sent: Sent) -> u16 {
    let response = sent.await.unwrap().unwrap();
    let status = response.status().as_u16();
    text(response).await.unwrap();
    status
}

/// Serves every request on the next connection.
async fn serve_next(script: &Script) {
    let mut peer = script.accept().await;
    tokio::task::spawn_local(async move {
        loop {
            peer.head().await;
            peer.say(DONE).await;
        }
    });
}

/// Uploads of the greedy client that have connections, each with one byte sent.
async fn uploads(setup: &Setup, script: &Script, count: usize, connection: u64) -> Vec<(Feed, Sent)> {
    let mut uploads = Vec::new();
    for _ in 0..count {
        let (feed, body) = fed();
        feed.send(data("a")).unwrap();
        let sent = setup.send_as(GREEDY, connection, request(Method::POST, body));
        let mut peer = script.accept().await;
        peer.until("1\r\na\r\n").await;
        // The origin keeps the connection for as long as the proxy does.
        tokio::task::spawn_local(async move { peer.rest().await });
        uploads.push((feed, sent));
    }
    uploads
}

/// Downloads of the greedy client, of which the origin sends the head and `sent` bytes of `length`; nothing is read.
async fn downloads(setup: &Setup, script: &Script, count: u64, length: usize, sent: usize) -> Vec<(Response, Peer)> {
    let mut downloads = Vec::new();
    for _ in 0..count {
        let answer = setup.send_as(GREEDY, 1, get());
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(sent))).await;
        downloads.push((answer.await.unwrap().unwrap(), peer));
    }
    downloads
}

#[test]
fn one_client_may_use_all_connections_and_queue_more_requests() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let sent: Vec<Sent> = (0..100).map(|_| setup.send_as(GREEDY, 1, get())).collect();
        for _ in 0..4 {
            serve_next(&script).await;
        }
        for sent in sent {
            assert_eq!(status(sent).await, 204);
        }
        assert_eq!(setup.metrics.origin_connections.get(), 4);
        assert_eq!(setup.metrics.limit_origin_queue.get(), 0);
    });
}

#[test]
fn a_connection_that_becomes_free_goes_to_the_client_that_uses_fewest() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let mut greedy: Vec<Sent> = (0..50).map(|_| setup.send_as(GREEDY, 1, get())).collect();
        let mut peers = Vec::new();
        for _ in 0..4 {
            let mut peer = script.accept().await;
            peer.head().await;
            peers.push(peer);
        }
        let other = setup.send_as(OTHER, 2, get());
        settle().await;
        let mut peer = peers.pop().unwrap();
        peer.say(DONE).await;
        peer.head().await;
        peer.say(DONE).await;
        assert_eq!(status(other).await, 204, "before 46 requests that came earlier");
        settle().await;
        assert_eq!(greedy.iter().filter(|sent| sent.is_finished()).count(), 1);
        greedy.drain(..).for_each(|sent| sent.abort());
    });
}

#[test]
fn a_full_queue_drops_the_largest_clients_newest_request() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            (origin(config).max_connections, origin(config).max_queue) = (Some(1), Some(4));
            config.sources = Sources::default();
        });
        let sent: Vec<Sent> = (0..5).map(|_| setup.send_as(GREEDY, 1, get())).collect();
        let mut peer = script.accept().await;
        peer.head().await;
        settle().await;
        assert_eq!(setup.metrics.limit_origin_queue.get(), 0);
        let other = setup.send_as(OTHER, 2, get());
        settle().await;
        let finished: Vec<usize> = (0..5).filter(|nth| sent[*nth].is_finished()).collect();
        assert_eq!(finished, [4]);
        let more = setup.send_as(GREEDY, 1, get()).await.unwrap().unwrap();
        assert_eq!((more.status().as_u16(), proxy_status(&more).as_str()), (503, "error=connection_limit_reached"));
        assert_eq!(setup.metrics.limit_origin_queue.get(), 2, "once a request");
        peer.say(DONE).await;
        tokio::task::spawn_local(async move {
            loop {
                peer.head().await;
                peer.say(DONE).await;
            }
        });
        assert_eq!(status(other).await, 204);
    });
}

#[test]
fn a_slot_for_a_cancelled_request_goes_to_the_next() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| origin(config).max_connections = Some(1));
        let first = setup.get();
        let mut peer = script.accept().await;
        peer.head().await;
        let gone = setup.get();
        settle().await;
        let last = setup.get();
        settle().await;
        gone.abort();
        settle().await;
        peer.say(DONE).await;
        assert_eq!(status(first).await, 204);
        peer.head().await;
        peer.say(DONE).await;
        assert_eq!(status(last).await, 204);
    });
}

#[test]
fn slow_uploads_of_the_largest_client_are_preempted_until_shares_are_equal() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let uploads = uploads(&setup, &script, 4, 1).await;
        let began = Instant::now();
        let waiting: Vec<Sent> = (0..3).map(|_| setup.send_as(OTHER, 2, get())).collect();
        let mut peers = Vec::new();
        for _ in 0..2 {
            let mut peer = script.accept().await;
            peer.head().await;
            peers.push(peer);
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert!(timeout(Duration::from_secs(2), script.accept()).await.is_err(), "two and two are even");
        assert_eq!(setup.metrics.evicted_slow_uploads.get(), 2);
        let ended = uploads.into_iter().filter(|(_, sent)| sent.is_finished());
        let mut statuses = Vec::new();
        for (_, sent) in ended {
            let response = sent.await.unwrap().unwrap();
            statuses.push((response.status().as_u16(), proxy_status(&response)));
        }
        assert_eq!(statuses, vec![(503, "error=connection_limit_reached".to_owned()); 2]);
        waiting.into_iter().for_each(|sent| sent.abort());
    });
}

#[test]
fn within_a_source_only_slow_exchanges_of_other_connections_are_preempted() {
    with_a_jumping_clock(async {
        for (connection, evicted, status) in [(1, 0, 503), (2, 1, 204)] {
            let script = Script::new().await;
            let setup = four(&script).await;
            let _uploads = uploads(&setup, &script, 4, 1).await;
            let sent = setup.send_as(GREEDY, connection, get());
            if evicted > 0 {
                serve_next(&script).await;
            }
            assert_eq!(sent.await.unwrap().unwrap().status(), status);
            assert_eq!(setup.metrics.evicted_slow_uploads.get(), evicted);
        }
    });
}

/// Requests of the greedy client that the origin has got and does not answer.
async fn unanswered(setup: &Setup, script: &Script, count: usize, bytes: &'static str) -> Vec<(Sent, Peer)> {
    let mut unanswered = Vec::new();
    for _ in 0..count {
        let sent = setup.send_as(GREEDY, 1, request(Method::POST, Body::from(bytes)));
        let mut peer = script.accept().await;
        peer.until(&format!("\r\n\r\n{bytes}")).await;
        unanswered.push((sent, peer));
    }
    unanswered
}

#[test]
fn unanswered_requests_are_not_preempted_for_their_own_network() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let unanswered = unanswered(&setup, &script, 4, "").await;
        let refused = setup.send_as(OTHER, 2, get()).await.unwrap().unwrap();
        assert_eq!(refused.status(), 503);
        assert!(unanswered.iter().all(|(sent, _)| !sent.is_finished()));
    });
}

#[test]
fn one_unanswered_request_is_preempted_for_each_new_network() {
    with_a_jumping_clock(async {
        for bytes in ["", "a body"] {
            let script = Script::new().await;
            let setup = four(&script).await;
            let unanswered = unanswered(&setup, &script, 4, bytes).await;
            let began = Instant::now();
            let first = setup.send_as(NEWCOMER, 2, get());
            let mut peer = script.accept().await;
            peer.head().await;
            assert!((1_000..2_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
            let (second, other) = (setup.send_as(NEWCOMER, 3, get()), setup.send_as(NEWCOMER + 1, 4, get()));
            serve_next(&script).await;
            assert_eq!(status(other).await, 204);
            peer.say(DONE).await;
            assert_eq!(status(first).await, 204);
            assert_eq!(status(second).await, 204, "over a connection that became free");
            assert_eq!(setup.metrics.evicted_unanswered.get(), 2);
            settle().await;
            let (ended, left): (Vec<_>, Vec<_>) = unanswered.into_iter().partition(|(sent, _)| sent.is_finished());
            assert_eq!((ended.len(), left.len()), (2, 2));
            for (sent, _) in ended {
                let response = sent.await.unwrap().unwrap();
                assert_eq!(
                    (response.status().as_u16(), proxy_status(&response).as_str()),
                    (503, "error=connection_limit_reached")
                );
            }
            for (sent, mut peer) in left {
                peer.say(DONE).await;
                assert_eq!(status(sent).await, 204);
            }
            assert_eq!(setup.metrics.origin_retries.get(), 0);
        }
    });
}

#[test]
fn an_unread_download_is_preempted_at_once_and_its_reader_fails() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let mut downloads = downloads(&setup, &script, 4, 4_000_000, 1_000).await;
        let began = Instant::now();
        let sent = setup.send_as(OTHER, 2, get());
        serve_next(&script).await;
        assert_eq!(status(sent).await, 204);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!(setup.metrics.evicted_slow_downloads.get(), 1);
        let mut ended = 0;
        for (response, peer) in &mut downloads {
            if timeout(Duration::from_millis(200), peer.rest()).await.is_ok() {
                ended += 1;
                assert_eq!(response.frame().await.unwrap().unwrap_err(), BodyError::Evicted);
            } else {
                assert!(response.frame().await.unwrap().is_ok());
            }
        }
        assert_eq!(ended, 1, "the connection is closed while its reader waits");
    });
}

#[test]
fn a_small_rest_is_spooled_and_its_connection_reused() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let mut downloads = downloads(&setup, &script, 4, 100_000, 100_000).await;
        let sent = setup.send_as(OTHER, 2, get());
        let heads = downloads.iter_mut().map(|(_, peer)| Box::pin(peer.head())).collect::<Vec<_>>();
        let (_, at, heads) = futures_util::future::select_all(heads).await;
        drop(heads);
        downloads[at].1.say(DONE).await;
        assert_eq!(status(sent).await, 204);
        assert_eq!(setup.metrics.origin_rests_taken.get(), 1);
        assert_eq!(setup.metrics.origin_connections.get(), 4, "its connection was used again");
        for (response, _peer) in downloads {
            assert_eq!(text(response).await.unwrap().len(), 100_000);
        }
        settle().await;
    });
}

#[test]
fn a_rest_that_is_cut_off_is_no_whole_body() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let mut downloads = downloads(&setup, &script, 4, 100_000, 1_000).await;
        let sent = setup.send_as(OTHER, 2, get());
        while setup.metrics.origin_rests_taken.get() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // All origins end, one of them while a rest is spooled.
        let responses: Vec<Response> = downloads.drain(..).map(|(response, _)| response).collect();
        serve_next(&script).await;
        assert_eq!(status(sent).await, 204);
        for response in responses {
            assert_eq!(text(response).await.unwrap_err(), BodyError::Truncated);
        }
    });
}

#[test]
fn a_silent_body_gives_way_the_sooner_the_more_its_client_holds() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).max_connections = Some(4);
            config.sources = Sources::default();
            config.timeouts.queue = Duration::from_secs(30);
        });
        let mut streams = Vec::new();
        for _ in 0..4 {
            let answer = setup.send_as(GREEDY, 1, get());
            let mut peer = script.accept().await;
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let response = answer.await.unwrap().unwrap();
            streams.push((tokio::task::spawn_local(text(response)), peer));
        }
        settle().await;
        let began = Instant::now();
        let sent = setup.send_as(OTHER, 2, get());
        serve_next(&script).await;
        assert_eq!(status(sent).await, 204);
        assert!(
            (2_400..3_500).contains(&began.elapsed().as_millis()),
            "a quarter of ten seconds: {:?}",
            began.elapsed()
        );
        assert_eq!(setup.metrics.evicted_silent.get(), 1);
        settle().await;
        let ended: Vec<_> = streams.iter().filter(|(stream, _)| stream.is_finished()).collect();
        assert_eq!(ended.len(), 1, "its reader waits for the origin, and learns of it");
    });
}

#[test]
fn preempting_an_upload_wakes_the_reader_of_its_response() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let mut uploads = Vec::new();
        for _ in 0..4 {
            let (feed, body) = fed();
            feed.send(data("a")).unwrap();
            let answer = setup.send_as(GREEDY, 1, request(Method::POST, body));
            let mut peer = script.accept().await;
            peer.until("1\r\na\r\n").await;
            peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n").await;
            let mut response = answer.await.unwrap().unwrap();
            assert!(response.frame().await.unwrap().is_ok());
            let reader = tokio::task::spawn_local(async move { response.frame().await.unwrap().unwrap_err() });
            uploads.push((feed, reader, peer));
        }
        let sent = setup.send_as(OTHER, 2, get());
        serve_next(&script).await;
        assert_eq!(status(sent).await, 204);
        settle().await;
        let ended: Vec<_> = uploads.into_iter().filter(|(_, reader, _)| reader.is_finished()).collect();
        assert_eq!(ended.len(), 1);
        for (_, reader, _) in ended {
            assert_eq!(reader.await.unwrap(), BodyError::Evicted);
        }
    });
}

#[test]
fn networks_share_and_clients_share_within_them() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        // Sixteen clients send eight requests each.
        let mut sent = BTreeMap::<u8, Vec<Sent>>::new();
        for client in 0..16_u8 {
            let requests = (0..8).map(|_| setup.send_as(client, client.into(), get())).collect();
            sent.insert(client, requests);
        }
        for _ in 0..4 {
            serve_next(&script).await;
        }
        for (client, requests) in sent {
            for request in requests {
                assert_eq!(status(request).await, 204, "{client}");
            }
        }
    });
}

#[test]
fn without_sources_a_connection_is_a_source_of_its_own() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = setup_at(script.address(), |config| origin(config).max_connections = Some(1));
        let first = setup.send_as(GREEDY, 1, get());
        let mut peer = script.accept().await;
        peer.head().await;
        let greedy: Vec<Sent> = (0..10).map(|_| setup.send_as(GREEDY, 1, get())).collect();
        settle().await;
        let other = setup.send_as(GREEDY, 2, get());
        settle().await;
        // Neither client uses a connection then, and the one that has waited for longer is next.
        for _ in 0..3 {
            peer.say(DONE).await;
            peer.head().await;
        }
        assert_eq!(status(first).await, 204);
        assert_eq!(status(other).await, 204, "not behind the other connection's ten requests");
        drop(greedy);
    });
}

/// A body that is never polled is dropped with its response.
#[test]
fn dropping_a_response_during_spooling_releases_connection_and_memory() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = four(&script).await;
        let downloads = downloads(&setup, &script, 4, 100_000, 1_000).await;
        let sent = setup.send_as(OTHER, 2, get());
        while setup.metrics.origin_rests_taken.get() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (responses, _peers): (Vec<_>, Vec<_>) = downloads.into_iter().unzip();
        drop(responses);
        serve_next(&script).await;
        assert_eq!(status(sent).await, 204);
        settle().await;
        assert_eq!(setup.metrics.origin_connections_open.get(), 1);
    });
}
