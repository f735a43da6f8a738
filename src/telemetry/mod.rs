//! Counters of each worker, summed when scraped, the worker's sign of life, the log, and the access log.

pub mod access;
mod control;
mod counter;
mod export;
mod heartbeat;
pub mod log;
mod metrics;
mod process;
mod reference;
mod routes;
mod servers;
mod table;
mod wakes;

pub use control::{ControlMetrics, Validity};
pub use counter::{Counted, Counter, Gauge, Histogram, Sizes};
pub use export::CONTENT_TYPE;
pub use heartbeat::Heartbeat;
pub use metrics::{Metrics, WorkerMetrics};
pub use reference::{is_counted, reference};
pub use routes::{RouteMetrics, RouteTable, Spoken};
pub use servers::{CheckMetrics, ServerMetrics, ServerName, ServerTable};
pub use wakes::{Cause, Wake};
