//! Defines `rate_limit` of a route.

use crate::reading::rule_readers::read_optional_table;
use crate::reading::section::ConfigSection;
use crate::reading::table::{KeyTable as _, derived_default, keys, required_key};
use crate::reading::value_kinds::{COUNT_RANGE, DAY, duration_kind, number_kind, one_of};
use litequic_base::named_enum;
use std::{ops::RangeInclusive, time::Duration};

/// Range of `per`: timers have a resolution of a millisecond, and more than a day is a quota.
pub(crate) const PER_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;

keys! {
    /// Rate limit of a route: `rate_limit`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RateLimit {
        /// Requests that are permitted in `per`, over all workers together. Further ones get 429 with `Retry-After`.
        requests: u32 = 1, required_key(number_kind(COUNT_RANGE));

        /// Period of the limit.
        per: Duration = Duration::from_secs(1), duration_kind(PER_RANGE);

        /// Requests that may come at once after a pause. By default `requests`.
        burst: u32 = 1, derived_default(number_kind(COUNT_RANGE));

        /// Grouping of requests that are counted together: those of an IPv4 address or an IPv6 /64 (`address`), or all
        /// of the route (`route`).
        by: RateLimitBy = RateLimitBy::Address, one_of(RateLimitBy::NAMES);
    }
}

named_enum! {
    /// Requests that are counted together: `rate_limit.by`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum RateLimitBy {
        /// Requests per client: an IPv4 address, or the first 64 bits of an IPv6 address.
        #[default]
        Address = "address",
        /// All requests of the route.
        Route = "route",
    }
    /// Name of the value in the configuration.
    fn grouping_name;
}

/// Reads `rate_limit` of a route, if set.
pub(crate) fn read_rate_limit(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Option<RateLimit> {
    read_optional_table(section, key, about, |section| {
        let limit = RateLimit::read_table(section);
        if section.has_key("burst") { limit } else { RateLimit { burst: limit.requests, ..limit } }
    })
}

pub(crate) fn format_rate_limit(limit: &Option<RateLimit>) -> String {
    let Some(RateLimit { requests, per, burst, by }) = limit else { return "none".into() };
    let per = humantime::format_duration(*per);
    format!("{requests} in {per}; {burst} at once; by {}", by.grouping_name())
}
