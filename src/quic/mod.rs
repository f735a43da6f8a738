//! QUIC by s2n-quic, with litequic's own connection IDs, tokens, limits and sockets: what makes several endpoints on
//! one port one server.

pub mod ack_merge;
pub mod frame;

mod ack_frequency;
mod address_token;
mod amplification;
mod answers;
mod batches;
mod by_id;
mod challenges;
#[cfg(not(fuzzing))] // as `app` in lib.rs
mod client;
mod client_address;
mod close;
mod conduct;
mod congestion;
mod connection_id;
mod connections;
mod contents;
mod datagrams;
mod endpoint;
mod generations;
mod handshake;
mod io;
mod limiter;
mod lost;
mod metrics;
mod moderation;
mod occupancy;
mod packets;
mod placeholder;
mod received;
mod recovery;
mod replica;
mod retry_id;
mod secrets;
mod spurious;
mod stateless_reset;
mod violation;
mod wakes;

pub use ack_frequency::{Draft, Offer};
#[cfg(not(fuzzing))]
pub use client::{
    ConnectError, Counts, Direction, Observed, Observer, Packet, RoundTrip, TransportParameters, connect,
};
pub use client_address::client_address;
pub use conduct::Excess;
pub use connection_id::{Layout, LayoutError, MAX_WORKERS, ServerId, WorkerIndex};
pub use connections::{Connections, Window};
pub use endpoint::{Endpoint, EndpointParts, StartError, library_io, start};
pub use generations::Generations;
pub use io::{Io, SocketIo};
pub use limiter::Pools;
pub use metrics::Metrics;
pub use replica::Replica;
pub use secrets::{SecretError, Secrets};
