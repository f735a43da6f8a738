//! Handshakes: full ones, and resumed by ticket.

use super::{Amount, Experiment, Generator, Load, Options, Per, Task, load, no_variants, task};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "handshakes",
    about: "What does a handshake cost, with a P-256 certificate and 16 in flight at a time? Then with a ticket, where the \
            server resumes sessions (*resumed* tells how many it did).",
    reference: None,
    tasks,
    variants: no_variants,
};

fn tasks(options: &Options) -> Vec<Task> {
    [false, true]
        .map(|resume| {
            let load = Load {
                kind: load::Kind::Handshakes,
                body: 0,
                connections: 16,
                streams: 1,
                amount: Amount::Requests(options.many(5_000, 100)),
                generator: Generator::own("auto"),
                resume,
            };
            task("handshakes", if resume { "with tickets" } else { "full" }, Per::Handshake, false, load)
        })
        .to_vec()
}
