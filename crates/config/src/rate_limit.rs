//! `rate_limit` of a route.

use crate::reading::rule_readers::table;
use crate::reading::section::Section;
use crate::reading::table::{KeyTable as _, implied, keys, required};
use crate::reading::values::{COUNT, DAY, duration, number, one_of};
use std::{ops::RangeInclusive, time::Duration};

/// Below a millisecond a timer has no resolution; a day's share is a quota already.
pub(crate) const PER: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;

keys! {
    /// `rate_limit`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RateLimit {
        /// Requests that are permitted in `per`, over all workers together. Further ones get 429 with `Retry-After`.
        requests: u32 = 1, required(number(COUNT));

        /// Time in which `requests` are permitted.
        per: Duration = Duration::from_secs(1), duration(PER);

        /// Requests that may come at once after a pause. By default `requests`.
        burst: u32 = 1, implied(number(COUNT));

        /// The requests that are counted together: those of an IPv4 address or of a /64 of IPv6 (`address`), or all of
        /// the route (`route`).
        by: RateLimitBy = RateLimitBy::Address, one_of(RateLimitBy::NAMES);
    }
}

/// `rate_limit.by`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateLimitBy {
    /// Requests of each client are counted: of an IPv4 address, or of the first 64 bits of an IPv6 address.
    #[default]
    Address,
    /// Requests of all clients are counted together.
    Route,
}

impl RateLimitBy {
    /// Names of the values in the configuration.
    pub const NAMES: &[(&str, Self)] = &[("address", Self::Address), ("route", Self::Route)];
}

/// `rate_limit`, if set.
pub(crate) fn rate_limit(section: &mut Section<'_>, key: &str, about: &str) -> Option<RateLimit> {
    table(section, key, about, |section| {
        let limit = RateLimit::read(section);
        if section.has("burst") { limit } else { RateLimit { burst: limit.requests, ..limit } }
    })
}

pub(crate) fn show_rate_limit(limit: &Option<RateLimit>) -> String {
    let Some(RateLimit { requests, per, burst, by }) = limit else { return "none".into() };
    let by = RateLimitBy::NAMES.iter().find(|(_, known)| known == by).map(|(name, _)| *name);
    let per = humantime::format_duration(*per);
    format!("{requests} in {per}; {burst} at once; by {}", by.unwrap_or_default())
}
