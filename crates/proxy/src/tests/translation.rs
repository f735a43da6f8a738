//! Tests requests: head, framing, body.
#![expect(clippy::disallowed_types, reason = "it holds the oracle's fields")]

use super::{
    Pieces, Script, data, fed, fed_known, get, lines, on_a_worker, origin as config_of, proxy_status, request, settle,
    text,
};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{HeaderMap, HeaderValue, Method};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use litequic_exchange::{Abort, Body, BodyError};
use std::{cell::Cell, rc::Rc};
use tokio::{io::AsyncWriteExt, task::spawn_local};

#[test]
fn a_request_is_on_the_wire_as_it_should_be() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let mut asked = get();
        asked.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("10.0.0.1"));
        asked.headers_mut().insert("x_real_ip", HeaderValue::from_static("10.0.0.1"));
        asked.headers_mut().insert("x-request-id", HeaderValue::from_static("forged"));
        asked.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        let sent = setup.send(asked);
        let mut peer = origin.accept().await;
        let head = peer.head().await;
        let lines = lines(&head);
        let (id, lines) = lines.split_last().unwrap();
        assert!(id.starts_with("x-request-id: ") && *id != "x-request-id: forged", "{id}");
        assert_eq!(
            lines,
            [
                "GET /x?y=1 HTTP/1.1",
                "connection: TE",
                "forwarded: for=192.0.2.7;host=a.test;proto=https",
                "host: a.test",
                "te: trailers",
                "x-forwarded-for: 192.0.2.7",
                "x-forwarded-host: a.test",
                "x-forwarded-proto: https",
            ]
        );
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  \t b \t \r\nServer: o\r\nAlt-Svc: h3\r\n\r\nhello")
            .await;
        let response = sent.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(5));
        assert_eq!(response.headers()["x-a"], "b");
        assert!(!response.headers().contains_key("alt-svc"));
        assert_eq!(text(response).await.unwrap(), "hello");
    });
}

#[test]
fn framing_on_the_wire_follows_the_body_whatever_the_method() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT", "BREW"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            // The length is unknown.
            let (feed, body) = fed();
            let sent = setup.send(request(method.clone(), body));
            let mut peer = origin.accept().await;
            feed.send(data("abc")).unwrap();
            drop(feed);
            let all = peer.until("0\r\n\r\n").await;
            assert!(all.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{all}");
            assert!(all.contains("transfer-encoding: chunked\r\n") && !all.contains("content-length"), "{all}");
            // The body is empty, which is known late.
            peer.say("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").await;
            assert!(!sent.await.unwrap().unwrap().headers().contains_key("content-length"));
            let (feed, body) = fed();
            let sent = setup.send(request(method.clone(), body));
            drop(feed);
            let all = peer.until("0\r\n\r\n").await;
            assert!(
                all.contains("transfer-encoding: chunked\r\n\r\n0\r\n\r\n") || all.ends_with("\r\n\r\n0\r\n\r\n"),
                "{all}"
            );
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            sent.await.unwrap().unwrap();
            // The length is known.
            let sent = setup.send(request(method.clone(), Body::from("abc")));
            let all = peer.until("abc").await;
            assert!(all.contains("content-length: 3\r\n") && !all.contains("transfer-encoding"), "{all}");
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            sent.await.unwrap().unwrap();
            // There is no body.
            let sent = setup.send(request(method.clone(), Body::empty()));
            let all = peer.head().await;
            let expected = matches!(method, Method::POST | Method::PUT);
            assert_eq!(all.contains("content-length: 0\r\n"), expected, "{all}");
            assert!(!all.contains("transfer-encoding"));
            peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
            sent.await.unwrap().unwrap();
        }
        assert_eq!(setup.metrics.origin_connections.get(), 7);
    });
}

