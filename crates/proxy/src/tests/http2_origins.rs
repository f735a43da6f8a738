//! Origins with `protocol = "h2"`: streams, windows, and the ends of connections. The server is the `h2` crate's.
#![expect(clippy::disallowed_types, reason = "the h2 crate has these types")]

use super::*;
use h2::{
    Reason, RecvStream,
    server::{self, SendResponse},
};
use http::{HeaderMap, StatusCode};
use litequic_config::{HealthCheck, OriginProtocol};

type ServerRequest = http::Request<RecvStream>;
/// A request on its way.
type Sent = tokio::task::JoinHandle<Result<Response, Abort>>;

/// A connection of the proxy to an HTTP/2 server.
struct Http2Peer {
    requests: mpsc::UnboundedReceiver<(ServerRequest, SendResponse<Bytes>)>,
    /// Ends the connection by GOAWAY once requests in flight have ended.
    end: mpsc::UnboundedSender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Http2Peer {
    async fn accept(script: &Script) -> Self {
        Self::accept_with(script, &server::Builder::new()).await
    }

    async fn accept_with(script: &Script, builder: &server::Builder) -> Self {
        let (stream, _) = script.listener.accept().await.unwrap();
        let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (end, mut ended) = mpsc::unbounded_channel();
        let task = spawn_local(async move {
            loop {
                tokio::select! {
                    accepted = connection.accept() => match accepted {
                        Some(Ok(request)) => sender.send(request).unwrap(),
                        _ => return,
                    },
                    Some(()) = ended.recv() => connection.graceful_shutdown(),
                }
            }
        });
        Self { requests, end, task }
    }

    async fn next(&mut self) -> (ServerRequest, SendResponse<Bytes>) {
        self.requests.recv().await.expect("a request")
    }

    /// Answers the next request with `body`.
    async fn serve(&mut self, body: &'static str) -> ServerRequest {
        let (request, mut respond) = self.next().await;
        let mut sending = respond.send_response(http::Response::new(()), false).unwrap();
        sending.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
        request
    }
}

fn http2(script: &Script, change: impl FnOnce(&mut OriginConfig)) -> Setup {
    script.proxy(|config| {
        let origin = origin(config);
        origin.protocol = OriginProtocol::Http2;
        change(origin);
    })
}

/// A proxy that has sent a GET over a connection to an HTTP/2 server.
async fn with_a_request(change: impl FnOnce(&mut OriginConfig)) -> (Script, Setup, Sent, Http2Peer) {
    let script = Script::new().await;
    let setup = http2(&script, change);
    let sent = setup.get();
    let peer = Http2Peer::accept(&script).await;
    (script, setup, sent, peer)
}

async fn body_of(sent: Sent) -> String {
    text(sent.await.unwrap().unwrap()).await.unwrap()
}

async fn status_of(sent: Sent) -> u16 {
    sent.await.unwrap().unwrap().status().as_u16()
}

#[test]
fn requests_are_streams_of_one_connection() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let sent: Vec<_> = (0..10).map(|_| setup.get()).collect();
        let mut peer = Http2Peer::accept(&script).await;
        for _ in 0..10 {
            let request = peer.serve("hello").await;
            assert_eq!(request.uri().to_string(), "http://a.test/x?y=1");
            assert_eq!(request.headers().get("host"), None);
        }
        for response in sent {
            assert_eq!(body_of(response).await, "hello");
        }
        assert_eq!((setup.metrics.origin_connections.get(), setup.metrics.origin_streams_open.get()), (1, 0));
        assert_eq!(setup.metrics.origin_streams_cancelled.get(), 0);
    });
}

