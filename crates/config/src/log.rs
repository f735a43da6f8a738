//! `[log]`: the log.

use crate::reading::{table::keys, value_kinds::one_of};

keys! {
    /// The log.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LogConfig {
        // What an operator reads of a healthy proxy.
        /// Least severe level that is written.
        level: LogSeverity = LogSeverity::Info, one_of(LogSeverity::NAMES);

        // The format that fits the reader.
        /// Format of a line. `auto` is `human` on a terminal and otherwise `json`, an object for each line.
        format: LogFormat = LogFormat::Auto, one_of(LogFormat::NAMES), restart;
    }
}

/// `level`
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
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// `format`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// For machines, an object a line.
    Json,
}

impl LogFormat {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("auto", Self::Auto), ("human", Self::Human), ("json", Self::Json)];
}
