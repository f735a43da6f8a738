//! The files that a configuration names, read and judged together with it: `check`, `run` and a reload report the same
//! faults, all in one round, each with its place. What depends on more than files (whether an address can be bound, a
//! name looked up, an origin reached) is found out by running.

use super::{acme_files, collector_tls, descriptors, origin_tls, replica::replica, start_error::NO_REPLICA, users};
use litequic_admin::{Token, TokenError};
use litequic_config::{
    self as config, AccessTarget, Config, Draft, Faults, Findings, HeaderRules, Target, Template, Warning,
};
use litequic_proxy::{Pages, RoutingFiles};
use litequic_quic::{Secrets, ServerIdKey};
use litequic_telemetry::traces::CollectorTls;
use litequic_tls::{Authorities, Certificate, CertificateError, CertificateStore, Unserved};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// A configuration without a fault, and what its files hold.
#[derive(Debug)]
pub struct Loads {
    /// The configuration.
    pub config: Config,
    /// With the authorities of clients' certificates.
    pub certificates: CertificateStore,
    /// Error pages, TLS to origins, and users.
    pub routing: RoutingFiles,
    /// TLS to the collector of spans.
    pub collector: Option<CollectorTls>,
    /// The key of `[listen.server_id]`, unless its file can be read once only.
    pub server_id_key: Option<ServerIdKey>,
    /// Warnings: what can be used and probably should not.
    pub warnings: Vec<Warning>,
}

/// Reads every file that `draft` names, also where it has faults itself. Binds and makes nothing. Blocks on the file
/// system.
///
/// # Errors
///
/// Every fault of the configuration and of the files, in the configuration's order.
pub fn load(draft: Draft) -> Result<Loads, Faults> {
    let Draft { config, mut findings } = draft;
    let read = config.and_then(|config| {
        let certificates = certificates(&config, &mut findings);
        acme_files::check(&config, certificates.as_ref(), &mut findings);
        let pages = pages(&config, &mut findings);
        let tls = origin_tls::load(&config, &mut findings);
        let users = users::load(&config, &mut findings);
        let collector = collector_tls::load(&config, &mut findings);
        secret(&config, &mut findings);
        let server_id_key = server_id_key(&config, &mut findings);
        token(&config, &mut findings);
        access_log(&config, &mut findings);
        unix_sockets(&config, &mut findings);
        ambiguities(&config, &mut findings);
        variables(&config, &mut findings);
        descriptors::warn(&config, &mut findings);
        let routing = RoutingFiles { pages: pages?, tls: tls?, users: users? };
        Some((config, certificates?, routing, collector?, server_id_key))
    });
    let ((config, certificates, routing, collector, server_id_key), warnings) = findings.verdict(read)?;
    Ok(Loads { config, certificates, routing, collector, server_id_key, warnings })
}

/// Every file that `config` names and a reload reads.
pub(super) fn named(config: &Config) -> impl Iterator<Item = PathBuf> {
    let served = config.certificates.iter().flat_map(|files| [&files.cert, &files.key]);
    let clients = [&config.client_certificates.ca, &config.client_certificates.crl];
    let key = config.listen.server_id.iter().filter_map(|server_id| server_id.key_file.as_ref());
    let files = served.chain(clients.into_iter().flatten()).chain(key).cloned().chain(Pages::files(config));
    let files = files.chain(origin_tls::files(config)).chain(users::files(config)).chain(config.traces.ca.clone());
    // Empty where the configuration has a fault.
    files.filter(|file| !file.as_os_str().is_empty())
}

fn certificates(config: &Config, findings: &mut Findings) -> Option<CertificateStore> {
    let now = SystemTime::now();
    let mut served = Vec::new();
    for (n, files) in config.certificates.iter().enumerate() {
        match Certificate::load(files) {
            Ok(certificate) => {
                for warning in certificate.warnings(now) {
                    findings.warn(&format!("certificates[{n}].cert"), warning);
                }
                served.push(certificate);
            }
            Err(errors) => {
                for error in errors.0.iter().filter(|error| !error.file().as_os_str().is_empty()) {
                    let key = if error.file() == files.key { "key" } else { "cert" };
                    findings.fault(&format!("certificates[{n}].{key}"), error);
                }
            }
        }
    }
    let clients = &config.client_certificates;
    let authorities = match Authorities::load(clients) {
        Ok(authorities) => authorities,
        Err(errors) => {
            for error in &errors.0 {
                findings.fault(client_certificates_key(config, error), error);
            }
            return None;
        }
    };
    for warning in authorities.iter().flat_map(|authorities| authorities.warnings(now)) {
        findings.warn("client_certificates.crl", warning);
    }
    if served.len() < config.certificates.len() || (served.is_empty() && config.acme.is_empty()) {
        return None;
    }
    let store = CertificateStore::of(served).with_authorities(authorities);
    unserved(&store, findings);
    uncovered_hosts(config, &store, findings);
    Some(store)
}

