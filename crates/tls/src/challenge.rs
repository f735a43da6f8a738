//! Serves handshakes of TLS-ALPN-01 (RFC 8737), which show a CA the certificate of its challenge.

use super::suites::tls13_provider;
use rustls::{
    Error, ServerConfig,
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::TLS13,
};
use std::sync::Arc;

/// ALPN name of the handshake (RFC 8737 §3).
const ACME_ALPN: &[u8] = b"acme-tls/1";

/// Resolves every ClientHello to the certificate of one challenge.
#[derive(Debug)]
struct ChallengeResolver(Arc<CertifiedKey>);

impl ResolvesServerCert for ChallengeResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Returns a configuration that serves `certificate`. The key is not compared with the certificate, because rustls'
/// check rejects the critical extension of challenge certificates; both were made together.
///
/// # Errors
///
/// The key is invalid, or rustls rejects the cipher suites, which no input causes.
pub fn challenge_config(
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, Error> {
    let key = CertifiedKey::new(vec![certificate.clone()], any_supported_type(key)?);
    let mut config = ServerConfig::builder_with_provider(Arc::new(tls13_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ChallengeResolver(Arc::new(key))));
    config.alpn_protocols = vec![ACME_ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
