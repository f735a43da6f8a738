//! litequic's measuring laboratory: one binary with a load generator (`load`) and the bench that runs contenders and
//! loads them with it. benches/lab/README.md tells how figures come about.

#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
mod load;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures litequic beside its peers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load one server and report what it did.
    Load(load::Arguments),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Load(arguments) => load::main(&arguments),
    }
}
