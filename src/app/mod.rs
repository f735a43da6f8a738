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

pub use descriptors::{DescriptorPlan, OpenFiles, RaiseError, raise_limit};
pub use files::{Loads, load};
pub(crate) use idle::release_by;
pub use metrics::{Metrics, TurnMetrics, WorkerMetrics, is_counted, reference};
pub use options::Options;
pub use running::{Running, WorkerDied};
pub use sockets::Inherited;
pub use start::start;
pub use start_error::StartError;
