//! A QUIC client on a socket of its own, for `litequic get`: one connection, and its observable state.

mod connect;
mod observed;
mod parameters;
mod refusal;

pub use connect::{ConnectError, connect};
pub use observed::{Counts, Observed, Observer, Packet, PacketDirection, RoundTrip};
pub use parameters::TransportParameters;
