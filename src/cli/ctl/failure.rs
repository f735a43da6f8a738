//! Reports a failed `litequic ctl`.

use crate::cli::exit::{Exit, exit_with_error};
use std::{fmt::Display, process::ExitCode};

/// Failure of `litequic ctl`: exit code and reason.
pub(super) struct CtlFailure {
    pub(super) exit: Exit,
    pub(super) why: String,
}

impl CtlFailure {
    pub(super) fn unavailable(place: &impl Display, why: impl Display) -> Self {
        Self { exit: Exit::Unavailable, why: format!("{place}: {why}") }
    }

    pub(super) fn print_and_exit(&self) -> ExitCode {
        exit_with_error(self.exit, &self.why)
    }
}
