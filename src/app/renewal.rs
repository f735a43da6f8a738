//! Renews files while the configuration is rejected: certificates, authorities, revocation lists, error pages, users
//! and TLS to origins are read by the configuration in force, so that a bad edit does not leave clients with an
//! expiring certificate. A file that cannot be read keeps its former content.

use super::{collector_tls, origin_tls, users};
use litequic_config::Config;
use litequic_proxy::{Routing, RoutingFiles};
use litequic_telemetry::traces::CollectorTls;
use litequic_tls::{CertificateStore, ClientAuthorities, LoadedCertificate};

/// Renewed content of all files, and the failures.
pub(super) struct Renewal {
    pub(super) certificates: CertificateStore,
    pub(super) routing: RoutingFiles,
    pub(super) collector: Option<CollectorTls>,
    /// Errors of files that keep their former content.
    pub(super) failures: Vec<String>,
}

impl Renewal {
    /// Reads the files that `config` names; files that cannot be read keep their content of `store`, `routing` and
    /// `collector`. Blocks on the file system.
    pub(super) fn from_files(
        config: &Config,
        store: &CertificateStore,
        routing: &Routing,
        collector: Option<CollectorTls>,
    ) -> Self {
        let mut kept = Vec::new();
        let certificates = renew_certificates(config, store, &mut kept);
        let authorities = ClientAuthorities::load_authorities(&config.client_certificates).unwrap_or_else(|errors| {
            kept.push(errors.to_string());
            store.authorities.clone()
        });
        let certificates = certificates.with_authorities(authorities);
        let tls = origin_tls::renew_origin_tls(config, &routing.files.tls, &mut kept);
        let collector = collector_tls::read_collector_tls(config).unwrap_or_else(|faults| {
            kept.extend(faults.iter().map(|(key, problem)| format!("{key}: {problem}")));
            collector
        });
        let users = users::renew_users(config, &routing.files.users, &mut kept);
        let routing = RoutingFiles { pages: routing.files.pages.reload_pages(config), tls, users };
        Self { certificates, routing, collector, failures: kept }
    }
}

fn renew_certificates(config: &Config, store: &CertificateStore, kept: &mut Vec<String>) -> CertificateStore {
    let served = store.file_certificates().iter().zip(&config.certificates).map(|(now, files)| {
        LoadedCertificate::load_certificate(files).unwrap_or_else(|errors| {
            kept.push(errors.to_string());
            now.clone()
        })
    });
    CertificateStore::from_file_certificates(served.collect())
}
