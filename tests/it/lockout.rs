//! The attacks of `litequic-lab attacks` and `litequic-lab sources` (docs/security.md), each until it has all that it
//! can get, from 1 to 64 addresses: an honest client is served within 2 s then, over each protocol and at the status
//! port. What the attacker holds it keeps to the test's end.

use crate::{
    drain,
    support::{
        http2::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE, fields, frame, status},
        initial::{Initial, Retry, Stranger, fresh_id},
        prelude::*,
    },
};
use futures_util::{FutureExt, future};
use quinn::TransportConfig;
use std::{any::Any, panic::AssertUnwindSafe};
use tokio::{
    net::TcpSocket,
    task::{AbortHandle, JoinHandle},
    time::interval,
};

/// The attackers' first address. The honest client comes from 127.0.0.1.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);
/// Patience of an honest client, for a connection and a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Attempts of an honest client on a busy machine: a client that is locked out is so each time.
const TRIES: usize = 5;
/// Attempts beside bodies on which nothing moves, which may keep their connections for ten seconds.
const TRIES_BESIDE_SILENCE: usize = 10;
/// For an attacker that gets no answer.
const SILENCE: Duration = Duration::from_secs(1);
/// Connections of litequic to its origin: what slow uploads are after.
const SLOTS: u16 = 32;
/// Streams of an attack over HTTP/2, and over HTTP/3, divided over its sources.
const STREAMS: usize = 2 * SLOTS as usize;
/// Flow-control window of a stream whose response is read slowly, and how much of it is read each second: a little more
/// than `limits.min_download_rate`.
const SLOW_WINDOW: u32 = 2_000; // bytes
const SLOW_RATE: u32 = 300; // bytes a second

/// Addresses that an attack is made from.
#[derive(Debug, Clone, Copy)]
enum Sources {
    /// Each in a /24 of its own.
    Networks(u8),
    /// All in one /24.
    Neighbours(u8),
}

/// More than one address: up to as many networks as leave each several connections to the origin, and one network with
/// more.
const SEVERAL: [Sources; 4] =
    [Sources::Networks(2), Sources::Networks(5), Sources::Networks(16), Sources::Neighbours(64)];

impl Sources {
    fn addresses(self) -> Vec<Ipv4Addr> {
        let (count, bits) = match self {
            Self::Networks(count) => (count, 8),
            Self::Neighbours(count) => (count, 0),
        };
        (0..u32::from(count)).map(|nth| Ipv4Addr::from_bits(ATTACKER.to_bits() + (nth << bits))).collect()
    }
}

/// What an attack holds.
type Held = Vec<Box<dyn Any>>;

/// A task of an attacker that ends with what the attack holds.
struct Task(AbortHandle);

