//! Tests the proxy against scripted origins: bytes on the wire, and the client's response.

mod addresses;
mod answers;
mod balancing;
mod clocks;
mod descriptors;
mod failing;
mod fairness;
mod http2_origins;
mod pooling;
mod secure;
mod sticky;
mod streaming;
mod translation;
mod uploads;

use super::{Proxy, Routing};
use crate::ProxyMetrics;
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use litequic_config::{self as config, Config, OriginAddress, OriginConfig, Timeouts};
use litequic_exchange::{
    Abort, Body, BodyError, Client, Exchange, Handler, InterimReceiver, InterimSender, LastForwarded, Protocol,
    RequestRecord, TlsIdentity,
};
use litequic_resources::memory::MemoryPressure;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::{sleep, timeout},
};

/// A request as the tests write it.
type Request = http::Request<Body>;
/// A response as the tests read it.
type Response = http::Response<Body>;

/// Time limit of every wait, longer than any of them takes.
const DEADLINE: Duration = Duration::from_secs(10);

/// TLS 1.3 configurations of a server and a client: the server has a new certificate for `names`, which the client
/// trusts.
pub(super) fn tls_configs(names: &[&str], provider: CryptoProvider) -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    let provider = Arc::new(provider);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}

/// Runs a test as a worker runs: on one thread, with local tasks.
fn on_a_worker(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(DEADLINE, test).await.expect("the test hangs") });
}

/// Runs a test as a worker runs, with a clock that jumps towards the next timer whenever nothing else can happen: by a
/// tenth of a second at most, and not before the kernel had some milliseconds to deliver bytes.
fn with_a_jumping_clock(test: impl Future<Output = ()>) {
    const JUMP: Duration = Duration::from_millis(100);
    const DELIVERY: Duration = Duration::from_millis(5);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let tasks = LocalSet::new();
    tasks.spawn_local(async {
        loop {
            // tokio's clock stands still meanwhile.
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(DELIVERY)).await;
            sleep(JUMP).await;
        }
    });
    tasks.block_on(&runtime, test);
}

struct Setup {
    proxy: Rc<Proxy>,
    metrics: Arc<ProxyMetrics>,
    shared: Arc<ArcSwap<Routing>>,
    config: Config,
}

fn config(address: OriginAddress, change: impl FnOnce(&mut Config)) -> Config {
    let route = config::RouteConfig { host: Some("a.test".into()), ..config::RouteConfig::catch_all("o") };
    let mut config = Config {
        listen: config::Listen::at_address(([127, 0, 0, 1], 0).into()),
        acme: Vec::new(),
        certificates: Vec::new(),
        client_certificates: config::ClientCertificates::default(),
        routes: vec![route],
        request_headers: config::HeaderRules::default(),
        response_headers: config::HeaderRules::default(),
        error_pages: config::ErrorPages::default(),
        origins: BTreeMap::from([("o".to_owned(), OriginConfig::new(address))]),
        limits: config::Limits::default(),
        sources: config::Sources {
            exempt: ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into(),
            ..config::Sources::default()
        },
        timeouts: Timeouts::default(),
        litequic: config::LiteQuic::default(),
        admin: config::Admin::default(),
        reload: config::ReloadConfig::default(),
        log: config::LogConfig { level: config::LogSeverity::Info, format: config::LogFormat::Auto },
        access_log: config::AccessLog::default(),
        traces: config::Traces::default(),
        trusted_proxies: Vec::new(),
        laboratory: config::Laboratory::default(),
    };
    change(&mut config);
    config
}

/// Configuration of the only origin.
fn origin(config: &mut Config) -> &mut OriginConfig {
    config.origins.get_mut("o").unwrap()
}

fn setup_at(address: OriginAddress, change: impl FnOnce(&mut Config)) -> Setup {
    let config = config(address, change);
    let shared = Arc::new(ArcSwap::from_pointee(Routing::new(&config)));
    let metrics = Arc::new(ProxyMetrics::default());
    let proxy = Rc::new(Proxy::new(Arc::clone(&shared), Arc::clone(&metrics), MemoryPressure::default()));
    Setup { proxy, metrics, shared, config }
}

/// An origin whose connections the test handles itself.
struct Script {
    listener: TcpListener,
}

impl Script {
    async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn address(&self) -> OriginAddress {
        OriginAddress::Tcp { host: "127.0.0.1".into(), port: self.listener.local_addr().unwrap().port() }
    }

    fn proxy(&self, change: impl FnOnce(&mut Config)) -> Setup {
        setup_at(self.address(), change)
    }

    async fn accept(&self) -> Peer {
        Peer { stream: self.listener.accept().await.unwrap().0, seen: Vec::new() }
    }

    /// Sends a GET; returns it with the origin's connection, on which the head was read.
    async fn asked_by(&self, setup: &Setup) -> (tokio::task::JoinHandle<Result<Response, Abort>>, Peer) {
        let sent = setup.get();
        let mut peer = self.accept().await;
        peer.head().await;
        (sent, peer)
    }
}

/// An origin that neither accepts nor refuses connections: its backlog is full, and drops SYNs.
struct Deaf {
    socket: socket2::Socket,
    _fills_it: std::net::TcpStream,
}

impl Deaf {
    fn new() -> Self {
        Self::at([127, 0, 0, 1])
    }

