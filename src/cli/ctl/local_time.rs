//! Converts times in answers to the local zone, for a terminal, as the log there has them. Pure but for the zone and
//! the clock that `with_local_time` reads.

use jiff::{Timestamp, tz::TimeZone};
use litequic_admin::UNCHANGED_PREFIX;

/// Answer to a reload, with its time in the zone that `TZ` or `/etc/localtime` names.
pub(super) fn with_local_time(answer: &[u8]) -> String {
    with_time_in(&String::from_utf8_lossy(answer), &TimeZone::try_system().unwrap_or(TimeZone::UTC), Timestamp::now())
}

/// Converts the time of `answer` to `zone`: without the date, if that is the date of `now`.
fn with_time_in(answer: &str, zone: &TimeZone, now: Timestamp) -> String {
    let parts = answer.strip_prefix(UNCHANGED_PREFIX).and_then(|rest| rest.split_once(','));
    let Some((time, rest)) = parts.and_then(|(time, rest)| Some((time.parse::<Timestamp>().ok()?, rest))) else {
        return answer.to_owned();
    };
    let (time, now) = (zone.to_datetime(time), zone.to_datetime(now));
    let format = if time.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    format!("{UNCHANGED_PREFIX}{},{rest}", time.strftime(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_time_is_local_and_has_a_date_on_another_day() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = "2026-11-26T10:00:00Z".parse().unwrap();
        let rest = "when the change of a.toml was applied: 1 key\n";
        for (time, expected) in [
            ("2026-11-26T09:41:03Z", "10:41:03"),
            ("2026-11-25T23:00:00Z", "00:00:00"),
            ("2026-11-25T22:59:59Z", "2026-11-25 23:59:59"),
            // This text is no time.
            ("yesterday", "yesterday"),
            ("", ""),
        ] {
            let answer = format!("nothing has changed since {time}, {rest}");
            assert_eq!(with_time_in(&answer, &berlin, now), format!("nothing has changed since {expected}, {rest}"));
        }
        for answer in
            ["nothing has changed\n", "nothing has changed since 2026-11-26T09:41:03Z", "", "limits.a: 1 → 2\n"]
        {
            assert_eq!(with_time_in(answer, &berlin, now), answer);
        }
    }
}
