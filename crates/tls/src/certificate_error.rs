//! Defines the errors of certificate files and files of authorities.

use super::certificate_warning::MIN_RSA_BITS;
use rustls::pki_types::pem::{self};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Reason why a certificate cannot be served. Always the operator's fault.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file is missing, or litequic may not read it.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The file is not PEM: DER, PKCS #12, UTF-16, or with a byte order mark.
    #[error("{} {found}", file.display())]
    NotPem {
        /// Path of the file.
        file: PathBuf,
        /// Actual encoding, and the command that converts the file.
        found: &'static str,
    },
    /// The file is broken PEM.
    #[error("{} is not valid PEM: {source}", file.display())]
    Pem {
        /// Path of the file.
        file: PathBuf,
        /// Error of the parser.
        source: pem::Error,
    },
    /// The file holds no certificate.
    #[error("{} contains no certificate", file.display())]
    NoCertificate {
        /// Path of the file.
        file: PathBuf,
    },
    /// The file holds no private key.
    #[error("{} contains no unencrypted private key", file.display())]
    NoKey {
        /// Path of the file.
        file: PathBuf,
    },
    /// The private key needs a passphrase, and litequic has no key for one.
    #[error("the private key in {} is encrypted; decrypt it with openssl pkey", file.display())]
    EncryptedKey {
        /// Path of the file.
        file: PathBuf,
    },
    /// The leaf is not an X.509 certificate.
    #[error("the first certificate of {} cannot be parsed: {reason}", file.display())]
    Malformed {
        /// Path of the file.
        file: PathBuf,
        /// Error of the parser.
        reason: String,
    },
    /// TLS 1.3 does not support this kind of key.
    #[error("the key in {} cannot be used: {source}", file.display())]
    UnsupportedKey {
        /// Path of the file.
        file: PathBuf,
        /// Error of rustls.
        source: rustls::Error,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not match the certificate in {}", key.display(), cert.display())]
    KeyMismatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// A certificate cannot be an authority, or a revocation list cannot be used.
    #[error("{} cannot be used to verify clients: {reason}", file.display())]
    Authority {
        /// Path of the file.
        file: PathBuf,
        /// Error of rustls.
        reason: String,
    },
    /// The file holds no certificate revocation list.
    #[error("{} contains no certificate revocation list", file.display())]
    NoCrl {
        /// Path of the file.
        file: PathBuf,
    },
    /// No certificate of a file of trusted certificates can be used.
    #[error("{} contains no usable certificate", file.display())]
    NoRoot {
        /// The file.
        file: PathBuf,
    },
    /// The RSA key is too short: no client accepts it, and no TLS library signs with it.
    #[error("the RSA key in {} has {bits} bits; at least {MIN_RSA_BITS} are needed", file.display())]
    WeakKey {
        /// Path of the file.
        file: PathBuf,
        /// Length of the key in bits.
        bits: usize,
    },
}

impl CertificateError {
    /// Returns the file at fault.
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
            | Self::NoRoot { file }
            | Self::WeakKey { file, .. } => file,
            Self::KeyMismatch { key, .. } => key,
        }
    }
}

/// All errors of files that belong together; at least one.
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
