//! Defines the reasons for which litequic does not start.

use super::handover::HandoverError;
use litequic_admin as admin;
use litequic_config::ConfigFaults;
use litequic_net::{BindError, ListenError};
use litequic_quic::{SecretError, ServerIdKeyError};
use litequic_telemetry::access_log::{self};
use std::{io, net::SocketAddr, path::PathBuf};

/// Problem of a host without a name, if `listen.secret_file` is set.
pub(super) const NO_REPLICA: &str =
    "this host has no name; set listen.replica to one that no other replica with this secret has";

/// Reason for which litequic did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Files for requests cannot be read, although they were valid a moment ago.
    #[error(transparent)]
    Files(#[from] ConfigFaults),
    /// The file of `listen.secret_file` cannot be used.
    #[error("listen.secret_file: {0}")]
    Secret(#[from] SecretError),
    /// The file of `listen.server_id.key_file` cannot be used.
    #[error("listen.server_id.key_file: {0}")]
    ServerIdKey(#[from] ServerIdKeyError),
    /// Neither the host nor the configuration has a name for the replica.
    #[error("listen.secret_file: {NO_REPLICA}")]
    NoReplica,
    /// The file of the access log cannot be opened.
    #[error(transparent)]
    AccessLog(#[from] access_log::AccessLogError),
    /// The token of the admin address cannot be read.
    #[error(transparent)]
    Token(#[from] admin::TokenError),
    /// A UDP address is in use, or not local.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A TCP address is in use, or not local.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An admin address is in use, or not local.
    #[error("cannot bind {key} = \"{address}\": {source}")]
    Admin {
        /// The key of `[admin]`.
        key: &'static str,
        /// Address of the key.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The socket of `admin.socket` cannot be bound.
    #[error("cannot listen on admin.socket = {path:?}: {source}")]
    AdminSocket {
        /// Path of the key.
        path: PathBuf,
        /// The kernel's reason, or the process that uses the path.
        source: io::Error,
    },
    /// The sockets that a service manager passed cannot be used.
    #[error("cannot use a socket that the service manager passed: {0}")]
    Passed(io::Error),
    /// The running process refuses the handover, or the handover failed.
    #[error(transparent)]
    TakeOver(#[from] HandoverError),
    /// The socket of `admin.handover` cannot be bound.
    #[error("cannot listen on admin.handover = {path:?}: {source}")]
    Handover {
        /// Path of the key.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// pipe(2) failed.
    #[error("cannot create a pipe: {0}")]
    Pipe(io::Error),
    /// rustls rejected certificates or keys.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system's random number generator failed.
    #[error("cannot generate random secrets")]
    Random,
    /// A worker's thread or endpoint did not start.
    #[error("worker {index} did not start: {reason}")]
    Worker {
        /// Index of the worker.
        index: usize,
        /// Reason of the failure.
        reason: String,
    },
}
