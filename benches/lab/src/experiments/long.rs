//! Long and fast paths: one download, from its start and after slow start.

use super::{Amount, Experiment, Options, QUICK_CUT, Task, download, few, more_than, no_variants, over, with_everyone};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "long",
    about: "How fast is one download over a path with a large bandwidth-delay product? Mbit/s of the body in seconds 5 to 20, \
            and from the start. The bottleneck buffers 1 bandwidth-delay product. In two cells contenders also *tuned*, and with \
            other clients than the lab's own.",
    reference: None,
    tasks,
    variants: no_variants,
};

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, rtts): (&[u64], &[u32]) = if options.quick { (&[100], &[50]) } else { (&[100, 500], &[50, 100, 200]) };
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (20.0, 5.0) };
    let mut tasks = Vec::new();
    for rate in rates {
        for rtt in rtts {
            let load = download(more_than(*rate, seconds), Amount::Cut { seconds, beginning });
            let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
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
    tasks
}
