//! Formats the certificates that a litequic obtains by ACME as a list for people. Pure.

use litequic_admin::Status;
use litequic_base::short_duration::format_short_duration;
use std::{
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Formats the ACME hosts of `/status`.
pub(super) fn render_acme(status: &Status, now: SystemTime) -> String {
    let Some(hosts) = &status.acme else {
        return "no certificate is obtained by ACME: the configuration has no [[acme]]\n".into();
    };
    let mut text = String::new();
    for host in hosts {
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let mut line = format!("{}  {}", word(&host.host), word(&host.state));
        // Writing to a String cannot fail.
        if let Some(expires) = host.expires {
            let _ = write!(line, ", expires {}", http_date(expires));
        }
        let next = UNIX_EPOCH.checked_add(Duration::from_secs(host.next.unwrap_or_default()));
        let step = if host.resumes == Some(true) { "its order continues" } else { "next order" };
        let when = match next.and_then(|next| next.duration_since(now).ok()) {
            Some(left) if left >= Duration::from_secs(1) => {
                format!("in {}", format_short_duration(Duration::from_secs(left.as_secs())))
            }
            _ => "now".into(),
        };
        let _ = writeln!(text, "{line}; {step} {when}, from {}", word(&host.directory));
        if let Some(problem) = &host.problem {
            let _ = match host.attempts.unwrap_or_default() {
                1 => writeln!(text, "  1 attempt failed: {problem}"),
                attempts => writeln!(text, "  {attempts} attempts failed: {problem}"),
            };
        }
        if let Some(record) = &host.record {
            let _ = writeln!(text, "  TXT record: {record}");
        }
    }
    text
}

fn http_date(seconds: u64) -> String {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).map_or_else(String::new, httpdate::fmt_http_date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_host_has_a_line_and_its_problem() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let status = json!({ "acme": [
            { "host": "a.test", "state": "valid", "expires": 2_000_000, "next": 1_090_000, "resumes": false,
              "attempts": 0, "problem": null, "directory": "https://ca.test/", "record": null },
            { "host": "*.b.test", "state": "missing", "expires": null, "next": 999_999, "resumes": true,
              "attempts": 2, "problem": "no TXT record", "directory": "https://ca.test/", "record": "x IN TXT \"y\"" },
        ] });
        assert_eq!(
            render_acme(&serde_json::from_value(status).unwrap(), now),
            "a.test  valid, expires Sat, 24 Jan 1970 03:33:20 GMT; next order in 1 d 1 h, from https://ca.test/\n\
             *.b.test  missing; its order continues now, from https://ca.test/\n  \
             2 attempts failed: no TXT record\n  TXT record: x IN TXT \"y\"\n"
        );
        assert!(render_acme(&Status::default(), now).contains("no [[acme]]"));
    }
}
