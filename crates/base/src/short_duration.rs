//! Formats durations for people: in the log, in answers and on screens. Pure.

use std::time::Duration;

/// Formats `time` in its two largest units, such as `59 d 9 h`; below a second in milliseconds.
pub fn format_short_duration(time: Duration) -> String {
    let whole = time.as_secs();
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if whole == 0 && !time.is_zero() => format!("{} ms", time.as_millis()),
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min {} s", whole % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_two_largest_units() {
        for (millis, expected) in [
            (0, "0 s"),
            (250, "250 ms"),
            (13_621, "13 s"),
            (61_000, "1 min 1 s"),
            (3_600_000, "1 h 0 min"),
            (273_600_000, "3 d 4 h"),
            (5_130_684_000, "59 d 9 h"),
        ] {
            assert_eq!(format_short_duration(Duration::from_millis(millis)), expected);
        }
    }
}
