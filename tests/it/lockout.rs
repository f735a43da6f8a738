//! The attacks of `litequic-lab attacks` (docs/security.md), each until it has all that it can get: an honest client is served
//! within 2 s then, over each protocol and at the status port. What the attacker holds it keeps to the test's end.

use crate::{
    drain,
    support::{
        client::{Client, Quic},
        http2::{DATA, END_HEADERS, END_STREAM, HEADERS, Http2, RST_STREAM, fields, frame, status},
        initial::{Initial, Retry, Stranger, fresh_id},
        origin,
        proxy::Litequic,
        raw::{self, Raw},
        tls::{self, Tls},
        within,
    },
};
use futures_util::future;
use quinn::TransportConfig;
use std::{
    any::Any,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Where the attacker comes from; the honest client comes from 127.0.0.1.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// Of an honest client, for a connection and a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it tries, on a busy machine: a client that is locked out is so each time.
const TRIES: usize = 3;
/// For an attacker that gets no answer.
const SILENCE: Duration = Duration::from_secs(1);
/// Connections of litequic to its origin: what slow uploads are after.
const SLOTS: u16 = 32;

/// What an attack holds.
type Held = Vec<Box<dyn Any>>;

/// litequic with few places of each kind, so that an attack on all of them is quick.
async fn start() -> Litequic {
    Litequic::start(origin::demo().await, |config| {
        config.sources.limited = true;
        config.admin.probes = Some((Ipv4Addr::LOCALHOST, 0).into());
        (config.limits.max_connections, config.limits.max_handshakes, config.limits.retry_handshakes) = (64, 32, 4);
        for origin in config.origins.values_mut() {
            (origin.max_connections, origin.max_queue) = (Some(SLOTS.into()), Some(SLOTS.into()));
        }
    })
    .await
}

async fn honest_h3(litequic: &Litequic) {
    assert_eq!(Client::to(litequic).await.get("/bytes/1000").await.body.len(), 1000);
}

async fn honest_h2(litequic: &Litequic) {
    let mut client = Http2::connect(litequic, &[]).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &get("/bytes/1000")).await;
    assert_eq!(status(&client.find(&[HEADERS]).await.unwrap()), 200);
}

async fn honest_h1(litequic: &Litequic) {
    let mut client = Tls::http1(litequic).await;
    client.say("GET /bytes/1000 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(client.head().await.starts_with("http/1.1 200 "));
}

async fn honest_probe(litequic: &Litequic) {
    for path in ["GET /healthz", "GET /readyz"] {
        assert_eq!(drain::ask(litequic.probes.unwrap(), path).await.0, 200, "{path}");
    }
}

/// An honest client is served by each protocol.
async fn all_are_served(litequic: &Litequic, attack: &str) {
    async fn served<'a, F: Future<Output = ()>>(litequic: &'a Litequic, what: &str, ask: impl Fn(&'a Litequic) -> F) {
        for _ in 0..TRIES {
            if timeout(PATIENCE, ask(litequic)).await.is_ok() {
                return;
            }
        }
        panic!("{what} was not served within {PATIENCE:?}");
    }
    served(litequic, &format!("HTTP/3 beside {attack}"), honest_h3).await;
    served(litequic, &format!("HTTP/2 beside {attack}"), honest_h2).await;
    served(litequic, &format!("HTTP/1.1 beside {attack}"), honest_h1).await;
    served(litequic, &format!("the status port beside {attack}"), honest_probe).await;
}

fn get(path: &str) -> Vec<u8> {
    fields(&[(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)])
}

fn post(path: &str) -> Vec<u8> {
    fields(&[(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path)])
}

async fn tcp(server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((ATTACKER, 0).into()).unwrap();
    within("a connection", socket.connect(server)).await.unwrap()
}

/// Over TLS, as long as it is let in.
async fn over_tls(litequic: &Litequic, protocol: &str) -> Option<Tls> {
    let config = tls::config(&litequic.cert_pem, &[protocol]);
    timeout(SILENCE, Tls::over(tcp(litequic.tcp[0]).await, "localhost", config)).await.ok()?.ok()
}

/// Over QUIC, as long as it is let in, with windows of `window` bytes a stream.
async fn over_quic(litequic: &Litequic, window: u32) -> Option<Raw> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(window.into());
    let quic = timeout(SILENCE, Quic::with_transport(ATTACKER, litequic, transport)).await.ok()?.ok()?;
    Some(Raw::over(quic).await)
}

/// More connections over TCP than there are places, and not a word on any.
async fn silent(server: SocketAddr) -> Held {
    let mut held = Held::new();
    for _ in 0..200 {
        held.push(Box::new(tcp(server).await));
    }
    held
}

/// Handshakes that prove their address and go no further, more than there are places; then connections without a request,
/// as many as there may be.
async fn handshakes(litequic: &Litequic) -> Held {
    let first = Stranger::from(ATTACKER, litequic).await;
    let mut strangers = future::join_all((0..60).map(|_| first.elsewhere())).await;
    // Those that validate nothing, after which all others have to.
    let (first, others) = strangers.split_at_mut(20);
    for stranger in &*first {
        stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
    }
    for stranger in others {
        let Retry { id, token } = stranger.retry().await;
        stranger.send(&stranger.packet(&Initial { token: &token, number: 1, ..Initial::to(&id) })).await;
    }
    let mut held = Held::new();
    // Its share in use, it gets no more answers.
    while held.len() < 80
        && let Ok(Ok(quic)) = timeout(SILENCE, Quic::at(ATTACKER, litequic)).await
    {
        held.push(Box::new(quic));
    }
    held.push(Box::new(strangers));
    held
}

