//! LiteQUIC's headline (figures 1, 8 and 9): DASH viewers of a server with too little CPU.

use super::{Amount, Experiment, Kind, Load, Options, ROUNDS, Share, Task, Variant, load, over, steps};
use crate::{
    bench::{
        cgroup::SHORT_PERIOD,
        load::{Generator, Player, Viewers},
    },
    report::Bound,
    viewer::{Rule, SATISFIED},
};
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/viewers.toml");

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "viewers",
    about: "How many viewers does a server satisfy that has too little CPU time? Emulated viewers of adaptive video, each over a connection \
            of its own, by dash.js's rules, over a round trip of 20 ms, without loss and with 0.5 %; a twentieth of LiteQUIC's \
            bitrates (50 kbit/s to 2.5 Mbit/s), segments of 2 s. The server has a share of a core. A viewer is satisfied whose \
            rebuffering is at most a hundredth of the play time. *all-off*: the QUIC library's own I/O, a system call a datagram; *gso*, \
            *merge*: with GSO, and with merged ACKs besides (LiteQUIC+); *litequic*: as it comes, with fewer ACKs where \
            clients can be asked (LiteQUIC++).",
    reference: Some("nginx"),
    tasks,
    variants,
};

/// kbit/s: a twentieth of the paper's, so that the viewers, their server and the link between them fit two cores.
const LADDER: [u32; 7] = [50, 250, 500, 1_000, 1_500, 2_000, 2_500];
/// Of a segment.
const SEGMENT: u32 = 2; // seconds
/// They do not begin all at once.
const SPREAD: u32 = 2; // seconds
/// Of a core, the server's.
const SHARE: f64 = 0.12;
const SECONDS: f64 = 24.0;
const ALL: [&str; 7] = ["h1-cubic", "nginx", "haproxy", "all-off", "gso", "merge", "litequic"];
/// The numbers of viewers, for contenders where that is a question: the others were found to carry so many with ease,
/// or not by far.
const COUNTS: [(u32, &[&str]); 6] = [
    (20, &["nginx", "haproxy", "all-off"]),
    (40, &["nginx", "haproxy", "all-off"]),
    (80, &["nginx", "haproxy", "all-off", "gso", "litequic"]),
    (100, &["nginx", "haproxy", "all-off", "gso", "merge", "litequic"]),
    (120, &ALL),
    (160, &["gso", "merge", "litequic"]),
];
/// Where rules and networks are compared: with some of those who take part,
const MANY: u32 = 120;
const STEPS_OF_INTEREST: [&str; 3] = ["gso", "merge", "litequic"];
/// in fewer rounds, so that all takes less than an hour,
const FEWER: usize = 2;
/// and over loss.
const OVER_LOSS: [&str; 4] = ["h1-cubic", "nginx", "gso", "litequic"];
/// Of the highest bitrate, what full quality is.
const FULL: f64 = 0.9;
/// Group and path.
const CLEAN: (&str, &str) = ("20 ms", "rate=1000M,rtt=20ms,buffer=1bdp");
const LOSSY: (&str, &str) = ("20 ms, 0.5 % loss", "rate=1000M,rtt=20ms,buffer=1bdp,loss=0.5%");

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    if options.quick {
        return vec![cell(CLEAN, Rule::Dynamic, (5, 3.0), Share::Quota(SHARE, SHORT_PERIOD), &ALL)];
    }
    let quota = Share::Quota(SHARE, SHORT_PERIOD);
    let mut tasks: Vec<Task> =
        COUNTS.map(|(count, who)| cell(CLEAN, Rule::Dynamic, (count, SECONDS), quota, who)).to_vec();
    tasks.push(cell(LOSSY, Rule::Dynamic, (MANY, SECONDS), quota, &OVER_LOSS));
    // The same by another way to have little.
    let who = ["h1-cubic", "nginx", "gso", "litequic"];
    let mut other = cell(CLEAN, Rule::Dynamic, (MANY, SECONDS), Share::Left(SHARE), &who);
    other.rounds = FEWER;
    other.case.name += ", beside a rival";
    other.case.group += ", beside a rival";
    tasks.push(other);
    for rule in [Rule::Throughput, Rule::Bola] {
        let cell = cell(CLEAN, rule, (MANY, SECONDS), quota, &STEPS_OF_INTEREST);
        tasks.push(Task { rounds: FEWER, ..cell });
    }
    tasks
}

fn cell((group, path): (&str, &str), rule: Rule, (count, seconds): (u32, f64), share: Share, who: &[&str]) -> Task {
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
    let mut task = over(path, &group, &format!("{count} viewers"), "bitrate", load);
    task.case.load += &share.describe();
    task.case.judged = ["carried", "rebuffering"].map(str::to_owned).to_vec();
    task.case.drawn = ["rebuffering", "carried", "cpu"].map(str::to_owned).to_vec();
    task.case.x = Some(f64::from(count));
    task.case.bounds = bounds();
    task.kinds = vec![Kind::H3, Kind::H1];
    task.names = who.iter().map(|name| (*name).to_owned()).collect();
    task.share = share;
    task.rounds = ROUNDS;
    task
}

/// Viewers who are carried: hardly any rebuffering, and then also full quality.
fn bounds() -> Vec<Bound> {
    let rebuffering = Bound { figure: "rebuffering".to_owned(), below: Some(SATISFIED * 100.0), least: None };
    let top = LADDER.last().copied().map(f64::from).unwrap_or_default() / 1e3;
    let bitrate = Bound { figure: "bitrate".to_owned(), below: None, least: Some(FULL * top) };
    vec![rebuffering, bitrate]
}
