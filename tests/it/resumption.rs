//! Session tickets (RFC 8446 §4.6.1) and key updates (RFC 9001 §6) through the whole of litequic, with quinn as the
//! client.

use super::support::{
    DEADLINE,
    client::tls_config_with,
    origin,
    proxy::Litequic,
    tls::{self, Tls},
    within,
};
use crate::support::prelude::*;
use bytes::Buf;
use futures_util::future;
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use litequic_http3::client::{Http3Client, ResponsePiece};
use litequic_quic::{self as quic, Observer};
use litequic_tls::{ServerTrust, client_config};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::HandshakeKind;
use std::{
    num::NonZeroU16,
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::task::JoinHandle;

const MEGABYTE: usize = 1_000_000;

/// A browser, so to say: it keeps the tickets of all the connections that it had.
pub(super) struct Browser {
    config: quinn::ClientConfig,
    /// Full ones: a session that resumes has no certificate to verify.
    handshakes: Arc<AtomicUsize>,
}

impl Browser {
    pub(super) fn trusting(cert_pem: &str) -> Self {
        let handshakes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handshakes);
        let mut tls = tls_config_with(cert_pem, move || _ = count.fetch_add(1, Ordering::Relaxed));
        tls.enable_early_data = true; // it would if it could
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        Self { config, handshakes }
    }

    pub(super) fn full_handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// A connection from a port of its own, so that any worker may get it.
    async fn connect(&self, litequic: &Litequic) -> Connection {
        self.connect_to(litequic.address).await
    }

    pub(super) async fn connect_to(&self, server: SocketAddr) -> Connection {
        let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connecting = endpoint.connect_with(self.config.clone(), server, "localhost").unwrap();
        let quic = within("the handshake", connecting).await.unwrap();
        let connection = h3_quinn::Connection::new(quic.clone());
        let (mut driver, requests) = within("HTTP/3", h3::client::new(connection)).await.unwrap();
        let driver = tokio::spawn(async move { drop(future::poll_fn(|cx| driver.poll_close(cx)).await) });
        Connection { endpoint, quic, requests, driver }
    }
}

pub(super) struct Connection {
    endpoint: quinn::Endpoint,
    quic: quinn::Connection,
    requests: SendRequest<OpenStreams, Bytes>,
    driver: JoinHandle<()>,
}

impl Connection {
    /// The body of `/bytes/length`, with `between` done after each piece of it.
    pub(super) async fn download(&mut self, length: usize, mut between: impl FnMut(&quinn::Connection)) -> Vec<u8> {
        let uri = format!("https://localhost:{}/bytes/{length}", self.quic.remote_address().port());
        let request = Request::get(uri).body(()).unwrap();
        let work = async {
            let mut stream = self.requests.send_request(request).await.unwrap();
            stream.finish().await.unwrap();
            assert_eq!(stream.recv_response().await.unwrap().status(), 200);
            let mut body = Vec::new();
            while let Some(mut piece) = stream.recv_data().await.unwrap() {
                body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
                between(&self.quic);
            }
            body
        };
        within("the download", work).await
    }

    pub(super) async fn close(self) {
        let Self { endpoint, quic, requests, driver } = self;
        drop(requests);
        quic.close(0x100_u32.into(), b"");
        within("the connection's end", driver).await.unwrap();
        within("the endpoint's end", endpoint.wait_idle()).await;
    }
}

/// Bytes as the demo's origin makes them.
fn is_sound(body: &[u8]) -> bool {
    body.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251)
}

async fn start(made: &SelfSigned, workers: u16) -> Litequic {
    start_with(made, workers, |_| {}).await
}

async fn start_with(made: &SelfSigned, workers: u16, edit: impl FnOnce(&mut Config)) -> Litequic {
    Litequic::showing(std::slice::from_ref(made), origin::demo().await, |config| {
        config.listen.workers = Some(NonZeroU16::new(workers).unwrap());
        edit(config);
    })
    .await
}

fn made() -> SelfSigned {
    make_self_signed(["localhost"]).unwrap()
}

#[tokio::test]
async fn a_session_resumes_on_whatever_worker_gets_it() {
    let litequic = start(&made(), 4).await;
    let browser = Browser::trusting(&litequic.cert_pem);
    for turn in 0..24 {
        let mut connection = browser.connect(&litequic).await;
        assert_eq!(browser.full_handshakes(), 1, "connection {turn}");
        assert!(is_sound(&connection.download(1000, |_| {}).await));
        connection.close().await;
    }
    let hit: Vec<u64> = litequic.metrics.worker_metrics().iter().map(|worker| worker.http3.connections.get()).collect();
    assert_eq!(hit.iter().sum::<u64>(), 24);
    assert!(hit.iter().filter(|connections| **connections > 0).count() > 1, "several workers were hit: {hit:?}");
    litequic.stop().await;
}

#[tokio::test]
async fn connections_opened_at_once_resume_with_a_ticket_each() {
    let litequic = start(&made(), 4).await;
    let browser = Browser::trusting(&litequic.cert_pem);
    let mut first = browser.connect(&litequic).await;
    first.download(1000, |_| {}).await;
    let (mut one, mut other) = tokio::join!(browser.connect(&litequic), browser.connect(&litequic));
    assert_eq!(browser.full_handshakes(), 1);
    for connection in [&mut one, &mut other, &mut first] {
        assert!(is_sound(&connection.download(1000, |_| {}).await));
    }
    litequic.stop().await;
}

