//! `[[certificates]]` and `[client_certificates]`: litequic's certificates, and the authorities for those of clients.

use super::{
    names::path,
    section::Section,
    table::{Table as _, file, implied, keys, required_file},
    values::{boolean, one_of},
};
use std::path::PathBuf;

/// What a key needs to have an effect.
pub(super) const WITH_CA: &str = "client_certificates.ca, the path of a PEM file";

keys! {
    /// One of `[[certificates]]`: PEM files. A path that is missing or wrong is empty.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CertificateFiles {
        /// The chain, leaf first, in PEM.
        cert: PathBuf = PathBuf::new(), required_file(path("the path of a PEM file"));

        /// The leaf's private key, in PEM.
        key: PathBuf = PathBuf::new(), required_file(path("the path of a PEM file"));
    }
}

keys! {
    /// Whether clients present certificates, and the certificate authorities that verify them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClientCertificates {
        /// The authorities that may have signed a client's certificate, in PEM. Without it no client is asked for one,
        /// and no key may require one.
        ca: Option<PathBuf> = None, file(path("the path of a PEM file"));

        /// The authorities' revocation lists: X.509 CRLs in PEM, one of each authority in a client's chain. A
        /// certificate of an authority without one, or with one past its next update, is rejected.
        crl: Option<PathBuf> = None, file(path("the path of a PEM file"));

        /// Whether clients present a certificate, for routes without a setting of their own. Without it `required`,
        /// once there is a `ca`.
        verify: Verify = Verify::None, implied(one_of(Verify::NAMES));

        /// Whether the origin gets `Client-Cert-Chain` beside `Client-Cert`.
        chain: bool = false, boolean();
    }
}

/// Whether a client has to present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// It is not asked.
    None,
    /// It is asked, and need not have one; an invalid one is rejected.
    Optional,
    /// Its connection is rejected without one.
    Required,
}

impl Verify {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] =
        &[("none", Self::None), ("optional", Self::Optional), ("required", Self::Required)];
}

/// Reads `[client_certificates]`, and returns whether there is a CA, valid or not.
pub(super) fn read(section: &mut Section<'_>) -> (ClientCertificates, bool) {
    let mut certificates = ClientCertificates::read(section);
    let has_ca = section.has("ca");
    if !has_ca {
        let asks = certificates.verify != Verify::None;
        let useless = [("verify", asks), ("crl", true), ("chain", certificates.chain)];
        for (key, _) in useless.into_iter().filter(|(_, is_useless)| *is_useless) {
            section.fault(key, "has no effect without an authority", Some(WITH_CA), None);
        }
    }
    if certificates.ca.is_some() && !section.has("verify") {
        certificates.verify = Verify::Required;
    }
    (certificates, has_ca)
}
