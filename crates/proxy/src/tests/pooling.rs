//! Tests the pool: which connections are used again, how many are opened, and which requests are retried.
#![expect(clippy::disallowed_types, reason = "it holds the oracle's fields")]

use super::{
    Peer, Response, Script, Setup, config, data, fed, get, on_a_worker, origin, proxy_status, request, settle,
    setup_at, text,
};
use crate::{Routing, probe_origin_server};
use http::Method;
use litequic_config::OriginAddress;
use litequic_exchange::{Abort, Body};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
};

const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// Sends a request over a new connection, and leaves it idle.
async fn warm(setup: &Setup, script: &Script) -> Peer {
    let sent = setup.get();
    let mut peer = script.accept().await;
    serve(&mut peer).await;
    assert_eq!(status(sent).await, 204);
    peer
}

/// Sends three requests over as many connections, and leaves the connections idle, the first one for the longest time.
async fn three_idle(setup: &Setup, script: &Script) -> [Peer; 3] {
    let sent = [setup.get(), setup.get(), setup.get()];
    let mut peers = [script.accept().await, script.accept().await, script.accept().await];
    for (peer, sent) in peers.iter_mut().zip(sent) {
        serve(peer).await;
        assert_eq!(status(sent).await, 204);
    }
    peers
}

async fn serve(peer: &mut Peer) {
    peer.head().await;
    peer.say(DONE).await;
}

async fn status(sent: tokio::task::JoinHandle<Result<Response, Abort>>) -> u16 {
    sent.await.unwrap().unwrap().status().as_u16()
}

#[test]
fn the_newest_idle_connection_is_used_first() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (one, two) = (setup.get(), setup.get());
        let (mut first, mut second) = (script.accept().await, script.accept().await);
        serve(&mut first).await;
        assert_eq!(status(one).await, 204);
        serve(&mut second).await;
        assert_eq!(status(two).await, 204);
        for _ in 0..3 {
            let sent = setup.get();
            serve(&mut second).await;
            assert_eq!(status(sent).await, 204);
        }
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}

#[test]
fn a_connection_is_kept_only_when_nothing_is_left_on_it() {
    on_a_worker(async {
        for (answer, kept) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!", false),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
                false,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\nbody", false),
        ] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let (sent, mut peer) = script.asked_by(&setup).await;
            peer.say(answer).await;
            text(sent.await.unwrap().unwrap()).await.unwrap();
            settle().await;
            assert_eq!(setup.metrics.origin_connections_open.get(), u64::from(kept), "{answer}");
            if !kept {
                assert_eq!(peer.rest().await, "");
            }
        }
    });
}

#[test]
fn a_connection_is_closed_behind_its_last_request() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| origin(config).max_requests = Some(3));
        for connections in 1..=2 {
            let mut peer = warm(&setup, &script).await;
            for _ in 1..3 {
                let sent = setup.get();
                serve(&mut peer).await;
                assert_eq!(status(sent).await, 204);
            }
            assert_eq!(peer.rest().await, "", "closed, and nothing sent on it");
            assert_eq!(setup.metrics.origin_connections.get(), connections);
            assert_eq!(setup.metrics.limit_origin_requests.get(), connections);
        }
    });
}

#[test]
fn a_body_that_is_not_read_on_closes_its_connection() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (sent, mut peer) = script.asked_by(&setup).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe").await;
        drop(sent.await.unwrap().unwrap());
        assert_eq!(peer.rest().await, "");
        assert_eq!(setup.metrics.origin_connections_open.get(), 0);
    });
}

#[test]
fn a_client_that_goes_away_cancels_its_request() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        feed.send(data("abc")).unwrap();
        peer.until("abc\r\n").await;
        sent.abort();
        assert_eq!(peer.rest().await, "", "no last chunk");
        feed.closed().await;
        assert_eq!(setup.metrics.origin_connections_open.get(), 0);
    });
}

#[test]
fn a_connection_that_the_origin_closes_while_idle_is_not_used() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        drop(warm(&setup, &script).await);
        while setup.metrics.origin_connections_open.get() > 0 {
            tokio::task::yield_now().await;
        }
        warm(&setup, &script).await;
        assert_eq!(setup.metrics.origin_retries.get(), 0);
    });
}

