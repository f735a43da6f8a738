//! Tests streaming calls of gRPC and Connect: silence, deadlines, failures in trailers, and fairness beside them.

use super::{
    Feed, Peer, Request, Response, Script, Setup, answer, data, fed, get, origin, proxy_status, request, settle,
    setup_at, with_a_jumping_clock,
};
use crate::message::grpc;
use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, Collected};
use litequic_config::{AmbiguousFields, Sources};
use litequic_exchange::{Abort, Body, BodyError, FieldNameRef, Fields, Protocol};
use std::{rc::Rc, time::Duration};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep, timeout},
};

type Sent = JoinHandle<Result<Response, Abort>>;

const SECOND: Duration = Duration::from_secs(1);
const HEADER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A call with this content type and, if it is not empty, `grpc-timeout`.
fn call(content_type: &'static str, timeout: &'static str, body: Body) -> Request {
    let mut request = request(Method::POST, body);
    request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    if !timeout.is_empty() {
        request.headers_mut().insert("grpc-timeout", HeaderValue::from_static(timeout));
    }
    request
}

/// Sends a call with an open body, and returns it with the origin's connection, on which the head was read.
async fn open(setup: &Setup, script: &Script, content_type: &'static str, timeout: &'static str) -> (Feed, Sent, Peer) {
    let (feed, body) = fed();
    let sent = setup.send(call(content_type, timeout, body));
    let mut peer = script.accept().await;
    peer.head().await;
    (feed, sent, peer)
}

/// Status of gRPC in a header or trailers.
fn grpc_status(fields: impl Into<Fields>) -> Option<u32> {
    grpc::read_grpc_status(&fields.into())
}

async fn collect(response: Response) -> Result<Collected<Bytes>, BodyError> {
    response.into_body().collect().await
}

#[test]
fn a_server_that_speaks_first_gets_the_call_at_once() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        for content_type in ["application/grpc", "application/connect+proto"] {
            let began = Instant::now();
            let (_feed, sent, mut peer) = open(&setup, &script, content_type, "").await;
            peer.say(HEADER).await;
            assert_eq!(sent.await.unwrap().unwrap().status(), 200);
            assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
        }
    });
}

#[test]
fn a_call_may_be_silent_until_the_tunnels_timeout() {
    with_a_jumping_clock(async {
        for begun in [false, true] {
            let script = Script::new().await;
            let setup = script.proxy(|config| config.timeouts.tunnel = 150 * SECOND);
            let (feed, sent, mut peer) = open(&setup, &script, "application/grpc+proto", "").await;
            if begun {
                peer.say(HEADER).await;
            }
            sleep(100 * SECOND).await;
            feed.send(data("ping")).unwrap();
            peer.until("4\r\nping\r\n").await;
            let moved = Instant::now();
            let response = sent.await.unwrap().unwrap();
            let status = if begun {
                let trailers = collect(response).await.unwrap().trailers().unwrap().clone();
                grpc_status(&trailers)
            } else {
                grpc_status(response.headers())
            };
            assert_eq!((status, moved.elapsed().as_secs()), (Some(14), 150), "{begun}");
        }
    });
}

#[test]
fn a_routes_own_timeout_holds_for_a_call() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| config.routes[0].timeouts.response_header = Some(7 * SECOND));
        let (_feed, sent, _peer) = open(&setup, &script, "application/connect+json", "").await;
        let began = Instant::now();
        assert_eq!(sent.await.unwrap().unwrap().status(), 504, "Connect has HTTP's statuses");
        assert!(began.elapsed().as_secs() <= 7, "{:?}", began.elapsed());
    });
}

