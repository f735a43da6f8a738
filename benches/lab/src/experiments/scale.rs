//! More workers, and more connections.

use super::{Amount, Experiment, Generator, Kind, Load, Options, Per, Task, large, load, task};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "scale",
    "What do a second worker and many connections change? With two workers the server shares both cores with client \
            and origin, so only its cost is comparable, not the rate. Connections: small objects, each on one of 1 to \
            10,000 connections. Beside idle connections: large bodies over four connections, while as many as told are \
            open and idle.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    for workers in [1_u16, 2] {
        let load = large(options, 8, Generator::own("10"));
        let mut task = task("workers", &workers.to_string(), Per::Gigabyte, false, load);
        (task.workers, task.case.x) = (workers, Some(f64::from(workers)));
        tasks.push(task);
    }
    for crowd in if options.quick { [0, 50] } else { [0, 10_000] } {
        let load = large(options, 8, Generator::own("2"));
        let mut task = task("beside idle connections", &crowd.to_string(), Per::Gigabyte, false, load);
        (task.crowd, task.kinds) = (crowd, vec![Kind::H3]);
        tasks.push(task);
    }
    let counts: &[u32] = if options.quick { &[1, 100] } else { &[1, 10, 100, 1_000, 10_000] };
    for connections in counts {
        let amount = Amount::Requests(options.many(50_000, 1_000).max(u64::from(*connections)));
        let (kind, generator) = (load::Kind::Small, Generator::own("2"));
        let load = Load { kind, body: 1_000, connections: *connections, streams: 1, amount, generator, resume: false };
        let mut task = task("connections", &connections.to_string(), Per::Request, false, load);
        task.case.x = Some(f64::from(*connections));
        task.kinds = vec![Kind::H3];
        tasks.push(task);
    }
    tasks
}
