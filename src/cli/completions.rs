//! `litequic completions`: what a shell needs to complete this command line.

use super::exit::{Exit, fail};
use clap::Command;
use clap_complete::Shell;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Prints the script for `shell`.
pub fn run(shell: Shell, mut command: Command) -> ExitCode {
    // In memory first: the generator panics if its output is closed early.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "litequic", &mut script);
    match io::stdout().write_all(&script) {
        Ok(()) => Exit::Success.into(),
        Err(error) => fail(Exit::Output, format!("cannot write the script: {error}")),
    }
}
