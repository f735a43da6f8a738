//! `litequic schema`: the configuration's JSON schema, for editors and for checks in a pipeline.

use super::exit::print;
use litequic_config as config;
use std::process::ExitCode;

/// Prints the schema to stdout.
pub fn run() -> ExitCode {
    print(format!("{:#}\n", config::schema()).as_bytes())
}
