//! Shallow buffers: goodput of one download, what the bottleneck drops, and in what bursts packets reach it.

use super::{Amount, Experiment, Options, Task, download, few, over, with_everyone};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "shallow",
    "How much of a path does one download get whose bottleneck buffers little? Mbit/s of the body; packets dropped at \
            the bottleneck; packets a burst, of those that reach it within 100 µs of each other. Buffers of 0.25, 0.5 and \
            1 bandwidth-delay product. *h1-cubic* and *h1-bbr* are nginx over TCP. In two cells contenders also *tuned*, and \
            with other clients than the lab's own.",
    tasks,
);

/// Length of a download, in seconds of the path's rate.
const SECONDS: u64 = 2;

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, rtts, buffers): (&[u64], &[u32], &[f64]) =
        if options.quick { (&[20], &[10], &[0.5]) } else { (&[20, 100], &[10, 50], &[0.25, 0.5, 1.0]) };
    let mut tasks = Vec::new();
    for rate in rates {
        for rtt in rtts {
            for buffer in buffers {
                let body = if options.quick { 1_000_000 } else { options.many(rate * SECONDS * 125_000, 1) };
                let load = download(body, Amount::Requests(1));
                let path = format!("rate={rate}M,rtt={rtt}ms,buffer={buffer}bdp");
                let mut task =
                    over(&path, &format!("{rate} Mbit/s, {rtt} ms"), &format!("{buffer} BDP"), "goodput", load);
                task.case.drawn = ["queue_drops", "burst_mean"].map(str::to_owned).to_vec();
                task.case.judged.clone_from(&task.case.drawn);
                task.case.x = Some(*buffer);
                // The one in which litequic was worst, and one with a larger window.
                if *buffer == 0.5 && (*rate, *rtt) != (20, 50) && (*rate, *rtt) != (100, 10) {
                    tasks.extend(with_everyone(task, &["litequic", "haproxy", "h1-cubic"], options));
                } else {
                    task.names = few();
                    tasks.push(task);
                }
            }
        }
    }
    tasks
}
