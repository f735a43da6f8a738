//! Each limit and each timeout bites: the one who meets it is answered as documented, it is counted, and another client
//! is served all the while.

use crate::support::{
    client::{Client, Quic},
    origin::{self, Always, Script},
    proxy::Litequic,
    raw::{self, HEADERS, Outcome, RESERVED, Raw, SETTINGS},
    within,
};
use futures_util::FutureExt;
use http::Method;
use litequic::{
    config::{Config, OriginAddress, Route},
    http3::Code,
    telemetry::WorkerMetrics,
};
use quinn::VarInt;
use socket2::{Domain, Socket, Type};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{net::UdpSocket, task::JoinHandle, time::timeout};

/// Long enough to be noticed, short enough to wait for.
const SHORT: Duration = Duration::from_millis(200);
/// The bystander's host, which leads to an origin of its own.
const ELSEWHERE: &str = "b.test";
/// Requests of the bystander on one connection: below every limit that a test sets.
const A_CONNECTION_S: usize = 20;
const A_BODY: usize = 10_000;

/// Another client, which asks and checks what it gets, on and on.
struct Bystander {
    served: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
    asking: JoinHandle<()>,
}

impl Bystander {
    fn start(litequic: &Litequic) -> Self {
        let (served, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&served), Arc::clone(&enough));
        let (address, cert_pem) = (litequic.address, litequic.cert_pem.clone());
        let asking = tokio::spawn(async move {
            while !stop.load(Relaxed) {
                let quic = Quic::connect(address, ELSEWHERE, &cert_pem, quinn::TransportConfig::default()).await;
                let client = Client::over(quic, ELSEWHERE).await;
                for _ in 0..A_CONNECTION_S {
                    let answer = client.get(&format!("/bytes/{A_BODY}")).await;
                    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, A_BODY), "the bystander");
                    count.fetch_add(1, Relaxed);
                    if stop.load(Relaxed) {
                        break;
                    }
                }
                client.quic.connection.close(VarInt::from_u32(0x100), b"");
            }
        });
        Self { served, enough, asking }
    }

    /// Waits until it was served once more.
    async fn goes_on(&self) {
        let before = self.served.load(Relaxed);
        let served = async {
            while self.served.load(Relaxed) <= before + 1 {
                assert!(!self.asking.is_finished(), "the bystander was not served");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within("an answer to the bystander", served).await;
    }

    async fn ends_well(self) {
        self.enough.store(true, Relaxed);
        within("the bystander's end", self.asking).await.unwrap();
    }
}

fn tcp(address: SocketAddr) -> OriginAddress {
    OriginAddress::Tcp { host: address.ip().to_string(), port: address.port() }
}

/// Starts litequic as `edit` wants it before `origin`, has `bite` meet a limit while a bystander is served, and checks
/// that it was served to the end.
async fn beside_a_bystander(
    origin: SocketAddr,
    edit: impl FnOnce(&mut Config),
    bite: impl AsyncFnOnce(&Litequic, &Bystander),
) {
    let demo = origin::demo().await;
    let litequic = Litequic::start(origin, |config| {
        edit(config);
        let mut other = config.origins[Config::ORIGIN].clone();
        other.address = tcp(demo);
        (other.max_connections, other.max_queue) = (10, 10);
        config.origins.insert("other".into(), other);
        let mut route: Route = config.routes[0].clone();
        (route.host, route.origin) = (Some(ELSEWHERE.into()), "other".into());
        config.routes.push(route);
    })
    .await;
    let bystander = Bystander::start(&litequic);
    bystander.goes_on().await;
    bite(&litequic, &bystander).await;
    bystander.goes_on().await;
    bystander.ends_well().await;
    litequic.stop().await;
}

/// Waits until `read` is `expected`.
async fn counts(litequic: &Litequic, what: &str, read: impl Fn(&WorkerMetrics) -> u64, expected: u64) {
    litequic.wait_until(what, read, |value| value == expected).await;
}

fn get() -> Vec<u8> {
    raw::headers(&raw::pseudo("GET", "/"))
}

fn with(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    raw::headers(&[raw::pseudo(method, "/"), more.to_vec()].concat())
}

#[tokio::test]
async fn max_streams_lets_the_client_wait() {
    let script = Script::new().await;
    beside_a_bystander(
        script.address,
        |config| config.limits.max_streams = 2,
        async |litequic, bystander| {
            let client = Raw::to(litequic).await;
            let (mut first, mut second) = (client.open(&get()).await, client.open(&get()).await);
            let mut peer = script.accept().await;
            peer.head().await;
            assert!(client.quic.connection.open_bi().now_or_never().is_none(), "a third stream was allowed");
            bystander.goes_on().await;
            first.finish();
            peer.say(Always::EMPTY_200).await;
            assert_eq!(first.outcome().await.status(), 200);
            let third = client.open(&get()).await;
            second.finish();
            drop((second, third));
        },
    )
    .await;
}

#[tokio::test]
async fn max_requests_ends_the_connection_in_order() {
    let always = Always::new(Always::EMPTY_200).await;
    let limit = u64::try_from(A_CONNECTION_S).unwrap() + 1;
    beside_a_bystander(
        always.address,
        |config| config.limits.max_requests = limit,
        async |litequic, _| {
            let client = Client::to(litequic).await;
            for _ in 0..limit {
                assert_eq!(client.get("/").await.status, 200);
            }
            let ended = client.ended().await;
            assert!(ended.is_h3_no_error(), "{ended}");
            counts(litequic, "limit_requests", |worker| worker.limit_requests.get(), 1).await;
        },
    )
    .await;
}

#[tokio::test]
async fn max_header_bytes_and_max_headers_are_431_for_a_header_and_a_reset_for_trailers() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.limits.max_header_bytes, config.limits.max_headers) = (1_000, 15);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let long = "v".repeat(2_000);
        let nearly = "v".repeat(980); // with 32 bytes a field it is beyond (RFC 9114 §4.2.2), encoded it is not
        assert_eq!(client.ask(&with("GET", &[("x", &long)])).await.status(), 431);
        assert_eq!(client.ask(&with("GET", &[("x", "y"); 12])).await.status(), 431);
        counts(litequic, "limit_header_bytes", |worker| worker.limit_header_bytes.get(), 1).await;
        counts(litequic, "limit_headers", |worker| worker.limit_headers.get(), 1).await;

        let cases = [(vec![("x", &*long)], 2, 1), (vec![("x", &*nearly)], 3, 1), (vec![("x", "y"); 16], 3, 2)];
        for (trailers, bytes, fields) in cases {
            let mut exchange = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
            let mut peer = script.accept().await;
            peer.until("3\r\nabc\r\n").await;
            exchange.send(&raw::headers(&trailers)).await;
            exchange.finish();
            assert_eq!(exchange.outcome().await, Outcome::Reset(Code::ExcessiveLoad.value()));
            assert_eq!(peer.rest().await, "", "no last chunk");
            counts(litequic, "limit_header_bytes", |worker| worker.limit_header_bytes.get(), bytes).await;
            counts(litequic, "limit_headers", |worker| worker.limit_headers.get(), fields).await;
        }
    })
    .await;
}

