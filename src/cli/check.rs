//! `litequic check --config FILE`: says what is wrong with a configuration, or what it holds.

use super::exit::fail_config;
use crate::{
    app,
    config::{Config, Draft},
};
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// Prints one line about the configuration at `path` to stdout, and its warnings to stderr; or its faults to stderr, with
/// [`Exit::Config`](super::exit::Exit::Config). What it names is judged with it: certificates, error pages, secrets, and
/// what is to be written.
pub fn run(path: &Path) -> ExitCode {
    let app::Loads { config, warnings, .. } = match app::load(Draft::load(path)) {
        Ok(loads) => loads,
        Err(faults) => return fail_config(&faults),
    };
    // Whoever closed our output does not want the rest of it: the exit code still says how it went.
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    let _ = writeln!(io::stdout(), "{}", summary(path, &config));
    ExitCode::SUCCESS
}

/// What the configuration at `path` holds, on one line.
pub fn summary(path: &Path, config: &Config) -> String {
    let mut summary = format!(
        "{}: ok ({}, {}, {})",
        path.display(),
        count(config.routes.len(), "route"),
        count(config.origins.len(), "origin"),
        count(config.certificates.len(), "certificate"),
    );
    let idle = unused(config);
    if !idle.is_empty() {
        summary += &format!("; no route uses {}", idle.join(", "));
    }
    summary
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The origins that no route names: allowed, since a route may be switched off for a while, but worth a word.
fn unused(config: &Config) -> Vec<&str> {
    let used = |name: &str| config.routes.iter().any(|route| route.origin() == Some(name));
    config.origins.keys().map(String::as_str).filter(|name| !used(name)).collect()
}
