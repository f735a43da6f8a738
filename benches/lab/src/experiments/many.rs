//! Many downloads that share a link: what a server on the internet pays, and how the link is shared.

use super::{
    Amount, Experiment, Generator, Kind, Load, Options, QUICK_CUT, Task, acks, download, few, more_than, over,
};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "many",
    "What do many downloads cost that share one link, and how evenly do they share it? CPU s/GB, wakes and sends a MB; \
            Jain's index of the bytes that the link delivered to each (1: all the same). Clients that acknowledge every \
            second packet, every tenth, and (`auto`) those that support ACK_FREQUENCY. The bottleneck buffers \
            1 bandwidth-delay product.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (5.0, 1.0) };
    let mut cell = |rate: u64, rtt: u32, flows: u32, threshold: &str| {
        let generator = Generator::own(threshold);
        let group = format!("{rate} Mbit/s, {rtt} ms, {}", acks(&generator));
        let amount = Amount::Cut { seconds, beginning };
        let load = Load { connections: flows, generator, ..download(more_than(rate, seconds), amount) };
        let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
        let mut task = over(&path, &group, &format!("{flows} flows"), "cpu", load);
        task.case.drawn = ["wakes", "fairness", "goodput"].map(str::to_owned).to_vec();
        task.case.judged.clone_from(&task.case.drawn);
        (task.case.x, task.names) = (Some(f64::from(flows)), few());
        // TCP has ACKs of its own.
        task.kinds = if threshold == "auto" { vec![Kind::H3, Kind::H1] } else { vec![Kind::H3] };
        tasks.push(task);
    };
    if options.quick {
        cell(20, 20, 10, "auto");
        return tasks;
    }
    for flows in [1, 10, 100, 1_000] {
        cell(100, 40, flows, "2");
    }
    for flows in [1, 100, 1_000] {
        cell(100, 40, flows, "auto");
    }
    cell(200, 40, 100, "2");
    cell(100, 40, 100, "10");
    for rtt in [20, 100] {
        cell(100, rtt, 100, "2");
    }
    tasks
}
