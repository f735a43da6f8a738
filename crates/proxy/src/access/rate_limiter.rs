//! Limits the rate of a route's requests, and of wrong passwords, over all workers by the generic cell rate algorithm
//! (ITU-T I.371), whose whole state is one number, in a table of a fixed size without locks.

use litequic_config::{RateLimit, RateLimitBy};
use std::{
    hash::{BuildHasher, Hash, RandomState},
    net::IpAddr,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::{Duration, Instant},
};

/// Keys that a limit tracks at once: 1 MiB. If the table is full, the entry that owes least is evicted.
const MAX_KEYS: usize = 65_536;
/// Entries that a key can have: two cache lines.
const WAYS: usize = 8;
/// Attempts to claim an entry while other workers claim entries.
const MAX_CLAIM_ATTEMPTS: usize = 4;

/// Whether a rate limit admits an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenPermit {
    /// The event is within the limit.
    Admitted {
        /// Whether a key was evicted for this event although its events were still counted.
        evicted: bool,
    },
    /// The event would be within the limit after this time.
    Denied(Duration),
}

/// Rate limit of events, such as the requests of one route, shared by all workers.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    pub(crate) limit: RateLimit,
    emission: EmissionInterval,
    began: Instant,
    counts: RateCounters,
}

#[derive(Debug)]
enum RateCounters {
    /// All events are counted together.
    Route(AtomicU64),
    /// Sets of [`WAYS`] entries; a hash that no client can foretell chooses the set of a key.
    Keys(Box<[[RateEntry; WAYS]]>, RandomState),
}

/// A key, and the time at which its events would all have been due. While a worker claims an entry, another one may
/// count an event for the wrong key: an error of one event.
#[derive(Debug, Default)]
struct RateEntry {
    /// Hash of the key; 0 in a free entry.
    tag: AtomicU64,
    /// Nanoseconds since the limiter began.
    due: AtomicU64,
}

impl RateLimiter {
    pub(crate) fn new(limit: RateLimit, now: Instant) -> Self {
        let counts = match limit.by {
            RateLimitBy::Route => RateCounters::Route(AtomicU64::new(0)),
            RateLimitBy::Address => {
                let sets = (0..MAX_KEYS / WAYS).map(|_| <[RateEntry; WAYS]>::default()).collect();
                RateCounters::Keys(sets, RandomState::new())
            }
        };
        Self { limit, emission: EmissionInterval::new(&limit), began: now, counts }
    }

    /// Counts an event of `key`, if the limit admits the event.
    pub(crate) fn take_permit(&self, key: &impl Hash, now: Instant) -> TakenPermit {
        let now = self.elapsed_nanoseconds(now);
        let (due, evicted) = match &self.counts {
            RateCounters::Route(due) => (due, false),
            RateCounters::Keys(sets, hasher) => {
                let Some((set, tag)) = find_set(sets, hasher, key) else {
                    return TakenPermit::Admitted { evicted: false };
                };
                find_or_evict(set, tag, now)
            }
        };
        match self.emission.advance_due(due, now) {
            Ok(()) => TakenPermit::Admitted { evicted },
            Err(wait) => TakenPermit::Denied(Duration::from_nanos(wait)),
        }
    }

    /// Time until another event of `key` is within the limit; `None` if one is now.
    pub(crate) fn remaining_wait(&self, key: &impl Hash, now: Instant) -> Option<Duration> {
        let due = self.find_due(key)?;
        self.emission.next_due(due, self.elapsed_nanoseconds(now)).err().map(Duration::from_nanos)
    }

    /// Whether an earlier event of `key` still counts.
    pub(crate) fn has_counted_event(&self, key: &impl Hash, now: Instant) -> bool {
        self.find_due(key).is_some_and(|due| due > self.elapsed_nanoseconds(now))
    }

    fn find_due(&self, key: &impl Hash) -> Option<u64> {
        let due = match &self.counts {
            RateCounters::Route(due) => due,
            RateCounters::Keys(sets, hasher) => {
                let (set, tag) = find_set(sets, hasher, key)?;
                &set.iter().find(|entry| entry.tag.load(Acquire) == tag)?.due
            }
        };
        Some(due.load(Relaxed))
    }

    fn elapsed_nanoseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the set of `key`, and the tag of its entry.
fn find_set<'a>(
    sets: &'a [[RateEntry; WAYS]],
    hasher: &RandomState,
    key: &impl Hash,
) -> Option<(&'a [RateEntry; WAYS], u64)> {
    let hash = hasher.hash_one(key);
    // The low bit marks a used entry; the other bits choose the set.
    let index = usize::try_from(hash >> 1).unwrap_or_default().checked_rem(sets.len())?;
    Some((sets.get(index)?, hash | 1))
}

/// The part of an address that counts as one client: an IPv4 address, or a /64, because one machine has all of its 2^64
/// addresses (RFC 7934 §6.1).
pub(crate) fn client_key(client: IpAddr) -> u128 {
    match client.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        // No IPv4 address is that large.
        IpAddr::V6(address) => (address.to_bits() >> 64) + (1 << 64),
    }
}

