//! Samples of litequic's process, and whether they stay flat. Pure but for reading `/proc`.

use anyhow::{Context as _, Result};
use std::{collections::BTreeMap, fs, time::Duration};

/// Of what a worker, its buffers and the allocator's arenas may differ by from one moment to another under a load that
/// comes and goes.
const RSS_SLACK_BYTES: u64 = 8 << 20;
const RSS_SLACK_PERCENT: u64 = 15;
/// Connections to origins come and go: what a leak leaves behind an hour is more.
const DESCRIPTORS_SLACK: u64 = 64;

/// What must be 0 when there are no requests any more.
pub(crate) const GAUGES: [&str; 6] = [
    "litequic_connections_open",
    "litequic_connections_held",
    "litequic_handshakes_open",
    "litequic_requests_open",
    "litequic_send_buffered_bytes",
    "litequic_origin_connections_open",
];

/// One look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Since the load began.
    pub(crate) at: Duration,
    pub(crate) rss_bytes: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// [`GAUGES`], in their order.
    pub(crate) gauges: [u64; GAUGES.len()],
}

impl Sample {
    /// Samples the process `id` and its metrics.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub(crate) fn take(id: u32, metrics: &BTreeMap<String, u64>, at: Duration) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("litequic has ended")?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok(Self {
            at,
            rss_bytes: field("VmRSS:").context("no VmRSS")? * 1024,
            descriptors: fs::read_dir(format!("/proc/{id}/fd"))?.count() as u64,
            threads: field("Threads:").context("no Threads")?,
            gauges: GAUGES.map(|name| metrics.get(name).copied().unwrap_or_default()),
        })
    }
}

/// The samples of a scrape, by name and labels; whole numbers alone.
pub(crate) fn parse(scrape: &str) -> BTreeMap<String, u64> {
    let samples = scrape.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The first third after the load has settled beside the last one: the median of the memory, the most descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trend {
    pub(crate) rss_bytes: (u64, u64),
    pub(crate) descriptors: (u64, u64),
}

impl Trend {
    /// `None` without enough samples. The first tenth, and one sample at least, belongs to the load's beginning.
    pub(crate) fn of(samples: &[Sample]) -> Option<Self> {
        let steady = samples.get((samples.len() / 10).max(1)..)?;
        let third = steady.len() / 3;
        let (first, last) = (steady.get(..third)?, steady.get(steady.len() - third..)?);
        let median = |samples: &[Sample]| {
            let mut all: Vec<_> = samples.iter().map(|sample| sample.rss_bytes).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        let most = |samples: &[Sample]| samples.iter().map(|sample| sample.descriptors).max();
        Some(Self { rss_bytes: (median(first)?, median(last)?), descriptors: (most(first)?, most(last)?) })
    }

    /// What the memory may be in the end.
    pub(crate) fn rss_bound(&self) -> u64 {
        self.rss_bytes.0 + self.rss_bytes.0 * RSS_SLACK_PERCENT / 100 + RSS_SLACK_BYTES
    }

    pub(crate) fn descriptors_bound(&self) -> u64 {
        self.descriptors.0 + DESCRIPTORS_SLACK
    }

    /// What grew.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.rss_bytes.1 > self.rss_bound() {
            faults.push(format!("memory grew from {} to {} bytes", self.rss_bytes.0, self.rss_bytes.1));
        }
        if self.descriptors.1 > self.descriptors_bound() {
            faults.push(format!("descriptors grew from {} to {}", self.descriptors.0, self.descriptors.1));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn trend(rss: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Trend {
        let sample = |n| Sample { rss_bytes: rss(n), descriptors: descriptors(n), ..Sample::default() };
        Trend::of(&(0..100).map(sample).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn waves_and_a_beginning_are_flat() {
        let waves = trend(|n| if n < 10 { n } else { 60 + n % 7 } * MIB, |n| 100 + n % 50);
        assert_eq!(waves.faults(), Vec::<String>::new());
    }

    #[test]
    fn a_leak_is_told() {
        assert_eq!(trend(|n| (60 + n) * MIB, |_| 100).faults().len(), 1);
        assert_eq!(trend(|_| 60 * MIB, |n| 100 + 2 * n).faults().len(), 1);
    }

    #[test]
    fn a_scrape_gives_whole_numbers_with_their_labels() {
        let scrape = "# HELP a b\na_total{x=\"y z\"} 5\nb 0\nc 1.5\n# EOF\n";
        let found = parse(scrape);
        assert_eq!((found.get("a_total{x=\"y z\"}"), found.get("b"), found.len()), (Some(&5), Some(&0), 2));
        assert!(Trend::of(&[]).is_none());
    }
}
