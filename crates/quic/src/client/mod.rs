//! Connects QUIC clients for `litequic get`: one connection on a socket of its own, with its observable state.

mod connect;
mod observer;
mod port_unreachable;
mod transport_parameters;

pub use connect::{ConnectError, connect_client};
pub use observer::{ObservedConnection, Observer};
pub use transport_parameters::TransportParameters;