/// Finds the entry of `tag` in `set`, or evicts the entry that owes least. Also returns whether an evicted entry still
/// owed requests.
fn find_or_evict(set: &[RateEntry; WAYS], tag: u64, now: u64) -> (&AtomicU64, bool) {
    let [first, ..] = set;
    for _ in 0..MAX_CLAIM_ATTEMPTS {
        let mut least = (first, first.tag.load(Acquire), first.due.load(Relaxed));
        for entry in set {
            let (held, due) = (entry.tag.load(Acquire), entry.due.load(Relaxed));
            if held == tag {
                return (&entry.due, false);
            }
            if due < least.2 {
                least = (entry, held, due);
            }
        }
        let (entry, held, due) = least;
        if entry.tag.compare_exchange(held, tag, Release, Relaxed).is_ok() {
            // An entry whose time has passed owes nothing.
            let owed = due > now;
            if owed {
                entry.due.store(now, Relaxed);
            }
            return (&entry.due, owed);
        }
    }
    // Other workers claim entries as fast as this one searches: count in another key's entry.
    (&first.due, false)
}

/// Emission interval T of the algorithm: one request every `interval`, and bursts of up to `capacity`, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct EmissionInterval {
    interval: u64,
    capacity: u64,
}

impl EmissionInterval {
    fn new(limit: &RateLimit) -> Self {
        let per = u64::try_from(limit.per.as_nanos()).unwrap_or(u64::MAX);
        let interval = per.checked_div(limit.requests.into()).unwrap_or(u64::MAX).max(1);
        Self { interval, capacity: interval.saturating_mul(limit.burst.into()) }
    }

    /// The time at which all requests, and one more, would be due; or the wait until one more is admitted.
    fn next_due(self, due: u64, now: u64) -> Result<u64, u64> {
        let next = due.max(now).saturating_add(self.interval);
        let wait = next.saturating_sub(now).saturating_sub(self.capacity);
        if wait == 0 { Ok(next) } else { Err(wait) }
    }

