//! Renewal while the configuration is rejected: certificates, authorities, revocation lists and error pages are read
//! anew by the configuration in force, so that a bad edit does not leave clients with a certificate until it expires.
//! Each is renewed by itself: one that cannot be read stays as it is.

use crate::{
    config::Config,
    proxy::Pages,
    tls::{Authorities, Certificate, CertificateErrors, CertificateStore},
};

/// What could be read, with what could not and stays as it is.
pub(super) struct Renewal {
    pub(super) certificates: CertificateStore,
    pub(super) pages: Pages,
    /// Why some certificates stay as they are.
    pub(super) kept: Vec<CertificateErrors>,
}

impl Renewal {
    /// Reads the files that `config` names; what cannot be read stays as it is in `store` and `pages`. Blocks on the
    /// file system.
    pub(super) fn read(config: &Config, store: &CertificateStore, pages: &Pages) -> Self {
        let mut kept = Vec::new();
        let certificates = certificates(config, store, &mut kept);
        let authorities = Authorities::load(&config.client_certificates).unwrap_or_else(|errors| {
            kept.push(errors);
            store.authorities().cloned()
        });
        let certificates = certificates.with_authorities(authorities);
        Self { certificates, pages: pages.renew(config), kept }
    }
}

fn certificates(config: &Config, store: &CertificateStore, kept: &mut Vec<CertificateErrors>) -> CertificateStore {
    let served = store.certificates().iter().zip(&config.certificates).map(|(now, files)| {
        Certificate::load(files).unwrap_or_else(|errors| {
            kept.push(errors);
            now.clone()
        })
    });
    CertificateStore::of(served.collect())
}
