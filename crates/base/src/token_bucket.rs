//! Rate limiting by a token bucket. Pure; the caller passes the time.

use std::time::{Duration, Instant};

/// Default burst: what the rate allows in this time. Honest peers send in bursts (a page left, the end of a stall), and
/// only sustained load costs.
const DEFAULT_BURST: Duration = Duration::from_secs(10);

/// A token bucket: `per_second` tokens a second, of which it holds the worth of `burst`.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    per_second: u32,
    /// How long it takes to get a token.
    token_interval: Duration,
    burst: Duration,
    /// How long it takes until the bucket is full again.
    time_until_full: Duration,
    /// When that was computed.
    updated_at: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket that gets `per_second` tokens, at least one, and holds ten seconds' worth.
    pub fn new(per_second: u32) -> Self {
        Self::with_burst(per_second, DEFAULT_BURST)
    }

    /// A full bucket that gets `per_second` tokens, at least one, and holds the worth of `burst`.
    pub fn with_burst(per_second: u32, burst: Duration) -> Self {
        let per_second = per_second.max(1);
        Self {
            per_second,
            token_interval: Duration::from_secs(1) / per_second,
            burst,
            time_until_full: Duration::ZERO,
            updated_at: None,
        }
    }

    /// Tokens of a full bucket.
    pub fn burst_tokens(&self) -> u64 {
        u64::from(self.per_second).saturating_mul(self.burst.as_secs())
    }

    /// Takes `count` tokens; false if there were fewer. What was taken beyond is a debt that delays later tokens.
    pub fn take_tokens(&mut self, count: u32, now: Instant) -> bool {
        let passed = self.updated_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        // Of many tokens without the rounding of each.
        let price = if count == 1 { self.token_interval } else { Duration::from_secs(count.into()) / self.per_second };
        self.time_until_full = self.time_until_full.saturating_sub(passed).saturating_add(price);
        self.updated_at = Some(self.updated_at.map_or(now, |at| at.max(now)));
        self.time_until_full <= self.burst
    }

    /// Takes a token if there is one, and returns whether; leaves no debt.
    pub fn try_take_token(&mut self, now: Instant) -> bool {
        let mut taken = *self;
        let given = taken.take_tokens(1, now);
        if given {
            *self = taken;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ten_seconds_worth_may_come_at_once_and_the_rate_after() {
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
    fn a_client_that_takes_only_what_is_there_gets_the_rate_however_often_it_asks() {
        let start = Instant::now();
        let mut bucket = TokenBucket::with_burst(1000, Duration::from_secs(1));
        let given = (0..100_000).filter(|n| bucket.try_take_token(start + Duration::from_micros(20 * n))).count();
        assert_eq!(given, 1000 + 1999);
    }

    #[test]
    fn a_pause_fills_it_and_no_more() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(5);
        assert!(bucket.take_tokens(50, start));
        let later = start + Duration::from_secs(3600);
        assert!(bucket.take_tokens(50, later));
        assert!(!bucket.take_tokens(1, later));
    }

    #[test]
    fn a_clock_that_seems_to_go_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = TokenBucket::new(1);
        assert!(bucket.take_tokens(10, start));
        assert!(!bucket.take_tokens(1, start - Duration::from_secs(30)));
        assert!(!bucket.take_tokens(1, start));
    }

    proptest! {
        /// Against a plain computation of tokens, in fractions.
        #[test]
        fn it_gives_what_a_count_of_tokens_would(
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
                // Within a token of the edge both are right: a price is rounded to a nanosecond.
                if tokens.abs() > 1.0 {
                    prop_assert_eq!(given, tokens > 0.0);
                }
            }
        }
    }
}
