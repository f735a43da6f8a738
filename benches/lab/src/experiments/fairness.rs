//! Fairness: what a download leaves of a bottleneck to one of kernel TCP with CUBIC, and what it gets itself.

use super::{Amount, Experiment, Kind, Options, Task, Variant, download, more_than, over};
use anyhow::Result;

/// The download that each is measured beside.
const OTHER: &str = "h1-cubic";
const BBR: &str = "litequic-bbr";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fairness",
    about: "Which share of a bottleneck of 20 Mbit/s at 50 ms does a download get beside one of kernel TCP with CUBIC, which began \
            4 seconds earlier? Percent of what the link delivered in seconds 5 to 20: 50 is fair. *h1-cubic* beside itself shows \
            what that comes to in so short a time.",
    reference: Some(OTHER),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    let extra = "[litequic]\ncongestion = \"bbr\"\n".to_owned();
    Ok(vec![Variant { name: BBR.to_owned(), extra, ..Variant::default() }])
}

fn tasks(options: &Options) -> Vec<Task> {
    let (seconds, beginning) = if options.quick { (2.0, 1.0) } else { (20.0, 5.0) };
    let bulk = |seconds| download(more_than(20, seconds), Amount::Cut { seconds, beginning });
    let buffers: &[u32] = if options.quick { &[1] } else { &[1, 5] };
    let cell = |bdp: &u32| {
        let path = format!("rate=20M,rtt=50ms,buffer={bdp}bdp");
        let mut task = over(&path, "20 Mbit/s, 50 ms", &format!("{bdp} BDP"), "share", bulk(seconds));
        task.case.drawn = vec!["goodput".to_owned()];
        task.kinds = vec![Kind::H3, Kind::H1];
        task.names = ["litequic", BBR, "nginx", "haproxy", OTHER].map(str::to_owned).to_vec();
        // It is ended with the measured one.
        (task.beside, task.beside_from) = (Some(bulk(seconds * 3.0)), Some(OTHER));
        task
    };
    buffers.iter().map(cell).collect()
}
