//! QUIC by s2n-quic, with litequic's own connection IDs, tokens, limits and sockets: what makes several endpoints on
//! one port one server.
//!
//! A module uses those before it in this list: [`wire`] parses frames; `identity` issues connection IDs and keys of
//! tokens; `io` is the socket's side; `congestion` decides when packets are sent; `connection` has the state of each
//! connection; `endpoint` connects them with s2n-quic.

pub mod wire;

#[cfg(not(fuzzing))] // as `app` in lib.rs
mod client;
mod congestion;
mod connection;
mod endpoint;
mod identity;
mod io;
mod metrics;

#[cfg(not(fuzzing))]
pub use client::{
    ConnectError, Counts, Direction, Observed, Observer, Packet, RoundTrip, TransportParameters, connect,
};
pub use connection::{Acknowledged, Connections, Draft, Excess, MAX_RANGES, Offer, Window, client_address};
pub use endpoint::{Endpoint, EndpointParts, Pools, StartError, library_io, start};
pub use identity::{Generations, Layout, LayoutError, MAX_WORKERS, SecretError, Secrets, ServerId, WorkerIndex};
pub use io::{Arrival, Io, MAX_AHEAD, MAX_CONNECTIONS, Order, SMALL, SocketIo};
pub use metrics::Metrics;
pub use wire::frame;
