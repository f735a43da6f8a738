//! Tests responses: complete, invalid, cut off, interim, early.

use super::{
    Script, Setup, answer, config, data, fed, get, on_a_worker, proxy_status, request, reset_with_bytes_unread, settle,
    text,
};
use crate::{Pages, Routing};
use futures_util::FutureExt;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use litequic_config::ErrorStatuses;
use litequic_exchange::{Body, BodyError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

#[test]
fn a_bad_answer_is_a_502_that_names_its_fault() {
    on_a_worker(async {
        let many: String = (0..1000).map(|at| format!("x-{at}: y\r\n")).collect();
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
        let many = format!("HTTP/1.1 200 OK\r\n{many}\r\n");
        for (answer, error) in [
            ("", "error=connection_terminated"),
            ("HTTP/1.1 200 OK\r\nContent-Le", "error=http_response_incomplete"),
            ("SSH-2.0-OpenSSH_9.6\r\n", "error=http_protocol_error"),
            ("HTTP/2.0 200 OK\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nx : a\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nx: a\x01b\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\n: a\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", "error=http_protocol_error"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello", "error=http_protocol_error"),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "error=http_protocol_error"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                "error=http_response_transfer_coding",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n", "error=http_response_transfer_coding"),
            (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                "error=http_upgrade_failed",
            ),
            (&many, "error=http_response_header_section_size"),
            (&long, "error=http_response_header_section_size"),
        ] {
            let origin = Script::new().await;
            let setup = origin.proxy(|_| {});
            let (sent, mut peer) = origin.asked_by(&setup).await;
            // The proxy may close before it has read the whole response.
            let _ = peer.stream.write_all(answer.as_bytes()).await;
            let _ = peer.stream.shutdown().await;
            let response = sent.await.unwrap().unwrap();
            let shown = &answer[..answer.len().min(60)];
            assert_eq!((response.status().as_u16(), proxy_status(&response).as_str()), (502, error), "{shown:?}");
            assert_eq!(setup.metrics.origin_errors.get(), 1, "{shown:?}");
            let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
            let body = text(response).await.unwrap();
            assert!(body.contains(&id) && !body.contains("127.0.0.1"), "{body}");
            assert_eq!(peer.rest().await, "", "the connection is closed, {shown:?}");
            settle().await;
            assert_eq!(setup.metrics.origin_connections_open.get(), 0, "{shown:?}");
        }
    });
}

#[test]
fn a_truncated_body_never_looks_whole() {
    on_a_worker(async {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", BodyError::Truncated),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", BodyError::Truncated),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", BodyError::Truncated),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", BodyError::Truncated),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX", BodyError::Malformed),
        ] {
            let origin = Script::new().await;
            let setup = origin.proxy(|_| {});
            let (sent, mut peer) = origin.asked_by(&setup).await;
            peer.say(answer).await;
            peer.stream.shutdown().await.unwrap();
            let response = sent.await.unwrap().unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(text(response).await.unwrap_err(), expected, "{answer}");
            assert_eq!(setup.metrics.origin_errors.get(), 1);
        }
    });
}

#[test]
fn a_body_that_has_failed_before_anything_was_sent_is_a_502() {
    on_a_worker(async {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in
            ["zz\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n", "<html>an error</html>\r\n"]
        {
            let origin = Script::new().await;
            let setup = origin.proxy(|_| {});
            let (sent, mut peer) = origin.asked_by(&setup).await;
            peer.say(&[chunked, body].concat()).await;
            let response = sent.await.unwrap().unwrap();
            assert_eq!(
                (response.status().as_u16(), &*proxy_status(&response)),
                (502, "error=http_protocol_error"),
                "{body}"
            );
            assert_eq!(setup.metrics.origin_errors.get(), 1);
            assert_eq!(peer.rest().await, "", "the connection is closed");
        }
    });
}

#[test]
fn what_came_of_a_body_with_its_header_is_kept_whole() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (mut sent, mut peer) = origin.asked_by(&setup).await;
        for (answer, rest, length, expected) in [
            ("Content-Length: 5\r\n\r\nhello", "", Some(5), "hello"),
            ("Content-Length: 10\r\n\r\nhello", "world", Some(10), "helloworld"),
            ("Content-Length: 5\r\n\r\n", "hello", Some(5), "hello"),
            ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", Some(0), ""),
            ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "0\r\n\r\n", None, "hello"),
            ("Transfer-Encoding: chunked\r\nTrailer: x\r\n\r\n0\r\nx: y\r\n\r\n", "", None, ""),
        ] {
            peer.say(&["HTTP/1.1 200 OK\r\n", answer].concat()).await;
            let response = sent.await.unwrap().unwrap();
            assert_eq!(http_body::Body::size_hint(response.body()).exact(), length, "{answer}");
            peer.say(rest).await;
            let whole = response.into_body().collect().await.unwrap();
            assert_eq!(whole.trailers().is_some(), answer.contains("Trailer:"), "{answer}");
            assert_eq!(whole.to_bytes(), expected, "{answer}");
            // The next request uses the same connection.
            sent = setup.get();
            peer.head().await;
        }
    });
}

