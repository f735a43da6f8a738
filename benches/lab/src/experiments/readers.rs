//! Memory that downloads hold, of clients that are near, far, and slow.

use super::{Amount, Experiment, Kind, Load, Observe, Options, Per, QUICK_CUT, Task, download, few, more_than, over};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "readers",
    "How much memory does a download hold? The server's memory (PSS of all its processes) at the most, less what it was before, a \
            download. 1,000 fast ones share 500 Mbit/s, each slow one has a hundredth of that: 5 kbit/s. Kernel memory does not \
            count.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (20.0, 5.0) };
    let cell = |(name, rate, rtt, flows): (&str, u64, u32, u32)| {
        let amount = Amount::Cut { seconds, beginning };
        let load = Load { connections: flows, ..download(more_than(rate.max(100), seconds), amount) };
        let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp,gro=100us");
        let mut task = over(&path, "downloads", name, "memory_most", load);
        task.case.per = Per::Connection;
        task.case.drawn = vec!["goodput".to_owned()];
        task.observe = Observe::Memory;
        task.kinds = vec![Kind::H3, Kind::H1];
        task.names = few();
        task
    };
    let cells: &[(&str, u64, u32, u32)] = if options.quick {
        &[("10, slow", 2, 20, 10)]
    } else {
        &[("1000, 20 ms", 500, 20, 1_000), ("1000, 100 ms", 500, 100, 1_000), ("1000, slow, 100 ms", 5, 100, 1_000)]
    };
    cells.iter().copied().map(cell).collect()
}
