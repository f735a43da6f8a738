//! How each end of a TCP connection counts: the causes of `litequic_tcp_connections_closed_total`, and the requests that
//! count as cancelled by their client.

use crate::support::{
    http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, fields, frame, get},
    prelude::*,
    proxy::unbuffered,
};
use litequic_base::lifecycle::ProcessPhase;

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ENHANCE_YOUR_CALM: u32 = 11;
const SOON: Duration = Duration::from_millis(300);

/// The causes that connections ended with, each with how many, and the requests that their clients cancelled.
type Ends = (Vec<(&'static str, u64)>, u64);

/// A cause, and how many connections ended with it.
type Cause = (&'static str, fn(&WorkerMetrics) -> u64);

fn ends(litequic: &Litequic) -> Ends {
    let causes: [Cause; 7] = [
        ("idle", |worker| worker.tcp.tcp_closed_idle.get()),
        ("client", |worker| worker.tcp.tcp_closed_client.get()),
        ("broken", |worker| worker.tcp.tcp_closed_broken.get()),
        ("stalled", |worker| worker.tcp.tcp_closed_stalled.get()),
        ("flood", |worker| worker.tcp.tcp_closed_flood.get()),
        ("evicted", |worker| worker.tcp.tcp_closed_evicted.get()),
        ("litequic", |worker| worker.tcp.tcp_closed_litequic.get()),
    ];
    let counted = causes.map(|(cause, count)| (cause, litequic.sum(count)));
    let cancelled = litequic.sum(|worker| worker.shared.streams_reset_by_client.get());
    (counted.into_iter().filter(|(_, count)| *count > 0).collect(), cancelled)
}

/// The end of the one connection that `act` opens.
async fn ends_as(
    what: &str,
    (cause, cancelled): (&'static str, u64),
    origin: SocketAddr,
    edit: impl FnOnce(&mut Config),
    act: impl AsyncFnOnce(&Litequic),
) {
    let litequic = Litequic::start(origin, edit).await;
    act(&litequic).await;
    litequic.wait_until(what, |worker| worker.tcp.tcp_connections_open.get(), |open| open == 0).await;
    litequic.wait_until_idle().await;
    assert_eq!(ends(&litequic), (vec![(cause, 1)], cancelled), "{what}");
    litequic.stop().await;
}

/// Sends a GET, and returns once the origin has it.
async fn get_1(litequic: &Litequic, script: &Script) -> (Tls, Peer) {
    let mut client = Tls::http1(litequic).await;
    client.say(GET).await;
    let peer = script.accept_request().await;
    (client, peer)
}

/// Sends a GET on stream 1, and returns once the origin has it.
async fn get_2(litequic: &Litequic, script: &Script) -> (Http2, Peer) {
    let mut client = Http2::connect(litequic, &[]).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
    let peer = script.accept_request().await;
    (client, peer)
}

async fn open(litequic: &Litequic) {
    let count = |worker: &WorkerMetrics| worker.tcp.tcp_connections_h2.get() + worker.tcp.tcp_connections_h1.get();
    litequic.wait_until("it is there", count, |count| count == 1).await;
}

#[tokio::test]
async fn what_the_client_ends_counts_as_the_clients_or_broken() {
    let (demo, script) = (origin::demo().await, Script::new().await);
    ends_as("orderly, over HTTP/1.1", ("client", 0), demo, defaults, async |litequic| {
        let mut client = Tls::http1(litequic).await;
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        client.head().await;
        client.stream.shutdown().await.unwrap();
        client.rest().await;
    })
    .await;
    ends_as("its last request, over HTTP/1.1", ("client", 0), demo, defaults, async |litequic| {
        let mut client = Tls::http1(litequic).await;
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        client.rest().await;
    })
    .await;
    ends_as("a request that is none, over HTTP/1.1", ("client", 0), demo, defaults, async |litequic| {
        let mut client = Tls::http1(litequic).await;
        client.say("GET /\r\n\r\n").await;
        assert!(client.rest().await.0.starts_with("HTTP/1.1 400"));
    })
    .await;
    ends_as("orderly, over HTTP/2", ("client", 0), demo, defaults, async |litequic| {
        let mut client = Http2::connect(litequic, &[]).await;
        open(litequic).await;
        client.tls.stream.shutdown().await.unwrap();
        while client.next().await.is_some() {}
    })
    .await;
    // Without TLS' close_notify.
    ends_as("gone without a request, over HTTP/1.1", ("broken", 0), demo, defaults, async |litequic| {
        let client = Tls::http1(litequic).await;
        open(litequic).await;
        drop(client);
    })
    .await;
    ends_as("gone without a request, over HTTP/2", ("broken", 0), demo, defaults, async |litequic| {
        let client = Http2::connect(litequic, &[]).await;
        open(litequic).await;
        drop(client);
    })
    .await;
    ends_as("gone in a request, over HTTP/1.1", ("broken", 1), script.address, defaults, async |litequic| {
        drop(get_1(litequic, &script).await);
    })
    .await;
    ends_as("gone in a request, over HTTP/2", ("broken", 0), script.address, defaults, async |litequic| {
        drop(get_2(litequic, &script).await);
    })
    .await;
    ends_as("DATA on a stream that was never opened", ("broken", 0), demo, defaults, async |litequic| {
        let mut client = Http2::connect(litequic, &[]).await;
        client.say(DATA, 0, 1, b"x").await;
        assert!(client.find(&[GOAWAY]).await.is_some());
    })
    .await;
    ends_as("an origin that breaks off, over HTTP/1.1", ("broken", 0), script.address, unbuffered, async |litequic| {
        let (mut client, mut peer) = get_1(litequic, &script).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").await;
        client.until("abc").await;
        drop(peer);
        client.rest().await;
    })
    .await;
}

#[tokio::test]
async fn what_litequic_ends_in_order_counts_as_idle_or_litequics() {
    let (demo, script) = (origin::demo().await, Script::new().await);
    let soon = |config: &mut Config| config.timeouts.idle = SOON;
    ends_as("idle, over HTTP/1.1", ("idle", 0), demo, soon, async |litequic| {
        Tls::http1(litequic).await.rest().await;
    })
    .await;
    ends_as("idle, over HTTP/2", ("idle", 0), demo, soon, async |litequic| {
        let mut client = Http2::connect(litequic, &[]).await;
        assert!(client.find(&[GOAWAY]).await.is_some());
        while client.next().await.is_some() {}
    })
    .await;
    let one = |config: &mut Config| config.limits.max_requests = 1;
    ends_as("the last request, over HTTP/1.1", ("litequic", 0), script.address, one, async |litequic| {
        let (mut client, mut peer) = get_1(litequic, &script).await;
        peer.say(Always::EMPTY_200).await;
        client.rest().await;
    })
    .await;
    ends_as("the last request, over HTTP/2", ("litequic", 0), script.address, one, async |litequic| {
        let (mut client, mut peer) = get_2(litequic, &script).await;
        assert!(client.find(&[GOAWAY]).await.is_some());
        peer.say(Always::EMPTY_200).await;
        assert!(client.find(&[HEADERS]).await.is_some());
        drop(client);
    })
    .await;
    ends_as("a drain before a first request, over HTTP/1.1", ("litequic", 0), demo, defaults, async |litequic| {
        let mut client = Tls::http1(litequic).await;
        open(litequic).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(client.head().await.starts_with("http/1.1 204"));
        client.rest().await;
    })
    .await;
    ends_as("a drain, over HTTP/1.1", ("litequic", 0), script.address, defaults, async |litequic| {
        let (mut client, mut peer) = get_1(litequic, &script).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        peer.say(Always::EMPTY_200).await;
        client.rest().await;
    })
    .await;
    ends_as("a drain, over HTTP/2", ("litequic", 0), script.address, defaults, async |litequic| {
        let (mut client, mut peer) = get_2(litequic, &script).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        assert!(client.find(&[GOAWAY]).await.is_some());
        peer.say(Always::EMPTY_200).await;
        assert!(client.find(&[HEADERS]).await.is_some());
        while client.next().await.is_some() {}
    })
    .await;
    ends_as("the end of the process, over HTTP/1.1", ("litequic", 1), script.address, defaults, async |litequic| {
        let (mut client, _peer) = get_1(litequic, &script).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Stopping);
        client.rest().await;
    })
    .await;
    ends_as("the end of the process, over HTTP/2", ("litequic", 0), script.address, defaults, async |litequic| {
        let (mut client, _peer) = get_2(litequic, &script).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Stopping);
        while client.next().await.is_some() {}
    })
    .await;
}

#[tokio::test]
async fn a_tunnel_is_a_request_that_is_served_until_it_ends() {
    let script = Script::new().await;
    let routed = |config: &mut Config| config.routes[0].upgrade = vec!["other".into()];
    let upgrade = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
    let begin = async |litequic: &Litequic| {
        let mut client = Tls::http1(litequic).await;
        client.say(upgrade).await;
        let mut peer = script.accept_request().await;
        peer.say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n").await;
        assert!(client.head().await.starts_with("http/1.1 101"));
        (client, peer)
    };
    ends_as("both ends of a tunnel", ("client", 0), script.address, routed, async |litequic| {
        let (mut client, mut peer) = begin(litequic).await;
        client.stream.shutdown().await.unwrap();
        peer.rest().await;
        drop(peer);
        client.rest().await;
    })
    .await;
    ends_as("a tunnel during a drain", ("litequic", 0), script.address, routed, async |litequic| {
        let (mut client, mut peer) = begin(litequic).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        client.say("still there").await;
        peer.until("still there").await;
        client.stream.shutdown().await.unwrap();
        peer.rest().await;
        drop(peer);
        client.rest().await;
    })
    .await;
}

#[tokio::test]
async fn floods_and_stalled_requests_are_counted_apart() {
    let (demo, script) = (origin::demo().await, Script::new().await);
    let few = |config: &mut Config| {
        (config.limits.max_control_frames, config.limits.max_resets) = (60, 20);
    };
    ends_as("PING", ("flood", 0), demo, few, async |litequic| {
        let mut client = Http2::connect(litequic, &[]).await;
        client.try_say(&frame(PING, 0, 0, &[7; 8]).repeat(700)).await;
        assert!(client.find(&[GOAWAY]).await.is_some());
    })
    .await;
    ends_as("PING during a drain", ("flood", 0), script.address, few, async |litequic| {
        let (mut client, _peer) = get_2(litequic, &script).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        assert_eq!(client.find(&[GOAWAY]).await.map(|goaway| goaway.code()), Some(0));
        client.try_say(&frame(PING, 0, 0, &[7; 8]).repeat(700)).await;
        while client.find(&[GOAWAY]).await.expect("a second GOAWAY").code() != ENHANCE_YOUR_CALM {}
    })
    .await;
    let litequic = Litequic::start(script.address, few).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let cancelled = |stream: u32| {
        let headers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(&[]));
        [headers, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    client.try_say(&(0..500).flat_map(|n| cancelled(2 * n + 1)).collect::<Vec<u8>>()).await;
    assert!(client.find(&[GOAWAY]).await.is_some());
    litequic.wait_until("resets", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 0).await;
    let (causes, counted) = ends(&litequic);
    assert_eq!((causes, litequic.sum(|worker| worker.shared.limit_resets.get())), (vec![("flood", 1)], 1));
    assert!(counted > 200, "those up to the limit are the client's: {counted}");
    litequic.stop().await;

    let impatient = |config: &mut Config| {
        unbuffered(config);
        config.timeouts.send = SOON;
    };
    ends_as("a client that reads nothing, over HTTP/1.1", ("stalled", 0), demo, impatient, async |litequic| {
        let mut client = Tls::http1(litequic).await;
        client.say("GET /bytes/1G HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let stalled = |worker: &WorkerMetrics| worker.tcp.tcp_closed_stalled.get();
        litequic.wait_until("stalled", stalled, |count| count == 1).await;
    })
    .await;
    ends_as("a client that reads nothing, over HTTP/2", ("stalled", 0), demo, impatient, async |litequic| {
        let mut client = Http2::connect(litequic, &[0, 4, 0x7f, 0xff, 0xff, 0xff]).await;
        client.say(http2::WINDOW_UPDATE, 0, 0, &0x4000_0000_u32.to_be_bytes()).await;
        let path = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/bytes/1G")];
        client.say(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&path)).await;
        let stalled = |worker: &WorkerMetrics| worker.tcp.tcp_closed_stalled.get();
        litequic.wait_until("stalled", stalled, |count| count == 1).await;
    })
    .await;
}
