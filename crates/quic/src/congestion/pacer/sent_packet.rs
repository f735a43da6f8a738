//! Defines the pacer's view of a sent packet.

use s2n_quic_core::time::Timestamp;
use std::time::Duration;

/// A sent packet, with the state of the path and of timers at that time.
#[derive(Debug, Clone, Copy)]
pub(in crate::congestion) struct SentPacket {
    pub(in crate::congestion) now: Timestamp,
    /// Bytes of the packet.
    pub(in crate::congestion) bytes: u32,
    /// Bytes in flight before the packet.
    pub(in crate::congestion) in_flight: u32,
    pub(in crate::congestion) round_trip: Duration,
    pub(in crate::congestion) max_datagram: u32,
    /// Lateness at which a burst may leave without delaying the next ones: the lateness of timers.
    pub(in crate::congestion) max_lateness: Duration,
}
