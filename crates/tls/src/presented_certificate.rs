//! Records the certificate that a server presents to `litequic get`, and the reason why it is not trusted: s2n-quic
//! reports only `invalid certificate`.

use super::{certificate::CertificateNames, certificate_warning::asn1_to_system_time};
use parking_lot::Mutex;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// The server's certificate in the last handshake. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PresentedCertificate(Arc<Mutex<Option<RecordedHandshake>>>);

#[derive(Debug)]
struct RecordedHandshake {
    leaf: CertificateDer<'static>,
    /// Number of certificates after the leaf.
    intermediates: usize,
    verified: Result<(), Error>,
}

/// Content of a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Subject of the certificate.
    pub subject: String,
    /// Issuer of the certificate.
    pub issuer: String,
    /// Names and addresses of the certificate.
    pub names: Vec<String>,
    /// Beginning of the validity.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
    /// Number of further certificates that the server sent.
    pub intermediates: usize,
    /// Whether the certificate may sign others: CA:TRUE in its basic constraints (RFC 5280 §4.2.1.9).
    pub is_authority: bool,
}

/// Reason why a server's certificate is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRejection {
    /// No trusted certificate has signed the certificate, or its chain is incomplete.
    #[error("unknown issuer: {issuer:?} is not among the trusted certificates{}", self_signed_note(*.self_signed))]
    UnknownIssuer {
        /// Issuer of the certificate.
        issuer: String,
        /// Whether the certificate is self-signed.
        self_signed: bool,
    },
    /// A trusted certificate has the issuer's name but another key, for example that of a re-created authority.
    #[error("unknown issuer: {issuer:?} is trusted, but with another key than the one that signed it")]
    OtherKey {
        /// Issuer of the certificate.
        issuer: String,
    },
    /// The certificate is for other names than the server's.
    #[error("wrong name: the certificate is for {}", join_certificate_names(.names))]
    OtherName {
        /// Names of the certificate.
        names: Vec<String>,
    },
    /// The certificate has expired.
    #[error("expired: it was valid until {}", format_http_date(*.not_after))]
    Expired {
        /// End of the validity.
        not_after: SystemTime,
    },
    /// The certificate is not valid yet, or the clock of this machine is wrong.
    #[error("not yet valid: it is valid from {} on; is this machine's clock right?", format_http_date(*.not_before))]
    NotYetValid {
        /// Beginning of the validity.
        not_before: SystemTime,
    },
    /// The certificate is an authority's, which signs servers' certificates and is not one itself. `openssl req -x509`
    /// makes such certificates.
    #[error(
        "it is a CA certificate (basicConstraints CA:TRUE), not a server's; openssl makes a server's with \
         -addext basicConstraints=critical,CA:FALSE"
    )]
    Authority,
    /// A revocation list contains the certificate, or another of the chain.
    #[error("revoked: a certificate revocation list contains it")]
    Revoked,
    /// There are revocation lists, but none of the issuer.
    #[error(
        "revocation unknown: there is no certificate revocation list of its issuer, {issuer:?}, or of another \
         authority of its chain; each needs one"
    )]
    RevocationUnknown {
        /// Issuer of the certificate.
        issuer: String,
    },
    /// The issuer's revocation list is past its next update.
    #[error("revocation unknown: the certificate revocation list of its issuer, {issuer:?}, is out of date")]
    RevocationOutdated {
        /// Issuer of the certificate.
        issuer: String,
    },
    /// Another error of rustls.
    #[error("{0}")]
    Other(String),
}

/// Formats a time as HTTP does, limited to its range: a certificate may have 1950.
pub fn format_http_date(time: SystemTime) -> String {
    let (first, last) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH.checked_add(LAST_HTTP_SECOND));
    httpdate::fmt_http_date(time.clamp(first, last.unwrap_or(first)))
}

/// Last second of the year 9999, in seconds since the Unix epoch.
const LAST_HTTP_SECOND: Duration = Duration::from_secs(253_402_300_799);

fn self_signed_note(self_signed: bool) -> &'static str {
    if self_signed { " (the certificate is self-signed)" } else { "" }
}

fn join_certificate_names(names: &[String]) -> String {
    if names.is_empty() { "no name".into() } else { names.join(", ") }
}

