//! Reads and checks the files that a configuration names, together with it: `check`, `run` and a reload report the same
//! faults, all at once, each with its position. Faults beyond files (an address in use, an unknown name, an unreachable
//! origin) show when the process runs.

use super::{acme_files, collector_tls, descriptors, origin_tls, replica::own_replica, start_error::NO_REPLICA, users};
use litequic_admin::{Token, TokenError};
use litequic_config::{
    self as config, Config, ConfigFaults, ConfigWarning, FaultCollector, HeaderRules, LogTarget, OriginConfig,
    OriginProtocol, ParsedConfig, ProxyProtocolUdp, RouteTarget, Template,
};
use litequic_proxy::{Pages, RoutingFiles};
use litequic_quic::{Secrets, ServerIdKey};
use litequic_telemetry::traces::CollectorTls;
use litequic_tls::{CertificateError, CertificateStore, ClientAuthorities, LoadedCertificate, UnservedCertificate};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Configuration without a fault, and the content of its files.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// Certificates, with the authorities that verify clients' certificates.
    pub certificates: CertificateStore,
    /// Error pages, TLS to origins, and users.
    pub routing: RoutingFiles,
    /// TLS to the collector of spans.
    pub collector: Option<CollectorTls>,
    /// The key of `[listen.server_id]`, unless its file can be read once only.
    pub server_id_key: Option<ServerIdKey>,
    /// Problems that do not prevent the use of the configuration.
    pub warnings: Vec<ConfigWarning>,
}

/// Reads every file that `draft` names, even if `draft` has faults itself. Binds and creates nothing. Blocks on the
/// file system.
///
/// # Errors
///
/// Every fault of the configuration and of the files, in the configuration's order.
pub fn load_files(draft: ParsedConfig) -> Result<LoadedConfig, ConfigFaults> {
    let ParsedConfig { config, faults: mut findings } = draft;
    let read = config.and_then(|mut config| {
        if !system_has_ipv6() {
            replace_ipv6_wildcards(&mut config, &mut findings);
        }
        let certificates = load_certificates(&config, &mut findings);
        acme_files::check_acme(&config, certificates.as_ref(), &mut findings);
        let content = load_content(&config, &mut findings);
        check_secret_file(&config, &mut findings);
        let server_id_key = check_server_id_key(&config, &mut findings);
        check_token(&config, &mut findings);
        check_access_log(&config, &mut findings);
        check_unix_sockets(&config, &mut findings);
        warn_ambiguous_routes(&config, &mut findings);
        warn_named_addresses(&config, &mut findings);
        warn_futile_upgrades(&config, &mut findings);
        warn_foreign_variables(&config, &mut findings);
        descriptors::warn_unreachable_keys(&config, &mut findings);
        let (routing, collector) = content?;
        Some((config, certificates?, routing, collector, server_id_key))
    });
    let ((config, certificates, routing, collector, server_id_key), warnings) = findings.into_result(read)?;
    Ok(LoadedConfig { config, certificates, routing, collector, server_id_key, warnings })
}

/// Reads the files for requests, and TLS to the collector of spans, and adds each fault to `findings`; `None` if there
/// is a fault. Blocks on the file system.
pub(super) fn load_content(
    config: &Config,
    findings: &mut FaultCollector,
) -> Option<(RoutingFiles, Option<CollectorTls>)> {
    let pages = load_pages(config, findings);
    let tls = origin_tls::load_origin_tls(config, findings);
    let users = users::load_users(config, findings);
    let collector = collector_tls::read_collector_tls(config)
        .map_err(|faults| faults.iter().for_each(|(key, problem)| findings.add_fault(key, problem)))
        .ok()?;
    Some((RoutingFiles { pages: pages?, tls: tls?, users: users? }, collector))
}

/// Returns whether the kernel, or a filter of system calls, has IPv6.
fn system_has_ipv6() -> bool {
    let error = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).err().and_then(|error| error.raw_os_error());
    error != Some(libc::EAFNOSUPPORT)
}

