//! Exchanges that do not end well: origins that fail, clients that go away, limits that are reached. Each side is
//! notified, and nothing is left behind.

use crate::support::{
    prelude::*,
    proxy::unbuffered,
    raw::{get, with},
};
use litequic_http3::ErrorCode;
use quinn::VarInt;

/// As small as the configuration takes it: one stream that is not read takes all that is kept for first trains.
const SMALL_BUFFER: u32 = 32 * 1024;

/// Long enough to be noticed, short enough to wait for.
const SHORT: Duration = Duration::from_millis(100);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);

/// Waits until neither a request nor a connection to an origin is open, and nothing is held.
async fn everything_is_freed(litequic: &Litequic) {
    litequic.wait_until_idle().await;
    let open = |worker: &WorkerMetrics| worker.proxy.origin_connections_open.get();
    litequic.wait_until("origin_connections_open = 0", open, |open| open == 0).await;
}

/// A short answer of litequic's own: plain text without an inner address, with the request's ID in three places.
fn is_litequic_s_own(response: &raw::Response) {
    let id = response.fields.get("x-request-id").unwrap();
    let body = std::str::from_utf8(&response.body).unwrap();
    assert!(body.contains(id) && response.fields.get("proxy-status").unwrap().contains(id));
    assert!(!body.contains("127.0.0.1") && body.len() < 300, "{body}");
    assert_eq!(response.fields.get("content-type"), Some("text/plain; charset=utf-8"));
}

#[tokio::test]
async fn an_origin_that_refuses_the_connection_is_a_502() {
    let litequic = Litequic::start(origin::closed_port(), |_| {}).await;
    let client = Raw::to(&litequic).await;
    let response = client.ask(&get()).await.response();
    assert_eq!(response.fields.status(), 502);
    assert!(response.fields.get("proxy-status").unwrap().contains("connection_refused"));
    is_litequic_s_own(&response);
    litequic.stop().await;
}