#[test]
fn a_servers_limit_of_streams_opens_further_connections() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |origin| origin.max_connections = Some(2));
        let mut few = server::Builder::new();
        few.max_concurrent_streams(2);
        let sent: Vec<_> = (0..5).map(|_| setup.get()).collect();
        let mut first = Http2Peer::accept_with(&script, &few).await;
        let mut second = Http2Peer::accept_with(&script, &few).await;
        let held = [first.next().await, first.next().await, second.next().await, second.next().await];
        settle().await;
        assert!(first.requests.try_recv().is_err() && second.requests.try_recv().is_err(), "the fifth one waits");
        for (_, mut respond) in held {
            respond.send_response(http::Response::new(()), true).unwrap();
        }
        tokio::select! { _ = first.serve("") => {}, _ = second.serve("") => {} }
        for response in sent {
            assert_eq!(status_of(response).await, 200);
        }
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}

#[test]
fn bodies_and_trailers_pass_in_both_directions_at_once() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |origin| origin.request_buffer = 0);
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = Http2Peer::accept(&script).await;
        let (mut request, mut respond) = peer.next().await;
        let mut sending = respond.send_response(http::Response::new(()), false).unwrap();
        let mut response = sent.await.unwrap().unwrap().into_body();
        for piece in ["one", "two", "three"] {
            feed.send(data(piece)).unwrap();
            let received = request.body_mut().data().await.unwrap().unwrap();
            assert_eq!(received, piece);
            request.body_mut().flow_control().release_capacity(received.len()).unwrap();
            sending.send_data(received, false).unwrap();
            assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
        }
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        feed.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(feed);
        assert_eq!(request.body_mut().trailers().await.unwrap().unwrap()["x-sum"], "7");
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        sending.send_trailers(trailers).unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_trailers().unwrap()["grpc-status"], "0");
        assert!(response.frame().await.is_none());
    });
}

#[test]
fn what_a_server_has_not_processed_is_sent_again_with_its_body() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let sent = setup.send(request(Method::POST, Body::from(Bytes::from_static(b"whole"))));
        let mut peer = Http2Peer::accept(&script).await;
        let (mut refused, mut respond) = peer.next().await;
        assert_eq!(refused.body_mut().data().await.unwrap().unwrap(), "whole");
        respond.send_reset(Reason::REFUSED_STREAM);
        let mut again = peer.serve("done").await;
        assert_eq!(again.body_mut().data().await.unwrap().unwrap(), "whole");
        assert_eq!(body_of(sent).await, "done");
        assert_eq!(setup.metrics.origin_streams_refused.get(), 1);

        // A body that is too long to be kept.
        let long: &'static str = Box::leak("x".repeat(40_000).into_boxed_str());
        let sent = setup.send(request(Method::POST, Body::from(Bytes::from_static(long.as_bytes()))));
        let (mut refused, mut respond) = peer.next().await;
        refused.body_mut().data().await.unwrap().unwrap();
        settle().await;
        respond.send_reset(Reason::REFUSED_STREAM);
        assert_eq!(status_of(sent).await, 502);
    });
}

#[test]
fn a_server_that_leaves_loses_no_request() {
    on_a_worker(async {
        let (script, setup, sent, mut peer) = with_a_request(|_| {}).await;
        let (_, mut respond) = peer.next().await;
        peer.end.send(()).unwrap();
        while setup.metrics.origin_goaways.get() == 0 {
            settle().await;
        }
        let other = setup.get();
        let mut next = Http2Peer::accept(&script).await;
        next.serve("second").await;
        assert_eq!(body_of(other).await, "second");
        respond.send_response(http::Response::new(()), true).unwrap();
        assert_eq!(status_of(sent).await, 200);
        peer.task.await.unwrap();
    });
}

#[test]
fn a_client_that_goes_away_cancels_its_stream_alone() {
    on_a_worker(async {
        let (_script, setup, gone, mut peer) = with_a_request(|_| {}).await;
        let (_, mut first) = peer.next().await;
        let stays = setup.get();
        let (_, mut second) = peer.next().await;
        gone.abort();
        let reason = std::future::poll_fn(|cx| first.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::CANCEL);
        second.send_response(http::Response::new(()), true).unwrap();
        assert_eq!(status_of(stays).await, 200);
        assert_eq!(setup.metrics.origin_streams_cancelled.get(), 1);
    });
}

