//! Loads a certificate chain with its key from PEM. A certificate that cannot be served is an error with the name of
//! the file; one that clients will reject is a warning.

use super::algorithm::KeyAlgorithm;
use super::certificate_error::{CertificateError, CertificateErrors};
use super::certificate_warning::{CertificateFacts, MIN_RSA_BITS, rsa_bits};
use super::encoding::{check_encoding, has_encrypted_key, invalid_pem, parse_certificates, read_file};
use litequic_config::CertificateFiles;
use rustls::{
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use std::{
    net::IpAddr,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

/// Share of the lifetime, in per cent, that is left when a renewal is overdue: certbot, Caddy and cert-manager renew
/// when a third is left.
const RENEWAL_PERCENT: u32 = 30;
/// Longest time before the expiry at which a renewal is overdue: certificates of private authorities last for years.
const MAX_RENEWAL_MARGIN: Duration = Duration::from_hours(30 * 24);

/// A certificate chain with its key, as loaded from files or memory.
#[derive(Debug, Clone)]
pub struct LoadedCertificate {
    /// Chain and key in the form that rustls serves.
    pub key: Arc<CertifiedKey>,
    /// Signature algorithm of the key.
    pub algorithm: Arc<KeyAlgorithm>,
    /// Names in the leaf.
    pub names: Arc<CertificateNames>,
    /// Facts about each certificate of the chain, leaf first.
    facts: Arc<[CertificateFacts]>,
}

impl LoadedCertificate {
    /// Loads and checks the PEM files. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`CertificateErrors`], which name the file at fault.
    pub fn load_certificate(files: &CertificateFiles) -> Result<Self, CertificateErrors> {
        let chain = read_file(&files.cert).and_then(|pem| read_chain(&pem, &files.cert));
        let key = read_file(&files.key).and_then(|pem| read_key(&pem, &files.key));
        Self::from_chain_and_key(chain, key, files)
    }

    /// Checks PEM in memory; `files` names its source for errors.
    ///
    /// # Errors
    ///
    /// [`CertificateErrors`], which name the file at fault.
    pub fn from_pem(chain: &[u8], key: &[u8], files: &CertificateFiles) -> Result<Self, CertificateErrors> {
        Self::from_chain_and_key(read_chain(chain, &files.cert), read_key(key, &files.key), files)
    }

    fn from_chain_and_key(
        chain: Result<CertificateChain, CertificateError>,
        key: Result<PrivateKeyDer<'static>, CertificateError>,
        files: &CertificateFiles,
    ) -> Result<Self, CertificateErrors> {
        let (chain, key) = match (chain, key) {
            (Ok(chain), Ok(key)) => (chain, key),
            (chain, key) => return Err(CertificateErrors(chain.err().into_iter().chain(key.err()).collect())),
        };
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|error| {
            CertificateError::new(&files.key, |file| match chain.rsa_bits.filter(|bits| *bits < MIN_RSA_BITS) {
                // No client accepts the key, and no TLS library signs with it.
                Some(bits) => format!("the RSA key in {file} has {bits} bits; at least {MIN_RSA_BITS} are needed"),
                None => format!("the key in {file} cannot be used: {error}"),
            })
        })?;
        let key = CertifiedKey::new(chain.der, key);
        key.keys_match().map_err(|_| {
            let cert = files.cert.display();
            CertificateError::new(&files.key, |key| {
                format!("the key in {key} does not match the certificate in {cert}")
            })
        })?;
        let algorithm = KeyAlgorithm::from_signing_key(&*key.key, chain.rsa_bits);
        let (key, algorithm, names) = (Arc::new(key), Arc::new(algorithm), Arc::new(chain.names));
        Ok(Self { key, algorithm, names, facts: chain.facts.into() })
    }

    /// Whether `other` has the same chain.
    pub fn is_same_chain(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// Returns the end of the leaf's validity.
    pub fn not_after(&self) -> SystemTime {
        self.facts.first().map_or(SystemTime::UNIX_EPOCH, |leaf| leaf.not_after)
    }

    /// Returns the beginning of the leaf's validity.
    pub fn not_before(&self) -> SystemTime {
        self.facts.first().map_or(SystemTime::UNIX_EPOCH, |leaf| leaf.not_before)
    }

    /// Returns the latest time of a timely renewal: when 30 % of the lifetime is left, but at most 30 days.
    pub fn renew_by(&self) -> SystemTime {
        let (begin, end) = (self.not_before(), self.not_after());
        let life = end.duration_since(begin).unwrap_or(Duration::ZERO);
        end.checked_sub(renewal_margin(life)).unwrap_or(begin)
    }

    /// Returns the reasons why clients will reject the chain at `now`.
    pub fn chain_warnings(&self, now: SystemTime) -> impl Iterator<Item = String> {
        (1..).zip(self.facts.iter()).flat_map(move |(place, facts)| facts.certificate_warnings(place, now))
    }
}

/// The chain of a PEM file, leaf first.
struct CertificateChain {
    der: Vec<CertificateDer<'static>>,
    names: CertificateNames,
    facts: Vec<CertificateFacts>,
    /// Bits of the leaf's key, if it is an RSA key.
    rsa_bits: Option<usize>,
}

fn read_chain(pem: &[u8], file: &Path) -> Result<CertificateChain, CertificateError> {
    let der = parse_certificates(pem, file)?;
    let leaf = der.first().map_or(&[][..], |leaf| leaf);
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| {
        CertificateError::new(file, |file| format!("the first certificate of {file} cannot be parsed: {error}"))
    })?;
    let (names, rsa_bits) = (CertificateNames::from_certificate(&leaf), rsa_bits(&leaf));
    let mut leaf_facts = CertificateFacts::from_x509(&leaf, true);
    let mut facts = Vec::new();
    let mut has_issuer = leaf.issuer() == leaf.subject();
    for der in der.iter().skip(1) {
        // Clients verify the rest of the chain, so only the leaf has to be parsed.
        let Ok((_, other)) = X509Certificate::from_der(der) else { break };
        has_issuer |= leaf.issuer() == other.subject();
        facts.push(CertificateFacts::from_x509(&other, false));
    }
    if !has_issuer {
        leaf_facts.problems.push(format!(
            "is not followed by that of its issuer ({}): clients reject it, unless they trust this issuer itself; \
             append the intermediate certificates",
            leaf.issuer()
        ));
    }
    facts.insert(0, leaf_facts);
    Ok(CertificateChain { der, names, facts, rsa_bits })
}

fn read_key(pem: &[u8], file: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    check_encoding(pem, file)?;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        // With `Proc-Type`, the parser's error would be about base64.
        _ if has_encrypted_key(pem) => CertificateError::new(file, |file| {
            format!("the private key in {file} is encrypted; decrypt it with openssl pkey")
        }),
        pem::Error::NoItemsFound => {
            CertificateError::new(file, |file| format!("{file} contains no unencrypted private key"))
        }
        error => invalid_pem(file, &error),
    })
}

