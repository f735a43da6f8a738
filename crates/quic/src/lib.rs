//! Implements LiteQUIC for s2n-quic: QUIC servers that spend less CPU time on each packet. s2n-quic's protocol is
//! unchanged; this crate brings I/O, congestion control, connection IDs, tokens and limits of its own, and a filter for
//! packets' frames, through s2n-quic's provider interfaces. A field of [`LiteQuic`](litequic_config::LiteQuic) switches
//! each of these; those of the socket go to [`OpenSocket`](litequic_net::OpenSocket):
//!
//! - Batched receive: one system call reads up to `receive_batch` messages, of several datagrams each with `gro`.
//! - Batched send: one system call sends up to 64 messages, of several packets each with `gso`.
//! - ACK merge (`ack_merge`): of the acknowledgements in a batch the newest is processed first, and those that it makes
//!   redundant are skipped.
//! - Adaptive ACK frequency (`ack_frequency`): a busy worker requests fewer acknowledgements from clients that support
//!   ACK_FREQUENCY (draft-ietf-quic-ack-frequency).
//! - Receive moderation (`receive_moderation`): with many downloads in flight, datagrams are read at fixed times
//!   instead of when each arrives.
//! - I/O (`io`): epoll, io_uring, or for comparison s2n-quic's.
//! - Congestion control (`congestion`): CUBIC or BBR, both with pacing; `initial_window` packets at first.
//!
//! [`start_endpoint`] starts a server on an open socket, by [`EndpointParts`]; `examples/raw_streams.rs` is a server
//! that echoes raw streams, without HTTP/3:
//!
//! ```sh
//! cargo run --release -p litequic-quic --example raw_streams
//! ```
//!
//! Each module uses only modules before it in this list: [`wire`] parses frames; `identity` issues connection IDs and
//! keys of tokens; `io` is the socket's side; `congestion` decides when packets are sent; `qlog` logs a connection for
//! an operator; `connection` has the state of each connection; `endpoint` connects all with s2n-quic.
//!
//! The crate uses `litequic-net` ([`datagram`](litequic_net::datagram)) and the crates below it. The program starts it,
//! and joins it to `litequic-http3`, which does not know it.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod wire;

mod client;
mod congestion;
mod connection;
mod endpoint;
mod identity;
mod io;
mod metrics;
mod qlog;

pub use client::{ConnectError, ObservedConnection, Observer, TransportParameters, connect_client};
pub use connection::{AckFrequencySupport, AcknowledgedNumbers, AlertHandle, DraftVersion, MAX_ACKNOWLEDGED_RANGES};
pub use endpoint::{
    EndpointError, EndpointParts, EndpointState, QuicEndpoint, QuicTransport, SourceLimits, client_address, library_io,
    log_open_connection, start_endpoint, transport_report,
};
pub use identity::{
    ConnectionIdFormat, Generations, IdLayout, IdScheme, MAX_WORKERS, Replica, SecretError, Secrets, ServerIdKey,
    ServerIdKeyError, WorkerIndex,
};
pub use io::{
    AckReordering, Arrival, EndpointIo, MAX_OVERTAKEN, MAX_REORDERED_CONNECTIONS, MAX_SMALL_DATAGRAM_LEN, ProxyFlows,
    SocketIo,
};
pub use metrics::QuicMetrics;
pub use qlog::{LogEnd, LogOrder, MAX_CONNECTIONS_LOGGED, MAX_LOG_BYTES};
pub use wire::frame;