#[tokio::test]
async fn an_origin_that_hangs_is_a_504_and_its_connection_is_closed() {
    let (origin, litequic) = Script::behind_litequic(|config| config.timeouts.response_header = SHORT).await;
    let client = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = client.asked_at(&origin).await;
    let response = exchange.outcome().await.response();
    assert_eq!(response.fields.status(), 504);
    is_litequic_s_own(&response);
    assert_eq!(peer.rest().await, "");
    assert_eq!(litequic.sum(|worker| worker.proxy.timeout_response_header.get()), 1);
    everything_is_freed(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_passed_on_is_a_502() {
    for (answer, error) in [
        ("this is not HTTP\r\n\r\n", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551614\r\n\r\n", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nhello", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nhello", "http_protocol_error"),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "http_upgrade_failed"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "http_response_transfer_coding"),
    ] {
        let (_origin, litequic) = Always::behind_litequic(answer, |_| {}).await;
        let client = Raw::to(&litequic).await;
        let response = client.ask(&get()).await.response();
        assert_eq!(response.fields.status(), 502, "{answer}");
        let status = response.fields.get("proxy-status").unwrap();
        assert!(status.contains(error), "{status} for {answer}");
        is_litequic_s_own(&response);
        everything_is_freed(&litequic).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_origin_that_closes_before_or_within_its_header_is_a_502() {
    for (part, error) in [("", "connection_terminated"), ("HTTP/1.1 200 OK\r\nContent-", "http_response_incomplete")] {
        let (origin, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&with("POST", &[])).await;
        exchange.finish();
        let mut peer = origin.accept_request().await;
        peer.say(part).await;
        drop(peer);
        let response = exchange.outcome().await.response();
        assert_eq!(response.fields.status(), 502, "{part}");
        assert!(response.fields.get("proxy-status").unwrap().contains(error), "{part}");
        origin.saw_no_connection(); // a POST is not sent again
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_truncated_response_is_reset_and_never_looks_whole() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nfive\r\n",
    ] {
        let (origin, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&origin).await;
        peer.say(answer).await;
        drop(peer);
        assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::InternalError.wire_value()), "{answer}");
        everything_is_freed(&litequic).await;
        assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()), 1);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_response_that_stalls_is_reset() {
    let (origin, litequic) = Script::behind_litequic(|config| config.timeouts.response_body = SHORT).await;
    let client = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = client.asked_at(&origin).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
    assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::InternalError.wire_value()));
    assert_eq!(litequic.sum(|worker| worker.proxy.timeout_response_body.get()), 1);
    assert_eq!(peer.rest().await, "");
    litequic.stop().await;
}

#[tokio::test]
async fn an_early_response_stops_the_upload_without_an_error() {
    let (origin, litequic) = Script::behind_litequic(|config| config.limits.max_lingering_bytes = 0).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
    let mut peer = origin.accept().await;
    peer.until("abc\r\n").await;
    peer.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
    let response = exchange.outcome().await.response();
    assert_eq!((response.fields.status(), response.body.as_slice()), (401, &b"no"[..]));
    assert_eq!(exchange.stopped().await, Some(ErrorCode::NoError.wire_value()));
    assert_eq!(peer.rest().await, "", "no last chunk, and the connection is not used again");
    everything_is_freed(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_early_response_to_an_unread_upload_releases_everything() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        config.limits.max_lingering_bytes = 10_000_000;
        unbuffered(config);
    })
    .await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&with("POST", &[("content-length", "100000000")])).await;
    let mut peer = origin.accept_request().await;
    peer.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    // Flow control stops the upload half-way; STOP_SENDING ends the wait.
    exchange.send(&raw::data(vec![0; 100_000_000])).await;
    assert_eq!(exchange.stopped().await, Some(ErrorCode::NoError.wire_value()));
    let response = exchange.outcome().await.response();
    assert_eq!((response.fields.status(), response.body.as_slice()), (413, &b"no"[..]));
    everything_is_freed(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn stop_sending_cancels_the_request_at_the_origin() {
    // Before the response, within it while nothing comes, and within it while it flows.
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"] {
        let (origin, litequic) = Script::behind_litequic(|_| {}).await;
        let client = Raw::to(&litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&origin).await;
        peer.say(answer).await;
        if !answer.is_empty() {
            exchange.header().await;
        }
        exchange.receive.stop(REQUEST_CANCELLED).unwrap();
        assert_eq!(peer.rest().await, "");
        everything_is_freed(&litequic).await;
        assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_client.get()), 1);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn stop_sending_cancels_a_running_download_at_the_origin() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&raw::request("GET", "/bytes/1G")).await;
    exchange.finish();
    let mut read = 0;
    while read < 5_000_000 {
        let chunk = within("the body", exchange.receive.read_chunk(usize::MAX, true)).await.unwrap();
        read += chunk.expect("more").bytes.len();
    }
    exchange.receive.stop(REQUEST_CANCELLED).unwrap();
    everything_is_freed(&litequic).await;
    assert_eq!(client.ask(&raw::request("GET", "/bytes/10")).await.response().body.len(), 10);
    litequic.stop().await;
}

#[tokio::test]
async fn cancelling_an_unread_download_keeps_the_connection() {
    const WINDOW: u32 = 16 * 1024;
    let litequic = Litequic::demo(|_| {}).await;
    let client = Raw::with_window(&litequic, WINDOW).await;
    for round in 1..=5 {
        let mut exchange = client.open(&raw::request("GET", "/bytes/1G")).await;
        exchange.finish();
        until("a full window", async || client.quic.connection.stats().udp_rx.bytes >= round * u64::from(WINDOW)).await;
        exchange.receive.stop(REQUEST_CANCELLED).unwrap();
        everything_is_freed(&litequic).await;
        assert_eq!(client.ask(&raw::request("GET", "/bytes/10")).await.response().body.len(), 10);
        assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_client.get()), round);
    }
    litequic.stop().await;
}

