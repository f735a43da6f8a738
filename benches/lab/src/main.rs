//! litequic's measuring laboratory: one binary with a load generator (`load`), the bench that runs contenders and loads
//! them with it or with other clients (`fetch`) or attacks them (`attack`), and an emulator of links between them
//! (`link`). benches/lab/README.md explains how figures are measured.

mod argument;
mod attack;
mod bench;
mod browser;
mod client;
mod conformance;
mod experiments;
mod fetch;
mod firefox;
mod http;
mod link;
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
mod load;
mod pages;
mod random;
mod report;
mod viewer;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures litequic beside its peers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load one server and report what it did.
    Load(load::Arguments),
    Link(link::Arguments),
    /// Load pages in Chromium or Firefox, through litequic and its peers, and report when they were there.
    Pages(pages::Arguments),
    /// Watch adaptive video as so many viewers, and report how it was.
    Watch(viewer::Arguments),
    /// The same by dash.js in Chromium.
    WatchReal(viewer::RealArguments),
    #[command(flatten)]
    Experiment(experiments::Command),
    /// A part of the lab: attackers.
    #[command(hide = true)]
    Attack(attack::Arguments),
    /// A part of the lab: the client beside attackers.
    #[command(hide = true)]
    Honest(attack::HonestArguments),
    /// A part of the lab: moves the packets of links.
    #[command(hide = true)]
    Emulate(link::EmulateArguments),
    /// A part of the lab: a download by a client that others wrote.
    #[command(hide = true)]
    Fetch(fetch::Arguments),
    /// A part of the lab: the contender that has no protocol.
    #[command(hide = true)]
    FloorServer(bench::floor::ServerArguments),
    /// A part of the lab: its client.
    #[command(hide = true)]
    FloorClient(bench::floor::ClientArguments),
    /// A part of the lab: removes what is left of it when it ends.
    #[command(hide = true)]
    Guard(bench::guard::Arguments),
    /// A part of the lab: requests a contender's metrics.
    #[command(hide = true)]
    Metrics(bench::metrics::Arguments),
    /// A part of the lab: takes half of a core.
    #[command(hide = true)]
    Rival(bench::rival::Arguments),
    /// A part of the lab: the origin of uploads.
    #[command(hide = true)]
    Sink(bench::sink::Arguments),
}

/// The first descriptor after standard input, output and error.
const FIRST_OTHER: i32 = 3;

fn main() -> anyhow::Result<ExitCode> {
    // Descriptors that a caller left open, as the lock of flock(1), are not the servers'.
    close_fds::set_fds_cloexec(FIRST_OTHER, &[]);
    let outcome = match Arguments::parse().command {
        Command::Load(arguments) => return load::main(&arguments),
        Command::Link(arguments) => link::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Watch(arguments) => viewer::main(&arguments),
        Command::WatchReal(arguments) => viewer::real(&arguments),
        Command::Attack(arguments) => attack::attack(&arguments),
        Command::Honest(arguments) => attack::honest(&arguments),
        Command::Emulate(arguments) => link::emulate(&arguments),
        Command::Fetch(arguments) => fetch::fetch(&arguments),
        Command::Experiment(command) => experiments::run(command),
        Command::FloorServer(arguments) => bench::floor::serve(&arguments),
        Command::FloorClient(arguments) => bench::floor::print(&arguments),
        Command::Guard(arguments) => bench::guard::wait(&arguments),
        Command::Metrics(arguments) => bench::metrics::print(&arguments),
        Command::Rival(arguments) => bench::rival::work(&arguments),
        Command::Sink(arguments) => bench::sink::serve(&arguments),
    };
    Ok(outcome.map_or_else(
        |error| {
            bench::say(&format!("litequic-lab: {error:#}"));
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}
