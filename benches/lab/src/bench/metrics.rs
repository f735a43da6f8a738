//! A contender's own metrics: counters that it exposes over HTTP as Prometheus' or OpenMetrics' text, read
//! before and after a load. Pure but for [`print()`], which a process in the contender's namespace runs.

use super::template::{Unknown, Values};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// For each of connecting, sending, and every read.
const PATIENCE: Duration = Duration::from_secs(2);
/// No contender has a longer text.
const LARGEST: u64 = 1 << 20; // bytes
/// Fields of a response, at most.
const FIELDS: usize = 32;

/// A contender's description of its metrics.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metrics {
    /// Their URL: `http://IP:PORT/PATH`.
    pub(crate) url: String,
    /// Figures by name: by how much one counter grew for each of another. Without either counter, or where the second
    /// did not grow, there is no figure.
    #[serde(default)]
    pub(crate) ratios: BTreeMap<String, [String; 2]>,
    /// The same, for a million of the other; of seconds in all by their count, microseconds of one.
    #[serde(default)]
    pub(crate) per_million: BTreeMap<String, [String; 2]>,
    /// Figures by name: quantiles of histograms of seconds, in microseconds.
    #[serde(default)]
    pub(crate) quantiles: BTreeMap<String, Quantile>,
    /// Figures by name: by how much counters grew together for each MB of bodies. Where none did there is no figure.
    #[serde(default)]
    pub(crate) per_megabyte: BTreeMap<String, Vec<String>>,
}

/// What so many of the times in a histogram did not exceed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quantile {
    /// The histogram's name.
    histogram: String,
    /// Of 1.
    at: f64,
}

/// Counters by name with labels, and by name alone: the sum over all labels.
pub(crate) type Counters = BTreeMap<String, f64>;

impl Metrics {
    /// With the placeholders of its address replaced.
    pub(crate) fn expand(&self, values: &Values) -> Result<Self, Unknown> {
        Ok(Self { url: values.expand(&self.url, "metrics.url")?, ..self.clone() })
    }

    /// The names of all figures.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let quotients = self.ratios.keys().chain(self.per_million.keys()).chain(self.per_megabyte.keys());
        quotients.chain(self.quantiles.keys()).map(String::as_str)
    }

    /// What counters say of a load of so many bytes.
    pub(crate) fn figures(&self, before: &Counters, after: &Counters, bytes: f64) -> BTreeMap<String, f64> {
        let grown = |counter: &String| Some(after.get(counter)? - before.get(counter).copied().unwrap_or(0.0));
        let quotient = |factor: f64| {
            move |(name, [counted, each]): (&String, &[String; 2])| {
                let (counted, each) = (grown(counted)?, grown(each)?);
                (each > 0.0).then(|| (name.clone(), counted / each * factor))
            }
        };
        let ratios = self.ratios.iter().filter_map(quotient(1.0));
        let per_million = self.per_million.iter().filter_map(quotient(1e6));
        let quantiles = self.quantiles.iter().filter_map(|(name, quantile)| {
            let buckets = after.range(format!("{}_bucket{{", quantile.histogram)..);
            let buckets = buckets.map_while(|(bucket, _)| {
                let bound = bucket.strip_prefix(&quantile.histogram)?.strip_prefix("_bucket{le=\"")?;
                Some((bound.strip_suffix("\"}")?.parse::<f64>().ok()?, grown(bucket)?))
            });
            Some((name.clone(), quantile_of(buckets.collect(), quantile.at)? * 1e6))
        });
        let per_megabyte = self.per_megabyte.iter().filter_map(|(name, counters)| {
            let grown: f64 = counters.iter().filter_map(grown).sum();
            (grown > 0.0 && bytes > 0.0).then(|| (name.clone(), grown / bytes * 1e6))
        });
        ratios.chain(per_million).chain(quantiles).chain(per_megabyte).collect()
    }
}

/// What a share `at` of what a histogram counted does not exceed, taken for evenly spread within a bucket. `buckets`
/// have their upper bound and how many do not exceed it.
fn quantile_of(mut buckets: Vec<(f64, f64)>, at: f64) -> Option<f64> {
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all = buckets.last().map(|(_, count)| *count).filter(|all| *all > 0.0)?;
    let rank = all * at;
    let mut below = (0.0, 0.0);
    for (bound, count) in buckets {
        if count >= rank && count > below.1 {
            // Above the last bound nothing more is known.
            let within = (rank - below.1) / (count - below.1);
            return Some(if bound.is_finite() { below.0 + (bound - below.0) * within } else { below.0 });
        }
        below = (bound, count);
    }
    None
}

/// Reads the text of metrics.
pub(crate) fn counters(text: &str) -> Counters {
    let mut counters = Counters::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // `NAME{LABELS} VALUE TIME`, where labels and time may be missing, and labels may hold anything.
        let Some(at) = line.find(['{', ' ']) else { continue };
        let (name, rest) = line.split_at(at);
        let labels = if rest.starts_with('{') { rest.rfind('}').map_or(rest.len(), |end| end + 1) } else { 0 };
        let (labels, rest) = rest.split_at(labels);
        let Some(value) = rest.split_ascii_whitespace().next().and_then(|value| value.parse::<f64>().ok()) else {
            continue;
        };
        *counters.entry(name.to_owned()).or_default() += value;
        if !labels.is_empty() {
            counters.insert(format!("{name}{labels}"), value);
        }
    }
    counters
}

/// Whose metrics are wanted.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// `http://IP:PORT/PATH`.
    url: String,
}

