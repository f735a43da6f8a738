//! The composition root: the only module that depends on all others. Reads as a table of contents of a running
//! litequic.

mod acme_files;
mod acme_issuer;
mod active_state;
mod admin_socket;
mod bounds;
mod clients;
mod collector_tls;
mod denial;
mod descriptors;
mod draining;
mod files;
mod handover;
mod idle;
mod inside;
mod issued;
mod last_reload;
mod mailbox;
mod memory;
mod memory_limit;
mod metrics;
mod named_socket;
mod options;
mod origin_tls;
pub mod reload;
mod renewal;
mod replica;
mod running;
mod service;
mod sockets;
mod start;
mod start_error;
mod switch;
mod users;
mod watch;
mod worker;

pub use descriptors::{DescriptorPlan, OpenFilesLimit, RaiseLimitError, raise_open_files};
pub use files::{LoadedConfig, load_files};
pub(crate) use idle::set_memory_release;
pub use metrics::{ProcessMetrics, TurnMetrics, WorkerMetrics, has_metric, metrics_reference};
pub use options::StartOptions;
pub use running::{RunningProcess, WorkerDied};
pub use sockets::InheritedSockets;
pub use start::start_litequic;
pub use start_error::StartError;
