//! Where CPU time goes, by part. Runs of its own: sampling costs.

use super::{Experiment, Generator, Kind, Observe, Options, Per, Task, acks, large, task};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "profile",
    "Where does the CPU time of large bodies go? Samples of perf's cpu-clock by part: what the kernel does on the way \
            of a call counts to that call; in user space the innermost function's name decides, so that inlined code \
            counts to its caller and *rest* is what names do not tell.",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    ["2", "10"]
        .map(|threshold| {
            let generator = Generator::own(threshold);
            let mut task = task("large bodies", &acks(&generator), Per::Gigabyte, false, large(options, 8, generator));
            task.observe = Observe::Profile;
            // Over HTTP/1.1 client and origin cannot be distinguished: both are TCP.
            task.kinds = vec![Kind::H3];
            task.case.primary = "share/sending".to_owned();
            task
        })
        .to_vec()
}
