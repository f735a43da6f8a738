//! One worker's QUIC endpoint on one listen address: the providers through which s2n-quic calls litequic, a file each,
//! and [`state`], which has what several of them use.

mod address_token;
mod admission;
mod amplification;
#[cfg(test)]
mod call_order;
mod close;
mod connection_slot;
mod controllers;
mod events;
mod frame_slot;
mod ids;
mod interceptor;
mod limits;
mod logging;
mod logs;
mod parts;
mod recovery;
mod request_window;
mod response_limit;
mod start;
mod state;
mod tls;
mod wakes;

pub use admission::SourceLimits;
pub use events::{client_address, log_open_connection, transport_report};
pub use parts::EndpointParts;
pub use request_window::QuicTransport;
pub use start::{EndpointError, QuicEndpoint, library_io, start_endpoint};
pub use state::EndpointState;
