//! Metrics of the access log.

use crate::{Counter, metrics};
use std::sync::atomic::AtomicU64;

metrics! {
    /// Counters of the access log on one worker.
    pub struct AccessLogMetrics {
        Counter("access_log_lines", "Lines of the access log, by result.") {
            queued [result: "queued"] "Lines of the [access log](../operating.md#access-log) that were queued for its writer.",
            dropped [result: "dropped"] "Lines that were dropped because the queue was full: the disk, or the reader, is too slow.",
        }
    }
}

metrics! {
    /// Counters of the writing threads: two while one replaces the other.
    pub struct WriterMetrics {
        AtomicU64("access_log_lost_lines", "Lines of the access log that could not be written.") {
            lost,
        }
    }
}
