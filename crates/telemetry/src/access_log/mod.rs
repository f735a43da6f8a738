//! The access log: the settings in force, which workers follow. A worker formats lines (line.rs) from the record of a
//! request, and sends them to the writing thread (writer.rs).

mod line;
mod logger;
mod metrics;
mod writer;

pub use logger::{AccessLogError, AccessLogFlusher, AccessLogger, OpenedAccessLog, WorkerAccessLog};
pub use metrics::{AccessLogMetrics, WriterMetrics};