#[tokio::test]
async fn max_body_bytes_is_413() {
    let script = Script::new().await;
    beside_a_bystander(
        script.address,
        |config| config.limits.max_body_bytes = Some(10),
        async |litequic, _| {
            let client = Raw::to(litequic).await;
            let mut known = client.open(&with("POST", &[("content-length", "11")])).await;
            assert_eq!(known.outcome().await.status(), 413);
            let mut unknown = client.open(&[with("POST", &[]), raw::data("12345678901")].concat()).await;
            assert_eq!(unknown.outcome().await.status(), 413);
            assert_eq!(unknown.stopped().await, Some(Code::NoError.value()));
            counts(litequic, "limit_body_bytes", |worker| worker.limit_body_bytes.get(), 2).await;
        },
    )
    .await;
}

#[tokio::test]
async fn an_upload_that_nobody_reads_waits_within_the_receive_buffers() {
    const CHUNK: usize = 64 * 1024;
    /// The kernel's socket buffers on the way to the origin, several MiB each way, and hyper's.
    const BEYOND: usize = 32 * 1024 * 1024;
    let script = Script::new().await;
    let edit = |config: &mut Config| {
        (config.limits.stream_receive_buffer, config.limits.connection_receive_buffer) = (64 * 1024, 128 * 1024);
    };
    beside_a_bystander(script.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let mut exchange = client.open(&with("POST", &[("content-length", "1000000000")])).await;
        let mut peer = script.accept().await;
        peer.head().await;
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
            let mut stream = stalled.open(stalled.request(Method::GET, "/bytes/1M")).await;
            stream.finish().await.unwrap();
            unread.push(stream);
        }
        litequic.wait_until("the limit", |worker| worker.limit_send_buffer.get(), |count| count >= 3).await;
        bystander.goes_on().await;
        assert!(litequic.sum(|worker| worker.send_buffered.get()) <= u64::from(SMALL));
    })
    .await;
}

