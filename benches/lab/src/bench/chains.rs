//! Chains as Let's Encrypt issues them: a root that clients know, an intermediate, and a leaf with what real ones have
//! in them, so that their sizes are those of real ones. benches/lab/evidence/costs.md has both.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize,
    SerialNumber,
};

/// Object identifiers: Authority Information Access, CRL Distribution Points and Certificate Policies (RFC 5280
/// §4.2.2.1, §4.2.1.13, §4.2.1.4), and timestamps of Certificate Transparency (RFC 6962 §3.3).
const AUTHORITY_INFORMATION: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
const CRL_DISTRIBUTION_POINTS: &[u64] = &[2, 5, 29, 31];
const POLICIES: &[u64] = &[2, 5, 29, 32];
const TIMESTAMPS: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// `caIssuers`, as accessMethod of Authority Information Access (RFC 5280 §4.2.2.1), DER.
const CA_ISSUERS: &[u8] = &[6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
/// The only policy of domain-validated certificates, 2.23.140.1.2.1, DER.
const DOMAIN_VALIDATED: &[u8] = &[0x30, 0x0a, 0x30, 8, 6, 6, 0x67, 0x81, 0x0c, 1, 2, 1];
/// Two timestamps with ECDSA signatures.
const TWO_TIMESTAMPS: usize = 242; // bytes

/// A leaf and its intermediate, PEM; the leaf's key; the root.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) root: String,
}

/// P-256 below P-384 (Let's Encrypt's E7 and the like), below an RSA root of 4,096 bits.
pub(super) fn ecdsa(names: &[String]) -> Result<Issued> {
    let intermediate = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
    issue(names, intermediate, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// RSA of 2,048 bits below the same (R12 and the like), below the same root.
pub(super) fn rsa(names: &[String]) -> Result<Issued> {
    let key = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
    issue(names, key()?, key()?)
}

fn issue(names: &[String], intermediate: KeyPair, leaf: KeyPair) -> Result<Issued> {
    let root = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096)?;
    let root = CertifiedIssuer::self_signed(authority("Internet Security Research Group", "ISRG Root X1"), root)?;
    let mut above = authority("Let's Encrypt", "R12");
    above.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    above.key_usages.push(KeyUsagePurpose::DigitalSignature);
    above.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    above.use_authority_key_identifier_extension = true;
    above.custom_extensions = vec![
        extension(AUTHORITY_INFORMATION, authority_information("http://x1.i.lencr.org/")),
        extension(CRL_DISTRIBUTION_POINTS, distribution_point("http://x1.c.lencr.org/")),
        extension(POLICIES, DOMAIN_VALIDATED.to_vec()),
    ];
    let above = CertifiedIssuer::signed_by(above, intermediate, &root)?;
    let mut parameters = CertificateParams::new(names).context("names of a certificate")?;
    parameters.distinguished_name.remove(DnType::CommonName);
    parameters.distinguished_name.push(DnType::CommonName, "localhost");
    parameters.serial_number = Some(SerialNumber::from_slice(&[5; 18]));
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.is_ca = IsCa::ExplicitNoCa;
    parameters.use_authority_key_identifier_extension = true;
    parameters.custom_extensions = vec![
        extension(AUTHORITY_INFORMATION, authority_information("http://r12.i.lencr.org/")),
        extension(CRL_DISTRIBUTION_POINTS, distribution_point("http://r12.c.lencr.org/100.crl")),
        extension(POLICIES, DOMAIN_VALIDATED.to_vec()),
        // Clients of the laboratory read no timestamps: as many bytes, none of them alike.
        extension(TIMESTAMPS, tagged(4, &(0..TWO_TIMESTAMPS).map(noise).collect::<Vec<u8>>())),
    ];
    let certificate = parameters.signed_by(&leaf, &above)?;
    Ok(Issued { chain: format!("{}{}", certificate.pem(), above.pem()), key: leaf.serialize_pem(), root: root.pem() })
}

fn authority(organization: &str, name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.remove(DnType::CommonName);
    parameters.distinguished_name.push(DnType::CountryName, "US");
    parameters.distinguished_name.push(DnType::OrganizationName, organization);
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.serial_number = Some(SerialNumber::from_slice(&[5; 16]));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn extension(oid: &[u64], content: Vec<u8>) -> CustomExtension {
    CustomExtension::from_oid_content(oid, content)
}

fn authority_information(url: &str) -> Vec<u8> {
    let description = [CA_ISSUERS, &tagged(0x86, url.as_bytes())].concat();
    tagged(0x30, &tagged(0x30, &description))
}

fn distribution_point(url: &str) -> Vec<u8> {
    let name = tagged(0xa0, &tagged(0xa0, &tagged(0x86, url.as_bytes())));
    tagged(0x30, &tagged(0x30, &name))
}

/// A value in DER, shorter than 256 bytes.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    let head = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
    [head.as_slice(), content].concat()
}

/// A byte of a signature, which compresses no better than chance.
fn noise(at: usize) -> u8 {
    crc32fast::hash(&at.to_le_bytes()).to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    #[test]
    fn chains_are_as_long_as_lets_encrypts() {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let sizes = |issued: Issued| {
            let chain = CertificateDer::pem_slice_iter(issued.chain.as_bytes()).map(Result::unwrap);
            chain.map(|certificate| certificate.len()).collect::<Vec<_>>()
        };
        let within = |sizes: &[usize], [leaf, above]: [std::ops::Range<usize>; 2]| {
            assert!(leaf.contains(&sizes[0]) && above.contains(&sizes[1]), "{sizes:?}");
        };
        // Real ones of 2025: leaf of one name and E7 or E8; leaf of one name and R12 or R13.
        within(&sizes(ecdsa(&names).unwrap()), [850..1_050, 1_050..1_150]);
        within(&sizes(rsa(&names).unwrap()), [1_200..1_350, 1_200..1_320]);
    }
}
