//! Why the files of a certificate, or of certificate authorities, cannot be used.

use super::certificate_warning::MIN_RSA_BITS;
use rustls::pki_types::pem::{self};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a certificate cannot be served. Always the operator's fault.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file is missing, or litequic may not read it.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another encoding than PEM: DER, PKCS #12, UTF-16, or a byte order mark before it.
    #[error("{} {found}", file.display())]
    NotPem {
        /// The file.
        file: PathBuf,
        /// What the file is instead, and how to convert it.
        found: &'static str,
    },
    /// Broken PEM.
    #[error("{} is not valid PEM: {source}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// The parser's error.
        source: pem::Error,
    },
    /// PEM without a certificate.
    #[error("{} holds no certificate", file.display())]
    NoCertificate {
        /// The file.
        file: PathBuf,
    },
    /// PEM without a private key.
    #[error("{} holds no unencrypted private key", file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// A private key that needs a passphrase, which litequic has no key for.
    #[error("the private key in {} is encrypted; decrypt it with openssl pkey", file.display())]
    EncryptedKey {
        /// The file.
        file: PathBuf,
    },
    /// The leaf is not an X.509 certificate.
    #[error("the first certificate of {} cannot be parsed: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// A kind of key that TLS 1.3 does not support.
    #[error("the key in {} cannot be used: {source}", file.display())]
    UnsupportedKey {
        /// The file.
        file: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not match the certificate in {}", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A certificate that cannot be an authority, or a revocation list that cannot be read.
    #[error("{} cannot be used to verify clients: {reason}", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// The error of rustls.
        reason: String,
    },
    /// PEM without a revocation list.
    #[error("{} holds no certificate revocation list", file.display())]
    NoCrl {
        /// The file.
        file: PathBuf,
    },
    /// No TLS library signs with it, nor does any client accept it.
    #[error("the RSA key in {} has {bits} bits; at least {MIN_RSA_BITS} are needed", file.display())]
    WeakKey {
        /// The file.
        file: PathBuf,
        /// What it has.
        bits: usize,
    },
}

impl CertificateError {
    /// The file at fault.
    pub fn faulty_file(&self) -> &Path {
        match self {
            Self::Read { file, .. }
            | Self::NotPem { file, .. }
            | Self::Pem { file, .. }
            | Self::NoCertificate { file }
            | Self::NoKey { file }
            | Self::EncryptedKey { file }
            | Self::Malformed { file, .. }
            | Self::UnsupportedKey { file, .. }
            | Self::Authority { file, .. }
            | Self::NoCrl { file }
            | Self::WeakKey { file, .. } => file,
            Self::KeyMismatch { key, .. } => key,
        }
    }
}

/// Every [`CertificateError`] of files that belong together; at least one.
#[derive(Debug)]
pub struct CertificateErrors(pub Vec<CertificateError>);

impl From<CertificateError> for CertificateErrors {
    fn from(error: CertificateError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for CertificateErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

impl std::error::Error for CertificateErrors {}
