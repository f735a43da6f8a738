//! Short transfers: the time to last byte of bodies that slow start decides about.

use super::{Amount, Experiment, Load, Options, Task, download, few, load, over};
use crate::bench::load::size;

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "short",
    "How long until the last byte of a small body? One request at a time: the *first* of each of three connections, \
            after its handshake, and the *later* one of each. Medians of a run, µs.",
    tasks,
);

const CONNECTIONS: u32 = 3;
/// Later ones are as many as first ones.
const REQUESTS: u64 = 6;
/// At 5 Mbit/s a larger body is a matter of the rate.
const LARGEST_AT_5: u64 = 100_000; // bytes

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, rtts, sizes): (&[u64], &[u32], &[u64]) = if options.quick {
        (&[50], &[20], &[100_000])
    } else {
        (&[5, 50, 100], &[20, 100], &[10_000, 100_000, 1_000_000])
    };
    let mut tasks = Vec::new();
    for rate in rates {
        for rtt in rtts {
            for body in sizes.iter().filter(|body| *rate > 5 || **body <= LARGEST_AT_5) {
                let amount = Amount::InTurn(REQUESTS);
                let load = Load { kind: load::Kind::Small, connections: CONNECTIONS, ..download(*body, amount) };
                let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
                let mut task = over(&path, &format!("{rate} Mbit/s, {rtt} ms"), &size(*body), "first_us", load);
                task.case.judged = vec!["later_us".to_owned()];
                task.case.drawn = vec!["later_us".to_owned()];
                (task.case.x, task.names) = (Some(*body as f64), few());
                tasks.push(task);
            }
        }
    }
    tasks
}
