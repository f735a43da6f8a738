//! The options of every experiment.

use super::namespace::{Topology, Veth};
use crate::link;
use clap::Args;
use std::{path::PathBuf, time::Duration};

/// The options of every experiment.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// One short round that shows that the experiment works; its figures mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print how long it takes with every contender and client, on an idle machine, and run nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Go on where an earlier run into the same folder was interrupted or stopped: what is finished there is kept.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Begin nothing more after so long; --resume goes on.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) stop_after: Option<Duration>,
    /// Longer trials and more of them, where an experiment has trials (`conformance`).
    #[arg(long)]
    pub(crate) overnight: bool,
    /// Save time series of each run over a path, and plots of them: what was delivered, queued, in flight and dropped,
    /// how often acknowledgements came and how late. Of viewers also each one's segments.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Rounds; in each all contenders are run in turn. Fewer than 3 support no comparison. Default: 3, over paths 5
    /// where a run takes less than 20 s.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// How often a run is tried that something else on the machine disturbs.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    tries: u16,
    /// How long to wait for quiet cores before a run.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    patience: u16,
    /// The path between client and server; `path` needs --path. Experiments over paths have their own.
    #[arg(
        long,
        value_enum,
        default_value = "lo",
        default_value_if("path", clap::builder::ArgPredicate::IsPresent, "path")
    )]
    pub(crate) topology: Topology,
    /// An emulated path, such as rate=20M,rtt=50ms,buffer=0.5bdp,loss=0.5%.
    #[arg(long, value_name = "KEY=VALUE,…", required_if_eq("topology", "path"))]
    pub(crate) path: Option<link::Path>,
    #[command(flatten)]
    pub(crate) veth: Veth,
    /// Only these contenders.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Links at once at most, where an experiment has one for each trial: 1 shows whether they disturb each other.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) links: Option<u8>,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Another contender: its description, with its templates beside it.
    #[arg(long, value_name = "FILE")]
    pub(crate) contender: Vec<PathBuf>,
    /// Where a contender's program is, or `h2load`'s, or the `origin`'s: NAME=PATH.
    #[arg(long, value_name = "NAME=PATH", value_parser = binary)]
    pub(crate) bin: Vec<(String, PathBuf)>,
    /// For viewers: a folder that benches/lab/video.sh made, with dash.js (5.2) in it as dash.js.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) video: Option<PathBuf>,
    /// The contender that others are compared with, where it takes part.
    #[arg(long, value_name = "NAME", default_value = "nginx")]
    pub(crate) reference: String,
    /// Multiplies the load: 0.1 for a short run.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(crate) amount: f64,
    /// The server's core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) server_core: usize,
    /// The core of client, origin and the lab itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) client_core: usize,
    /// Where results go.
    #[arg(long, value_name = "FOLDER", default_value = "target/lab")]
    pub(crate) out: PathBuf,
}

impl Options {
    /// Rounds to run of what has so many where the command line does not say.
    pub(crate) fn rounds(&self, otherwise: usize) -> usize {
        if self.quick { 1 } else { self.rounds.map_or(otherwise, usize::from) }
    }

    /// Tries of a disturbed run.
    pub(crate) fn tries(&self) -> usize {
        if self.quick { 1 } else { self.tries.into() }
    }

    /// Seconds to wait for quiet cores.
    pub(crate) fn patience(&self) -> u64 {
        if self.quick { 0 } else { self.patience.into() }
    }

    /// So many of what a full run has, at least one; `quick` in a quick run.
    pub(crate) fn many(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { scale(full, self.amount) }
    }

    /// The path that the command line gives to a program.
    pub(crate) fn given(&self, name: &str) -> Option<&PathBuf> {
        self.bin.iter().find(|(known, _)| known == name).map(|(_, path)| path)
    }

    /// Whether a case was selected.
    pub(crate) fn takes(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|text| case.contains(text.as_str()))
    }

    /// How many links there are at once, of `wanted`.
    pub(crate) fn links(&self, wanted: u8) -> u8 {
        self.links.map_or(wanted, |most| most.min(wanted))
    }

    /// Whether a contender was selected.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of requests, positive and far below 2^53"
)]
fn scale(full: u64, factor: f64) -> u64 {
    ((full as f64 * factor) as u64).max(1)
}

fn binary(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && path.contains('/') => Ok((name.to_owned(), PathBuf::from(path))),
        _ => Err("NAME=PATH is wanted, such as nginx=/usr/local/sbin/nginx".to_owned()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.001..=1000.0).contains(&factor) { Ok(factor) } else { Err("from 0.001 to 1000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_place_is_a_name_and_a_path() {
        assert_eq!(binary("nginx=/a/b"), Ok(("nginx".to_owned(), PathBuf::from("/a/b"))));
        assert!(binary("nginx").is_err() && binary("=/a").is_err() && binary("nginx=a").is_err());
    }

    #[test]
    fn amounts_are_scaled_and_never_nothing() {
        assert_eq!((scale(100, 0.5), scale(3, 0.01), scale(7, 1.0)), (50, 1, 7));
        assert!(factor("0").is_err() && factor("nan").is_err());
    }
}
