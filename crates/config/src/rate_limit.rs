//! Defines `rate_limit` of a route.

use crate::reading::value_kinds::{
    COUNT_RANGE, DAY, RawValue, ValueError, ValueKind, duration_kind, number_kind, one_of, text_kind,
};
use litequic_base::named_enum;
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Range of the period: timers have a resolution of a millisecond, and more than a day is a quota.
const PERIOD_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;

/// Rate limit of a route: `rate_limit`, such as `"10/1m burst=20 by=route"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests that are permitted in `per`.
    pub requests: u32,
    /// Period of the limit.
    pub per: Duration,
    /// Requests that may come at once after a pause. By default `requests`.
    pub burst: u32,
    /// Grouping of requests that are counted together.
    pub by: RateLimitBy,
}

named_enum! {
    /// Requests that are counted together: `by` of `rate_limit`.
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

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, per, burst, by } = self;
        // A period has no blank, which would end the rate.
        let per = humantime::format_duration(*per).to_string().replace(' ', "");
        write!(f, "{requests}/{per} burst={burst} by={}", by.grouping_name())
    }
}

/// A rate with its parameters `burst` and `by`.
pub(crate) fn rate_limit_kind() -> ValueKind<RateLimit> {
    let expected = "a rate such as \"50/s\" or \"10/1m\", alone or as in \"50/s burst=100 by=route\"";
    text_kind(expected, |text| parse_rate_limit(&text), ToString::to_string)
        .with_pattern("\\s*[0-9]+/[0-9a-zA-Zµ.]+(\\s+(burst=[0-9]+|by=(address|route)))*\\s*")
}

fn parse_rate_limit(text: &str) -> Result<RateLimit, ValueError> {
    let mut words = text.split_whitespace();
    let (requests, per) = words.next().and_then(|rate| rate.split_once('/')).ok_or("has no `/` before a period")?;
    // nginx and HAProxy users write a unit alone: 10/s.
    let per = if per.starts_with(|first: char| first.is_ascii_digit()) { per.into() } else { format!("1{per}") };
    let requests = parse_count(requests)?;
    let per = (duration_kind(PERIOD_RANGE).read)(RawValue::Text(per)).map_err(|wrong| wrong.problem)?;
    let mut limit = RateLimit { requests, per, burst: requests, by: RateLimitBy::default() };
    for parameter in words {
        match parameter.split_once('=') {
            Some(("burst", burst)) => limit.burst = parse_count(burst)?,
            Some(("by", by)) => limit.by = (one_of(RateLimitBy::NAMES).read)(RawValue::Text(by.into()))?,
            _ => return Err("has an unknown parameter".into()),
        }
    }
    Ok(limit)
}

fn parse_count(text: &str) -> Result<u32, ValueError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().unwrap_or(i128::MAX)).ok_or("not a number of requests")?;
    (number_kind(COUNT_RANGE).read)(RawValue::Integer(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use RateLimitBy::{Address, Route};

    #[test]
    fn a_rate_has_a_period_and_may_have_parameters() {
        let seconds = Duration::from_secs;
        for (text, requests, per, burst, by) in [
            ("10/s", 10, seconds(1), 10, Address),
            ("10/1m", 10, seconds(60), 10, Address),
            (" 1/500ms  burst=3 ", 1, Duration::from_millis(500), 3, Address),
            ("2/1h30m by=route burst=4", 2, seconds(5400), 4, Route),
        ] {
            let limit = RateLimit { requests, per, burst, by };
            assert_eq!(parse_rate_limit(text), Ok(limit), "{text}");
            assert_eq!(parse_rate_limit(&limit.to_string()), Ok(limit), "{text}");
        }
    }

    #[test]
    fn a_wrong_rate_is_rejected_with_a_reason() {
        for (text, problem) in [
            ("", "has no `/` before a period"),
            ("10", "has no `/` before a period"),
            ("10r/s", "not a number of requests"),
            ("/s", "not a number of requests"),
            ("0/s", "too small"),
            ("10/0s", "too small"),
            ("10/2days", "too large"),
            ("10/fortnight", "unknown unit \"fortnight\""),
            ("10/s burst=0", "too small"),
            ("10/s burst=", "not a number of requests"),
            ("10/s by=adress", "unknown value"),
            ("10/s nodelay", "has an unknown parameter"),
        ] {
            assert_eq!(parse_rate_limit(text).map_err(|wrong| wrong.problem), Err(problem.into()), "{text}");
        }
    }
}
