//! Observability: metrics, their exposition and their reference; a worker's heartbeat; the log, the access log, traces,
//! and reports of clients' connections.
//!
//! This crate uses `litequic-base`, `litequic-config` and `litequic-exchange`. All crates that count something use it.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod clients;
mod confinement;
mod control;
mod counter;
mod counter_table;
mod exemplar;
mod group;
mod heartbeat;
pub mod log;
mod metrics_registry;
mod process;
mod reference;
mod requests;
mod text_format;
pub mod traces;
mod wakes;

pub use confinement::Confinement;
pub use control::{CertificateValidities, CertificateValidity, ConfigVersion, ControlMetrics, ProblemTable};
pub use counter::{Counter, Gauge, GaugeGuard, Histogram, SizeHistogram};
pub use counter_table::{CounterKey, CounterTable, plain_label};
pub use exemplar::{Exemplar, Exemplars};
pub use group::{
    CLIENT_CERTIFICATES_REFUSED, DENIED, Family, Group, HANDSHAKE_GROUPS, HANDSHAKES, IO_SYSCALLS, LIMIT_REACHED,
    Labels, Measure, REQUESTS, Sample, SampleValue, TIMEOUTS,
};
pub use heartbeat::Heartbeat;
pub use metrics_registry::{CONTENT_TYPE, MetricsRegistry};
pub use process::ProcessFigures;
pub use requests::RequestMetrics;
pub use text_format::{PROMETHEUS_TYPE, prefers_prometheus_text, to_prometheus_text};
pub use wakes::{WakeCause, WakeMetrics, WakeTracker};