#[test]
fn a_call_ends_a_second_behind_its_clients_deadline() {
    with_a_jumping_clock(async {
        for begun in [false, true] {
            let script = Script::new().await;
            let setup = script.proxy(|config| origin(config).eject_after = Some(1));
            let began = Instant::now();
            let (_feed, sent, mut peer) = open(&setup, &script, "application/grpc", "95S").await;
            let (status, ended) = if begun {
                sleep(75 * SECOND).await;
                peer.say(HEADER).await;
                let trailers = collect(sent.await.unwrap().unwrap()).await.unwrap().trailers().unwrap().clone();
                (grpc_status(&trailers), began.elapsed())
            } else {
                let response = sent.await.unwrap().unwrap();
                assert_eq!(proxy_status(&response), "error=http_response_timeout");
                (grpc_status(response.headers()), began.elapsed())
            };
            assert_eq!((status, ended.as_secs()), (Some(4), 96), "{begun}");
            assert_eq!(setup.metrics.timeout_request.get(), 1);
            // The server is not at fault for a client's deadline.
            let (sent, mut peer) = script.asked_by(&setup).await;
            peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
            assert_eq!(sent.await.unwrap().unwrap().status(), 204);
        }
    });
}

#[test]
fn a_response_that_breaks_ends_with_a_status_of_grpc() {
    with_a_jumping_clock(async {
        for (content_type, expected) in [("application/grpc", Some(14)), ("application/connect+proto", None)] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let (_feed, sent, mut peer) = open(&setup, &script, content_type, "").await;
            peer.say(&format!("{HEADER}4\r\nping\r\n")).await;
            let response = sent.await.unwrap().unwrap();
            drop(peer);
            let whole = collect(response).await;
            match expected {
                Some(status) => {
                    let whole = whole.unwrap();
                    assert_eq!(grpc_status(whole.trailers().unwrap()), Some(status));
                    assert_eq!(whole.to_bytes(), "ping");
                }
                None => assert_eq!(whole.unwrap_err(), BodyError::Truncated),
            }
            assert_eq!(setup.metrics.origin_errors.get(), 1);
        }
    });
}

#[test]
fn an_error_is_answered_in_the_words_of_the_calls_protocol() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let address = script.address();
        drop(script);
        let setup = setup_at(address, |_| {});
        for (content_type, protocol, expected) in [
            ("application/grpc", Protocol::Http2, (200, Some(14))),
            ("application/grpc+json", Protocol::Http3, (200, Some(14))),
            ("application/grpc", Protocol::Http1, (502, None)),
            ("application/grpc-web", Protocol::Http2, (502, None)),
            ("application/connect+proto", Protocol::Http2, (502, None)),
        ] {
            let (mut exchange, _interim) = Setup::exchange(call(content_type, "", Body::empty()));
            Rc::get_mut(&mut exchange.client).unwrap().protocol = protocol;
            let response = answer(&setup.proxy, exchange).await.unwrap();
            let status = grpc_status(response.headers());
            assert_eq!((response.status().as_u16(), status), expected, "{content_type}");
            assert_eq!(proxy_status(&response), "error=connection_refused");
        }
        let counted = setup.metrics.grpc_responses.responses_with_status(14);
        assert_eq!(counted, 2);
    });
}

#[test]
fn statuses_in_headers_and_trailers_are_counted() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\nGrpc-Status: 12\r\nContent-Length: 0\r\n\r\n".to_owned(), 12),
            (format!("{HEADER}1\r\na\r\n0\r\ngrpc-status: 0\r\n\r\n"), 0),
            (format!("{HEADER}1\r\na\r\n0\r\ngrpc-status: 99\r\n\r\n"), 17),
        ] {
            let (feed, sent, mut peer) = open(&setup, &script, "application/grpc", "").await;
            drop(feed);
            peer.until("0\r\n\r\n").await;
            peer.say(&answer).await;
            collect(sent.await.unwrap().unwrap()).await.unwrap();
            assert_eq!(setup.metrics.grpc_responses.responses_with_status(status), 1, "{answer}");
        }
    });
}

