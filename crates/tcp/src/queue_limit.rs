//! How many bytes of an HTTP/2 connection are queued below its responses' order: in h2, and, not sent, in the kernel.
//! They go before a response that becomes the most urgent, so the limit follows the path's rate, as over HTTP/3
//! ([`litequic_resources::send::path`]). Pure.

use litequic_telemetry::clients::TransportReport;
use std::time::Duration;

/// Time for which each of these queues lasts. The kernel reports room for more at half of it.
const AHEAD: Duration = Duration::from_millis(20);
/// Bytes at least: a frame of h2, which is a record of TLS.
const LEAST: u64 = 16 * 1024;
/// Bytes at most, which the kernel reports room for at 0.5 ms of 1 Gbit/s. With fewer a fast download costs more CPU
/// time.
const MOST: u64 = 128 * 1024;
/// The path is measured again after as many times the limit.
const MEASURED_EVERY: u64 = 4;

/// The limit of one connection.
#[derive(Debug)]
pub(super) struct QueueLimit {
    bytes: u64,
    /// Bytes to be written before the path is measured again.
    left: u64,
}

impl QueueLimit {
    /// The limit of a connection whose path is not known.
    pub(super) const fn new() -> Self {
        Self { bytes: LEAST, left: 0 }
    }

    /// `bytes` were written. Returns whether the path is to be measured.
    pub(super) const fn wrote(&mut self, bytes: u64) -> bool {
        self.left = self.left.saturating_sub(bytes);
        self.left == 0
    }

    /// The path was measured. Returns the limit.
    pub(super) fn measured(&mut self, path: &TransportReport) -> u64 {
        if let (Some(window), Some(rtt)) = (path.congestion_window, path.rtt) {
            let (window, rtt) = (u128::from(window), rtt.as_micros().max(1));
            let bytes = window.saturating_mul(AHEAD.as_micros()) / rtt;
            self.bytes = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(LEAST, MOST);
        }
        self.left = self.bytes.saturating_mul(MEASURED_EVERY);
        self.bytes
    }

    /// Whether the path is so slow that its queues are kept short at the price of more wakes.
    pub(super) const fn is_short(&self) -> bool {
        self.bytes < MOST
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
    fn the_limit_is_what_leaves_within_milliseconds() {
        let mut limit = QueueLimit::new();
        assert!(limit.is_short());
        for (megabits, rtt_ms, bytes) in
            [(5, 200, LEAST), (20, 40, 50_000), (20, 80, 50_000), (1_000, 20, MOST), (1, 150, LEAST)]
        {
            assert_eq!(limit.measured(&path(megabits, rtt_ms)), bytes, "{megabits} {rtt_ms}");
            assert_eq!(limit.is_short(), bytes < MOST);
        }
    }

    #[test]
    fn a_path_that_cannot_be_measured_keeps_its_limit_and_is_looked_at_as_often() {
        let mut limit = QueueLimit::new();
        assert!(limit.wrote(0));
        assert_eq!(limit.measured(&path(20, 40)), 50_000);
        assert!(!limit.wrote(199_999));
        assert!(limit.wrote(1));
        assert_eq!(limit.measured(&TransportReport::default()), 50_000);
        assert!(!limit.wrote(100_000));
    }
}
