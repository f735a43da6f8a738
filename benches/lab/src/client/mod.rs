//! What the laboratory's clients share: attackers, viewers, the load generator. `tls` has their TLS configurations.

pub(crate) mod tls;

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use std::future::Future;
use tokio::task::LocalSet;

/// Runs a future, and the tasks that it spawns, on this thread.
pub(crate) fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, work)
}

/// Raises the limit of file descriptors, 1024 by default on many systems, to the hard limit: a connection takes one.
pub(crate) fn raise_limits() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot raise the limit of file descriptors")
}

/// Prints a report as one line of JSON.
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
pub(crate) fn print(report: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}
