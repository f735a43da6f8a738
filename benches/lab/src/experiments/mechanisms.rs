//! The ladder over a path that many downloads share: what each mechanism saves there, one after the other and each
//! alone.

use super::{
    Amount, Experiment, Generator, Kind, Load, Options, QUICK_CUT, ROUNDS, Task, acks, download, more_than, names,
    over, steps,
};
use crate::bench::Variant;
use anyhow::Result;

const STEPS: &str = include_str!("../../contenders/mechanisms.toml");
/// The step that others are compared with.
const FIRST: &str = "plain";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mechanisms",
    about: "What does each mechanism save where 100 downloads share 100 Mbit/s at 40 ms? Server CPU and goodput, by clients that \
            acknowledge every second packet, and (`auto`) as litequic requests. First each mechanism on top of those before: \
            *plain* (the QUIC library's I/O, a system call a datagram), *own-io*, *gso*, *gro*, *merge* (which is the paper's \
            product: GSO and merged ACKs), *ask* (ACK_FREQUENCY), *litequic* (with receive moderation, as it comes); then each \
            alone on top of *own-io*.",
    reference: Some(FIRST),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    steps(STEPS)
}

fn tasks(options: &Options) -> Vec<Task> {
    let (rate, rtt, flows) = if options.quick { (20, 20, 10) } else { (100, 40, 100) };
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (5.0, 1.0) };
    let mut names = names(variants());
    if options.quick {
        // That it works shows on the first and the last of the ladder.
        names.retain(|name| name == FIRST || name == "litequic");
    }
    let cell = |threshold: &&str| {
        let generator = Generator::own(threshold);
        let name = acks(&generator);
        let amount = Amount::Cut { seconds, beginning };
        let load = Load { connections: flows, generator, ..download(more_than(rate, seconds), amount) };
        let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
        let group = format!("{rate} Mbit/s, {rtt} ms, {flows} downloads");
        let mut task = over(&path, &group, &name, "cpu", load);
        task.case.drawn = ["goodput", "wakes"].map(str::to_owned).to_vec();
        task.case.judged.clone_from(&task.case.drawn);
        task.kinds = vec![Kind::H3];
        task.names.clone_from(&names);
        task.rounds = ROUNDS;
        task
    };
    let thresholds: &[&str] = if options.quick { &["auto"] } else { &["2", "auto"] };
    thresholds.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_the_one_that_others_are_compared_with() {
        assert_eq!(variants().unwrap()[0].name, FIRST);
    }
}
