//! The rate at which a connection sends, by looks at it in succession.

use std::time::{Duration, Instant};

/// The shortest time over which a rate is measured.
pub(super) const SHORTEST: Duration = Duration::from_millis(500);
/// A rate is measured since the last look, if that was no longer ago.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// Bytes a second that a connection sends, by two looks at it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentRate {
    /// Bytes that were sent at the last look that counts.
    sent: u64,
    /// When that was, in milliseconds since the connection is open, plus 1; 0 before the first look.
    at: u32,
    /// The rate by then.
    pub(super) rate: u32,
}

/// Looks in succession whose rates go on from one to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl SentRate {
    /// The rate of a connection that has sent `sent` bytes since it is open, which is `age` ago.
    pub(super) fn measure(&mut self, sent: u64, age: Duration) -> u64 {
        let now = u32::try_from(age.as_millis()).unwrap_or(u32::MAX - 1).saturating_add(1);
        let since = Duration::from_millis(u64::from(now.saturating_sub(self.at)));
        let per_second = |bytes: u64, time: Duration| {
            let millis = time.max(SHORTEST).as_millis();
            u32::try_from(u128::from(bytes) * 1_000 / millis.max(1)).unwrap_or(u32::MAX)
        };
        if self.at == 0 || since > LONGEST {
            // Of a connection that is older nothing is known.
            let rate = if age <= LONGEST { per_second(sent, age) } else { 0 };
            *self = Self { sent, at: now, rate };
        } else if since >= SHORTEST {
            *self = Self { sent, at: now, rate: per_second(sent.wrapping_sub(self.sent), since) };
        }
        self.rate.into()
    }
}
