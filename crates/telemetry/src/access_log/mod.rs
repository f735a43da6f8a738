//! Writes the access log: workers follow the settings in force. A worker formats lines (line.rs) from the record of a
//! request, and sends them to the writing thread (writer.rs).

mod line;
mod logger;
mod metrics;
mod writer;

pub use logger::{AccessLogError, AccessLogFlusher, AccessLogger, OpenedAccessLog, WorkerAccessLog};
pub use metrics::{AccessLogMetrics, WriterMetrics};
