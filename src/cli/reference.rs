//! `litequic reference`: the pages of `docs/reference/`, made from the program's own tables.

use super::exit::print;
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
    pub fn text(self) -> String {
        match self {
            Self::Configuration => config::reference(),
            Self::Metrics => app::reference(),
        }
    }
}

/// Prints `page` to stdout.
pub(super) fn run(page: ReferencePage) -> ExitCode {
    print(page.text().as_bytes())
}