#[test]
fn an_idle_connection_closes_when_bytes_or_its_end_arrive() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let [mut first, second, mut third] = three_idle(&setup, &script).await;
        first.say("HTTP/1.1 408 Request Timeout\r\n\r\n").await;
        assert_eq!(first.rest().await, "");
        drop(second);
        while setup.metrics.origin_connections_open.get() > 1 {
            tokio::task::yield_now().await;
        }
        let sent = setup.get();
        serve(&mut third).await;
        assert_eq!(status(sent).await, 204);
        assert_eq!((setup.metrics.origin_connections.get(), setup.metrics.origin_retries.get()), (3, 0));
    });
}

#[test]
fn an_upload_goes_on_while_its_response_is_not_read() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok").await;
        let response = sent.await.unwrap().unwrap();
        for _ in 0..3 {
            feed.send(data("more")).unwrap();
            peer.until("more\r\n").await;
        }
        drop(feed);
        peer.until("0\r\n\r\n").await;
        peer.say("ay").await;
        assert_eq!(text(response).await.unwrap(), "okay");
        let sent = setup.get();
        serve(&mut peer).await;
        assert_eq!(status(sent).await, 204);
        assert_eq!(setup.metrics.origin_connections.get(), 1);
    });
}

#[test]
fn bytes_on_an_idle_connection_count_before_the_poll() {
    on_a_worker(async {
        let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        for said in ["", evil] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let mut peer = warm(&setup, &script).await;
            settle().await;
            // The bytes are in the kernel: a busy worker has not polled yet.
            let stream = peer.stream.into_std().unwrap();
            std::io::Write::write_all(&mut &stream, said.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let sent = setup.send(request(Method::POST, Body::from("order")));
            peer = script.accept().await;
            peer.until("order").await;
            peer.say(DONE).await;
            assert_eq!(status(sent).await, 204);
            drop(stream);
        }
    });
}

#[test]
fn a_connection_is_not_used_beyond_the_announced_idle_time() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        for (announced, is_reused) in [("timeout=0", false), ("timeout=60, max=100", true)] {
            let sent = setup.get();
            let mut peer = script.accept().await;
            peer.head().await;
            peer.say(&format!("HTTP/1.1 204 No Content\r\nKeep-Alive: {announced}\r\n\r\n")).await;
            assert_eq!(status(sent).await, 204);
            let next = setup.get();
            let mut other = if is_reused { peer } else { script.accept().await };
            other.head().await;
            other.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
            assert_eq!(status(next).await, 204, "{announced}");
        }
    });
}

#[test]
fn a_connection_with_ntlm_belongs_to_one_client() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let sent = |connection, credentials: &str| {
            let mut request = get();
            request.headers_mut().insert("authorization", credentials.parse().unwrap());
            setup.send_as(1, connection, request)
        };
        let alices = sent(1, "NTLM TlRMTVNTUAAB");
        let mut first = script.accept().await;
        serve(&mut first).await;
        assert_eq!(status(alices).await, 204);
        // Another client of the same address.
        let bobs = sent(2, "Basic Ym9iOmJvYg==");
        let mut second = script.accept().await;
        serve(&mut second).await;
        assert_eq!(status(bobs).await, 204);
        for connection in [1, 2, 3, 1] {
            let peer = if connection == 1 { &mut first } else { &mut second };
            let next = setup.send_as(1, connection, get());
            serve(peer).await;
            assert_eq!(status(next).await, 204, "{connection}");
        }
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}

#[test]
fn a_408_that_closes_a_reused_connection_is_no_answer() {
    on_a_worker(async {
        const CLOSES: &str = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        const OLD: &str = "HTTP/1.0 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
        const STAYS: &str = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
        for (method, used, said, again) in [
            (Method::GET, true, CLOSES, true),
            (Method::GET, true, OLD, true),
            (Method::GET, true, STAYS, false),
            (Method::GET, false, CLOSES, false),
            (Method::POST, true, CLOSES, false),
        ] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let served = if used { Some(warm(&setup, &script).await) } else { None };
            let sent = setup.send(request(method.clone(), Body::empty()));
            let mut peer = match served {
                Some(peer) => peer,
                None => script.accept().await,
            };
            peer.head().await;
            peer.say(said).await;
            if again {
                serve(&mut script.accept().await).await;
            }
            assert_eq!(status(sent).await, if again { 204 } else { 408 }, "{method} {used} {said:?}");
            assert_eq!(setup.metrics.origin_retries.get(), u64::from(again));
        }
    });
}