impl Task {
    fn of<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// litequic with few places of each kind, so that an attack on all of them is quick.
async fn start() -> Litequic {
    Litequic::demo(|config| {
        config.sources.exempt.clear();
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

/// What an honest client did not get in so many tries.
async fn unserved(litequic: &Litequic, tries: usize) -> Vec<&'static str> {
    async fn served<'a, F: Future<Output = ()>>(
        litequic: &'a Litequic,
        tries: usize,
        ask: impl Fn(&'a Litequic) -> F,
    ) -> bool {
        for _ in 0..tries {
            // An answer that is no success, or a connection that is reset, is a failure as silence is.
            let task = AssertUnwindSafe(ask(litequic)).catch_unwind();
            if matches!(timeout(PATIENCE, task).await, Ok(Ok(()))) {
                return true;
            }
        }
        false
    }
    let all = [
        ("HTTP/3", served(litequic, tries, honest_h3).await),
        ("HTTP/2", served(litequic, tries, honest_h2).await),
        ("HTTP/1.1", served(litequic, tries, honest_h1).await),
        ("the status port", served(litequic, tries, honest_probe).await),
    ];
    all.into_iter().filter(|(_, served)| !served).map(|(what, _)| what).collect()
}

fn get(path: &str) -> Vec<u8> {
    fields(&http2::pseudo("GET", path))
}

fn post(path: &str) -> Vec<u8> {
    fields(&http2::pseudo("POST", path))
}

async fn tcp(from: Ipv4Addr, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    within("a connection", socket.connect(server)).await.unwrap()
}

/// Over TLS, as long as it is let in.
async fn over_tls(from: Ipv4Addr, litequic: &Litequic, protocol: &str) -> Option<Tls> {
    let config = tls::config(&litequic.cert_pem, &[protocol]);
    timeout(SILENCE, Tls::over(tcp(from, litequic.tcp[0]).await, "localhost", config)).await.ok()?.ok()
}

/// Over QUIC, as long as it is let in, with windows of `window` bytes a stream.
async fn over_quic(from: Ipv4Addr, litequic: &Litequic, window: u32) -> Option<Raw> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(window.into());
    let quic = timeout(SILENCE, Quic::with_transport(from, litequic, transport)).await.ok()?.ok()?;
    Some(Raw::over(quic).await)
}

/// Does the same from the first of `sources`, and then from all others at once: the first may get more than its share.
async fn from_each<F: Future<Output = Held>>(sources: &[Ipv4Addr], attack: impl Fn(Ipv4Addr) -> F) -> Held {
    let mut held = Held::new();
    let (first, others) = sources.split_at(1);
    for some in [first, others] {
        held.extend(future::join_all(some.iter().map(|from| attack(*from))).await.into_iter().flatten());
    }
    held
}

/// More connections over TCP than there are places, and not a word on any.
async fn silent(server: SocketAddr, sources: &[Ipv4Addr]) -> Held {
    let mut held = Held::new();
    for from in sources.iter().cycle().take(200) {
        held.push(Box::new(tcp(*from, server).await));
    }
    held
}

/// Handshakes that prove their address and go no further, more than there are places; then connections without a
/// request, as many as there may be.
async fn handshakes(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    let strangers = future::join_all(sources.iter().map(|from| Stranger::from(*from, litequic))).await;
    let mut strangers = future::join_all(strangers.iter().cycle().take(60).map(Stranger::elsewhere)).await;
    // Those that validate nothing, after which all others have to.
    let (first, others) = strangers.split_at_mut(20);
    for stranger in &*first {
        stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
    }
    // A source that has its share gets another answer, or none.
    future::join_all(others.iter_mut().map(async |stranger| {
        if let Ok(Some(Retry { id, token })) = timeout(SILENCE, stranger.try_retry()).await {
            stranger.send(&stranger.packet(&Initial { token: &token, number: 1, ..Initial::to(&id) })).await;
        }
    }))
    .await;
    let each = 80_usize.div_ceil(sources.len());
    let mut held = from_each(sources, async |from| {
        let mut held = Held::new();
        // Its share in use, a source gets no more answers.
        while held.len() < each
            && let Ok(Ok(quic)) = timeout(SILENCE, Quic::at(from, litequic)).await
        {
            held.push(Box::new(quic));
        }
        held
    })
    .await;
    held.push(Box::new(strangers));
    held
}

/// As many streams on each source's connection as the attack has in all, divided.
fn streams(sources: &[Ipv4Addr]) -> impl Iterator<Item = u32> + Clone {
    (1..).step_by(2).take((STREAMS / sources.len()).max(1))
}

/// Requests over each protocol, more than there are connections to the origin: `three`, `two` and `one` are their
/// bytes.
async fn requests(
    litequic: &Litequic,
    sources: &[Ipv4Addr],
    window: u32,
    three: &[u8],
    two: impl Fn(u32) -> Vec<u8>,
    one: &[u8],
) -> Held {
    let streams = streams(sources);
    let mut held = from_each(sources, async |from| {
        let mut held = Held::new();
        if let Some(connection) = over_quic(from, litequic, window).await {
            for _ in streams.clone() {
                held.push(Box::new(connection.open(three).await));
            }
            held.push(Box::new(connection));
        }
        if let Some(tls) = over_tls(from, litequic, "h2").await {
            let mut connection = Http2::over(tls, &[]).await;
            for stream in streams.clone() {
                connection.try_say(&two(stream)).await;
            }
            held.push(Box::new(connection));
        }
        held
    })
    .await;
    for from in sources.iter().cycle().take(usize::from(SLOTS).max(sources.len())) {
        let Some(mut connection) = over_tls(*from, litequic, "http/1.1").await else { continue };
        connection.try_say(one).await;
        held.push(Box::new(connection));
    }
    held
}

/// Uploads of which a byte comes.
async fn slow_uploads(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    let three = [raw::request("POST", "/sink"), raw::data("a")].concat();
    let two = |stream| [frame(HEADERS, END_HEADERS, stream, &post("/sink")), frame(DATA, 0, stream, b"a")].concat();
    let one = b"POST /sink HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\na";
    requests(litequic, sources, 1 << 20, &three, two, one).await
}

/// Responses that are not read.
async fn slow_readers(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    gets(litequic, sources, 10_000, "/bytes/4000000").await
}

/// Event streams on which nothing moves.
async fn event_streams(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    gets(litequic, sources, 10_000, "/drip/1/60000").await
}

async fn gets(litequic: &Litequic, sources: &[Ipv4Addr], window: u32, path: &str) -> Held {
    let three = raw::request("GET", path);
    let two = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(path));
    let one = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    requests(litequic, sources, window, &three, two, one.as_bytes()).await
}

/// Responses that are read slowly, over HTTP/3 and HTTP/2.
async fn slow_windows(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    const BODY: &str = "/bytes/4000000";
    let streams = streams(sources);
    from_each(sources, async |from| {
        let mut held = Held::new();
        if let Some(three) = over_quic(from, litequic, SLOW_WINDOW).await {
            for _ in streams.clone() {
                let Ok((mut send, mut receive)) = three.quic.connection.open_bi().await else { break };
                let _ = send.write_all(&raw::request("GET", BODY)).await;
                let _ = send.finish();
                let reading = tokio::spawn(async move {
                    let (mut piece, mut seconds) = (vec![0; SLOW_RATE as usize], interval(Duration::from_secs(1)));
                    while receive.read(&mut piece).await.is_ok_and(|read| read.is_some()) {
                        seconds.tick().await;
                    }
                });
                held.push(Box::new(Task::of(&reading)));
            }
            held.push(Box::new(three));
        }
        if let Some(tls) = over_tls(from, litequic, "h2").await {
            // SETTINGS_INITIAL_WINDOW_SIZE.
            let settings = [&4_u16.to_be_bytes()[..], &SLOW_WINDOW.to_be_bytes()].concat();
            let mut two = Http2::over(tls, &settings).await;
            two.try_say(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())).await;
            for stream in streams.clone() {
                two.try_say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(BODY))).await;
            }
            let more: Vec<u8> =
                streams.clone().flat_map(|stream| frame(WINDOW_UPDATE, 0, stream, &SLOW_RATE.to_be_bytes())).collect();
            let (mut reader, mut writer) = tokio::io::split(two.tls.into_parts().0);
            let reading = tokio::spawn(async move {
                let mut piece = vec![0; 1 << 14];
                while reader.read(&mut piece).await.is_ok_and(|read| read > 0) {}
            });
            let widening = tokio::spawn(async move {
                let mut seconds = interval(Duration::from_secs(1));
                loop {
                    seconds.tick().await;
                    if writer.write_all(&more).await.is_err() || writer.flush().await.is_err() {
                        break;
                    }
                }
            });
            held.push(Box::new([Task::of(&reading), Task::of(&widening)]));
        }
        held
    })
    .await
}