#[test]
fn many_cancelled_requests_do_not_stay_on_one_connection() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let mut resets = server::Builder::new();
        resets.max_concurrent_reset_streams(1_000).max_pending_accept_reset_streams(1_000);
        let honest = setup.get();
        let mut peer = Http2Peer::accept_with(&script, &resets).await;
        let (_, mut respond) = peer.next().await;
        for _ in 0..120 {
            let gone = setup.get();
            settle().await;
            if peer.requests.try_recv().is_err() {
                break;
            }
            gone.abort();
            settle().await;
        }
        assert_eq!(setup.metrics.limit_origin_cancels.get(), 1);
        assert!(setup.metrics.origin_streams_cancelled.get() > 100);
        let mut next = Http2Peer::accept(&script).await;
        next.serve("elsewhere").await;
        respond.send_response(http::Response::new(()), true).unwrap();
        assert_eq!(status_of(honest).await, 200, "requests in flight go on");
    });
}

#[test]
fn a_reader_that_stops_does_not_stop_the_others() {
    on_a_worker(async {
        let (_script, setup, slow, mut peer) = with_a_request(|_| {}).await;
        let (_, mut respond) = peer.next().await;
        let mut sending = respond.send_response(http::Response::new(()), false).unwrap();
        sending.send_data(Bytes::from(vec![b'x'; 1 << 20]), true).unwrap();
        let slow = slow.await.unwrap().unwrap();
        settle().await;
        for _ in 0..3 {
            let fast = setup.get();
            peer.serve("fast").await;
            assert_eq!(body_of(fast).await, "fast");
        }
        assert_eq!(text(slow).await.unwrap().len(), 1 << 20);
    });
}

#[test]
fn an_upload_may_be_longer_than_all_windows() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let (feed, body) = fed_known(600_000);
        let sent = setup.send(request(Method::PUT, body));
        let piece: &'static str = Box::leak("y".repeat(100_000).into_boxed_str());
        for _ in 0..6 {
            feed.send(data(piece)).unwrap();
        }
        drop(feed);
        let mut peer = Http2Peer::accept(&script).await;
        let (mut request, mut respond) = peer.next().await;
        assert_eq!(request.headers()["content-length"], "600000");
        let mut received = 0;
        while let Some(data) = request.body_mut().data().await {
            let data = data.unwrap();
            received += data.len();
            request.body_mut().flow_control().release_capacity(data.len()).unwrap();
        }
        respond.send_response(http::Response::new(()), true).unwrap();
        assert_eq!((status_of(sent).await, received), (200, 600_000));
    });
}

#[test]
fn a_response_that_is_complete_survives_the_reset_behind_it() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |origin| origin.request_buffer = 0);
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = Http2Peer::accept(&script).await;
        let (request, mut respond) = peer.next().await;
        let mut sending = respond.send_response(http::Response::new(()), false).unwrap();
        sending.send_data(Bytes::from_static(b"early"), true).unwrap();
        // The crate sends RST_STREAM(NO_ERROR), as the request is not complete.
        drop((request, respond, sending));
        assert_eq!(body_of(sent).await, "early");
        drop(feed);
    });
}

#[test]
fn a_server_of_the_other_protocol_is_told_apart() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.say("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        assert_eq!(status_of(sent).await, 502);
        assert_eq!(setup.metrics.origin_connect_errors.get(), 1);

        // SETTINGS in place of HTTP/1.1.
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.stream.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0d").await.unwrap();
        assert_eq!(status_of(sent).await, 502);
        assert_eq!(setup.metrics.origin_errors.get(), 1);
    });
}

#[test]
fn an_idle_connection_closes_after_its_timeout() {
    with_a_jumping_clock(async {
        let (_script, setup, sent, mut peer) =
            with_a_request(|origin| origin.idle_timeout = Duration::from_secs(5)).await;
        peer.serve("hello").await;
        assert_eq!(body_of(sent).await, "hello");
        peer.task.await.unwrap();
        assert_eq!(setup.metrics.origin_connections_open.get(), 0);
    });
}

