//! Defines `[log]`: level and format of the error log.

use crate::reading::{table::keys, value_kinds::one_of};

keys! {
    /// The error log: `[log]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LogConfig {
        // The level that operators of a healthy proxy need.
        /// Least severe level that is written.
        level: LogSeverity = LogSeverity::Info, one_of(LogSeverity::NAMES);

        // The format that suits the reader.
        /// Format of a line. `auto` is `human` on a terminal and otherwise `json`, an object for each line.
        format: LogFormat = LogFormat::Auto, one_of(LogFormat::NAMES), restart;
    }
}

/// Severity of a log line: `log.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogSeverity {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogSeverity {
    /// Values by their names in the configuration.
    pub const NAMES: &[(&str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// Format of a log line: `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Values by their names in the configuration.
    pub const NAMES: &[(&str, Self)] = &[("auto", Self::Auto), ("human", Self::Human), ("json", Self::Json)];
}
