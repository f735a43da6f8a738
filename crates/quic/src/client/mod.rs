//! A QUIC client on a socket of its own, for `litequic get`: one connection, and its observable state.

mod connect;
mod observed;
mod parameters;
mod refusal;

pub use connect::{ConnectError, connect_client};
pub use observed::{ObservedConnection, ObservedPacket, Observer, PacketCounts, PacketDirection, RttEstimate};
pub use parameters::TransportParameters;
