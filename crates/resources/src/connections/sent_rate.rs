//! The rate at which a connection sends, by looks at it in succession.

use std::time::{Duration, Instant};

/// The shortest time over which a rate is measured.
pub(super) const MIN_RATE_INTERVAL: Duration = Duration::from_millis(500);
/// A rate is measured since the last look, if that was no longer ago.
pub(super) const MAX_RATE_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes a second that a connection sends, by two looks at it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentRate {
    /// Bytes that were sent at the last look that counts.
    sent: u64,
    /// When that was, in milliseconds since the connection is open, plus 1; 0 before the first look.
    measured_at: u32,
    /// The rate by then.
    pub(super) rate: u32,
}

/// Looks in succession whose rates go on from one to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTimes {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl SentRate {
    /// The rate of a connection that has sent `sent` bytes since it is open, which is `age` ago.
    pub(super) fn update_rate(&mut self, sent: u64, age: Duration) -> u64 {
        let now = u32::try_from(age.as_millis()).unwrap_or(u32::MAX - 1).saturating_add(1);
        let since = Duration::from_millis(u64::from(now.saturating_sub(self.measured_at)));
        let per_second = |bytes: u64, time: Duration| {
            let millis = time.max(MIN_RATE_INTERVAL).as_millis();
            u32::try_from(u128::from(bytes) * 1_000 / millis.max(1)).unwrap_or(u32::MAX)
        };
        if self.measured_at == 0 || since > MAX_RATE_INTERVAL {
            // Of a connection that is older nothing is known.
            let rate = if age <= MAX_RATE_INTERVAL { per_second(sent, age) } else { 0 };
            *self = Self { sent, measured_at: now, rate };
        } else if since >= MIN_RATE_INTERVAL {
            *self = Self { sent, measured_at: now, rate: per_second(sent.wrapping_sub(self.sent), since) };
        }
        self.rate.into()
    }
}
