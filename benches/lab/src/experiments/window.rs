//! LiteQUIC's figure 3: goodput over the sending window, at 2 and 100 packets an ACK. What the client has received and
//! not yet acknowledged is in the window and not in flight.

use super::{
    Amount, Experiment, Kind, Options, QUICK_CUT, ROUNDS, Task, Variant, download, more_than, over, thresholds,
};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "window",
    about: "How much larger must the congestion window be if a client acknowledges every 100th packet? Goodput in seconds 1 to 5 over 80 Mbit/s and \
            30 ms (a bandwidth-delay product of 300 KB) with a congestion window that nothing changes. Needs a litequic \
            with the feature `laboratory`: `cargo build --release --features laboratory --target-dir target/laboratory`, \
            and `--bin litequic=target/laboratory/release/litequic`.",
    reference: Some(thresholds::EVERY_SECOND),
    tasks,
    variants,
};

/// The version of a litequic with a configurable window.
const FEATURE: &str = "laboratory";
/// The variable for it, in bytes.
const VARIABLE: &str = "LITEQUIC_FIXED_WINDOW";
/// The path.
const RATE: u64 = 80; // Mbit/s
const RTT: u32 = 30; // ms
/// Windows, in KB: from below the bandwidth-delay product of 300 to more than 100 packets above it.
const WINDOWS: [u32; 10] = [200, 225, 250, 275, 300, 325, 350, 375, 400, 450];

fn variants() -> Result<Vec<Variant>> {
    let mut variants = thresholds::variants()?;
    for variant in &mut variants {
        variant.needs = Some(FEATURE.to_owned());
    }
    Ok(variants)
}

fn tasks(options: &Options) -> Vec<Task> {
    let windows = if options.quick { &WINDOWS[..1] } else { &WINDOWS[..] };
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (5.0, 1.0) };
    let cell = |window: &u32| {
        let load = download(more_than(RATE, seconds), Amount::Cut { seconds, beginning });
        let path = format!("rate={RATE}M,rtt={RTT}ms,buffer=1MB");
        let mut task = over(&path, "80 Mbit/s, 30 ms", &format!("{window} KB"), "steady", load);
        task.case.x = Some(f64::from(*window));
        task.kinds = vec![Kind::H3];
        task.names = thresholds::names();
        task.environment = vec![(VARIABLE, format!("{}", window * 1_000))];
        task.rounds = ROUNDS;
        task
    };
    windows.iter().map(cell).collect()
}
