//! Origins over TLS: nginx, and servers of other TLS libraries, none of which was written for these tests.

mod files;
mod peers;
mod rpc;

use crate::{
    client_certificates::person::{Authority, Shown},
    support::{nginx::Nginx, prelude::*, tunnel},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{SinkExt, StreamExt};
use litequic_config::{OriginProtocol, OriginTls, TlsVersion};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// RFC 9114 §8.1.
const H3_REQUEST_CANCELLED: u32 = 0x10c;
/// RFC 9113 §7.
const CANCEL: u32 = 8;

/// A folder with certificates.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let beside = self.path(".new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
        self.path(name)
    }

    /// The chain and the key of `shown`, as `NAME.crt` and `NAME.key`.
    fn put_pair(&self, name: &str, shown: &Shown) -> (PathBuf, PathBuf) {
        (self.put(&format!("{name}.crt"), &pem(shown)), self.put(&format!("{name}.key"), &shown.key))
    }
}

pub(crate) fn pem(shown: &Shown) -> String {
    let one = |der: &[u8]| {
        let text = BASE64_STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    shown.chain.iter().map(|der| one(der)).collect()
}

/// A server's certificate for 127.0.0.1 and origin.test.
pub(crate) fn server(authority: &Authority, edit: impl FnOnce(&mut CertificateParams)) -> Shown {
    authority.issue(|parameters| {
        parameters.subject_alt_names =
            vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into()), SanType::DnsName("origin.test".try_into().unwrap())];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        edit(parameters);
    })
}

/// The configuration of an origin at `port`, whose authority is in `ca`.
fn https(port: u16, ca: PathBuf) -> OriginConfig {
    let tls = OriginTls { ca: Some(ca), ..OriginTls::default() };
    let address = OriginAddress::Https { host: "127.0.0.1".into(), port };
    OriginConfig { tls: Some(tls), ..OriginConfig::new(address) }
}

fn tls(origin: &mut OriginConfig) -> &mut OriginTls {
    origin.tls.as_mut().unwrap()
}

/// litequic before `origin`.
async fn before(origin: OriginConfig) -> Litequic {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let set = |config: &mut Config| {
        config.origins.values_mut().for_each(|one| *one = origin.clone());
        config.routes[0].upgrade.push("other".into());
    };
    Litequic::start(nowhere, set).await
}

/// Bytes that do not repeat where a buffer might be cut.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// nginx with TLS at a port of its own, beside its plaintext, with `more` in its server block.
fn nginx(folder: &Folder, authority: &Authority, more: &str) -> Option<(Nginx, u16)> {
    let (cert, key) = folder.put_pair("nginx", &server(authority, |_| {}));
    let port = free_tcp_port();
    // By default nginx has TLS 1.3 only since 1.23.4.
    let protocols = if more.contains("ssl_protocols") { "" } else { "ssl_protocols TLSv1.3;\n" };
    let nginx = Nginx::start(&format!(
        "listen 127.0.0.1:{port} ssl;\nssl_certificate {};\nssl_certificate_key {};\n{protocols}{more}",
        cert.display(),
        key.display()
    ))?;
    Some((nginx, port))
}

