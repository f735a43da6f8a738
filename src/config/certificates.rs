//! `[[certificates]]` and `[client_certificates]`: whom clients believe litequic to be, and whom litequic believes about clients.

use super::{
    names::path,
    section::Section,
    table::{Table as _, file, implied, keys, required_file},
    values::{boolean, one_of},
};
use std::path::PathBuf;

/// Whom a key needs to be of use.
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
    /// Which clients show certificates, and whom litequic believes about them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClientCertificates {
        /// The authorities that may have signed a client's certificate, in PEM. Without it no client is asked for one, and no key may
        /// want one.
        ca: Option<PathBuf> = None, file(path("the path of a PEM file"));

        /// What the authorities have revoked: X.509 CRLs in PEM, one of each authority in a client's chain. A certificate of an
        /// authority without one, or with one past its next update, is refused.
        crl: Option<PathBuf> = None, file(path("the path of a PEM file"));

        /// Whether clients show a certificate, for routes that do not say. Without it `required`, once there is a `ca`.
        verify: Verify = Verify::None, implied(one_of(Verify::NAMES));

        /// Whether the origin gets `Client-Cert-Chain` beside `Client-Cert`.
        chain: bool = false, boolean();
    }
}

/// Whether a client has to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// It is not asked.
    None,
    /// It is asked, and may have none; one that does not hold is refused.
    Optional,
    /// It is refused without one.
    Required,
}

impl Verify {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] =
        &[("none", Self::None), ("optional", Self::Optional), ("required", Self::Required)];
}

/// Reads `[client_certificates]`, and says whether there is a CA, right or wrong.
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