/// The key of `[client_certificates]` whose file is at fault.
fn client_certificates_key(config: &Config, error: &CertificateError) -> &'static str {
    let is_crl = config.client_certificates.crl.as_deref() == Some(error.file());
    if is_crl { "client_certificates.crl" } else { "client_certificates.ca" }
}

/// Certificates that no client gets.
fn unserved(store: &CertificateStore, findings: &mut Findings) {
    for Unserved { place, instead } in store.unserved() {
        let instead: Vec<_> = instead.iter().map(|place| format!("certificates[{place}]")).collect();
        let reason = match &instead[..] {
            [] => "it has no name".into(),
            [one] => format!("{one} has its names, and a key of the same algorithm"),
            several => format!("{} have its names, and keys of the same algorithm", several.join(" and ")),
        };
        findings
            .warn(&format!("certificates[{place}].cert"), format!("no client is served this certificate: {reason}"));
    }
}

/// Hosts of routes for which clients get a certificate warning.
fn uncovered_hosts(config: &Config, store: &CertificateStore, findings: &mut Findings) {
    for (n, route) in config.routes.iter().enumerate() {
        let is_uncovered = |host: &&str| !store.covers_pattern(host) && !acme_files::covers(config, host);
        if let Some(host) = route.host.as_deref().filter(is_uncovered) {
            let problem = format!("no certificate has the name {host}: clients will reject the one that they get");
            findings.warn(&format!("routes[{n}].host"), problem);
        }
    }
}

/// Routes that the order of the file alone tells apart for some requests.
fn ambiguities(config: &Config, findings: &mut Findings) {
    let names = config::Route::names(&config.routes);
    for (first, second) in config::ambiguities(&config.routes) {
        let Some(name) = names.get(first) else { continue };
        let problem = format!(
            "a request can match both this and routes[{first}] ({name}), which wins: it comes first in the file"
        );
        findings.warn(&format!("routes[{second}].match"), problem);
    }
}

/// Values with a variable of another program, which are sent as they are written.
fn variables(config: &Config, findings: &mut Findings) {
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
            if key.ends_with("redirect.to") { "{host} and {path}" } else { "{client}, {host} and {request_id}" };
        if let Some(variable) = config::foreign_variable(&value.to_string()) {
            findings.warn(key, format!("{variable} is sent as it is written; the variables here are {allowed}"));
        }
    };
    for (key, value) in values(&config.request_headers, &config.response_headers) {
        check(&key, value);
    }
    for (n, route) in config.routes.iter().enumerate() {
        let rules = values(&route.request_headers, &route.response_headers);
        let (redirect, fixed) = match &route.target {
            Target::Origin(_) => (None, None),
            Target::Redirect(redirect) => (Some(("redirect.to".to_owned(), &redirect.to)), None),
            Target::Respond(respond) => (None, Some(&respond.headers)),
        };
        let fixed = fixed.into_iter().flatten().map(|(name, value)| (format!("respond.headers.{name}"), value));
        for (key, value) in rules.chain(fixed).chain(redirect) {
            check(&format!("routes[{n}].{key}"), value);
        }
    }
}

fn pages(config: &Config, findings: &mut Findings) -> Option<Pages> {
    match Pages::load(config) {
        Ok(pages) => Some(pages),
        Err(errors) => {
            let general = config.error_pages.iter().map(|(errors, path)| (format!("error_pages.{errors}"), path));
            let routes = config.routes.iter().enumerate().flat_map(|(n, route)| {
                let key = move |errors| format!("routes[{n}].error_pages.{errors}");
                route.error_pages.iter().map(move |(errors, path)| (key(errors), path))
            });
            let bodies = config.routes.iter().enumerate().filter_map(|(n, route)| match &route.target {
                Target::Respond(respond) => Some((format!("routes[{n}].respond.body_file"), respond.file()?)),
                Target::Origin(_) | Target::Redirect(_) => None,
            });
            let errors: BTreeMap<&Path, _> = errors.iter().map(|error| (error.path(), error)).collect();
            for (key, path) in general.chain(routes).chain(bodies) {
                if let Some(error) = errors.get(path.as_path()) {
                    findings.fault(&key, error);
                }
            }
            None
        }
    }
}