/// Requests that are reset as soon as they are sent, over HTTP/3 and HTTP/2, as long as the connections are open.
async fn resets(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    let each = 500_usize.div_ceil(sources.len());
    from_each(sources, async |from| {
        let mut held = Held::new();
        if let Some(three) = over_quic(from, litequic, 1 << 20).await {
            for _ in 0..each {
                let Ok((mut send, mut receive)) = three.quic.connection.open_bi().await else { break };
                let _ = send.write_all(&raw::request("GET", "/bytes/1000")).await;
                let _ = (send.reset(0_u32.into()), receive.stop(0_u32.into()));
            }
            held.push(Box::new(three));
        }
        if let Some(tls) = over_tls(from, litequic, "h2").await {
            let mut two = Http2::over(tls, &[]).await;
            for stream in (1..).step_by(2).take(each) {
                let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/bytes/1000"));
                if !two.try_say(&[ask, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()).await {
                    break;
                }
            }
            held.push(Box::new(two));
        }
        held
    })
    .await
}

/// Every attack at once.
async fn all(litequic: &Litequic, sources: &[Ipv4Addr]) -> Held {
    let mut held = slow_uploads(litequic, sources).await;
    held.extend(slow_readers(litequic, sources).await);
    held.extend(slow_windows(litequic, sources).await);
    held.extend(resets(litequic, sources).await);
    held.extend(handshakes(litequic, sources).await);
    held.extend(silent(litequic.tcp[0], sources).await);
    held.extend(silent(litequic.probes.unwrap(), sources).await);
    held
}

/// Has `attack` get all that it can from each of `sources` in turn, and an honest client be served beside each.
async fn locks_nobody_out(sources: &[Sources], tries: usize, attack: impl AsyncFn(&Litequic, &[Ipv4Addr]) -> Held) {
    let mut locked_out = Vec::new();
    for sources in sources {
        let litequic = start().await;
        let held = attack(&litequic, &sources.addresses()).await;
        let unserved = unserved(&litequic, tries).await;
        drop(held);
        litequic.stop().await;
        if !unserved.is_empty() {
            locked_out.push((sources, unserved));
        }
    }
    assert!(locked_out.is_empty(), "not served: {locked_out:?}");
}

const ONE: [Sources; 1] = [Sources::Networks(1)];

#[tokio::test]
async fn silent_connections_over_tcp_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, async |litequic: &Litequic, sources: &[Ipv4Addr]| {
        silent(litequic.tcp[0], sources).await
    })
    .await;
}