#[tokio::test]
async fn what_an_event_stream_held_is_given_back_between_two_events() {
    /// A train is all that its answers take.
    const BYSTANDER_S: u64 = 16 * 1024;
    let script = Script::new().await;
    beside_a_bystander(
        script.address,
        |_| {},
        async |litequic, bystander| {
            let client = Client::to(litequic).await;
            let mut stream = client.open(client.request(Method::GET, "/")).await;
            stream.finish().await.unwrap();
            let mut peer = script.accept().await;
            peer.head().await;
            let burst = "x".repeat(1_000_000);
            peer.say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nF4240\r\n{burst}\r\n")).await;
            within("the header", stream.recv_response()).await.unwrap();
            let mut read = 0;
            while read < 1_000_000 {
                let chunk = within("the burst", stream.recv_data()).await.unwrap();
                read += bytes::Buf::remaining(&chunk.expect("more"));
            }
            // The gauge is set twice a second: what it says first is of before.
            let held = |worker: &WorkerMetrics| worker.send_buffered.get();
            litequic.wait_until("the burst is held", held, |held| held > BYSTANDER_S).await;
            litequic.wait_until("it is given back", held, |held| held <= BYSTANDER_S).await;
            bystander.goes_on().await;
            assert!(litequic.sum(|worker| worker.requests_open.get()) >= 1);
            peer.say("5\r\nevent\r\n0\r\n\r\n").await;
            let event = within("an event", stream.recv_data()).await.unwrap();
            assert_eq!(bytes::Buf::remaining(&event.expect("an event")), 5);
        },
    )
    .await;
}