#[test]
fn a_body_without_length_is_complete_only_after_an_orderly_close() {
    on_a_worker(async {
        for (reset, expected) in [(false, Ok("hello".to_owned())), (true, Err(BodyError::Truncated))] {
            let origin = Script::new().await;
            let setup = origin.proxy(|_| {});
            let (sent, mut peer) = origin.asked_by(&setup).await;
            peer.say("HTTP/1.1 200 OK\r\n\r\nhello").await;
            let response = sent.await.unwrap().unwrap();
            if reset {
                socket2::SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(peer);
            assert_eq!(text(response).await, expected);
        }
    });
}

#[test]
fn head_204_and_304_have_no_body_and_leave_the_connection_clean() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let mut peer = None;
        for (method, answer, length) in [
            (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", Some("7")),
            (Method::HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
            (Method::GET, "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", None),
            (Method::GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", Some("7")),
            (Method::GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
        ] {
            let sent = setup.send(request(method, Body::empty()));
            if peer.is_none() {
                peer = Some(origin.accept().await);
            }
            let peer = peer.as_mut().unwrap();
            peer.head().await;
            peer.say(answer).await;
            let response = sent.await.unwrap().unwrap();
            assert!(response.body().is_empty(), "{answer}");
            assert_eq!(response.headers().get("content-length").map(|value| value.to_str().unwrap()), length);
        }
        assert_eq!(setup.metrics.origin_connections.get(), 1);
    });
}

#[test]
fn interim_responses_pass_and_100_only_to_who_waits_for_it() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        for expects in [false, true] {
            let mut asked = request(Method::POST, Body::from("abc"));
            if expects {
                asked.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
            }
            let (exchange, interim) = Setup::exchange(asked);
            let handled = answer(&setup.proxy, exchange);
            let script = async {
                let mut peer = origin.accept().await;
                let head = peer.until("abc").await;
                assert_eq!(head.contains("expect: 100-continue"), expects);
                peer.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: x\r\n\r\n")
                    .await;
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
            };
            let (response, ()) = tokio::join!(handled, script);
            assert_eq!(response.unwrap().status(), 200);
            let next = || std::future::poll_fn(|cx| interim.poll_interim(cx)).now_or_never();
            if expects {
                assert_eq!(next().unwrap().0, StatusCode::CONTINUE);
            }
            let (status, fields) = next().unwrap();
            assert_eq!(status, StatusCode::EARLY_HINTS);
            assert_eq!(fields.iter().map(|line| line.name_str()).collect::<Vec<_>>(), ["link"]);
            assert!(next().is_none());
        }
    });
}

#[test]
fn interim_responses_beyond_those_that_wait_are_dropped_and_counted() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (exchange, interim) = Setup::exchange(request(Method::GET, Body::empty()));
        let script = async {
            let mut peer = origin.accept().await;
            peer.head().await;
            peer.say(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10)).await;
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            peer
        };
        let (response, _peer) = tokio::join!(answer(&setup.proxy, exchange), script);
        assert_eq!(response.unwrap().status(), 204);
        let next = || std::future::poll_fn(|cx| interim.poll_interim(cx)).now_or_never();
        assert_eq!(std::iter::from_fn(next).count(), 8);
        assert_eq!(setup.metrics.limit_interim.get(), 2);
    });
}

#[test]
fn a_client_that_waits_for_100_is_not_held_for_ever() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (feed, body) = fed();
        let mut asked = request(Method::POST, body);
        asked.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
        let (exchange, interim) = Setup::exchange(asked);
        let client = async {
            let (status, _) = std::future::poll_fn(|cx| interim.poll_interim(cx)).await;
            assert_eq!(status, StatusCode::CONTINUE);
            feed.send(data("abc")).unwrap();
            drop(feed);
        };
        let script = async {
            let mut peer = origin.accept().await;
            peer.until("0\r\n\r\n").await;
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            peer
        };
        let (response, (), _peer) = tokio::join!(answer(&setup.proxy, exchange), client, script);
        assert_eq!(response.unwrap().status(), 204);
    });
}

#[test]
fn an_early_answer_passes_and_its_connection_is_not_used_again() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = origin.accept().await;
        feed.send(data("abc")).unwrap();
        peer.until("abc\r\n").await;
        peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
        let response = sent.await.unwrap().unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(text(response).await.unwrap(), "no");
        assert_eq!(peer.rest().await, "");
        feed.closed().await;
    });
}

#[test]
fn an_early_response_survives_a_close_during_the_upload() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = origin.accept().await;
        peer.head().await;
        let page = "x".repeat(100_000);
        peer.say(&format!("HTTP/1.1 413 Too Large\r\nContent-Length: {}\r\n\r\n", page.len())).await;
        let response = sent.await.unwrap().unwrap();
        peer.say(&page).await;
        reset_with_bytes_unread(peer, &feed).await;
        assert_eq!(text(response).await.unwrap().len(), page.len());
    });
}

/// A route's rules read the values that they need from each request.
#[test]
fn pages_for_all_routes_are_no_rules_of_any() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("5xx.html");
    std::fs::write(&page, "sorry").unwrap();
    let config = config("http://origin".parse().unwrap(), |config| {
        config.error_pages.insert(ErrorStatuses::Class(5), page);
    });
    let routing = Routing::compile_after(&config, Pages::read_page_files(&config).unwrap(), None);
    let head = litequic_exchange::Head::from(get().into_parts().0);
    let route = routing.find_route(&head).unwrap().unwrap();
    assert!(route.pages.find_page(StatusCode::BAD_GATEWAY).is_some());
    assert!(route.rules.is_none());
}
