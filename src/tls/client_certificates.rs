//! Certificates of clients: what a handshake asks for, and how what comes is verified.
//!
//! A verifier goes by what is in force when a certificate comes, so that a reload needs no new configuration of rustls.
//! Nothing is remembered from one handshake to the next (docs/adr/0010-client-certificates.md).

use super::{ALPN_H3, CertificateResolver, provider, server};
use crate::exchange::CertificateRequest;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::{fmt, sync::Arc};

/// Bytes of a client's certificate with those that come with it, DER. A chain of three with RSA-4096 keys has half of
/// it; rustls would take 64 KiB, and an origin gets a third more, as base64.
pub(super) const MAX_CHAIN_BYTES: usize = 16 * 1024;

/// What a handshake asks for, by the name that its client asks for (SNI).
pub type Policy = dyn Fn(Option<&str>) -> CertificateRequest + Send + Sync;

/// The handshakes that ask for a certificate. All workers share it.
pub struct Asking {
    policy: Box<Policy>,
    resolver: Arc<CertificateResolver>,
    optional: Arc<ServerConfig>,
    required: Arc<ServerConfig>,
}

impl Asking {
    /// Asks by `policy`, and believes whom the store of `resolver` says.
    ///
    /// # Errors
    ///
    /// Those of [`server_config`](super::server_config).
    pub fn new(
        resolver: Arc<CertificateResolver>,
        key_log: bool,
        policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Self::over(&[ALPN_H3], resolver, key_log, policy)
    }

    /// The same for handshakes that agree on one of `protocols`.
    pub(super) fn over(
        protocols: &[&[u8]],
        resolver: Arc<CertificateResolver>,
        key_log: bool,
        policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let config = |mandatory| {
            let algorithms = provider().signature_verification_algorithms;
            let verifier = Verifier { resolver: Arc::clone(&resolver), mandatory, algorithms };
            server::asking_config(Arc::clone(&resolver), Arc::new(verifier), key_log, protocols)
        };
        Ok(Self { optional: config(false)?, required: config(true)?, policy: Box::new(policy), resolver })
    }

    /// Whether any client is to be asked, or a ClientHello need not be looked at beforehand.
    pub(super) fn is_on(&self) -> bool {
        self.resolver.store().authorities().is_some()
    }

    /// What to ask a client that asks for `server_name`.
    pub(super) fn request(&self, server_name: Option<&str>) -> CertificateRequest {
        (self.policy)(server_name)
    }

    /// The configuration that asks so; `None` for one that does not ask.
    pub(super) fn config(&self, request: CertificateRequest) -> Option<&Arc<ServerConfig>> {
        match request {
            CertificateRequest::None => None,
            CertificateRequest::Optional => Some(&self.optional),
            CertificateRequest::Required => Some(&self.required),
        }
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asking")
    }
}

/// Verifies by the authorities that are in force.
#[derive(Debug)]
struct Verifier {
    resolver: Arc<CertificateResolver>,
    mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// None: a hint would tell strangers whom litequic believes, and rustls wants it from a place that no reload changes.
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
        match self.resolver.store().authorities() {
            Some(authorities) => authorities.verifier.verify_client_cert(end_entity, intermediates, now),
            // A reload took them away meanwhile.
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
