//! Viewers of adaptive video: real segments over real connections, played in wall time by the rules of dash.js.
//! `player` decides, `fetch` has the connections; this runs so many of them in one process, and reports the quality of
//! experience.

mod bola;
mod fetch;
mod ladder;
mod playback;
mod player;
mod real;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod sabre;
#[cfg(test)]
mod simulate;
mod socket;
mod throughput;

pub(crate) use fetch::Protocol;
pub(crate) use player::Rule;
pub(crate) use real::{RealArguments, RealRule, real};

use crate::client::{self, tls};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use fetch::{Connection, Flow};
use ladder::Ladder;
use player::{Player, Step, Video, View};
use real::Segment;
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep_until};

/// Viewers at a time, at most.
const VIEWERS: u32 = 2_000;
/// A viewer stands still for at most this share of its play time to be satisfied.
pub(crate) const SATISFIED: f64 = 0.01;
/// After a connection that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// What is watched, and by how many.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// The server's IP address and port.
    #[arg(long)]
    address: SocketAddr,
    /// Trust the certificates in this file (PEM).
    #[arg(long)]
    ca: PathBuf,
    /// What is spoken.
    #[arg(long, value_enum)]
    protocol: Protocol,
    /// Viewers at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(VIEWERS)))]
    count: u32,
    /// They begin within so many seconds, evenly.
    #[arg(long, default_value_t = 0.0)]
    spread: f64,
    /// How the quality is decided.
    #[arg(long, value_enum, default_value = "dynamic")]
    rule: Rule,
    /// The bitrates, kbit/s, ascending.
    #[arg(long, value_delimiter = ',', required = true)]
    ladder: Vec<f64>,
    /// Seconds of a segment.
    #[arg(long, default_value_t = 2.0)]
    duration: f64,
    /// Segments of the video.
    #[arg(long)]
    segments: u32,
    /// The path of a segment; QUALITY counts from 0, NUMBER, of five digits, from 1; BYTES is what its bitrate comes
    /// to.
    #[arg(long)]
    template: String,
    /// Each viewer is gone after so many seconds, wherever it is in the video.
    #[arg(long)]
    seconds: f64,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) viewers: Vec<Viewed>,
    /// Bytes of segments.
    pub(crate) bytes: u64,
    /// From the first viewer's beginning to the last one's end.
    pub(crate) seconds: f64,
}

/// One viewer's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Viewed {
    #[serde(flatten)]
    pub(crate) view: View,
    /// Requests that failed.
    pub(crate) failures: u32,
    /// The last one's reason.
    pub(crate) failure: Option<String>,
    /// The qualities of its segments, in their order.
    pub(crate) qualities: Vec<usize>,
    /// More of them, of real viewers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) segments: Vec<Segment>,
}

impl Report {
    /// What a run is judged by: means over all viewers, but for those that count them.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let count = self.viewers.len().max(1) as f64;
        let sum = |of: fn(&Viewed) -> f64| self.viewers.iter().map(of).sum::<f64>();
        let mean = |of: fn(&Viewed) -> f64| sum(of) / count;
        let (played, stalled) = (sum(|one| one.view.played), sum(|one| one.view.stalled));
        let bitrate = |one: &Viewed| one.view.bitrate;
        let squares = sum(|one| one.view.bitrate * one.view.bitrate);
        let least = self.viewers.iter().map(bitrate).fold(f64::INFINITY, f64::min);
        let figures = [
            ("carried", self.viewers.iter().filter(|one| one.is_satisfied()).count() as f64),
            ("bitrate", mean(bitrate) / 1e3),
            ("least_bitrate", least / 1e3),
            ("bitrate_fairness", if squares > 0.0 { sum(bitrate).powi(2) / (count * squares) } else { 0.0 }),
            ("rebuffering", 100.0 * stalled / (played + stalled).max(f64::MIN_POSITIVE)),
            ("stalls", mean(|one| f64::from(one.view.stalls))),
            ("start_up_ms", 1e3 * mean(|one| one.view.start_up)),
            ("switches", mean(|one| f64::from(one.view.switches))),
            ("failures", sum(|one| f64::from(one.failures))),
        ];
        figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
    }
}

impl Viewed {
    /// Whether it was satisfied: it began, and stood still for a hundredth of the time at most.
    pub(crate) fn is_satisfied(&self) -> bool {
        self.view.played > 0.0 && self.view.stalled <= SATISFIED * self.view.played
    }
}

/// Watches, and prints the report as JSON.
pub(crate) fn main(arguments: &Arguments) -> Result<()> {
    client::raise_limits()?;
    let report = client::run(watch_all(arguments.clone()))?;
    client::print(&report)
}

