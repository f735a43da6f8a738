//! One worker's QUIC endpoint on one listen address.

use super::{
    Secrets, WorkerIndex, address_token,
    connection_id::{self, Layout},
    limiter::{Admission, Limiter},
    occupancy::Occupancy,
    stateless_reset,
};
use crate::{
    config::{Limits, Timeouts},
    telemetry::WorkerMetrics,
};
use rustls::ServerConfig;
use s2n_quic::{
    Server,
    provider::{io, limits as connection, tls},
};
use s2n_quic_core::connection::limits::ValidationError;
use std::{net::UdpSocket, sync::Arc};

/// Streams that a client may open one way: control, QPACK encoder and decoder (RFC 9114 §6.2), and a few of unknown
/// types, which clients send to keep servers honest (§9).
const MAX_UNI_STREAMS: u64 = 16;
/// Octets a one-way stream: SETTINGS and PRIORITY_UPDATE are small.
const UNI_STREAM_WINDOW: u64 = 64 * 1024;
/// Octets of an IP packet: Ethernet's. Loopback's 65,536 would make measurements lie.
const MAX_MTU: u16 = 1500;
/// Octets that received datagrams wait in: 32 messages of 64 KiB, as the kernel's GRO fills them. s2n-quic's default of
/// 8 MiB is a small container's memory once there are several workers; this still is 15 full datagrams a message.
const RECEIVE_QUEUE: usize = 32 * 65_535;
/// Octets that datagrams to send wait in: 16 messages of the 10 segments that s2n-quic's own I/O puts into one.
const SEND_QUEUE: usize = 16 * 10 * MAX_MTU as usize;
/// What an endpoint is made of, beside its socket. Cheap to clone: one for each endpoint of a worker.
#[derive(Debug, Clone)]
pub struct EndpointParts {
    /// What a client may do at most.
    pub limits: Limits,
    /// How long litequic waits.
    pub timeouts: Timeouts,
    /// Certificates and tickets, the same for all workers.
    pub tls: Arc<ServerConfig>,
    /// Token keys, the same for all workers.
    pub secrets: Arc<Secrets>,
    /// The shape of the connection IDs, the same for all workers.
    pub layout: Layout,
    /// Tells this process' connection IDs from another's on the same port.
    pub generation: u8,
    /// How many workers there are.
    pub workers: usize,
    /// This worker's counters.
    pub metrics: Arc<WorkerMetrics>,
}

/// Why an endpoint did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A configured value is one that QUIC cannot express.
    #[error("QUIC cannot be configured: {0}")]
    Configuration(String),
    /// The socket was refused.
    #[error("QUIC cannot use its socket: {0}")]
    Socket(#[from] std::io::Error),
    /// s2n-quic did not start.
    #[error("QUIC did not start: {0}")]
    Start(#[from] s2n_quic::provider::StartError),
}

/// Starts `worker`'s endpoint on `socket`. To be called on the worker's thread, inside its runtime, on which s2n-quic
/// spawns its tasks. They end after the [`Server`] is dropped and its last connection has closed.
///
/// # Errors
///
/// [`StartError`]: the operator's to mend, or ours.
pub fn start(socket: UdpSocket, worker: WorkerIndex, parts: &EndpointParts) -> Result<Server, StartError> {
    let io = io::tokio::Builder::default()
        .with_rx_socket(socket)?
        .with_max_mtu(MAX_MTU)?
        .with_internal_recv_buffer_size(RECEIVE_QUEUE)?
        .with_internal_send_buffer_size(SEND_QUEUE)?
        .build()?;
    let admission = Admission::new(parts.limits, Arc::clone(&parts.metrics));
    let ids = connection_id::Format::new(parts.layout, parts.generation, worker, parts.workers);
    let limits = transport_limits(&parts.limits, &parts.timeouts).map_err(configuration)?;

    let secrets = || Arc::clone(&parts.secrets);

    let server = Server::builder()
        .with_tls(tls::rustls::Server::from(Arc::clone(&parts.tls)))
        .and_then(|builder| builder.with_io(io))
        .and_then(|builder| builder.with_limits(limits))
        .and_then(|builder| builder.with_connection_id(ids))
        .and_then(|builder| builder.with_address_token(address_token::Format::new(secrets(), admission.clone())))
        .and_then(|builder| builder.with_stateless_reset_token(stateless_reset::Generator::new(secrets())))
        .and_then(|builder| builder.with_endpoint_limits(Limiter(admission)))
        .and_then(|builder| builder.with_event(Occupancy::new(Arc::clone(&parts.metrics))))
        .map_err(configuration)?;
    Ok(server.start()?)
}

/// The transport parameters (RFC 9000 §18.2) and what s2n-quic bounds beside them. No keep-alive: an idle connection
/// may end. Clients may migrate. Congestion control is s2n-quic's default, CUBIC (RFC 9438).
fn transport_limits(limits: &Limits, timeouts: &Timeouts) -> Result<connection::Limits, ValidationError> {
    connection::Limits::new()
        .with_max_idle_timeout(timeouts.idle)?
        .with_max_handshake_duration(timeouts.handshake)?
        .with_max_open_remote_bidirectional_streams(limits.max_streams.into())?
        .with_max_open_remote_unidirectional_streams(MAX_UNI_STREAMS)?
        .with_data_window(limits.connection_receive_buffer.into())?
        .with_bidirectional_remote_data_window(limits.stream_receive_buffer.into())?
        .with_unidirectional_data_window(UNI_STREAM_WINDOW)?
        .with_max_send_buffer_size(limits.stream_send_buffer)?
        .with_active_connection_migration(true)
}

fn configuration(error: impl std::fmt::Display) -> StartError {
    StartError::Configuration(error.to_string())
}
