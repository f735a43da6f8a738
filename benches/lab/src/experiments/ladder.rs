//! What each of litequic's switches brings: variants of its configuration, from contenders/ladder.toml, at exact ACK
//! thresholds. The first step is the one that others are compared with.

use super::{Experiment, acks, large, names, steps, task};
use crate::{
    bench::{Task, Variant, contender::Kind, load::Generator, options::Options},
    report::Per,
};
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/ladder.toml");
/// The step that others are compared with.
const FIRST: &str = "plain";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ladder",
    about: "What does each of litequic's switches bring? Large bodies at 2, 10 and 100 packets an ACK, and (`auto`) at 2 until \
            the server asks for another number. The first step, *plain*, is the QUIC library's own I/O with a system call \
            for each datagram; *library-io* lets it use GSO and GRO; then comes litequic's own I/O, without either, with \
            GSO, and with both; *ack-merge* processes the newest acknowledgement of a batch first; *litequic*, as it comes, \
            also asks clients for fewer while it is busy, which those at `auto` obey; *io-uring* is that over io_uring.",
    reference: Some(FIRST),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    let names = names(variants());
    let mut tasks = Vec::new();
    for saturated in [false, true] {
        for threshold in if options.quick { &["2"][..] } else { &["2", "10", "100", "auto"] } {
            let generator = Generator::own(threshold);
            let name = format!("{}, {}", acks(&generator), if saturated { "saturated" } else { "unsaturated" });
            let load = large(options, if saturated { 4 } else { 8 }, generator);
            let task = task("steps", &name, Per::Gigabyte, saturated, load);
            tasks.push(Task { kinds: vec![Kind::H3], names: names.clone(), ..task });
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_configuration_and_has_a_name_of_its_own() {
        let steps = variants().unwrap();
        let names: std::collections::BTreeSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names.len(), steps.len());
        for step in &steps {
            step.extra.parse::<toml::Table>().unwrap();
        }
    }

    #[test]
    fn the_first_step_is_the_one_that_others_are_compared_with() {
        assert_eq!(variants().unwrap()[0].name, FIRST);
    }
}