#[test]
fn a_silent_connection_gets_no_further_requests() {
    with_a_jumping_clock(async {
        let (script, setup, first, mut gone) = with_a_request(|_| {}).await;
        gone.serve("hello").await;
        assert_eq!(body_of(first).await, "hello");
        let lost = setup.get();
        let (_, _unanswered) = gone.next().await;
        assert_eq!(status_of(lost).await, 504);
        let next = setup.get();
        Http2Peer::accept(&script).await.serve("elsewhere").await;
        assert_eq!(body_of(next).await, "elsewhere");
    });
}

#[test]
fn a_server_that_grants_no_window_delays_bodies_alone() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            config.timeouts.response_header = Duration::from_secs(10);
            origin(config).protocol = OriginProtocol::Http2;
        });
        let (feed, body) = fed_known(100_000);
        let upload = setup.send(request(Method::PUT, body));
        // The client has more to send, which waits behind this.
        feed.send(data("the beginning")).unwrap();
        let mut closed = server::Builder::new();
        closed.initial_window_size(0);
        let mut peer = Http2Peer::accept_with(&script, &closed).await;
        let (_head, mut unanswered) = peer.next().await;
        for _ in 0..3 {
            let other = setup.get();
            peer.serve("other").await;
            assert_eq!(body_of(other).await, "other");
        }
        assert_eq!(status_of(upload).await, 504);
        assert_eq!(setup.metrics.timeout_response_header.get(), 1);
        assert_eq!(std::future::poll_fn(|cx| unanswered.poll_reset(cx)).await.unwrap(), Reason::CANCEL);
        assert_eq!(setup.metrics.origin_connections.get(), 1);
    });
}

#[test]
fn a_server_that_reads_nothing_fails_its_own_requests_alone() {
    with_a_jumping_clock(async {
        const WINDOW: &[u8] = &[0x7f, 0xff, 0, 0];
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            config.timeouts.response_header = Duration::from_secs(10);
            origin(config).protocol = OriginProtocol::Http2;
        });
        let (feed, body) = fed_known(8 << 20);
        let upload = setup.send(request(Method::PUT, body));
        let piece: &'static str = Box::leak("z".repeat(1 << 20).into_boxed_str());
        for _ in 0..8 {
            feed.send(data(piece)).unwrap();
        }
        // More than the kernel's buffers is on its way.
        let mut deaf = script.accept().await;
        let settings = [b"\0\0\x06\x04\0\0\0\0\0\0\x04", WINDOW, b"\0\0\x04\x08\0\0\0\0\0", WINDOW].concat();
        deaf.stream.write_all(&settings).await.unwrap();
        settle().await;
        let beside = setup.get();
        let (_other_script, _other, elsewhere, mut other) = with_a_request(|_| {}).await;
        other.serve("elsewhere").await;
        assert_eq!(body_of(elsewhere).await, "elsewhere");
        assert_eq!((status_of(upload).await, status_of(beside).await), (504, 504));
        assert_eq!(setup.metrics.timeout_response_header.get(), 2);
        let next = setup.get();
        Http2Peer::accept(&script).await.serve("again").await;
        assert_eq!(body_of(next).await, "again");
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}

#[test]
fn a_server_that_accepts_no_streams_is_not_asked_again_and_again() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = http2(&script, |_| {});
        let sent = setup.get();
        let mut none = server::Builder::new();
        none.max_concurrent_streams(0);
        let _peer = Http2Peer::accept_with(&script, &none).await;
        assert_eq!(status_of(sent).await, 502);
        assert_eq!(setup.metrics.origin_connections.get(), 1);
    });
}

