//! TLS to origins, from the files that `[origin.tls]` names: read and judged with the configuration, renewed by a
//! reload, and by itself while the configuration is rejected.

use litequic_config::{self as config, Change, Config, Findings};
use litequic_proxy as proxy;
use litequic_tls::{self as tls, OriginTlsFault, SystemRoots};
use rustls::pki_types::ServerName;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::SystemTime};

/// TLS to origins, by their names.
pub(super) type OriginsTls = BTreeMap<String, Arc<proxy::TlsToOrigin>>;

/// A fault of an origin's: its key, and the problem.
pub(super) type Fault = (String, String);

/// The table of an origin whose servers have https, with each default where it has none; `None` for another origin.
fn table(origin: &config::Origin) -> Option<config::OriginTls> {
    let is_https = origin.servers.iter().any(|server| server.address.is_https());
    is_https.then(|| origin.tls.clone().unwrap_or_default())
}

/// The path of an origin in the configuration.
fn path(name: &str) -> String {
    if name == Config::ORIGIN { name.into() } else { format!("origins.{name}") }
}

/// Every file of `config` that is read here.
pub(super) fn files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let tables = config.origins.values().filter_map(|origin| origin.tls.as_ref());
    tables.flat_map(|table| table.files().map(|(_, file)| file.clone()))
}

/// Reads the files of one origin, if its servers have https.
fn one(name: &str, origin: &config::Origin, system: &SystemRoots) -> Result<Option<tls::OriginTlsFiles>, Vec<Fault>> {
    let Some(table) = table(origin) else { return Ok(None) };
    let path = path(name);
    let hosts = origin.servers.iter().filter_map(|server| server.address.host());
    let unnamed = hosts.filter(|(host, _)| ServerName::try_from(*host).is_err());
    let of_host = |(host, _)| (format!("{path}.url"), format!("no certificate can have the name {host}: set tls.name"));
    let of_file = |fault: OriginTlsFault| {
        let key = fault.key.map_or_else(|| format!("{path}.url"), |key| format!("{path}.tls.{key}"));
        (key, fault.to_string())
    };
    let mut faults: Vec<Fault> = unnamed.filter(|_| table.name.is_none()).map(of_host).collect();
    if let Some(name) = table.name.as_ref().filter(|name| ServerName::try_from(name.as_str()).is_err()) {
        faults.push((format!("{path}.tls.name"), format!("no certificate can have the name {name}")));
    }
    match tls::OriginTlsFiles::load(&table, system) {
        Ok(tls) if faults.is_empty() => Ok(Some(tls)),
        Ok(_) => Err(faults),
        Err(of_files) => {
            faults.extend(of_files.into_iter().map(of_file));
            Err(faults)
        }
    }
}

/// What workers get of it.
fn compiled(origin: &config::Origin, tls: &tls::OriginTlsFiles) -> Arc<proxy::TlsToOrigin> {
    let name = origin.tls.as_ref().and_then(|table| ServerName::try_from(table.name.clone()?).ok());
    Arc::new(proxy::TlsToOrigin::new(Arc::clone(tls.config()), tls.digest(), name, tls::refusal))
}

/// Reads every file. Blocks on the file system.
///
/// # Errors
///
/// Every fault.
pub(super) fn read(config: &Config) -> Result<OriginsTls, Vec<Fault>> {
    read_each(config, |_, _| ())
}

/// Reads every file, with each fault and warning in `findings`; `None` if there is a fault. Blocks on the file system.
pub(super) fn load(config: &Config, findings: &mut Findings) -> Option<OriginsTls> {
    let read = read_each(config, |name, tls| {
        for (key, warning) in tls.warnings(SystemTime::now()) {
            findings.warn(&format!("{}.tls.{key}", path(name)), warning);
        }
    });
    read.map_err(|faults| faults.iter().for_each(|(key, problem)| findings.fault(key, problem))).ok()
}

/// Reads every file, and passes those of each origin that can be used to `good`.
fn read_each(config: &Config, mut good: impl FnMut(&str, &tls::OriginTlsFiles)) -> Result<OriginsTls, Vec<Fault>> {
    let (mut all, mut bad) = (OriginsTls::new(), Vec::new());
    let system = SystemRoots::default();
    for (name, origin) in &config.origins {
        match one(name, origin, &system) {
            Ok(Some(tls)) => {
                good(name, &tls);
                all.insert(name.clone(), compiled(origin, &tls));
            }
            Ok(None) => {}
            Err(faults) => bad.extend(faults),
        }
    }
    if bad.is_empty() { Ok(all) } else { Err(bad) }
}

/// Reads every file anew; an origin's that cannot be used stay as they are in `before`, for the reason that is added to
/// `kept`. Blocks on the file system.
pub(super) fn renew(config: &Config, before: &OriginsTls, kept: &mut Vec<String>) -> OriginsTls {
    let system = SystemRoots::default();
    let one = |(name, origin): (&String, &config::Origin)| match one(name, origin, &system) {
        Ok(tls) => Some((name.clone(), compiled(origin, &tls?))),
        Err(faults) => {
            kept.extend(faults.iter().map(|(key, problem)| format!("{key}: {problem}")));
            Some((name.clone(), Arc::clone(before.get(name)?)))
        }
    };
    config.origins.iter().filter_map(one).collect()
}

/// The changes of content within the same files, or of the system's roots.
pub(super) fn renewed(now: &Config, before: &OriginsTls, next: &Config, after: &OriginsTls) -> Vec<Change> {
    let changed = |(name, new): (&String, &Arc<proxy::TlsToOrigin>)| {
        let old = before.get(name)?;
        let (was, is) = (now.origins.get(name)?, next.origins.get(name)?);
        let is_renewed = was.tls == is.tls && old != new;
        is_renewed.then(|| Change { key: format!("{}.tls", path(name)), what: "certificates renewed".into() })
    };
    after.iter().filter_map(changed).collect()
}
