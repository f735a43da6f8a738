//! What the command line adds to the configuration.

use super::{descriptors::OpenFilesLimit, sockets::InheritedSockets};
use litequic_admin::{self as admin, DefaultSocket};
use litequic_resources::memory::MemoryGauge;
use litequic_telemetry::log;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What the command line adds to the configuration.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// The receiver of `POST /reload`. `None`: there is none.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
    /// The admin socket of a configuration that names none.
    pub admin_socket: DefaultSocket,
    /// What a service manager has bound.
    pub inherited: InheritedSockets,
    /// Reports how short memory is. Without it litequic watches memory itself, as `limits.memory` says.
    pub memory: Option<MemoryGauge>,
    /// The counts of the log's lines.
    pub log: Arc<log::LogLineMetrics>,
    /// The limit of open files that counts.
    pub open_files: OpenFilesLimit,
}