/// An origin that closes each connection when its second request comes.
#[test]
fn stale_connections_cost_nothing_of_the_retry_budget() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).retry_share = None;
            origin(config).retry_minimum = 0;
        });
        let mut peer = warm(&setup, &script).await;
        for retries in 1..=20 {
            let sent = setup.get();
            peer.head().await;
            drop(peer);
            peer = script.accept().await;
            serve(&mut peer).await;
            assert_eq!(status(sent).await, 204);
            assert_eq!(setup.metrics.origin_retries.get(), retries);
        }
        assert_eq!(setup.metrics.origin_retries_refused.get(), 0);
    });
}

#[test]
fn an_idempotent_request_is_sent_again_when_a_used_connection_closes_unanswered() {
    on_a_worker(async {
        for (method, body, again) in [
            (Method::GET, "", true),
            (Method::PUT, "", true),
            (Method::POST, "", false),
            // The body was taken from the client.
            (Method::PUT, "abc", false),
        ] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let mut peer = warm(&setup, &script).await;
            let sent = setup.send(request(method.clone(), Body::from(body)));
            if body.is_empty() {
                peer.head().await
            } else {
                peer.until(body).await
            };
            drop(peer);
            if again {
                serve(&mut script.accept().await).await;
            }
            assert_eq!(status(sent).await, if again { 204 } else { 502 }, "{method} {body}");
            assert_eq!(setup.metrics.origin_retries.get(), u64::from(again));
        }
    });
}

#[test]
fn a_body_not_yet_begun_goes_to_the_connection_that_lasts() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let mut peer = warm(&setup, &script).await;
        let (feed, body) = fed();
        let sent = setup.send(request(Method::PUT, body));
        peer.head().await;
        drop(peer);
        let mut peer = script.accept().await;
        peer.head().await;
        feed.send(data("abc")).unwrap();
        drop(feed);
        assert_eq!(peer.until("0\r\n\r\n").await, "3\r\nabc\r\n0\r\n\r\n");
        peer.say(DONE).await;
        assert_eq!(status(sent).await, 204);
    });
}

#[test]
fn nothing_is_sent_again_after_a_first_use_or_a_first_byte() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        // The connection is used for the first time.
        let sent = setup.get();
        script.accept().await.head().await;
        assert_eq!(status(sent).await, 502);
        // A first byte of the response has come.
        let mut peer = warm(&setup, &script).await;
        let sent = setup.get();
        peer.head().await;
        peer.say("H").await;
        drop(peer);
        let response = sent.await.unwrap().unwrap();
        assert_eq!(proxy_status(&response), "error=http_response_incomplete");
        assert_eq!(setup.metrics.origin_retries.get(), 0);
    });
}

#[test]
fn retries_end_and_the_last_is_on_a_fresh_connection() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let [oldest, middle, newest] = three_idle(&setup, &script).await;
        let sent = setup.get();
        for mut peer in [newest, middle] {
            peer.head().await;
        }
        let mut fresh = script.accept().await;
        serve(&mut fresh).await;
        assert_eq!(status(sent).await, 204);
        assert_eq!(setup.metrics.origin_retries.get(), 2);
        drop(oldest);
    });
}

#[test]
fn requests_above_the_maximum_queue_in_order_and_a_full_queue_rejects() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).max_connections = Some(1);
            origin(config).max_queue = Some(2);
        });
        let (first, mut peer) = script.asked_by(&setup).await;
        let tagged = |tag: &str| {
            let mut asked = get();
            asked.headers_mut().insert("tag", tag.parse().unwrap());
            setup.send(asked)
        };
        let second = tagged("second");
        let third = tagged("third");
        settle().await;
        let refused = setup.get().await.unwrap().unwrap();
        assert_eq!(
            (refused.status().as_u16(), proxy_status(&refused).as_str()),
            (503, "error=connection_limit_reached")
        );
        assert_eq!(refused.headers()["retry-after"], "1");
        peer.say(DONE).await;
        assert_eq!(status(first).await, 204);
        assert!(peer.head().await.contains("tag: second"));
        // The connection's end gives its slot to the next request.
        peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
        assert_eq!(status(second).await, 204);
        let mut peer = script.accept().await;
        assert!(peer.head().await.contains("tag: third"));
        peer.say(DONE).await;
        assert_eq!(status(third).await, 204);
        assert_eq!((setup.metrics.limit_origin_queue.get(), setup.metrics.origin_connections.get()), (1, 2));
    });
}

