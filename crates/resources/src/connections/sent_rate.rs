//! Measures the rate at which a connection sends, between two scans for lists.

use std::time::{Duration, Instant};

/// Shortest time over which a rate is measured.
pub(super) const MIN_RATE_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time since the last scan over which a rate is measured.
pub(super) const MAX_RATE_INTERVAL: Duration = Duration::from_secs(5);

/// Send rate of a connection, in bytes a second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentRate {
    /// Bytes that were sent by the last measurement.
    sent: u64,
    /// Time of the last measurement, in milliseconds since the connection began, plus 1; 0 before the first.
    measured_at: u32,
    /// Rate at the last measurement.
    pub(super) rate: u32,
}

/// Times of the first and the last of successive scans, each of which continues the measurement of the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTimes {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl SentRate {
    /// Measures the rate of a connection that began `age` ago and has sent `sent` bytes.
    pub(super) fn update_rate(&mut self, sent: u64, age: Duration) -> u64 {
        let now = u32::try_from(age.as_millis()).unwrap_or(u32::MAX - 1).saturating_add(1);
        let since = Duration::from_millis(u64::from(now.saturating_sub(self.measured_at)));
        let per_second = |bytes: u64, time: Duration| {
            let millis = time.max(MIN_RATE_INTERVAL).as_millis();
            u32::try_from(u128::from(bytes) * 1_000 / millis.max(1)).unwrap_or(u32::MAX)
        };
        if self.measured_at == 0 || since > MAX_RATE_INTERVAL {
            // An older connection was not measured recently, so its rate is unknown.
            let rate = if age <= MAX_RATE_INTERVAL { per_second(sent, age) } else { 0 };
            *self = Self { sent, measured_at: now, rate };
        } else if since >= MIN_RATE_INTERVAL {
            *self = Self { sent, measured_at: now, rate: per_second(sent.wrapping_sub(self.sent), since) };
        }
        self.rate.into()
    }
}
