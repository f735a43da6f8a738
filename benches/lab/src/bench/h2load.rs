//! Many requests at once from one address with h2load: what was answered, and with which class of status. Command line
//! and the reading of its report are pure.

use crate::http::Http;
use anyhow::{Context as _, Result};
use std::path::Path;

/// For a connection on which nothing moves: longer than any origin here takes.
const INACTIVE: &str = "30s";

impl Http {
    /// h2load's option that offers this protocol alone. Its default offers HTTP/2 first. `--alpn-list` would do for all
    /// three, but before nghttp2 1.53 it was called `--npn-list`.
    pub(super) fn h2load_option(self) -> Option<&'static str> {
        match self {
            Self::One => Some("--h1"),
            Self::Two => None,
            Self::Three => Some("--h3"),
        }
    }
}

/// Requests of one address, as many in flight as `connections` × `streams`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) protocol: Http,
    pub(crate) connections: u32,
    pub(crate) streams: u32,
    /// Requests in all.
    pub(crate) requests: u32,
    /// The requested path.
    pub(crate) path: String,
}

impl Burst {
    /// h2load's command line against `address`.
    pub(crate) fn command(&self, h2load: &Path, address: &str) -> Vec<String> {
        let Self { protocol, connections, streams, requests, path } = self;
        let mut command = vec![h2load.display().to_string()];
        command.extend(protocol.h2load_option().map(str::to_owned));
        command.extend([
            "-t1".to_owned(),
            format!("-c{connections}"),
            format!("-m{streams}"),
            format!("-n{requests}"),
            format!("-N{INACTIVE}"),
            format!("https://{address}{path}"),
        ]);
        command
    }

    /// The load in words.
    pub(crate) fn describe(&self) -> String {
        let Self { protocol, connections, streams, requests, path } = self;
        format!("GET {path}, {requests} over {}, {connections} connections × {streams}; h2load", protocol.name())
    }
}

/// What h2load counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Requests answered with a status of this class.
    pub(crate) succeeded: f64,
    pub(crate) status_4xx: f64,
    pub(crate) status_5xx: f64,
    /// Requests of all `total` that got no answer.
    pub(crate) unanswered: f64,
    pub(crate) total: f64,
    /// Bytes of bodies.
    pub(crate) bytes: f64,
    /// Duration of the whole.
    pub(crate) seconds: f64,
}

impl Counts {
    /// Reads h2load's report.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let line = |prefix: &str| {
            let last = || text.trim().lines().last().unwrap_or_default().to_owned();
            let found = text.lines().find_map(|line| line.strip_prefix(prefix));
            found.with_context(|| format!("h2load's output lacks {prefix:?}: {}", last()))
        };
        let number = |line: &str, name: &str| {
            let mut parts = line.split(',').filter_map(|part| part.trim().split_once(' '));
            let number = parts.find(|(_, known)| *known == name).and_then(|(number, _)| number.parse::<f64>().ok());
            number.with_context(|| format!("h2load's output lacks {name:?}: {line}"))
        };
        let (requests, statuses) = (line("requests: ")?, line("status codes: ")?);
        let status = |class| number(statuses, class);
        let (total, succeeded) = (number(requests, "total")?, status("2xx")?);
        let (status_4xx, status_5xx) = (status("4xx")?, status("5xx")?);
        let answered = succeeded + status("3xx")? + status_4xx + status_5xx;
        let finished = line("finished in ")?.split(',').next().unwrap_or_default();
        let seconds = read_seconds(finished).with_context(|| format!("no duration: {finished}"))?;
        let data =
            line("traffic: ").ok().and_then(|line| line.rsplit_once(") data")?.0.rsplit_once('(')?.1.parse().ok());
        let unanswered = (total - answered).max(0.0);
        Ok(Self { succeeded, status_4xx, status_5xx, unanswered, total, bytes: data.unwrap_or_default(), seconds })
    }
}

/// Median and 99th percentile of the time of a request, seconds; older versions than 1.67 report no quantiles.
pub(crate) fn latency(text: &str) -> Option<(f64, f64)> {
    let columns: Vec<&str> = text.lines().find(|line| line.contains(" p99 "))?.split_ascii_whitespace().collect();
    let (_, row) = text.lines().find(|line| line.starts_with("request "))?.split_once(':')?;
    let row: Vec<&str> = row.split_ascii_whitespace().collect();
    let of = |name: &str| read_seconds(row.get(columns.iter().position(|column| *column == name)?)?);
    Some((of("median")?, of("p99")?))
}

/// A duration as h2load writes it, in seconds.
pub(super) fn read_seconds(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_refusals_and_requests_without_an_answer() {
        let text = "finished in 1.50s, 6666.67 req/s, 1.00MB/s\n\
                    requests: 10000 total, 9990 started, 9990 done, 9180 succeeded, 820 failed, 10 errored, 0 timeout\n\
                    status codes: 9170 2xx, 10 3xx, 0 4xx, 810 5xx\n";
        let counts = Counts::read(text).unwrap();
        assert_eq!((counts.total, counts.succeeded, counts.status_5xx), (10_000.0, 9_170.0, 810.0));
        assert_eq!((counts.unanswered, counts.seconds), (10.0, 1.5));
        let cut = text.lines().take(2).collect::<Vec<_>>().join("\n");
        assert!(Counts::read(&cut).unwrap_err().to_string().contains("status codes"));
        assert!(Counts::read("").is_err());
    }

    #[test]
    fn quantiles_are_read_where_they_are_reported() {
        let text = "                 min         max         median      p95         p99         mean        sd         +/- sd\n\
                    request     :      838us       1.25s      3.52ms       1.04s       1.24s     64.57ms    249.73ms    94.50%\n";
        assert_eq!(latency(text), Some((0.00352, 1.24)));
        assert_eq!(latency("time for request:      1.07ms      4.53ms      2.17ms\n"), None);
    }

    #[test]
    fn durations_have_units() {
        let read = ["250.5ms", "1.5s", "2", "3h"].map(read_seconds);
        assert_eq!(read, [Some(0.2505), Some(1.5), None, None]);
    }

    #[test]
    fn a_command_has_the_protocol_and_the_shape() {
        let burst = Burst { protocol: Http::Two, connections: 20, streams: 50, requests: 9, path: "/b1".to_owned() };
        let command = burst.command(Path::new("/h2load"), "127.0.0.1:1").join(" ");
        assert_eq!(command, "/h2load -t1 -c20 -m50 -n9 -N30s https://127.0.0.1:1/b1");
    }
}