/// Prints the text of metrics as it comes.
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
pub(crate) fn print(arguments: &Arguments) -> Result<()> {
    print!("{}", fetch(&arguments.url)?);
    Ok(())
}

/// The text of metrics at `http://IP:PORT/PATH`.
pub(crate) fn fetch(url: &str) -> Result<String> {
    let parts = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (authority, path) = parts.with_context(|| format!("{url}: http://IP:PORT/PATH is wanted"))?;
    let address: SocketAddr = authority.parse().with_context(|| format!("{url}: an IP address and port"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("cannot reach {url}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(|| format!("cannot request {url}"))?;
    let mut response = Vec::new();
    stream.take(LARGEST).read_to_end(&mut response).with_context(|| format!("{url} broke off"))?;
    body(&response).with_context(|| url.to_owned())
}

/// The body of a response that is whole.
fn body(response: &[u8]) -> Result<String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(response).context("no HTTP/1.1")? else {
        bail!("the response's head is cut short");
    };
    if head.code != Some(200) {
        bail!("status {}", head.code.unwrap_or_default());
    }
    let field = |name: &str| head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if field("transfer-encoding").is_some() {
        bail!("metrics in chunks are not understood");
    }
    let body = response.get(length..).unwrap_or_default();
    let announced = field("content-length").and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    if announced.is_some_and(|announced: usize| announced != body.len()) {
        bail!("{} of {} bytes came", body.len(), announced.unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    const TEXT: &str = "\
# HELP frames ACK frames.
# TYPE frames counter
frames_total 100
calls_total{call=\"recv mmsg\",odd=\"a} 7\"} 30
calls_total{call=\"sendmmsg\"} 12 1700000000.5
calls_total_more 1000
broken{
# EOF
";

    #[test]
    fn counters_are_known_with_their_labels_and_summed_over_them() {
        let counters = counters(TEXT);
        assert_eq!((counters["frames_total"], counters["calls_total"]), (100.0, 42.0));
        assert_eq!(counters["calls_total{call=\"sendmmsg\"}"], 12.0);
        assert_eq!(counters.len(), 5, "{counters:?}");
    }

    #[test]
    fn figures_are_differences_and_missing_counters_give_none() {
        let metrics: Metrics = toml::from_str(
            r#"
            url = "http://127.0.0.1:1/metrics"
            ratios.frames_a_batch = ["frames", "batches"]
            ratios.of_nothing = ["frames", "still"]
            ratios.unknown = ["frames", "none_such"]
            per_megabyte.calls = ["calls{call='recv'}", "calls{call='send'}", "none_such"]
            per_megabyte.none = ["none_such"]
            per_megabyte.still = ["still"]
            "#,
        )
        .unwrap();
        let before =
            Counters::from([("frames".to_owned(), 10.0), ("batches".to_owned(), 5.0), ("still".to_owned(), 9.0)]);
        let after = counters(
            "frames 70\nbatches 25\nstill 9\ncalls{call='recv'} 6\ncalls{call='send'} 2\ncalls{call='wait'} 70\n",
        );
        let figures = metrics.figures(&before, &after, 4e6);
        let expected = [("frames_a_batch", 3.0), ("calls", 2.0)].map(|(name, figure)| (name.to_owned(), figure));
        assert_eq!(figures, BTreeMap::from(expected));
    }

    #[test]
    fn a_histogram_has_quantiles_of_what_was_added_to_it() {
        let metrics: Metrics = toml::from_str(
            r#"
            url = "http://127.0.0.1:1/metrics"
            per_million.mean = ["t_sum", "t_count"]
            quantiles.median = { histogram = "t", at = 0.5 }
            quantiles.p99 = { histogram = "t", at = 0.99 }
            quantiles.unknown = { histogram = "none_such", at = 0.5 }
            "#,
        )
        .unwrap();
        let before = counters(
            "t_sum 7\nt_count 100\nt_bucket{le=\"0.001\"} 100\nt_bucket{le=\"0.002\"} 100\nt_bucket{le=\"0.01\"} 100\n\
             t_bucket{le=\"+Inf\"} 100\n",
        );
        let after = counters(
            "t_sum 8.5\nt_count 200\nt_bucket{le=\"0.001\"} 100\nt_bucket{le=\"0.002\"} 180\nt_bucket{le=\"0.01\"} 190\n\
             t_bucket{le=\"+Inf\"} 200\n",
        );
        let figures = metrics.figures(&before, &after, 1.0);
        assert_eq!(figures.len(), 3, "{figures:?}");
        for (figure, expected) in [("mean", 15_000.0), ("median", 1625.0), ("p99", 10_000.0)] {
            assert!((figures[figure] - expected).abs() < 0.01, "{figures:?}");
        }
        assert!(metrics.figures(&after, &after, 1.0).is_empty(), "nothing was added");
    }

    /// Answers one request; the URL.
    fn serve(response: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            assert!(request.starts_with(b"GET /metrics HTTP/1.1\r\n"));
            stream.write_all(response.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn metrics_are_fetched_whole() {
        assert_eq!(fetch(&serve("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n")).unwrap(), "a 1\n");
        for (response, why) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n", "4 of 9 bytes came"),
            ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "in chunks"),
            ("HTTP/1.1 200 OK\r\nConte", "cut short"),
        ] {
            let error = format!("{:#}", fetch(&serve(response)).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
        assert!(fetch("http://localhost/metrics").is_err() && fetch("127.0.0.1:80").is_err());
    }
}
