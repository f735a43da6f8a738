//! Checks certificate revocation lists for faults that rustls reports without a reason, or not at all.

use super::certificate_error::CertificateError;
use super::encoding::{parse_items, read_file};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::{path::Path, time::SystemTime};
use x509_parser::{certificate::X509Certificate, prelude::FromDer, revocation_list::CertificateRevocationList};

/// Reads the revocation lists of a PEM file, at least one.
pub(super) fn read_revocation_lists(
    file: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
    let crls: Vec<_> = parse_items(&read_file(file)?, file)?;
    if crls.is_empty() {
        return Err(CertificateError::new(file, |file| format!("{file} contains no certificate revocation list")));
    }
    Ok(crls)
}

/// Returns the reason why one of `crls` cannot be used: a list of version 1, as `openssl ca -gencrl` makes without
/// `crl_extensions`. RFC 5280 §5.1.2.1 requires version 2, and rustls would only report a parse error.
pub(super) fn unusable_list_reason(crls: &[CertificateRevocationListDer<'_>]) -> Option<String> {
    let place = crls.iter().position(|crl| {
        let parsed = CertificateRevocationList::from_der(crl);
        parsed.is_ok_and(|(_, crl)| crl.tbs_cert_list.version.is_none())
    })?;
    Some(format!(
        "certificate revocation list {} has version 1, and must have version 2 (RFC 5280 §5.1.2.1)",
        place.saturating_add(1)
    ))
}

/// Returns the subjects of `authorities` without a list in `crls`, if there are any lists. Certificates of these
/// authorities are rejected.
pub(super) fn authorities_without_list(
    authorities: &[CertificateDer<'_>],
    crls: &[CertificateRevocationListDer<'_>],
) -> Vec<String> {
    let parsed = crls.iter().filter_map(|crl| CertificateRevocationList::from_der(crl).ok());
    let issuers: Vec<Vec<u8>> = parsed.map(|(_, crl)| crl.tbs_cert_list.issuer.as_raw().to_vec()).collect();
    if issuers.is_empty() {
        return Vec::new();
    }
    let subjects = authorities.iter().filter_map(|authority| X509Certificate::from_der(authority).ok());
    let missing = subjects.filter(|(_, authority)| {
        authority.is_ca() && issuers.iter().all(|issuer| issuer.as_slice() != authority.subject().as_raw())
    });
    missing.map(|(_, authority)| authority.subject().to_string()).collect()
}

/// Formats the warning about `authority`, which has no revocation list.
pub(super) fn missing_list_warning(authority: &str) -> String {
    format!("there is no certificate revocation list of {authority:?}: certificates that it has signed are rejected")
}

/// Formats the warning that the list at `place` of a file is past its `next_update` (RFC 5280 §5.1.2.5).
pub(super) fn expired_list_warning(place: usize, next_update: SystemTime) -> String {
    let list = if place > 1 { format!("revocation list {place}") } else { "the revocation list".into() };
    let date = httpdate::fmt_http_date(next_update);
    format!("{list} is out of date since {date}: certificates of its authority are rejected")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
        KeyIdMethod, KeyPair, KeyUsagePurpose, date_time_ymd,
    };
    use rustls::pki_types::pem::PemObject;

    /// A list that `openssl ca -gencrl` of OpenSSL 3 made without extensions.
    pub(crate) const VERSION_1: &str = include_str!("version-1.crl");

    /// Makes an authority with an empty revocation list, in PEM.
    pub(crate) fn authority(name: &str) -> [String; 2] {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2124, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        [issuer.pem(), list.signed_by(&issuer).unwrap().pem().unwrap()]
    }

    fn list(pem: &str) -> CertificateRevocationListDer<'static> {
        CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_list_of_version_1_is_named_by_its_version_and_place() {
        let [_, new] = authority("new");
        assert_eq!(unusable_list_reason(&[list(&new)]), None);
        let reason = unusable_list_reason(&[list(&new), list(VERSION_1)]).unwrap();
        assert_eq!(reason, "certificate revocation list 2 has version 1, and must have version 2 (RFC 5280 §5.1.2.1)");
    }

    #[test]
    fn authorities_without_a_list_are_those_whose_subject_issued_none() {
        let ([one, of_one], [other, of_other]) = (authority("one"), authority("other"));
        let both = [one, other].map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
        assert_eq!(authorities_without_list(&both, &[list(&of_one)]), ["CN=other"]);
        assert!(authorities_without_list(&both, &[list(&of_one), list(&of_other)]).is_empty());
        assert!(authorities_without_list(&both, &[]).is_empty(), "revocation is not checked at all");
    }
}
