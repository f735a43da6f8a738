//! Renewal while the configuration is rejected: certificates, authorities, revocation lists, error pages, users and the
//! files of TLS to origins are read anew by the configuration in force, so that a bad edit does not leave clients with
//! a certificate until it expires.
//! Each is renewed by itself: one that cannot be read stays as it is.

use super::{collector_tls, origin_tls, users};
use litequic_config::Config;
use litequic_proxy::{Routing, RoutingFiles};
use litequic_telemetry::traces::CollectorTls;
use litequic_tls::{Authorities, Certificate, CertificateStore};

/// What could be read, with what could not and stays as it is.
pub(super) struct Renewal {
    pub(super) certificates: CertificateStore,
    pub(super) routing: RoutingFiles,
    pub(super) collector: Option<CollectorTls>,
    /// Why some certificates stay as they are.
    pub(super) kept: Vec<String>,
}

impl Renewal {
    /// Reads the files that `config` names; what cannot be read stays as it is in `store` and `routing`, and of the
    /// `collector`. Blocks on the file system.
    pub(super) fn read(
        config: &Config,
        store: &CertificateStore,
        routing: &Routing,
        collector: Option<CollectorTls>,
    ) -> Self {
        let mut kept = Vec::new();
        let certificates = certificates(config, store, &mut kept);
        let authorities = Authorities::load(&config.client_certificates).unwrap_or_else(|errors| {
            kept.push(errors.to_string());
            store.authorities().cloned()
        });
        let certificates = certificates.with_authorities(authorities);
        let tls = origin_tls::renew(config, routing.origin_tls(), &mut kept);
        let collector = collector_tls::read(config).unwrap_or_else(|faults| {
            kept.extend(faults.iter().map(|(key, problem)| format!("{key}: {problem}")));
            collector
        });
        let users = users::renew(config, routing.users(), &mut kept);
        let routing = RoutingFiles { pages: routing.pages().renew(config), tls, users };
        Self { certificates, routing, collector, kept }
    }
}

fn certificates(config: &Config, store: &CertificateStore, kept: &mut Vec<String>) -> CertificateStore {
    let served = store.certificates().iter().zip(&config.certificates).map(|(now, files)| {
        Certificate::load(files).unwrap_or_else(|errors| {
            kept.push(errors.to_string());
            now.clone()
        })
    });
    CertificateStore::of(served.collect())
}
