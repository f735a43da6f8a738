//! Defines the commands, and hints for a command line with another server's words.

use super::exit::{self, Exit};
use super::version::VERSION;
use super::{
    certificate, check, completions, ctl, demo, example, get, manual, panic, password, probe, reference, run, schema,
};
use crate::app;
use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;
use litequic_telemetry::log;
use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

/// Terminates HTTP/3, and forwards requests over HTTP/1.1 or HTTP/2 to an unmodified origin.
#[derive(Debug, Parser)]
#[command(name = "litequic", version = VERSION, arg_required_else_help = true, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the proxy, by a configuration file or, for one origin, by options.
    Run(run::RunArguments),
    /// Print every fault of a configuration, and exit with 78 if there is one.
    #[command(override_usage = "litequic check <FILE>\n       litequic check --config <FILE>")]
    Check {
        /// The configuration file.
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The configuration file, without the option.
        #[arg(value_name = "FILE", required_unless_present = "config", conflicts_with = "config")]
        file: Option<PathBuf>,
        /// Print how file descriptors are divided, even if they are enough.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Try HTTP/3: serve a small origin, or your own, with a self-signed certificate.
    Demo(demo::DemoArguments),
    /// Control a running litequic: status, health, configuration, reload, maintenance, drain.
    Ctl(ctl::CtlArguments),
    /// Make one HTTP/3 request: for health checks and scripts.
    Get(Box<get::GetArguments>),
    /// Print the kernel's features, the process's environment, and what litequic would use.
    Probe(probe::ProbeArguments),
    /// Print a line with a user's name and the hash of a password, for `users` of a route.
    Password(password::PasswordArguments),
    /// Print an example of a configuration.
    Example(example::ExampleArguments),
    /// Write a certificate for development, signed by an authority of this machine.
    Certificate(certificate::CertificateArguments),
    /// Print the configuration's JSON schema.
    Schema,
    /// Print a shell's completion script.
    Completions {
        /// The shell that the script is for.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages.
    Manual {
        /// The folder that they are written into; it is created if missing.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print a page of the reference, as Markdown.
    Reference {
        /// The page.
        page: reference::ReferencePage,
    },
}

/// Suggests the command for words of other servers' command lines, and for words of `ctl`.
fn suggested_command(words: &[String]) -> Option<&'static str> {
    Some(match words.first()?.as_str() {
        "reload" => "litequic ctl reload",
        "-s" if words.get(1).is_some_and(|signal| signal == "reload") => "litequic ctl reload",
        "stop" | "quit" | "shutdown" | "drain" | "-s" => "litequic ctl drain",
        "validate" | "test" | "-t" | "-T" => "litequic check FILE",
        "start" | "serve" | "-c" | "--config" => "litequic run FILE",
        "status" => "litequic ctl status",
        "config" => "litequic ctl config",
        "health" => "litequic ctl health",
        "ready" => "litequic ctl ready",
        "metrics" => "litequic ctl metrics",
        "maintenance" => "litequic ctl maintenance",
        "upgrade" => "kill -USR2 PROCESS",
        "version" | "-v" => "litequic --version",
        "examples" => "litequic example",
        "htpasswd" | "hash-password" | "passwd" => "litequic password NAME",
        _ => return None,
    })
}

/// Returns whether `run` was given an origin and no certificate.
fn lacks_certificate(words: &[String]) -> bool {
    let has = |option: &str| words.iter().any(|word| word == option || word.starts_with(&format!("{option}=")));
    words.first().is_some_and(|command| command == "run") && has("--origin") && !(has("--cert") || has("--key"))
}

/// Runs the command that the process' arguments name. `release` returns memory of the calling thread, which has freed
/// it, from the allocator to the system.
pub fn main(release: fn()) -> ExitCode {
    app::set_memory_release(release);
    panic::end_process_on_panic();
    let words: Vec<_> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments = match CommandLine::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(instead) = suggested_command(&words) {
                let word = words.first().map_or("", String::as_str);
                return exit::exit_with_error(
                    Exit::Usage,
                    format!("there is no `litequic {word}`; did you mean `{instead}`?"),
                );
            }
            // A closed output is no error.
            let _ = error.print();
            if error.kind() == ErrorKind::MissingRequiredArgument && lacks_certificate(&words) {
                let _ = writeln!(io::stderr(), "\nfor a test, `litequic demo --origin URL` creates a certificate");
            }
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    let done = match arguments.command {
        CliCommand::Run(arguments) => run::run_server(arguments),
        CliCommand::Check { config, file, verbose } => {
            check::check_config(&config.or(file).unwrap_or_default(), verbose)
        }
        CliCommand::Ctl(arguments) => ctl::run_ctl(arguments),
        CliCommand::Demo(arguments) => demo::run_demo(arguments),
        CliCommand::Get(arguments) => get::run_get(*arguments),
        CliCommand::Probe(arguments) => probe::print_probe(arguments),
        CliCommand::Password(arguments) => password::print_password_line(&arguments),
        CliCommand::Example(arguments) => Ok(example::print_example(&arguments)),
        CliCommand::Certificate(arguments) => Ok(certificate::write_certificate(arguments)),
        CliCommand::Schema => Ok(schema::print_schema()),
        CliCommand::Completions { shell } => Ok(completions::print_completions(shell, CommandLine::command())),
        CliCommand::Manual { out } => Ok(manual::write_manual(&out, CommandLine::command())),
        CliCommand::Reference { page } => Ok(reference::print_reference(page)),
    };
    log::finish_log();
    done.unwrap_or_else(|failed| failed)
}