/// Early data can be replayed (RFC 9001 §9.2): a ticket allows none, and a client that would like to waits.
#[tokio::test]
async fn a_ticket_allows_no_early_data() {
    let litequic = start(&made(), 1).await;
    let browser = Browser::trusting(&litequic.cert_pem);
    let mut first = browser.connect(&litequic).await;
    first.download(1000, |_| {}).await;
    let connecting = first.endpoint.connect_with(browser.config.clone(), litequic.address, "localhost").unwrap();
    let connecting = connecting.into_0rtt().map(drop).expect_err("no early data");
    within("the handshake", connecting).await.unwrap();
    assert_eq!(browser.full_handshakes(), 1, "it resumed");
    litequic.stop().await;
}

#[tokio::test]
async fn a_resumed_connection_carries_a_megabyte_through_key_updates() {
    let litequic = start(&made(), 1).await;
    let browser = Browser::trusting(&litequic.cert_pem);
    let mut full = browser.connect(&litequic).await;
    full.download(1000, |_| {}).await;
    full.close().await;

    let mut resumed = browser.connect(&litequic).await;
    assert_eq!(browser.full_handshakes(), 1);
    let body = resumed.download(MEGABYTE, |_| {}).await;
    assert!(body.len() == MEGABYTE && is_sound(&body));

    let (mut pieces, mut updates) = (0, 0);
    let body = resumed
        .download(MEGABYTE, |connection| {
            pieces += 1;
            if pieces % 20 == 1 {
                connection.force_key_update();
                updates += 1;
            }
        })
        .await;
    assert!(body.len() == MEGABYTE && is_sound(&body));
    assert!(updates > 1, "{updates} updates");
    resumed.close().await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_ticket_of_another_process_leads_to_a_full_handshake() {
    let made = made();
    let browser = Browser::trusting(&made.cert_pem);
    for full_handshakes in [1, 2, 3] {
        let litequic = start(&made, 1).await;
        for _ in 0..2 {
            let mut connection = browser.connect(&litequic).await;
            assert_eq!(browser.full_handshakes(), full_handshakes);
            assert!(is_sound(&connection.download(1000, |_| {}).await));
            connection.close().await;
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_session_resumes_at_a_replica_that_has_the_secret() {
    let directory = tempfile::tempdir().unwrap();
    let secret = |name: &str, byte: u8| {
        let path = directory.path().join(name);
        fs::write(&path, [byte; 32]).unwrap();
        path
    };
    let made = made();
    let replica = async |name: &str, secret: &Path| {
        let (secret, name) = (secret.to_owned(), name.to_owned());
        start_with(&made, 2, |config| {
            config.listen.secret_file = Some(secret);
            config.listen.replica = Some(name);
        })
        .await
    };
    let (shared, other) = (secret("shared", 1), secret("other", 2));
    let replicas = [replica("a", &shared).await, replica("b", &shared).await, replica("c", &shared).await];
    let stranger = replica("d", &other).await;
    let browser = Browser::trusting(&made.cert_pem);
    for turn in 0..12 {
        let mut connection = browser.connect(&replicas[turn % 3]).await;
        assert_eq!(browser.full_handshakes(), 1, "connection {turn}");
        assert!(is_sound(&connection.download(1000, |_| {}).await));
        connection.close().await;
    }
    browser.connect(&stranger).await.close().await;
    assert_eq!(browser.full_handshakes(), 2);
    // Over TCP, whose tickets are others.
    for protocol in ["http/1.1", "h2"] {
        let client = tls::config(&made.cert_pem, &[protocol]);
        for (replica, kind) in [
            (&replicas[0], HandshakeKind::Full),
            (&replicas[1], HandshakeKind::Resumed),
            (&replicas[2], HandshakeKind::Resumed),
            (&stranger, HandshakeKind::Full),
        ] {
            assert_eq!(tcp_handshake(replica.tcp[0], &client, protocol).await, kind, "{protocol}");
        }
    }
    for litequic in replicas.into_iter().chain([stranger]) {
        litequic.stop().await;
    }
}

/// The kind of a handshake over TCP, after a request with an answer, by which the tickets have come.
pub(super) async fn tcp_handshake(server: SocketAddr, config: &rustls::ClientConfig, protocol: &str) -> HandshakeKind {
    let tls = Tls::connect(server, "localhost", config.clone()).await.unwrap();
    let kind = tls.stream.get_ref().1.handshake_kind().unwrap();
    let request = Request::get("https://localhost/bytes/10").body(Empty::<Bytes>::new()).unwrap();
    let status = if protocol == "h2" {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls.stream));
        let (mut requests, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        within("an answer", requests.send_request(request)).await.unwrap().status()
    } else {
        let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls.stream)).await.unwrap();
        tokio::spawn(connection);
        within("an answer", requests.send_request(request)).await.unwrap().status()
    };
    assert!(status == 200 || status == 400, "{status}");
    kind
}

#[tokio::test]
async fn s2n_quics_client_that_keeps_no_tickets_is_served_as_well() {
    let litequic = start(&made(), 1).await;
    let tls = client_config(&ServerTrust::Insecure).unwrap();
    let connection =
        quic::connect_client(litequic.address, "localhost", tls, DEADLINE, &Observer::default()).await.unwrap();
    let client = Http3Client::from_connection(connection).await.unwrap();
    let uri = format!("https://localhost:{}/bytes/{MEGABYTE}", litequic.address.port());
    let (sent, mut response) = client.send_request(&Request::get(uri).body(()).unwrap()).await.unwrap();
    sent.finish_request();
    assert_eq!(within("the response", response.next_head()).await.unwrap().status(), 200);
    let mut body = Vec::new();
    while let Some(ResponsePiece::Data(data)) = within("the body", response.next_body_piece()).await.unwrap() {
        body.extend_from_slice(&data);
    }
    assert!(body.len() == MEGABYTE && is_sound(&body));
    client.close_connection();
    litequic.stop().await;
}
