//! The bytes of a tunnel, and how the end of either side is forwarded.

use super::{
    CANCEL, H3_REQUEST_CANCELLED, YES, http1_tunnel, http2_tunnel, is_reset, no_tunnel_is_open, open, other, raw_tunnel,
};
use crate::support::{
    prelude::*,
    tunnel::{self, switch, websocket},
};
use futures_util::{SinkExt, StreamExt};
use std::collections::HashMap;
use tokio_tungstenite::tungstenite::Message;

/// A tunnel makes room for another one once nothing moved in it for ten seconds: nothing but time brings that about.
const SILENT: Duration = Duration::from_millis(10_100);

/// Both ends learn that nothing follows, and neither counts as having failed.
#[tokio::test]
async fn the_largest_sources_silent_tunnel_is_evicted_over_each_protocol() {
    let ended = HttpVersion::ALL.map(async |over| {
        let origin = Script::new().await;
        let litequic = other(origin.address, |config| {
            config.sources.exempt.clear();
            config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 32 }];
            config.limits.max_tunnels = 2;
        })
        .await;
        let open = async |client: &'static str| {
            let serve = async {
                let mut peer = origin.accept_request().await;
                peer.say(YES).await;
                peer
            };
            let fields = [("x-forwarded-for", client)];
            let (switched, peer) = tokio::join!(switch(&litequic, over, "/", "other", &fields), serve);
            assert_eq!(switched.status, over.yes(), "{over:?}: {}", switched.head);
            (switched.tunnel(), peer)
        };
        let ((mut first, _kept), mut first_peer) = open("192.0.2.1").await;
        let _second = open("192.0.2.1").await;
        // Its own source holds most, and so soon no tunnel is silent.
        for client in ["192.0.2.1", "192.0.2.2"] {
            let refused = switch(&litequic, over, "/", "other", &[("x-forwarded-for", client)]).await;
            assert_eq!(refused.status, 503, "{over:?}");
        }
        sleep(SILENT).await;
        let ((mut honest, _honest_kept), mut honest_peer) = open("192.0.2.2").await;
        assert!(is_reset(&mut first_peer).await, "{over:?}");
        // The clients of these tests read a reset by HTTP/2 and HTTP/3 as an end, too.
        let end = within("the end of the silent tunnel", first.read(&mut [0])).await;
        assert!(!matches!(end, Ok(1..)), "{over:?}: {end:?}");
        honest.write_all(b"ping").await.unwrap();
        honest.flush().await.unwrap();
        assert_eq!(honest_peer.exactly(4).await, b"ping");
        assert_eq!(litequic.sum(|worker| worker.proxy.tunnels_evicted.get()), 1, "{over:?}");
        assert_eq!(litequic.sum(|worker| worker.proxy.tunnels_refused.get()), 2, "{over:?}");
        assert_eq!(litequic.sum(|worker| worker.shared.timeout_tunnel.get()), 0, "{over:?}");
        litequic.stop().await;
    });
    futures_util::future::join_all(ended).await;
}

