//! What no HTTP/3 proxy can go below on this machine.

use super::{Experiment, Generator, Kind, Options, Per, Task, large, task};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "floor",
    about: "What would a GB cost with no protocol at all? The floor reads from the origin, seals pieces of 1456 bytes with \
            AES-128-GCM and sends them by UDP GSO. Beside it, in the same run, the proxies at 10 packets an ACK and the \
            HTTP/1.1 ceiling.",
    reference: Some("floor"),
    tasks,
    variants: || Ok(Vec::new()),
};

fn tasks(options: &Options) -> Vec<Task> {
    let load = large(options, 8, Generator::own("10"));
    let task = task("large bodies", "ACK 10, unsaturated", Per::Gigabyte, false, load);
    vec![Task { kinds: vec![Kind::H3, Kind::H1, Kind::Floor], ..task }]
}
