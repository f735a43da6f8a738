//! The wire: in what bursts datagrams of one download leave, beside other servers.

use super::{Amount, Experiment, Options, Task, download, few_and_h2o, over};

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "wire",
    "In what bursts do the datagrams of one download leave? Of those that reach the bottleneck within 100 µs of each other, and \
            within 1 ms, how many come together, as *QUIC Steps: Evaluating Pacing Strategies in QUIC Implementations* (CoNEXT 2025) \
            asks. A buffer of one bandwidth-delay product. A burst costs less CPU time and fills buffers; packets dropped and Mbit/s \
            are beside it.",
    tasks,
);

/// Length of a download, in seconds of the path's rate.
const SECONDS: u64 = 5;

fn tasks(options: &Options) -> Vec<Task> {
    let paths: &[(u64, u32)] = if options.quick { &[(20, 10)] } else { &[(40, 40), (200, 20)] };
    let task = |(rate, rtt): &(u64, u32)| {
        let body = if options.quick { 1_000_000 } else { options.many(rate * SECONDS * 125_000, 1) };
        let path = format!("rate={rate}M,rtt={rtt}ms,buffer=1bdp");
        let name = format!("{rate} Mbit/s, {rtt} ms");
        let mut task = over(&path, "wire", &name, "burst_mean", download(body, Amount::Requests(1)));
        task.case.drawn = vec!["burst_1ms_mean".to_owned()];
        task.names = few_and_h2o();
        task
    };
    paths.iter().map(task).collect()
}
