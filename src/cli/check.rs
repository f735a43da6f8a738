//! `litequic check --config FILE`: says what is wrong with a configuration, or what it holds.

use super::exit::{Exit, fail, fail_config};
use crate::{
    app,
    config::{self, Config},
};
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// Prints one line about the configuration at `path` to stdout; or its faults to stderr, with [`Exit::Config`].
/// Certificates, error pages and a secret that cannot be used are faults too.
pub fn run(path: &Path) -> ExitCode {
    // Whoever closed our output does not want the rest of it: the exit code still says how it went.
    let config = match config::load(path) {
        Ok(config) => config,
        Err(faults) => return fail_config(&faults),
    };
    // What the configuration names must be there as well: `run` would refuse it.
    let named = app::certificates(&config)
        .and_then(|_| app::pages(&config))
        .and_then(|_| app::secrets(&config))
        .and_then(|_| app::token(&config));
    if let Err(error) = named {
        return fail(Exit::from(&error), error);
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
        summary += &format!("; no route leads to {}", idle.join(", "));
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
