//! litequic beside its peers: CPU a GB and a request. Each figure saturated and not; downloads at exact ACK thresholds,
//! and with h2load, which acknowledges so seldom that ACKs cost nothing.

use super::{Amount, Experiment, Generator, Http, Kind, Load, Options, Per, Task, acks, large, load, task};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "peers",
    "What does an HTTP/3 proxy cost, one worker on one core, in front of the same origin? Large bodies at 2 and 10 \
            packets an ACK (as browsers do), at 100, and as h2load acknowledges; small objects; uploads. *nginx-h1*, over \
            HTTP/1.1 and TLS, is the ceiling; *floor* has no protocol at all. Then what a user gets: contenders with their defaults, \
            over each protocol; requests that fail are counted, and costs are those of a success.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let generators = |thresholds: &[&str]| -> Vec<Generator> {
        thresholds.iter().map(|threshold| Generator::own(threshold)).chain([Generator::H2load]).collect()
    };
    let mut tasks = Vec::new();
    for saturated in [false, true] {
        let how = if saturated { "saturated" } else { "unsaturated" };
        for generator in generators(if options.quick { &["2", "10"] } else { &["2", "10", "100"] }) {
            let name = format!("{}, {how}", acks(&generator));
            let load = large(options, if saturated { 4 } else { 8 }, generator);
            let mut task = task("large bodies", &name, Per::Gigabyte, saturated, load);
            task.kinds.push(Kind::Floor);
            tasks.push(task);
        }
        for generator in generators(&["2", "10"]) {
            let name = format!("{}, {how}", acks(&generator));
            let (connections, streams) = if options.quick { (10, 5) } else { (100, 10) };
            let amount = Amount::Requests(options.many(if saturated { 50_000 } else { 200_000 }, 2_000));
            let load =
                Load { kind: load::Kind::Small, body: 1_000, connections, streams, amount, generator, resume: false };
            tasks.push(task("small objects", &name, Per::Request, saturated, load));
        }
        let load = Load { kind: load::Kind::Upload, ..large(options, 4, Generator::own("auto")) };
        tasks.push(task("uploads", how, Per::Gigabyte, saturated, load));
    }
    tasks.extend(with_defaults(options));
    tasks
}

/// Bodies of the rows with defaults, and how many are requested.
const BODIES: [(&str, u64, u64); 3] = [("1 KB", 1_000, 50_000), ("10 KB", 10_000, 20_000), ("100 KB", 100_000, 5_000)];

/// 1,000 requests in flight from one address, on contenders with their defaults.
fn with_defaults(options: &Options) -> Vec<Task> {
    let (connections, streams) = if options.quick { (10, 5) } else { (100, 10) };
    let row = |name: &str, body, requests, generator| {
        let amount = Amount::Requests(options.many(requests, 200));
        let load = Load { kind: load::Kind::Small, body, connections, streams, amount, generator, resume: false };
        let mut task = task("defaults", name, Per::Request, false, load);
        task.kinds = vec![Kind::H3];
        task.defaults = true;
        task
    };
    let mut tasks = vec![row("1 KB over HTTP/3, ACK 2", 1_000, 50_000, Generator::own("2"))];
    for (name, body, requests) in BODIES {
        for front in Http::ALL.into_iter().rev() {
            let task = row(&format!("{name} over {}", front.name()), body, requests, Generator::Counting);
            tasks.push(Task { front, ..task });
        }
    }
    tasks
}