    /// Counts a request in `due`, or returns the wait until it is admitted.
    fn advance_due(self, due: &AtomicU64, now: u64) -> Result<(), u64> {
        let mut seen = due.load(Relaxed);
        loop {
            let next = self.next_due(seen, now)?;
            match due.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_base::token_bucket::TokenBucket;
    use proptest::prelude::*;
    use std::thread;

    const ADMITTED: TakenPermit = TakenPermit::Admitted { evicted: false };

    fn limit(requests: u32, per: Duration, burst: u32, by: RateLimitBy) -> RateLimit {
        RateLimit { requests, per, burst, by }
    }

    fn second(requests: u32, burst: u32, by: RateLimitBy) -> (RateLimiter, Instant) {
        let now = Instant::now();
        (RateLimiter::new(limit(requests, Duration::from_secs(1), burst, by), now), now)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (limiter, start) = second(10, 3, RateLimitBy::Route);
        let at = |millis| start + Duration::from_millis(millis);
        for (millis, taken) in [
            (0, ADMITTED),
            (0, ADMITTED),
            (0, ADMITTED),
            (0, TakenPermit::Denied(Duration::from_millis(100))),
            // A rejected request is not counted.
            (50, TakenPermit::Denied(Duration::from_millis(50))),
            (100, ADMITTED),
            (150, TakenPermit::Denied(Duration::from_millis(50))),
            (200, ADMITTED),
            // A pause makes up for one burst and no more.
            (10_000, ADMITTED),
            (10_000, ADMITTED),
            (10_000, ADMITTED),
            (10_000, TakenPermit::Denied(Duration::from_millis(100))),
            // A worker may have read its clock a little earlier.
            (9_999, TakenPermit::Denied(Duration::from_millis(101))),
        ] {
            assert_eq!(limiter.take_permit(&1, at(millis)), taken, "{millis}");
        }
    }

    #[test]
    fn clients_are_counted_apart_by_address_and_together_by_route() {
        for (by, second_client) in [(RateLimitBy::Address, true), (RateLimitBy::Route, false)] {
            let (limiter, now) = second(1, 1, by);
            assert_eq!(limiter.take_permit(&1, now), ADMITTED);
            assert_eq!(limiter.take_permit(&1, now), TakenPermit::Denied(Duration::from_secs(1)));
            assert_eq!(limiter.take_permit(&2, now) == ADMITTED, second_client);
        }
    }

    #[test]
    fn one_client_is_an_ipv4_address_or_a_64() {
        for (one, other, same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1:2:3", true),
            ("2001:db8:0:1::1", "2001:db8::1", false),
            ("::1", "0.0.0.0", false),
            ("::", "0.0.0.0", false),
        ] {
            let of = |text: &str| client_key(text.parse().unwrap());
            assert_eq!(of(one) == of(other), same, "{one} {other}");
        }
    }

    #[test]
    fn failures_are_limited_by_their_keys_and_a_wait_has_an_end() {
        let now = Instant::now();
        let limiter = RateLimiter::new(limit(1, Duration::from_secs(6), 3, RateLimitBy::Address), now);
        for _ in 0..3 {
            assert_eq!(limiter.remaining_wait(&"alice", now), None);
            limiter.take_permit(&"alice", now);
        }
        for _ in 0..5 {
            assert_eq!(limiter.remaining_wait(&"alice", now), Some(Duration::from_secs(6)));
            limiter.take_permit(&"alice", now);
        }
        assert_eq!(limiter.remaining_wait(&"bob", now), None);
        assert_eq!(limiter.remaining_wait(&"alice", now + Duration::from_secs(6)), None);
    }

    /// The table keeps its size, and a client that comes while it is full is limited too.
    #[test]
    fn more_addresses_than_places_are_limited_too() {
        let (limiter, now) = second(1, 2, RateLimitBy::Address);
        let mut forgot = 0;
        for n in 0..4 * u32::try_from(MAX_KEYS).unwrap() {
            for _ in 0..2 {
                let TakenPermit::Admitted { evicted: one } = limiter.take_permit(&n, now) else { panic!("{n}") };
                forgot += u32::from(one);
            }
            assert!(matches!(limiter.take_permit(&n, now), TakenPermit::Denied(_)), "{n}");
        }
        // Each address that is not in the table any more was evicted by another one.
        assert!(forgot >= 3 * u32::try_from(MAX_KEYS).unwrap(), "{forgot}");
        // Once no client owes requests, none is evicted.
        let later = now + Duration::from_secs(60);
        assert!((0..1000).all(|n| limiter.take_permit(&n, later) == ADMITTED));
    }

    #[test]
    fn the_address_that_owes_least_is_forgotten_first() {
        let set: [RateEntry; WAYS] = std::array::from_fn(|way| RateEntry {
            tag: AtomicU64::new(way as u64 * 2 + 1),
            due: AtomicU64::new(1000 - way as u64),
        });
        let (due, forgot) = find_or_evict(&set, 101, 500);
        assert!(forgot && std::ptr::eq(due, &set[7].due));
        assert_eq!((set[7].tag.load(Relaxed), set[7].due.load(Relaxed)), (101, 500));
        assert!(std::ptr::eq(find_or_evict(&set, 101, 500).0, &set[7].due));
        // An entry that owes nothing any more is no loss.
        let (due, forgot) = find_or_evict(&set, 103, 999);
        assert!(!forgot && std::ptr::eq(due, &set[7].due));
    }

    #[test]
    fn workers_share_what_is_allowed() {
        let (limiter, now) = second(1000, 5000, RateLimitBy::Address);
        let admitted = || (0..4000).filter(|_| limiter.take_permit(&1, now) == ADMITTED).count();
        let all: usize = thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(admitted)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(all, 5000);
    }

    #[test]
    fn the_ends_of_the_ranges_do_not_overflow() {
        let day = Duration::from_secs(86_400);
        for (requests, per, burst) in
            [(1, day, 10_000_000), (10_000_000, Duration::from_millis(1), 1), (10_000_000, day, 10_000_000)]
        {
            let now = Instant::now();
            let limiter = RateLimiter::new(limit(requests, per, burst, RateLimitBy::Route), now);
            assert_eq!(limiter.take_permit(&1, now), ADMITTED);
            assert_eq!(limiter.take_permit(&1, now + 400 * day), ADMITTED);
        }
    }

    proptest! {
        /// The oracle is a token bucket, which counts the same in another way.
        #[test]
        fn it_admits_what_a_bucket_of_tokens_does(
            requests in 1_u32..1000,
            burst in 1_u32..50,
            steps in prop::collection::vec(0_u64..20, 1..200),
        ) {
            let (limiter, start) = second(requests, burst, RateLimitBy::Route);
            let interval = Duration::from_secs(1) / requests;
            let mut bucket = TokenBucket::with_burst(requests, interval * burst);
            let mut now = start;
            for millis in steps {
                now += Duration::from_millis(millis);
                prop_assert_eq!(limiter.take_permit(&1, now) == ADMITTED, bucket.try_take_token(now));
            }
        }

        /// No span of time admits more than a burst and the rate.
        #[test]
        fn no_more_passes_than_the_burst_and_the_rate(
            requests in 1_u32..1000,
            burst in 1_u32..50,
            steps in prop::collection::vec(0_u64..2_000_000, 1..300),
        ) {
            let (limiter, start) = second(requests, burst, RateLimitBy::Address);
            let (mut now, mut passed) = (start, 0_u64);
            for micros in steps {
                now += Duration::from_micros(micros);
                match limiter.take_permit(&1, now) {
                    TakenPermit::Admitted { .. } => passed += 1,
                    // A client that waits for `Retry-After` is served.
                    TakenPermit::Denied(wait) => {
                        now += wait;
                        prop_assert_eq!(limiter.take_permit(&1, now), ADMITTED);
                        passed += 1;
                    }
                }
                let interval = 1_000_000_000 / u64::from(requests);
                let most = u64::from(burst) + u64::try_from((now - start).as_nanos()).unwrap() / interval;
                prop_assert!(passed <= most, "{} of {}", passed, most);
            }
        }
    }
}