#[test]
fn what_comes_behind_an_answer_reaches_no_request_that_waited() {
    on_a_worker(async {
        let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nContent-Length: 47\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 47\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            let script = Script::new().await;
            let setup = script.proxy(|config| origin(config).max_connections = Some(1));
            let (first, mut peer) = script.asked_by(&setup).await;
            let waited = setup.send(request(Method::POST, Body::from("order")));
            settle().await;
            peer.say(&format!("{answer}{evil}")).await;
            text(first.await.unwrap().unwrap()).await.unwrap();
            assert_eq!(peer.rest().await, "", "{answer}");
            let mut peer = script.accept().await;
            peer.until("order").await;
            peer.say(DONE).await;
            assert_eq!(status(waited).await, 204, "{answer}");
        }
    });
}

#[test]
fn a_response_with_two_framings_gets_502_and_closes_its_connection() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (sent, mut peer) = script.asked_by(&setup).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
        let response = sent.await.unwrap().unwrap();
        assert_eq!(response.status(), 502);
        assert_eq!(proxy_status(&response), "error=http_protocol_error");
        assert_eq!(peer.rest().await, "");
    });
}

#[test]
fn trailers_once_taken_are_not_left_out_of_a_second_try() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let mut peer = warm(&setup, &script).await;
        let (feed, body) = fed();
        let mut asked = request(Method::PUT, body);
        asked.headers_mut().insert("trailer", "x-checksum".parse().unwrap());
        let sent = setup.send(asked);
        peer.head().await;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-checksum", "1".parse().unwrap());
        feed.send(Ok(http_body::Frame::trailers(trailers))).unwrap();
        peer.until("0\r\nx-checksum: 1\r\n\r\n").await;
        drop(peer);
        assert_eq!(status(sent).await, 502);
        assert_eq!(setup.metrics.origin_retries.get(), 0);
    });
}

#[test]
fn a_request_that_left_the_queue_delays_no_other() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).max_connections = Some(1);
            origin(config).max_queue = Some(1);
        });
        let (first, mut peer) = script.asked_by(&setup).await;
        let gone = setup.get();
        settle().await;
        gone.abort();
        settle().await;
        let next = setup.get();
        settle().await;
        peer.say(DONE).await;
        assert_eq!(status(first).await, 204);
        serve(&mut peer).await;
        assert_eq!(status(next).await, 204);
    });
}

#[test]
fn an_origin_that_refuses_is_a_502_and_not_reachable() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let target = setup.shared.load().server_states().remove(0);
        probe_origin_server(&target, Duration::from_secs(1)).await.unwrap();
        drop(script);
        assert!(probe_origin_server(&target, Duration::from_secs(1)).await.is_err());
        let response = setup.get().await.unwrap().unwrap();
        assert_eq!((response.status().as_u16(), proxy_status(&response).as_str()), (502, "error=connection_refused"));
        assert_eq!(setup.metrics.origin_connect_errors.get(), 1);

        let nowhere = setup_at(OriginAddress::Unix("/nonexistent/socket".into()), |_| {});
        let response = nowhere.get().await.unwrap().unwrap();
        assert_eq!(proxy_status(&response), "error=destination_unavailable");
        assert!(!text(response).await.unwrap().contains("nonexistent"));
    });
}

#[test]
fn a_unix_socket_is_an_origin_like_any_other() {
    on_a_worker(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("origin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let setup = setup_at(OriginAddress::Unix(path), |_| {});
        let sent = setup.get();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = vec![0; 4096];
        let read = stream.read(&mut seen).await.unwrap();
        assert!(seen[..read].starts_with(b"GET /x?y=1 HTTP/1.1\r\n"));
        stream.write_all(DONE.as_bytes()).await.unwrap();
        assert_eq!(status(sent).await, 204);
    });
}

#[test]
fn a_reload_keeps_the_pools_of_origins_that_did_not_change() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let mut peer = warm(&setup, &script).await;
        let mut reloaded = setup.config.clone();
        reloaded.routes[0].rewrite_host = Some("inner.test".into());
        setup.shared.store(Arc::new(Routing::new(&reloaded)));
        let sent = setup.get();
        assert!(peer.head().await.contains("host: inner.test\r\n"));
        peer.say(DONE).await;
        assert_eq!(status(sent).await, 204);

        let other = Script::new().await;
        setup.shared.store(Arc::new(Routing::new(&config(other.address(), |_| {}))));
        warm(&setup, &other).await;
        assert_eq!(peer.rest().await, "", "the old origin's idle connection is closed");
    });
}

#[test]
fn a_proxy_that_is_gone_leaves_no_connection_behind() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let mut peer = warm(&setup, &script).await;
        drop(setup.proxy);
        assert_eq!(peer.rest().await, "");
        settle().await;
        assert_eq!(Arc::strong_count(&setup.metrics), 1, "its pool is gone, too");
    });
}
