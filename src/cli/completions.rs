//! Runs `litequic completions`: prints a shell's completion script for this command line.

use super::exit::print_stdout;
use clap::Command;
use clap_complete::Shell;
use std::process::ExitCode;

/// Prints the completion script for `shell`.
pub fn print_completions(shell: Shell, mut command: Command) -> ExitCode {
    // The script is generated in memory: the generator panics if its output is closed early.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "litequic", &mut script);
    print_stdout(&script)
}
