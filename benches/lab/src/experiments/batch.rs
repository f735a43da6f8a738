//! How much a batch holds as load grows: what merging ACKs, and all else that works by the batch, can save.

use super::{Amount, Experiment, Generator, IO_URING, Kind, Load, Options, Per, Task, io_uring, load, task};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "batch",
    about: "How many datagrams, and how many ACK frames of one connection, does litequic receive at once as load grows, and \
            how often does it call the kernel for datagrams (*io calls*, a MB)? By its own counters, over epoll and io_uring. Large bodies at 2 packets an ACK over 1 to 64 connections; the same amount in all, split \
            among them.",
    reference: Some(LITEQUIC),
    tasks,
    variants: io_uring,
};

/// The one that counts batches.
const LITEQUIC: &str = "litequic";
/// In all, in so many bodies at least.
const BYTES: u64 = 2_048_000_000;
const BODIES: u64 = 8;

fn tasks(options: &Options) -> Vec<Task> {
    let counts: &[u32] = if options.quick { &[1, 16] } else { &[1, 2, 4, 8, 16, 64] };
    let mut tasks = Vec::new();
    for saturated in [false, true] {
        let how = if saturated { "saturated" } else { "unsaturated" };
        for connections in counts {
            let mut task = task(how, &connections.to_string(), Per::Gigabyte, saturated, load(options, *connections));
            task.kinds = vec![Kind::H3];
            task.names = vec![LITEQUIC.to_owned(), IO_URING.to_owned()];
            task.case.primary = "datagrams_per_batch".to_owned();
            task.case.drawn = ["acks_per_batch", "io_calls", "cpu"].map(str::to_owned).to_vec();
            task.case.x = Some(f64::from(*connections));
            tasks.push(task);
        }
    }
    tasks
}

/// The same number of bytes whatever the number of connections, at least a request on each.
fn load(options: &Options, connections: u32) -> Load {
    let requests = BODIES.max(connections.into());
    Load {
        kind: load::Kind::Download,
        body: options.many(BYTES, 16_000_000) / requests,
        connections,
        streams: 1,
        amount: Amount::Requests(requests),
        generator: Generator::own("2"),
        resume: false,
    }
}
