//! LiteQUIC's headline (figures 1, 8 and 9): DASH viewers of a server with too little CPU.

use super::{Amount, Experiment, Kind, Load, Options, ROUNDS, Task, Variant, load, names, over, steps};
use crate::{
    bench::load::{Generator, Player, Viewers},
    viewer::Rule,
};
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/viewers.toml");

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "viewers",
    about: "How many viewers does a server satisfy that has too little CPU time? Emulated viewers of adaptive video, each over a connection \
            of its own, by dash.js's rules, over a round trip of 20 ms, without loss and with 0.5 %; a twentieth of LiteQUIC's \
            bitrates (50 kbit/s to 2.5 Mbit/s), segments of 2 s. The server has a quota of CPU time. A viewer is satisfied whose \
            rebuffering is at most a hundredth of the play time. *all-off*: the QUIC library's own I/O, a system call a datagram; *gso*, \
            *merge*: with GSO, and with merged ACKs besides (LiteQUIC+); *litequic*: as it comes, with fewer ACKs where \
            clients can be asked (LiteQUIC++).",
    reference: Some("nginx"),
    tasks,
    variants,
};

/// kbit/s: a twentieth of the paper's, so that 140 viewers, their server and the link between them fit two cores.
const LADDER: [u32; 7] = [50, 250, 500, 1_000, 1_500, 2_000, 2_500];
/// Of a segment.
const SEGMENT: u32 = 2; // seconds
/// They do not begin all at once.
const SPREAD: u32 = 2; // seconds
/// Of a core, the server's.
const QUOTA: f64 = 0.12;
const SECONDS: f64 = 30.0;
/// Group and path.
const CLEAN: (&str, &str) = ("20 ms", "rate=400M,rtt=20ms,buffer=1bdp");
const LOSSY: (&str, &str) = ("20 ms, 0.5 % loss", "rate=400M,rtt=20ms,buffer=1bdp,loss=0.5%");

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    if options.quick {
        return vec![cell(CLEAN, Rule::Dynamic, 5, 3.0)];
    }
    let mut tasks: Vec<Task> = [20, 60, 100, 140].map(|count| cell(CLEAN, Rule::Dynamic, count, SECONDS)).to_vec();
    for rule in [Rule::Throughput, Rule::Bola] {
        tasks.push(cell(CLEAN, rule, 100, SECONDS));
    }
    tasks.push(cell(LOSSY, Rule::Dynamic, 60, SECONDS));
    tasks
}

fn cell((group, path): (&str, &str), rule: Rule, count: u32, seconds: f64) -> Task {
    let (player, ladder) = (Player::Emulated(rule), LADDER.to_vec());
    let viewers = Viewers { player, ladder, segment: SEGMENT, spread: SPREAD, video: false };
    let load = Load {
        kind: load::Kind::Download,
        body: 0,
        connections: count,
        streams: 1,
        amount: Amount::Seconds(seconds),
        generator: Generator::Viewers(viewers),
        resume: false,
    };
    let group = format!("{group}, {}", rule.argument());
    let mut task = over(path, &group, &format!("{count} viewers"), "carried", load);
    task.case.judged = ["bitrate", "rebuffering"].map(str::to_owned).to_vec();
    task.case.drawn = ["bitrate", "rebuffering", "cpu"].map(str::to_owned).to_vec();
    task.case.x = Some(f64::from(count));
    task.kinds = vec![Kind::H3, Kind::H1];
    let mut names = names(variants());
    names.extend(["nginx", "haproxy", "h1-cubic"].map(str::to_owned));
    task.names = names;
    task.quota = Some(QUOTA);
    task.rounds = ROUNDS;
    task
}
