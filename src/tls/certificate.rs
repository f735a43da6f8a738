//! A certificate chain with its key, loaded from PEM and checked once: everything a client would later stumble over
//! is the operator's error now, and names the file.

use crate::config::CertificateFiles;
use rustls::{
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    prelude::{ASN1Time, FromDer},
};

/// Why a certificate cannot be served. Always the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file is missing, or litequic may not read it.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not PEM, or broken PEM.
    #[error("{} is not valid PEM: {source}", file.display())]
    Pem {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// PEM without a certificate.
    #[error("{} holds no certificate", file.display())]
    NoCertificate {
        /// Which file.
        file: PathBuf,
    },
    /// PEM without a private key; an encrypted key counts as none.
    #[error("{} holds no unencrypted private key", file.display())]
    NoKey {
        /// Which file.
        file: PathBuf,
    },
    /// The leaf is not an X.509 certificate.
    #[error("the first certificate of {} cannot be parsed: {reason}", file.display())]
    Malformed {
        /// Which file.
        file: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A kind of key that TLS 1.3 does not know.
    #[error("the key in {} cannot be used: {source}", file.display())]
    UnsupportedKey {
        /// Which file.
        file: PathBuf,
        /// What rustls said.
        source: rustls::Error,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not fit the certificate in {}", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A certificate that cannot be an authority, or a revocation list that cannot be read.
    #[error("{} holds what cannot be used to verify clients: {reason}", file.display())]
    Authority {
        /// Which file.
        file: PathBuf,
        /// What rustls said.
        reason: String,
    },
    /// PEM without a revocation list.
    #[error("{} holds no certificate revocation list", file.display())]
    NoCrl {
        /// Which file.
        file: PathBuf,
    },
    /// Its validity is over.
    #[error("the certificate in {} expired on {}", file.display(), httpdate::fmt_http_date(*not_after))]
    Expired {
        /// Which file.
        file: PathBuf,
        /// When.
        not_after: SystemTime,
    },
    /// Its validity is still to come; perhaps this machine's clock is wrong.
    #[error("the certificate in {} is not valid before {}", file.display(), httpdate::fmt_http_date(*not_before))]
    NotYetValid {
        /// Which file.
        file: PathBuf,
        /// When it will be.
        not_before: SystemTime,
    },
}

/// A chain with its key, valid when it was loaded.
#[derive(Debug, Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Names,
    not_after: SystemTime,
}

impl Certificate {
    /// Reads and checks the PEM files. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`CertificateError`], which names the file at fault.
    pub fn load(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let read = |file: &Path| fs::read(file).map_err(|source| CertificateError::Read { file: file.into(), source });
        Self::from_pem(&read(&files.cert)?, &read(&files.key)?, files, SystemTime::now())
    }

    /// Checks PEM that is in memory already; `files` says where it came from, for errors.
    ///
    /// # Errors
    ///
    /// [`CertificateError`], which names the file at fault.
    pub fn from_pem(
        chain: &[u8],
        key: &[u8],
        files: &CertificateFiles,
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let cert_file = || files.cert.clone();
        let key_file = || files.key.clone();

        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| CertificateError::Pem { file: cert_file(), source })?;
        let leaf = chain.first().ok_or_else(|| CertificateError::NoCertificate { file: cert_file() })?.clone();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| match source {
            pem::Error::NoItemsFound => CertificateError::NoKey { file: key_file() },
            source => CertificateError::Pem { file: key_file(), source },
        })?;

        let (_, parsed) = X509Certificate::from_der(&leaf)
            .map_err(|error| CertificateError::Malformed { file: cert_file(), reason: error.to_string() })?;
        let not_before = system_time(parsed.validity().not_before);
        let not_after = system_time(parsed.validity().not_after);
        if now < not_before {
            return Err(CertificateError::NotYetValid { file: cert_file(), not_before });
        }
        if now > not_after {
            return Err(CertificateError::Expired { file: cert_file(), not_after });
        }
        let names = Names::of(&parsed);

        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|source| CertificateError::UnsupportedKey { file: key_file(), source })?;
        let key = CertifiedKey::new(chain, key);
        key.keys_match().map_err(|_| CertificateError::KeyMismatch { cert: cert_file(), key: key_file() })?;
        Ok(Self { key: Arc::new(key), names, not_after })
    }

    /// What rustls serves.
    pub fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// The names that it speaks for.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether a client could not tell it from `other`.
    pub fn is_same_chain(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// When its validity ends.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

/// The names that a certificate speaks for (RFC 9525 §6): those of its subjectAltName extension, or its common name
/// when that extension is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names, lower case; `*.example.com` as it stands.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ip: Vec<IpAddr>,
}