/// Replaces `[::]`, which includes IPv4, by `0.0.0.0`, with a warning.
fn replace_ipv6_wildcards(config: &mut Config, findings: &mut FaultCollector) {
    let (listen, admin) = (&mut config.listen, &mut config.admin);
    let mut replaced = Vec::new();
    let keys =
        [("listen.udp", &mut listen.udp), ("listen.tcp", &mut listen.tcp), ("listen.redirect", &mut listen.redirect)];
    let addresses =
        keys.into_iter().flat_map(|(key, addresses)| addresses.iter_mut().map(move |address| (key, address)));
    let admin = [("admin.listen", admin.listen.as_mut()), ("admin.probes", admin.probes.as_mut())];
    let admin = admin.into_iter().filter_map(|(key, address)| Some((key, address?)));
    for (key, address) in addresses.chain(admin).filter(|(_, address)| address.ip() == Ipv6Addr::UNSPECIFIED) {
        address.set_ip(Ipv4Addr::UNSPECIFIED.into());
        replaced.push(key);
    }
    if let Some(key) = replaced.first() {
        findings.add_warning(key, "this system has no IPv6: listening on 0.0.0.0 instead of [::]");
    }
}

/// All files that `config` names and a reload reads.
pub(super) fn reloadable_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let served = config.certificates.iter().flat_map(|files| [&files.cert, &files.key]);
    let clients = [&config.client_certificates.ca, &config.client_certificates.crl];
    let key = config.listen.server_id.iter().filter_map(|server_id| server_id.key_file.as_ref());
    let files = served.chain(clients.into_iter().flatten()).chain(key).cloned().chain(Pages::page_files(config));
    let files = files
        .chain(origin_tls::origin_tls_files(config))
        .chain(users::user_files(config))
        .chain(config.traces.ca.clone());
    // A faulty key leaves an empty path.
    files.filter(|file| !file.as_os_str().is_empty())
}

fn load_certificates(config: &Config, findings: &mut FaultCollector) -> Option<CertificateStore> {
    let now = SystemTime::now();
    let mut served = Vec::new();
    for (n, files) in config.certificates.iter().enumerate() {
        match LoadedCertificate::load_certificate(files) {
            Ok(certificate) => {
                for warning in certificate.chain_warnings(now) {
                    findings.add_warning(&format!("certificates[{n}].cert"), warning);
                }
                served.push(certificate);
            }
            Err(errors) => {
                for error in errors.0.iter().filter(|error| !error.file.as_os_str().is_empty()) {
                    let key = if error.file == files.key { "key" } else { "cert" };
                    findings.add_fault(&format!("certificates[{n}].{key}"), error);
                }
            }
        }
    }
    let clients = &config.client_certificates;
    let authorities = match ClientAuthorities::load_authorities(clients) {
        Ok(authorities) => authorities,
        Err(errors) => {
            for error in &errors.0 {
                findings.add_fault(client_certificates_key(config, error), error);
            }
            return None;
        }
    };
    for warning in authorities.iter().flat_map(|authorities| authorities.authority_warnings(now)) {
        findings.add_warning("client_certificates.crl", warning);
    }
    if served.len() < config.certificates.len() || (served.is_empty() && config.acme.is_empty()) {
        return None;
    }
    let store = CertificateStore::from_file_certificates(served).with_authorities(authorities);
    warn_unserved(&store, findings);
    warn_uncovered_hosts(config, &store, findings);
    Some(store)
}

/// The key of `[client_certificates]` whose file is at fault.
fn client_certificates_key(config: &Config, error: &CertificateError) -> &'static str {
    let is_crl = config.client_certificates.crl.as_ref() == Some(&error.file);
    if is_crl { "client_certificates.crl" } else { "client_certificates.ca" }
}