impl PresentedCertificate {
    /// Wraps `verifier` to record certificates and results here; without one, every certificate is accepted. A
    /// certificate in `listed` needs no issuer, and may be an authority's, as for curl's `--cacert`.
    pub(super) fn recording_verifier(
        &self,
        verifier: Option<Arc<WebPkiServerVerifier>>,
        algorithms: WebPkiSupportedAlgorithms,
        listed: Vec<CertificateDer<'static>>,
    ) -> Arc<dyn ServerCertVerifier> {
        let presented = self.clone();
        let record = move |leaf: &CertificateDer<'_>, intermediates: usize, verified: Result<(), &Error>| {
            let (leaf, verified) = (leaf.clone().into_owned(), verified.map_err(Clone::clone));
            *presented.0.lock() = Some(RecordedHandshake { leaf, intermediates, verified });
        };
        Arc::new(RecordingVerifier { verifier, algorithms, listed, record })
    }

    /// Clears the record before another handshake.
    pub fn clear_recorded(&self) {
        *self.0.lock() = None;
    }

    /// Returns the server's certificate; `None` if there was none, or it cannot be parsed.
    pub fn server_certificate(&self) -> Option<ServerCertificate> {
        self.with_recorded(|shown| ServerCertificate::from_leaf(&shown.leaf, shown.intermediates)).flatten()
    }

    /// Returns the reason why the server's certificate is not trusted; `None` if it is, or without a certificate.
    pub fn certificate_rejection(&self) -> Option<CertificateRejection> {
        let error = self.with_recorded(|shown| shown.verified.clone().err()).flatten()?;
        Some(CertificateRejection::from_rustls_error(&error, self.server_certificate()))
    }

    fn with_recorded<T>(&self, read: impl FnOnce(&RecordedHandshake) -> T) -> Option<T> {
        // Nothing panics while the lock is held.
        self.0.lock().as_ref().map(read)
    }
}

impl ServerCertificate {
    /// Parses `leaf`; `None` for an invalid certificate.
    pub(super) fn from_leaf(leaf: &CertificateDer<'_>, intermediates: usize) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
        let names = CertificateNames::from_certificate(&parsed);
        Some(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names: names.dns.into_iter().chain(names.ip.iter().map(ToString::to_string)).collect(),
            not_before: asn1_to_system_time(parsed.validity().not_before),
            not_after: asn1_to_system_time(parsed.validity().not_after),
            intermediates,
            is_authority: parsed.is_ca(),
        })
    }
}

impl CertificateRejection {
    /// Converts rustls' `error` about `certificate`. The error may be about another certificate of the chain.
    pub(super) fn from_rustls_error(error: &Error, certificate: Option<ServerCertificate>) -> Self {
        let Error::InvalidCertificate(reason) = error else { return Self::Other(error.to_string()) };
        match (reason, certificate) {
            (CertificateError::UnknownIssuer, Some(ServerCertificate { issuer, subject, .. })) => {
                Self::UnknownIssuer { self_signed: issuer == subject, issuer }
            }
            // A trusted authority has the issuer's name; its key may be of another kind.
            (
                CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
                Some(ServerCertificate { issuer, .. }),
            ) => Self::OtherKey { issuer },
            (
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                Some(ServerCertificate { names, .. }),
            ) => Self::OtherName { names },
            (CertificateError::ExpiredContext { not_after, .. }, _) => {
                Self::Expired { not_after: unix_to_system_time(*not_after) }
            }
            (CertificateError::Expired, Some(ServerCertificate { not_after, .. })) => Self::Expired { not_after },
            (CertificateError::NotValidYetContext { not_before, .. }, _) => {
                Self::NotYetValid { not_before: unix_to_system_time(*not_before) }
            }
            (CertificateError::NotValidYet, Some(ServerCertificate { not_before, .. })) => {
                Self::NotYetValid { not_before }
            }
            (CertificateError::Revoked, _) => Self::Revoked,
            (CertificateError::UnknownRevocationStatus, Some(ServerCertificate { issuer, .. })) => {
                Self::RevocationUnknown { issuer }
            }
            (
                CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. },
                Some(ServerCertificate { issuer, .. }),
            ) => Self::RevocationOutdated { issuer },
            // This is an error of webpki without a name in rustls.
            (CertificateError::Other(_), Some(ServerCertificate { is_authority: true, .. })) => Self::Authority,
            (reason, _) => Self::Other(reason.to_string()),
        }
    }
}

