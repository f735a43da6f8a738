//! Time to last byte: one connection, one download at a time, over body sizes.

use super::{Amount, Experiment, Generator, Load, Options, Per, Task, io_uring, load, task};
use crate::bench::load::size;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ttlb",
    about: "How long until the last byte, one download at a time on one open connection? The median of all downloads of a \
            run. Over a path without delay this is the time that the servers take, client and origin included.",
    reference: None,
    tasks,
    variants: io_uring,
};

fn tasks(options: &Options) -> Vec<Task> {
    let sizes: &[(u64, u64)] = if options.quick {
        &[(80_000, 20), (8_000_000, 3)]
    } else {
        &[(80_000, 2_000), (800_000, 500), (8_000_000, 100), (80_000_000, 12)]
    };
    sizes
        .iter()
        .map(|(body, requests)| {
            let amount = Amount::Requests(options.many(*requests, *requests));
            let (kind, generator) = (load::Kind::Download, Generator::own("auto"));
            let load = Load { kind, body: *body, connections: 1, streams: 1, amount, generator, resume: false };
            let mut task = task("one connection", &size(*body), Per::Request, false, load);
            task.case.primary = "p50_us".to_owned();
            task.case.x = Some(*body as f64);
            task
        })
        .collect()
}
