//! Configures TLS to origins, with litequic as their client. A server's certificate is always verified.
//!
//! A handshake that resumes a session verifies no certificate (RFC 8446 §2.2), so sessions must not outlive the files
//! by which they were verified: the caller makes a new configuration when [`OriginTlsFiles::config_digest`] changes.

use super::authorities::read_roots;
use super::certificate::LoadedCertificate;
use super::certificate_error::{CertificateError, CertificateErrors};
use super::client::load_system_roots;
use super::presented_certificate::{CertificateRejection, RecordingVerifier, ServerCertificate};
use super::revocation;
use super::suites::{client_provider, tls12_suites};
use aws_lc_rs::digest::{Context, SHA256};
use litequic_config::{self as config, CertificateFiles, TlsVersion};
use rustls::{
    ClientConfig, Error, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, CertificateRevocationListDer},
    sign::SingleCertAndKey,
    version::{TLS12, TLS13},
};
use std::{
    cell::{OnceCell, RefCell},
    fmt,
    path::Path,
    sync::Arc,
    time::SystemTime,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// The offered protocol (RFC 7301 §6).
const ORIGIN_ALPN: &[u8] = b"http/1.1";

/// TLS to the servers of one origin, loaded from the configured files.
#[derive(Clone)]
pub struct OriginTlsFiles {
    /// Configuration without session storage: each handshake verifies the certificate.
    pub config: Arc<ClientConfig>,
    /// Digest of everything that determines the configuration.
    pub digest: [u8; 32],
    certificate: Option<LoadedCertificate>,
    /// Authorities in `ca` without a list in `crl`.
    without_list: Vec<String>,
}

/// Reason why TLS to an origin cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginTlsFault {
    /// Key of `[origin.tls]` with the fault; `None` for the system's roots.
    pub key: Option<&'static str>,
    problem: String,
}

impl fmt::Display for OriginTlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

/// The system's trusted roots, loaded once for all origins.
#[derive(Default)]
pub struct SystemRoots(OnceCell<Result<Arc<RootCertStore>, String>>);

impl SystemRoots {
    fn load_once(&self) -> Result<Arc<RootCertStore>, String> {
        self.0.get_or_init(|| load_system_roots().map(Arc::new).map_err(|error| error.to_string())).clone()
    }
}

/// Authorities, and certificates that need no issuer.
struct TrustedCertificates {
    roots: Arc<RootCertStore>,
    listed: Vec<CertificateDer<'static>>,
}

impl OriginTlsFiles {
    /// Loads and checks the files of `table`. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// Every fault.
    pub fn load_tls_files(table: &config::OriginTls, system: &SystemRoots) -> Result<Self, Vec<OriginTlsFault>> {
        let fault = |key| move |problem: String| vec![OriginTlsFault { key, problem }];
        let trusted = read_trusted(table, system);
        let crls = match &table.crl {
            None => Ok(Vec::new()),
            Some(file) => usable_revocation_lists(file).map_err(fault(Some("crl"))),
        };
        let certificate = match (&table.cert, &table.key) {
            (Some(cert), Some(key)) => load_own_certificate(cert, key).map(Some),
            _ => Ok(None),
        };
        let (trusted, crls, certificate) = match (trusted, crls, certificate) {
            (Ok(trusted), Ok(crls), Ok(certificate)) => (trusted, crls, certificate),
            (trusted, crls, certificate) => {
                let faults = [trusted.err(), crls.err(), certificate.err()];
                return Err(faults.into_iter().flatten().flatten().collect());
            }
        };
        let digest = compute_config_digest(table, &trusted, &crls, certificate.as_ref());
        let without_list = revocation::authorities_without_list(&trusted.listed, &crls);
        let at = if crls.is_empty() { table.ca.as_ref().map(|_| "ca") } else { Some("crl") };
        let config = origin_client_config(table.min, trusted, crls, certificate.as_ref()).map_err(fault(at))?;
        Ok(Self { config: Arc::new(config), digest, certificate, without_list })
    }

    /// Returns the reasons why handshakes will fail at `now`, with their keys: servers reject litequic's certificate,
    /// or litequic rejects the certificates of an authority.
    pub fn origin_tls_warnings(&self, now: SystemTime) -> Vec<(&'static str, String)> {
        let own = self.own_certificate_warnings(now).into_iter().map(|warning| ("cert", warning));
        own.chain(self.without_list.iter().map(|authority| ("crl", revocation::missing_list_warning(authority))))
            .collect()
    }

    fn own_certificate_warnings(&self, now: SystemTime) -> Vec<String> {
        let Some(certificate) = &self.certificate else { return Vec::new() };
        let mut warnings = Vec::new();
        if certificate.not_after() < now {
            let end = httpdate::fmt_http_date(certificate.not_after());
            warnings.push(format!("the certificate expired on {end}: servers reject it"));
        }
        let leaf = certificate.key.cert.first();
        let parsed = leaf.and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let usage = parsed.as_ref().and_then(|(_, leaf)| leaf.extended_key_usage().ok().flatten());
        if usage.is_some_and(|usage| !usage.value.any && !usage.value.client_auth) {
            warnings.push("the certificate is for servers alone (no clientAuth): many servers reject it".into());
        }
        warnings
    }
}