/// Warns of certificates that no client gets.
fn warn_unserved(store: &CertificateStore, findings: &mut FaultCollector) {
    for UnservedCertificate { position: place, instead } in store.find_unserved() {
        let instead: Vec<_> = instead.iter().map(|place| format!("certificates[{place}]")).collect();
        let reason = match &instead[..] {
            [] => "the certificate has no name".into(),
            [one] => format!("{one} has the same names, and a key of the same algorithm"),
            several => format!("{} have the same names, and keys of the same algorithm", several.join(" and ")),
        };
        findings
            .add_warning(&format!("certificates[{place}].cert"), format!("no client gets this certificate: {reason}"));
    }
}

/// Warns of hosts of routes that no certificate covers.
fn warn_uncovered_hosts(config: &Config, store: &CertificateStore, findings: &mut FaultCollector) {
    for (n, route) in config.routes.iter().enumerate() {
        let is_uncovered = |host: &&str| !store.covers_route_host(host) && !acme_files::obtains_host(config, host);
        if let Some(host) = route.host.as_deref().filter(is_uncovered) {
            let problem = format!(
                "no certificate has the name {host}: clients that request it get another certificate, and reject it"
            );
            findings.add_warning(&format!("routes[{n}].host"), problem);
        }
    }
}

/// Warns of routes that match the same requests, of which the first one in the file wins, and of those with access
/// rules for one spelling of a path.
fn warn_ambiguous_routes(config: &Config, findings: &mut FaultCollector) {
    let names = config::RouteConfig::unique_route_names(&config.routes);
    for (first, second) in config::find_ambiguous_routes(&config.routes) {
        let Some(name) = names.get(first) else { continue };
        let problem = format!(
            "a request can match both this and routes[{first}] ({name}), which comes first in the file and gets the \
             request"
        );
        findings.add_warning(&format!("routes[{second}].match"), problem);
    }
    for (first, second) in config::find_bypassed_paths(&config.routes) {
        let Some(name) = names.get(second) else { continue };
        let problem = format!(
            "routes[{second}] ({name}) has other access rules, and sends other spellings of this path to the same origin, \
             such as with a slash at its end: use path_prefix"
        );
        findings.add_warning(&format!("routes[{first}].path"), problem);
    }
}

/// Warns of routes whose access depends on addresses that clients behind a load balancer may forge.
fn warn_named_addresses(config: &Config, findings: &mut FaultCollector) {
    if !matches!(config.listen.proxy_protocol_udp, ProxyProtocolUdp::First(_)) {
        return;
    }
    let problem = "depends on the client's address, which a client may choose behind a load balancer with \
                   listen.proxy_protocol_udp = \"first\"";
    for (n, route) in config.routes.iter().enumerate() {
        for (key, is_set) in [("allow", route.allow.is_some()), ("deny", !route.deny.is_empty())] {
            if is_set {
                findings.add_warning(&format!("routes[{n}].{key}"), problem);
            }
        }
    }
}

/// Warns of routes that permit protocols to which their origin cannot switch: HTTP/2 has no `Upgrade`, and without TLS
/// no choice of HTTP/1.1.
fn warn_futile_upgrades(config: &Config, findings: &mut FaultCollector) {
    for (n, route) in config.routes.iter().enumerate() {
        let origin = route.target_origin().and_then(|name| config.origins.get(name));
        let is_futile = |origin: &OriginConfig| {
            origin.protocol == OriginProtocol::Http2 && !origin.servers.iter().any(|server| server.address.is_https())
        };
        let key = format!("routes[{n}].upgrade");
        if origin.is_some_and(is_futile) && !route.upgrade.is_empty() && findings.is_in_file(&key) {
            let problem = "has no effect: the origin has protocol = \"h2\" without https, so that requests to switch \
                           protocols get 501";
            findings.add_warning(&key, problem);
        }
    }
}

