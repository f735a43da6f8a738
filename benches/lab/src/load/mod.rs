//! The load generator: a client whose ACK threshold is exact, that checks every byte, and that voids its own report when
//! anything was wrong. One thread; benches/lab/README.md tells what its figures mean.

mod arguments;
mod report;

pub(crate) use arguments::Arguments;
use std::process::ExitCode;

/// Loads, and prints the report.
pub(crate) fn main(_: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the clients come with the next commit")
}
