//! Configures the client's side of TLS for `litequic get`.

use super::authorities::read_roots;
use super::certificate::LoadedCertificate;
use super::certificate_error::CertificateErrors;
use super::presented_certificate::PresentedCertificate;
use super::suites::{ALPN_H3, client_provider, tls13_provider};
use litequic_config::CertificateFiles;
use rustls::{
    ClientConfig, RootCertStore,
    client::{VerifierBuilderError, WebPkiServerVerifier},
    crypto::CryptoProvider,
    sign::SingleCertAndKey,
    version::TLS13,
};
use std::{path::PathBuf, sync::Arc};

/// Certificates that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerTrust {
    /// The system's trusted roots.
    System,
    /// Only the PEM certificates in this file, and those that they have signed.
    File(PathBuf),
    /// Any certificate: the connection is encrypted, but the server is not authenticated.
    Insecure,
}

/// Reason why trusted certificates, or the client's own certificate, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The system has no trusted roots, for example an image without ca-certificates.
    #[error("this system has no trusted certificates{reason}")]
    NoSystemRoots {
        /// Error of the last attempt, if there was one.
        reason: String,
    },
    /// The trusted certificates of a file, or the client's own certificate, cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateErrors),
    /// rustls rejects the cipher suites, which no input causes.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// rustls rejects the roots.
    #[error("the trusted certificates cannot be used: {0}")]
    Roots(#[from] VerifierBuilderError),
}

/// Creates TLS 1.3 for an HTTP/3 client without a certificate. Reads files.
///
/// # Errors
///
/// [`TrustError`].
pub fn client_config(trust: &ServerTrust) -> Result<ClientConfig, TrustError> {
    build_client_config(tls13_provider(), None, trust, &PresentedCertificate::default())
}

/// Creates TLS for a client that presents the certificate in `files`, if any, and records the server's in `presented`.
/// The hybrid key exchange is offered first.
///
/// # Errors
///
/// [`TrustError`].
pub fn client_config_recording(
    files: Option<&CertificateFiles>,
    trust: &ServerTrust,
    presented: &PresentedCertificate,
) -> Result<ClientConfig, TrustError> {
    build_client_config(client_provider(), files, trust, presented)
}

fn build_client_config(
    provider: CryptoProvider,
    files: Option<&CertificateFiles>,
    trust: &ServerTrust,
    presented: &PresentedCertificate,
) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
    let by = |roots: RootCertStore| {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()
    };
    let mut listed = Vec::new();
    let verifier = match trust {
        ServerTrust::System => Some(by(load_system_roots()?)?),
        ServerTrust::File(file) => {
            let (roots, certificates) = read_roots(file).map_err(CertificateErrors::from)?;
            listed = certificates;
            Some(by(roots)?)
        }
        ServerTrust::Insecure => None,
    };
    let verifier = presented.recording_verifier(verifier, provider.signature_verification_algorithms, listed);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match files {
        Some(files) => {
            let certificate = SingleCertAndKey::from(Arc::clone(&LoadedCertificate::load_certificate(files)?.key));
            builder.with_client_cert_resolver(Arc::new(certificate))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN_H3.to_vec()];
    Ok(config)
}

/// Loads the system's trusted roots.
pub(super) fn load_system_roots() -> Result<RootCertStore, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // The system's list may contain a few roots that rustls cannot use.
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let reason = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    Err(TrustError::NoSystemRoots { reason })
}
