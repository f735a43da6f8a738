//! QUIC by s2n-quic, with litequic's own connection IDs, tokens, limits and sockets: what makes several endpoints on
//! one port one server.
//!
//! A module uses those before it in this list: [`wire`] parses frames; `identity` issues connection IDs and keys of
//! tokens; `io` is the socket's side; `congestion` decides when packets are sent; `qlog` logs what a connection does,
//! for an operator who asks; `connection` has the state of each connection; `endpoint` connects them with s2n-quic.
//!
//! It uses `litequic-net` ([`datagram`](litequic_net::datagram)) and the crates below it. The program starts it, and
//! joins it to `litequic-http3`, which does not know it.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod wire;

#[cfg(not(fuzzing))] // as `app` in lib.rs
mod client;
mod congestion;
mod connection;
mod endpoint;
mod identity;
mod io;
mod metrics;
mod qlog;

#[cfg(not(fuzzing))]
pub use client::{
    ConnectError, Counts, Observed, Observer, Packet, PacketDirection, RoundTrip, TransportParameters, connect,
};
pub use connection::{AckFrequencySupport, Acknowledged, AlertHandle, DraftVersion, MAX_RANGES};
pub use endpoint::{
    EndpointError, EndpointParts, EndpointState, QuicEndpoint, QuicTransport, SourceLimits, client_address, library_io,
    log_open, start, transport_report,
};
pub use identity::{
    ConnectionIdFormat, Generations, IdScheme, Layout, MAX_WORKERS, Replica, SecretError, Secrets, ServerIdKey,
    ServerIdKeyError, WorkerIndex,
};
pub use io::{AckReordering, Arrival, EndpointIo, MAX_AHEAD, MAX_CONNECTIONS, SMALL, SocketIo};
pub use metrics::Metrics;
pub use qlog::{LogEnd, LogOrder, MAX_CONNECTIONS_LOGGED, MAX_LOG_BYTES};
pub use wire::frame;
