//! The command line: one file a command.

pub mod check;
pub mod schema;

use std::process::ExitCode;

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
