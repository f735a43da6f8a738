//! Formats an event for a person at a terminal: the local time of day, and the module's path at `debug` and `trace`
//! alone. Lines that are read later, or elsewhere, have whole times in UTC instead (mod.rs).

use jiff::{Timestamp, tz::TimeZone};
use std::{fmt, time::SystemTime};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Writer, format},
        time::FormatTime,
    },
    registry::LookupSpan,
};

#[derive(Debug)]
pub(super) struct TerminalFormat {
    /// Format of `info` and more severe levels.
    short: Format<Full, TimeOfDay>,
    /// Format of `debug` and `trace`.
    long: Format<Full, TimeOfDay>,
}

impl TerminalFormat {
    pub(super) fn new(zone: TimeZone) -> Self {
        let long = format().with_timer(TimeOfDay(zone));
        Self { short: long.clone().with_target(false), long }
    }

    /// A formatter with times in the zone that `TZ` or `/etc/localtime` names, or else in UTC.
    pub(super) fn with_local_zone() -> Self {
        Self::new(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }
}

impl<S, N> FormatEvent<S, N> for TerminalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let format = if *event.metadata().level() >= Level::DEBUG { &self.long } else { &self.short };
        format.format_event(context, writer, event)
    }
}

/// Timer that formats hours, minutes, seconds and milliseconds in a zone.
#[derive(Debug, Clone)]
struct TimeOfDay(TimeZone);

impl TimeOfDay {
    fn write_time_of_day(&self, time: SystemTime, writer: &mut impl fmt::Write) -> fmt::Result {
        // The conversion fails for a clock beyond the years that jiff supports.
        let time = Timestamp::try_from(time).map_err(|_| fmt::Error)?;
        write!(writer, "{}", self.0.to_datetime(time).strftime("%H:%M:%S%.3f"))
    }
}

impl FormatTime for TimeOfDay {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        self.write_time_of_day(SystemTime::now(), writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_of_day_has_the_zone_and_milliseconds() {
        // The times are 2023-11-14T22:13:20Z, and the same time of day in summer.
        let (winter, summer) = (1_700_000_000, 1_689_372_800);
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let kathmandu = TimeZone::posix("<+0545>-5:45").unwrap();
        for (zone, seconds, millis, expected) in [
            (TimeZone::UTC, winter, 0, "22:13:20.000"),
            (berlin.clone(), winter, 7, "23:13:20.007"),
            (berlin, summer, 999, "00:13:20.999"),
            (kathmandu, winter, 50, "03:58:20.050"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis);
            let mut text = String::new();
            TimeOfDay(zone.clone()).write_time_of_day(time, &mut text).unwrap();
            assert_eq!(text, expected, "{zone:?}");
        }
    }

    #[test]
    fn a_clock_that_is_far_off_is_an_error_and_no_panic() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
        assert!(TimeOfDay(TimeZone::UTC).write_time_of_day(time, &mut String::new()).is_err());
    }
}
