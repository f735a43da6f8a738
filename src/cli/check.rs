//! Runs `litequic check --config FILE`: prints the faults of a configuration, or its summary.

use super::{exit::exit_with_faults, https_record::https_records};
use crate::app;
use litequic_acme as acme;
use litequic_config::{AcmeHost, Config, ParsedConfig};
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// Prints a line about the configuration at `path` to stdout, one about the descriptors of a process with it, and its
/// warnings to stderr; or its faults to stderr, with [`Exit::Config`](super::exit::Exit::Config). Checks the files that
/// it names too: certificates, error pages, secrets, and files to be written.
pub fn check_config(path: &Path) -> ExitCode {
    let app::LoadedConfig { config, certificates, warnings, .. } = match app::load_files(ParsedConfig::load_file(path))
    {
        Ok(loads) => loads,
        Err(faults) => return exit_with_faults(&faults),
    };
    // A closed output is no error: the exit code is still right.
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    let _ = writeln!(io::stdout(), "{}\n{}", config_summary(path, &config), app::DescriptorPlan::for_start(&config));
    if let Some(server_id) = &config.listen.server_id {
        let _ = writeln!(io::stdout(), "connection IDs: {}, {}", server_id.hex_digits(), server_id.describe_layout());
    }
    for line in acme::report_stored_state(&config.acme) {
        let _ = writeln!(io::stdout(), "{line}");
    }
    let served = certificates.all_certificates().iter().flat_map(|certificate| &certificate.certificate_names().dns);
    let obtained = config.acme.iter().flat_map(|table| &table.hosts);
    let obtained = obtained.filter(|host| !matches!(host, AcmeHost::Address(_))).map(ToString::to_string);
    let names: Vec<String> = served.cloned().chain(obtained).collect();
    for record in https_records(&config.listen, names.iter().map(String::as_str)) {
        let _ = writeln!(io::stdout(), "DNS record for HTTP/3 at the first visit: {record}");
    }
    ExitCode::SUCCESS
}

/// Summary of the configuration at `path`, on one line.
pub fn config_summary(path: &Path, config: &Config) -> String {
    let mut summary = format!(
        "{}: ok ({}, {}, {})",
        path.display(),
        counted_noun(config.routes.len(), "route"),
        counted_noun(config.origins.len(), "origin"),
        counted_noun(config.certificates.len(), "certificate"),
    );
    let obtained: usize = config.acme.iter().map(|table| table.hosts.len()).sum();
    if obtained > 0 {
        summary += &format!("; certificates for {} by ACME", counted_noun(obtained, "host"));
    }
    let idle = unused_origins(config);
    if !idle.is_empty() {
        summary += &format!("; no route uses {}", idle.join(", "));
    }
    summary
}

fn counted_noun(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Origins that no route uses: allowed, since a route may be switched off for a while, but worth a warning.
fn unused_origins(config: &Config) -> Vec<&str> {
    let used = |name: &str| config.routes.iter().any(|route| route.target_origin() == Some(name));
    config.origins.keys().map(String::as_str).filter(|name| !used(name)).collect()
}
