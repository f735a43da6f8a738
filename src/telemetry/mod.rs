//! Counters of each worker, summed when scraped, and the log.

mod counter;
mod metrics;

pub use counter::{Counter, Gauge};
pub use metrics::{Metrics, WorkerMetrics};
