//! `litequic schema`: the configuration's JSON schema, for editors and for checks in a pipeline.

use crate::config;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Prints the schema to stdout.
pub fn run() -> ExitCode {
    match writeln!(io::stdout(), "{:#}", config::schema()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
