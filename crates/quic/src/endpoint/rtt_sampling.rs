//! Samples round-trip times, for operators and the laboratory. Changes nothing.

use s2n_quic::provider::event::events::RecoveryMetrics;
use std::time::Duration;

/// Time between two samples of a connection's round-trip time, which s2n-quic reports with each ACK frame, transmission
/// and timeout.
const RTT_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Sampling of one connection's round-trip time.
#[derive(Debug, Default)]
pub(super) struct RttSampling {
    pub(super) handshake_done: bool,
    /// Time of the last sample, by s2n-quic's clock.
    sampled: Duration,
}

impl RttSampling {
    /// Whether the smoothed round-trip time of the active path should be sampled `now`, by s2n-quic's clock.
    pub(super) fn is_sample_due(&mut self, now: Duration, event: &RecoveryMetrics<'_>) -> bool {
        if now.saturating_sub(self.sampled) < RTT_SAMPLE_INTERVAL || !self.handshake_done {
            return false;
        }
        // The initial value of a new path (RFC 9002 §6.2.2), or of a single measurement (§5.3), is not an estimate yet.
        let is_measured = event.smoothed_rtt != event.latest_rtt || event.rtt_variance != event.smoothed_rtt / 2;
        if is_measured {
            self.sampled = now;
        }
        is_measured
    }
}
