//! Runs `litequic check --config FILE`: prints the faults of a configuration, or its summary.

use super::{
    exit::{CommandResult, exit_with_faults},
    https_record::https_records,
};
use crate::app;
use litequic_acme as acme;
use litequic_config::{AcmeHost, Config, ParsedConfig, RouteConfig};
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// Prints a line about the configuration at `path` to stdout, one about the descriptors of a process with it if they
/// are too few or it is `verbose`, one for each field that a route withholds, and its warnings to stderr; or its faults
/// to stderr, with `Exit::Config`. Checks the files that it names too: certificates, error pages, secrets, and files to
/// be written.
pub fn check_config(path: &Path, verbose: bool) -> CommandResult {
    let app::LoadedConfig { config, certificates, warnings, .. } =
        app::load_files(ParsedConfig::load_file(path)).map_err(|faults| exit_with_faults(&faults))?;
    // A closed output is no error: the exit code is still right.
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    let _ = writeln!(io::stdout(), "{}", config_summary(path, &config));
    let plan = app::DescriptorPlan::for_start(&config);
    if verbose || !plan.is_enough_for(&config) {
        let _ = writeln!(io::stdout(), "{plan}");
    }
    if let Some(server_id) = &config.listen.server_id {
        let _ = writeln!(io::stdout(), "connection IDs: {}, {}", server_id.hex_digits(), server_id.describe_layout());
    }
    for line in withheld_lines(&config) {
        let _ = writeln!(io::stdout(), "{line}");
    }
    for line in acme::report_stored_state(&config.acme) {
        let _ = writeln!(io::stdout(), "{line}");
    }
    let served = certificates.all.iter().flat_map(|certificate| &certificate.names.dns);
    let obtained = config.acme.iter().flat_map(|table| &table.hosts);
    let obtained = obtained.filter(|host| !matches!(host, AcmeHost::Address(_))).map(ToString::to_string);
    let names: Vec<String> = served.cloned().chain(obtained).collect();
    for record in https_records(&config.listen, names.iter().map(String::as_str)) {
        let _ = writeln!(io::stdout(), "DNS record for HTTP/3 at the first visit: {record}");
    }
    Ok(ExitCode::SUCCESS)
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
    // Allowed, since a route may be switched off for a while.
    let idle: Vec<&str> = config.origins.keys().map(String::as_str).filter(|name| !config.uses_origin(name)).collect();
    if !idle.is_empty() {
        summary += &format!("; no route uses {}", idle.join(", "));
    }
    summary
}

fn counted_noun(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns a line for each field that clients may not send on a route because another route to its origin sets it.
fn withheld_lines(config: &Config) -> Vec<String> {
    let names = RouteConfig::unique_route_names(&config.routes);
    let withheld = config.withheld_fields();
    let lines = config.routes.iter().zip(&names).flat_map(|(route, route_name)| {
        let fields = route.target_origin().and_then(|origin| withheld.get(origin)).into_iter().flatten();
        let fields = fields.filter(|field| route.identity_fields().all(|own| own != **field));
        fields.map(move |field| format!("route {route_name}: clients' {field} is removed, as another route sets it"))
    });
    lines.collect()
}
