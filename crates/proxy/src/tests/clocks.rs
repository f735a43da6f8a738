//! Tests every timeout by itself, with a clock that jumps.

use super::{Deaf, Script, data, fed, get, proxy_status, request, setup_at, text, with_a_jumping_clock};
use http::Method;
use litequic_exchange::BodyError;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_origin_that_does_not_answer_is_a_504() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.timeouts.response_header = 7 * SECOND);
        let started = Instant::now();
        let (sent, mut peer) = script.asked_by(&setup).await;
        let response = sent.await.unwrap().unwrap();
        assert_eq!(
            (response.status().as_u16(), proxy_status(&response).as_str()),
            (504, "error=http_response_timeout")
        );
        assert_eq!(started.elapsed().as_secs(), 7);
        assert_eq!(setup.metrics.timeout_response_header.get(), 1);
        assert_eq!(peer.rest().await, "");
    });
}

#[test]
fn the_origin_owes_no_answer_while_the_client_still_sends() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.timeouts.response_header = 7 * SECOND);
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        for _ in 0..5 {
            sleep(5 * SECOND).await;
            feed.send(data("abc")).unwrap();
            peer.until("abc\r\n").await;
        }
        // The wait is longer than the origin may take, but it is for the client.
        sleep(30 * SECOND).await;
        let ended = Instant::now();
        drop(feed);
        assert_eq!(sent.await.unwrap().unwrap().status(), 504);
        assert_eq!(ended.elapsed().as_secs(), 7);
    });
}

#[test]
fn a_body_that_stops_is_reset_and_one_that_trickles_is_not() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.timeouts.response_body = 7 * SECOND);
        let (sent, mut peer) = script.asked_by(&setup).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").await;
        let body = tokio::task::spawn_local(text(sent.await.unwrap().unwrap()));
        for _ in 0..5 {
            sleep(5 * SECOND).await;
            peer.say("abc").await;
        }
        let stopped = Instant::now();
        assert_eq!(body.await.unwrap().unwrap_err(), BodyError::TimedOut);
        assert_eq!(stopped.elapsed().as_secs(), 7);
        assert_eq!(setup.metrics.timeout_response_body.get(), 1);
        assert_eq!(peer.rest().await, "");
    });
}

#[test]
fn a_body_that_waits_for_the_client_is_not_too_slow() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.timeouts.response_body = 7 * SECOND);
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        peer.head().await;
        // The header comes at once and the body once all is read, as from an origin that hashes an upload.
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").await;
        let body = tokio::task::spawn_local(text(sent.await.unwrap().unwrap()));
        for _ in 0..5 {
            sleep(5 * SECOND).await;
            feed.send(data("abc")).unwrap();
            peer.until("abc\r\n").await;
        }
        sleep(30 * SECOND).await;
        drop(feed);
        peer.until("0\r\n\r\n").await;
        sleep(6 * SECOND).await;
        peer.say("done").await;
        assert_eq!(body.await.unwrap().unwrap(), "done");
        assert_eq!(setup.metrics.timeout_response_body.get(), 0);
    });
}

#[test]
fn a_body_that_owes_more_than_the_client_does_is_too_slow() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.timeouts.response_body = 7 * SECOND);
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").await;
        let body = tokio::task::spawn_local(text(sent.await.unwrap().unwrap()));
        sleep(30 * SECOND).await;
        drop(feed);
        peer.until("0\r\n\r\n").await;
        let ended = Instant::now();
        assert_eq!(body.await.unwrap().unwrap_err(), BodyError::TimedOut);
        assert_eq!(ended.elapsed().as_secs(), 7);
    });
}

#[test]
fn the_whole_exchange_has_a_limit_of_its_own() {
    with_a_jumping_clock(async {
        for answer in [None, Some("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")] {
            let script = Script::new().await;
            let setup = script.proxy(|config| config.timeouts.request = Some(3 * SECOND));
            let started = Instant::now();
            let (sent, mut peer) = script.asked_by(&setup).await;
            match answer {
                None => assert_eq!(sent.await.unwrap().unwrap().status(), 504),
                Some(answer) => {
                    peer.say(answer).await;
                    assert_eq!(text(sent.await.unwrap().unwrap()).await.unwrap_err(), BodyError::TimedOut);
                }
            }
            assert_eq!((started.elapsed().as_secs(), setup.metrics.timeout_request.get()), (3, 1));
        }
    });
}

#[test]
fn a_place_in_the_queue_is_not_for_ever() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            config.origins.get_mut("o").unwrap().max_connections = Some(1);
            config.timeouts.queue = 2 * SECOND;
        });
        let (_busy, _peer) = script.asked_by(&setup).await;
        let started = Instant::now();
        let response = setup.get().await.unwrap().unwrap();
        assert_eq!((response.status().as_u16(), started.elapsed().as_secs()), (503, 2));
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(setup.metrics.timeout_queue.get(), 1);
    });
}

#[test]
fn an_origin_that_does_not_accept_is_a_502() {
    with_a_jumping_clock(async {
        let deaf = Deaf::new();
        let setup = setup_at(deaf.address(), |config| config.timeouts.connect = 3 * SECOND);
        let started = Instant::now();
        let response = setup.send(get()).await.unwrap().unwrap();
        assert_eq!((response.status().as_u16(), proxy_status(&response).as_str()), (502, "error=connection_timeout"));
        assert_eq!((started.elapsed().as_secs(), setup.metrics.timeout_connect.get()), (3, 1));
    });
}

#[test]
fn idle_connections_close_in_time_and_old_ones_are_not_reused() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            config.origins.get_mut("o").unwrap().idle_timeout = 10 * SECOND;
            config.origins.get_mut("o").unwrap().max_age = Some(25 * SECOND);
        });
        let mut peer = None;
        for age in [0, 9, 18, 27] {
            let sent = setup.get();
            if age == 0 || age == 27 {
                peer = Some(script.accept().await);
            }
            let peer = peer.as_mut().unwrap();
            peer.head().await;
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            assert_eq!(sent.await.unwrap().unwrap().status(), 204);
            sleep(9 * SECOND).await;
        }
        assert_eq!(setup.metrics.origin_connections.get(), 2);
        sleep(2 * SECOND).await;
        assert_eq!(peer.unwrap().rest().await, "");
        assert_eq!(setup.metrics.origin_connections_open.get(), 0);
    });
}
