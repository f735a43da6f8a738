//! Requests and verifies clients' certificates.
//!
//! The verifier uses the authorities in force at each handshake, so that a reload needs no new configuration of rustls.
//! No state is retained between handshakes (docs/adr/0010-client-certificates.md).

use super::resolver::CertificateResolver;
use super::server;
use super::suites::{ALPN_H3, tls13_provider};
use litequic_config::TlsVersion;
use litequic_exchange::CertificateRequest;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::sync::Arc;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// Bytes of a client's certificate with its chain, in DER. A chain of three with RSA-4096 keys has half as many; rustls
/// would accept 64 KiB. An origin receives a third more, in base64.
pub(super) const MAX_CHAIN_BYTES: usize = 16 * 1024;

/// Decides the certificate request of a handshake by the client's server name (SNI).
pub type CertificatePolicy = dyn Fn(Option<&str>) -> CertificateRequest + Send + Sync;

/// Configurations of handshakes that request a client's certificate. All workers share one value.
pub struct CertificateRequester {
    policy: Box<CertificatePolicy>,
    /// Certificates of the server, and authorities of clients.
    pub(super) resolver: Arc<CertificateResolver>,
    optional: Arc<ServerConfig>,
    required: Arc<ServerConfig>,
}

impl CertificateRequester {
    /// Creates configurations for HTTP/3 that request certificates by `policy` and trust the authorities in the store
    /// of `resolver`.
    ///
    /// # Errors
    ///
    /// The errors of [`server_config`](super::server_config).
    pub fn new(
        resolver: Arc<CertificateResolver>,
        key_log: bool,
        policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Self::for_protocols(&[ALPN_H3], resolver, key_log, policy)
    }

    /// Creates configurations for handshakes that agree on one of `protocols`. They have no tickets: rustls would store
    /// the client's chain in a ticket, and accept it later without verification, even if expired or revoked. Tickets
    /// from sessions without a certificate request are rejected.
    pub(super) fn for_protocols(
        protocols: &[&[u8]],
        resolver: Arc<CertificateResolver>,
        key_log: bool,
        policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let config = |mandatory| {
            let algorithms = tls13_provider().signature_verification_algorithms;
            let verifier = ClientVerifier { resolver: Arc::clone(&resolver), mandatory, algorithms };
            let resolver = Arc::clone(&resolver);
            server::build_server_config(TlsVersion::Tls13, resolver, Arc::new(verifier), key_log, protocols)
                .map(Arc::new)
        };
        Ok(Self { optional: config(false)?, required: config(true)?, policy: Box::new(policy), resolver })
    }

    /// Whether there are authorities, so that the ClientHello has to be read before the handshake.
    pub(super) fn has_authorities(&self) -> bool {
        self.resolver.current_store().authorities.is_some()
    }

    /// Returns the certificate request for a client with `server_name`.
    pub(super) fn request_for_name(&self, server_name: Option<&str>) -> CertificateRequest {
        (self.policy)(server_name)
    }

    /// Returns the configuration with this certificate request; `None` for no request.
    pub(super) fn config_with_request(&self, request: CertificateRequest) -> Option<&Arc<ServerConfig>> {
        match request {
            CertificateRequest::None => None,
            CertificateRequest::Optional => Some(&self.optional),
            CertificateRequest::Required => Some(&self.required),
        }
    }
}

litequic_base::partial_debug!(CertificateRequester);

/// Verifies clients' certificates by the authorities in force.
#[derive(Debug)]
struct ClientVerifier {
    resolver: Arc<CertificateResolver>,
    mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// Empty: a hint would reveal the trusted authorities, and rustls stores it where no reload changes it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = end_entity.len() + intermediates.iter().map(|issuer| issuer.len()).sum::<usize>();
        if bytes > MAX_CHAIN_BYTES {
            return Err(rustls::CertificateError::BadEncoding.into());
        }
        match &self.resolver.current_store().authorities {
            Some(authorities) => authorities.verifier.verify_client_cert(end_entity, intermediates, now),
            // A reload removed the authorities during the handshake.
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Formats the subject of a certificate (DER) nearly as RFC 4514 does; `None` if it cannot be parsed.
pub fn parse_subject(certificate: &[u8]) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.subject().to_string())
}
