//! A few downloads over slow links: what most servers have most of the time.

use super::{Amount, Experiment, Generator, Kind, Load, Options, QUICK_CUT, Task, acks, download, more_than, over};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "slow",
    "What do a few downloads over a slow link cost? CPU s/GB, wakes and sends a MB, goodput, and what the bottleneck \
            drops, whose buffer is half or one bandwidth-delay product. Clients that acknowledge every second packet, as curl \
            does.",
    tasks,
);

/// Mbit/s, milliseconds, and bandwidth-delay products of the buffer.
const PATHS: [(u64, u32, f64); 8] = [
    (5, 10, 1.0),
    (5, 50, 1.0),
    (20, 10, 0.5),
    (20, 10, 1.0),
    (20, 50, 0.5),
    (20, 50, 1.0),
    (50, 10, 0.5),
    (50, 50, 1.0),
];
const FLOWS: [u32; 3] = [1, 2, 5];

fn tasks(options: &Options) -> Vec<Task> {
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (5.0, 1.0) };
    let (paths, flows) = if options.quick { (&PATHS[2..3], &FLOWS[..1]) } else { (&PATHS[..], &FLOWS[..]) };
    let mut tasks = Vec::new();
    for (rate, rtt, buffer) in paths {
        for flows in flows {
            let generator = Generator::own("2");
            let group = format!("{rate} Mbit/s, {rtt} ms, {buffer} BDP, {}", acks(&generator));
            let amount = Amount::Cut { seconds, beginning };
            let load = Load { connections: *flows, generator, ..download(more_than(*rate, seconds), amount) };
            let path = format!("rate={rate}M,rtt={rtt}ms,buffer={buffer}bdp");
            let mut task = over(&path, &group, &format!("{flows} flows"), "cpu", load);
            task.case.drawn = ["wakes", "goodput"].map(str::to_owned).to_vec();
            task.case.judged.clone_from(&task.case.drawn);
            task.case.x = Some(f64::from(*flows));
            task.names = ["litequic", "nginx", "h1-cubic"].map(str::to_owned).to_vec();
            task.kinds = vec![Kind::H3, Kind::H1];
            tasks.push(task);
        }
    }
    tasks
}
