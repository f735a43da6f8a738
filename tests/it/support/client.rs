//! An HTTP/3 client that shares no code with litequic: h3 on quinn.

use super::{cable::Cable, prelude::*};
use bytes::Buf;
use futures_util::future;
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request, Response, StatusCode};
use quinn::{
    AsyncUdpSocket, Runtime, TokioRuntime,
    crypto::rustls::QuicClientConfig,
    rustls::{
        self, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    },
};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::task::JoinHandle;

/// A request in flight: `send_data`, `finish`, `recv_response`, `recv_data`, `split` and so on.
pub(crate) type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A QUIC connection without HTTP/3 on it.
pub(crate) struct Quic {
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) connection: quinn::Connection,
    mute: Arc<AtomicBool>,
}

/// The transport of a client that will change its port: it sends something now and then. One that only receives is
/// not reached again before it has something to send, because a NAT has dropped its old port.
pub(crate) fn transport_of_a_client_that_moves() -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(100)));
    transport
}

impl Quic {
    /// Connects to `litequic` as `localhost`.
    pub(crate) async fn to(litequic: &Litequic) -> Self {
        Self::connect(litequic.address, "localhost", &litequic.cert_pem, quinn::TransportConfig::default()).await
    }

    /// Connects to `address`, with `name` as SNI, and trusts `cert_pem` alone.
    pub(crate) async fn connect(
        address: SocketAddr,
        name: &str,
        cert_pem: &str,
        transport: quinn::TransportConfig,
    ) -> Self {
        Self::try_connect(address, name, cert_pem, transport).await.unwrap()
    }

    /// The same, for a connection that may fail.
    pub(crate) async fn try_connect(
        address: SocketAddr,
        name: &str,
        cert_pem: &str,
        transport: quinn::TransportConfig,
    ) -> Result<Self, quinn::ConnectionError> {
        Self::with_config(address, name, config(cert_pem, transport)).await
    }

    /// The same, with everything that quinn lets one say.
    pub(crate) async fn with_config(
        address: SocketAddr,
        name: &str,
        config: quinn::ClientConfig,
    ) -> Result<Self, quinn::ConnectionError> {
        let local = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Self::between(local, address, name, config).await
    }

    /// Connects to `litequic` from the address `local`.
    pub(crate) async fn at(local: Ipv4Addr, litequic: &Litequic) -> Result<Self, quinn::ConnectionError> {
        Self::from(local, litequic.address, &litequic.cert_pem).await
    }

    /// Connects to `address` from the address `local`, and trusts `cert_pem` alone.
    pub(crate) async fn from(
        local: impl Into<IpAddr>,
        address: SocketAddr,
        cert_pem: &str,
    ) -> Result<Self, quinn::ConnectionError> {
        let config = config(cert_pem, quinn::TransportConfig::default());
        Self::between(local.into(), address, "localhost", config).await
    }

    /// Connects to `litequic` from the address `local`.
    pub(crate) async fn with_transport(
        local: Ipv4Addr,
        litequic: &Litequic,
        transport: quinn::TransportConfig,
    ) -> Result<Self, quinn::ConnectionError> {
        let config = config(&litequic.cert_pem, transport);
        Self::between(local.into(), litequic.address, "localhost", config).await
    }

    /// Connects to `litequic`, whose handshake is incomplete yet: the handshake's last flight is kept until
    /// [`Quic::reappear`].
    pub(crate) async fn with_late_last_flight(litequic: &Litequic) -> Self {
        let config = config(&litequic.cert_pem, quinn::TransportConfig::default());
        Self::over(Ipv4Addr::LOCALHOST.into(), litequic.address, "localhost", config, true).await.unwrap()
    }

    async fn between(
        local: IpAddr,
        address: SocketAddr,
        name: &str,
        config: quinn::ClientConfig,
    ) -> Result<Self, quinn::ConnectionError> {
        Self::over(local, address, name, config, false).await
    }

    async fn over(
        local: IpAddr,
        address: SocketAddr,
        name: &str,
        config: quinn::ClientConfig,
        has_late_last_flight: bool,
    ) -> Result<Self, quinn::ConnectionError> {
        let mute = Arc::new(AtomicBool::new(false));
        let local = SocketAddr::new(local, 0);
        let inner = TokioRuntime.wrap_udp_socket(UdpSocket::bind(local).unwrap()).unwrap();
        let socket = Arc::new(Cable::new(inner, Arc::clone(&mute), has_late_last_flight));
        let (endpoint, connection) = connect_through(socket, address, name, config).await?;
        Ok(Self { endpoint, connection, mute })
    }

    /// Connects to `litequic` through a socket of the test's own.
    pub(crate) async fn through(socket: Arc<dyn AsyncUdpSocket>, litequic: &Litequic) -> Self {
        let config = config(&litequic.cert_pem, quinn::TransportConfig::default());
        let connected = connect_through(socket, litequic.address, "localhost", config).await;
        let (endpoint, connection) = connected.unwrap();
        Self { endpoint, connection, mute: Arc::default() }
    }

    /// Goes on from another port of this machine, as behind a NAT that forgot the old one.
    pub(crate) fn change_port(&self) {
        let address = SocketAddr::new(self.endpoint.local_addr().unwrap().ip(), 0);
        self.endpoint.rebind(UdpSocket::bind(address).unwrap()).unwrap();
    }

    /// From now on nothing goes out any more, as if the cable were cut: no close, no acknowledgement.
    pub(crate) fn vanish(&self) {
        self.mute.store(true, Ordering::Relaxed);
    }

    /// What goes out from now on arrives again.
    pub(crate) fn reappear(&self) {
        self.mute.store(false, Ordering::Relaxed);
    }

