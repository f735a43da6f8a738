//! Certificates of clients: whom litequic believes, and what a handshake asks for.
//!
//! A verifier goes by what is in force when a certificate comes, so that a reload needs no new configuration of rustls.
//! Nothing is remembered from one handshake to the next (docs/adr/0010-client-certificates.md).

use super::{
    ALPN_H3, CertificateError, CertificateErrors, CertificateResolver, CertificateWarning, certificate::system_time,
    provider, server,
};
use crate::{config::ClientCertificates, exchange::CertificateRequest};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime, pem::PemObject},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use std::{fmt, fs, path::Path, sync::Arc, time::SystemTime};
use x509_parser::{prelude::FromDer, revocation_list::CertificateRevocationList};

/// Bytes of a client's certificate with those that come with it, DER. A chain of three with RSA-4096 keys has half of
/// it; rustls would take 64 KiB, and an origin gets a third more, as base64.
pub(super) const MAX_CHAIN_BYTES: usize = 16 * 1024;

/// Those who may have signed a client's certificate.
#[derive(Clone)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
    /// What it was made of.
    roots: Vec<CertificateDer<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Authorities {
    /// Reads and checks the PEM files; `None` if there is no `ca`. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`CertificateErrors`], which name the file at fault.
    pub fn load(files: &ClientCertificates) -> Result<Option<Self>, CertificateErrors> {
        let Some(ca) = &files.ca else { return Ok(None) };
        let unusable = |file: &Path, reason: String| CertificateError::Authority { file: file.into(), reason };
        let roots = read::<CertificateDer<'static>>(ca).and_then(|roots| {
            if roots.is_empty() {
                return Err(CertificateError::NoCertificate { file: ca.clone() });
            }
            let mut store = RootCertStore::empty();
            for root in &roots {
                store.add(root.clone()).map_err(|error| unusable(ca, error.to_string()))?;
            }
            Ok((roots, store))
        });
        let crls = match &files.crl {
            None => Ok(Vec::new()),
            Some(file) => match read::<CertificateRevocationListDer<'static>>(file) {
                Ok(crls) if crls.is_empty() => Err(CertificateError::NoCrl { file: file.clone() }),
                crls => crls,
            },
        };
        let ((roots, store), crls) = match (roots, crls) {
            (Ok(roots), Ok(crls)) => (roots, crls),
            (roots, crls) => return Err(CertificateErrors(roots.err().into_iter().chain(crls.err()).collect())),
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::new(provider()))
            .with_crls(crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| unusable(files.crl.as_ref().unwrap_or(ca), error.to_string()))?;
        Ok(Some(Self { verifier, roots, crls }))
    }

    /// Revocation lists past their next update at `now`: certificates of their authorities are refused.
    pub fn warnings(&self, now: SystemTime) -> impl Iterator<Item = CertificateWarning> {
        (1..).zip(&self.crls).filter_map(move |(place, crl)| {
            let (_, crl) = CertificateRevocationList::from_der(crl).ok()?;
            let next_update = system_time(crl.next_update()?);
            (next_update < now).then(|| CertificateWarning::crl_expired(place, next_update))
        })
    }

    /// Whether `other` believes the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.roots == other.roots && self.crls == other.crls
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.roots.len()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Every item of its kind in a PEM file.
fn read<T: PemObject>(file: &Path) -> Result<Vec<T>, CertificateError> {
    let pem = fs::read(file).map_err(|source| CertificateError::Read { file: file.into(), source })?;
    let items: Result<_, _> = T::pem_slice_iter(&pem).collect();
    items.map_err(|source| CertificateError::Pem { file: file.into(), source })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::self_signed;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn files(ca: &tempfile::NamedTempFile, crl: Option<&tempfile::NamedTempFile>) -> ClientCertificates {
        let crl = crl.map(|file| file.path().into());
        ClientCertificates { ca: Some(ca.path().into()), crl, ..ClientCertificates::default() }
    }

    #[test]
    fn a_fault_names_its_file() {
        let made = self_signed(["ca"]).unwrap();
        let (good, empty, key) = (file(&made.cert_pem), file(""), file(&made.key_pem));
        let not_x509 = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let not_crl = file("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        let table = [
            (files(&empty, None), &empty, "holds no certificate"),
            (files(&key, None), &key, "holds no certificate"),
            (files(&not_x509, None), &not_x509, "holds what cannot be used to verify clients: "),
            (files(&good, Some(&good)), &good, "holds no certificate revocation list"),
            (files(&good, Some(&not_crl)), &not_crl, "holds what cannot be used to verify clients: "),
        ];
        for (files, at_fault, expected) in table {
            let error = Authorities::load(&files).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} {expected}", at_fault.path().display())), "{error}");
        }
        let missing = ClientCertificates { ca: Some("/nonexistent/ca.crt".into()), ..ClientCertificates::default() };
        let error = Authorities::load(&missing).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/ca.crt: "), "{error}");
    }

    #[test]
    fn authorities_are_the_same_if_they_believe_the_same() {
        let (one, other) = (self_signed(["one"]).unwrap(), self_signed(["other"]).unwrap());
        let load = |pem: &str| Authorities::load(&files(&file(pem), None)).unwrap().unwrap();
        let both = load(&(one.cert_pem.clone() + &other.cert_pem));
        assert_eq!(both.count(), 2);
        assert!(load(&one.cert_pem).is_same(&load(&one.cert_pem)));
        assert!(!load(&one.cert_pem).is_same(&load(&other.cert_pem)));
        assert!(!load(&one.cert_pem).is_same(&both));
        assert!(Authorities::load(&ClientCertificates::default()).unwrap().is_none());
    }
}
