//! Formats the current time for `Date` (RFC 9110 §5.6.7), once a second in each thread.

use super::fields::{Fields, name};
use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Last second of the year 9999, in seconds since 1970. The format has no later year.
const MAX_TIMESTAMP: u64 = 253_402_300_799;

thread_local! {
    static DATE_CACHE: RefCell<Option<(u64, String)>> = const { RefCell::new(None) };
}

/// Sets `Date` to now, in a response that litequic generates or that came without the field.
pub fn set_date(fields: &mut Fields) {
    with_date(|date| fields.set_field(name::DATE, date.as_bytes()));
}

/// Calls `read` with the current time in the format of `Date`.
pub fn with_date<T>(read: impl FnOnce(&str) -> T) -> T {
    DATE_CACHE.with_borrow_mut(|written| read(cached_date(SystemTime::now(), written)))
}

/// Returns `now` in the format of `Date`. The text in `written` is reused within its second.
fn cached_date(now: SystemTime, written: &mut Option<(u64, String)>) -> &str {
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().min(MAX_TIMESTAMP);
    if written.as_ref().is_none_or(|(of, _)| *of != second) {
        *written = Some((second, httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))));
    }
    written.as_ref().map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_formatted_once_a_second() {
        let start = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let mut written = None;
        let first = cached_date(start, &mut written).to_owned();
        assert_eq!(first, "Sun, 06 Nov 1994 08:49:37 GMT");
        let bytes = cached_date(start, &mut written).as_ptr();
        let again = cached_date(start + Duration::from_millis(999), &mut written);
        assert_eq!((again, again.as_ptr()), (first.as_str(), bytes), "the same bytes");
        assert_eq!(cached_date(start + Duration::from_secs(1), &mut written), "Sun, 06 Nov 1994 08:49:38 GMT");
        // A clock that is set back, or far in the future.
        assert_eq!(cached_date(start, &mut written), first);
        assert_eq!(cached_date(UNIX_EPOCH - Duration::from_secs(9), &mut written), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(
            cached_date(UNIX_EPOCH + Duration::from_secs(1 << 40), &mut written),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }
}
