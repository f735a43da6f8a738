//! Why `litequic ctl` has nothing to print.

use crate::cli::exit::{Exit, fail};
use std::{fmt::Display, process::ExitCode};

/// Why there is nothing to print.
pub(super) struct CtlFailure {
    pub(super) exit: Exit,
    pub(super) why: String,
}

impl CtlFailure {
    pub(super) fn unavailable(place: &impl Display, why: impl Display) -> Self {
        Self { exit: Exit::Unavailable, why: format!("{place}: {why}") }
    }

    pub(super) fn exit(&self) -> ExitCode {
        fail(self.exit, &self.why)
    }
}