/// Warns of variables of other programs in values, which are sent as they are written.
fn warn_foreign_variables(config: &Config, findings: &mut FaultCollector) {
    let values = |request, response| {
        let rules = [("request_headers", request), ("response_headers", response)];
        rules.into_iter().flat_map(|(key, rules): (_, &HeaderRules)| {
            let set = rules.set.iter().map(move |(name, value)| (format!("{key}.set.{name}"), value));
            let add = rules.add.iter().map(move |(name, value)| (format!("{key}.add.{name}"), value));
            set.chain(add)
        })
    };
    let mut check = |key: &str, value: &Template| {
        let allowed =
            if key.ends_with(".redirect") { "{host} and {path}" } else { "{client}, {host} and {request_id}" };
        if let Some(variable) = config::find_foreign_variable(&value.to_string()) {
            findings.add_warning(
                key,
                format!(
                    "{variable} is no variable, so the text is sent unchanged; the \
                                               variables of this key are {allowed}"
                ),
            );
        }
    };
    for (key, value) in values(&config.request_headers, &config.response_headers) {
        check(&key, value);
    }
    for (n, route) in config.routes.iter().enumerate() {
        let rules = values(&route.request_headers, &route.response_headers);
        let redirect = match &route.target {
            RouteTarget::Redirect(redirect) => Some(("redirect".to_owned(), &redirect.to)),
            RouteTarget::Origin(_) | RouteTarget::Respond(_) => None,
        };
        for (key, value) in rules.chain(redirect) {
            check(&format!("routes[{n}].{key}"), value);
        }
    }
}

fn load_pages(config: &Config, findings: &mut FaultCollector) -> Option<Pages> {
    match Pages::read_page_files(config) {
        Ok(pages) => Some(pages),
        Err(errors) => {
            let general = config.error_pages.iter().map(|(errors, path)| (format!("error_pages.{errors}"), path));
            let routes = config.routes.iter().enumerate().flat_map(|(n, route)| {
                let key = move |errors| format!("routes[{n}].error_pages.{errors}");
                route.error_pages.iter().map(move |(errors, path)| (key(errors), path))
            });
            let bodies = config.routes.iter().enumerate().filter_map(|(n, route)| match &route.target {
                RouteTarget::Respond(respond) => {
                    Some((format!("routes[{n}].respond.body_file"), respond.body_file_path()?))
                }
                RouteTarget::Origin(_) | RouteTarget::Redirect(_) => None,
            });
            let errors: BTreeMap<&Path, _> = errors.iter().map(|error| (error.page_path(), error)).collect();
            for (key, path) in general.chain(routes).chain(bodies) {
                if let Some(error) = errors.get(path.as_path()) {
                    findings.add_fault(&key, error);
                }
            }
            None
        }
    }
}

/// Default names of hosts, which several hosts may have.
const DEFAULT_HOST_NAMES: [&str; 2] = ["localhost", "localhost.localdomain"];

fn check_secret_file(config: &Config, findings: &mut FaultCollector) {
    let Some(path) = &config.listen.secret_file else { return };
    match own_replica(config) {
        None => findings.add_fault("listen.secret_file", NO_REPLICA),
        Some(replica) if DEFAULT_HOST_NAMES.contains(&replica.0.as_str()) => {
            let name = &replica.0;
            let problem = format!(
                "replica {name:?}: another host may have this name too, and could reset clients' connections; set listen.replica"
            );
            findings.add_warning("listen.secret_file", problem);
        }
        Some(_) => {}
    }
    if is_pipe(path) {
        return;
    }
    match Secrets::from_secret_file(path) {
        Ok(secrets) if secrets.exposed => {
            let problem = "the file is readable by others: a reader can impersonate this server to clients that \
                           resume, and reset connections";
            findings.add_warning("listen.secret_file", problem);
        }
        Ok(_) => {}
        Err(error) => findings.add_fault("listen.secret_file", error),
    }
}

