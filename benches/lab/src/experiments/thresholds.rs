//! The grid of LiteQUIC (figures 2 and 7): goodput of one download at 2 and 100 packets an ACK, and with ACK_FREQUENCY,
//! over delays, rates, bottleneck buffers and loss.

use super::{Amount, Experiment, Kind, Load, Options, QUICK_CUT, ROUNDS, Task, Variant, download, more_than, over};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "thresholds",
    about: "Do fewer ACKs cost goodput? One download from litequic by clients that acknowledge every second packet (*ack-2*), \
            every 100th (*ack-100*), and as litequic requests (*litequic*: ACK_FREQUENCY), over round trips of 5 to \
            100 ms, 50 to 1000 Mbit/s, bottleneck buffers of 200 KB and 1 MB, without loss and with 0.5 % random loss. \
            Heat maps: how much more goodput a client gets that acknowledges every second packet, \
            (TP₂ − TP) / TP. A download of 10 s or 200 MB, whichever ends first; with loss of 6 s.",
    reference: Some(EVERY_SECOND),
    tasks,
    variants,
};

/// A download ends after so many seconds, or so many bytes, where nothing is lost.
const SECONDS: f64 = 10.0;
const BODY: u64 = 200_000_000; // bytes
/// With random loss the window keeps to a size of some packets, which it has within the first second.
const SECONDS_WITH_LOSS: f64 = 6.0;
/// From this rate on the emulator joins neighbours of a flow, as network cards do.
const JOINED: u64 = 300; // Mbit/s

/// The contender that acknowledges as RFC 9000 §13.2.2 recommends.
pub(super) const EVERY_SECOND: &str = "ack-2";

/// litequic, measured by clients of one threshold each. `auto`: 2, until litequic requests another.
pub(super) fn variants() -> Result<Vec<Variant>> {
    let variant = |(name, threshold): (&str, &str)| Variant {
        name: name.to_owned(),
        ack_threshold: Some(threshold.to_owned()),
        ..Variant::default()
    };
    Ok([(EVERY_SECOND, "2"), ("ack-100", "100"), ("litequic", "auto")].map(variant).to_vec())
}

/// Their names.
pub(super) fn names() -> Vec<String> {
    super::names(variants())
}

fn tasks(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    for loss in [false, true] {
        for (buffer, name) in [("200kB", "200 KB"), ("1MB", "1 MB")] {
            for (rate, rtts) in grid(loss, options) {
                for rtt in *rtts {
                    tasks.push(cell(*rate, *rtt, (buffer, name), loss, options));
                }
            }
        }
    }
    if options.quick {
        tasks.truncate(1);
    }
    tasks
}

/// Rates in Mbit/s, and round trips in ms of each; the highest rate is coarse.
fn grid(loss: bool, options: &Options) -> &'static [(u64, &'static [u32])] {
    if options.quick {
        return &[(50, &[20])];
    }
    if loss {
        // What CUBIC reaches is below all of these but the first.
        return &[(50, &[5, 20, 50, 100]), (300, &[5, 20, 50, 100]), (1000, &[5, 20, 50, 100])];
    }
    &[
        (50, &[5, 20, 50, 100]),
        (100, &[5, 20, 50, 100]),
        (300, &[5, 20, 50, 100]),
        (800, &[5, 20, 50, 100]),
        (1000, &[5, 100]),
    ]
}

fn cell(rate: u64, rtt: u32, (buffer, name): (&str, &str), loss: bool, options: &Options) -> Task {
    let (group, fate) = if loss { (format!("{name}, 0.5 % loss"), ",loss=0.5%") } else { (name.to_owned(), "") };
    let joined = if rate >= JOINED { ",gro=100us" } else { "" };
    let path = format!("rate={rate}M,rtt={rtt}ms,buffer={buffer}{fate}{joined}");
    let mut task = over(&path, &group, &format!("{rate} Mbit/s, {rtt} ms"), "goodput", load(rate, loss, options));
    (task.case.x, task.case.y) = (Some(f64::from(rtt)), Some(rate as f64));
    task.kinds = vec![Kind::H3];
    task.names = names();
    task.rounds = ROUNDS;
    task
}

fn load(rate: u64, loss: bool, options: &Options) -> Load {
    let cut = |(seconds, beginning)| download(more_than(rate, seconds), Amount::Cut { seconds, beginning });
    if options.quick {
        return cut(QUICK_CUT);
    }
    if loss {
        return cut((SECONDS_WITH_LOSS, 1.0));
    }
    // What the rate can carry in that time.
    if rate as f64 * 125_000.0 * SECONDS < BODY as f64 {
        return cut((SECONDS, 1.0));
    }
    download(options.many(BODY, 1), Amount::Requests(1))
}