/// Names that hosts have by default, and so several of them.
const LOCAL_NAMES: [&str; 2] = ["localhost", "localhost.localdomain"];

fn secret(config: &Config, findings: &mut Findings) {
    let Some(path) = &config.listen.secret_file else { return };
    match replica(config) {
        None => findings.fault("listen.secret_file", NO_REPLICA),
        Some(replica) if LOCAL_NAMES.contains(&replica.name()) => {
            let name = replica.name();
            let problem = format!(
                "replica {name:?}: another host may have this name too, and could reset clients' connections; set listen.replica"
            );
            findings.warn("listen.secret_file", problem);
        }
        Some(_) => {}
    }
    if is_pipe(path) {
        return;
    }
    match Secrets::load(path) {
        Ok(secrets) if secrets.is_exposed() => {
            let problem = "the file is readable by others: a reader can impersonate this server to clients that \
                           resume, and reset connections";
            findings.warn("listen.secret_file", problem);
        }
        Ok(_) => {}
        Err(error) => findings.fault("listen.secret_file", error),
    }
}

fn server_id_key(config: &Config, findings: &mut Findings) -> Option<ServerIdKey> {
    let path = config.listen.server_id.as_ref()?.key_file.as_deref().filter(|path| !is_pipe(path))?;
    let key = ServerIdKey::load(path);
    key.map_err(|error| findings.fault("listen.server_id.key_file", error)).ok()
}

fn token(config: &Config, findings: &mut Findings) {
    if config.admin.token_file.as_deref().is_some_and(is_pipe) {
        return;
    }
    if let Err(error) = read_token(config) {
        let key = if config.admin.token_file.is_some() { "admin.token_file" } else { "admin.token_env" };
        findings.fault(key, error);
    }
}

/// What requests to `[admin] listen` have to present: the token of the file or the variable that the configuration
/// names, if it does.
pub(super) fn read_token(config: &Config) -> Result<Option<Token>, TokenError> {
    match (&config.admin.token_file, &config.admin.token_env) {
        (Some(path), _) => Ok(Some(Token::read(path)?)),
        (None, Some(name)) => Ok(Some(Token::from_env(name)?)),
        (None, None) => Ok(None),
    }
}

/// Whether the file can be read once only, and perhaps not at once: that is left to the start.
fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// Words of other programs for where lines go, or that there are none, which are names of files here.
const NO_FILES: [&str; 8] = ["syslog", "journal", "journald", "console", "off", "none", "false", "null"];

/// Whether lines could be written, without creating the file.
fn access_log(config: &Config, findings: &mut Findings) {
    let Some(AccessTarget::File(path)) = &config.access_log.path else { return };
    if findings.written("access_log.path").is_some_and(|name| NO_FILES.contains(&name)) {
        let problem = "is a file of this name in the folder of the configuration; \"stdout\" and \"stderr\" reach the journal, and \
                       without the key there is no access log";
        findings.warn("access_log.path", problem);
    }
    let writable = match fs::metadata(path) {
        Ok(file) if file.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => access(path, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound => can_make(path),
        Err(error) => Err(error),
    };
    if let Err(error) = writable {
        findings.fault("access_log.path", format_args!("cannot be written: {error}"));
    }
}

/// Whether the Unix sockets could be created. An existing one is another process's, or is replaced.
fn unix_sockets(config: &Config, findings: &mut Findings) {
    let admin = &config.admin;
    for (key, path) in [("admin.handover", admin.handover.as_deref()), ("admin.socket", admin.socket.path())] {
        let Some(path) = path else { continue };
        let problem = match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => Some("exists and is not a socket".into()),
            _ => can_make(path).err().map(|error| format!("cannot be created: {error}")),
        };
        if let Some(problem) = problem {
            findings.fault(key, problem);
        }
    }
}

/// Whether a file `path` could be created.
fn can_make(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
}

/// By this process's effective user and group.
fn access(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
