//! The hybrid key exchange X25519MLKEM768, which browsers offer first: it is chosen, counted, and survives what may
//! happen to a ClientHello that fills two datagrams.

use crate::support::{chromium::Browser, client::tls_config, link::Which, prelude::*};
use futures_util::future::join_all;
use quinn::{
    crypto::rustls::QuicClientConfig,
    udp::{Transmit, UdpSockRef, UdpSocketState},
};
use rustls::{
    ClientConfig, HandshakeKind, NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    crypto::{CryptoProvider, aws_lc_rs::kx_group},
    pki_types::ServerName,
};
use serde_json::Value as Json;
use std::num::NonZeroU16;
use tokio::{net::UdpSocket, select, task::JoinHandle};

/// The order of rustls' feature `prefer-post-quantum`, and of browsers: the key share alone has 1,216 bytes, so that a
/// ClientHello fills two Initials.
fn hybrid_first() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1],
        ..rustls::crypto::aws_lc_rs::default_provider()
    }
}

/// `config` with that provider.
fn with_hybrid(
    config: &ClientConfig,
    cert_pem: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()).unwrap();
    let mut hybrid = ClientConfig::builder_with_provider(Arc::new(hybrid_first()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    hybrid.alpn_protocols.clone_from(&config.alpn_protocols);
    hybrid
}

fn quic(litequic: &Litequic) -> quinn::ClientConfig {
    let tls = with_hybrid(&tls_config(&litequic.cert_pem), &litequic.cert_pem, &[&rustls::version::TLS13]);
    over_quic(tls)
}

fn over_quic(tls: ClientConfig) -> quinn::ClientConfig {
    quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

fn hybrid_over_quic(worker: &WorkerMetrics) -> u64 {
    worker.tls.groups_quic_x25519mlkem768.get()
}

#[tokio::test]
async fn a_hello_in_two_initials_is_read_whatever_happens_to_either() {
    let up = |way: Way| Faults { up: way, ..Faults::default() };
    let table = [
        ("nothing", Faults::default()),
        ("the second is lost", up(Way { lose: Which::These(vec![1]), ..Way::default() })),
        ("the first is lost", up(Way { lose: Which::These(vec![0]), ..Way::default() })),
        ("both are repeated", up(Way { duplicate: Which::These(vec![0, 1]), ..Way::default() })),
        ("the second comes first", up(Way { hold: Which::These(vec![0]), hold_for: 1, ..Way::default() })),
    ];
    for (what, faults) in table {
        let litequic = Litequic::demo(|_| {}).await;
        let link = Link::between(litequic.address, faults);
        let connected = Quic::with_config(link.address, "localhost", quic(&litequic)).await;
        let client = Client::over(connected.unwrap_or_else(|error| panic!("{what}: {error}")), "localhost").await;
        assert_eq!(client.get("/status/204").await.status, 204, "{what}");
        assert_eq!(litequic.sum(hybrid_over_quic), 1, "{what}");
        assert_eq!(litequic.sum(|worker| worker.tls.groups_quic_x25519.get()), 0, "{what}");
        litequic.stop().await;
    }
}

/// Place in a long header of the byte whose lowest bit chooses one of two workers for a client's first packets: the last
/// of four bytes of the connection ID (crates/net/src/steering.rs), behind first byte, version, length and four bytes.
const CHOICE: usize = 1 + 4 + 1 + 7;

/// Relays a client's datagrams to `litequic`, which has two workers: the first two in `order`, and the one with the
/// number `astray` to the worker that does not have the other.
///
/// That happens to a client that uses one port for several connections: the kernel chooses a worker once for datagrams
/// that it has joined. Here one joins them before they are sent, behind one that no worker can decrypt.
async fn relay_astray(litequic: SocketAddr, order: [usize; 2], astray: usize) -> (SocketAddr, JoinHandle<()>) {
    let bind = async || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (front, back) = (bind().await, bind().await);
    let address = front.local_addr().unwrap();
    let relay = tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 2000], vec![0; 2000]);
        let mut first = Vec::new();
        let mut client = None;
        while first.len() < 2 {
            let (length, from) = front.recv_from(&mut up).await.unwrap();
            first.push(up[..length].to_vec());
            client = Some(from);
        }
        for number in order {
            let datagram = &first[number];
            if number != astray {
                back.send_to(datagram, litequic).await.unwrap();
                continue;
            }
            let mut other = datagram.clone();
            other[CHOICE] ^= 1;
            let contents = [&other[..], datagram].concat();
            let segment_size = Some(datagram.len());
            let transmit =
                Transmit { destination: litequic, ecn: None, contents: &contents, segment_size, src_ip: None };
            // Of another socket: of this one it would have the kernel join what is received.
            let state = UdpSocketState::new(UdpSockRef::from(&bind().await)).unwrap();
            assert!(state.max_gso_segments() > 1, "the kernel has no UDP_SEGMENT");
            back.writable().await.unwrap();
            state.send(UdpSockRef::from(&back), &transmit).unwrap();
        }
        loop {
            // Errors say that a peer is gone.
            select! {
                received = front.recv_from(&mut up) => if let Ok((length, _)) = received {
                    let _ = back.send_to(&up[..length], litequic).await;
                },
                received = back.recv_from(&mut down) => if let (Ok((length, _)), Some(client)) = (received, client) {
                    let _ = front.send_to(&down[..length], client).await;
                },
            }
        }
    });
    (address, relay)
}