#[tokio::test]
async fn timeouts_of_a_client_s_request_are_408() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.timeouts.request_header, config.timeouts.request_body) = (SHORT, SHORT);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let mut slow = client.open(&get()[..5]).await;
        assert_eq!(slow.outcome().await.status(), 408);
        counts(litequic, "timeout_request_header", |worker| worker.timeout_request_header.get(), 1).await;
        let mut slow = client.open(&[with("POST", &[]), raw::data("abc")].concat()).await;
        assert_eq!(slow.outcome().await.status(), 408);
        counts(litequic, "timeout_request_body", |worker| worker.timeout_request_body.get(), 1).await;
        let mut endless = client.open(&with("POST", &[("content-length", "0")])).await;
        assert_eq!(endless.outcome().await.status(), 408);
        counts(litequic, "timeout_request_body", |worker| worker.timeout_request_body.get(), 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_in_time_is_reset() {
    let demo = origin::demo().await;
    beside_a_bystander(
        demo,
        |config| config.timeouts.send = SHORT,
        async |litequic, _| {
            let client = Raw::with_window(litequic, 16 * 1024).await;
            let mut exchange = client.open(&raw::headers(&raw::pseudo("GET", "/bytes/1G"))).await;
            counts(litequic, "timeout_send", |worker| worker.timeout_send.get(), 1).await;
            assert_eq!(exchange.outcome().await, Outcome::Reset(Code::RequestCancelled.value()));
        },
    )
    .await;
}

#[tokio::test]
async fn a_client_that_vanishes_before_the_last_acknowledgement_is_not_waited_for_long() {
    let script = Script::new().await;
    beside_a_bystander(
        script.address,
        |config| config.timeouts.send = SHORT,
        async |litequic, _| {
            let client = Raw::to(litequic).await;
            let mut exchange = client.open(&get()).await;
            exchange.finish();
            let mut peer = script.accept().await;
            peer.head().await;
            client.quic.vanish();
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
            // A first train is leased: the smallest wait there is, well before the idle timeout's 30 seconds.
            counts(litequic, "timeout_send", |worker| worker.timeout_send.get(), 1).await;
        },
    )
    .await;
}

/// A listener whose queue is full, so that nobody gets a connection.
fn deaf() -> (Socket, Vec<Socket>, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Those beyond the queue wait for ever.
        let _ = socket.connect(&address);
        socket
    });
    (listener, fill.collect(), address.as_socket().unwrap())
}

#[tokio::test]
async fn an_origin_that_does_not_accept_in_time_is_a_502() {
    let (listener, fill, address) = deaf();
    beside_a_bystander(
        address,
        |config| config.timeouts.connect = SHORT,
        async |litequic, _| {
            let response = Raw::to(litequic).await.ask(&get()).await.response();
            assert_eq!(response.fields.status(), 502);
            assert!(response.fields.get("proxy-status").unwrap().contains("connection_timeout"));
            counts(litequic, "timeout_connect", |worker| worker.timeout_connect.get(), 1).await;
        },
    )
    .await;
    drop((listener, fill));
}