#[tokio::test]
async fn the_bytes_of_a_tunnel_count_for_its_route_both_ways() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    for (n, over) in (1_u64..).zip(HttpVersion::ALL) {
        let (mut stream, mut peer, _kept) = open(&litequic, over, &origin).await;
        stream.write_all(b"question").await.unwrap();
        assert_eq!(peer.exactly(8).await, b"question");
        peer.say("yes").await;
        within("an answer", stream.read_exact(&mut [0; 3])).await.unwrap();
        let samples: HashMap<String, u64> = litequic.metrics.registry().summed_samples().into_iter().collect();
        let of = |body: &str| samples[&format!("route_{body}_body_bytes{{route=\"*/\"}}")];
        assert_eq!((of("request"), of("response")), (8 * n, 3 * n), "{over:?}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_websocket_echoes_what_is_said_by_each_protocol() {
    let litequic = Litequic::start(tunnel::echo().await, |_| {}).await;
    for (n, over) in HttpVersion::ALL.into_iter().enumerate() {
        let (mut socket, _kept) = websocket(&litequic, over, "/chat").await;
        for message in [Message::text("hello"), Message::binary(vec![7; 100_000]), Message::text("")] {
            within("a message", socket.send(message.clone())).await.unwrap();
            assert_eq!(within("its echo", socket.next()).await.unwrap().unwrap(), message, "{over:?}");
        }
        within("a ping", socket.send(Message::Ping(Bytes::from_static(b"x")))).await.unwrap();
        assert!(within("a pong", socket.next()).await.unwrap().unwrap().is_pong(), "{over:?}");
        assert_eq!(litequic.sum(|worker| worker.proxy.tunnels_open.get()), 1);
        // The client closes first.
        within("a close", socket.close(None)).await.unwrap();
        while let Some(Ok(message)) = within("the end", socket.next()).await {
            assert!(message.is_close(), "{over:?}: {message}");
        }
        drop(socket);
        assert_eq!(litequic.sum(|worker| worker.proxy.tunnels.get()), n as u64 + 1);
    }
    no_tunnel_is_open(&litequic).await;
    assert_eq!(litequic.sum(|worker| worker.http3.requests.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.requests_h2.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.requests_h1.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.proxy.tunnels_refused.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn an_origin_that_closes_its_websocket_ends_the_clients() {
    let litequic = Litequic::start(tunnel::echo().await, |_| {}).await;
    for over in HttpVersion::ALL {
        let (mut socket, _kept) = websocket(&litequic, over, "/").await;
        within("a message", socket.send(Message::text("close"))).await.unwrap();
        assert!(within("a close", socket.next()).await.unwrap().unwrap().is_close(), "{over:?}");
        // The answer to it goes out; then the stream ends.
        while let Some(Ok(_)) = within("the end", socket.next()).await {}
        drop(socket);
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn ten_megabytes_go_both_ways_at_once() {
    const SIZE: usize = 10_000_000;
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    for over in HttpVersion::ALL {
        let (stream, peer, _kept) = open(&litequic, over, &origin).await;
        let pattern =
            |seed: usize| -> Vec<u8> { (0..SIZE).map(|n| u8::try_from((n * 31 + seed) % 251).unwrap()).collect() };
        let (mut from_origin, mut to_origin) = peer.stream.into_split();
        let (mut from_client, mut to_client) = tokio::io::split(stream);
        let (up, down) = (pattern(1), pattern(2));
        let send_up = async {
            to_client.write_all(&up).await.unwrap();
            to_client.shutdown().await.unwrap();
        };
        let send_down = async {
            to_origin.write_all(&down).await.unwrap();
            to_origin.shutdown().await.unwrap();
        };
        let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
        let all = async {
            tokio::join!(
                send_up,
                send_down,
                from_origin.read_to_end(&mut got_up),
                from_client.read_to_end(&mut got_down)
            )
        };
        // Debug builds encrypt slowly.
        let (_, _, up_read, down_read) = timeout(Duration::from_secs(60), all).await.unwrap();
        up_read.unwrap();
        down_read.unwrap();
        assert!(got_up == up && got_down == down, "{over:?}: {} and {} bytes", got_up.len(), got_down.len());
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn each_end_by_itself_is_told_the_other() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    for over in HttpVersion::ALL {
        // The client's first.
        let (mut stream, mut peer, _kept) = open(&litequic, over, &origin).await;
        stream.write_all(b"last words").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(peer.rest().await, "last words", "{over:?}");
        peer.say("an answer").await;
        drop(peer);
        let mut seen = String::new();
        within("the rest", stream.read_to_string(&mut seen)).await.unwrap();
        assert_eq!(seen, "an answer", "{over:?}");

        // The origin's first.
        let (mut stream, mut peer, _kept) = open(&litequic, over, &origin).await;
        peer.say("last words").await;
        peer.stream.shutdown().await.unwrap();
        let mut seen = String::new();
        within("the end", stream.read_to_string(&mut seen)).await.unwrap();
        assert_eq!(seen, "last words", "{over:?}");
        stream.write_all(b"an answer").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(peer.rest().await, "an answer", "{over:?}");
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_resets_its_tunnel_resets_the_origins() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;

    let raw = Raw::to(&litequic).await;
    let (mut exchange, mut peer) = raw_tunnel(&raw, &origin).await;
    exchange.send.reset(quinn::VarInt::from_u64(H3_REQUEST_CANCELLED).unwrap()).unwrap();
    assert!(is_reset(&mut peer).await, "HTTP/3");
    assert_eq!(exchange.outcome().await, Outcome::Reset(H3_REQUEST_CANCELLED));

    let mut client = Http2::connect(&litequic, &[]).await;
    let mut peer = http2_tunnel(&mut client, &origin).await;
    client.say(http2::RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    assert!(is_reset(&mut peer).await, "HTTP/2");

    let (stream, mut peer, kept) = open(&litequic, HttpVersion::Http3, &origin).await;
    drop((stream, kept));
    assert!(is_reset(&mut peer).await, "a connection that goes");
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

/// Has the kernel reset the connection instead of ending it.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[tokio::test]
async fn an_origin_that_resets_its_end_resets_the_clients() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;

    let raw = Raw::to(&litequic).await;
    let (mut exchange, peer) = raw_tunnel(&raw, &origin).await;
    reset(peer.stream);
    assert_eq!(exchange.outcome().await, Outcome::Reset(H3_REQUEST_CANCELLED));

    let mut client = Http2::connect(&litequic, &[]).await;
    let peer = http2_tunnel(&mut client, &origin).await;
    reset(peer.stream);
    let frame = client.find(&[http2::RST_STREAM, http2::DATA]).await.unwrap();
    assert_eq!((frame.kind, frame.code()), (http2::RST_STREAM, CANCEL));

    let (mut client, peer) = http1_tunnel(&litequic, &origin).await;
    reset(peer.stream);
    assert_eq!(client.rest().await, (String::new(), false), "no close_notify");
    no_tunnel_is_open(&litequic).await;
    assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()), 3);
    litequic.stop().await;
}
