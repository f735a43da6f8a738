//! Loads TLS to the collector of spans, from the file that `traces.ca` names: read with the configuration, renewed by a
//! reload.

use super::origin_tls::KeyedFault;
use litequic_config::{Config, OriginTls, TraceProtocol};
use litequic_telemetry::traces::CollectorTls;
use litequic_tls::{OriginTlsFiles, SystemRoots};
use rustls::pki_types::ServerName;
use std::sync::Arc;

/// Key of the file with the CA certificates; faults of the system's roots are reported at this key too.
pub(super) const TRACES_CA_KEY: &str = "traces.ca";

/// Reads TLS to the collector; `None` if the collector needs no TLS. Blocks on the file system.
///
/// # Errors
///
/// Every fault of the file and of the endpoint's name.
pub(super) fn read_collector_tls(config: &Config) -> Result<Option<CollectorTls>, Vec<KeyedFault>> {
    let traces = &config.traces;
    let Some(endpoint) = traces.endpoint.as_ref().filter(|endpoint| endpoint.is_https) else { return Ok(None) };
    if ServerName::try_from(endpoint.host.as_str()).is_err() {
        let problem = format!("{} is not a valid name for a certificate", endpoint.host);
        return Err(vec![("traces.endpoint".into(), problem)]);
    }
    let table = OriginTls { ca: traces.ca.clone(), ..OriginTls::default() };
    let files = OriginTlsFiles::load_tls_files(&table, &SystemRoots::default());
    let files = files
        .map_err(|faults| faults.iter().map(|fault| (TRACES_CA_KEY.into(), fault.to_string())).collect::<Vec<_>>())?;
    let mut config = (*files.config).clone();
    config.alpn_protocols = match endpoint.protocol {
        TraceProtocol::Http => vec![b"http/1.1".to_vec()],
        TraceProtocol::Grpc => vec![b"h2".to_vec()],
    };
    Ok(Some(CollectorTls { config: Arc::new(config), digest: files.digest }))
}
