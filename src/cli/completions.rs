//! `litequic completions`: what a shell needs to complete this command line.

use super::exit::print_stdout;
use clap::Command;
use clap_complete::Shell;
use std::process::ExitCode;

/// Prints the script for `shell`.
pub fn print_completions(shell: Shell, mut command: Command) -> ExitCode {
    // In memory first: the generator panics if its output is closed early.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "litequic", &mut script);
    print_stdout(&script)
}