    fn at(ip: [u8; 4]) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((ip, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        Self { _fills_it: std::net::TcpStream::connect(address).unwrap(), socket }
    }

    fn address(&self) -> OriginAddress {
        let port = self.socket.local_addr().unwrap().as_socket().unwrap().port();
        OriginAddress::Tcp { host: "127.0.0.1".into(), port }
    }
}

/// Origin's end of a connection.
struct Peer {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Peer {
    /// Reads until the received bytes end with `end`, and returns all of them.
    async fn until(&mut self, end: &str) -> String {
        while !self.seen.ends_with(end.as_bytes()) {
            let read = self.stream.read_buf(&mut self.seen).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }

    async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the proxy closes.
    async fn rest(&mut self) -> String {
        while let Ok(read) = self.stream.read_buf(&mut self.seen).await {
            if read == 0 {
                break;
            }
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }
}

impl Setup {
    fn exchange(request: Request) -> (Exchange, InterimReceiver) {
        Self::exchange_of(7, 0, request)
    }

    /// A request of the client with this last byte of its address, over this connection.
    fn exchange_of(client: u8, connection: u64, request: Request) -> (Exchange, InterimReceiver) {
        let (interim, queue) = InterimSender::open_channel();
        let client = Client {
            // Clients from 200 on have a network of their own.
            address: ([192, 0, if client < 200 { 2 } else { client }, client], 4711).into(),
            local: "192.0.2.1:443".parse().unwrap(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: TlsIdentity::default(),
            connection,
        };
        (
            Exchange { request: request.into(), client: Rc::new(client), interim, record: RequestRecord::default() },
            queue,
        )
    }

    /// Sends a request as a task of its own.
    fn send(&self, request: Request) -> tokio::task::JoinHandle<Result<Response, Abort>> {
        self.send_as(7, 0, request)
    }

    /// Sends a request of this client, over this connection, as a task of its own.
    fn send_as(
        &self,
        client: u8,
        connection: u64,
        request: Request,
    ) -> tokio::task::JoinHandle<Result<Response, Abort>> {
        let proxy = Rc::clone(&self.proxy);
        let (exchange, _) = Self::exchange_of(client, connection, request);
        spawn_local(async move { answer(&proxy, exchange).await })
    }

    fn get(&self) -> tokio::task::JoinHandle<Result<Response, Abort>> {
        self.send(get())
    }
}

/// The response of `proxy` to a request.
async fn answer(proxy: &Proxy, exchange: Exchange) -> Result<Response, Abort> {
    proxy.handle(exchange).await.map(Response::from)
}

fn get() -> Request {
    request(Method::GET, Body::empty())
}

fn request(method: Method, body: Body) -> Request {
    http::Request::builder().method(method).uri("https://a.test/x?y=1").body(body).unwrap()
}

type Feed = mpsc::UnboundedSender<Result<Frame<Bytes>, BodyError>>;

/// A body of unknown length that the test feeds.
fn fed() -> (Feed, Body) {
    let (feed, frames) = mpsc::unbounded_channel();
    let frames = stream::unfold(frames, |mut frames| async move { frames.recv().await.map(|frame| (frame, frames)) });
    (feed, Body::from_stream(StreamBody::new(frames.boxed_local())))
}

/// A body whose pieces are ready at once, and whose end is known with the last of them: a front end has such a body
/// when FIN comes with the data.
struct Pieces {
    pieces: VecDeque<&'static str>,
    length: Option<u64>,
    /// Number of calls in which the body denies its end.
    denials: Cell<u32>,
}

impl Pieces {
    fn body(pieces: &[&'static str], length: Option<u64>, denials: u32) -> Body {
        Body::from_stream(Self { pieces: pieces.iter().copied().collect(), length, denials: Cell::new(denials) })
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.pieces.pop_front().map(data))
    }

    fn is_end_stream(&self) -> bool {
        let denials = self.denials.get();
        self.denials.set(denials.saturating_sub(1));
        self.pieces.is_empty() && denials == 0
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

/// A body of known length that the test feeds.
fn fed_known(length: u64) -> (Feed, Body) {
    struct Known(Body, u64);
    impl http_body::Body for Known {
        type Data = Bytes;
        type Error = BodyError;
        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }
        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.1)
        }
    }
    let (feed, body) = fed();
    (feed, Body::from_stream(Known(body, length)))
}

fn data(text: &'static str) -> Result<Frame<Bytes>, BodyError> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

async fn text(response: Response) -> Result<String, BodyError> {
    let collected = response.into_body().collect().await?;
    Ok(String::from_utf8(collected.to_bytes().to_vec()).unwrap())
}

/// Lets all other tasks run until nothing moves.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Ends the connection of `peer` with unread bytes of the upload, which resets it, and sends until writes fail.
async fn reset_with_bytes_unread(peer: impl Sized, feed: &Feed) {
    feed.send(data("unread")).unwrap();
    settle().await;
    drop(peer);
    for _ in 0..10 {
        let _ = feed.send(data("more"));
        settle().await;
    }
}

fn proxy_status(response: &Response) -> String {
    response.headers()["proxy-status"].to_str().unwrap().split("; ").nth(1).unwrap().to_owned()
}

fn lines(head: &str) -> Vec<&str> {
    let mut lines: Vec<_> = head.trim_end().split("\r\n").collect();
    lines[1..].sort_unstable();
    lines
}

/// Bytes of the future that a method of two arguments returns.
fn size_of_future<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn a_request_takes_no_more_memory_in_the_proxy_than_it_needs() {
    let size = size_of_future(<Proxy as Handler>::handle);
    assert!(size <= 6 << 10, "{size} bytes");
}
