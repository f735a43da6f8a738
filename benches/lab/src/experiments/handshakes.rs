//! Handshakes: full ones, and resumed by ticket.

use super::{Amount, Experiment, Generator, Load, Options, Per, Task, load, no_variants, task};
use crate::load::Group;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "handshakes",
    about: "What does a handshake cost, with a P-256 certificate and 16 in flight at a time? Then with a ticket, where the \
            server resumes sessions (*resumed* tells how many it did). Then with clients that offer X25519MLKEM768 alone, which \
            browsers offer first; without, X25519 is agreed on.",
    reference: None,
    tasks,
    variants: no_variants,
};

fn tasks(options: &Options) -> Vec<Task> {
    [(false, None), (true, None), (false, Some(Group::X25519Mlkem768))]
        .map(|(resume, group)| {
            let load = Load {
                kind: load::Kind::Handshakes,
                body: 0,
                connections: 16,
                streams: 1,
                amount: Amount::Requests(options.many(5_000, 100)),
                generator: Generator::own("auto"),
                resume,
            };
            let name = match (resume, group) {
                (true, _) => "with tickets",
                (false, None) => "full",
                (false, Some(_)) => "full, X25519MLKEM768",
            };
            Task { group, ..task("handshakes", name, Per::Handshake, false, load) }
        })
        .to_vec()
}