fn unix_to_system_time(time: UnixTime) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs())).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Checks dates and names of a certificate that needs no issuer.
fn verify_listed(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<ServerCertVerified, Error> {
    let certificate = ServerCertificate::from_leaf(leaf, 0).ok_or(CertificateError::BadEncoding)?;
    let now = unix_to_system_time(now);
    if now > certificate.not_after {
        return Err(CertificateError::Expired.into());
    }
    if now < certificate.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
    Ok(ServerCertVerified::assertion())
}

/// Wraps a verifier, and records each certificate with the result.
pub(super) struct RecordingVerifier<F> {
    /// `None` accepts every certificate: the connection is encrypted, but the server is not authenticated.
    pub(super) verifier: Option<Arc<WebPkiServerVerifier>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Servers' certificates that need no issuer, and may be an authority's.
    pub(super) listed: Vec<CertificateDer<'static>>,
    /// Records a certificate, the number of its intermediates, and the result.
    pub(super) record: F,
}

litequic_base::partial_debug!(RecordingVerifier<F> { verifier });

impl<F> ServerCertVerifier for RecordingVerifier<F>
where
    F: Fn(&CertificateDer<'_>, usize, Result<(), &Error>) + Send + Sync + 'static,
{
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = match &self.verifier {
            Some(verifier) => verifier.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        };
        let outcome = match verified {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)))
                if self.listed.iter().any(|listed| listed == leaf) =>
            {
                verify_listed(leaf, name, now)
            }
            outcome => outcome,
        };
        (self.record)(leaf, intermediates.len(), outcome.as_ref().map(|_| ()));
        outcome
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make_self_signed;
    use rustls::pki_types::pem::PemObject;

    fn certificate() -> ServerCertificate {
        let made = make_self_signed(["localhost", "127.0.0.1"]).unwrap();
        let leaf = CertificateDer::from_pem_slice(made.cert_pem.as_bytes()).unwrap();
        ServerCertificate::from_leaf(&leaf, 2).unwrap()
    }

    #[test]
    fn a_certificate_is_read_as_people_want_it() {
        let certificate = certificate();
        assert_eq!(certificate.names, ["localhost", "127.0.0.1"]);
        assert_eq!((&certificate.subject, certificate.intermediates), (&certificate.issuer, 2));
        assert!(certificate.not_before < certificate.not_after);
        assert_eq!(ServerCertificate::from_leaf(&CertificateDer::from(vec![0x30, 0x01]), 0), None);
    }

    /// Makes a certificate like `openssl req -x509`: self-signed, and an authority's.
    fn authority() -> CertificateDer<'static> {
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_ca_certificate_is_accepted_as_a_servers_only_if_listed() {
        let leaf = authority();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(leaf.clone()).unwrap();
        let provider = Arc::new(crate::suites::tls13_provider());
        let algorithms = provider.signature_verification_algorithms;
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let verify = |listed: &[CertificateDer<'static>], name: &str, now: UnixTime| {
            let presented = PresentedCertificate::default();
            let verifier = presented.recording_verifier(Some(Arc::clone(&webpki)), algorithms, listed.to_vec());
            let _ = verifier.verify_server_cert(&leaf, &[], &ServerName::try_from(name.to_owned()).unwrap(), &[], now);
            presented.certificate_rejection().map(|distrust| distrust.to_string())
        };
        let listed = [leaf.clone()];
        assert_eq!(verify(&listed, "localhost", UnixTime::now()), None);
        let reason = verify(&[], "localhost", UnixTime::now()).unwrap();
        assert!(reason.starts_with("it is a CA certificate"), "{reason}");
        let reason = verify(&listed, "other.test", UnixTime::now()).unwrap();
        assert!(reason.starts_with("wrong name: the certificate is for localhost"), "{reason}");
        let reason = verify(&listed, "localhost", UnixTime::since_unix_epoch(LAST_HTTP_SECOND)).unwrap();
        assert!(reason.starts_with("expired"), "{reason}");
    }

    #[test]
    fn a_date_that_http_cannot_say_is_the_nearest_that_it_can() {
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        assert_eq!(format_http_date(SystemTime::UNIX_EPOCH - century), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_http_date(SystemTime::UNIX_EPOCH + 100 * century), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn each_reason_has_its_own_message() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let time = UnixTime::since_unix_epoch(Duration::from_secs(784_111_777));
        let name = ServerName::try_from("other.test").unwrap();
        let table = [
            (CertificateError::UnknownIssuer, "unknown issuer: ", "self-signed"),
            (CertificateError::NotValidForName, "wrong name: the certificate is for ", "localhost, 127.0.0.1"),
            (
                CertificateError::NotValidForNameContext { expected: name, presented: Vec::new() },
                "wrong name: the certificate is for ",
                "localhost, 127.0.0.1",
            ),
            (CertificateError::ExpiredContext { time, not_after: time }, "expired: it was valid until ", date),
            (CertificateError::Expired, "expired: it was valid until ", "GMT"),
            (CertificateError::NotValidYetContext { time, not_before: time }, "not yet valid: ", date),
            (CertificateError::NotValidYet, "not yet valid: ", "clock"),
            (CertificateError::BadSignature, "unknown issuer: ", "another key"),
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![6, 1, 1],
                    public_key_algorithm_id: vec![6, 1, 2],
                },
                "unknown issuer: ",
                "another key",
            ),
            (CertificateError::Revoked, "revoked: ", "list"),
            (CertificateError::UnknownRevocationStatus, "revocation unknown: ", "there is no"),
            (CertificateError::ExpiredRevocationList, "revocation unknown: ", "out of date"),
            (CertificateError::BadEncoding, "", "BadEncoding"),
        ];
        for (reason, begins, holds) in table {
            let error = Error::InvalidCertificate(reason);
            let text = CertificateRejection::from_rustls_error(&error, Some(certificate())).to_string();
            assert!(text.starts_with(begins) && text.contains(holds), "{error:?}: {text}");
        }
        let alert = Error::General("no".into());
        assert_eq!(
            CertificateRejection::from_rustls_error(&alert, None),
            CertificateRejection::Other(alert.to_string())
        );
    }
}
