//! What `check`, `run` and a reload find out about `[[acme]]` without any network: folders, roots, keys, the command,
//! and what keeps a CA from validating.

use super::issued::has_file;
use litequic_acme as acme;
use litequic_config::{Acme, AcmeChallenge, AcmeHost, Config, Findings};
use litequic_tls::{self as tls, CertificateStore, Trust};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::{io, num::NonZeroU16, path::Path};

/// The port of https, and of http, to which a CA comes (RFC 8555 §8.3, RFC 8737 §3).
const HTTPS: u16 = 443;

/// Notes faults and warnings of every table. `files` are the certificates of files, if they could be read.
pub(super) fn check(config: &Config, files: Option<&CertificateStore>, findings: &mut Findings) {
    for (n, table) in config.acme.iter().enumerate() {
        folder(table, n, findings);
        hosts(table, n, files, findings);
        if let Some(ca) = &table.ca
            && let Err(error) = tls::client_config(&Trust::File(ca.clone()), false)
        {
            findings.fault(&format!("acme[{n}].ca"), error);
        }
        if let Some(eab) = table.eab.as_ref().filter(|eab| !eab.key_file.as_os_str().is_empty())
            && let Err(problem) = acme::check_eab(&eab.key_file)
        {
            findings.fault(&format!("acme[{n}].eab.key_file"), problem);
        }
        if let Some(program) = table.dns_command.first().filter(|program| program.starts_with('/'))
            && let Err(error) = accessat(CWD, Path::new(program), Access::EXEC_OK, AtFlags::EACCESS)
        {
            let key = element(findings, format!("acme[{n}].dns_command"), 0);
            findings.fault(&key, format_args!("cannot be executed: {}", io::Error::from(error)));
        }
    }
    let needs_https = config
        .acme
        .iter()
        .flat_map(|table| &table.challenges)
        .any(|challenge| matches!(challenge, AcmeChallenge::TlsAlpn01 | AcmeChallenge::Http01));
    let is_reached = config.listen.tcp.iter().any(|address| address.port() == HTTPS)
        || config.listen.advertised_port.map(NonZeroU16::get) == Some(HTTPS);
    if needs_https && !is_reached {
        let problem =
            "a CA validates at the ports 443 and 80 of the host: neither listen.tcp nor listen.advertised_port has 443";
        findings.warn("acme[0]", problem);
    }
}

fn folder(table: &Acme, n: usize, findings: &mut Findings) {
    if table.folder.as_os_str().is_empty() {
        return;
    }
    let key = format!("acme[{n}].folder");
    // It is created with the folders above it.
    let existing = table.folder.ancestors().find(|folder| folder.exists());
    let writable = existing.map_or(Err(io::ErrorKind::NotFound.into()), |folder| {
        if folder.is_dir() {
            accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(io::Error::from)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    });
    match writable {
        Err(error) => findings.fault(&key, format_args!("cannot be written: {error}")),
        Ok(()) if acme::is_exposed(&table.folder) => {
            findings.warn(&key, "others than its owner may read the folder: it has private keys");
        }
        Ok(()) => {}
    }
}

fn hosts(table: &Acme, n: usize, files: Option<&CertificateStore>, findings: &mut Findings) {
    for (m, host) in table.hosts.iter().enumerate() {
        let key = element(findings, format!("acme[{n}].hosts"), m);
        if files.is_some_and(|files| has_file(host, files)) {
            findings
                .warn(&key, format_args!("a file of [[certificates]] has {host}: it is served, and none is obtained"));
        }
        if matches!(host, AcmeHost::Address(_)) && table.profile.is_none() {
            let problem = "Let's Encrypt issues certificates for addresses by profile = \"shortlived\" alone";
            findings.warn(&key, problem);
        }
    }
}

/// The key of the `m`th value of the list `key`. A single one needs no list.
fn element(findings: &Findings, key: String, m: usize) -> String {
    let in_list = format!("{key}[{m}]");
    if findings.written(&in_list).is_some() { in_list } else { key }
}

/// Whether clients of a route for `host` get a certificate that is to be obtained. `*.` stands for one or more labels.
pub(super) fn covers(config: &Config, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    config.acme.iter().flat_map(|table| &table.hosts).any(|obtained| match (obtained, host.strip_prefix("*.")) {
        (AcmeHost::Name(name), None) => name == host,
        (AcmeHost::Name(name), Some(parent)) => is_below(name, parent),
        (AcmeHost::Wildcard(of), None) => host.split_once('.').is_some_and(|(_, parent)| parent == of),
        (AcmeHost::Wildcard(of), Some(parent)) => of == parent || is_below(of, parent),
        (AcmeHost::Address(address), _) => bare.parse() == Ok(*address),
    })
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|labels| labels.ends_with('.'))
}
