//! Whether litequic's mechanisms mislead loss recovery: what is declared lost and was not, and how long the way seems,
//! with each of them off and all of them on. Over a path as it is, one that loses, and one that reorders.

use super::{acks, names, task};
use crate::{
    bench::{
        Task, Variant,
        contender::Kind,
        load::{Amount, Generator, Load},
        options::Options,
    },
    experiments::{Experiment, steps},
    load::{self, Faults},
    report::Per,
};
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/recovery.toml");
/// The step that others are compared with.
const FIRST: &str = "all-off";
/// As it comes.
const LAST: &str = "litequic";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "recovery",
    about: "Do batches, merged acknowledgements and fewer of them mislead loss recovery? By litequic's own count: packets \
            that it declared lost, those of them that the client acknowledged later (*wrongly*), and the smoothed \
            round-trip time, taken every 50 ms on each connection. *all-off* has none of the mechanisms; then one at a \
            time is off; *litequic* is as it comes. The client acknowledges every other packet, and (`auto`) lets itself \
            be asked for fewer. Then over a path that loses one datagram of a thousand by a seed, and over one on which \
            one of a thousand is overtaken by eight.",
    reference: Some(FIRST),
    tasks,
    variants,
};

/// A body, and how many of them: short enough for a path that loses.
const BODY: u64 = 128_000_000; // bytes
const BODIES: u64 = 8;

/// What a path does, and who is sent over it.
const PATHS: [(&str, Faults, bool); 3] = [
    ("clean", Faults { lose: 0, hold: 0 }, true),
    ("loss", Faults { lose: 1000, hold: 0 }, false),
    ("reordering", Faults { lose: 0, hold: 1000 }, false),
];

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    let every = names(variants());
    let ends = [FIRST, LAST].map(str::to_owned).to_vec();
    let mut tasks = Vec::new();
    let (states, thresholds) =
        if options.quick { (&[false][..], &["auto"][..]) } else { (&[false, true][..], &["2", "auto"][..]) };
    for &saturated in states {
        for (path, faults, is_for_all) in PATHS {
            for threshold in thresholds {
                let generator = Generator::over(threshold, faults);
                let how = if saturated { "saturated" } else { "unsaturated" };
                let name = format!("{}, {how}", acks(&generator));
                let mut task = task(path, &name, Per::Gigabyte, saturated, load(options, generator));
                task.kinds = vec![Kind::H3];
                task.names = if is_for_all && !options.quick { every.clone() } else { ends.clone() };
                task.case.primary = "rtt_mean_us".to_owned();
                tasks.push(task);
            }
        }
    }
    tasks
}

/// Four connections, with two bodies each.
fn load(options: &Options, generator: Generator) -> Load {
    Load {
        kind: load::Kind::Download,
        body: if options.quick { 16_000_000 } else { BODY },
        connections: 4,
        streams: 1,
        amount: Amount::Requests(options.many(BODIES, 4)),
        generator,
        resume: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_off_comes_first_and_everything_on_last() {
        let steps = variants().unwrap();
        assert_eq!((steps[0].name.as_str(), steps.last().unwrap().name.as_str()), (FIRST, LAST));
        assert!(steps.last().unwrap().extra.is_empty());
        for step in &steps {
            step.extra.parse::<toml::Table>().unwrap();
        }
    }
}
