//! Fairness: which share of a bottleneck each of two downloads gets.

use super::{Amount, Experiment, Kind, Options, Task, Variant, download, more_than, over, shared};
use anyhow::Result;

/// The download that all are measured beside, and that all others are compared with.
const KERNEL: &str = "h1-cubic";
const BBR: &str = "litequic-bbr";
/// In this order: of a pair the first one is measured, the other one began earlier.
const WHO: [&str; 7] = ["litequic", BBR, "nginx", "haproxy", "caddy", KERNEL, "h1-bbr"];
/// A local network behind a switch, as a path and in Mbit/s: acknowledgements come up to the time of a packet late.
const LOCAL: &str = "rate=100M,rtt=1ms,buffer=256kB,up.jitter=120us";
/// A path across a city, at the rate of [`LOCAL`], and one of the same length behind a home router with a deep buffer.
const METROPOLITAN: &str = "rate=100M,rtt=5ms,buffer=256kB,up.jitter=120us";
const DEEP: &str = "rate=100M,rtt=5ms,buffer=1MB,up.jitter=120us";
/// Mbit/s of all three.
const LOCAL_RATE: u64 = 100;
/// Pairs that are measured at once, each with its own link and servers.
const TRIALS: u8 = 3;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fairness",
    about: "Which share of a bottleneck of 20 Mbit/s at 50 ms does a download get beside another one, which began 4 seconds \
            earlier? Percent of what the link delivered in seconds 5 to 20: 50 is fair. One beside itself shows what that comes to in so short a \
            time. Of a local network, 100 Mbit/s at 1 ms behind a buffer of 256 kB, and a metropolitan one at 5 ms behind 256 kB and 1 MB, \
            only beside kernel TCP with CUBIC.",
    reference: Some(KERNEL),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    let extra = "[litequic]\ncongestion = \"bbr\"\n".to_owned();
    Ok(vec![Variant { name: BBR.to_owned(), extra, ..Variant::default() }])
}

fn tasks(options: &Options) -> Vec<Task> {
    let others = if options.quick { &[KERNEL] } else { WHO.as_slice() };
    let buffers: &[u32] = if options.quick { &[1] } else { &[1, 5] };
    let pairs = buffers.iter().flat_map(|buffer| others.iter().map(|other| (*other, *buffer)));
    let slow = |(other, buffer): (&'static str, u32)| {
        cell(other, 20, (&format!("{buffer} BDP"), &shared(20, 50, buffer.into())), options)
    };
    let mut tasks: Vec<Task> = pairs.map(slow).collect();
    let networks =
        [("local network", LOCAL), ("metropolitan network", METROPOLITAN), ("metropolitan network, deep buffer", DEEP)];
    tasks.extend(networks.map(|network| cell(KERNEL, LOCAL_RATE, network, options)));
    tasks
}

/// All that come before `other`, and itself, beside it, over a named path with so many Mbit/s.
fn cell(other: &'static str, rate: u64, (name, path): (&str, &str), options: &Options) -> Task {
    let (seconds, beginning) = if options.quick { (2.0, 1.0) } else { (20.0, 5.0) };
    let bulk = |seconds| download(more_than(rate, seconds), Amount::Cut { seconds, beginning });
    let mut task = over(path, name, &format!("beside {other}"), "share", bulk(seconds));
    task.case.drawn = vec!["goodput".to_owned()];
    task.kinds = vec![Kind::H3, Kind::H1];
    let until = WHO.iter().take_while(|name| **name != other).chain([&other]);
    task.names = until.map(|name| (*name).to_owned()).collect();
    // It is ended with the measured one.
    (task.beside, task.beside_from) = (Some(bulk(seconds * 3.0)), Some(other));
    if !options.quick {
        (task.links, task.rounds) = (TRIALS, usize::from(TRIALS));
    }
    task
}
