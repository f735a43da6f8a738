//! The command line: one file a command.

mod again;
pub mod check;
pub mod completions;
pub mod ctl;
pub mod demo;
pub mod exit;
pub mod get;
pub mod manual;
mod panic;
pub mod probe;
pub mod reference;
pub mod run;
pub mod schema;
mod user;

use crate::{app, telemetry::log};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use exit::Exit;
use std::{path::PathBuf, process::ExitCode};

/// What `--version` prints; a build for measurements is marked.
const VERSION: &str = if cfg!(feature = "laboratory") {
    concat!(env!("CARGO_PKG_VERSION"), "+laboratory")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Terminates HTTP/3 and forwards HTTP/1.1 to an origin that was never changed.
#[derive(Debug, Parser)]
#[command(name = "litequic", version = VERSION, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve.
    Run(run::Arguments),
    /// Print every fault of a configuration, and exit with 78 if there is one.
    Check {
        /// The configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Try HTTP/3: serve a small origin, or your own, with a certificate made on the spot.
    Demo(demo::Arguments),
    /// Control a running litequic: status, health, configuration, reload, maintenance, drain.
    Ctl(ctl::Arguments),
    /// Make one HTTP/3 request: for health checks and scripts.
    Get(Box<get::Arguments>),
    /// Print what this kernel supports, and what litequic would use of it.
    Probe(probe::Arguments),
    /// Print the configuration's JSON schema.
    Schema,
    /// Print a shell's completion script.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages.
    Manual {
        /// The folder for them.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print a page of the reference, as Markdown.
    Reference {
        /// Which.
        page: reference::Page,
    },
}

/// Runs the command that the process' arguments name. `release` returns to the system the memory that the calling
/// thread's allocator has kept of what was freed.
pub fn main(release: fn()) -> ExitCode {
    app::release_by(release);
    panic::end_the_process_on_panics();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed output is no error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    let exit = match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Check { config } => check::run(&config),
        Command::Ctl(arguments) => ctl::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Get(arguments) => get::run(*arguments),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Schema => schema::run(),
        Command::Completions { shell } => completions::run(shell, Arguments::command()),
        Command::Manual { out } => manual::run(&out, Arguments::command()),
        Command::Reference { page } => reference::run(page),
    };
    log::finish();
    exit
}
