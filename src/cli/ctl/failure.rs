//! Reports a failed `litequic ctl`.

use crate::cli::exit::Exit;
use std::fmt::Display;

/// Failure of `litequic ctl`: exit code and reason.
pub(super) struct CtlFailure {
    pub(super) exit: Exit,
    pub(super) why: String,
}

impl CtlFailure {
    pub(super) fn unavailable(place: &impl Display, why: impl Display) -> Self {
        Self { exit: Exit::Unavailable, why: format!("{place}: {why}") }
    }
}