fn check_server_id_key(config: &Config, findings: &mut FaultCollector) -> Option<ServerIdKey> {
    let path = config.listen.server_id.as_ref()?.key_file.as_deref().filter(|path| !is_pipe(path))?;
    let key = ServerIdKey::from_key_file(path);
    key.map_err(|error| findings.add_fault("listen.server_id.key_file", error)).ok()
}

fn check_token(config: &Config, findings: &mut FaultCollector) {
    if config.admin.token_file.as_deref().is_some_and(is_pipe) {
        return;
    }
    if let Err(error) = read_token(config) {
        findings.add_fault("admin.token_file", error);
    }
}

/// Reads the token that requests to `[admin] listen` must present; `None` without a configured file.
pub(super) fn read_token(config: &Config) -> Result<Option<Token>, TokenError> {
    config.admin.token_file.as_deref().map(Token::from_token_file).transpose()
}

/// Returns whether `path` is a FIFO. Its content can be read only once, and perhaps not at once: only the start reads
/// it.
fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// Words by which other programs name a log's target or switch it off; litequic would create a file of that name.
const FOREIGN_LOG_TARGETS: [&str; 8] = ["syslog", "journal", "journald", "console", "off", "none", "false", "null"];

/// Checks whether the access log can be written, without creating its file.
fn check_access_log(config: &Config, findings: &mut FaultCollector) {
    let Some(LogTarget::File(path)) = &config.access_log.path else { return };
    if findings.raw_string("access_log.path").is_some_and(|name| FOREIGN_LOG_TARGETS.contains(&name)) {
        let problem = "names a file in the folder of the configuration; for the journal write \"stdout\" or \
                       \"stderr\", for no access log remove the key";
        findings.add_warning("access_log.path", problem);
    }
    let writable = match fs::metadata(path) {
        Ok(file) if file.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => check_access(path, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_creatable(path),
        Err(error) => Err(error),
    };
    if let Err(error) = writable {
        findings.add_fault("access_log.path", format_args!("cannot be written: {error}"));
    }
}

/// Checks whether the Unix sockets can be created. An existing socket is another process's, or is replaced.
fn check_unix_sockets(config: &Config, findings: &mut FaultCollector) {
    let admin = &config.admin;
    for (key, path) in [("admin.handover", admin.handover.as_deref()), ("admin.socket", admin.socket.configured_path())]
    {
        let Some(path) = path else { continue };
        let problem = match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => Some("exists and is not a socket".into()),
            _ => check_creatable(path).err().map(|error| format!("cannot be created: {error}")),
        };
        if let Some(problem) = problem {
            findings.add_fault(key, problem);
        }
    }
}

/// Checks whether the file `path` could be created.
fn check_creatable(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    check_access(folder, Access::WRITE_OK | Access::EXEC_OK)
}

fn check_access(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ipv6_wildcards_are_those_of_ipv4() {
        let origin: config::OriginAddress = "http://127.0.0.1:9".parse().unwrap();
        let at = |address: &str| {
            Config::with_defaults(address.parse().unwrap(), origin.clone(), PathBuf::new(), PathBuf::new())
        };
        for (address, expected) in
            [("[::]:8443", "0.0.0.0:8443"), ("[::1]:8443", "[::1]:8443"), ("0.0.0.0:443", "0.0.0.0:443")]
        {
            let mut config = at(address);
            config.admin.probes = Some(address.parse().unwrap());
            let ParsedConfig { faults: mut findings, .. } = ParsedConfig::from_options(at(address));
            replace_ipv6_wildcards(&mut config, &mut findings);
            let expected = expected.parse().unwrap();
            assert_eq!((config.listen.udp, config.listen.tcp), (vec![expected], vec![expected]));
            assert_eq!(config.admin.probes, Some(expected));
            let ((), warnings) = findings.into_result(Some(())).unwrap();
            assert_eq!(warnings.len(), usize::from(address == "[::]:8443"), "{warnings:?}");
        }
    }
}
