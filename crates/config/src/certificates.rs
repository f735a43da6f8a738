//! Defines `[[certificates]]` and `[client_certificates]`: litequic's certificates, and the authorities for those of
//! clients.

use crate::reading::{
    name_kinds::path_kind,
    section::ConfigSection,
    table::{KeyTable as _, derived_default, file_key, keys, required_file_key},
    value_kinds::one_of,
};
use litequic_base::named_enum;
use std::path::PathBuf;

/// Expected value in the fault of a key that needs a CA.
pub(super) const EXPECTED_CA: &str = "client_certificates.ca, the path of a PEM file";

keys! {
    /// A table of `[[certificates]]`: PEM files. A missing or invalid path is empty.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CertificateFiles {
        /// File with the certificate chain, leaf first, in PEM.
        cert: PathBuf = PathBuf::new(), required_file_key(path_kind("the path of a PEM file"));

        /// File with the leaf's private key, in PEM.
        key: PathBuf = PathBuf::new(), required_file_key(path_kind("the path of a PEM file"));
    }
}

keys! {
    /// Client certificates: whether they are required, and the certificate authorities that sign them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClientCertificates {
        /// File with the certificate authorities (CAs) that sign clients' certificates, in PEM. Without it, no client
        /// is asked for a certificate, and no key may require one.
        ca: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// File with revocation lists: X.509 CRLs in PEM, one for each CA in a client's chain. A certificate is
        /// rejected if its CA has no list here, or if that list is past its next update.
        crl: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// Whether clients present a certificate, on routes without their own `client_certificate`. By default
        /// `required` if `ca` is set.
        verify: VerifyMode = VerifyMode::None, derived_default(one_of(VerifyMode::NAMES));
    }
}

named_enum! {
    /// Whether clients present certificates: `client_certificates.verify`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum VerifyMode {
        /// No certificate is requested.
        #[default]
        None = "none",
        /// A certificate is requested but not required; an invalid one is rejected.
        Optional = "optional",
        /// A certificate is requested, and a connection without one is rejected.
        Required = "required",
    }
}

/// Reads `[client_certificates]`, and returns whether there is a CA, valid or not.
pub(super) fn read_client_certificates(section: &mut ConfigSection<'_>) -> (ClientCertificates, bool) {
    let mut certificates = ClientCertificates::read_table(section);
    let has_ca = section.has_key("ca");
    if !has_ca {
        let asks = certificates.verify != VerifyMode::None;
        let useless = [("verify", asks), ("crl", true)];
        for (key, _) in useless.into_iter().filter(|(_, is_useless)| *is_useless) {
            section.note_fault_expecting(key, "has no effect without client_certificates.ca", EXPECTED_CA);
        }
    }
    if certificates.ca.is_some() && !section.has_key("verify") {
        certificates.verify = VerifyMode::Required;
    }
    (certificates, has_ca)
}
