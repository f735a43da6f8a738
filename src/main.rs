//! Parses the command line and maps errors to exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    litequic::cli::main()
}
