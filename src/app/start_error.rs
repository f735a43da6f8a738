//! Why litequic did not start.

use super::handover::HandoverError;
use litequic_admin as admin;
use litequic_net::{BindError, ListenError};
use litequic_proxy::{PageError, UsersError};
use litequic_quic::{SecretError, ServerIdKeyError};
use litequic_telemetry::access_log::{self};
use std::{io, net::SocketAddr, path::PathBuf};

/// A host without a name, where `listen.secret_file` is set.
pub(super) const NO_REPLICA: &str =
    "this host has no name; set listen.replica to one that no other replica with this secret has";

/// Why litequic did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operator's files, valid a moment ago.
    #[error("{}", join_lines(.0))]
    Pages(Vec<PageError>),
    /// Files of users.
    #[error("{}", join_lines(.0))]
    Users(Vec<UsersError>),
    /// Files of TLS to origins, and to the collector of spans, by key.
    #[error("{}", .0.iter().map(|(key, problem)| format!("{key}: {problem}")).collect::<Vec<_>>().join("\n"))]
    OriginTls(Vec<(String, String)>),
    /// The operator's file as well.
    #[error("listen.secret_file: {0}")]
    Secret(#[from] SecretError),
    /// The key that the configuration names, for connection IDs.
    #[error("listen.server_id.key_file: {0}")]
    ServerIdKey(#[from] ServerIdKeyError),
    /// The host has no name, and the configuration none for the replica.
    #[error("listen.secret_file: {NO_REPLICA}")]
    NoReplica,
    /// The file that the configuration names as well.
    #[error(transparent)]
    AccessLog(#[from] access_log::AccessLogError),
    /// The token that the configuration names.
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
        /// Address that the key has.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The Unix socket that the configuration names for requests.
    #[error("cannot listen on admin.socket = {path:?}: {source}")]
    AdminSocket {
        /// Path that the key has.
        path: PathBuf,
        /// The kernel's reason, or another process.
        source: io::Error,
    },
    /// The sockets that a service manager passed cannot be used.
    #[error("cannot use a socket that the service manager passed: {0}")]
    Passed(io::Error),
    /// The running process keeps its place.
    #[error(transparent)]
    TakeOver(#[from] HandoverError),
    /// The Unix socket that the configuration names.
    #[error("cannot listen on admin.handover = {path:?}: {source}")]
    Handover {
        /// Path that the key has.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// pipe(2) failed.
    #[error("cannot create a pipe: {0}")]
    Pipe(io::Error),
    /// rustls rejected what it was given.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system's random number generator failed.
    #[error("cannot generate random secrets")]
    Random,
    /// A thread or its endpoint did not start.
    #[error("worker {index} did not start: {reason}")]
    Worker {
        /// Which.
        index: usize,
        /// Why.
        reason: String,
    },
}

fn join_lines(errors: &[impl ToString]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