async fn watch_all(arguments: Arguments) -> Result<Report> {
    let ladder = Ladder::new(&arguments.ladder).context("--ladder: positive bitrates that ascend")?;
    ensure!(arguments.duration > 0.0 && arguments.segments > 0, "--duration and --segments are above 0");
    let video = Video { ladder, duration: arguments.duration, segments: arguments.segments };
    let configs = Rc::new(RefCell::new(tls::Configs::new(&arguments.ca)?));
    let (began, arguments) = (Instant::now(), Rc::new(arguments));
    let mut tasks = JoinSet::new();
    for nth in 0..arguments.count {
        let begins = began + Duration::from_secs_f64(arguments.spread * f64::from(nth) / f64::from(arguments.count));
        let player = Player::new(video.clone(), arguments.rule);
        let (arguments, configs) = (Rc::clone(&arguments), Rc::clone(&configs));
        tasks.spawn_local(async move {
            sleep_until(begins.into()).await;
            watch(&arguments, &configs, player).await
        });
    }
    let mut report = Report::default();
    while let Some(done) = tasks.join_next().await {
        let (viewed, bytes) = done?;
        report.viewers.push(viewed);
        report.bytes += bytes;
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// One viewer, until its time is over or the video is.
async fn watch(arguments: &Arguments, configs: &RefCell<tls::Configs>, mut player: Player) -> (Viewed, u64) {
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(arguments.seconds);
    let (mut viewed, mut bytes, mut connection) = (Viewed::default(), 0, None);
    let now = || began.elapsed().as_secs_f64();
    while Instant::now() < end {
        let (mut segment, mut quality) = match player.step(now()) {
            Step::Over => break,
            Step::Wait(until) => {
                sleep_until((began + Duration::from_secs_f64(until)).min(end).into()).await;
                continue;
            }
            Step::Request { segment, quality } => (segment, quality),
        };
        // Until it has come, in whatever quality.
        while Instant::now() < end {
            let fetched = async {
                if connection.is_none() {
                    connection = Some(Connection::open(arguments.protocol, arguments.address, configs).await?);
                }
                let Some(open) = connection.as_mut() else { return Ok(None) };
                let bytes_of =
                    arguments.ladder.get(quality).map_or(0.0, |bitrate| bitrate * arguments.duration * 125.0);
                let path = path(&arguments.template, segment, quality, bytes_of);
                let (mut loaded, mut first_byte) = (0, None);
                let whole = open.get(&path, |piece, total| {
                    let (now, first) = (now(), *first_byte.get_or_insert_with(now));
                    loaded += piece;
                    bytes += piece;
                    if player.gives_up(now, (loaded, total), first) { Flow::GiveUp } else { Flow::Continue }
                });
                let whole = whole.await?;
                anyhow::Ok(whole.then_some((loaded, first_byte)))
            };
            let fetched = tokio::time::timeout_at(end.into(), fetched).await;
            match fetched {
                Err(_) => break,
                Ok(Ok(Some((loaded, first_byte)))) => {
                    player.received(now(), loaded, first_byte.unwrap_or_else(now));
                    viewed.qualities.push(quality);
                    break;
                }
                Ok(Ok(None)) => {
                    if connection.as_ref().is_some_and(|connection| !connection.survives_giving_up()) {
                        connection = None;
                    }
                    (segment, quality) = player.pending().unwrap_or((segment, quality));
                }
                Ok(Err(error)) => {
                    viewed.failures += 1;
                    viewed.failure = Some(format!("{error:#}"));
                    connection = None;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
    player.step(now());
    viewed.view = player.view();
    (viewed, bytes)
}

fn path(template: &str, segment: u32, quality: usize, bytes: f64) -> String {
    let path = template.replace("QUALITY", &quality.to_string()).replace("NUMBER", &format!("{:05}", segment + 1));
    path.replace("BYTES", &format!("{bytes:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segments_path_counts_from_one_and_its_quality_from_zero() {
        assert_eq!(path("/media/segment-QUALITY-NUMBER.m4s", 0, 3, 9.0), "/media/segment-3-00001.m4s");
        assert_eq!(path("/bBYTES", 7, 3, 250_000.0), "/b250000");
    }

    #[test]
    fn a_viewer_is_satisfied_that_hardly_stood_still() {
        let viewed =
            |played, stalled| Viewed { view: View { played, stalled, ..View::default() }, ..Viewed::default() };
        assert!(viewed(100.0, 1.0).is_satisfied() && !viewed(100.0, 1.1).is_satisfied());
        assert!(!viewed(0.0, 0.0).is_satisfied(), "it never began");
    }
}
