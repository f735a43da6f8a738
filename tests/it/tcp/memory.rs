//! The memory for clients over TCP that request much and read nothing: no more than in docs/architecture.md, and
//! others are served meanwhile. Always the real process, whose memory and allocator are its own.

use crate::{
    drain::ask,
    support::{
        http2::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, fields, frame},
        prelude::*,
    },
};
use futures_util::future::join_all;
use litequic_config::Limits;
use rustix::process::{Resource, getrlimit};
use std::{
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};
use tokio::net::{UnixListener, UnixStream};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// SETTINGS_INITIAL_WINDOW_SIZE of 2^31 - 1 (RFC 9113 §6.5.2).
const LARGE_WINDOWS: [u8; 6] = [0, 4, 0x7f, 0xff, 0xff, 0xff];
/// What brings a connection's window there (§6.9.1).
const LARGE_WINDOW: u32 = (1 << 31) - 1 - 65_535;
/// `limits.max_streams`.
const STREAMS: usize = 128;
/// `listen.workers`.
const WORKERS: u64 = 2;
/// What a request over TCP takes by itself: its tasks, its connection to the origin with buffers, and the first read of
/// the response.
const A_STREAM: u64 = 72 * KIB;
/// What a connection takes that the kernel takes nothing of: TLS' and HTTP/2's buffers.
const A_CONNECTION: u64 = 128 * KIB;
/// What an origin has for who reads.
const BODY: usize = 100_000;

/// What a request that waits for a connection to its origin takes by itself: `proxy::pool::capacity` derives the queue
/// from it.
const A_WAITING_REQUEST: u64 = 32 * KIB;

/// An origin at a Unix socket: `/endless` begins a body of `size` bytes that never ends, `/silent` has no answer,
/// everything else is `BODY` bytes.
struct Endless {
    asked: Arc<AtomicUsize>,
}

