//! Loads TLS to origins, from the files that `[origin.tls]` names: read with the configuration, renewed by a reload,
//! and on its own while the configuration is rejected.

use litequic_config::{self as config, Config, ConfigChange, FaultCollector};
use litequic_proxy as proxy;
use litequic_tls::{self as tls, OriginTlsFault, SystemRoots};
use rustls::pki_types::ServerName;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::SystemTime};

/// TLS configurations by the name of the origin.
pub(super) type OriginsTls = BTreeMap<String, Arc<proxy::TlsToOrigin>>;

/// Key and problem of a fault.
pub(super) type KeyedFault = (String, String);

/// TLS table of an origin whose servers have https, with defaults; `None` for another origin.
fn https_table(origin: &config::OriginConfig) -> Option<config::OriginTls> {
    let is_https = origin.servers.iter().any(|server| server.address.is_https());
    is_https.then(|| origin.tls.clone().unwrap_or_default())
}

/// Key prefix of an origin in the configuration.
fn origin_key(name: &str) -> String {
    if name == Config::ORIGIN_NAME { name.into() } else { format!("origins.{name}") }
}

/// All files that TLS to origins needs.
pub(super) fn origin_tls_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let tables = config.origins.values().filter_map(|origin| origin.tls.as_ref());
    tables.flat_map(|table| table.named_files().map(|(_, file)| file.clone()))
}

/// Reads the files of one origin; `None` if its servers have no https.
fn read_one_origin(
    name: &str,
    origin: &config::OriginConfig,
    system: &SystemRoots,
) -> Result<Option<tls::OriginTlsFiles>, Vec<KeyedFault>> {
    let Some(table) = https_table(origin) else { return Ok(None) };
    let path = origin_key(name);
    let hosts = origin.servers.iter().filter_map(|server| server.address.host_and_port());
    let unnamed = hosts.filter(|(host, _)| ServerName::try_from(*host).is_err());
    let of_host =
        |(host, _)| (format!("{path}.url"), format!("{host} is not a valid name for a certificate; set tls.name"));
    let of_file = |fault: OriginTlsFault| {
        let key = fault.key.map_or_else(|| format!("{path}.url"), |key| format!("{path}.tls.{key}"));
        (key, fault.to_string())
    };
    let mut faults: Vec<KeyedFault> = unnamed.filter(|_| table.name.is_none()).map(of_host).collect();
    if let Some(name) = table.name.as_ref().filter(|name| ServerName::try_from(name.as_str()).is_err()) {
        faults.push((format!("{path}.tls.name"), format!("{name} is not a valid name for a certificate")));
    }
    match tls::OriginTlsFiles::load_tls_files(&table, system) {
        Ok(tls) if faults.is_empty() => Ok(Some(tls)),
        Ok(_) => Err(faults),
        Err(of_files) => {
            faults.extend(of_files.into_iter().map(of_file));
            Err(faults)
        }
    }
}

/// Converts the files of an origin to the configuration that workers use.
fn compile_origin_tls(origin: &config::OriginConfig, tls: &tls::OriginTlsFiles) -> Arc<proxy::TlsToOrigin> {
    let name = origin.tls.as_ref().and_then(|table| ServerName::try_from(table.name.clone()?).ok());
    Arc::new(proxy::TlsToOrigin::new(Arc::clone(&tls.config), tls.digest, name, tls::take_rejection_reason))
}

/// Reads TLS to all origins, and adds each fault and warning to `findings`; `None` if there is a fault. Blocks on the
/// file system.
pub(super) fn load_origin_tls(config: &Config, findings: &mut FaultCollector) -> Option<OriginsTls> {
    let (mut all, mut is_good) = (OriginsTls::new(), true);
    let system = SystemRoots::default();
    for (name, origin) in &config.origins {
        match read_one_origin(name, origin, &system) {
            Ok(Some(tls)) => {
                for (key, warning) in tls.origin_tls_warnings(SystemTime::now()) {
                    findings.add_warning(&format!("{}.tls.{key}", origin_key(name)), warning);
                }
                all.insert(name.clone(), compile_origin_tls(origin, &tls));
            }
            Ok(None) => {}
            Err(faults) => {
                is_good = false;
                faults.iter().for_each(|(key, problem)| findings.add_fault(key, problem));
            }
        }
    }
    is_good.then_some(all)
}

/// Reads TLS to all origins anew; an origin with a fault keeps its value of `before`, and the fault is added to `kept`.
/// Blocks on the file system.
pub(super) fn renew_origin_tls(config: &Config, before: &OriginsTls, kept: &mut Vec<String>) -> OriginsTls {
    let system = SystemRoots::default();
    let one = |(name, origin): (&String, &config::OriginConfig)| match read_one_origin(name, origin, &system) {
        Ok(tls) => Some((name.clone(), compile_origin_tls(origin, &tls?))),
        Err(faults) => {
            kept.extend(faults.iter().map(|(key, problem)| format!("{key}: {problem}")));
            Some((name.clone(), Arc::clone(before.get(name)?)))
        }
    };
    config.origins.iter().filter_map(one).collect()
}

/// Changes of content within the same files, or of the system's roots.
pub(super) fn renewed_origin_tls(
    now: &Config,
    before: &OriginsTls,
    next: &Config,
    after: &OriginsTls,
) -> Vec<ConfigChange> {
    let changed = |(name, new): (&String, &Arc<proxy::TlsToOrigin>)| {
        let old = before.get(name)?;
        let (was, is) = (now.origins.get(name)?, next.origins.get(name)?);
        let is_renewed = was.tls == is.tls && old != new;
        is_renewed
            .then(|| ConfigChange { key: format!("{}.tls", origin_key(name)), what: "certificates renewed".into() })
    };
    after.iter().filter_map(changed).collect()
}
