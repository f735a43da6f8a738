//! Each limit works: the client that reaches it is answered as documented, it is counted, and another client is served
//! all the while.

use crate::support::{
    bystander::{A_CONNECTION_S, SHORT, beside_a_bystander, counts},
    prelude::*,
    proxy::unbuffered,
    raw::{HEADERS, RESERVED, SETTINGS},
};
use futures_util::FutureExt;
use litequic_http3::ErrorCode;
use quinn::VarInt;

#[tokio::test]
async fn max_streams_lets_the_client_wait() {
    let script = Script::new().await;
    let edit = |config: &mut Config| config.limits.max_streams = 2;
    beside_a_bystander(script.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let (mut first, mut second) = (client.open(&raw::get()).await, client.open(&raw::get()).await);
        let mut peer = script.accept_request().await;
        assert!(client.quic.connection.open_bi().now_or_never().is_none(), "a third stream was allowed");
        bystander.goes_on().await;
        first.finish();
        peer.say(Always::EMPTY_200).await;
        assert_eq!(first.outcome().await.status(), 200);
        let third = client.open(&raw::get()).await;
        second.finish();
        drop((second, third));
    })
    .await;
}

#[tokio::test]
async fn max_requests_ends_the_connection_in_order() {
    let always = Always::new(Always::EMPTY_200).await;
    let limit = u64::try_from(A_CONNECTION_S).unwrap() + 1;
    let edit = |config: &mut Config| config.limits.max_requests = limit;
    beside_a_bystander(always.address, edit, async |litequic, _| {
        let client = Client::to(litequic).await;
        for _ in 0..limit {
            assert_eq!(client.get("/").await.status, 200);
        }
        let ended = client.ended().await;
        assert!(ended.is_h3_no_error(), "{ended}");
        counts(litequic, "limit_requests", |worker| worker.shared.limit_requests.get(), 1).await;
    })
    .await;
}

#[tokio::test]
async fn large_headers_get_431_and_large_trailers_a_reset() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.limits.max_header_bytes, config.limits.max_headers) = (1_000, 15);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let long = "v".repeat(2_000);
        let nearly = "v".repeat(980); // with 32 bytes a field it is beyond (RFC 9114 §4.2.2), encoded it is not
        assert_eq!(client.ask(&raw::with("GET", &[("x", &long)])).await.status(), 431);
        assert_eq!(client.ask(&raw::with("GET", &[("x", "y"); 16])).await.status(), 431);
        counts(litequic, "limit_header_bytes", |worker| worker.shared.limit_header_bytes.get(), 1).await;
        counts(litequic, "limit_headers", |worker| worker.shared.limit_headers.get(), 1).await;

        let cases = [(vec![("x", &*long)], 2, 1), (vec![("x", &*nearly)], 3, 1), (vec![("x", "y"); 16], 3, 2)];
        for (trailers, bytes, fields) in cases {
            let mut exchange = client.open(&[raw::with("POST", &[]), raw::data("abc")].concat()).await;
            let mut peer = script.accept().await;
            peer.until("3\r\nabc\r\n").await;
            exchange.send(&raw::headers(&trailers)).await;
            exchange.finish();
            assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::ExcessiveLoad.wire_value()));
            assert_eq!(peer.rest().await, "", "no last chunk");
            counts(litequic, "limit_header_bytes", |worker| worker.shared.limit_header_bytes.get(), bytes).await;
            counts(litequic, "limit_headers", |worker| worker.shared.limit_headers.get(), fields).await;
        }
    })
    .await;
}

/// The status of a GET with `more` fields, by protocol: HTTP/3, HTTP/2, HTTP/1.1.
async fn statuses(litequic: &Litequic, more: &[(&str, &str)]) -> [u16; 3] {
    let three = Raw::to(litequic).await.ask(&raw::with("GET", more)).await.status();
    let mut client = Http2::connect(litequic, &[]).await;
    client.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::get(more)).await;
    let two = http2::status(&client.find(&[http2::HEADERS]).await.unwrap());
    let mut client = Tls::http1(litequic).await;
    // Over HTTP/1.1 cookies are one line (RFC 6265 §5.4).
    let (cookies, others): (Vec<_>, Vec<_>) = more.iter().partition(|(name, _)| *name == "cookie");
    let cookies: Vec<&str> = cookies.iter().map(|(_, value)| *value).collect();
    let mut lines: String = others.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if !cookies.is_empty() {
        lines += &format!("Cookie: {}\r\n", cookies.join("; "));
    }
    client.say(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await;
    let one = client.head().await.split(' ').nth(1).unwrap().parse().unwrap();
    [three, two, one]
}

