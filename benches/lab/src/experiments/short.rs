//! Short transfers: the time to last byte of bodies that slow start decides about.

use super::{Amount, Experiment, Load, Options, Task, download, few, load, no_variants, over};
use crate::bench::load::size;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "short",
    about: "How long until the last byte of a small body? The median of all requests of a run, one at a time: the *first* \
            of each of 20 connections, after its handshake, and *later* ones of one connection.",
    reference: None,
    tasks,
    variants: no_variants,
};

const CONNECTIONS: u32 = 20;

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, rtts, sizes): (&[u64], &[u32], &[u64]) = if options.quick {
        (&[50], &[20], &[100_000])
    } else {
        (&[5, 50, 100], &[20, 100], &[10_000, 30_000, 100_000, 300_000, 1_000_000])
    };
    let mut tasks = Vec::new();
    for rate in rates {
        for rtt in rtts {
            for (when, connections) in [("first", CONNECTIONS), ("later", 1)] {
                for body in sizes {
                    let amount = Amount::InTurn(u64::from(CONNECTIONS));
                    let load = Load { kind: load::Kind::Small, connections, ..download(*body, amount) };
                    let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
                    let group = format!("{rate} Mbit/s, {rtt} ms, {when} requests");
                    let mut task = over(&path, &group, &size(*body), "p50_us", load);
                    (task.case.x, task.names) = (Some(*body as f64), few());
                    tasks.push(task);
                }
            }
        }
    }
    tasks
}
