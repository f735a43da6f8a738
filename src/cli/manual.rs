//! `litequic manual`: the manual pages of this command line.

use super::exit::{Exit, fail};
use clap::Command;
use std::{fs, path::Path, process::ExitCode};

/// Writes `litequic.1` and a page for each command into the folder `out`, which is created if missing.
pub fn run(out: &Path, command: Command) -> ExitCode {
    // `litequic help` prints what the pages have.
    let command = command.disable_help_subcommand(true);
    match fs::create_dir_all(out).and_then(|()| clap_mangen::generate_to(command, out)) {
        Ok(()) => Exit::Success.into(),
        Err(error) => fail(Exit::Output, format!("cannot write manual pages into {}: {error}", out.display())),
    }
}
