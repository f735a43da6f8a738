//! WebSockets and other protocols to which a client and its origin switch: by HTTP/1.1, by HTTP/2 and by HTTP/3.

mod asked;
mod bounds;
mod ends;

use crate::support::{
    prelude::*,
    tunnel::{self, switch},
};
use futures_util::{SinkExt, StreamExt};
use tokio::task::JoinSet;

const H3_REQUEST_CANCELLED: u64 = 0x10c;
const H3_MESSAGE_ERROR: u64 = 0x10e;
const H3_FRAME_UNEXPECTED: u64 = 0x105;
const CANCEL: u32 = 8;
const PROTOCOL_ERROR: u32 = 1;

const YES: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\nX-Kept: 1\r\n\r\n";

/// litequic before `origin`, whose one route lets `other` pass too.
async fn other(origin: SocketAddr, edit: impl FnOnce(&mut Config)) -> Litequic {
    let edit = |config: &mut Config| {
        config.routes[0].upgrade = vec!["websocket".into(), "other".into()];
        edit(config);
    };
    Litequic::start(origin, edit).await
}

/// A tunnel of `other` `over` an HTTP version: the client's end and the origin's.
async fn open(litequic: &Litequic, over: HttpVersion, origin: &Script) -> (Box<dyn tunnel::Duplex>, Peer, JoinSet<()>) {
    let serve = async {
        let mut peer = origin.accept_request().await;
        peer.say(YES).await;
        peer
    };
    let (switched, peer) = tokio::join!(switch(litequic, over, "/", "other", &[]), serve);
    assert_eq!(switched.status, over.yes(), "{over:?}: {}", switched.head);
    let (stream, kept) = switched.tunnel();
    (stream, peer, kept)
}

async fn no_tunnel_is_open(litequic: &Litequic) {
    litequic.wait_until("tunnels_open = 0", |worker| worker.proxy.tunnels_open.get(), |open| open == 0).await;
    litequic.wait_until_idle().await;
}

/// What the origin sees when the other end is reset: no end.
async fn is_reset(peer: &mut Peer) -> bool {
    within("a reset", peer.stream.read(&mut [0; 16])).await.is_err()
}

/// A tunnel by HTTP/3, frame by frame.
async fn raw_tunnel(raw: &Raw, origin: &Script) -> (raw::Exchange, Peer) {
    let mut exchange = raw.open(&tunnel::connect("/", "other", &[])).await;
    let mut peer = origin.accept_request().await;
    peer.say(YES).await;
    assert_eq!(exchange.header().await.status(), 200);
    (exchange, peer)
}

const CONNECT: [(&str, &str); 5] =
    [(":method", "CONNECT"), (":protocol", "other"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];

/// The same by HTTP/2, on stream 1.
async fn http2_tunnel(client: &mut Http2, origin: &Script) -> Peer {
    client.say(http2::HEADERS, http2::END_HEADERS, 1, &http2::fields(&CONNECT)).await;
    let mut peer = origin.accept_request().await;
    peer.say(YES).await;
    let head = client.find(&[http2::HEADERS]).await.unwrap();
    assert_eq!((http2::status(&head), head.flags & http2::END_STREAM), (200, 0));
    peer
}

const ASK: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";

/// The same by HTTP/1.1.
async fn http1_tunnel(litequic: &Litequic, origin: &Script) -> (Tls, Peer) {
    let mut client = Tls::http1(litequic).await;
    client.say(ASK).await;
    let mut peer = origin.accept_request().await;
    peer.say(YES).await;
    assert!(client.head().await.starts_with("http/1.1 101 "));
    (client, peer)
}

/// `litequic demo` prints the cost of each request, which must not affect a tunnel.
#[tokio::test]
async fn the_demo_has_tunnels_to_an_origin_of_ones_own() {
    let origin = tunnel::echo().await;
    let demo = move || Process::demo(&["--origin", &format!("http://{origin}")]);
    let (_demo, port) = spawn_blocking(demo).await.unwrap();
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let stream = Tls::connect(address, "localhost", tls::credulous(&["http/1.1"])).await.unwrap().stream;
    let asked = tokio_tungstenite::client_async("wss://localhost/", stream);
    let (mut socket, _) = within("a WebSocket", asked).await.unwrap();
    socket.send("hello".into()).await.unwrap();
    assert_eq!(within("an echo", socket.next()).await.unwrap().unwrap().into_text().unwrap(), "hello");
}