litequic_base::partial_debug!(OriginTlsFiles);

fn read_trusted(table: &config::OriginTls, system: &SystemRoots) -> Result<TrustedCertificates, Vec<OriginTlsFault>> {
    let Some(file) = &table.ca else {
        let problem = |problem| vec![OriginTlsFault { key: None, problem }];
        return Ok(TrustedCertificates { roots: system.load_once().map_err(problem)?, listed: Vec::new() });
    };
    let fault = |error: CertificateError| vec![OriginTlsFault { key: Some("ca"), problem: error.to_string() }];
    let (roots, listed) = read_roots(file).map_err(fault)?;
    Ok(TrustedCertificates { roots: Arc::new(roots), listed })
}

fn usable_revocation_lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let lists = revocation::read_revocation_lists(file).map_err(|error| error.to_string())?;
    match revocation::unusable_list_reason(&lists) {
        Some(reason) => Err(format!("{} cannot be used to verify servers: {reason}", file.display())),
        None => Ok(lists),
    }
}

fn load_own_certificate(cert: &Path, key: &Path) -> Result<LoadedCertificate, Vec<OriginTlsFault>> {
    let files = CertificateFiles { cert: cert.into(), key: key.into() };
    LoadedCertificate::load_certificate(&files).map_err(|CertificateErrors(errors)| {
        let fault = |error: &CertificateError| OriginTlsFault {
            key: Some(if error.file == files.key { "key" } else { "cert" }),
            problem: error.to_string(),
        };
        errors.iter().map(fault).collect()
    })
}

fn compute_config_digest(
    table: &config::OriginTls,
    trusted: &TrustedCertificates,
    crls: &[CertificateRevocationListDer<'_>],
    certificate: Option<&LoadedCertificate>,
) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    let mut add = |tag: u8, bytes: &[u8]| {
        context.update(&[tag]);
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    add(0, if table.min == TlsVersion::Tls12 { b"1.2" } else { b"1.3" });
    trusted.listed.iter().for_each(|listed| add(1, listed));
    for root in &trusted.roots.roots {
        add(2, root.subject.as_ref());
        add(3, root.subject_public_key_info.as_ref());
        add(4, root.name_constraints.as_ref().map_or(&[][..], |constraints| constraints.as_ref()));
    }
    crls.iter().for_each(|crl| add(5, crl));
    certificate.iter().flat_map(|certificate| &certificate.key.cert).for_each(|certificate| add(6, certificate));
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// Returns the cipher suites and groups of connections to origins, including those of TLS 1.2.
fn origin_provider() -> CryptoProvider {
    let mut provider = client_provider();
    provider.cipher_suites.extend(tls12_suites());
    provider
}

fn origin_client_config(
    min: TlsVersion,
    trusted: TrustedCertificates,
    crls: Vec<CertificateRevocationListDer<'static>>,
    certificate: Option<&LoadedCertificate>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(origin_provider());
    let TrustedCertificates { roots, listed } = trusted;
    let webpki = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .with_crls(crls)
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| format!("cannot be used to verify servers: {error}"))?;
    let algorithms = provider.signature_verification_algorithms;
    let verifier = RecordingVerifier { verifier: Some(webpki), algorithms, listed, record: record_rejection };
    let versions: &[_] = match min {
        TlsVersion::Tls13 => &[&TLS13],
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match certificate {
        Some(certificate) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&certificate.key))))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ORIGIN_ALPN.to_vec()];
    config.require_ems = true;
    config.resumption = Resumption::disabled();
    Ok(config)
}

thread_local! {
    /// Reason of the last rejection of a certificate on this thread.
    static LAST_REJECTION: RefCell<Option<CertificateRejection>> = const { RefCell::new(None) };
}

/// Records the reason if the certificate `leaf` was rejected.
fn record_rejection(leaf: &CertificateDer<'_>, intermediates: usize, verified: Result<(), &Error>) {
    if let Err(error) = verified {
        LAST_REJECTION.replace(Some(CertificateRejection::from_rustls_error(
            error,
            ServerCertificate::from_leaf(leaf, intermediates),
        )));
    }
}

