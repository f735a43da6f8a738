//! Defines the time between two bursts, and the granularity of timers.

use s2n_quic_core::recovery::bandwidth::Bandwidth;
use std::time::Duration;

/// Time between two bursts. Shorter ones would leave together, as timers have steps of a millisecond.
pub(super) const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Time by which a packet may leave early: s2n-quic's timers have steps of a millisecond.
pub(super) const GRANULARITY: Duration = Duration::from_millis(1);
/// Packets from which on a burst waits to join others: fewer are released by an acknowledgement alone, and a timer
/// would only wake the worker once more.
const MIN_COALESCED_PACKETS: u32 = 4;

/// Whether a burst of [`BURST_INTERVAL`] has fewer than [`MIN_COALESCED_PACKETS`].
pub(super) fn is_slow_rate(rate: Bandwidth, max_datagram: u32) -> bool {
    rate * BURST_INTERVAL < u64::from(MIN_COALESCED_PACKETS * max_datagram)
}
