//! Transfers too large, too many or too long for a test: whole gigabytes, thousands of small requests, connections that
//! do nothing. A client only, on quinn and h3, so that litequic is not measured by its own ideas.
//!
//! The bytes are those of the demo's `/bytes/N`: byte i is i mod 251. What differs from them, is missing or comes
//! twice ends the run with exit code 1. Certificates are not verified: for a network of one's own only.
//!
//! Before litequic's own origin, which digests what it is sent:
//!
//! ```text
//! cargo build --release --examples --bins
//! target/release/litequic demo --listen 127.0.0.1:8443 &
//! target/release/examples/transfer download https://127.0.0.1:8443/bytes/1G --bytes 1000000000
//! target/release/examples/transfer upload   https://127.0.0.1:8443/sink --bytes 10000000000
//! target/release/examples/transfer small    https://127.0.0.1:8443/bytes/1k --bytes 1000 --requests 100000 --connections 50
//! target/release/examples/transfer idle     https://127.0.0.1:8443/bytes/1k --bytes 1000 --connections 1000 --hold 60
//! ```
//!
//! Before nginx, with `client_max_body_size 0; dav_methods PUT; root /srv/www;` in its configuration:
//!
//! ```text
//! litequic demo --listen 127.0.0.1:8443 --origin http://127.0.0.1:8080 &
//! transfer upload   https://127.0.0.1:8443/large --method PUT --bytes 1000000000    # prints the digest
//! sha256sum /srv/www/large                                                          # is the same
//! transfer download https://127.0.0.1:8443/large --bytes 1000000000
//! ```
//!
//! Connections share one thread and one socket: for more load than one core makes, start several.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that reports")]

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf, Bytes};
use clap::{Args, Parser, Subcommand};
use h3::client::SendRequest;
use http::{Method, Request, StatusCode, Uri};
use litequic_tls::{self as tls, ServerTrust};
use quinn::crypto::rustls::QuicClientConfig;
use sha2::{Digest, Sha256};
use std::{
    cell::Cell,
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    rc::Rc,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};
use tokio::task::{JoinSet, LocalSet};

/// Byte i is i mod this, as in the demo's `/bytes/N`.
const PERIOD: usize = 251;
/// Whole periods, so that any place within the first is followed by a long run of the pattern.
const PATTERN_BYTES: usize = PERIOD * 1024;
#[expect(clippy::cast_possible_truncation, reason = "below 251")]
static PATTERN: LazyLock<Bytes> = LazyLock::new(|| (0..PATTERN_BYTES).map(|at| (at % PERIOD) as u8).collect());

#[derive(Debug, Parser)]
#[command(about = "Transfers bytes over HTTP/3 and verifies them")]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Reads BYTES bytes over each connection.
    Download {
        #[command(flatten)]
        target: Target,
        /// What the body's SHA-256 is to be, where the body is not the pattern.
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
    },
    /// Sends BYTES bytes over each connection. An answer of the form "COUNT SHA256" is compared.
    Upload {
        #[command(flatten)]
        target: Target,
        #[arg(long, default_value = "POST")]
        method: Method,
        /// Leave the length out: the origin gets chunks.
        #[arg(long)]
        chunked: bool,
    },
    /// Makes many requests, each of which answers BYTES bytes, and counts those that fail.
    Small {
        #[command(flatten)]
        target: Target,
        /// How many in all.
        #[arg(long, value_name = "N")]
        requests: u64,
        /// At a time on one connection.
        #[arg(long, value_name = "N", default_value_t = 10)]
        streams: u64,
    },
    /// Makes one request on each connection and holds them all open.
    Idle {
        #[command(flatten)]
        target: Target,
        /// For how many seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        hold: u64,
        /// Send a PING every so many seconds; 0 for none.
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        ping: u64,
    },
}

