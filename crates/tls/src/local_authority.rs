//! Makes certificates for development: a certificate authority of this machine, and certificates that it signs. No
//! client trusts them before it is told to.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use std::time::{Duration, SystemTime};

/// Validity of the authority's certificate: ten years.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Validity of a certificate: what browsers accept at most.
const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(397 * 24 * 3600);
/// Time before now at which a validity begins, for clock skew.
pub(super) const BACKDATING: Duration = Duration::from_secs(3600);
/// Name of the authority, which clients show.
const AUTHORITY_NAME: &str = "litequic local authority";

/// A certificate authority of this machine.
#[derive(Debug)]
pub struct LocalAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// The authority's certificate in PEM, which clients have to trust.
    pub cert_pem: String,
    /// The authority's private key in PEM (PKCS #8).
    pub key_pem: String,
}

impl LocalAuthority {
    /// Makes an authority with a new ECDSA P-256 key.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, rcgen::Error> {
        Self::from_key(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
    }

    /// Makes the authority of the private key `key_pem` (PKCS #8 in PEM). Clients that trust an earlier certificate of
    /// this key trust what this authority signs.
    ///
    /// # Errors
    ///
    /// `key_pem` is not a private key.
    pub fn from_key_pem(key_pem: &str) -> Result<Self, rcgen::Error> {
        Self::from_key(KeyPair::from_pem(key_pem)?)
    }

    fn from_key(key: KeyPair) -> Result<Self, rcgen::Error> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.distinguished_name = named(AUTHORITY_NAME);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut parameters, AUTHORITY_VALIDITY);
        let (cert_pem, key_pem) = (parameters.self_signed(&key)?.pem(), key.serialize_pem());
        Ok(Self { issuer: Issuer::new(parameters, key), cert_pem, key_pem })
    }

    /// Makes an ECDSA P-256 key and a certificate for `names`, DNS names and IP addresses. Returns the certificate,
    /// followed by the authority's, and the private key, in PEM, and the end of its validity.
    ///
    /// # Errors
    ///
    /// A name is not ASCII.
    pub fn issue_certificate(&self, names: Vec<String>) -> Result<(String, String, SystemTime), rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let common_name = names.first().cloned().unwrap_or_default();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name = named(&common_name);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let end = set_validity(&mut parameters, CERTIFICATE_VALIDITY);
        let certificate = parameters.signed_by(&key, &self.issuer)?.pem();
        Ok((certificate + &self.cert_pem, key.serialize_pem(), end))
    }
}

/// Subject whose only attribute is the common name `name`.
fn named(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// Sets a validity of `time` from now on, and returns its end.
pub(super) fn set_validity(parameters: &mut CertificateParams, time: Duration) -> SystemTime {
    let now = SystemTime::now();
    let end = now + time;
    parameters.not_before = (now - BACKDATING).into();
    parameters.not_after = end.into();
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadedCertificate;
    use litequic_config::CertificateFiles;

    #[test]
    fn a_certificate_has_its_names_and_no_warning() {
        let first = LocalAuthority::generate().unwrap();
        let again = LocalAuthority::from_key_pem(&first.key_pem).unwrap();
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let (cert, key, _) = again.issue_certificate(names).unwrap();
        let files = CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() };
        let loaded = LoadedCertificate::from_pem(cert.as_bytes(), key.as_bytes(), &files).unwrap();
        assert_eq!(loaded.names.dns, ["localhost"]);
        assert_eq!(loaded.names.ip.len(), 2);
        assert_eq!(loaded.chain_warnings(SystemTime::now()).count(), 0);
    }
}
