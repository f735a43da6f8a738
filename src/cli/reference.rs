//! `litequic reference`: the pages of `docs/reference/`, made from what the program itself goes by.

use crate::{config, telemetry};
use clap::ValueEnum;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// What there is a reference of.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Page {
    /// Every key of the configuration.
    Configuration,
    /// Every metric.
    Metrics,
}

impl Page {
    /// Its text: Markdown.
    pub fn text(self) -> String {
        match self {
            Self::Configuration => config::reference(counted_by),
            Self::Metrics => telemetry::reference(),
        }
    }
}

/// Prints `page` to stdout.
pub(super) fn run(page: Page) -> ExitCode {
    match io::stdout().write_all(page.text().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The metric that counts when what a `key` bounds is reached: that of its own name, but for a few.
pub fn counted_by(key: &str) -> Option<String> {
    let (section, name) = key.rsplit_once('.')?;
    let metric = match (section, name) {
        ("limits", "retry_handshakes") => "litequic_retries_sent_total".into(),
        ("limits", "stream_send_buffer" | "connection_send_buffer" | "worker_send_buffer") => limit("send_buffer"),
        ("limits", "max_tunnels") => "litequic_tunnels_refused_total".into(),
        ("limits", "memory") => limit("memory_connections"),
        ("limits", "by_source") => "litequic_limit_reached_total{limit=\"source_connections\"}".into(),
        ("limits", _) => limit(name),
        ("origin", "retry_share" | "retry_minimum") => "litequic_origin_retries_refused_total".into(),
        ("origin", _) => limit(&format!("origin_{name}")),
        ("timeouts", _) => format!("litequic_timeouts_total{{timeout=\"{name}\"}}"),
        _ => return None,
    };
    telemetry::is_counted(&metric).then_some(metric)
}

fn limit(name: &str) -> String {
    format!("litequic_limit_reached_total{{limit=\"{name}\"}}")
}