/// Names in a certificate (RFC 9525 §6): those in subjectAltName, or the common name without that extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// DNS names in lower case, with wildcards such as `*.example.com`.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ip: Vec<IpAddr>,
}

impl CertificateNames {
    pub(super) fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
            for name in &alternative.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                    GeneralName::IPAddress(bytes) => names.ip.extend(parse_ip_bytes(bytes)),
                    _ => {}
                }
            }
            return names;
        }
        let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        names.dns.extend(common_name.map(str::to_ascii_lowercase));
        names
    }

    /// Whether the names include `host`: a DNS name in any case, with or without a trailing dot, or an IP address, with
    /// or without brackets. A wildcard stands for exactly one label (RFC 9525 §6.3).
    pub fn includes_host(&self, host: &str) -> bool {
        if let Some(address) = parse_ip(host) {
            return self.ip.contains(&address);
        }
        let host = normalize_dns_name(host);
        self.dns.iter().any(|name| match name.strip_prefix("*.") {
            Some(parent) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
            None => *name == host,
        })
    }
}

/// Parses a host as an IP address, with or without brackets; `None` for a name.
pub(super) fn parse_ip(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Converts a DNS name to lower case without a trailing dot.
pub(super) fn normalize_dns_name(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Parses an IP address of four or sixteen bytes (RFC 5280 §4.2.1.6).
fn parse_ip_bytes(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Returns the part of a certificate's `life` that is left when its renewal is overdue.
fn renewal_margin(life: Duration) -> Duration {
    (life.saturating_mul(RENEWAL_PERCENT) / 100).min(MAX_RENEWAL_MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SelfSigned, make_self_signed};
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn files() -> CertificateFiles {
        CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() }
    }

    fn made() -> SelfSigned {
        make_self_signed(["localhost", "*.example.com", "127.0.0.1", "::1"]).unwrap()
    }

    #[test]
    fn a_renewal_is_overdue_once_three_tenths_of_the_life_are_left() {
        let certificate = made().to_loaded_certificate().unwrap();
        let life = certificate.not_after().duration_since(certificate.not_before()).unwrap();
        assert!((13 * DAY..=14 * DAY).contains(&life), "{life:?}");
        let left = certificate.not_after().duration_since(certificate.renew_by()).unwrap();
        assert!((DAY * 39 / 10..DAY * 42 / 10 + DAY / 24).contains(&left), "{left:?}");
        for (life, left) in [(10 * DAY, 3 * DAY), (90 * DAY, 27 * DAY), (3650 * DAY, 30 * DAY)] {
            assert_eq!(renewal_margin(life), left);
        }
    }

    fn load(cert: &str, key: &str) -> Result<LoadedCertificate, CertificateErrors> {
        LoadedCertificate::from_pem(cert.as_bytes(), key.as_bytes(), &files())
    }

    #[test]
    fn a_fault_names_its_file() {
        let (one, other) = (made(), made());
        let (cert, key) = (&one.cert_pem, &one.key_pem);
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let not_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let table = [
            ("", key.as_str(), "tls.crt contains no certificate"),
            (key, key, "tls.crt contains no certificate"),
            (broken, key, "tls.crt is not valid PEM"),
            (not_x509, key, "the first certificate of tls.crt cannot be parsed"),
            (cert, "", "tls.key contains no unencrypted private key"),
            (cert, cert, "tls.key contains no unencrypted private key"),
            ("", "", "tls.crt contains no certificate; tls.key contains no unencrypted private key"),
            (cert, &other.key_pem, "the key in tls.key does not match the certificate in tls.crt"),
        ];
        for (cert, key, expected) in table {
            let error = load(cert, key).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_certificate_outside_its_validity_is_a_warning() {
        let certificate = made().to_loaded_certificate().unwrap();
        let now = SystemTime::now();
        for (now, expected) in [
            (now, ""),
            (now + 14 * DAY, "the certificate expired on "),
            (now - DAY, "the certificate is not valid before "),
        ] {
            let warnings: String = certificate.chain_warnings(now).map(|warning| warning.to_string()).collect();
            assert!(warnings.starts_with(expected) && warnings.is_empty() == expected.is_empty(), "{warnings}");
        }
    }

    #[test]
    fn a_missing_issuer_or_alternative_name_is_a_warning() {
        let key = || rcgen::KeyPair::generate().unwrap();
        let named = |name: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut parameters = rcgen::CertificateParams::new(names).unwrap();
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            parameters
        };
        let (ca_key, leaf_key) = (key(), key());
        let ca_parameters = named("Intermediate", &[]);
        let ca = ca_parameters.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca_parameters, ca_key);
        let leaf = named("a.test", &["a.test"]).signed_by(&leaf_key, &issuer).unwrap().pem();
        let nameless = named("a.test", &[]).self_signed(&leaf_key).unwrap().pem();
        let other = made().cert_pem;
        for (chain, expected) in [
            (leaf.clone() + &ca, ""),
            (leaf.clone() + &other + &ca, ""),
            (leaf.clone(), "(CN=Intermediate)"),
            (leaf + &other, "(CN=Intermediate)"),
            (nameless, "has no subjectAltName: clients reject it"),
        ] {
            let certificate = load(&chain, &leaf_key.serialize_pem()).unwrap();
            let warnings: Vec<_> = certificate.chain_warnings(SystemTime::now()).map(|one| one.to_string()).collect();
            assert_eq!(warnings.len(), usize::from(!expected.is_empty()), "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains(expected)), "{warnings:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let files = CertificateFiles { cert: "/nonexistent/tls.crt".into(), key: "/nonexistent/tls.key".into() };
        let errors = LoadedCertificate::load_certificate(&files).unwrap_err();
        let at_fault: Vec<_> = errors.0.iter().map(|error| error.file.display().to_string()).collect();
        assert_eq!(at_fault, ["/nonexistent/tls.crt", "/nonexistent/tls.key"]);
        assert!(errors.to_string().starts_with("cannot read /nonexistent/tls.crt: "), "{errors}");
    }

    #[test]
    fn a_certificate_knows_its_names() {
        let certificate = load(&made().cert_pem, &made().key_pem);
        assert!(certificate.is_err(), "two keys");
        let certificate = made().to_loaded_certificate().unwrap();
        let table = [
            ("localhost", true),
            ("LOCALHOST.", true),
            ("www.example.com", true),
            ("example.com", false),
            (".example.com", false),
            ("a.b.example.com", false),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("::1", true),
            ("127.0.0.2", false),
            ("", false),
        ];
        for (host, expected) in table {
            assert_eq!(certificate.names.includes_host(host), expected, "{host:?}");
        }
    }

    #[test]
    fn the_common_name_counts_only_without_alternative_names() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut parameters = rcgen::CertificateParams::new(names).unwrap();
            parameters.distinguished_name.push(rcgen::DnType::CommonName, "Common.Test");
            let key = rcgen::KeyPair::generate().unwrap();
            let cert = parameters.self_signed(&key).unwrap().pem();
            load(&cert, &key.serialize_pem()).unwrap().names.dns.clone()
        };
        assert_eq!(named(&[]), ["common.test"]);
        assert_eq!(named(&["other.test"]), ["other.test"]);
    }
}