#[tokio::test]
async fn a_full_pool_queues_a_full_queue_is_a_503_and_so_is_a_wait_that_is_too_long() {
    let script = Script::new().await;
    let edit = |config: &mut Config| {
        let origin = config.origins.get_mut(Config::ORIGIN).unwrap();
        (origin.max_connections, origin.max_queue) = (1, 1);
        config.timeouts.queue = SHORT;
    };
    beside_a_bystander(script.address, edit, async |litequic, bystander| {
        let client = Raw::to(litequic).await;
        let mut running = client.open(&get()).await;
        running.finish();
        let mut peer = script.accept().await;
        peer.head().await;
        let mut waiting = client.open(&get()).await;
        waiting.finish();
        counts(litequic, "origin_max_connections", |worker| worker.limit_origin_connections.get(), 1).await;
        let refused = client.ask(&get()).await.response();
        assert_eq!((refused.fields.status(), refused.fields.get("retry-after")), (503, Some("1")));
        counts(litequic, "origin_max_queue", |worker| worker.limit_origin_queue.get(), 1).await;
        let waited = waiting.outcome().await.response();
        assert_eq!((waited.fields.status(), waited.fields.get("retry-after")), (503, Some("1")));
        counts(litequic, "timeout_queue", |worker| worker.timeout_queue.get(), 1).await;
        bystander.goes_on().await;
        peer.say(Always::EMPTY_200).await;
        assert_eq!(running.outcome().await.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn an_origin_too_slow_is_a_504_before_its_header_and_a_reset_after_it() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.timeouts.response_header, config.timeouts.response_body) = (SHORT, SHORT);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let mut exchange = client.open(&get()).await;
        exchange.finish();
        let mut peer = script.accept().await;
        peer.head().await;
        assert_eq!(exchange.outcome().await.status(), 504);
        assert_eq!(peer.rest().await, "");
        counts(litequic, "timeout_response_header", |worker| worker.timeout_response_header.get(), 1).await;
        let mut exchange = client.open(&get()).await;
        exchange.finish();
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        assert_eq!(exchange.outcome().await, Outcome::Reset(Code::InternalError.value()));
        assert_eq!(peer.rest().await, "");
        counts(litequic, "timeout_response_body", |worker| worker.timeout_response_body.get(), 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_whole_exchange_too_slow_is_a_504_before_the_header_and_a_reset_after_it() {
    let script = Script::new().await;
    let limit = Duration::from_secs(1); // the bystander's exchanges have it, too
    beside_a_bystander(
        script.address,
        |config| config.timeouts.request = Some(limit),
        async |litequic, _| {
            let client = Raw::to(litequic).await;
            let (mut hanging, mut dripping) = (client.open(&get()).await, client.open(&get()).await);
            hanging.finish();
            dripping.finish();
            let (mut first, mut second) = (script.accept().await, script.accept().await);
            let is_first = first.head().await;
            second.head().await;
            drop(is_first);
            // Which of the two came first does not matter: one is answered in part, the other not at all.
            first.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
            let outcomes = [hanging.outcome().await, dripping.outcome().await];
            assert!(outcomes.contains(&Outcome::Reset(Code::InternalError.value())), "{outcomes:?}");
            assert!(
                outcomes.iter().any(|outcome| matches!(outcome, Outcome::Response(it) if it.fields.status() == 504)),
                "{outcomes:?}"
            );
            counts(litequic, "timeout_request", |worker| worker.timeout_request.get(), 2).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_given_up() {
    let always = Always::new(Always::EMPTY_200).await;
    beside_a_bystander(
        always.address,
        |config| config.timeouts.handshake = SHORT * 5,
        async |litequic, _| {
            // A client's first datagram, caught on its way, and no other.
            let (net, out) =
                (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
            let (caught_at, cert_pem) = (net.local_addr().unwrap(), litequic.cert_pem.clone());
            let client = tokio::spawn(async move {
                let transport = quinn::TransportConfig::default();
                let _ = Quic::try_connect(caught_at, "localhost", &cert_pem, transport).await;
            });
            let mut datagram = [0; 2_000];
            let (length, _) = within("a datagram", net.recv_from(&mut datagram)).await.unwrap();
            client.abort();
            out.send_to(&datagram[..length], litequic.address).await.unwrap();
            counts(litequic, "timeout_handshake", |worker| worker.timeout_handshake.get(), 1).await;
            counts(litequic, "handshakes_open", |worker| worker.handshakes_open.get(), 0).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_ends() {
    let always = Always::new(Always::EMPTY_200).await;
    beside_a_bystander(
        always.address,
        |config| config.timeouts.idle = SHORT * 5,
        async |litequic, _| {
            let client = Raw::to(litequic).await;
            assert_eq!(client.ask(&get()).await.status(), 200);
            client.quic.vanish();
            counts(litequic, "timeout_idle", |worker| worker.timeout_idle.get(), 1).await;
        },
    )
    .await;
}

#[tokio::test]
async fn floods_of_what_says_nothing_close_the_connection_as_excessive_load() {
    let always = Always::new(Always::EMPTY_200).await;
    beside_a_bystander(
        always.address,
        |_| {},
        async |litequic, bystander| {
            let mut closed = 0;
            let mut check = async |client: Raw| {
                assert_eq!(client.quic.closed().await, Code::ExcessiveLoad.value());
                closed += 1;
                counts(litequic, "excessive_load", |worker| worker.limit_excessive_load.get(), closed).await;
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
                let exchange = client.open(&[with("POST", &[]), frame.repeat(129)].concat()).await;
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
        },
    )
    .await;
}

#[tokio::test]
async fn a_response_s_header_beyond_its_bounds_is_a_502() {
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "a: b\r\n".repeat(100));
    let large = format!("HTTP/1.1 200 OK\r\na: {}\r\nContent-Length: 0\r\n\r\n", "b".repeat(65 * 1024));
    let endless = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(1 << 20));
    for answer in [many, large, endless] {
        let script = Script::new().await;
        beside_a_bystander(
            script.address,
            |_| {},
            async |litequic, _| {
                let client = Raw::to(litequic).await;
                let mut exchange = client.open(&get()).await;
                exchange.finish();
                let mut peer = script.accept().await;
                peer.head().await;
                // An error means that litequic has closed.
                let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, answer.as_bytes()).await;
                let response = exchange.outcome().await.response();
                assert_eq!(response.fields.status(), 502);
                assert!(response.fields.get("proxy-status").unwrap().contains("http_response_header_section_size"));
                counts(litequic, "limit_response_header", |worker| worker.limit_response_header.get(), 1).await;
                counts(litequic, "origin_errors", |worker| worker.origin_errors.get(), 1).await;
            },
        )
        .await;
    }
}

#[tokio::test]
async fn interim_responses_beyond_those_that_wait_are_dropped() {
    let script = Script::new().await;
    beside_a_bystander(
        script.address,
        |_| {},
        async |litequic, _| {
            let client = Raw::to(litequic).await;
            let mut exchange = client.open(&get()).await;
            exchange.finish();
            let mut peer = script.accept().await;
            peer.head().await;
            let flood = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1_000);
            peer.say(flood + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
            let response = exchange.outcome().await.response();
            assert_eq!((response.fields.status(), &*response.body), (200, &b"hello"[..]));
            assert!((1..1_000).contains(&response.interim.len()), "{}", response.interim.len());
        },
    )
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
    beside_a_bystander(
        always.address,
        |_| {},
        async |litequic, _| {
            for (size, expected) in [(2_000, Some(200)), (400, Some(502)), (40, None)] {
                let client = Raw::bare(litequic).await;
                let control = client.uni(&limited(size)).await;
                // Answered on the same connection afterwards: by then the settings were read.
                client.ask(&raw::headers(&raw::pseudo("OPTIONS", "a"))).await;
                let outcome = client.ask(&get()).await;
                match expected {
                    Some(status) => assert_eq!(outcome.status(), status),
                    None => assert_eq!(outcome, Outcome::Reset(Code::InternalError.value())),
                }
                if let Outcome::Response(response) = outcome {
                    assert_eq!(response.interim.len(), usize::from(size > 1_000));
                }
                drop(control);
            }
            litequic.wait_until("client_header", |worker| worker.limit_client_header.get(), |count| count >= 4).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_gigabyte_of_a_header_or_an_unknown_frame_is_neither_kept_nor_waited_for() {
    const STREAMED: usize = 8 << 20;
    let always = Always::new(Always::EMPTY_200).await;
    beside_a_bystander(
        always.address,
        |_| {},
        async |litequic, bystander| {
            let client = Raw::to(litequic).await;
            let mut header = client.open(&[raw::varint(HEADERS), raw::varint(1 << 30)].concat()).await;
            assert_eq!(header.outcome().await.status(), 431);
            header.send(&vec![0; STREAMED]).await; // an error once it is stopped
            assert_eq!(header.stopped().await, Some(Code::NoError.value()));

            let mut unknown = client.open(&[raw::varint(RESERVED), raw::varint(1 << 30)].concat()).await;
            unknown.send(&vec![0; STREAMED]).await; // taken, and dropped: flow control lets it pass
            bystander.goes_on().await;
            unknown.send.reset(VarInt::from_u32(0x10c)).unwrap();
            assert_eq!(client.ask(&get()).await.status(), 200);
            assert_eq!(always.seen().matches("HTTP/1.1").count(), 1, "the origin heard of the good one alone");
        },
    )
    .await;
}
