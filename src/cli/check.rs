//! `litequic check --config FILE`: prints the faults of a configuration, or its summary.

use super::exit::fail_config;
use crate::app;
use litequic_acme as acme;
use litequic_config::{Config, Draft};
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// Prints a line about the configuration at `path` to stdout, and one about the descriptors that a process would have
/// with it, and its warnings to stderr; or its faults to stderr, with [`Exit::Config`](super::exit::Exit::Config). The
/// files that it names are checked too: certificates, error pages, secrets, and files to be written.
pub fn run(path: &Path) -> ExitCode {
    let app::Loads { config, warnings, .. } = match app::load(Draft::load(path)) {
        Ok(loads) => loads,
        Err(faults) => return fail_config(&faults),
    };
    // A closed output is no error: the exit code is still right.
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    let _ = writeln!(io::stdout(), "{}\n{}", summary(path, &config), app::DescriptorPlan::of_start(&config));
    if let Some(server_id) = &config.listen.server_id {
        let _ = writeln!(io::stdout(), "connection IDs: {}, {}", server_id.digits(), server_id.layout());
    }
    for line in acme::report(&config.acme) {
        let _ = writeln!(io::stdout(), "{line}");
    }
    ExitCode::SUCCESS
}

/// A summary of the configuration at `path`, on one line.
pub fn summary(path: &Path, config: &Config) -> String {
    let mut summary = format!(
        "{}: ok ({}, {}, {})",
        path.display(),
        count(config.routes.len(), "route"),
        count(config.origins.len(), "origin"),
        count(config.certificates.len(), "certificate"),
    );
    let obtained: usize = config.acme.iter().map(|table| table.hosts.len()).sum();
    if obtained > 0 {
        summary += &format!("; certificates for {} by ACME", count(obtained, "host"));
    }
    let idle = unused(config);
    if !idle.is_empty() {
        summary += &format!("; no route uses {}", idle.join(", "));
    }
    summary
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The origins that no route names: allowed, since a route may be switched off for a while, but worth a warning.
fn unused(config: &Config) -> Vec<&str> {
    let used = |name: &str| config.routes.iter().any(|route| route.origin() == Some(name));
    config.origins.keys().map(String::as_str).filter(|name| !used(name)).collect()
}
