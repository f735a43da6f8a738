//! The load generator: a client whose ACK threshold is exact, that checks every byte, and that voids its own report
//! when anything was wrong. One thread; benches/lab/README.md explains its figures.

mod arguments;
mod body;
mod check;
mod engine;
mod h1;
mod h3;
mod pace;
mod poller;
mod report;
mod summary;
mod tally;
mod tls;
mod wire;

use crate::client::raise_limits;
use arguments::Protocol;
pub(crate) use arguments::{Arguments, Group, Kind};
pub(crate) use h3::Faults;
pub(crate) use report::{LoadReport, Steady, TOLERANCE};
use std::process::ExitCode;

/// Loads, and prints the report. Fails only if there is none.
pub(crate) fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    raise_limits()?;
    let report = match arguments.protocol {
        Protocol::H3 => engine::run(arguments, h3::Client::new(arguments, tls::client(arguments, b"h3")?)?),
        Protocol::H1 => engine::run(arguments, h1::Client::new(arguments, tls::client(arguments, b"http/1.1")?)?),
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report)?;
    }
    Ok(if report.void.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The same for humans: every figure in a line of its own, as JSON has it.
fn print(report: &LoadReport) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}
