//! Defines the interface between sockets and QUIC: datagrams are received and sent in batches. `net` has the backends,
//! `quic` passes their batches to s2n-quic, and neither depends on the other.
//!
//! IPv4 addresses of a path are never IPv4-mapped, also on a dual-stack socket.

mod halves;
mod network_path;
mod outgoing_batch;

pub use halves::{DatagramHeader, Receive, Transmit};
pub use network_path::{NetworkPath, end_migration_check};
pub use outgoing_batch::{MAX_MESSAGE_LEN, MAX_SEGMENTS, MessageAction, OutgoingBatch, OutgoingMessage};