impl Names {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
            for name in &alternative.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                    GeneralName::IPAddress(bytes) => names.ip.extend(ip_address(bytes)),
                    _ => {}
                }
            }
            return names;
        }
        let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        names.dns.extend(common_name.map(str::to_ascii_lowercase));
        names
    }

    /// Whether `host` is one of them: a DNS name (a trailing dot and the case do not count) or an IP address, with or
    /// without brackets. A wildcard stands for exactly one label (RFC 9525 §6.3).
    pub fn cover(&self, host: &str) -> bool {
        if let Some(address) = parse_ip(host) {
            return self.ip.contains(&address);
        }
        let host = normalize(host);
        self.dns.iter().any(|name| match name.strip_prefix("*.") {
            Some(parent) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
            None => *name == host,
        })
    }
}

/// A host as an IP address, if it is one.
pub(super) fn parse_ip(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// A DNS name as it is compared: lower case, without the root's dot.
pub(super) fn normalize(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// RFC 5280 §4.2.1.6: four octets or sixteen.
fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn system_time(time: ASN1Time) -> SystemTime {
    let seconds = Duration::from_secs(time.timestamp().unsigned_abs());
    let from_epoch = match time.timestamp() >= 0 {
        true => SystemTime::UNIX_EPOCH.checked_add(seconds),
        false => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    from_epoch.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{SelfSigned, self_signed};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn files() -> CertificateFiles {
        CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() }
    }

    fn made() -> SelfSigned {
        self_signed(["localhost", "*.example.com", "127.0.0.1", "::1"]).unwrap()
    }

    fn load(cert: &str, key: &str, now: SystemTime) -> Result<Certificate, CertificateError> {
        Certificate::from_pem(cert.as_bytes(), key.as_bytes(), &files(), now)
    }

    #[test]
    fn a_fault_names_its_file() {
        let (one, other) = (made(), made());
        let (cert, key) = (&one.cert_pem, &one.key_pem);
        let now = SystemTime::now();
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let not_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let table = [
            ("", key.as_str(), now, "tls.crt holds no certificate"),
            (key, key, now, "tls.crt holds no certificate"),
            (broken, key, now, "tls.crt is not valid PEM"),
            (not_x509, key, now, "the first certificate of tls.crt cannot be parsed"),
            (cert, "", now, "tls.key holds no unencrypted private key"),
            (cert, cert, now, "tls.key holds no unencrypted private key"),
            (cert, &other.key_pem, now, "the key in tls.key does not fit the certificate in tls.crt"),
            (cert, key, now + 14 * DAY, "the certificate in tls.crt expired on "),
            (cert, key, now - DAY, "the certificate in tls.crt is not valid before "),
        ];
        for (cert, key, now, expected) in table {
            let error = load(cert, key, now).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let files = CertificateFiles { cert: "/nonexistent/tls.crt".into(), key: "/nonexistent/tls.key".into() };
        let error = Certificate::load(&files).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/tls.crt: "), "{error}");
    }

    #[test]
    fn a_certificate_knows_its_names() {
        let certificate = load(&made().cert_pem, &made().key_pem, SystemTime::now());
        assert!(certificate.is_err(), "two keys");
        let certificate = made().certificate().unwrap();
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
            assert_eq!(certificate.names().cover(host), expected, "{host:?}");
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
            load(&cert, &key.serialize_pem(), SystemTime::now()).unwrap().names().dns.clone()
        };
        assert_eq!(named(&[]), ["common.test"]);
        assert_eq!(named(&["other.test"]), ["other.test"]);
    }
}
