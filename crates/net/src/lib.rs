//! Opens, reads and writes the sockets of workers, one for each worker on the same port, and has the kernel steer
//! packets to them.
//!
//! The crate uses `litequic-base` and `litequic-telemetry`. `litequic-quic` uses [`datagram`], the interface that both
//! share; the program opens the sockets.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]

mod backend;
pub mod datagram;
mod datagram_splitter;
mod descriptors;
mod epoll;
mod feature;
mod flush;
mod listener;
mod metrics;
mod probe;
mod receive_errors;
mod socket_group;
mod socket_sender;
mod steering;
mod sys;
mod tcp_transport;
mod uring;

pub use backend::{Backend, OpenSocket, SocketOptions, SocketReceiver};
pub use descriptors::{receive_descriptors, send_descriptors};
pub use listener::{ListenError, listen_group};
pub use metrics::SocketMetrics;
pub use probe::{AddressFamily, Feature, ProbeResult, probe_kernel};
pub use socket_group::{BindError, SocketGroup};
pub use socket_sender::SocketSender;
pub use steering::{Generation, Steering, SteeringMask};
pub use tcp_transport::tcp_transport;

#[cfg(test)]
mod tests;
