//! Limits the bytes of an HTTP/2 connection that are queued below the order of responses: in h2, and unsent in the
//! kernel. They are sent before a response that becomes the most urgent, so the limit follows the path's rate, as over
//! HTTP/3 ([`litequic_resources::send::path`]). Pure.

use litequic_telemetry::clients::TransportReport;
use std::time::Duration;

/// Time for which the bytes queued in h2, or in the kernel, last. The kernel reports room at half of this time.
const QUEUE_TIME: Duration = Duration::from_millis(20);
/// Smallest limit in bytes: a frame of h2, which is a TLS record.
const MIN_QUEUE: u64 = 16 * 1024;
/// Largest limit in bytes. The kernel reports room at 0.5 ms of 1 Gbit/s. A smaller value costs more CPU time per
/// download.
const MAX_QUEUE: u64 = 128 * 1024;
/// Bytes written between two measurements of the path, as a multiple of the limit.
const MEASURE_INTERVAL: u64 = 4;

/// The limit of one connection.
#[derive(Debug)]
pub(super) struct QueueLimit {
    bytes: u64,
    /// Bytes to be written before the next measurement of the path.
    left: u64,
}

impl QueueLimit {
    /// Creates the limit of a connection whose path is not known.
    pub(super) const fn new() -> Self {
        Self { bytes: MIN_QUEUE, left: 0 }
    }

    /// Counts `bytes` that were written. Returns whether the path is to be measured.
    pub(super) const fn count_queued_write(&mut self, bytes: u64) -> bool {
        self.left = self.left.saturating_sub(bytes);
        self.left == 0
    }

    /// Updates the limit by a measurement of the path, and returns it.
    pub(super) fn update_limit(&mut self, path: &TransportReport) -> u64 {
        if let (Some(window), Some(rtt)) = (path.congestion_window, path.rtt) {
            let (window, rtt) = (u128::from(window), rtt.as_micros().max(1));
            let bytes = window.saturating_mul(QUEUE_TIME.as_micros()) / rtt;
            self.bytes = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(MIN_QUEUE, MAX_QUEUE);
        }
        self.left = self.bytes.saturating_mul(MEASURE_INTERVAL);
        self.bytes
    }

    /// Whether the path is so slow that short queues are worth more wakes.
    pub(super) const fn is_below_max(&self) -> bool {
        self.bytes < MAX_QUEUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(megabits: u64, rtt_ms: u64) -> TransportReport {
        TransportReport {
            rtt: Some(Duration::from_millis(rtt_ms)),
            congestion_window: Some(megabits * 125 * rtt_ms),
            ..TransportReport::default()
        }
    }

    #[test]
    fn the_queue_limit_is_milliseconds_of_the_paths_rate() {
        let mut limit = QueueLimit::new();
        assert!(limit.is_below_max());
        for (megabits, rtt_ms, bytes) in
            [(5, 200, MIN_QUEUE), (20, 40, 50_000), (20, 80, 50_000), (1_000, 20, MAX_QUEUE), (1, 150, MIN_QUEUE)]
        {
            assert_eq!(limit.update_limit(&path(megabits, rtt_ms)), bytes, "{megabits} {rtt_ms}");
            assert_eq!(limit.is_below_max(), bytes < MAX_QUEUE);
        }
    }

    #[test]
    fn an_unmeasurable_path_keeps_its_limit_and_measurement_interval() {
        let mut limit = QueueLimit::new();
        assert!(limit.count_queued_write(0));
        assert_eq!(limit.update_limit(&path(20, 40)), 50_000);
        assert!(!limit.count_queued_write(199_999));
        assert!(limit.count_queued_write(1));
        assert_eq!(limit.update_limit(&TransportReport::default()), 50_000);
        assert!(!limit.count_queued_write(100_000));
    }
}
