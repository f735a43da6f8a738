//! Long and fast paths: one download, from its start and after slow start; one upload after slow start.

use super::{
    Amount, Experiment, Load, Options, QUICK_CUT, ROUNDS, Task, download, few, load, more_than, over, with_everyone,
};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "long",
    "How fast is one download over a path with a large bandwidth-delay product? Mbit/s of the body in seconds 5 to 20, \
            and from the start. The bottleneck buffers 1 bandwidth-delay product. In two cells contenders also *tuned*, and with \
            other clients than the lab's own. And how fast is one upload, in seconds 4 to 10?",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, rtts): (&[u64], &[u32]) = if options.quick { (&[100], &[50]) } else { (&[100, 500], &[50, 100, 200]) };
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (20.0, 5.0) };
    let mut tasks = Vec::new();
    for rate in rates {
        for rtt in rtts {
            let load = download(more_than(*rate, seconds), Amount::Cut { seconds, beginning });
            let joined = if *rate >= JOINED { ",gro=100us" } else { "" };
            let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp{joined}");
            let mut task = over(&path, &format!("{rate} Mbit/s"), &format!("{rtt} ms"), "steady", load);
            task.case.drawn = ["goodput", "wakes"].map(str::to_owned).to_vec();
            task.case.judged = vec!["goodput".to_owned()];
            task.case.x = Some(f64::from(*rtt));
            if *rate == 100 && *rtt != 100 && !options.quick {
                tasks.extend(with_everyone(task, &["litequic", "h1-cubic"], options));
            } else {
                task.names = few();
                tasks.push(task);
            }
        }
    }
    tasks.push(upload(options));
    tasks
}

/// Mbit/s from which on neighbours of a flow are joined where they arrive, as network cards do: else the emulator takes
/// the client's core for itself, and what is measured is how long a client waits for it.
const JOINED: u64 = 500;
/// An upload's path.
const UPLOAD_RATE: u64 = 100; // Mbit/s
const UPLOAD_RTT: u32 = 100; // ms
/// Shorter than a download: seconds, and those of its beginning. All experiments over paths together are to end in a
/// night.
const UPLOAD_CUT: (f64, f64) = (10.0, 4.0);

/// One upload. What its client has handed over from the start is also what waits in its buffers: the steady rate is
/// judged.
fn upload(options: &Options) -> Task {
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { UPLOAD_CUT };
    let one = download(more_than(UPLOAD_RATE, seconds), Amount::Cut { seconds, beginning });
    let path = format!("rate={UPLOAD_RATE}M,rtt={UPLOAD_RTT}ms,buffer=1bdp");
    let load = Load { kind: load::Kind::Upload, ..one };
    let mut task = over(&path, &format!("upload, {UPLOAD_RATE} Mbit/s"), &format!("{UPLOAD_RTT} ms"), "steady", load);
    task.case.x = Some(f64::from(UPLOAD_RTT));
    task.names = few();
    task.rounds = ROUNDS;
    task
}