/// Uploads of which a byte comes, more than there are connections to the origin, over each protocol.
async fn slow_uploads(litequic: &Litequic) -> Held {
    let mut held = Held::new();
    if let Some(three) = over_quic(litequic, 1 << 20).await {
        for _ in 0..2 * SLOTS {
            let head = raw::headers(&raw::pseudo("POST", "/sink"));
            held.push(Box::new(three.open(&[head, raw::data("a")].concat()).await));
        }
        held.push(Box::new(three));
    }
    if let Some(tls) = over_tls(litequic, "h2").await {
        let mut two = Http2::over(tls, &[]).await;
        for stream in (1..).step_by(2).take(2 * usize::from(SLOTS)) {
            let upload = [frame(HEADERS, END_HEADERS, stream, &post("/sink")), frame(DATA, 0, stream, b"a")].concat();
            two.try_say(&upload).await;
        }
        held.push(Box::new(two));
    }
    for _ in 0..SLOTS {
        let Some(mut one) = over_tls(litequic, "http/1.1").await else { break };
        one.try_say(b"POST /sink HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\na").await;
        held.push(Box::new(one));
    }
    held
}

/// Responses that are not read, over each protocol.
async fn slow_readers(litequic: &Litequic) -> Held {
    const BODY: &str = "/bytes/4000000";
    let mut held = Held::new();
    if let Some(three) = over_quic(litequic, 10_000).await {
        for _ in 0..2 * SLOTS {
            let mut exchange = three.open(&raw::headers(&raw::pseudo("GET", BODY))).await;
            exchange.finish();
            held.push(Box::new(exchange));
        }
        held.push(Box::new(three));
    }
    if let Some(tls) = over_tls(litequic, "h2").await {
        let mut two = Http2::over(tls, &[]).await;
        for stream in (1..).step_by(2).take(2 * usize::from(SLOTS)) {
            two.try_say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(BODY))).await;
        }
        held.push(Box::new(two));
    }
    for _ in 0..SLOTS {
        let Some(mut one) = over_tls(litequic, "http/1.1").await else { break };
        one.try_say(format!("GET {BODY} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
        held.push(Box::new(one));
    }
    held
}

/// Requests that are reset as soon as they are sent, over HTTP/3 and HTTP/2, as long as the connections are open.
async fn resets(litequic: &Litequic) -> Held {
    let mut held = Held::new();
    if let Some(three) = over_quic(litequic, 1 << 20).await {
        for _ in 0..500 {
            let Ok((mut send, mut receive)) = three.quic.connection.open_bi().await else { break };
            let _ = send.write_all(&raw::headers(&raw::pseudo("GET", "/bytes/1000"))).await;
            let _ = (send.reset(0_u32.into()), receive.stop(0_u32.into()));
        }
        held.push(Box::new(three));
    }
    if let Some(tls) = over_tls(litequic, "h2").await {
        let mut two = Http2::over(tls, &[]).await;
        for stream in (1..1000).step_by(2) {
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/bytes/1000"));
            if !two.try_say(&[ask, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()).await {
                break;
            }
        }
        held.push(Box::new(two));
    }
    held
}

/// Has `attack` get all that it can, and an honest client be served.
async fn locks_nobody_out(name: &str, attack: impl AsyncFnOnce(&Litequic) -> Held) {
    let litequic = start().await;
    let held = attack(&litequic).await;
    all_are_served(&litequic, name).await;
    drop(held);
    litequic.stop().await;
}

#[tokio::test]
async fn silent_connections_over_tcp_lock_nobody_out() {
    locks_nobody_out("silent connections", async |litequic| silent(litequic.tcp[0]).await).await;
}

#[tokio::test]
async fn quic_handshakes_and_idle_connections_lock_nobody_out() {
    locks_nobody_out("QUIC handshakes", handshakes).await;
}

#[tokio::test]
async fn slow_uploads_lock_nobody_out() {
    locks_nobody_out("slow uploads", slow_uploads).await;
}

#[tokio::test]
async fn slow_readers_lock_nobody_out() {
    locks_nobody_out("slow readers", slow_readers).await;
}

#[tokio::test]
async fn silent_connections_to_the_status_port_lock_nobody_out() {
    locks_nobody_out("silent probes", async |litequic| silent(litequic.probes.unwrap()).await).await;
}

#[tokio::test]
async fn resets_lock_nobody_out() {
    locks_nobody_out("resets", resets).await;
}

#[tokio::test]
async fn all_attacks_at_once_lock_nobody_out() {
    let all = async |litequic: &Litequic| {
        let mut held = slow_uploads(litequic).await;
        held.extend(slow_readers(litequic).await);
        held.extend(resets(litequic).await);
        held.extend(handshakes(litequic).await);
        held.extend(silent(litequic.tcp[0]).await);
        held.extend(silent(litequic.probes.unwrap()).await);
        held
    };
    locks_nobody_out("all of them", all).await;
}
