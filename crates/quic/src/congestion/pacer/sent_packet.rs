//! What the pacer knows of a packet.

use s2n_quic_core::time::Timestamp;
use std::time::Duration;

/// The state when a packet was sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::congestion) struct SentPacket {
    pub(in crate::congestion) now: Timestamp,
    /// The packet's bytes.
    pub(in crate::congestion) bytes: u32,
    /// Bytes that were in flight before it.
    pub(in crate::congestion) in_flight: u32,
    pub(in crate::congestion) round_trip: Duration,
    pub(in crate::congestion) max_datagram: u32,
    /// How late a burst may leave without delaying the next ones: the lateness of timers.
    pub(in crate::congestion) max_lateness: Duration,
}
