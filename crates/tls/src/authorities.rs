//! Loads the authorities of clients' certificates, with their revocation lists, from PEM files. The certificate store
//! holds them until a reload.

use super::certificate_error::{CertificateError, CertificateErrors};
use super::certificate_warning::asn1_to_system_time;
use super::encoding::{parse_certificates, parse_items, read_file};
use super::revocation;
use super::suites::tls13_provider;
use litequic_config::ClientCertificates;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, CertificateRevocationListDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{path::Path, sync::Arc, time::SystemTime};
use x509_parser::{prelude::FromDer, revocation_list::CertificateRevocationList};

/// Certificate authorities that verify clients' certificates.
#[derive(Clone)]
pub struct ClientAuthorities {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Contents of the files.
    roots: Vec<CertificateDer<'static>>,
    crls: Vec<CertificateRevocationListDer<'static>>,
}

impl ClientAuthorities {
    /// Loads and checks the PEM files; `None` without `ca`. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`CertificateErrors`], which name the file at fault.
    pub fn load_authorities(files: &ClientCertificates) -> Result<Option<Self>, CertificateErrors> {
        let Some(ca) = &files.ca else { return Ok(None) };
        let unusable = |file: &Path, reason: String| {
            CertificateError::new(file, |file| format!("{file} cannot be used to verify clients: {reason}"))
        };
        let roots = read_file(ca).and_then(|pem| {
            let roots = parse_certificates(&pem, ca)?;
            let mut store = RootCertStore::empty();
            for root in &roots {
                store.add(root.clone()).map_err(|error| unusable(ca, error.to_string()))?;
            }
            Ok((roots, store))
        });
        let crls = files.crl.as_ref().map_or_else(|| Ok(Vec::new()), |file| revocation::read_revocation_lists(file));
        let ((roots, store), crls) = match (roots, crls) {
            (Ok(roots), Ok(crls)) => (roots, crls),
            (roots, crls) => return Err(CertificateErrors(roots.err().into_iter().chain(crls.err()).collect())),
        };
        if let (Some(file), Some(reason)) = (&files.crl, revocation::unusable_list_reason(&crls)) {
            return Err(CertificateErrors(vec![unusable(file, reason)]));
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::new(tls13_provider()))
            .with_crls(crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| unusable(files.crl.as_ref().unwrap_or(ca), error.to_string()))?;
        Ok(Some(Self { verifier, roots, crls }))
    }

    /// Returns warnings about authorities without a revocation list, if there are any lists, and about lists past their
    /// next update at `now`. Certificates of these authorities are rejected.
    pub fn authority_warnings(&self, now: SystemTime) -> impl Iterator<Item = String> {
        let missing = revocation::authorities_without_list(&self.roots, &self.crls).into_iter();
        let missing = missing.map(|authority| revocation::missing_list_warning(&authority));
        missing.chain((1..).zip(&self.crls).filter_map(move |(place, crl)| {
            let (_, crl) = CertificateRevocationList::from_der(crl).ok()?;
            let next_update = asn1_to_system_time(crl.next_update()?);
            (next_update < now).then(|| revocation::expired_list_warning(place, next_update))
        }))
    }

    /// Whether `other` has the same authorities and lists.
    pub fn has_same_files(&self, other: &Self) -> bool {
        self.roots == other.roots && self.crls == other.crls
    }

    /// Returns the number of authorities.
    pub fn authority_count(&self) -> usize {
        self.roots.len()
    }
}

litequic_base::partial_debug!(ClientAuthorities);

/// Reads the certificates of a PEM file, and makes roots of those that can be; at least one can.
pub(super) fn read_roots(file: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), CertificateError> {
    let listed: Vec<CertificateDer<'static>> = parse_items(&read_file(file)?, file)?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(listed.iter().cloned()) {
        (0, _) => Err(CertificateError::new(file, |file| format!("{file} contains no usable certificate"))),
        _ => Ok((roots, listed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make_self_signed;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn files(ca: &tempfile::NamedTempFile, crl: Option<&tempfile::NamedTempFile>) -> ClientCertificates {
        let crl = crl.map(|file| file.path().into());
        ClientCertificates { ca: Some(ca.path().into()), crl, ..ClientCertificates::default() }
    }

    #[test]
    fn a_fault_names_its_file() {
        let made = make_self_signed(["ca"]).unwrap();
        let (good, empty, key) = (file(&made.cert_pem), file(""), file(&made.key_pem));
        let not_x509 = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let bom = file(&format!("\u{feff}{}", made.cert_pem));
        let not_crl = file("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        let old = file(revocation::tests::VERSION_1);
        let table = [
            (files(&empty, None), &empty, "contains no certificate"),
            (files(&key, None), &key, "contains no certificate"),
            (files(&not_x509, None), &not_x509, "cannot be used to verify clients: "),
            (files(&bom, None), &bom, "begins with a byte order mark"),
            (files(&good, Some(&good)), &good, "contains no certificate revocation list"),
            (files(&good, Some(&not_crl)), &not_crl, "cannot be used to verify clients: "),
            (
                files(&good, Some(&old)),
                &old,
                "cannot be used to verify clients: certificate revocation list 1 has version 1",
            ),
        ];
        for (files, at_fault, expected) in table {
            let error = ClientAuthorities::load_authorities(&files).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} {expected}", at_fault.path().display())), "{error}");
        }
        let missing = ClientCertificates { ca: Some("/nonexistent/ca.crt".into()), ..ClientCertificates::default() };
        let error = ClientAuthorities::load_authorities(&missing).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/ca.crt: "), "{error}");
    }

    #[test]
    fn authorities_are_the_same_if_they_believe_the_same() {
        let (one, other) = (make_self_signed(["one"]).unwrap(), make_self_signed(["other"]).unwrap());
        let load = |pem: &str| ClientAuthorities::load_authorities(&files(&file(pem), None)).unwrap().unwrap();
        let both = load(&(one.cert_pem.clone() + &other.cert_pem));
        assert_eq!(both.authority_count(), 2);
        assert!(load(&one.cert_pem).has_same_files(&load(&one.cert_pem)));
        assert!(!load(&one.cert_pem).has_same_files(&load(&other.cert_pem)));
        assert!(!load(&one.cert_pem).has_same_files(&both));
        assert!(ClientAuthorities::load_authorities(&ClientCertificates::default()).unwrap().is_none());
    }
}
