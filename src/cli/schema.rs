//! Runs `litequic schema`: prints the configuration's JSON schema, for editors and for checks in a pipeline.

use super::exit::print_stdout;
use litequic_config as config;
use std::process::ExitCode;

/// Prints the schema to stdout.
pub fn print_schema() -> ExitCode {
    print_stdout(format!("{:#}\n", config::json_schema()).as_bytes())
}