#[derive(Debug, Clone, Args)]
struct Target {
    /// https://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    url: Uri,
    /// Of one body.
    #[arg(long, value_name = "N")]
    bytes: u64,
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u64,
    /// Reach the host here instead of where its name leads.
    #[arg(long, value_name = "ADDR")]
    connect: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match LocalSet::new().block_on(&runtime, run(command.what)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(what: What) -> Result<()> {
    match what {
        What::Download { target, sha256 } => {
            let client = Client::new(&target, None).await?;
            large(target, client, move |target, mut connection| {
                let sha256 = sha256.clone();
                async move { download(&target, &mut connection.requests, sha256.as_deref()).await }
            })
            .await
        }
        What::Upload { target, method, chunked } => {
            let client = Client::new(&target, None).await?;
            large(target, client, move |target, mut connection| {
                let method = method.clone();
                async move { upload(&target, &mut connection.requests, method, chunked).await }
            })
            .await
        }
        What::Small { target, requests, streams } => small(target, requests, streams).await,
        What::Idle { target, hold, ping } => idle(target, hold, ping).await,
    }
}

/// One large body a connection, all at once.
async fn large<F>(target: Target, client: Client, transfer: impl Fn(Target, Connection) -> F) -> Result<()>
where
    F: Future<Output = Result<String>> + 'static,
{
    let mut transfers = JoinSet::new();
    let started = Instant::now();
    for _ in 0..target.connections {
        transfers.spawn_local(transfer(target.clone(), client.connect().await?));
    }
    let mut failed = 0_u64;
    while let Some(done) = transfers.join_next().await {
        let seconds = started.elapsed().as_secs_f64();
        match done.context("a transfer panicked").flatten() {
            Ok(sha256) => println!("{} bytes  {seconds:.3} s  sha256 {sha256}", target.bytes),
            Err(error) => {
                failed += 1;
                eprintln!("failed after {seconds:.3} s: {error:#}");
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let bytes = target.bytes * (target.connections - failed);
    println!("{bytes} bytes in all  {seconds:.3} s  {:.1} MB/s", bytes as f64 / seconds / 1e6);
    ensure!(failed == 0, "{failed} of {} transfers failed", target.connections);
    Ok(())
}

type Requests = SendRequest<h3_quinn::OpenStreams, Bytes>;

/// Reads one body and verifies it, against `sha256` if there is one, else against the pattern. Gives its digest.
async fn download(target: &Target, requests: &mut Requests, sha256: Option<&str>) -> Result<String> {
    let request = Request::get(target.url.clone()).body(())?;
    let mut stream = requests.send_request(request).await.context("no request")?;
    stream.finish().await?;
    let response = stream.recv_response().await.context("no response")?;
    ensure!(response.status() == StatusCode::OK, "status {}", response.status());
    let mut digest = Sha256::new();
    let mut count = 0_u64;
    while let Some(mut piece) = stream.recv_data().await.with_context(|| format!("broken off after {count} bytes"))? {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            if sha256.is_none() {
                matches_pattern(count, chunk)?;
            }
            digest.update(chunk);
            let length = chunk.len();
            count += length as u64;
            piece.advance(length);
        }
    }
    ensure!(count == target.bytes, "{count} bytes came, {} were due", target.bytes);
    let found = hex(&digest.finalize());
    if let Some(wanted) = sha256 {
        ensure!(found.eq_ignore_ascii_case(wanted), "sha256 is {found}, was to be {wanted}");
    }
    Ok(found)
}

/// Sends the pattern. Returns its digest, which is compared with the origin's if the origin sends one.
async fn upload(target: &Target, requests: &mut Requests, method: Method, chunked: bool) -> Result<String> {
    let mut request = Request::builder().method(method).uri(target.url.clone());
    if !chunked {
        request = request.header(http::header::CONTENT_LENGTH, target.bytes);
    }
    let mut stream = requests.send_request(request.body(())?).await.context("no request")?;
    let mut digest = Sha256::new();
    let mut sent = 0_u64;
    let mut refused = None;
    while sent < target.bytes {
        let from = usize::try_from(sent % PERIOD as u64)?;
        let left = usize::try_from(target.bytes - sent).unwrap_or(usize::MAX);
        let piece = PATTERN.slice(from..PATTERN_BYTES.min(from.saturating_add(left)));
        digest.update(&piece);
        sent += piece.len() as u64;
        if let Err(error) = stream.send_data(piece).await {
            // An origin may answer without reading all: its answer has the reason.
            refused = Some(error);
            break;
        }
    }
    if refused.is_none() {
        stream.finish().await.context("no end of the body")?;
    }
    let response = stream.recv_response().await.with_context(|| format!("no response after {sent} bytes"))?;
    ensure!(response.status().is_success(), "status {} after {sent} bytes", response.status());
    if let Some(error) = refused {
        return Err(error).with_context(|| format!("the upload was cut after {sent} bytes"));
    }
    let mut answer = Vec::new();
    while let Some(mut piece) = stream.recv_data().await.context("no answer")? {
        answer.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    let found = hex(&digest.finalize());
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_whitespace().collect::<Vec<_>>()[..] {
        [count, sha256] if sha256.len() == found.len() => {
            ensure!(count == target.bytes.to_string(), "the origin got {count} of {} bytes", target.bytes);
            ensure!(sha256 == found, "the origin got {sha256}, sent was {found}");
        }
        _ => println!("the origin names no digest ({}): compare it with what it stored", response.status()),
    }
    Ok(found)
}

async fn small(target: Target, requests: u64, streams: u64) -> Result<()> {
    let client = Client::new(&target, None).await?;
    let left = Rc::new(Cell::new(requests));
    let (done, lost) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let mut workers = JoinSet::new();
    let started = Instant::now();
    let mut connections = Vec::new();
    for _ in 0..target.connections {
        let connection = client.connect().await?;
        for _ in 0..streams {
            let (target, mut requests) = (target.clone(), connection.requests.clone());
            let (left, done, lost) = (Rc::clone(&left), Rc::clone(&done), Rc::clone(&lost));
            workers.spawn_local(async move {
                while let Some(next) = left.get().checked_sub(1) {
                    left.set(next);
                    match download(&target, &mut requests, None).await {
                        Ok(_) => done.set(done.get() + 1),
                        Err(error) => {
                            lost.set(lost.get() + 1);
                            // The first ones show what goes wrong.
                            if lost.get() <= 10 {
                                eprintln!("lost: {error:#}");
                            }
                        }
                    }
                }
            });
        }
        connections.push(connection);
    }
    while let Some(done) = workers.join_next().await {
        done.context("a worker panicked")?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let (done, lost) = (done.get(), lost.get());
    println!(
        "{done} requests over {} connections  {lost} lost  {seconds:.3} s  {:.0}/s",
        connections.len(),
        done as f64 / seconds
    );
    ensure!(lost == 0 && done == requests, "{lost} requests lost, {done} of {requests} done");
    Ok(())
}

async fn idle(target: Target, hold: u64, ping: u64) -> Result<()> {
    let client = Client::new(&target, (ping > 0).then(|| Duration::from_secs(ping))).await?;
    let mut connections = Vec::new();
    for number in 0..target.connections {
        let mut connection = client.connect().await.with_context(|| format!("connection {number}"))?;
        download(&target, &mut connection.requests, None).await.with_context(|| format!("connection {number}"))?;
        connections.push(connection);
    }
    println!("{} connections are open, for {hold} s", connections.len());
    tokio::time::sleep(Duration::from_secs(hold)).await;
    let open = connections.iter().filter(|connection| connection.quic.close_reason().is_none()).count();
    println!("{open} of {} are still open", connections.len());
    ensure!(open == connections.len(), "connections were lost");
    Ok(())
}

/// Where to connect to, and how.
struct Client {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
    name: String,
}

/// Dropped, it is closed.
struct Connection {
    quic: quinn::Connection,
    requests: Requests,
}

impl Client {
    async fn new(target: &Target, ping: Option<Duration>) -> Result<Self> {
        ensure!(target.connections > 0, "without a connection nothing can be transferred");
        let authority = target.url.authority().context("the URL has no host")?;
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = match target.connect {
            Some(address) => address,
            None => {
                let port = authority.port_u16().unwrap_or(443);
                let mut found = tokio::net::lookup_host((name.as_str(), port)).await?;
                found.next().with_context(|| format!("{name} has no address"))?
            }
        };
        let tls = tls::client_config(&ServerTrust::Insecure)?;
        let mut transport = quinn::TransportConfig::default();
        transport.keep_alive_interval(ping);
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport));
        let local = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let mut endpoint = quinn::Endpoint::client(local)?;
        endpoint.set_default_client_config(config);
        Ok(Self { endpoint, address, name })
    }

    async fn connect(&self) -> Result<Connection> {
        let quic = self.endpoint.connect(self.address, &self.name)?.await.context("no connection")?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await?;
        // Ends with the connection.
        tokio::task::spawn_local(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        Ok(Connection { quic, requests })
    }
}

/// Whether `bytes` are those that stand at `offset`; names the first that is not.
fn matches_pattern(offset: u64, bytes: &[u8]) -> Result<()> {
    let mut offset = offset;
    for piece in bytes.chunks(PATTERN_BYTES - PERIOD) {
        let from = usize::try_from(offset % PERIOD as u64)?;
        let due = PATTERN.get(from..from + piece.len()).context("a piece is longer than the pattern")?;
        if piece != due {
            let at = piece.iter().zip(due).take_while(|(found, due)| found == due).count();
            bail!("byte {} is not the one that stands there", offset + at as u64);
        }
        offset += piece.len() as u64;
    }
    Ok(())
}

fn hex(digest: &[u8]) -> String {
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
