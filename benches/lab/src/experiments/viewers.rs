//! LiteQUIC's headline (figures 1, 8 and 9): DASH viewers of a server with too little CPU.

use super::{Amount, Experiment, Kind, Load, Options, Per, ROUNDS, Task, Variant, load, steps, task};
use crate::{
    bench::load::{Generator, Viewers},
    viewer::Rule,
};
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/viewers.toml");

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "viewers",
    about: "How many viewers does a server satisfy that has too little CPU time? Emulated viewers of adaptive video, each over a connection \
            of its own, by dash.js's rules; a tenth of LiteQUIC's bitrates (0.1 to 5 Mbit/s), segments of 2 s. The server has \
            a quota of CPU time. A viewer is satisfied who stands still for at most a hundredth of the time. *all-off*: the QUIC library's own I/O, a \
            system call a datagram; *gso*, *merge*: with GSO, and with merged ACKs besides (LiteQUIC+); *litequic*: as it comes, \
            with fewer ACKs where clients can be asked (LiteQUIC++).",
    reference: Some("nginx"),
    tasks,
    variants,
};

/// kbit/s: a tenth of the paper's, so that a hundred viewers and their server fit two cores.
const LADDER: [u32; 7] = [100, 500, 1_000, 2_000, 3_000, 4_000, 5_000];
/// Of a segment.
const SEGMENT: u32 = 2; // seconds
/// They do not begin all at once.
const SPREAD: u32 = 2; // seconds
/// Of a core, the server's.
const QUOTA: f64 = 0.12;

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    if options.quick {
        return vec![cell("dynamic", Rule::Dynamic, 5, 4.0)];
    }
    let mut tasks: Vec<Task> = [20, 60, 100, 140].map(|count| cell("dynamic", Rule::Dynamic, count, 30.0)).to_vec();
    for (name, rule) in [("throughput", Rule::Throughput), ("BOLA", Rule::Bola)] {
        tasks.push(cell(name, rule, 100, 30.0));
    }
    tasks
}

fn cell(group: &str, rule: Rule, count: u32, seconds: f64) -> Task {
    let viewers = Viewers { rule, ladder: LADDER.to_vec(), segment: SEGMENT, spread: SPREAD };
    let load = Load {
        kind: load::Kind::Download,
        body: 0,
        connections: count,
        streams: 1,
        amount: Amount::Seconds(seconds),
        generator: Generator::Viewers(viewers),
        resume: false,
    };
    let mut task = task(group, &format!("{count} viewers"), Per::Gigabyte, false, load);
    task.case.primary = "carried".to_owned();
    task.case.judged = ["bitrate", "rebuffering"].map(str::to_owned).to_vec();
    task.case.drawn = ["bitrate", "rebuffering", "cpu"].map(str::to_owned).to_vec();
    task.case.x = Some(f64::from(count));
    task.kinds = vec![Kind::H3, Kind::H1];
    let mut names: Vec<String> = variants().unwrap_or_default().into_iter().map(|step| step.name).collect();
    names.extend(["nginx", "haproxy", "nginx-h1"].map(str::to_owned));
    task.names = names;
    task.quota = Some(QUOTA);
    task.rounds = ROUNDS;
    task
}