#[test]
fn a_body_whose_end_comes_with_its_last_piece_is_framed_alike() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let mut peer = None;
        for (pieces, length, denials, expected) in [
            (&["abc"][..], None, 0, "3\r\nabc\r\n0\r\n\r\n"),
            (&["abc", "de"], None, 0, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
            (&["", "abc", ""], None, 0, "3\r\nabc\r\n0\r\n\r\n"),
            // The body is empty, which is known only when it is polled: the header's length must hold.
            (&[], None, 1, "0\r\n\r\n"),
            (&["abc"], Some(3), 0, "abc"),
            (&["a", "bc"], Some(3), 0, "abc"),
            (&["abc"], Some(3), 2, "abc"),
            (&["abc", ""], Some(3), 0, "abc"),
        ] {
            let sent = setup.send(request(Method::GET, Pieces::body(pieces, length, denials)));
            if peer.is_none() {
                peer = Some(origin.accept().await);
            }
            let peer = peer.as_mut().unwrap();
            let all = peer.until(expected).await;
            assert!(all.ends_with(&format!("\r\n\r\n{expected}")), "{all}");
            assert_eq!(all.contains("transfer-encoding: chunked\r\n"), length.is_none(), "{all}");
            assert_eq!(all.contains("content-length: 3\r\n"), length.is_some(), "{all}");
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            assert_eq!(sent.await.unwrap().unwrap().status(), 204);
        }
        assert_eq!(setup.metrics.origin_connections.get(), 1);
    });
}

#[test]
fn a_large_body_arrives_whole_and_in_order() {
    on_a_worker(async {
        const WORDS: u32 = 2_000_000;
        for chunked in [false, true] {
            let origin = Script::new().await;
            let setup = origin.proxy(|_| {});
            let (sent, mut peer) = origin.asked_by(&setup).await;
            let script = spawn_local(async move {
                let bytes: Vec<u8> = (0..WORDS).flat_map(u32::to_be_bytes).collect();
                if chunked {
                    peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                    for piece in bytes.chunks(100_003) {
                        peer.say(&format!("{:X};ext=1\r\n", piece.len())).await;
                        peer.stream.write_all(piece).await.unwrap();
                        peer.say("\r\n").await;
                    }
                    peer.say("0\r\n\r\n").await;
                } else {
                    peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())).await;
                    peer.stream.write_all(&bytes).await.unwrap();
                }
                peer
            });
            let body = sent.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), 4 * WORDS as usize);
            let words = body.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
            assert!(words.eq(0..WORDS));
            let _peer = script.await.unwrap();
            settle().await;
            assert_eq!(setup.metrics.origin_connections_open.get(), 1, "kept");
        }
    });
}

#[test]
fn an_origin_that_reads_nothing_holds_the_client_back() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let taken = Rc::new(Cell::new(0_usize));
        let counter = Rc::clone(&taken);
        let endless = stream::repeat_with(move || {
            counter.set(counter.get() + 64 * 1024);
            Ok::<_, BodyError>(Frame::data(Bytes::from_static(&[0; 64 * 1024])))
        });
        let sent = setup.send(request(Method::POST, Body::from_stream(StreamBody::new(endless))));
        let mut peer = origin.accept().await;
        peer.head().now_or_never();
        let mut before = 0;
        // The sockets are full, and nothing moves any more.
        loop {
            for _ in 0..20 {
                settle().await;
            }
            if before == taken.get() {
                break;
            }
            before = taken.get();
        }
        assert!(before > 0 && before < 64 * 1024 * 1024, "{before}");
        sent.abort();
    });
}

#[test]
fn connect_is_not_a_tunnel() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let response = setup.send(request(Method::CONNECT, Body::empty())).await.unwrap().unwrap();
        assert_eq!((response.status().as_u16(), setup.metrics.origin_connections.get()), (501, 0));
    });
}

#[test]
fn an_upload_that_ends_early_never_gets_its_last_chunk() {
    on_a_worker(async {
        for (error, known) in [
            (BodyError::Cancelled, false),
            (BodyError::Malformed, false),
            (BodyError::Cancelled, true),
            (BodyError::Malformed, true),
        ] {
            let origin = Script::new().await;
            let setup = origin.proxy(|config| config_of(config).request_buffer = 0);
            let (feed, body) = if known { fed_known(5) } else { fed() };
            let sent = setup.send(request(Method::POST, body));
            let mut peer = origin.accept().await;
            feed.send(data("abc")).unwrap();
            peer.until(if known { "abc" } else { "abc\r\n" }).await;
            feed.send(Err(error)).unwrap();
            assert_eq!(sent.await.unwrap().unwrap_err(), Abort::Request);
            assert_eq!(peer.rest().await, "", "{error:?} {known}");
        }
    });
}

