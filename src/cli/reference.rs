//! Runs `litequic reference`: prints the pages of `docs/reference/`, made from the program's own tables.

use super::exit::print_stdout;
use crate::app;
use clap::ValueEnum;
use litequic_config as config;
use std::process::ExitCode;

/// The pages of the reference.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ReferencePage {
    /// Every key of the configuration.
    Configuration,
    /// Every metric.
    Metrics,
}

impl ReferencePage {
    /// Text of the page, in Markdown.
    pub fn reference_text(self) -> String {
        match self {
            Self::Configuration => config::reference_page(),
            Self::Metrics => app::metrics_reference(),
        }
    }
}

/// Prints `page` to stdout.
pub(super) fn print_reference(page: ReferencePage) -> ExitCode {
    print_stdout(page.reference_text().as_bytes())
}
