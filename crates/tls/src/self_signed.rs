//! Makes self-signed certificates for `litequic demo` and tests. No client trusts them by default.

use super::{certificate::LoadedCertificate, certificate_error::CertificateErrors, local_authority::set_validity};
use base64::{Engine, prelude::BASE64_STANDARD};
use litequic_config::CertificateFiles;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use std::time::Duration;

/// Validity of the certificate. Chromium accepts a certificate by its fingerprint (WebTransport's
/// `serverCertificateHashes`) only for ECDSA and at most 14 days; a day is left for clock skew.
const VALIDITY: Duration = Duration::from_secs(13 * 24 * 3600);

/// A self-signed certificate with the private key.
#[derive(Debug, Clone)]
pub struct SelfSigned {
    /// Certificate in PEM.
    pub cert_pem: String,
    /// Private key in PEM (PKCS #8).
    pub key_pem: String,
    /// SHA-256 digest of the public key (SubjectPublicKeyInfo) in base64, for Chromium's
    /// `--ignore-certificate-errors-spki-list`.
    pub spki_sha256: String,
}

impl SelfSigned {
    /// Converts the certificate for a server.
    ///
    /// # Errors
    ///
    /// Only by a defect of litequic.
    pub fn to_loaded_certificate(&self) -> Result<LoadedCertificate, CertificateErrors> {
        let files = CertificateFiles { cert: "(self-signed)".into(), key: "(self-signed)".into() };
        LoadedCertificate::from_pem(self.cert_pem.as_bytes(), self.key_pem.as_bytes(), &files)
    }
}

/// Makes an ECDSA P-256 key with a self-signed certificate for `names`: DNS names and IP addresses.
///
/// # Errors
///
/// A name is not ASCII.
pub fn make_self_signed<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<SelfSigned, rcgen::Error> {
    make_self_signed_with(names, &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// Makes a self-signed certificate of `key` for `names`: DNS names and IP addresses.
///
/// # Errors
///
/// A name is not ASCII.
pub fn make_self_signed_with<N: Into<String>>(
    names: impl IntoIterator<Item = N>,
    key: &KeyPair,
) -> Result<SelfSigned, rcgen::Error> {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let mut parameters = CertificateParams::new(names)?;
    set_validity(&mut parameters, VALIDITY);
    let certificate = parameters.self_signed(key)?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key.subject_public_key_info());
    Ok(SelfSigned {
        cert_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
        spki_sha256: BASE64_STANDARD.encode(digest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_authority::BACKDATING;
    use std::time::SystemTime;

    #[test]
    fn the_fingerprint_is_a_sha256_digest_in_base64() {
        let made = make_self_signed(["localhost"]).unwrap();
        assert_eq!(BASE64_STANDARD.decode(&made.spki_sha256).unwrap().len(), 32);
    }

    #[test]
    fn chromium_would_accept_its_validity() {
        let certificate = make_self_signed(["localhost"]).unwrap().to_loaded_certificate().unwrap();
        let left = certificate.not_after().duration_since(SystemTime::now()).unwrap();
        assert!(left + BACKDATING <= Duration::from_secs(14 * 24 * 3600));
    }
}
