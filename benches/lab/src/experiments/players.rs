//! Whether emulated viewers watch as dash.js does: the same video over the same paths.

use super::{Amount, Experiment, Kind, Load, Options, Task, Variant, load, over};
use crate::{
    bench::load::{Generator, Player, Viewers},
    http::Http,
    viewer::{RealRule, Rule},
};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "players",
    about: "Do emulated viewers (*litequic*) watch as dash.js does in Chromium (*dash-js*)? One viewer of the same video, or three, from 0.1 to \
            5 Mbit/s, over a steady link, one whose rate falls to a sixth for 20 s, and one with a round trip of 20 ms and 0.5 % loss, by each of dash.js's \
            rules that are emulated; those for low latency by dash.js alone. Average bitrates within 5 %, switches within one, \
            stalls within half a second are the same. Three by dash.js over 300 Mbit/s watch over HTTP/2, too: of litequic \
            (*dash-js-h2*) and nginx (*nginx-h2*).",
    reference: Some(DASH_JS),
    tasks,
    variants,
};

const DASH_JS: &str = "dash-js";
/// dash.js over HTTP/2, and whose server it watches.
const OVER_TCP: [(&str, &str); 2] = [("dash-js-h2", "litequic"), ("nginx-h2", "nginx")];
/// kbit/s: those of video.sh.
const LADDER: [u32; 7] = [100, 500, 1_000, 2_000, 3_000, 4_000, 5_000];
/// Of a segment.
const SEGMENT: u32 = 2; // seconds
/// Name, path, and how long it is watched, seconds.
const PATHS: [(&str, &str, f64); 3] = [
    ("steady", "rate=4M,rtt=40ms,buffer=1bdp", 40.0),
    ("12 to 2 and back", "rate=12M:20s+2M:20s+12M,rtt=40ms,buffer=60kB,up.rate=12M", 60.0),
    ("0.5 % loss", "rate=12M,rtt=20ms,buffer=1bdp,loss=0.5%", 40.0),
];
/// The same of three at once.
const SHARED: (&str, &str, f64) = ("three at once", "rate=12M,rtt=40ms,buffer=1bdp", 40.0);
/// A fast one.
const FAST: (&str, &str, f64) = ("three at once over 300 Mbit/s", "rate=300M,rtt=20ms,buffer=1bdp", 40.0);

fn variants() -> Result<Vec<Variant>> {
    let by_dash_js = Variant { name: DASH_JS.to_owned(), is_watched_by_dash_js: true, ..Variant::default() };
    let over_tcp = OVER_TCP.map(|(name, of)| Variant {
        name: name.to_owned(),
        twin_of: Some(of.to_owned()),
        front: Some(Http::Two),
        ..by_dash_js.clone()
    });
    Ok(std::iter::once(by_dash_js.clone()).chain(over_tcp).collect())
}

fn tasks(options: &Options) -> Vec<Task> {
    let cell = |count: u32, (name, path, seconds): &(&str, &str, f64), player: Player, rule: String, names: &[&str]| {
        let viewers = Viewers { player, ladder: LADDER.to_vec(), segment: SEGMENT, spread: 0, video: true };
        let load = Load {
            kind: load::Kind::Download,
            body: 0,
            connections: count,
            streams: 1,
            amount: Amount::Seconds(if options.quick { 4.0 } else { *seconds }),
            generator: Generator::Viewers(viewers),
            resume: false,
        };
        let mut task = over(path, name, &rule, "bitrate", load);
        task.case.judged = ["switches", "stalls"].map(str::to_owned).to_vec();
        task.kinds = vec![Kind::H3];
        task.names = names.iter().map(|name| (*name).to_owned()).collect();
        task
    };
    let mut tasks = Vec::new();
    for path in PATHS.iter().take(if options.quick { 1 } else { PATHS.len() }) {
        for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
            tasks.push(cell(1, path, Player::Emulated(rule), rule.argument(), &["litequic", DASH_JS]));
        }
        // Compared with nothing.
        for rule in [RealRule::L2a, RealRule::LolPlus] {
            let cell = cell(1, path, Player::DashJs(rule), rule.argument(), &[DASH_JS]);
            tasks.push(Task { rounds: 1, ..cell });
        }
    }
    if options.quick {
        tasks.truncate(1);
        return tasks;
    }
    for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
        tasks.push(cell(3, &SHARED, Player::Emulated(rule), rule.argument(), &["litequic", DASH_JS]));
    }
    let [own, nginx] = OVER_TCP.map(|(name, _)| name);
    let rule = Rule::Dynamic;
    tasks.push(cell(3, &FAST, Player::Emulated(rule), rule.argument(), &[DASH_JS, own, nginx]));
    tasks
}
