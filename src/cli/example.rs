//! Runs `litequic example`: prints examples of configurations, which the project tests.

use super::exit::print_stdout;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Arguments of `litequic example`.
#[derive(Debug, Args)]
pub struct ExampleArguments {
    /// Example to print; without a name, the list of examples.
    #[arg(value_enum)]
    name: Option<ExampleConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExampleConfig {
    Sidecar,
    Edge,
    Website,
    Servers,
    UnixSocket,
    Full,
}

impl ExampleConfig {
    const fn example_text(self) -> &'static str {
        match self {
            Self::Sidecar => include_str!("../../config/sidecar.toml"),
            Self::Edge => include_str!("../../config/edge.toml"),
            Self::Website => include_str!("../../config/website.toml"),
            Self::Servers => include_str!("../../config/servers.toml"),
            Self::UnixSocket => include_str!("../../config/unix-socket.toml"),
            Self::Full => include_str!("../../config/full.toml"),
        }
    }
}

/// Prints an example, or a line for each.
pub fn print_example(arguments: &ExampleArguments) -> ExitCode {
    match arguments.name {
        Some(example) => print_stdout(example.example_text().as_bytes()),
        None => print_stdout(list_examples().as_bytes()),
    }
}

fn list_examples() -> String {
    let line = |example: &ExampleConfig| {
        let name = example.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let about = example.example_text().lines().next().unwrap_or_default().trim_start_matches('#').trim().to_owned();
        format!("{name:<12} {about}\n")
    };
    let lines: String = ExampleConfig::value_variants().iter().map(line).collect();
    format!("{lines}\nlitequic example sidecar > litequic.toml; litequic certificate; litequic check litequic.toml\n")
}
