//! Warns about certificates that can be served but that clients will reject; only the operator knows whether this is
//! meant. nginx and HAProxy serve them too, so that one certificate does not take down the others.

use std::time::SystemTime;
use x509_parser::{certificate::X509Certificate, der_parser::oid::Oid, public_key::PublicKey, time::ASN1Time};

/// Bits of an RSA key below which clients reject it (CA/Browser Forum's Baseline Requirements §6.1.5).
pub(super) const MIN_RSA_BITS: usize = 2048;

/// Facts about one certificate of a chain that lead to warnings.
#[derive(Debug, Clone)]
pub(super) struct CertificateFacts {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// Problems that do not depend on the time, as predicates of a warning about the certificate.
    pub(super) problems: Vec<String>,
}

impl CertificateFacts {
    /// Determines the facts about `certificate`; `is_leaf` if it is the first of the chain.
    pub(super) fn from_x509(certificate: &X509Certificate<'_>, is_leaf: bool) -> Self {
        // Clients do not verify a root's signature.
        let is_root = !is_leaf && certificate.subject() == certificate.issuer();
        let algorithm = &certificate.signature_algorithm.algorithm;
        let has_alternative_name = certificate.subject_alternative_name().is_ok_and(|extension| extension.is_some());
        let problems = [
            weak_algorithm(algorithm)
                .filter(|_| !is_root)
                .map(|algorithm| format!("is signed with {algorithm}: clients reject it")),
            rsa_bits(certificate)
                .filter(|bits| *bits < MIN_RSA_BITS)
                .map(|bits| format!("has an RSA key of {bits} bits: clients reject less than {MIN_RSA_BITS}")),
            (is_leaf && certificate.is_ca()).then(|| {
                "is a CA certificate (basicConstraints CA:TRUE): some clients reject it as a server's".to_owned()
            }),
            (is_leaf && !has_alternative_name).then(|| "has no subjectAltName: clients reject it".to_owned()),
        ];
        Self {
            not_before: asn1_to_system_time(certificate.validity().not_before),
            not_after: asn1_to_system_time(certificate.validity().not_after),
            problems: problems.into_iter().flatten().collect(),
        }
    }

    /// Returns the warnings about this certificate, the one at `place` from 1, at `now`.
    pub(super) fn certificate_warnings(&self, place: usize, now: SystemTime) -> impl Iterator<Item = String> {
        let dated = |fault: &str, time| format!("{fault} {}: clients reject it", httpdate::fmt_http_date(time));
        let problems = [
            (now > self.not_after).then(|| dated("expired on", self.not_after)),
            (now < self.not_before).then(|| dated("is not valid before", self.not_before)),
        ];
        let problems = problems.into_iter().flatten().chain(self.problems.iter().cloned());
        problems.map(move |problem| match place {
            1 => format!("the certificate {problem}"),
            place => format!("certificate {place} of the chain {problem}"),
        })
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
