//! Writes the log: one line an event on standard error, with a time in UTC in the format of RFC 3339; on a terminal,
//! with the local time of day (terminal.rs). A thread writes the lines (`log_writer`); a caller formats its line, and
//! never waits. The number of lines that one place may log is limited (line_limiter.rs).

mod capture;
mod json;
mod line_limiter;
mod line_limits;
mod log_lines;
mod metrics;
mod setup;
mod terminal;

pub use log_lines::{defer_log_wakes, finish_log, wake_log_writer, write_end_reason, write_panic_lines};
pub use metrics::LogLineMetrics;
pub use setup::{LogError, LogHandle, VARIABLE, init_log};
