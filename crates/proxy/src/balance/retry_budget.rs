//! Bounds retries by a share of the requests that are sent, and a few more each second.

use litequic_base::token_bucket::TokenBucket;
use litequic_config::Fraction;
use std::time::Instant;

/// Most retries that the share may accumulate: the failure of a server is a burst, not a state.
const MAX_SAVED: u64 = 100;

/// One worker's retry budget for one origin.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Share of a retry that each request earns, in millionths.
    share: u32,
    /// Retries that were earned and not spent, in millionths.
    saved: u64,
    /// Retries per second without any share; `None` for 0.
    minimum: Option<TokenBucket>,
}

impl RetryBudget {
    /// A budget of `share` of the requests, and `minimum` retries a second.
    pub(crate) fn new(share: Option<Fraction>, minimum: u32) -> Self {
        let minimum = (minimum > 0).then(|| TokenBucket::new(minimum));
        Self { share: share.map_or(0, |share| share.0), saved: 0, minimum }
    }

    /// Counts a request of a client, which earns its share of a retry.
    pub(crate) fn earn_share(&mut self) {
        self.saved = (self.saved + u64::from(self.share)).min(MAX_SAVED * u64::from(Fraction::ALL.0));
    }

    /// Whether a retry is permitted now; if so, the retry is counted.
    pub(crate) fn take_retry(&mut self, now: Instant) -> bool {
        if let Some(left) = self.saved.checked_sub(Fraction::ALL.0.into()) {
            self.saved = left;
            return true;
        }
        self.minimum.as_mut().is_some_and(|minimum| minimum.try_take_token(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn spent(budget: &mut RetryBudget, now: Instant) -> usize {
        (0..10_000).take_while(|_| budget.take_retry(now)).count()
    }

    #[test]
    fn a_share_of_what_is_sent_may_be_sent_again() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(Some(Fraction(200_000)), 0);
        assert_eq!(spent(&mut budget, now), 0);
        (0..50).for_each(|_| budget.earn_share());
        assert_eq!(spent(&mut budget, now), 10);
        (0..1_000_000).for_each(|_| budget.earn_share());
        assert_eq!(spent(&mut budget, now), 100, "no more is saved up");
    }

    #[test]
    fn the_minimum_is_there_without_any_requests() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(None, 3);
        assert_eq!(spent(&mut budget, now), 30, "ten seconds' worth");
        assert_eq!(spent(&mut budget, now + Duration::from_secs(2)), 6);
        assert_eq!(spent(&mut RetryBudget::new(None, 0), now), 0);
    }

    proptest! {
        #[test]
        fn never_more_than_the_share_and_the_minimum(
            share in 1..=1_000_000_u32,
            minimum in 0..20_u32,
            steps in prop::collection::vec((0..20_u32, 0..20_u32, 0..500_u64), 1..100),
        ) {
            let mut now = Instant::now();
            let mut budget = RetryBudget::new(Some(Fraction(share)), minimum);
            let (mut sent, mut again, mut passed) = (0_u64, 0_u64, 0_u64);
            for (requests, retries, millis) in steps {
                now += Duration::from_millis(millis);
                passed += millis;
                for _ in 0..requests {
                    budget.earn_share();
                    sent += 1;
                }
                again += (0..retries).filter(|_| budget.take_retry(now)).count() as u64;
            }
            let allowed = sent * u64::from(share) / 1_000_000 + u64::from(minimum) * (10_000 + passed) / 1000;
            prop_assert!(again <= allowed, "{again} of {allowed}");
        }
    }
}
