//! Runs `litequic example`: prints examples of configurations, which the project tests.

use super::exit::print_stdout;
use super::run::one_of_names;
use clap::Args;
use std::process::ExitCode;

/// Examples by their names.
const EXAMPLES: &[(&str, &str)] = &[
    ("sidecar", include_str!("../../config/sidecar.toml")),
    ("edge", include_str!("../../config/edge.toml")),
    ("website", include_str!("../../config/website.toml")),
    ("servers", include_str!("../../config/servers.toml")),
    ("unix-socket", include_str!("../../config/unix-socket.toml")),
    ("full", include_str!("../../config/full.toml")),
];

/// Arguments of `litequic example`.
#[derive(Debug, Args)]
pub struct ExampleArguments {
    /// Example to print; without a name, the list of examples.
    #[arg(value_parser = one_of_names(EXAMPLES))]
    name: Option<&'static str>,
}

/// Prints an example, or a line for each.
pub fn print_example(arguments: &ExampleArguments) -> ExitCode {
    match arguments.name {
        Some(text) => print_stdout(text.as_bytes()),
        None => print_stdout(list_examples().as_bytes()),
    }
}

fn list_examples() -> String {
    let line = |(name, text): &(&str, &str)| {
        let about = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
        format!("{name:<12} {about}\n")
    };
    let lines: String = EXAMPLES.iter().map(line).collect();
    format!("{lines}\nlitequic example sidecar > litequic.toml; litequic certificate; litequic check litequic.toml\n")
}