/// Takes the reason why this thread last rejected a certificate, for the operator. rustls verifies within the call that
/// returns its error.
pub fn take_rejection_reason() -> Option<String> {
    LAST_REJECTION.with_borrow_mut(Option::take).map(|distrust| distrust.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
    use std::{fs, path::PathBuf};

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Makes a self-signed certificate for `usage` alone, with its key.
    fn made(usage: Option<ExtendedKeyUsagePurpose>) -> (String, String) {
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.extended_key_usages = usage.into_iter().collect();
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn each_file_that_cannot_be_used_is_named_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let (pem, key) = made(None);
        let good = written(folder.path(), "good.pem", &pem);
        let key = written(folder.path(), "key.pem", &key);
        let empty = written(folder.path(), "empty.pem", "");
        let broken = written(folder.path(), "broken.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        let old = written(folder.path(), "old.crl", revocation::tests::VERSION_1);
        let missing = folder.path().join("missing.pem");
        let table = |ca: &PathBuf, crl: Option<&PathBuf>, own: Option<(&PathBuf, &PathBuf)>| config::OriginTls {
            ca: Some(ca.clone()),
            crl: crl.cloned(),
            cert: own.map(|(cert, _)| cert.clone()),
            key: own.map(|(_, key)| key.clone()),
            ..config::OriginTls::default()
        };
        let system = SystemRoots::default();
        for (table, expected) in [
            (table(&missing, None, None), ("ca", "cannot read ")),
            (table(&empty, None, None), ("ca", "contains no usable certificate")),
            (table(&key, None, None), ("ca", "contains no usable certificate")),
            (table(&good, Some(&good), None), ("crl", "contains no certificate revocation list")),
            (table(&good, Some(&broken), None), ("crl", "cannot be used to verify servers")),
            (table(&good, Some(&old), None), ("crl", "certificate revocation list 1 has version 1")),
            (table(&good, None, Some((&good, &good))), ("key", "contains no unencrypted private key")),
            (table(&good, None, Some((&empty, &key))), ("cert", "contains no certificate")),
        ] {
            let faults = OriginTlsFiles::load_tls_files(&table, &system).unwrap_err();
            let [fault] = &faults[..] else { panic!("{faults:?}") };
            assert_eq!(fault.key, Some(expected.0));
            assert!(fault.to_string().contains(expected.1), "{fault}");
        }
        assert!(OriginTlsFiles::load_tls_files(&table(&good, None, Some((&good, &key))), &system).is_ok());
    }

    #[test]
    fn the_digest_follows_from_everything_that_a_handshake_depends_on() {
        let folder = tempfile::tempdir().unwrap();
        let ((one, key), (other, other_key)) = (made(None), made(None));
        let ca = written(folder.path(), "ca.pem", &one);
        let key = written(folder.path(), "key.pem", &key);
        let system = SystemRoots::default();
        let of = |table: &config::OriginTls| OriginTlsFiles::load_tls_files(table, &system).unwrap().digest;
        let table = config::OriginTls { ca: Some(ca.clone()), ..config::OriginTls::default() };
        let first = of(&table);
        assert_eq!(of(&table), first);
        assert_ne!(of(&config::OriginTls { min: TlsVersion::Tls12, ..table.clone() }), first);
        let with = config::OriginTls { cert: Some(ca.clone()), key: Some(key.clone()), ..table.clone() };
        let own = of(&with);
        assert_ne!(own, first);
        fs::write(&ca, &other).unwrap();
        assert_ne!(of(&table), first);
        fs::write(&key, other_key).unwrap();
        assert_ne!(of(&with), own);
    }

    #[test]
    fn a_certificate_for_servers_alone_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let warned = |usage| {
            let (pem, key) = made(usage);
            let cert = written(folder.path(), "cert.pem", &pem);
            let key = written(folder.path(), "key.pem", &key);
            let table = config::OriginTls {
                ca: Some(cert.clone()),
                cert: Some(cert),
                key: Some(key),
                ..config::OriginTls::default()
            };
            OriginTlsFiles::load_tls_files(&table, &SystemRoots::default())
                .unwrap()
                .origin_tls_warnings(SystemTime::now())
        };
        assert!(warned(None).is_empty());
        assert!(warned(Some(ExtendedKeyUsagePurpose::ClientAuth)).is_empty());
        let warnings = warned(Some(ExtendedKeyUsagePurpose::ServerAuth));
        assert!(warnings[0].1.contains("no clientAuth"), "{warnings:?}");
        assert_eq!(warnings[0].0, "cert");
    }

    #[test]
    fn an_authority_without_a_revocation_list_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let ([one, list], [other, _]) = (revocation::tests::authority("one"), revocation::tests::authority("other"));
        let both = one + &other;
        let table = config::OriginTls {
            ca: Some(written(folder.path(), "ca.pem", &both)),
            crl: Some(written(folder.path(), "ca.crl", &list)),
            ..config::OriginTls::default()
        };
        let warnings = OriginTlsFiles::load_tls_files(&table, &SystemRoots::default())
            .unwrap()
            .origin_tls_warnings(SystemTime::now());
        let expected =
            "there is no certificate revocation list of \"CN=other\": certificates that it has signed are rejected";
        assert_eq!(warnings, [("crl", expected.to_owned())]);
    }

    #[test]
    fn the_hybrid_group_is_offered_first() {
        let provider = origin_provider();
        assert_eq!(provider.kx_groups[0].name(), rustls::NamedGroup::X25519MLKEM768);
        let folder = tempfile::tempdir().unwrap();
        let ca = written(folder.path(), "ca.pem", &made(None).0);
        let table = config::OriginTls { ca: Some(ca), ..config::OriginTls::default() };
        let tls = OriginTlsFiles::load_tls_files(&table, &SystemRoots::default()).unwrap();
        assert_eq!(tls.config.alpn_protocols, [ORIGIN_ALPN]);
        assert!(tls.config.require_ems);
    }
}
