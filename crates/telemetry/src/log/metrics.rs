//! Metrics of the error log.

use crate::metrics;
use std::sync::atomic::AtomicU64;

metrics! {
    /// Counts of the log's lines, of all threads.
    pub struct LogLineMetrics {
        AtomicU64("log_lines", "Lines of the error log, by result.") {
            queued [result: "queued"] "Lines of the [error log](../operating.md#error-log) that were queued for its writer.",
            suppressed [result: "suppressed"]
                "Lines beyond the first 100 of one kind in ten seconds; a line says how many there were.",
            dropped [result: "dropped"]
                "Lines that were dropped because the queue was full: the reader of standard error is too slow, or has \
                    stopped.",
            lost [result: "lost"] "Lines that could not be written.",
        }
    }
}
