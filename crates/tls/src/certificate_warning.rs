//! Warns about certificates that can be served but that clients will reject; only the operator knows whether this is
//! meant. nginx and HAProxy serve them too, so that one certificate does not take down the others.

use std::{fmt, time::SystemTime};
use x509_parser::{certificate::X509Certificate, der_parser::oid::Oid, public_key::PublicKey, time::ASN1Time};

/// Bits of an RSA key below which clients reject it (CA/Browser Forum's Baseline Requirements §6.1.5).
pub(super) const MIN_RSA_BITS: usize = 2048;

/// Reason why clients will reject a certificate, or litequic a client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateWarning {
    /// Position in the file, from 1 for the leaf.
    place: usize,
    problem: CertificateProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CertificateProblem {
    Expired(SystemTime),
    NotYetValid(SystemTime),
    WeakSignature(&'static str),
    WeakKey(usize),
    Authority,
    NoAlternativeName,
    MissingIssuer(String),
    CrlExpired(SystemTime),
    NoCrl(String),
}

impl CertificateWarning {
    /// Creates the warning that the revocation list at `place` of a file is past its `next_update` (RFC 5280 §5.1.2.5).
    pub(super) fn for_expired_crl(place: usize, next_update: SystemTime) -> Self {
        Self { place, problem: CertificateProblem::CrlExpired(next_update) }
    }

    /// Creates the warning that there are revocation lists, but none of `authority`.
    pub(super) fn for_missing_crl(authority: String) -> Self {
        Self { place: 1, problem: CertificateProblem::NoCrl(authority) }
    }
}

impl fmt::Display for CertificateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = |time: &SystemTime| httpdate::fmt_http_date(*time);
        match (&self.problem, self.place) {
            (CertificateProblem::NoCrl(authority), _) => {
                return f.write_str(&super::revocation::missing_list_warning(authority));
            }
            (CertificateProblem::CrlExpired(_), place) if place > 1 => write!(f, "revocation list {place} ")?,
            (CertificateProblem::CrlExpired(_), _) => f.write_str("the revocation list ")?,
            (_, place) if place > 1 => write!(f, "certificate {place} of the chain ")?,
            _ => f.write_str("the certificate ")?,
        }
        match &self.problem {
            CertificateProblem::Expired(end) => write!(f, "expired on {}: clients reject it", date(end)),
            CertificateProblem::NotYetValid(begin) => {
                write!(f, "is not valid before {}: clients reject it", date(begin))
            }
            CertificateProblem::WeakSignature(algorithm) => write!(f, "is signed with {algorithm}: clients reject it"),
            CertificateProblem::WeakKey(bits) => {
                write!(f, "has an RSA key of {bits} bits: clients reject less than {MIN_RSA_BITS}")
            }
            CertificateProblem::Authority => {
                f.write_str("is a CA certificate (basicConstraints CA:TRUE): some clients reject it as a server's")
            }
            CertificateProblem::NoAlternativeName => f.write_str("has no subjectAltName: clients reject it"),
            CertificateProblem::MissingIssuer(issuer) => write!(
                f,
                "is not followed by that of its issuer ({issuer}): clients reject it, unless they trust this issuer \
                 itself; append the intermediate certificates"
            ),
            // The first part of the message says everything.
            CertificateProblem::NoCrl(_) => Ok(()),
            CertificateProblem::CrlExpired(end) => {
                write!(f, "is out of date since {}: certificates of its authority are rejected", date(end))
            }
        }
    }
}

/// Facts about one certificate of a chain that lead to warnings.
#[derive(Debug, Clone)]
pub(super) struct CertificateFacts {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// Problems that do not depend on the time.
    pub(super) problems: Vec<CertificateProblem>,
}

impl CertificateFacts {
    /// Determines the facts about `certificate`; `is_leaf` if it is the first of the chain.
    pub(super) fn from_x509(certificate: &X509Certificate<'_>, is_leaf: bool) -> Self {
        // Clients do not verify a root's signature.
        let is_root = !is_leaf && certificate.subject() == certificate.issuer();
        let algorithm = &certificate.signature_algorithm.algorithm;
        let has_alternative_name = certificate.subject_alternative_name().is_ok_and(|extension| extension.is_some());
        let problems = [
            weak_algorithm(algorithm).filter(|_| !is_root).map(CertificateProblem::WeakSignature),
            rsa_bits(certificate).filter(|bits| *bits < MIN_RSA_BITS).map(CertificateProblem::WeakKey),
            (is_leaf && certificate.is_ca()).then_some(CertificateProblem::Authority),
            (is_leaf && !has_alternative_name).then_some(CertificateProblem::NoAlternativeName),
        ];
        Self {
            not_before: asn1_to_system_time(certificate.validity().not_before),
            not_after: asn1_to_system_time(certificate.validity().not_after),
            problems: problems.into_iter().flatten().collect(),
        }
    }

    /// Returns the warnings about this certificate, the one at `place` from 1, at `now`.
    pub(super) fn certificate_warnings(
        &self,
        place: usize,
        now: SystemTime,
    ) -> impl Iterator<Item = CertificateWarning> {
        let problems = [
            (now > self.not_after).then_some(CertificateProblem::Expired(self.not_after)),
            (now < self.not_before).then_some(CertificateProblem::NotYetValid(self.not_before)),
        ];
        problems
            .into_iter()
            .flatten()
            .chain(self.problems.iter().cloned())
            .map(move |problem| CertificateWarning { place, problem })
    }
}

/// Returns the bits of an RSA key; `None` for other keys.
pub(super) fn rsa_bits(certificate: &X509Certificate<'_>) -> Option<usize> {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => {
            let significant = key.modulus.iter().skip_while(|byte| **byte == 0);
            let zeroes = significant.clone().next().map_or(0, |byte| byte.leading_zeros() as usize);
            Some(significant.count() * 8 - zeroes)
        }
        _ => None,
    }
}

/// Returns the name of a signature algorithm that clients reject (RFC 6149, RFC 6151, RFC 9155).
fn weak_algorithm(algorithm: &Oid<'_>) -> Option<&'static str> {
    match algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.2" => Some("MD2"),
        "1.2.840.113549.1.1.4" | "1.3.14.3.2.25" => Some("MD5"),
        // SHA-1 with RSA, and with ECDSA.
        "1.2.840.113549.1.1.5" | "1.3.14.3.2.29" | "1.2.840.10045.4.1" => Some("SHA-1"),
        _ => None,
    }
}

/// Converts a time of a certificate or revocation list.
pub(super) fn asn1_to_system_time(time: ASN1Time) -> SystemTime {
    time.to_datetime().into()
}