#[tokio::test]
async fn files_of_every_size_arrive_whole_from_nginx() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    for (protocols, min) in [("TLSv1.3", TlsVersion::Tls13), ("TLSv1.2", TlsVersion::Tls12)] {
        let more = format!("ssl_protocols {protocols};\nlocation /up {{ client_max_body_size 0; return 204; }}");
        let Some((nginx, port)) = nginx(&folder, &authority, &more) else { return };
        for size in [0, 1, 16_383, 16_384, 16_385, 10_000_000] {
            fs::write(nginx.file(&format!("/{size}")), bytes(size)).unwrap();
        }
        let mut origin = https(port, ca.clone());
        tls(&mut origin).min = min;
        let litequic = before(origin).await;
        let client = Client::to(&litequic).await;
        for size in [0, 1, 16_383, 16_384, 16_385, 10_000_000] {
            let answer = client.get(&format!("/{size}")).await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, size));
            assert_eq!(Sha256::digest(&answer.body), Sha256::digest(bytes(size)), "{size}");
            let head = client.fetch(client.request(Method::HEAD, &format!("/{size}")), "").await;
            assert_eq!(head.field("content-length"), Some(size.to_string().as_str()));
        }
        let up = client.post("/up", bytes(3_000_000)).await;
        assert_eq!(up.status, 204);
        let full = litequic.sum(|worker| worker.proxy.origin_tls_full.get());
        assert_eq!(full, 1, "one connection serves them all");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn files_of_every_size_arrive_from_nginx_over_http2() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let (ca, plaintext, port) = (folder.put("ca.pem", &authority.pem()), free_tcp_port(), free_tcp_port());
    let more =
        format!("listen 127.0.0.1:{plaintext} http2;\nlisten 127.0.0.1:{port} ssl http2;\nclient_max_body_size 0;\n");
    let Some((nginx, _)) = nginx(&folder, &authority, &more) else { return };
    for size in [0, 1, 16_384, 65_536, 10_000_000] {
        fs::write(nginx.file(&format!("/{size}")), bytes(size)).unwrap();
    }
    let plaintext = OriginAddress::Tcp { host: "127.0.0.1".into(), port: plaintext };
    for origin in [OriginConfig::new(plaintext), https(port, ca)] {
        let litequic = before(OriginConfig { protocol: OriginProtocol::Http2, ..origin }).await;
        let client = Client::to(&litequic).await;
        for size in [0, 1, 16_384, 65_536, 10_000_000] {
            let answer = client.get(&format!("/{size}")).await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, size));
            assert_eq!(Sha256::digest(&answer.body), Sha256::digest(bytes(size)), "{size}");
            let head = client.fetch(client.request(Method::HEAD, &format!("/{size}")), "").await;
            assert_eq!(head.field("content-length"), Some(size.to_string().as_str()));
        }
        assert_eq!(client.post("/none", bytes(3_000_000)).await.status, 404);
        assert_eq!(litequic.sum(|worker| worker.proxy.origin_connections.get()), 1);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn nginx_requests_and_verifies_litequics_own_certificate() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let more = format!(
        "ssl_client_certificate {};\nssl_verify_client on;\nlocation / {{ return 200 $ssl_client_s_dn; }}",
        ca.display()
    );
    let Some((_nginx, port)) = nginx(&folder, &authority, &more) else { return };
    let litequic = before(https(port, ca.clone())).await;
    let answer = Client::to(&litequic).await.get("/").await;
    // nginx' own answer to a client without a certificate.
    assert_eq!(answer.status, 400);
    litequic.stop().await;

    let (cert, key) = folder.put_pair("client", &authority.client());
    let mut origin = https(port, ca);
    (tls(&mut origin).cert, tls(&mut origin).key) = (Some(cert), Some(key));
    let litequic = before(origin).await;
    let answer = Client::to(&litequic).await.get("/").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_closed_by_nginx_is_replaced_by_a_resumed_session() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let more = "keepalive_requests 2;\nlocation / { return 200 ok; }";
    let Some((_nginx, port)) = nginx(&folder, &authority, more) else { return };
    let litequic = before(https(port, ca)).await;
    let client = Client::to(&litequic).await;
    for _ in 0..6 {
        assert_eq!(client.post("/", "body").await.text(), "ok");
    }
    let full = litequic.sum(|worker| worker.proxy.origin_tls_full.get());
    let resumed = litequic.sum(|worker| worker.proxy.origin_tls_resumed.get());
    assert_eq!((full, resumed), (1, 2));
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_whose_keepalive_timeout_is_over_is_not_used() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let more = "keepalive_timeout 20ms;\nlocation / { return 200 ok; }\nlocation /open { stub_status; }";
    let Some((nginx, port)) = nginx(&folder, &authority, more) else { return };
    let litequic = before(https(port, ca)).await;
    let client = Client::to(&litequic).await;
    for _ in 0..3 {
        // No request that could be sent again.
        assert_eq!(client.post("/", "body").await.text(), "ok");
        within("nginx' close_notify", async {
            loop {
                let mut stream = TcpStream::connect(nginx.address).await.unwrap();
                stream.write_all(b"GET /open HTTP/1.0\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                // The one that asks.
                if answer.contains("Active connections: 1 ") {
                    break;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let full = litequic.sum(|worker| worker.proxy.origin_tls_full.get());
    let resumed = litequic.sum(|worker| worker.proxy.origin_tls_resumed.get());
    let retries = litequic.sum(|worker| worker.proxy.origin_retries.get());
    assert_eq!((full, resumed, retries), (1, 2, 0));
    litequic.stop().await;
}

#[tokio::test]
async fn websockets_pass_through_nginx() {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let echo = tunnel::echo().await;
    let more = format!(
        "location / {{ proxy_pass http://{echo}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}"
    );
    let Some((_nginx, port)) = nginx(&folder, &authority, &more) else { return };
    let litequic = before(https(port, ca)).await;
    for over in [HttpVersion::Http1, HttpVersion::Http2, HttpVersion::Http3] {
        let (mut socket, _kept) = tunnel::websocket(&litequic, over, "/").await;
        for text in ["hello".to_owned(), "x".repeat(100_000)] {
            socket.send(text.clone().into()).await.unwrap();
            let echoed = within("an echo", socket.next()).await.unwrap().unwrap();
            assert_eq!(echoed.into_text().unwrap(), text.as_str());
        }
        socket.send("close".into()).await.unwrap();
        assert!(within("a close", socket.next()).await.unwrap().unwrap().is_close());
    }
    litequic.stop().await;
}

/// A server over TLS whose connections the test ends itself.
async fn accept(listener: &TcpListener, config: &Arc<rustls::ServerConfig>) -> TlsStream<TcpStream> {
    let (stream, _) = within("a connection to the origin", listener.accept()).await.unwrap();
    let mut tls = within("a handshake", TlsAcceptor::from(Arc::clone(config)).accept(stream)).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(within("a head", tls.read_buf(&mut head)).await.unwrap() > 0);
    }
    let yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    tls.write_all(yes.as_bytes()).await.unwrap();
    tls.flush().await.unwrap();
    tls
}

/// litequic before an origin of this test's own.
struct Own {
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    litequic: Litequic,
    _folder: Folder,
}

impl Own {
    async fn start() -> Self {
        let (folder, authority) = (Folder::new(), Authority::new("root"));
        let ca = folder.put("ca.pem", &authority.pem());
        let shown = server(&authority, |_| {});
        let mut config = tls::server_config(shown.chain.clone(), &shown.key);
        // Unread tickets would have the kernel reset a connection that was closed in order.
        config.send_tls13_tickets = 0;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let litequic = before(https(listener.local_addr().unwrap().port(), ca)).await;
        Self { listener, config: Arc::new(config), litequic, _folder: folder }
    }

    /// The origin's end of the tunnel that a client asks for.
    async fn peer(&self) -> TlsStream<TcpStream> {
        accept(&self.listener, &self.config).await
    }

    async fn stop(self) {
        self.litequic.wait_until("tunnels_open = 0", |worker| worker.proxy.tunnels_open.get(), |open| open == 0).await;
        self.litequic.stop().await;
    }
}

/// The origin sees no close_notify, and no end of TCP.
async fn is_reset(mut peer: TlsStream<TcpStream>, what: &str) {
    let error = within("a reset", peer.read(&mut [0; 16])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
}

/// How an origin ends a tunnel out of order: by a reset, or by the end of TCP without close_notify, which anyone on
/// the path can bring about.
#[derive(Debug, Clone, Copy)]
enum Break {
    Reset,
    EndOfTcp,
}

impl Break {
    const ALL: [Self; 2] = [Self::Reset, Self::EndOfTcp];

    /// Returns what must be kept until the client has seen it.
    async fn of(self, mut peer: TlsStream<TcpStream>) -> Option<TlsStream<TcpStream>> {
        match self {
            Self::Reset => {
                socket2::SockRef::from(peer.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
                None
            }
            Self::EndOfTcp => {
                within("the end of TCP", peer.get_mut().0.shutdown()).await.unwrap();
                Some(peer)
            }
        }
    }
}

#[tokio::test]
async fn a_reset_passes_through_a_tunnel_over_http3() {
    let own = Own::start().await;
    let raw = Raw::to(&own.litequic).await;
    let open = async || {
        let mut exchange = raw.open(&tunnel::connect("/", "other", &[])).await;
        let peer = own.peer().await;
        assert_eq!(exchange.header().await.status(), 200);
        (exchange, peer)
    };
    let (mut exchange, peer) = open().await;
    exchange.send.reset(quinn::VarInt::from_u32(H3_REQUEST_CANCELLED)).unwrap();
    is_reset(peer, "RESET_STREAM").await;
    for how in Break::ALL {
        let (mut exchange, peer) = open().await;
        let _peer = how.of(peer).await;
        assert_eq!(exchange.outcome().await, Outcome::Reset(H3_REQUEST_CANCELLED.into()), "{how:?}");
    }
    own.stop().await;
}

#[tokio::test]
async fn a_reset_passes_through_a_tunnel_over_http2() {
    let own = Own::start().await;
    let open = async || {
        let mut client = Http2::connect(&own.litequic, &[]).await;
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "other"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
        ];
        client.say(http2::HEADERS, http2::END_HEADERS, 1, &http2::fields(&fields)).await;
        let peer = own.peer().await;
        let head = client.find(&[http2::HEADERS]).await.unwrap();
        assert_eq!(http2::status(&head), 200);
        (client, peer)
    };
    let (mut client, peer) = open().await;
    client.say(http2::RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    is_reset(peer, "RST_STREAM").await;
    for how in Break::ALL {
        let (mut client, peer) = open().await;
        let _peer = how.of(peer).await;
        let frame = client.find(&[http2::RST_STREAM, http2::DATA]).await.unwrap();
        assert_eq!((frame.kind, frame.code()), (http2::RST_STREAM, CANCEL), "{how:?}");
    }
    own.stop().await;
}

#[tokio::test]
async fn a_reset_passes_through_a_tunnel_over_http1() {
    let own = Own::start().await;
    let open = async || {
        let mut client = Tls::http1(&own.litequic).await;
        client.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n").await;
        let peer = own.peer().await;
        assert!(client.head().await.starts_with("http/1.1 101 "));
        (client, peer)
    };
    let (client, peer) = open().await;
    let (stream, _) = client.into_parts();
    socket2::SockRef::from(stream.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    is_reset(peer, "a reset of TCP").await;
    // The end of TCP without close_notify, in this direction.
    let (client, peer) = open().await;
    let (mut stream, _) = client.into_parts();
    within("the end of TCP", stream.get_mut().0.shutdown()).await.unwrap();
    is_reset(peer, "no close_notify").await;
    for how in Break::ALL {
        let (mut client, peer) = open().await;
        let _peer = how.of(peer).await;
        assert_eq!(client.rest().await, (String::new(), false), "{how:?}: no close_notify");
    }
    own.stop().await;
}

#[tokio::test]
async fn each_end_of_a_tunnel_by_close_notify_reaches_the_other_alone() {
    let own = Own::start().await;
    for over in HttpVersion::ALL {
        let open = async || {
            let (switched, peer) = tokio::join!(tunnel::switch(&own.litequic, over, "/", "other", &[]), own.peer());
            let (stream, kept) = switched.tunnel();
            (stream, peer, kept)
        };
        let rest = async |stream: &mut (dyn tunnel::Duplex + '_)| {
            let mut rest = String::new();
            within("an end in order", stream.read_to_string(&mut rest)).await.unwrap();
            rest
        };
        // The client's first.
        let (mut stream, mut peer, _kept) = open().await;
        stream.write_all(b"last words").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(rest(&mut peer).await, "last words", "{over:?}");
        peer.write_all(b"an answer").await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(rest(&mut *stream).await, "an answer", "{over:?}");
        // The origin's first.
        let (mut stream, mut peer, _kept) = open().await;
        peer.write_all(b"last words").await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(rest(&mut *stream).await, "last words", "{over:?}");
        stream.write_all(b"an answer").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(rest(&mut peer).await, "an answer", "{over:?}");
    }
    own.stop().await;
}

#[tokio::test]
async fn clients_that_stop_in_a_body_hold_little_memory() {
    const CLIENTS: usize = 512;
    /// What one may hold in litequic's buffers beside what its client lets be sent: see docs/architecture.md.
    const EACH: u64 = 512 * 1024;
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let Some((nginx, port)) = nginx(&folder, &authority, "ssl_session_tickets off;") else { return };
    fs::write(nginx.file("/large"), vec![7; 20_000_000]).unwrap();
    let mut origin = https(port, ca);
    origin.max_connections = Some(600);
    let litequic = before(origin).await;
    let before = resident();
    let mut stopped = Vec::new();
    // What a client lets be sent is little: the rest waits in litequic, and in sockets.
    let stopping = || {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(65_536_u32.into());
        transport
    };
    for _ in 0..CLIENTS.div_ceil(64) {
        let client = Client::with_transport(&litequic, stopping()).await;
        let mut streams = Vec::new();
        for _ in 0..64 {
            let mut stream = client.begin_get("/large").await;
            assert_eq!(client::header(&mut stream).await.status(), 200);
            streams.push(stream);
        }
        stopped.push((client, streams));
    }
    let open = litequic.sum(|worker| worker.proxy.origin_connections_open.get());
    assert!(open >= CLIENTS as u64, "{open}");
    // Others are served meanwhile.
    let client = Client::to(&litequic).await;
    assert_eq!(client.fetch(client.request(Method::HEAD, "/large"), "").await.status, 200);
    let grown = resident().saturating_sub(before);
    assert!(grown < CLIENTS as u64 * EACH, "{grown} bytes");
    drop(stopped);
    litequic.stop().await;
}

/// Bytes of memory of this process.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