#[tokio::test]
async fn silent_connections_over_tcp_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, async |litequic: &Litequic, sources: &[Ipv4Addr]| {
        silent(litequic.tcp[0], sources).await
    })
    .await;
}

#[tokio::test]
async fn quic_handshakes_and_idle_connections_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, handshakes).await;
}

#[tokio::test]
async fn quic_handshakes_and_idle_connections_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, handshakes).await;
}

#[tokio::test]
async fn slow_uploads_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, slow_uploads).await;
}

#[tokio::test]
async fn slow_uploads_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, slow_uploads).await;
}

#[tokio::test]
async fn slow_readers_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, slow_readers).await;
}

#[tokio::test]
async fn slow_readers_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, slow_readers).await;
}

#[tokio::test]
async fn slow_windows_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, slow_windows).await;
}

#[tokio::test]
async fn slow_windows_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, slow_windows).await;
}

#[tokio::test]
async fn event_streams_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES_BESIDE_SILENCE, event_streams).await;
}

#[tokio::test]
async fn event_streams_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES_BESIDE_SILENCE, event_streams).await;
}

#[tokio::test]
async fn silent_connections_to_the_status_port_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, async |litequic: &Litequic, sources: &[Ipv4Addr]| {
        silent(litequic.probes.unwrap(), sources).await
    })
    .await;
}

#[tokio::test]
async fn silent_connections_to_the_status_port_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, async |litequic: &Litequic, sources: &[Ipv4Addr]| {
        silent(litequic.probes.unwrap(), sources).await
    })
    .await;
}

#[tokio::test]
async fn resets_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, resets).await;
}

#[tokio::test]
async fn resets_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, resets).await;
}

#[tokio::test]
async fn all_attacks_at_once_lock_nobody_out() {
    locks_nobody_out(&ONE, TRIES, all).await;
}

#[tokio::test]
async fn all_attacks_at_once_of_several_addresses_lock_nobody_out() {
    locks_nobody_out(&SEVERAL, TRIES, all).await;
}

#[tokio::test]
async fn one_address_uses_everything_while_no_other_waits() {
    let litequic = Litequic::demo(|config| config.sources.exempt.clear()).await;
    let clients = future::join_all((0..10).map(|_| Client::to(&litequic))).await;
    let answers = clients.iter().flat_map(|client| (0..100).map(|_| client.get("/slow/100")));
    let statuses: Vec<u16> = future::join_all(answers).await.iter().map(|answer| answer.status.as_u16()).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!((statuses.len(), served), (1_000, 1_000));
    litequic.stop().await;
}
