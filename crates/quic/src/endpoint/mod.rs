//! Runs one worker's QUIC endpoint on one listen address: the providers through which s2n-quic calls litequic, a file
//! each, and [`endpoint_state`], which they share.

mod address_token;
mod admission;
mod amplification;
#[cfg(test)]
mod call_order_tests;
#[cfg(test)]
mod client_moves_tests;
mod close_formatter;
mod connection_logs;
mod connection_slot;
mod controller_factory;
mod endpoint_parts;
mod endpoint_state;
mod events;
mod frame_slot;
mod interceptor;
mod limits;
mod logging;
mod mtu;
mod request_window;
mod rtt_sampling;
mod start;
mod tls;
mod wakes;

pub use admission::SourceLimits;
pub use endpoint_parts::EndpointParts;
pub use endpoint_state::EndpointState;
pub use events::{client_address, log_open_connection, transport_report};
pub use request_window::QuicTransport;
pub use start::{EndpointError, QuicEndpoint, library_io, start_endpoint};
