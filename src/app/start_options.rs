//! Holds the options of a start that the configuration does not have.

use super::{descriptors::OpenFilesLimit, sockets::InheritedSockets};
use litequic_admin::{self as admin, DefaultSocket, ProcessIdentity};
use litequic_resources::memory::MemoryGauge;
use litequic_telemetry::log;
use std::{path::PathBuf, sync::Arc};
use tokio::sync::mpsc;

/// Options of a start that the configuration does not have, from the command line or a test.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// Description of the process for operators.
    pub identity: ProcessIdentity,
    /// Queue of requests of `POST /reload`. `None` without a reloader.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
    /// Admin socket of a configuration that names none.
    pub admin_socket: DefaultSocket,
    /// Socket of the running process that has started this one, to take over from it.
    pub predecessor: Option<PathBuf>,
    /// Sockets that a service manager has bound.
    pub inherited: InheritedSockets,
    /// Gauge of the memory shortage. `None`: litequic measures memory itself, by `limits.memory`.
    pub memory: Option<MemoryGauge>,
    /// Metrics of the log's lines.
    pub log: Arc<log::LogLineMetrics>,
    /// Limit of open files to plan with.
    pub open_files: OpenFilesLimit,
}
