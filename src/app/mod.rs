//! The composition root: the only module that depends on all others. Reads as a table of contents of a running
//! litequic.

mod acme_certificates;
mod acme_files;
mod acme_issuer;
mod active_state;
mod admin_hooks;
mod admin_socket;
mod client_control;
mod collector_tls;
mod config_files;
mod denial;
mod descriptors;
mod draining;
mod file_watcher;
mod handover;
mod http3_switch;
mod idle_memory;
mod last_reload;
mod log_limits;
mod mailbox;
mod memory_limit;
mod memory_watch;
mod metrics;
mod named_socket;
mod origin_tls;
pub mod reload;
mod renewal;
mod replica;
mod running;
mod service;
mod sockets;
mod start;
mod start_error;
mod start_options;
mod users;
mod worker;

pub use config_files::{LoadedConfig, load_files};
pub use descriptors::{DescriptorPlan, OpenFilesLimit, RaiseLimitError, raise_open_files};
pub(crate) use idle_memory::set_memory_release;
pub use metrics::{ProcessMetrics, TurnMetrics, WorkerMetrics, has_metric, metrics_reference};
pub use running::{RunningProcess, WorkerDied};
pub use sockets::InheritedSockets;
pub use start::start_litequic;
pub use start_error::StartError;
pub use start_options::StartOptions;