#[test]
fn a_request_whose_content_does_not_fit_its_length_fails_alone() {
    on_a_worker(async {
        let (_script, setup, wrong, mut peer) = with_a_request(|_| {}).await;
        let (_, mut respond) = peer.next().await;
        let right = setup.get();
        let length = http::Response::builder().header("content-length", "3").body(()).unwrap();
        let mut sending = respond.send_response(length, false).unwrap();
        sending.send_data(Bytes::from_static(b"longer"), true).unwrap();
        peer.serve("fine").await;
        assert_eq!(wrong.await.unwrap().unwrap().status(), StatusCode::BAD_GATEWAY);
        assert_eq!(body_of(right).await, "fine");
    });
}

#[test]
fn health_checks_speak_http2_and_grpc() {
    on_a_worker(async {
        let (serving, not_serving): (&[u8], &[u8]) = (&[0, 0, 0, 0, 2, 8, 1], &[0, 0, 0, 0, 2, 8, 2]);
        let call = |service: &str| HealthCheck { grpc: Some(service.into()), ..HealthCheck::default() };
        let get = || HealthCheck { path: "/up?a".into(), ..HealthCheck::default() };
        // The check, status, content, grpc-status of the trailers or of the header, the problem.
        let table = [
            (get(), 200, &b"fine"[..], None, None),
            (get(), 503, b"", None, Some("answered with 503")),
            (call(""), 200, serving, Some("0"), None),
            (call("shop.Orders"), 200, serving, Some("0"), None),
            (call(""), 200, not_serving, Some("0"), Some("the service is not SERVING")),
            (call(""), 200, b"", Some("0"), Some("the service is not SERVING")),
            (call(""), 200, serving, None, Some("answered without grpc-status")),
            (call(""), 404, b"", None, Some("answered with 404")),
            (call("a"), 200, b"", Some("5"), Some("the server has no service \"a\" (NOT_FOUND)")),
            (call(""), 200, b"", Some("12"), Some("the server has no grpc.health.v1.Health service (UNIMPLEMENTED)")),
            (call(""), 200, serving, Some("14"), Some("answered with grpc-status \"14\"")),
        ];
        for (health, status, content, grpc_status, expected) in table {
            let script = Script::new().await;
            let wanted = health.grpc.clone();
            let health = HealthCheck { healthy: 1, unhealthy: 1, ..health };
            let setup = http2(&script, |origin| origin.health = Some(health));
            let checks = spawn_local(crate::check_health(Arc::clone(&setup.shared), Arc::default(), Arc::default()));
            let mut peer = Http2Peer::accept(&script).await;
            let (mut request, mut respond) = peer.next().await;
            let (path, body) = match &wanted {
                None => ("/up?a", vec![]),
                Some(service) => (
                    "/grpc.health.v1.Health/Check",
                    match u8::try_from(service.len()).unwrap() {
                        0 => vec![0; 5],
                        n => [&[0, 0, 0, 0, n + 2, 0x0a, n], service.as_bytes()].concat(),
                    },
                ),
            };
            assert_eq!(request.uri().path_and_query().unwrap(), path);
            assert_eq!(request.uri().authority().unwrap().as_str(), script.listener.local_addr().unwrap().to_string());
            let mut received = Vec::new();
            while let Some(piece) = request.body_mut().data().await {
                received.extend(piece.unwrap());
            }
            assert_eq!(received, body);
            let mut head = http::Response::builder().status(status);
            if let Some(status) = grpc_status.filter(|_| content.is_empty()) {
                head = head.header("grpc-status", status);
            }
            let is_end = content.is_empty();
            let mut sending = respond.send_response(head.body(()).unwrap(), is_end).unwrap();
            if !is_end {
                sending.send_data(Bytes::from_static(content), grpc_status.is_none()).unwrap();
                if let Some(status) = grpc_status {
                    let line = ("grpc-status".parse().unwrap(), status.parse().unwrap());
                    sending.send_trailers(HeaderMap::from_iter([line])).unwrap();
                }
            }
            peer.task.await.unwrap();
            let state = &setup.shared.load().server_states()[0].check.clone().unwrap();
            assert_eq!((state.up, state.problem.as_deref()), (expected.is_none(), expected), "{wanted:?} {status}");
            checks.abort();
        }
    });
}
