//! Paths that do not keep still: loss, blackouts, changes of rate, lost ACKs, reordering, asymmetry.

use super::{Amount, Experiment, Load, Options, QUICK_CUT, ROUNDS, Task, download, few, few_and_h2o, more_than, over};
use std::iter;

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "lossy",
    "What is left of one download when the path loses packets at random or in bursts of five, is cut for a while, \
            becomes 25 times slower, loses ACKs, reorders, or has a hundredth of the rate for ACKs? And of one and of twenty \
            when it reorders large packets alone, as some mobile carriers do? Mbit/s of the body at 50 ms, or 20 ms at \
            300 Mbit/s, over 5 seconds where nothing changes (4 when it reorders large packets). A blackout begins after 2 seconds of 5 (1 s) or 10 (5 s); the \
            step comes after 3 of 8.",
    tasks,
);

/// Group, name, path, which has a round trip of 50 ms unless it names one, seconds.
const CELLS: [(&str, &str, &str, f64); 14] = [
    ("random loss", "0.1 %", "rate=50M,buffer=1bdp,loss=0.1%", 5.0),
    ("random loss", "0.5 %", "rate=50M,buffer=1bdp,loss=0.5%", 5.0),
    ("random loss", "2 %", "rate=50M,buffer=1bdp,loss=2%", 5.0),
    ("bursty loss", "0.1 %", "rate=50M,buffer=1bdp,loss=0.1%,burst=5", 5.0),
    ("bursty loss", "0.5 %", "rate=50M,buffer=1bdp,loss=0.5%,burst=5", 5.0),
    ("bursty loss", "2 %", "rate=50M,buffer=1bdp,loss=2%,burst=5", 5.0),
    ("blackout", "1 s", "rate=50M:2s+0:1s+50M,buffer=1bdp,up.rate=50M", 5.0),
    ("blackout", "5 s", "rate=50M:2s+0:5s+50M,buffer=1bdp,up.rate=50M", 10.0),
    ("changes", "50 to 2 Mbit/s", "rate=50M:3s+2M,buffer=1bdp,up.rate=50M", 8.0),
    ("changes", "5 % of ACKs lost", "rate=50M,buffer=1bdp,up.loss=5%", 5.0),
    ("changes", "1 % overtaken by 5 ms", "rate=50M,buffer=1bdp,reorder=1%,hold=5ms", 5.0),
    ("changes", "100 down, 1 up", "rate=100M,buffer=1bdp,up.rate=1M,up.buffer=20kB", 5.0),
    (OVERTAKEN, "3 %, 50 Mbit/s", "rate=50M,buffer=1bdp,reorder=3%,hold=5ms,above=1440", 4.0),
    (OVERTAKEN, "3 %, 300 Mbit/s", "rate=300M,rtt=20ms,buffer=1bdp,reorder=3%,hold=5ms,above=1440", 4.0),
];

/// Group of the cells that also have this many downloads at once, and H2O.
const OVERTAKEN: &str = "overtaken above 1440 bytes";
const DOWNLOADS: u32 = 20;

fn tasks(options: &Options) -> Vec<Task> {
    CELLS
        .iter()
        .step_by(if options.quick { 4 } else { 1 })
        .flat_map(|(group, name, path, seconds)| {
            let (seconds, beginning) = if options.quick { QUICK_CUT } else { (*seconds, 1.0) };
            let load = download(more_than(300, seconds), Amount::Cut { seconds, beginning });
            let rtt = if path.contains("rtt=") { "" } else { ",rtt=50ms" };
            let cell = |name: &str, load| {
                let mut task = over(&format!("{path}{rtt}"), group, name, "goodput", load);
                task.names = few();
                if *group == OVERTAKEN {
                    // Fewer rounds, as all experiments over paths are to end in a night.
                    (task.names, task.rounds) = (few_and_h2o(), ROUNDS);
                }
                task
            };
            let many = Load { connections: DOWNLOADS, ..load.clone() };
            let many =
                (*group == OVERTAKEN && !options.quick).then(|| cell(&format!("{name}, {DOWNLOADS} downloads"), many));
            iter::once(cell(name, load)).chain(many).collect::<Vec<_>>()
        })
        .collect()
}