#[tokio::test]
async fn a_hello_of_which_one_initial_reaches_another_worker_is_read() {
    let cases = [([0, 1], 0), ([0, 1], 1), ([1, 0], 0), ([1, 0], 1)];
    join_all(cases.map(async |(order, astray)| {
        let two = Some(NonZeroU16::new(2).unwrap());
        let litequic = Litequic::demo(|config| config.listen.workers = two).await;
        let (address, relay) = relay_astray(litequic.address, order, astray).await;
        let connected = Quic::with_config(address, "localhost", quic(&litequic)).await;
        let quic = connected.unwrap_or_else(|error| panic!("{order:?} {astray}: {error}"));
        let client = Client::over(quic, "localhost").await;
        assert_eq!(client.get("/status/204").await.status, 204);
        assert_eq!(litequic.sum(hybrid_over_quic), 1);
        // The other worker has got an Initial, and waits for the rest of the ClientHello.
        let open: Vec<_> =
            litequic.metrics.worker_metrics().iter().map(|worker| worker.quic.handshakes_open.get()).collect();
        assert_eq!(open.iter().sum::<u64>(), 1, "{order:?} {astray}: {open:?}");
        relay.abort();
        litequic.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn each_group_is_counted_by_transport() {
    let litequic = Litequic::demo(|_| {}).await;
    let classic = Client::to(&litequic).await;
    assert_eq!(classic.get("/status/204").await.status, 204);
    assert_eq!(litequic.sum(|worker| worker.tls.groups_quic_x25519.get()), 1);
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    let hybrid = with_hybrid(&config, &litequic.cert_pem, rustls::DEFAULT_VERSIONS);
    let tcp = Tls::connect(litequic.tcp[0], "localhost", hybrid).await.unwrap();
    let session = tcp.stream.get_ref().1;
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
    let counted = |worker: &WorkerMetrics| worker.tcp.groups_tcp_x25519mlkem768.get();
    litequic.wait_until("the hybrid group", counted, |count| count == 1).await;
    litequic.stop().await;
}

/// Remembers that the server took X25519, and nothing else: a client then sends a share of that group alone, though it
/// lists the hybrid first.
#[derive(Debug)]
struct Hint;

impl ClientSessionStore for Hint {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        Some(NamedGroup::X25519)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {}

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

#[tokio::test]
async fn a_hybrid_group_without_key_share_gets_one_hello_retry_request() {
    let litequic = Litequic::demo(|_| {}).await;
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    let mut hybrid = with_hybrid(&config, &litequic.cert_pem, rustls::DEFAULT_VERSIONS);
    hybrid.resumption = rustls::client::Resumption::store(Arc::new(Hint));
    let tcp = Tls::connect(litequic.tcp[0], "localhost", hybrid).await.unwrap();
    let session = tcp.stream.get_ref().1;
    assert_eq!(session.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    litequic.stop().await;
}

/// A second HelloRetryRequest would end the handshake (RFC 8446 §4.1.4).
#[tokio::test]
async fn over_quic_such_a_client_is_asked_for_the_hybrid_too() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut tls = with_hybrid(&tls_config(&litequic.cert_pem), &litequic.cert_pem, &[&rustls::version::TLS13]);
    tls.resumption = rustls::client::Resumption::store(Arc::new(Hint));
    let quic = Quic::with_config(litequic.address, "localhost", over_quic(tls)).await.unwrap();
    let client = Client::over(quic, "localhost").await;
    assert_eq!(client.get("/status/204").await.status, 204);
    assert_eq!(litequic.sum(hybrid_over_quic), 1);
    litequic.stop().await;
}

/// Loads the demo's page from `port`, over QUIC or over TCP. Returns the protocol of each response with the key exchange
/// group that the browser reports of it, and the NetLog.
fn loaded(port: u16, spki: &str, quic: bool) -> Option<(Vec<(String, String)>, String)> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("netlog.json");
    let logging = format!("--log-net-log={}", log.display());
    let mut browser = Browser::trusting(spki, quic.then_some(port), &[logging])?;
    browser.call("Network.enable", &serde_json::json!({}));
    browser.open(&format!("https://localhost:{port}/"));
    browser.wait_for("document.readyState === 'complete'");
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let security =
        |response: &Json| (text(&response["protocol"]), text(&response["securityDetails"]["keyExchangeGroup"]));
    let groups = browser.responses.iter().map(security).collect();
    browser.close();
    Some((groups, fs::read_to_string(log).unwrap()))
}

#[tokio::test]
async fn chromium_uses_the_hybrid_over_tcp_and_over_quic() {
    if needs::program("chromium").is_none() {
        return;
    }
    let made = [make_self_signed(["localhost"]).unwrap()];
    for protocol in ["h2", "h3"] {
        let litequic = Litequic::showing(&made, origin::demo().await, |_| {}).await;
        let (port, spki) = (litequic.address.port(), made[0].spki_sha256.clone());
        let loading = spawn_blocking(move || loaded(port, &spki, protocol == "h3"));
        let Some((groups, log)) = loading.await.unwrap() else { return };
        let all = groups.iter().all(|(by, group)| by == protocol && group == "X25519MLKEM768");
        assert!(!groups.is_empty() && all, "{protocol}: {groups:?}");
        let tcp = litequic.sum(|worker| worker.tcp.groups_tcp_x25519mlkem768.get());
        // 0x11ec (draft-ietf-tls-ecdhe-mlkem). Of QUIC the NetLog does not have the group.
        let logged = log.contains("\"key_exchange_group\":4588");
        let counted = (tcp > 0, litequic.sum(hybrid_over_quic) > 0, logged);
        assert_eq!(counted, (protocol == "h2", protocol == "h3", protocol == "h2"));
        let classical =
            |worker: &WorkerMetrics| worker.tcp.groups_tcp_x25519.get() + worker.tls.groups_quic_x25519.get();
        assert_eq!(litequic.sum(classical), 0);
        litequic.stop().await;
    }
}
