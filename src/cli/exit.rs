//! Maps outcomes to exit codes: those of sysexits.h if it has one.

use crate::app::StartError;
use litequic_config::ConfigFaults;
use litequic_telemetry::log::{self, LogError};
use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command did what was requested.
    Success = 0,
    /// `get`, `ctl`: the response's status is 400 or above.
    Status = 1,
    /// `EX_USAGE`: the command line.
    Usage = 64,
    /// `EX_NOINPUT`: `password`: the password cannot be read.
    Input = 66,
    /// `EX_UNAVAILABLE`: an address cannot be bound, a server cannot be reached.
    Unavailable = 69,
    /// `EX_SOFTWARE`: litequic is at fault.
    Software = 70,
    /// `EX_IOERR`: the output cannot be written.
    Output = 74,
    /// `EX_PROTOCOL`: `get`: the server violated the protocol, or closed the connection.
    Protocol = 76,
    /// `EX_CONFIG`: the configuration, or a file that it names.
    Config = 78,
}

/// Exit code of a command; of a failure, whose reason is printed, in `Err`.
pub type CommandResult = Result<ExitCode, ExitCode>;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&LogError> for Exit {
    fn from(error: &LogError) -> Self {
        match error {
            LogError::Filter(_) => Self::Usage,
            LogError::Twice(_) | LogError::Thread(_) => Self::Software,
        }
    }
}

impl From<&StartError> for Exit {
    fn from(error: &StartError) -> Self {
        match error {
            StartError::AdminSocket { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Self::Unavailable,
            StartError::Files(_)
            | StartError::AdminSocket { .. }
            | StartError::Secret(_)
            | StartError::ServerIdKey(_)
            | StartError::NoReplica
            | StartError::AccessLog(_)
            | StartError::Handover { .. }
            | StartError::Token(_) => Self::Config,
            StartError::Bind(_)
            | StartError::Listen(_)
            | StartError::Passed(_)
            | StartError::TakeOver(_)
            | StartError::Admin { .. } => Self::Unavailable,
            StartError::Tls(_) | StartError::Random | StartError::Pipe(_) | StartError::Worker { .. } => Self::Software,
        }
    }
}

/// Writes the whole of `text` to standard output. The reason of a failure is printed on standard error, unless the
/// reader has closed its end (`| head`).
pub fn print_stdout(text: &[u8]) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Exit::Success.into(),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Output.into(),
        Err(error) => exit_with_error(Exit::Output, format!("cannot write to standard output: {error}")),
    }
}

/// Prints the reason on standard error, after the lines of the log, and as one of them if the log is JSON. If the log
/// has a reader that does not read, the wait is at most a second.
pub fn exit_with_error(exit: Exit, why: impl Display) -> ExitCode {
    let reason = format!("litequic: {why}\n");
    if log::finish_log() {
        log::write_end_reason(|| tracing::error!("{why}"), reason);
    } else {
        // If standard error is closed, only the exit code remains.
        let _ = io::stderr().write_all(reason.as_bytes());
    }
    exit.into()
}

/// Prints a configuration's faults on standard error, in the format of editors and CI: `FILE:LINE:COLUMN: …`.
pub fn exit_with_faults(faults: &ConfigFaults) -> ExitCode {
    // If standard error is closed, only the exit code remains.
    let _ = writeln!(io::stderr(), "{faults}");
    Exit::Config.into()
}
