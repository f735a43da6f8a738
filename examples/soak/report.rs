//! The report: a line a sample, a table in the end, and the same as JSON.

use crate::{
    account::{Account, Kind, Tally},
    trend::{GAUGES, Sample, Trend},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};

const MIB: f64 = 1_048_576.0;

/// The figures.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    pub(crate) reloads: u64,
    pub(crate) restarts: u64,
    /// Before the load, and after it.
    pub(crate) before: Sample,
    pub(crate) after: Sample,
    pub(crate) samples: Vec<Sample>,
    /// litequic's own, of the end.
    pub(crate) metrics: BTreeMap<String, u64>,
    tallies: Vec<(Kind, Tally)>,
    expected: BTreeMap<String, u64>,
    /// Everything that is wrong.
    pub(crate) faults: Vec<String>,
}

impl Report {
    pub(crate) const HEADING: &str =
        "     s   RSS MiB  fds  threads  connections  held  handshakes  requests  send buffers  to origins";

    pub(crate) fn new(seed: u64, before: Sample) -> Self {
        Self {
            seed,
            reloads: 0,
            restarts: 0,
            after: before.clone(),
            before,
            samples: Vec::new(),
            metrics: BTreeMap::new(),
            tallies: Vec::new(),
            expected: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    pub(crate) fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// Takes over the books, and draws the conclusions.
    pub(crate) fn close(&mut self, account: &Account) {
        self.tallies = account.tallies().collect();
        self.expected = account.failures.clone();
        let (wrong, open) = (account.sum(|tally| tally.wrong), account.sum(|tally| tally.open()));
        if wrong > 0 {
            self.fault(format!("{wrong} requests went wrong"));
        }
        if open > 0 {
            self.fault(format!("{open} requests never ended"));
        }
        if account.sum(|tally| tally.verified) == 0 {
            self.fault("nothing was verified".into());
        }
        self.faults.extend(account.details.iter().cloned());
        match Trend::of(&self.samples) {
            Some(trend) => self.faults.extend(trend.faults()),
            None => self.fault("too few samples for a trend".into()),
        }
    }

    pub(crate) fn line(&self, sample: &Sample) -> String {
        let [connections, held, handshakes, requests, send, origins] = sample.gauges;
        let Sample { at, rss_bytes, descriptors, threads, .. } = sample;
        format!(
            "{:>6} {:>9.1} {descriptors:>4} {threads:>8} {connections:>12} {held:>5} {handshakes:>11} {requests:>9} \
             {send:>13} {origins:>11}",
            at.as_secs(),
            *rss_bytes as f64 / MIB
        )
    }

    /// The summary, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("\n           begun  verified  expected  cancelled  wrong  MB compared\n");
        for (kind, tally) in &self.tallies {
            let Tally { begun, verified, expected, cancelled, wrong, bytes } = tally;
            let megabytes = *bytes as f64 / 1e6;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<9} {begun:>6} {verified:>9} {expected:>9} {cancelled:>10} {wrong:>6} {megabytes:>12.1}",
                format!("{kind:?}")
            );
        }
        let expected: Vec<_> = self.expected.iter().map(|(what, count)| format!("{what} ({count})")).collect();
        let _ = writeln!(text, "expected, while the origin was out: {}", expected.join(", "));
        let _ = writeln!(text, "{} reloads, {} restarts of the origin", self.reloads, self.restarts);
        if let Some(trend) = Trend::of(&self.samples) {
            let mib = |bytes| bytes as f64 / MIB;
            let _ = writeln!(
                text,
                "memory, median of the first and the last third: {:.1} → {:.1} MiB (bound {:.1})\n\
                 descriptors, most in the first and the last third: {} → {} (bound {})",
                mib(trend.rss_bytes.0),
                mib(trend.rss_bytes.1),
                mib(trend.rss_bound()),
                trend.descriptors.0,
                trend.descriptors.1,
                trend.descriptors_bound(),
            );
        }
        let _ = writeln!(
            text,
            "before the load {:.1} MiB and {} descriptors, after it {:.1} MiB and {}",
            self.before.rss_bytes as f64 / MIB,
            self.before.descriptors,
            self.after.rss_bytes as f64 / MIB,
            self.after.descriptors
        );
        for fault in &self.faults {
            let _ = writeln!(text, "WRONG: {fault}");
        }
        text.push_str(if self.faults.is_empty() { "nothing is wrong\n" } else { "" });
        text
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> String {
        let sample = |sample: &Sample| {
            let gauges: BTreeMap<_, _> = GAUGES.into_iter().zip(sample.gauges).collect();
            json!({
                "seconds": sample.at.as_secs_f64(),
                "rss_bytes": sample.rss_bytes,
                "descriptors": sample.descriptors,
                "threads": sample.threads,
                "gauges": gauges,
            })
        };
        let tallies: BTreeMap<_, _> = self
            .tallies
            .iter()
            .map(|(kind, tally)| {
                let Tally { begun, verified, expected, cancelled, wrong, bytes } = tally;
                let tally = json!({
                    "begun": begun, "verified": verified, "expected": expected, "cancelled": cancelled, "wrong": wrong,
                    "bytes": bytes,
                });
                (format!("{kind:?}").to_lowercase(), tally)
            })
            .collect();
        let report = json!({
            "seed": self.seed,
            "requests": tallies,
            "expected": self.expected,
            "reloads": self.reloads,
            "restarts": self.restarts,
            "before": sample(&self.before),
            "after": sample(&self.after),
            "samples": self.samples.iter().map(sample).collect::<Vec<Value>>(),
            "metrics": self.metrics,
            "faults": self.faults,
        });
        format!("{report:#}\n")
    }
}