#[tokio::test]
async fn ending_a_request_whose_client_does_not_read_keeps_the_connection() {
    let litequic = Litequic::demo(|config| config.timeouts.send = SHORT).await;
    let client = Raw::with_window(&litequic, 16 * 1024).await;
    let mut exchange = client.open(&raw::request("GET", "/bytes/1G")).await;
    litequic.wait_until("a timeout", |worker| worker.shared.timeout_send.get(), |timeouts| timeouts == 1).await;
    assert_eq!(client.ask(&raw::request("GET", "/bytes/10")).await.response().body.len(), 10);
    assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::RequestCancelled.wire_value()));
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_client_that_resets_its_upload_never_makes_it_look_whole() {
    for more in [&[][..], &[("content-length", "9")]] {
        let (origin, litequic) = Script::behind_litequic(unbuffered).await;
        let client = Raw::to(&litequic).await;
        let mut exchange = client.open(&[with("POST", more), raw::data("abc")].concat()).await;
        let mut peer = origin.accept().await;
        peer.until(if more.is_empty() { "abc\r\n" } else { "abc" }).await;
        exchange.send.reset(REQUEST_CANCELLED).unwrap();
        assert_eq!(peer.rest().await, "");
        assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::RequestCancelled.wire_value()));
        everything_is_freed(&litequic).await;
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_closes_its_connection_cancels_what_runs() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let waiting = client.open(&get()).await;
    let mut peer = origin.accept_request().await;
    client.quic.connection.close(VarInt::from_u32(0x100), b"");
    peer.rest().await;
    everything_is_freed(&litequic).await;
    litequic.wait_until("connections_open = 0", |worker| worker.http3.connections_open.get(), |open| open == 0).await;
    drop(waiting);
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_nothing_behind() {
    let litequic = Litequic::demo(|config| config.timeouts.idle = Duration::from_millis(500)).await;
    let client = Raw::to(&litequic).await;
    let path = |method, path| raw::request(method, path);
    let download = client.open(&path("GET", "/bytes/1G")).await;
    let upload = client.open(&[path("POST", "/sink"), raw::data(vec![0; 10_000])].concat()).await;
    let hanging = client.open(&path("GET", "/slow/600000")).await;
    litequic.wait_until("three requests", |worker| worker.shared.requests_open.get(), |open| open == 3).await;
    litequic.wait_until("bytes are held", |worker| worker.worker.send_buffered.get(), |held| held > 0).await;
    client.quic.vanish();
    everything_is_freed(&litequic).await;
    litequic.wait_until("connections_open = 0", |worker| worker.http3.connections_open.get(), |open| open == 0).await;
    drop((download, upload, hanging));
    litequic.stop().await;
}

#[tokio::test]
async fn a_content_length_above_the_limit_gets_413_at_once() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        config.limits.max_body_bytes = Some(10);
        config.limits.max_lingering_bytes = 0;
    })
    .await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&with("POST", &[("content-length", "11")])).await;
    let response = exchange.outcome().await.response();
    assert_eq!(response.fields.status(), 413);
    is_litequic_s_own(&response);
    assert_eq!(exchange.stopped().await, Some(ErrorCode::NoError.wire_value()));
    origin.saw_no_connection();
    litequic.stop().await;
}

