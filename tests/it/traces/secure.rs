//! A collector over TLS.

use super::{collectors::counted, fetch, traced};
use crate::{
    client_certificates::person::{Authority, Shown},
    secure_origins::server,
    support::{collector::Collector, prelude::*},
};
use std::sync::atomic::Ordering::Relaxed;
use tokio_rustls::TlsAcceptor;

/// TLS that shows `certificate`, and takes `protocol` alone.
fn acceptor(certificate: &Shown, protocol: &str) -> TlsAcceptor {
    let mut config = tls::server_config(certificate.chain.clone(), &certificate.key);
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// litequic whose traces go to `collector` over TLS, of which it trusts what `ca` has.
async fn traced_to(origin: &Always, collector: &Collector, ca: &Path) -> Litequic {
    Litequic::start(origin.address, |config| {
        traced(config, &collector.url().replace("://", "s://"));
        config.traces.ca = Some(ca.to_owned());
    })
    .await
}

#[tokio::test]
async fn spans_go_to_a_collector_over_tls_whose_authority_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, ca) = (Authority::new("root"), folder.path().join("ca.pem"));
    fs::write(&ca, authority.pem()).unwrap();
    for (is_grpc, protocol) in [(false, "http/1.1"), (true, "h2")] {
        let collector = Collector::secure(is_grpc, acceptor(&server(&authority, |_| {}), protocol)).await;
        let origin = Always::new(Always::EMPTY_200).await;
        let litequic = traced_to(&origin, &collector, &ca).await;
        for requests in 1..=2 {
            assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
            assert_eq!(collector.spans(2 * requests).await.len(), 2 * requests);
        }
        assert_eq!(collector.connections(), 1);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_collector_whose_authority_is_unknown_gets_no_span() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, ca) = (Authority::new("root"), folder.path().join("ca.pem"));
    fs::write(&ca, Authority::new("another").pem()).unwrap();
    for (is_grpc, protocol) in [(false, "http/1.1"), (true, "h2")] {
        let collector = Collector::secure(is_grpc, acceptor(&server(&authority, |_| {}), protocol)).await;
        let origin = Always::new(Always::EMPTY_200).await;
        let litequic = traced_to(&origin, &collector, &ca).await;
        assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
        counted(&litequic, "retried", |metrics| metrics.exports_retried.load(Relaxed), 1).await;
        assert!(collector.connections() >= 1);
        litequic.stop().await;
        assert_eq!(collector.requests(), 0);
    }
}
