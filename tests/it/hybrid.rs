//! The hybrid key exchange X25519MLKEM768, which browsers offer first: it is chosen, counted, and survives what may
//! happen to a ClientHello that fills two datagrams.

use crate::support::{
    client::{Client, Quic, tls_config},
    link::{Faults, Link, Way, Which},
    origin,
    proxy::Litequic,
    tls::{self, Tls},
};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, HandshakeKind, NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    crypto::{CryptoProvider, aws_lc_rs::kx_group},
    pki_types::ServerName,
};
use std::sync::Arc;

/// As browsers have it: the key share alone has 1,216 bytes, so that a ClientHello fills two Initials.
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
    quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
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
        let litequic = Litequic::start(origin::demo().await, |_| {}).await;
        let link = Link::between(litequic.address, faults);
        let connected = Quic::with_config(link.address, "localhost", quic(&litequic)).await;
        let client = Client::over(connected.unwrap_or_else(|error| panic!("{what}: {error}")), "localhost").await;
        assert_eq!(client.get("/status/204").await.status, 204, "{what}");
        assert_eq!(litequic.sum(|worker| worker.tls.groups_quic_x25519mlkem768.get()), 1, "{what}");
        assert_eq!(litequic.sum(|worker| worker.tls.groups_quic_x25519.get()), 0, "{what}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn each_group_is_counted_by_transport() {
    let litequic = Litequic::start(origin::demo().await, |_| {}).await;
    let classic = Client::to(&litequic).await;
    assert_eq!(classic.get("/status/204").await.status, 204);
    assert_eq!(litequic.sum(|worker| worker.tls.groups_quic_x25519.get()), 1);
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    let hybrid = with_hybrid(&config, &litequic.cert_pem, rustls::DEFAULT_VERSIONS);
    let tcp = Tls::connect(litequic.tcp[0], "localhost", hybrid).await.unwrap();
    let session = tcp.stream.get_ref().1;
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
    let counted = |worker: &litequic::app::WorkerMetrics| worker.tcp.groups_tcp_x25519mlkem768.get();
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
async fn a_client_that_lists_the_hybrid_first_and_sends_another_share_is_asked_once_for_it() {
    let litequic = Litequic::start(origin::demo().await, |_| {}).await;
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    let mut hybrid = with_hybrid(&config, &litequic.cert_pem, rustls::DEFAULT_VERSIONS);
    hybrid.resumption = rustls::client::Resumption::store(Arc::new(Hint));
    let tcp = Tls::connect(litequic.tcp[0], "localhost", hybrid).await.unwrap();
    let session = tcp.stream.get_ref().1;
    assert_eq!(session.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    litequic.stop().await;
}
