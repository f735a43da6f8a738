//! Counters of each worker, summed when scraped, the worker's sign of life, the log, and the access log.

pub mod access;
mod control;
mod counter;
mod export;
mod heartbeat;
pub mod log;
mod metrics;
mod process;
mod routes;

pub use control::ControlMetrics;
pub use counter::{Counter, Gauge, Histogram};
pub use export::CONTENT_TYPE;
pub use heartbeat::Heartbeat;
pub use metrics::{Metrics, WorkerMetrics};
pub use routes::{RouteMetrics, RouteTable};