#[tokio::test]
async fn max_headers_holds_over_each_protocol_with_cookies_as_one_field() {
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| config.limits.max_headers = 30).await;
    let (field, cookie) = (("x", "y"), ("cookie", "name=value"));
    for (fields, cookies, status) in [
        (0, 0, 200),
        (29, 0, 200),
        (30, 0, 200),
        (31, 0, 431),
        (0, 180, 200),
        (29, 180, 200),
        (30, 1, 431),
        (30, 180, 431),
    ] {
        let more = [vec![field; fields], vec![cookie; cookies]].concat();
        assert_eq!(statuses(&litequic, &more).await, [status; 3], "{fields} fields and {cookies} cookies");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn max_body_bytes_is_413() {
    let script = Script::new().await;
    let edit = |config: &mut Config| {
        config.limits.max_body_bytes = Some(10);
        config.limits.max_lingering_bytes = 0;
    };
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let mut known = client.open(&raw::with("POST", &[("content-length", "11")])).await;
        assert_eq!(known.outcome().await.status(), 413);
        let mut unknown = client.open(&[raw::with("POST", &[]), raw::data("12345678901")].concat()).await;
        assert_eq!(unknown.outcome().await.status(), 413);
        assert_eq!(unknown.stopped().await, Some(ErrorCode::NoError.wire_value()));
        counts(litequic, "limit_body_bytes", |worker| worker.proxy.limit_body_bytes.get(), 2).await;
    })
    .await;
}

