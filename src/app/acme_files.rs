//! Checks `[[acme]]` without any network, for `check`, `run` and a reload: folders, roots, keys, the command, and
//! obstacles to a CA's validation.

use super::acme_certificates::has_file_certificate;
use litequic_acme as acme;
use litequic_config::{Acme, AcmeChallenge, AcmeHost, Config, FaultCollector};
use litequic_tls::{self as tls, CertificateStore, ServerTrust};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::{io, num::NonZeroU16, path::Path};

/// Port of https, at which a CA validates (RFC 8555 §8.3, RFC 8737 §3).
const VALIDATION_PORT: u16 = 443;

/// Reports faults and warnings of every ACME table. `files` are the certificates of files, if all could be read.
pub(super) fn check_acme(config: &Config, files: Option<&CertificateStore>, findings: &mut FaultCollector) {
    for (n, table) in config.acme.iter().enumerate() {
        check_acme_folder(table, n, findings);
        check_acme_hosts(table, n, files, findings);
        if let Some(ca) = &table.ca
            && let Err(error) = tls::client_config(&ServerTrust::File(ca.clone()))
        {
            findings.add_fault(&format!("acme[{n}].ca"), error);
        }
        if let Some(eab) = &table.eab
            && let Err(problem) = acme::check_eab_file(&eab.key_file)
        {
            findings.add_fault(&format!("acme[{n}].eab"), problem);
        }
        if let Some(program) = table.dns_command.first().filter(|program| program.starts_with('/'))
            && let Err(error) = accessat(CWD, Path::new(program), Access::EXEC_OK, AtFlags::EACCESS)
        {
            let key = list_element_key(findings, format!("acme[{n}].dns_command"), 0);
            findings.add_fault(&key, format_args!("cannot be executed: {}", io::Error::from(error)));
        }
    }
    let needs_https = config
        .acme
        .iter()
        .flat_map(|table| &table.challenges)
        .any(|challenge| matches!(challenge, AcmeChallenge::TlsAlpn01 | AcmeChallenge::Http01));
    let is_reached = config.listen.tcp.iter().any(|address| address.port() == VALIDATION_PORT)
        || config.listen.advertised_port.map(NonZeroU16::get) == Some(VALIDATION_PORT);
    if needs_https && !is_reached {
        let problem = "a CA validates a host on its ports 443 and 80, but neither listen.tcp nor listen.advertised_port has \
             port 443";
        findings.add_warning("acme[0]", problem);
    }
}

fn check_acme_folder(table: &Acme, n: usize, findings: &mut FaultCollector) {
    if table.folder.as_os_str().is_empty() {
        return;
    }
    let key = format!("acme[{n}].folder");
    // A missing folder is created later, with its parents: only the first existing one can be checked.
    let existing = table.folder.ancestors().find(|folder| folder.exists());
    let writable = existing.map_or(Err(io::ErrorKind::NotFound.into()), |folder| {
        if folder.is_dir() {
            accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(io::Error::from)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    });
    match writable {
        Err(error) => findings.add_fault(&key, format_args!("cannot be written: {error}")),
        Ok(()) if acme::is_folder_exposed(&table.folder) => {
            findings.add_warning(
                &key,
                "users other than its owner can read the folder, which contains private keys; chmod it to 0700",
            );
        }
        Ok(()) => {}
    }
}

fn check_acme_hosts(table: &Acme, n: usize, files: Option<&CertificateStore>, findings: &mut FaultCollector) {
    for (m, host) in table.hosts.iter().enumerate() {
        let key = list_element_key(findings, format!("acme[{n}].hosts"), m);
        if files.is_some_and(|files| has_file_certificate(host, files)) {
            findings.add_warning(
                &key,
                format_args!(
                    "a certificate of [[certificates]] has the name {host}: litequic serves that \
                              certificate, and obtains none by ACME"
                ),
            );
        }
        if matches!(host, AcmeHost::Address(_)) && table.profile.is_none() {
            let problem = "Let's Encrypt issues certificates for IP addresses only with profile = \"shortlived\"";
            findings.add_warning(&key, problem);
        }
    }
}

/// Key of the `m`th value of the list `key`. A single value may be written without a list.
fn list_element_key(findings: &FaultCollector, key: String, m: usize) -> String {
    let in_list = format!("{key}[{m}]");
    if findings.raw_string(&in_list).is_some() { in_list } else { key }
}

/// Returns whether clients of a route for `host` get a certificate that is to be obtained. `*.` stands for one or more
/// labels.
pub(super) fn obtains_host(config: &Config, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    config.acme.iter().flat_map(|table| &table.hosts).any(|obtained| match (obtained, host.strip_prefix("*.")) {
        (AcmeHost::Name(name), None) => name == host,
        (AcmeHost::Name(name), Some(parent)) => is_subdomain(name, parent),
        (AcmeHost::Wildcard(of), None) => host.split_once('.').is_some_and(|(_, parent)| parent == of),
        (AcmeHost::Wildcard(of), Some(parent)) => of == parent || is_subdomain(of, parent),
        (AcmeHost::Address(address), _) => bare.parse() == Ok(*address),
    })
}

fn is_subdomain(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|labels| labels.ends_with('.'))
}