#[tokio::test]
async fn a_body_that_exceeds_the_limit_gets_413_and_no_last_chunk() {
    let (origin, litequic) = Script::behind_litequic(|config| config.limits.max_body_bytes = Some(10)).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&[with("POST", &[]), raw::data("12345")].concat()).await;
    let mut peer = origin.accept().await;
    peer.until("5\r\n12345\r\n").await;
    exchange.send(&raw::data("678901")).await;
    assert_eq!(exchange.outcome().await.status(), 413);
    assert_eq!(peer.rest().await, "");
    assert_eq!(litequic.sum(|worker| worker.proxy.limit_body_bytes.get()), 1);
    everything_is_freed(&litequic).await;

    let mut exchange = client.open(&[with("POST", &[]), raw::data("1234567890")].concat()).await;
    exchange.finish();
    let mut peer = origin.accept().await;
    peer.until("A\r\n1234567890\r\n0\r\n\r\n").await; // what is allowed passes
    peer.say(Always::EMPTY_200).await;
    assert_eq!(exchange.outcome().await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_too_slow_with_its_header_or_body_gets_408() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        config.timeouts.request_header = SHORT;
        config.timeouts.request_body = SHORT;
    })
    .await;
    let client = Raw::to(&litequic).await;
    let mut slow = client.open(&get()[..5]).await;
    assert_eq!(slow.outcome().await.status(), 408);
    origin.saw_no_connection();
    let mut slow = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
    let mut peer = origin.accept().await;
    peer.until("abc\r\n").await;
    assert_eq!(slow.outcome().await.status(), 408);
    assert_eq!(peer.rest().await, "");
    let timeouts = |litequic: &Litequic| {
        (
            litequic.sum(|worker| worker.shared.timeout_request_header.get()),
            litequic.sum(|worker| worker.shared.timeout_request_body.get()),
        )
    };
    assert_eq!(timeouts(&litequic), (1, 1));
    everything_is_freed(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_is_reset() {
    let litequic = Litequic::demo(|config| config.timeouts.send = SHORT).await;
    let client = Raw::to(&litequic).await;
    let exchange = client.open(&raw::request("GET", "/bytes/1G")).await;
    litequic.wait_until("a timeout", |worker| worker.shared.timeout_send.get(), |timeouts| timeouts == 1).await;
    everything_is_freed(&litequic).await;
    drop(exchange);
    litequic.stop().await;
}

#[tokio::test]
async fn a_full_pool_and_queue_get_503_with_retry_after() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        let origin = config.origins.get_mut(Config::ORIGIN_NAME).unwrap();
        (origin.max_connections, origin.max_queue) = (Some(1), Some(1));
    })
    .await;
    let client = Raw::to(&litequic).await;
    let (mut first, mut peer) = client.asked_at(&origin).await;
    let mut second = client.open(&get()).await;
    second.finish();
    litequic.wait_until("two are open", |worker| worker.http3.requests.get(), |requests| requests == 2).await;
    let third = client.ask(&get()).await.response();
    assert_eq!((third.fields.status(), third.fields.get("retry-after")), (503, Some("1")));
    is_litequic_s_own(&third);
    peer.say(Always::EMPTY_200).await;
    assert_eq!(first.outcome().await.status(), 200);
    peer.head().await;
    peer.say(Always::EMPTY_200).await;
    assert_eq!(second.outcome().await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_at_its_request_limit_ends_with_goaway() {
    let litequic = Litequic::demo(|config| config.limits.max_requests = 2).await;
    let client = Raw::to(&litequic).await;
    let mut running = client.open(&raw::request("POST", "/echo")).await;
    running.send(&raw::data("before")).await;
    assert_eq!(client.ask(&raw::request("GET", "/bytes/1")).await.status(), 200);
    // Until GOAWAY has made its round trip, further requests are served; then they may be sent elsewhere.
    let refused = async {
        while client.ask(&raw::request("GET", "/bytes/1")).await
            != Outcome::Reset(ErrorCode::RequestRejected.wire_value())
        {}
    };
    within("GOAWAY", refused).await;
    running.send(&raw::data("after")).await;
    running.finish();
    assert_eq!(running.outcome().await.response().body, b"beforeafter");
    assert_eq!(client.quic.closed().await, ErrorCode::NoError.wire_value());

    let client = Client::to(&litequic).await;
    for _ in 0..2 {
        assert_eq!(client.get("/bytes/1").await.status, 200);
    }
    let ended = client.ended().await;
    assert!(ended.is_h3_no_error(), "{ended}");
    assert_eq!(Client::over(Quic::to(&litequic).await, "localhost").await.get("/bytes/1").await.status, 200);
    litequic.stop().await;
}

#[tokio::test]
async fn clients_that_read_nothing_do_not_keep_others_from_being_answered() {
    let litequic = Litequic::demo(|config| {
        config.limits.stream_send_buffer = SMALL_BUFFER;
        config.limits.connection_send_buffer = SMALL_BUFFER;
        config.limits.worker_send_buffer = SMALL_BUFFER.into();
    })
    .await;
    let mut transport = quinn::TransportConfig::default();
    // More than a first train, so that the budget is what they meet.
    transport.stream_receive_window(VarInt::from_u32(64_000));
    let stalled = Client::with_transport(&litequic, transport).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let stream = stalled.begin_get("/bytes/1M").await;
        unread.push(stream);
    }
    litequic.wait_until("the limit", |worker| worker.shared.limit_send_buffer.get(), |count| count >= 3).await;

    let other = Client::to(&litequic).await;
    assert_eq!(other.get("/bytes/10000").await.body.len(), 10_000);
    litequic.stop().await;
}
