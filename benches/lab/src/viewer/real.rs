//! Real viewers: dash.js in headless Chromium, one browser each, which the emulated ones are checked against. Their
//! segments' times and qualities are reported as well: fixtures of the player's tests.

use super::{
    Report, Viewed,
    player::{Rule, View},
};
use crate::{
    argument,
    browser::{Browser, Origin},
    client,
    http::Http,
};
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    net::SocketAddr,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Instant,
};

/// Browsers at a time, at most: each decodes its video.
const BROWSERS: u32 = 3;
/// A page of the origin's, be it an error: its content does not matter, only its origin.
const PAGE: &str = "/";

/// dash.js's rules. Low-latency rules are not emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RealRule {
    Throughput,
    Bola,
    Dynamic,
    /// Learn2Adapt-LowLatency.
    L2a,
    /// LoL+.
    LolPlus,
}

impl From<Rule> for RealRule {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Throughput => Self::Throughput,
            Rule::Bola => Self::Bola,
            Rule::Dynamic => Self::Dynamic,
        }
    }
}

impl RealRule {
    /// The word for the command line.
    pub(crate) fn argument(self) -> String {
        argument::word(&self)
    }

    /// Of dash.js's rules those that are active; the others that limit them stay as they come.
    fn active(self) -> serde_json::Value {
        let active = |rules: &[Self]| json!({ "active": rules.contains(&self) });
        json!({
            "throughputRule": active(&[Self::Throughput, Self::Dynamic]),
            "bolaRule": active(&[Self::Bola, Self::Dynamic]),
            "l2ARule": active(&[Self::L2a]),
            "loLPRule": active(&[Self::LolPlus]),
        })
    }
}

/// What is watched, and by how many.
#[derive(Debug, Clone, Args)]
pub(crate) struct RealArguments {
    /// Chromium.
    #[arg(long)]
    program: PathBuf,
    /// The server's IP address and port. Its name is localhost.
    #[arg(long)]
    address: SocketAddr,
    /// The SHA-256 of its public key in base64.
    #[arg(long)]
    spki: String,
    /// Over TLS, those before HTTP/3.
    #[arg(long, value_enum, default_value = "three")]
    http: Http,
    /// Viewers at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(BROWSERS)))]
    count: u32,
    /// How the quality is decided.
    #[arg(long, value_enum, default_value = "dynamic")]
    rule: RealRule,
    /// The path of dash.js.
    #[arg(long, default_value = "/dash.js")]
    dash: String,
    /// The path of the video.
    #[arg(long, default_value = "/media/video.mpd")]
    mpd: String,
    /// For so many seconds.
    #[arg(long)]
    seconds: f64,
}

/// A segment that came. Times are seconds since the player began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Counts from 0.
    pub(crate) index: u32,
    pub(crate) quality: usize,
    pub(crate) requested: f64,
    pub(crate) first_byte: f64,
    pub(crate) finished: f64,
    pub(crate) bytes: u64,
    /// What was buffered when it was requested, seconds.
    pub(crate) buffer: f64,
    /// The request before, which was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given_up: Option<GivenUp>,
}

/// A request that was given up for one in a lower quality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenUp {
    pub(crate) quality: usize,
    pub(crate) requested: f64,
    pub(crate) first_byte: f64,
    pub(crate) at: f64,
    /// Bytes that had come,
    pub(crate) loaded: u64,
    /// of so many.
    pub(crate) total: u64,
    pub(crate) buffer: f64,
}

/// What the page reports of a viewer.
#[derive(Debug, Deserialize)]
struct Watched {
    view: View,
    segments: Vec<Segment>,
    failure: Option<String>,
}

/// Watches, and prints the report as JSON. All viewers begin once each browser has dash.js.
pub(crate) fn real(arguments: &RealArguments) -> Result<()> {
    let browsers: Vec<_> = (0..arguments.count)
        .map(|_| {
            let arguments = arguments.clone();
            thread::spawn(move || prepared(&arguments))
        })
        .collect();
    let browsers = browsers.into_iter().map(joined).collect::<Result<Vec<Browser>>>()?;
    let began = Instant::now();
    let viewers: Vec<_> = browsers
        .into_iter()
        .map(|browser| {
            let arguments = arguments.clone();
            thread::spawn(move || watch(browser, &arguments))
        })
        .collect();
    let mut report = Report::default();
    for viewer in viewers {
        let Watched { view, segments, failure } = joined(viewer)?;
        report.bytes += segments.iter().map(|segment| segment.bytes).sum::<u64>();
        let qualities = segments.iter().map(|segment| segment.quality).collect();
        let failures = u32::from(failure.is_some());
        report.viewers.push(Viewed { view, failures, failure, qualities, segments });
    }
    report.seconds = began.elapsed().as_secs_f64();
    client::print(&report)
}

fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a viewer's thread panicked"))
}

/// A browser with dash.js.
fn prepared(arguments: &RealArguments) -> Result<Browser> {
    let origin = Origin { address: arguments.address, spki: &arguments.spki, http: arguments.http, options: None };
    let mut browser = Browser::start(&arguments.program, &origin)?;
    browser.open(&origin, PAGE)?;
    browser.evaluate(&format!("({LOAD})({})", json!(arguments.dash)))?;
    Ok(browser)
}

fn watch(mut browser: Browser, arguments: &RealArguments) -> Result<Watched> {
    let setup = json!({ "mpd": arguments.mpd, "rules": arguments.rule.active(), "seconds": arguments.seconds });
    let reported = browser.evaluate(&format!("({WATCH})({setup})"))?;
    let watched = serde_json::from_value(reported).context("what the page reports")?;
    browser.end()?;
    Ok(watched)
}

/// Loads dash.js.
const LOAD: &str = "async dash => {
    const answer = await fetch(dash);
    if (!answer.ok) throw new Error('dash.js: status ' + answer.status);
    (0, eval)(await answer.text());
}";

/// Plays the video for so long. Stalls are seen by whether its time goes on.
const WATCH: &str = "async ({ mpd, rules, seconds }) => {
    const video = document.createElement('video');
    video.muted = true;
    document.body.append(video);
    const player = dashjs.MediaPlayer().create();
    player.updateSettings({ streaming: { buffer: { fastSwitchEnabled: false }, abr: { rules } } });
    const began = performance.now();
    const since = () => (performance.now() - began) / 1000;
    const clock = Date.now() - performance.now() + began;
    const at = date => (date.getTime() - clock) / 1000;
    const segments = [], buffers = new Map(), given_up = new Map();
    let failure = null;
    const isVideo = request => request && request.mediaType === 'video' && request.type === 'MediaSegment';
    player.on('fragmentLoadingStarted', ({ request }) => {
        if (isVideo(request)) buffers.set(request.index, player.getBufferLength('video') || 0);
    });
    player.on('fragmentLoadingAbandoned', ({ request }) => {
        if (isVideo(request)) given_up.set(request.index, {
            quality: request.representation.absoluteIndex,
            requested: at(request.startDate),
            first_byte: at(request.firstByteDate || new Date()),
            at: since(),
            loaded: request.bytesLoaded || 0,
            total: request.bytesTotal || 0,
            buffer: buffers.get(request.index) || 0,
        });
    });
    const bitrates = [];
    player.on('fragmentLoadingCompleted', ({ request, error }) => {
        if (!isVideo(request) || error) return;
        const representation = request.representation;
        bitrates.push(representation.bitrateInKbit);
        segments.push({
            index: request.index,
            quality: representation.absoluteIndex,
            requested: at(request.startDate),
            first_byte: at(request.firstByteDate || request.endDate),
            finished: at(request.endDate),
            bytes: request.bytesTotal || request.bytesLoaded,
            buffer: buffers.get(request.index) || 0,
            given_up: given_up.get(request.index) || null,
        });
    });
    player.on('error', event => { failure = String(event.error && event.error.message || event.error); });
    player.initialize(video, mpd, true);
    let start = null, last = 0, lastLook = began, stalled = 0, stalls = 0, stands = false;
    await new Promise(done => {
        const timer = setInterval(() => {
            const now = performance.now(), passed = (now - lastLook) / 1000;
            if (start === null) {
                if (video.currentTime > 0) start = since();
            } else if (video.currentTime === last && !video.ended) {
                stalled += passed;
                if (!stands) stalls++;
                stands = true;
            } else stands = false;
            [last, lastLook] = [video.currentTime, now];
            if (since() >= seconds || video.ended) { clearInterval(timer); done(); }
        }, 100);
    });
    const played = video.currentTime;
    player.reset();
    const switches = segments.filter((one, at) => at > 0 && one.quality !== segments[at - 1].quality).length;
    const mean = bitrates.reduce((sum, one) => sum + one, 0) / Math.max(bitrates.length, 1);
    return { view: { bitrate: mean, start_up: start || 0, stalls, stalled, switches, played }, segments, failure };
}";