#[test]
fn metadata_passes_whatever_becomes_of_ambiguous_names() {
    with_a_jumping_clock(async {
        for policy in [AmbiguousFields::Drop, AmbiguousFields::Reject] {
            let script = Script::new().await;
            let setup = script.proxy(|config| origin(config).ambiguous_fields = policy);
            let mut request = call("application/grpc", "", Body::empty());
            for name in ["my_key", "my.key", "x_forwarded_for", "transfer_encoding"] {
                request.headers_mut().insert(name, HeaderValue::from_static("1"));
            }
            let _sent = setup.send(request);
            let head = script.accept().await.head().await;
            assert!(head.contains("my_key: 1\r\n") && head.contains("my.key: 1\r\n"), "{head}");
            assert!(!head.contains("x_forwarded_for") && !head.contains("transfer_encoding"), "{head}");
        }
    });
}

#[test]
fn a_calls_trailers_need_no_declaration() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (feed, _sent, mut peer) = open(&setup, &script, "application/grpc", "").await;
        let trailers = Fields::from_iter([(FieldNameRef::from_lower_case_token("checksum"), &b"7"[..])]);
        feed.send(Ok(http_body::Frame::trailers(trailers.into()))).unwrap();
        assert_eq!(peer.until("\r\n\r\n").await, "0\r\nchecksum: 7\r\n\r\n");
    });
}

/// Serves each connection: a GET is answered, a call gets a header if it says so, and no more.
fn serve_all(script: Script) -> JoinHandle<()> {
    spawn_local(async move {
        loop {
            let mut peer = script.accept().await;
            spawn_local(async move {
                loop {
                    let mut byte = [0; 1];
                    if !matches!(peer.stream.peek(&mut byte).await, Ok(1)) {
                        return;
                    }
                    let head = peer.head().await;
                    if head.starts_with("GET") {
                        sleep(SECOND / 2).await;
                        peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
                    } else if head.contains("x-begins: 1") {
                        peer.say(HEADER).await;
                    }
                }
            });
        }
    })
}

/// The rate of uploads does not apply to calls; this is the protection that replaces it.
#[test]
fn silent_calls_of_many_sources_leave_another_client_its_share() {
    const CONNECTIONS: u32 = 64;
    with_a_jumping_clock(async {
        for sources in [1_u8, 2, 5, 16, 64] {
            let script = Script::new().await;
            let setup = script.proxy(|config| {
                origin(config).max_connections = Some(CONNECTIONS);
                config.sources = Sources::default();
            });
            let origin = serve_all(script);
            let mut calls: Vec<(Feed, JoinHandle<()>)> = Vec::new();
            let mut begin = |setup: &Setup, number: u8| {
                let (feed, body) = fed();
                let mut request = call("application/grpc", "", body);
                if number.is_multiple_of(2) {
                    request.headers_mut().insert("x-begins", HeaderValue::from_static("1"));
                }
                let sent = setup.send_as(1 + number % sources, u64::from(number), request);
                let read = spawn_local(async move {
                    if let Ok(Ok(response)) = sent.await {
                        let _ = collect(response).await;
                    }
                });
                calls.push((feed, read));
            };
            (0..100).for_each(|number| begin(&setup, number));
            sleep(SECOND).await;
            let mut served = 0;
            for number in 0..25 {
                // Four at once, so that the slot in reserve for a client that holds none is not enough.
                let sent: Vec<Sent> = (0..4).map(|_| setup.send_as(150, 1_000, get())).collect();
                for sent in sent {
                    let answered = timeout(10 * SECOND, sent).await;
                    served += u32::from(matches!(answered, Ok(Ok(Ok(response))) if response.status() == 204));
                }
                // Calls that ended are opened again, and more.
                (0..4).for_each(|more| begin(&setup, 4 * number + more));
                sleep(SECOND).await;
            }
            assert!(served >= 99, "{sources} sources: {served} of 100");
            let preempted = setup.metrics.evicted_slow_uploads.get() + setup.metrics.evicted_silent.get();
            assert!(preempted > 0 || sources == 64, "{sources} sources: {preempted}");
            settle().await;
            origin.abort();
        }
    });
}
