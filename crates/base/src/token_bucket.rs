//! Limits a rate by a token bucket. Pure; the caller passes the time.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Default burst, as the time in which the rate yields it. Honest peers send in bursts (a page is left, a stall ends),
/// and only sustained load is expensive.
const DEFAULT_BURST: Duration = Duration::from_secs(10);

/// Token bucket that gets `per_second` tokens a second, and holds the tokens of the time `burst`.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    per_second: u32,
    /// Time in which the bucket gets one token.
    token_interval: Duration,
    burst: Duration,
    /// Time at which the bucket is full again; `None` until a token is taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket that gets `per_second` tokens a second, at least one, and holds the tokens of ten seconds.
    pub fn new(per_second: u32) -> Self {
        Self::with_burst(per_second, DEFAULT_BURST)
    }

    /// A full bucket that gets `per_second` tokens a second, at least one, and holds the tokens of the time `burst`.
    pub fn with_burst(per_second: u32, burst: Duration) -> Self {
        let per_second = per_second.max(1);
        Self { per_second, token_interval: Duration::from_secs(1) / per_second, burst, full_at: None }
    }

    /// Number of tokens in a full bucket.
    pub fn burst_tokens(&self) -> u64 {
        u64::from(self.per_second).saturating_mul(self.burst.as_secs())
    }

    /// Takes `count` tokens; returns false if the bucket had fewer. Missing tokens are a debt that delays later ones.
    pub fn take_tokens(&mut self, count: u32, now: Instant) -> bool {
        // The time of many tokens is computed at once, which rounds once.
        let price = if count == 1 { self.token_interval } else { Duration::from_secs(count.into()) / self.per_second };
        let from = self.full_at.map_or(now, |at| at.max(now));
        // A debt beyond the clock's range does not grow.
        let full_at = from.checked_add(price).unwrap_or(from);
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now) <= self.burst
    }

    /// Time at which the bucket has paid its debt, in the past without one; `None` if no token was ever taken.
    pub fn debt_end(&self) -> Option<Instant> {
        self.full_at.and_then(|at| at.checked_sub(self.burst))
    }

    /// Takes a token if the bucket has one, and returns whether it had; leaves no debt.
    pub fn try_take_token(&mut self, now: Instant) -> bool {
        let mut taken = *self;
        let given = taken.take_tokens(1, now);
        if given {
            *self = taken;
        }
        given
    }
}

/// Token bucket that threads share, or callers that have only a shared reference.
#[derive(Debug)]
pub struct SharedTokenBucket(Mutex<TokenBucket>);

impl SharedTokenBucket {
    /// A full bucket that gets `per_second` tokens a second, at least one, and holds as many.
    pub fn new(per_second: u32) -> Self {
        Self(Mutex::new(TokenBucket::with_burst(per_second, Duration::from_secs(1))))
    }

    /// Takes a token if the bucket has one, and returns whether it had; leaves no debt.
    pub fn try_take_token(&self, now: Instant) -> bool {
        self.0.lock().try_take_token(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bucket_allows_ten_seconds_of_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(100);
        assert!((0..1000).all(|_| bucket.take_tokens(1, start)));
        assert!(!bucket.clone().take_tokens(1, start));
        for step in 1..=500 {
            assert!(bucket.take_tokens(1, start + Duration::from_millis(10 * step)));
        }
        assert!(!bucket.take_tokens(2, start + Duration::from_millis(5010)));
    }

    #[test]
    fn frequent_attempts_without_debt_get_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::with_burst(1000, Duration::from_secs(1));
        let given = (0..100_000).filter(|n| bucket.try_take_token(start + Duration::from_micros(20 * n))).count();
        assert_eq!(given, 1000 + 1999);
    }

    #[test]
    fn a_pause_fills_the_bucket_and_no_more() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(5);
        assert!(bucket.take_tokens(50, start));
        let later = start + Duration::from_secs(3600);
        assert!(bucket.take_tokens(50, later));
        assert!(!bucket.take_tokens(1, later));
    }

    #[test]
    fn a_clock_that_goes_back_yields_no_token() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = TokenBucket::new(1);
        assert!(bucket.take_tokens(10, start));
        assert!(!bucket.take_tokens(1, start - Duration::from_secs(30)));
        assert!(!bucket.take_tokens(1, start));
    }

    proptest! {
        /// Compared with a plain computation of tokens as fractions.
        #[test]
        fn a_bucket_equals_a_count_of_tokens(
            per_second in 1u32..100_000,
            steps in prop::collection::vec((0u32..200_000, 0u64..5_000), 1..60),
        ) {
            let mut now = Instant::now();
            let mut bucket = TokenBucket::new(per_second);
            let full = f64::from(per_second) * DEFAULT_BURST.as_secs_f64();
            let mut tokens = full;
            for (count, millis) in steps {
                now += Duration::from_millis(millis);
                tokens = (tokens + f64::from(per_second) * millis as f64 / 1000.0).min(full) - f64::from(count);
                let given = bucket.take_tokens(count, now);
                // Within a token of the limit both results are right: a token's time is rounded to a nanosecond.
                if tokens.abs() > 1.0 {
                    prop_assert_eq!(given, tokens > 0.0);
                }
            }
        }
    }
}
