//! Observability: metrics of a module (group.rs), their exposition and their reference; a worker's heartbeat; the log.

mod confinement;
mod control;
mod counter;
mod exemplar;
mod export;
mod group;
mod heartbeat;
pub mod log;
mod process;
mod reference;
mod requests;
mod table;
mod wakes;

pub use confinement::Confinement;
pub use control::{CertificateValidity, Certificates, ControlMetrics, Version};
pub use counter::{Counted, Counter, Gauge, Histogram, Sizes};
pub use exemplar::{Exemplar, Exemplars};
pub use export::{CONTENT_TYPE, Registry};
pub(crate) use group::metrics;
pub use group::{
    CLIENT_CERTIFICATES_REFUSED, DENIED, Family, Group, HANDSHAKE_GROUPS, HANDSHAKES, IO_SYSCALLS, LIMIT_REACHED,
    Labels, Measure, REQUESTS, Sample, TIMEOUTS, Value,
};
pub use heartbeat::Heartbeat;
pub use process::Process;
pub use requests::RequestMetrics;
pub use table::{Key, Table, plain};
pub use wakes::{Cause, Wake, WakeMetrics};