#[tokio::test]
async fn an_upload_that_is_not_read_waits_within_the_receive_buffers() {
    const CHUNK: usize = 64 * 1024;
    /// The kernel's socket buffers on the way to the origin, several MiB each way, and hyper's.
    const BEYOND: usize = 32 * 1024 * 1024;
    let script = Script::new().await;
    let edit = |config: &mut Config| {
        (config.limits.stream_receive_buffer, config.limits.connection_receive_buffer) = (64 * 1024, 128 * 1024);
        unbuffered(config);
    };
    beside_a_bystander(script.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let mut exchange = client.open(&raw::with("POST", &[("content-length", "1000000000")])).await;
        let mut peer = script.accept_request().await;
        exchange.send(&[raw::varint(raw::DATA), raw::varint(1_000_000_000)].concat()).await;
        let mut written = 0;
        while let Ok(wrote) = timeout(SHORT, exchange.send.write(&[7; CHUNK])).await {
            written += wrote.unwrap();
            assert!(written < BEYOND, "{written} bytes were taken");
        }
        bystander.goes_on().await;
        // Once the origin reads, the client may go on.
        peer.exactly(written.min(1 << 20)).await;
        within("room", exchange.send.write(&[7; CHUNK])).await.unwrap();
        exchange.send.reset(VarInt::from_u32(0x10c)).unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_send_buffers_let_the_origin_wait() {
    const SMALL: u32 = 64 * 1024;
    let demo = origin::demo().await;
    let edit = |config: &mut Config| {
        config.limits.stream_send_buffer = SMALL;
        config.limits.connection_send_buffer = SMALL;
        config.limits.worker_send_buffer = SMALL.into();
    };
    beside_a_bystander(demo, edit, async |litequic, bystander| {
        let mut transport = quinn::TransportConfig::default();
        // More than a first train, so that the budget is what they meet.
        transport.stream_receive_window(VarInt::from_u32(64_000));
        let stalled = Client::with_transport(litequic, transport).await;
        let mut unread = Vec::new();
        for _ in 0..5 {
            let stream = stalled.begin_get("/bytes/1M").await;
            unread.push(stream);
        }
        litequic.wait_until("the limit", |worker| worker.shared.limit_send_buffer.get(), |count| count >= 3).await;
        bystander.goes_on().await;
        assert!(litequic.sum(|worker| worker.worker.send_buffered.get()) <= u64::from(SMALL));
    })
    .await;
}

#[tokio::test]
async fn what_an_event_stream_held_is_given_back_between_two_events() {
    /// A train is all that its answers take.
    const BYSTANDER_S: u64 = 16 * 1024;
    let script = Script::new().await;
    beside_a_bystander(script.address, defaults, async |litequic, bystander| {
        let client = Client::to(litequic).await;
        let mut stream = client.begin_get("/").await;
        let mut peer = script.accept_request().await;
        let burst = "x".repeat(1_000_000);
        peer.say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nF4240\r\n{burst}\r\n")).await;
        within("the header", stream.recv_response()).await.unwrap();
        let mut read = 0;
        while read < 1_000_000 {
            let chunk = within("the burst", stream.recv_data()).await.unwrap();
            read += bytes::Buf::remaining(&chunk.expect("more"));
        }
        // The gauge is set twice a second: its first value is old.
        let held = |worker: &WorkerMetrics| worker.worker.send_buffered.get();
        litequic.wait_until("the burst is held", held, |held| held > BYSTANDER_S).await;
        litequic.wait_until("it is given back", held, |held| held <= BYSTANDER_S).await;
        bystander.goes_on().await;
        assert!(litequic.sum(|worker| worker.shared.requests_open.get()) >= 1);
        peer.say("5\r\nevent\r\n0\r\n\r\n").await;
        let event = within("an event", stream.recv_data()).await.unwrap();
        assert_eq!(bytes::Buf::remaining(&event.expect("an event")), 5);
    })
    .await;
}

#[tokio::test]
async fn a_full_pool_queues_and_a_full_queue_or_timeout_gets_503() {
    let script = Script::new().await;
    let edit = |config: &mut Config| {
        let origin = config.origins.get_mut(Config::ORIGIN_NAME).unwrap();
        (origin.max_connections, origin.max_queue) = (Some(1), Some(1));
        config.timeouts.queue = SHORT;
    };
    beside_a_bystander(script.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let (mut running, mut peer) = client.asked_at(&script).await;
        let mut waiting = client.open(&raw::get()).await;
        waiting.finish();
        counts(litequic, "origin_max_connections", |worker| worker.proxy.limit_origin_connections.get(), 1).await;
        let refused = client.ask(&raw::get()).await.response();
        assert_eq!((refused.fields.status(), refused.fields.get("retry-after")), (503, Some("1")));
        counts(litequic, "origin_max_queue", |worker| worker.proxy.limit_origin_queue.get(), 1).await;
        let waited = waiting.outcome().await.response();
        assert_eq!((waited.fields.status(), waited.fields.get("retry-after")), (503, Some("1")));
        counts(litequic, "timeout_queue", |worker| worker.proxy.timeout_queue.get(), 1).await;
        bystander.goes_on().await;
        peer.say(Always::EMPTY_200).await;
        assert_eq!(running.outcome().await.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn floods_of_what_says_nothing_close_the_connection_as_excessive_load() {
    let always = Always::new(Always::EMPTY_200).await;
    beside_a_bystander(always.address, defaults, async |litequic, bystander| {
        let mut closed = 0;
        let mut check = async |client: Raw| {
            assert_eq!(client.quic.closed().await, ErrorCode::ExcessiveLoad.wire_value());
            closed += 1;
            counts(litequic, "excessive_load", |worker| worker.http3.limit_excessive_load.get(), closed).await;
            bystander.goes_on().await;
        };

        let client = Raw::to(litequic).await;
        for _ in 0..=1_000 {
            let Ok(mut stream) = within("a stream", client.quic.connection.open_uni()).await else { break };
            // Errors mean that litequic has stopped the stream, or closed.
            let _ = stream.write_all(&raw::varint(RESERVED)).await;
            let _ = stream.finish();
        }
        check(client).await;

        for frame in [raw::data(""), raw::frame(RESERVED, "x")] {
            let client = Raw::to(litequic).await;
            let exchange = client.open(&[raw::with("POST", &[]), frame.repeat(129)].concat()).await;
            check(client).await;
            drop(exchange);
        }

        let mut client = Raw::to(litequic).await;
        client.control().write_all(&raw::frame(RESERVED, "").repeat(1_025)).await.unwrap();
        check(client).await;

        let client = Raw::bare(litequic).await;
        let settings: Vec<u8> = (0..300_u64).flat_map(|n| [raw::varint(0x1000 + n), vec![0]].concat()).collect();
        let control = client.uni(&[vec![0x00], raw::frame(SETTINGS, settings)].concat()).await;
        check(client).await;
        drop(control);
    })
    .await;
}

#[tokio::test]
async fn a_response_s_header_beyond_its_bounds_is_a_502() {
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "a: b\r\n".repeat(100));
    let large = format!("HTTP/1.1 200 OK\r\na: {}\r\nContent-Length: 0\r\n\r\n", "b".repeat(65 * 1024));
    let endless = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(1 << 20));
    for answer in [many, large, endless] {
        let script = Script::new().await;
        beside_a_bystander(script.address, defaults, async |litequic, _| {
            let client = Raw::to(litequic).await;
            let (mut exchange, mut peer) = client.asked_at(&script).await;
            // An error means that litequic has closed.
            let _ = AsyncWriteExt::write_all(&mut peer.stream, answer.as_bytes()).await;
            let response = exchange.outcome().await.response();
            assert_eq!(response.fields.status(), 502);
            assert!(response.fields.get("proxy-status").unwrap().contains("http_response_header_section_size"));
            counts(litequic, "limit_response_header", |worker| worker.proxy.limit_response_header.get(), 1).await;
            counts(litequic, "origin_errors", |worker| worker.proxy.origin_errors.get(), 1).await;
        })
        .await;
    }
}

#[tokio::test]
async fn interim_responses_beyond_those_that_wait_are_dropped() {
    let script = Script::new().await;
    beside_a_bystander(script.address, defaults, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        let flood = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1_000);
        peer.say(flood + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        let response = exchange.outcome().await.response();
        assert_eq!((response.fields.status(), &*response.body), (200, &b"hello"[..]));
        assert!((1..1_000).contains(&response.interim.len()), "{}", response.interim.len());
    })
    .await;
}

#[tokio::test]
async fn a_header_larger_than_the_client_takes_is_not_sent() {
    // SETTINGS_MAX_FIELD_SECTION_SIZE
    let limited = |size| [vec![0x00], raw::frame(SETTINGS, [raw::varint(6), raw::varint(size)].concat())].concat();
    let large = "v".repeat(500);
    let answer = format!(
        "HTTP/1.1 103 Early Hints\r\nx: {large}\r\n\r\n\
         HTTP/1.1 200 OK\r\nx: {large}\r\nContent-Length: 5\r\n\r\nhello"
    );
    let always = Always::new(answer).await;
    beside_a_bystander(always.address, defaults, async |litequic, _| {
        for (size, expected) in [(2_000, Some(200)), (400, Some(502)), (40, None)] {
            let client = Raw::bare(litequic).await;
            let control = client.uni(&limited(size)).await;
            // Answered on the same connection afterwards: by then the settings were read.
            client.ask(&raw::request("OPTIONS", "a")).await;
            let outcome = client.ask(&raw::get()).await;
            match expected {
                Some(status) => assert_eq!(outcome.status(), status),
                None => assert_eq!(outcome, Outcome::Reset(ErrorCode::InternalError.wire_value())),
            }
            if let Outcome::Response(response) = outcome {
                assert_eq!(response.interim.len(), usize::from(size > 1_000));
            }
            drop(control);
        }
        litequic.wait_until("client_header", |worker| worker.http3.limit_client_header.get(), |count| count >= 4).await;
    })
    .await;
}

#[tokio::test]
async fn a_header_or_unknown_frame_of_a_gigabyte_is_not_buffered() {
    const STREAMED: usize = 8 << 20;
    let always = Always::new(Always::EMPTY_200).await;
    let edit = |config: &mut Config| config.limits.max_lingering_bytes = 1_000_000;
    beside_a_bystander(always.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let mut header = client.open(&[raw::varint(HEADERS), raw::varint(1 << 30)].concat()).await;
        assert_eq!(header.outcome().await.status(), 431);
        header.send(&vec![0; STREAMED]).await; // an error once it is stopped
        assert_eq!(header.stopped().await, Some(ErrorCode::NoError.wire_value()));

        let mut unknown = client.open(&[raw::varint(RESERVED), raw::varint(1 << 30)].concat()).await;
        unknown.send(&vec![0; STREAMED]).await; // taken, and dropped: flow control lets it pass
        bystander.goes_on().await;
        unknown.send.reset(VarInt::from_u32(0x10c)).unwrap();
        assert_eq!(client.ask(&raw::get()).await.status(), 200);
        assert_eq!(always.seen().matches("HTTP/1.1").count(), 1, "the origin heard of the good one alone");
    })
    .await;
}
