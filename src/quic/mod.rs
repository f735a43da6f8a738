//! QUIC by s2n-quic, with litequic's own connection IDs, tokens, limits and sockets: what makes several endpoints on
//! one port one server.

mod address_token;
mod client;
mod connection_id;
mod endpoint;
mod limiter;
mod occupancy;
mod secrets;
mod stateless_reset;

pub use client::{ConnectError, connect};
pub use connection_id::{Layout, LayoutError, MAX_WORKERS, ServerId, WorkerIndex};
pub use endpoint::{EndpointParts, StartError, start};
pub use secrets::Secrets;