#[test]
fn a_body_that_breaks_its_length_never_looks_whole_to_the_origin() {
    on_a_worker(async {
        for pieces in [&["abc"][..], &["abc", "def"], &["abcde", "f"]] {
            let origin = Script::new().await;
            let setup = origin.proxy(|config| config_of(config).request_buffer = 0);
            let (feed, body) = fed_known(5);
            let sent = setup.send(request(Method::POST, body));
            let mut peer = origin.accept().await;
            for piece in pieces {
                feed.send(data(piece)).unwrap();
            }
            drop(feed);
            assert_eq!(sent.await.unwrap().unwrap_err(), Abort::Request, "{pieces:?}");
            let all = peer.rest().await;
            let body = all.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            assert!(body.len() < 5, "{all}");
        }
    });
}

#[test]
fn declared_trailers_pass_both_ways_and_others_do_not() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (feed, body) = fed();
        let mut asked = request(Method::POST, body);
        asked.headers_mut().insert("trailer", HeaderValue::from_static("x-sum, x-forwarded-for"));
        let sent = setup.send(asked);
        let mut peer = origin.accept().await;
        feed.send(data("abc")).unwrap();
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "x-undeclared", "x-forwarded-for"] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        feed.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(feed);
        let all = peer.until("x-sum: 1\r\n\r\n").await;
        assert!(all.ends_with("3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n"), "{all}");
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        peer.say("3\r\nabc\r\n0\r\nX-End: 1\r\nContent-Length: 7\r\n\r\n").await;
        let response = sent.await.unwrap().unwrap();
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap().keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-end"]);
        // The connection is clean after all that.
        let again = setup.get();
        peer.head().await;
        peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(again.await.unwrap().unwrap().status(), 204);
    });
}

#[test]
fn trailers_of_which_none_passes_are_no_trailers() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        for end in ["0\r\nContent-Length: 3\r\nHost: a\r\n\r\n", "0\r\n\r\n"] {
            let sent = setup.get();
            let mut peer = origin.accept().await;
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
            peer.say(end).await;
            let collected = sent.await.unwrap().unwrap().into_body().collect().await.unwrap();
            assert!(collected.trailers().is_none());
            assert_eq!(collected.to_bytes(), "abc");
        }
    });
}

#[test]
fn the_route_decides_and_a_body_beyond_its_limit_is_refused() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|config| config.routes[0].max_body_bytes = Some(4));
        let mut elsewhere = get();
        *elsewhere.uri_mut() = "https://b.test/".parse().unwrap();
        let response = setup.send(elsewhere).await.unwrap().unwrap();
        assert_eq!(
            (response.status().as_u16(), proxy_status(&response).as_str()),
            (404, "error=destination_not_found")
        );
        // The length is known beforehand: the origin gets no byte.
        let response = setup.send(request(Method::POST, Body::from("hello"))).await.unwrap().unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(setup.metrics.origin_connections.get(), 0);
        // The length is exceeded on the way.
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = origin.accept().await;
        feed.send(data("hel")).unwrap();
        peer.until("hel\r\n").await;
        feed.send(data("lo")).unwrap();
        assert_eq!(sent.await.unwrap().unwrap().status(), 413);
        assert_eq!(peer.rest().await, "");
        assert_eq!(setup.metrics.limit_body_bytes.get(), 2);
    });
}

#[test]
fn a_client_too_slow_with_its_body_gets_408() {
    on_a_worker(async {
        let origin = Script::new().await;
        let setup = origin.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = origin.accept().await;
        peer.head().await;
        feed.send(Err(BodyError::TimedOut)).unwrap();
        assert_eq!(sent.await.unwrap().unwrap().status(), 408);
        assert_eq!(peer.rest().await, "");
    });
}
