//! System calls a MB, by name. Runs of its own: strace slows a server down many times over, which makes batches larger
//! than they are otherwise.

use super::{Amount, Experiment, Generator, Load, Observe, Options, Per, Task, acks, io_uring, large, task};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "syscalls",
    about: "How often does a server call the kernel for a MB of a large body? Counted by strace, which stops the server at \
            each call: it is saturated, batches are large, and CPU time means nothing.",
    reference: None,
    tasks,
    variants: io_uring,
};

fn tasks(options: &Options) -> Vec<Task> {
    ["2", "10"]
        .map(|threshold| {
            let generator = Generator::own(threshold);
            let name = acks(&generator);
            let body = if options.quick { 2_000_000 } else { 16_000_000 };
            let load = Load { body, amount: Amount::Requests(options.many(16, 4)), ..large(options, 1, generator) };
            let mut task = task("large bodies", &name, Per::Gigabyte, false, load);
            task.observe = Observe::SystemCalls;
            task.case.primary = "syscalls".to_owned();
            task
        })
        .to_vec()
}