    /// The application's code with which litequic closes the connection.
    pub(crate) async fn closed(&self) -> u64 {
        match within("the connection's close", self.connection.closed()).await {
            quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("closed otherwise: {other}"),
        }
    }
}

async fn connect_through(
    socket: Arc<dyn AsyncUdpSocket>,
    address: SocketAddr,
    name: &str,
    config: quinn::ClientConfig,
) -> Result<(quinn::Endpoint, quinn::Connection), quinn::ConnectionError> {
    let runtime = Arc::new(TokioRuntime);
    let endpoint = quinn::Endpoint::new_with_abstract_socket(Default::default(), None, socket, runtime).unwrap();
    let connection = within("the handshake", endpoint.connect_with(config, address, name).unwrap()).await?;
    Ok((endpoint, connection))
}

fn config(cert_pem: &str, transport: quinn::TransportConfig) -> quinn::ClientConfig {
    let tls = QuicClientConfig::try_from(tls_config(cert_pem)).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    config
}

/// TLS of a client that trusts `cert_pem` alone.
pub(crate) fn tls_config(cert_pem: &str) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots(cert_pem))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config
}

/// The store of a client that trusts `cert_pem` alone.
pub(crate) fn roots(cert_pem: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

/// TLS of a client that trusts `cert_pem` alone, and does `first` whenever it is about to verify the server's
/// certificate: in the middle of a full handshake, and in no other.
pub(crate) fn tls_config_with(cert_pem: &str, first: impl Fn() + Send + Sync + 'static) -> rustls::ClientConfig {
    let mut config = tls_config(cert_pem);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(cert_pem), Arc::clone(config.crypto_provider()));
    let verifier = Watched { verifier: verifier.build().unwrap(), first: Box::new(first) };
    config.dangerous().set_certificate_verifier(Arc::new(verifier));
    config
}

struct Watched {
    verifier: Arc<WebPkiServerVerifier>,
    first: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl ServerCertVerifier for Watched {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.first)();
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A connection with HTTP/3 on it.
pub(crate) struct Client {
    pub(crate) quic: Quic,
    requests: SendRequest<OpenStreams, Bytes>,
    /// `https://localhost:PORT`
    base: String,
    /// How h3 sees the connection end: a GOAWAY whose requests are done, a close.
    driver: JoinHandle<h3::error::ConnectionError>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The one value of `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.get_all(name).iter();
        let first = all.next().map(|value| value.to_str().unwrap());
        assert!(all.next().is_none(), "{name} stands several times");
        first
    }
}

impl Client {
    /// Connects to `litequic` as `localhost`.
    pub(crate) async fn to(litequic: &Litequic) -> Self {
        Self::over(Quic::to(litequic).await, "localhost").await
    }

    /// Connects to `address` as `localhost`, and trusts `cert_pem` alone.
    pub(crate) async fn connect(address: SocketAddr, cert_pem: &str, transport: quinn::TransportConfig) -> Self {
        Self::over(Quic::connect(address, "localhost", cert_pem, transport).await, "localhost").await
    }

    /// Connects to `litequic` with QUIC's settings.
    pub(crate) async fn with_transport(litequic: &Litequic, transport: quinn::TransportConfig) -> Self {
        Self::connect(litequic.address, &litequic.cert_pem, transport).await
    }

    /// Speaks HTTP/3 over `quic`, to which requests name `host`.
    pub(crate) async fn over(quic: Quic, host: &str) -> Self {
        let base = format!("https://{host}:{}", quic.connection.remote_address().port());
        let connection = h3_quinn::Connection::new(quic.connection.clone());
        let (mut driver, requests) = within("HTTP/3", h3::client::new(connection)).await.unwrap();
        let driver = tokio::spawn(async move { future::poll_fn(|cx| driver.poll_close(cx)).await });
        Self { quic, requests, base, driver }
    }

    /// A request for `path`.
    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}{path}", self.base))
    }

    /// Sends a request's header and leaves its stream open.
    pub(crate) async fn open(&self, request: http::request::Builder) -> Stream {
        within("a stream", self.requests.clone().send_request(request.body(()).unwrap())).await.unwrap()
    }

    /// Sends a GET, whose response is to be read.
    pub(crate) async fn begin_get(&self, path: &str) -> Stream {
        let mut stream = self.open(self.request(Method::GET, path)).await;
        stream.finish().await.unwrap();
        stream
    }

    /// Sends a whole request and returns the whole response.
    pub(crate) async fn fetch(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Answer {
        let mut stream = self.open(request).await;
        let body = body.into();
        if !body.is_empty() {
            within("the upload", stream.send_data(body)).await.unwrap();
        }
        within("the upload's end", stream.finish()).await.unwrap();
        answer(&mut stream).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.fetch(self.request(Method::GET, path), Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.fetch(self.request(Method::POST, path), body).await
    }

    /// Waits for the connection's end as HTTP/3 sees it: after GOAWAY, or a close.
    pub(crate) async fn ended(self) -> h3::error::ConnectionError {
        drop(self.requests);
        within("the connection's end", self.driver).await.unwrap()
    }
}

/// The whole response on `stream`.
pub(crate) async fn answer(stream: &mut Stream) -> Answer {
    let (parts, ()) = header(stream).await.into_parts();
    let body = body(stream).await;
    let trailers = within("trailers", stream.recv_trailers()).await.unwrap();
    Answer { status: parts.status, fields: parts.headers, body, trailers }
}

/// The header of the response on `stream`.
pub(crate) async fn header(stream: &mut Stream) -> Response<()> {
    within("the response's header", stream.recv_response()).await.unwrap()
}

/// The rest of the body on `stream`.
pub(crate) async fn body(stream: &mut Stream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(mut chunk) = within("the response's body", stream.recv_data()).await.unwrap() {
        body.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
    }
    body
}
