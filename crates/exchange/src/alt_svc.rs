//! Formats the value of `Alt-Svc` (RFC 7838 §3) that advertises HTTP/3. Pure.

use std::time::Duration;

/// Returns the `Alt-Svc` value that advertises HTTP/3 at `port` of the same host for `max_age`, in whole seconds.
pub fn format_alt_svc(port: u16, max_age: Duration) -> String {
    format!("h3=\":{port}\"; ma={}", max_age.as_secs())
}
