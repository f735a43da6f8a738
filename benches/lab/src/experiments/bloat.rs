//! Bufferbloat: what a bulk download does to the latency of others.

use super::{Amount, Experiment, Load, Options, Task, download, few, load, more_than, no_variants, over};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bloat",
    about: "How long does a small request take beside a bulk download on another connection, over 20 Mbit/s and 50 ms with a \
            buffer of 5 bandwidth-delay products? A full one adds 250 ms. Alone, and beside it.",
    reference: None,
    tasks,
    variants: no_variants,
};

fn tasks(options: &Options) -> Vec<Task> {
    [false, true]
        .map(|beside| {
            let amount = Amount::InTurn(options.many(12, 5));
            let load = Load { kind: load::Kind::Small, ..download(10_000, amount) };
            let name = if beside { "beside a bulk download" } else { "alone" };
            let mut task = over("rate=20M,rtt=50ms,buffer=5bdp", "10 KB", name, "p50_us", load);
            task.case.drawn = vec!["p99_us".to_owned()];
            task.case.judged.clone_from(&task.case.drawn);
            // Far longer than the requests take; it is ended with them.
            let seconds = if options.quick { 60.0 } else { 200.0 };
            let bulk = download(more_than(20, seconds), Amount::Cut { seconds, beginning: 1.0 });
            (task.beside, task.names) = (beside.then_some(bulk), few());
            task
        })
        .to_vec()
}