impl Endless {
    fn at(path: &str, size: usize) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Self::serve(stream, size, Arc::clone(&counter)));
            }
        });
        Self { asked }
    }

    async fn serve(mut stream: UnixStream, size: usize, asked: Arc<AtomicUsize>) {
        let mut seen = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut seen).await {
            let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head: Vec<u8> = seen.drain(..end + 4).collect();
            let answer = if head.starts_with(b"HEAD /large") {
                asked.fetch_add(1, Relaxed);
                let field = format!("X-Large: {}\r\n", "z".repeat(8_000));
                format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{field}\r\n").into_bytes()
            } else if head.starts_with(b"GET /endless") {
                asked.fetch_add(1, Relaxed);
                let chunk = [&b"4000\r\n"[..], &[b'x'; 0x4000], b"\r\n"].concat();
                [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &chunk.repeat(size / 0x4000)].concat()
            } else if head.starts_with(b"GET /silent") {
                asked.fetch_add(1, Relaxed);
                Vec::new()
            } else {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
                [head.as_bytes(), &[b'y'; BODY]].concat()
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

/// litequic as a process, and what it names.
struct Running {
    process: Process,
    address: SocketAddr,
    probes: SocketAddr,
    made: SelfSigned,
    origin: Endless,
    _directory: tempfile::TempDir,
}

impl Running {
    /// Before an origin whose endless bodies begin with `size` bytes.
    fn start(size: usize) -> Self {
        Self::bounded(size, "max_connections = 20000")
    }

    /// The same with these `bounds` of the origin.
    fn bounded(size: usize, bounds: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
        let probes = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let config = format!(
            "listen.udp = \"{address}\"\nlisten.workers = {WORKERS}\nadmin.probes = \"{probes}\"\nlimits.source_exempt = \"127.0.0.0/8\"\n\
             [origin]\nurl = \"unix:{}\"\n{bounds}\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
            path("origin")
        );
        for (name, content) in [("tls.crt", &made.cert_pem), ("tls.key", &made.key_pem), ("litequic.toml", &config)] {
            fs::write(path(name), content).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let origin = Endless::at(&path("origin"), size);
        let process = Process::start(["run", "--config", &path("litequic.toml")]);
        assert_eq!(process.address(), address);
        Self { process, address, probes, made, origin, _directory: directory }
    }

    /// Bytes of its memory that lie in RAM (proc(5), `RssAnon`: files that it maps are none of its own).
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * KIB
    }

    /// The same once it stays as it is.
    async fn settled(&self) -> u64 {
        const STILL: Duration = Duration::from_secs(1);
        let (mut lately, mut since) = (self.resident(), Instant::now());
        let settled = async {
            while since.elapsed() < STILL {
                sleep(Duration::from_millis(50)).await;
                let now = self.resident();
                if now.abs_diff(lately) > MIB / 4 {
                    (lately, since) = (now, Instant::now());
                }
            }
            lately
        };
        within("memory that stays", settled).await
    }

    /// Waits until the origin got so many requests for endless bodies.
    async fn asked(&self, times: usize) {
        let asked = async {
            while self.origin.asked.load(Relaxed) < times {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(4 * DEADLINE, asked).await.expect("all requests at the origin");
    }

    async fn tls(&self, protocol: &str) -> Tls {
        Tls::connect(self.address, "localhost", tls::config(&self.made.cert_pem, &[protocol])).await.unwrap()
    }

    /// A connection of HTTP/2 with windows as large as there are.
    async fn http2(&self) -> Tls {
        let mut client = self.tls("h2").await;
        let settings = frame(SETTINGS, 0, 0, &LARGE_WINDOWS);
        let update = frame(WINDOW_UPDATE, 0, 0, &LARGE_WINDOW.to_be_bytes());
        client.say([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &update].concat()).await;
        client
    }

    /// One that requests an endless body on each of its streams, and reads nothing.
    async fn stalled(&self) -> Tls {
        let mut client = self.http2().await;
        let requests: Vec<u8> = (0..STREAMS).flat_map(|n| request(n, "/endless")).collect();
        client.say(requests).await;
        client
    }

    /// Waits until so many requests wait for a connection to the origin.
    async fn queued(&self, wanted: u64) {
        let queued = async {
            loop {
                let metrics = ask(self.probes, "GET /metrics").await.1;
                let lines = metrics.lines().filter(|line| line.starts_with("litequic_origin_server_queue{"));
                let waiting: u64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
                if waiting >= wanted {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(4 * DEADLINE, queued).await.expect("all requests in the queue");
    }

    /// So many idle connections of HTTP/2, and the memory with them.
    async fn connected(&self, connections: usize) -> (Vec<Tls>, u64) {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(self.http2().await);
        }
        (clients, self.settled().await)
    }

    /// A new client over each protocol gets its whole response.
    async fn serves_newcomers(&self) {
        let mut http2 = self.http2().await;
        http2.say(request(0, "/")).await;
        let mut seen = 0;
        let mut buffer = vec![0; 65_536];
        while seen < BODY {
            let read = within("a body over HTTP/2", http2.stream.read(&mut buffer)).await.unwrap();
            assert!(read > 0, "closed");
            seen += buffer[..read].iter().filter(|byte| **byte == b'y').count();
        }
        let mut http1 = self.tls("http/1.1").await;
        http1.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        let body = within("a body over HTTP/1.1", http1.until(&"y".repeat(BODY))).await;
        assert!(body.starts_with("HTTP/1.1 200"), "{body:.100}");
        let quic =
            Quic::connect(self.address, "localhost", &self.made.cert_pem, quinn::TransportConfig::default()).await;
        let answer = Client::over(quic, "localhost").await.get("/").await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, BODY));
    }
}

/// The `n`th request of a connection.
fn request(n: usize, path: &str) -> Vec<u8> {
    let stream = u32::try_from(2 * n + 1).unwrap();
    let section = fields(&http2::pseudo("GET", path));
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &section)
}

/// The same with the fields of a browser.
fn browsers(n: usize) -> Vec<u8> {
    let agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
    let section = fields(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/silent"),
        ("user-agent", agent),
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("accept-language", "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"),
        ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark; consent=all"),
        ("referer", "https://localhost/a/page/of/some/length"),
        ("sec-fetch-dest", "document"),
        ("sec-fetch-mode", "navigate"),
        ("priority", "u=0, i"),
    ]);
    frame(HEADERS, END_HEADERS | END_STREAM, u32::try_from(2 * n + 1).unwrap(), &section)
}

/// How many of `wanted` connections there are descriptors for: each stream of theirs has a connection of its own to the
/// origin, and origins have half of litequic's descriptors.
fn affordable(wanted: usize) -> usize {
    const OTHERS: u64 = 1_000;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let affordable = usize::try_from(limit.saturating_sub(OTHERS)).unwrap_or(usize::MAX) / 2 / STREAMS;
    if affordable < wanted {
        needs::skip(&format!("{} of {wanted} connections: RLIMIT_NOFILE is {limit}", wanted - affordable));
    }
    affordable.min(wanted)
}

/// `LITEQUIC_TEST_MEMORY` is how many bytes each of the bodies begins with: a million shows what a client with large
/// windows could have.
#[tokio::test]
async fn connections_of_http2_that_stop_reading_hold_what_the_budget_says() {
    const CONNECTIONS: usize = 64;
    let size = env::var("LITEQUIC_TEST_MEMORY").map_or(128 * 1024, |size| size.parse().unwrap());
    let litequic = Running::start(size);
    litequic.serves_newcomers().await;
    let before = litequic.settled().await;
    let mut stalled = Vec::new();
    for _ in 0..affordable(CONNECTIONS) {
        stalled.push(litequic.stalled().await);
    }
    let (connections, streams) = (stalled.len() as u64, stalled.len() * STREAMS);
    litequic.asked(streams).await;
    let held = litequic.settled().await.saturating_sub(before);
    let streams = streams as u64;
    println!("{streams} streams hold {} MiB, {} KiB each", held / MIB, held / KIB / streams);
    // docs/architecture.md, "What is held, and its bound".
    let formula = WORKERS * 2 * Limits::default().worker_send_buffer + streams * A_STREAM + connections * A_CONNECTION;
    assert!(held < formula, "{} MiB, and {} MiB allowed", held / MIB, formula / MIB);
    litequic.serves_newcomers().await;
}

#[tokio::test]
async fn a_queued_request_holds_the_memory_that_the_derived_queue_assumes() {
    const CONNECTIONS: usize = 80;
    let litequic = Running::bounded(0, "max_connections = 1\nmax_queue = 20000");
    let (mut clients, before) = litequic.connected(CONNECTIONS).await;
    for client in &mut clients {
        client.say((0..STREAMS).flat_map(browsers).collect::<Vec<u8>>()).await;
    }
    let requests = (CONNECTIONS * STREAMS) as u64;
    litequic.queued(requests - WORKERS).await;
    let held = litequic.settled().await.saturating_sub(before);
    println!("{requests} requests that wait hold {} MiB, {} bytes each", held / MIB, held / requests);
    assert!(held < requests * A_WAITING_REQUEST, "{} bytes each", held / requests);
}

#[tokio::test]
async fn a_request_whose_origin_is_silent_holds_what_the_derived_connections_count() {
    const CONNECTIONS: usize = 64;
    let litequic = Running::start(0);
    let (mut clients, before) = litequic.connected(affordable(CONNECTIONS)).await;
    let mut requests = 0;
    for client in &mut clients {
        client.say((0..STREAMS).flat_map(browsers).collect::<Vec<u8>>()).await;
        // The backlog of the origin's socket does not hold all at once.
        requests += STREAMS;
        litequic.asked(requests).await;
    }
    let (held, requests) = (litequic.settled().await.saturating_sub(before), requests as u64);
    println!("{requests} requests at a silent origin hold {} MiB, {} bytes each", held / MIB, held / requests);
    assert!(held < requests * A_STREAM, "{} bytes each", held / requests);
}

/// What a flood has left is given back while there are no requests.
#[tokio::test]
async fn memory_goes_back_within_seconds_after_a_flood() {
    const CONNECTIONS: usize = 20;
    const LEFT: u64 = 24 * MIB;
    let litequic = Running::start(64 * 1024);
    litequic.serves_newcomers().await;
    let before = litequic.settled().await;
    let mut stalled = Vec::new();
    for _ in 0..affordable(CONNECTIONS) {
        stalled.push(litequic.stalled().await);
    }
    litequic.asked(stalled.len() * STREAMS).await;
    let held = litequic.settled().await.saturating_sub(before);
    assert!(held > 3 * LEFT, "a flood that left nothing would show nothing: {} MiB", held / MIB);
    drop(stalled);
    until("less memory", async || litequic.resident() <= before + LEFT).await;
}

/// The largest amount of memory so far (proc(5), `VmHWM`), in bytes.
fn peak(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * KIB
}

/// A byte of a header block may be a field by HPACK's table (RFC 7541 §6.1), which takes 60 bytes of memory and more:
/// what is read and waits to be accepted is bounded before it is known to be too much.
#[tokio::test]
async fn concurrent_large_headers_are_bounded_in_memory() {
    const CONNECTIONS: usize = 40;
    const FIELDS: usize = 1_900;
    /// What every connection has: TLS records, frames, and requests that are rejected.
    const A_CONNECTION: u64 = 2 * MIB;
    let litequic = Running::start(0);
    litequic.serves_newcomers().await;
    let (mut clients, _) = litequic.connected(CONNECTIONS).await;
    let mut burst = Vec::new();
    for n in 0..STREAMS {
        let pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
        // A literal with incremental indexing, and then its index in the table.
        let first: &[u8] = if n == 0 { &[0x40, 1, b'a', 0] } else { &[0xbe] };
        let section = [&fields(&pseudo), first, &[0xbe; FIELDS]].concat();
        let stream = u32::try_from(2 * n + 1).unwrap();
        burst.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &section));
    }
    let before = peak(&litequic.process);
    // All of it waits in the kernel's buffers when litequic continues.
    litequic.process.signal("STOP");
    let sent = clients.iter_mut().map(|client| client.stream.write_all(&burst));
    let _ = timeout(Duration::from_secs(2), join_all(sent)).await;
    litequic.process.signal("CONT");
    for client in &mut clients {
        let mut seen = [0; 16_384];
        assert!(within("an answer", client.stream.read(&mut seen)).await.unwrap() > 0);
    }
    litequic.serves_newcomers().await;
    let more = peak(&litequic.process).saturating_sub(before);
    println!("{} KiB more at the peak", more / KIB);
    assert!(more < CONNECTIONS as u64 * A_CONNECTION, "{} MiB", more / MIB);
}

/// hyper begins no further one while the answers are not read.
#[tokio::test]
async fn requests_that_are_sent_ahead_wait_for_their_answers_to_be_read() {
    const REQUESTS: usize = 20_000;
    let litequic = Running::start(0);
    litequic.serves_newcomers().await;
    let before = litequic.settled().await;
    let mut client = litequic.tls("http/1.1").await;
    let request = b"HEAD /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..REQUESTS {
        // litequic stops reading, and so does the client's writing, or it reads all. Each has it look again.
        let sent = timeout(Duration::from_secs(2), async {
            client.stream.write_all(request).await.unwrap();
            client.stream.flush().await.unwrap();
        });
        if sent.await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let held = litequic.settled().await.saturating_sub(before);
    let asked = litequic.origin.asked.load(Relaxed);
    println!("{asked} requests answered, {} KiB held", held / KIB);
    assert!(asked > 0 && asked < REQUESTS / 2, "{asked} of {REQUESTS} requests answered");
    assert!(held < 16 * MIB, "{} MiB", held / MIB);
    litequic.serves_newcomers().await;
}
