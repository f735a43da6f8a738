//! Memory that an idle connection holds.

use super::{Amount, Experiment, Generator, Load, Observe, Options, Per, Task, load, task};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "idle",
    "How much memory does an open, idle connection hold? The server's memory (PSS of all its processes) while \
            connections are held and it does nothing, less what it was before, a connection; what handshakes needed and \
            gave back to the allocator counts as well. Kernel memory does not. *At the most* is at any time, also when \
            each is asked for an object at the end.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let counts: &[u32] = if options.quick { &[50] } else { &[1_000, 10_000] };
    counts
        .iter()
        .map(|connections| {
            let amount = Amount::Seconds(if options.quick { 1.0 } else { 5.0 });
            let (kind, generator) = (load::Kind::Idle, Generator::own("auto"));
            let load =
                Load { kind, body: 1_000, connections: *connections, streams: 1, amount, generator, resume: false };
            let mut task = task("idle connections", &connections.to_string(), Per::Connection, false, load);
            task.observe = Observe::Memory;
            task.case.primary = "memory_each".to_owned();
            task
        })
        .collect()
}
