//! Defines `[log]`: level and format of the error log.

use crate::reading::{table::keys, value_kinds::one_of};
use litequic_base::named_enum;

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

named_enum! {
    /// Severity of a log line: `log.level`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum LogSeverity {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

named_enum! {
    /// Format of a log line: `log.format`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LogFormat {
        /// Human on a terminal, JSON otherwise.
        Auto = "auto",
        /// Text for people.
        Human = "human",
        /// One JSON object per line.
        Json = "json",
    }
}
