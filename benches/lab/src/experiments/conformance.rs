//! Conformance (*Containing the Cambrian Explosion in QUIC Congestion Control*, IMC 2023): does a congestion control
//! behave as the kernel's of that name?

use super::{Amount, Experiment, Kind, Options, Task, Variant, download, more_than, names, over, shared, steps};
use crate::bench::Sampled;
use anyhow::Result;
use std::time::Duration;

const STEPS: &str = include_str!("../../contenders/conformance.toml");

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "conformance",
    about: "Does litequic's congestion control behave as the kernel's? One download beside one of kernel TCP, over one bottleneck that \
            drops what its queue has no room for; delay and throughput of the former, sampled every ten round trips, are its envelope. \
            Conformance is the share of points that the envelope has in common with that of the kernel beside itself. *-again* is \
            the kernel once more: as much as can be reached. s2n-quic's BBR is of version 2, the kernel's of version 1.",
    reference: Some(CUBIC),
    tasks,
    variants,
};

/// Does the measure measure? By a sender whose gain is scaled.
pub(super) const VALIDATION: Experiment = Experiment {
    name: "validation",
    about: "Does Conformance see what it should? BBR whose window is 1 to 4 times the estimated bandwidth-delay product, beside itself \
            as it comes (2 times), as in the paper's figure 5: Conformance is highest at 2 (*-again* is that once more), Conformance-T stays. Needs a \
            litequic with the feature `laboratory`: `cargo build --release --features laboratory --target-dir target/laboratory`, and \
            `--bin litequic=target/laboratory/release/litequic`.",
    reference: Some(BBR),
    tasks: validation,
    variants: gains,
};

const CUBIC: &str = "h1-cubic";
const BBR: &str = "h1-bbr";
/// As it comes; without any of LiteQUIC's mechanisms; with BBR.
const OWN: &str = "litequic";
const ALL_OFF: &str = "all-off";
const OWN_BBR: &str = "litequic-bbr";
const RIVALS: [&str; 3] = ["nginx", "haproxy", "caddy"];
/// The gain of BBR's window, percent.
const GAINS: [u32; 5] = [100, 150, AS_IT_COMES, 300, 400];
const AS_IT_COMES: u32 = 200;

/// A trial's, and how many there are, at once, each with its own link and servers; with --overnight.
const SECONDS: f64 = 60.0;
const TRIALS: u8 = 3;
const LONG_SECONDS: f64 = 120.0;
const MANY_TRIALS: u8 = 5;
/// Of a trial, what is left out at its beginning and at its end.
const CUT: f64 = 0.1;
/// A sample's time.
const ROUND_TRIPS: u32 = 10;

fn variants() -> Result<Vec<Variant>> {
    let mut variants = steps(STEPS)?;
    let twin = |of: &str| Variant { name: again(of), twin_of: Some(of.to_owned()), ..Variant::default() };
    variants.extend([CUBIC, BBR].map(twin));
    Ok(variants)
}

/// The same once more.
fn again(of: &str) -> String {
    format!("{of}-again")
}

fn tasks(options: &Options) -> Vec<Task> {
    let all = |who: &[&str]| who.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let kernel = [CUBIC.to_owned(), again(CUBIC)];
    if options.quick {
        return vec![cell(20, 10, 1.0, CUBIC, all(&[CUBIC, OWN]), options)];
    }
    let mut tasks = Vec::new();
    for rtt in [10, 50] {
        for buffer in [0.5, 1.0, 3.0, 5.0] {
            let mut who = [kernel.to_vec(), all(&[OWN, ALL_OFF])].concat();
            if buffer == 1.0 {
                who.extend(all(&RIVALS));
                let others = [OWN, ALL_OFF, OWN_BBR];
                who.extend(names(steps(STEPS)).into_iter().filter(|name| !others.contains(&name.as_str())));
            }
            tasks.push(cell(20, rtt, buffer, CUBIC, who, options));
        }
        tasks.push(cell(100, rtt, 1.0, CUBIC, [kernel.to_vec(), all(&[OWN, ALL_OFF])].concat(), options));
        tasks.push(cell(20, rtt, 1.0, BBR, [vec![BBR.to_owned(), again(BBR)], all(&[OWN_BBR])].concat(), options));
    }
    tasks
}

fn gains() -> Result<Vec<Variant>> {
    let variant = |name: String, gain: u32| Variant {
        name,
        extra: "[litequic]\ncongestion = \"bbr\"\n".to_owned(),
        environment: [("LITEQUIC_BBR_GAIN".to_owned(), gain.to_string())].into(),
        needs: Some("laboratory".to_owned()),
        ..Variant::default()
    };
    let mut variants = GAINS.map(|gain| variant(gained(gain), gain)).to_vec();
    variants.push(variant(again(&gained(AS_IT_COMES)), AS_IT_COMES));
    Ok(variants)
}

fn gained(gain: u32) -> String {
    format!("gain-{gain}")
}

fn validation(options: &Options) -> Vec<Task> {
    let mut gains = GAINS.map(gained).to_vec();
    gains.push(again(&gained(AS_IT_COMES)));
    let mut task = cell(20, 50, 5.0, BBR, gains, options);
    task.case.conforms_to = Some(gained(AS_IT_COMES));
    vec![task]
}

/// One download beside one of `beside`'s.
fn cell(rate: u64, rtt: u32, buffer: f64, beside: &'static str, who: Vec<String>, options: &Options) -> Task {
    let (seconds, trials) = match (options.quick, options.overnight) {
        (true, _) => (4.0, 1),
        (false, false) => (SECONDS, TRIALS),
        (false, true) => (LONG_SECONDS, MANY_TRIALS),
    };
    let beginning = seconds * CUT;
    let bulk = |seconds: f64| download(more_than(rate, seconds), Amount::Cut { seconds, beginning });
    let algorithm = beside.trim_start_matches("h1-");
    let name = format!("{rate} Mbit/s, {rtt} ms, {buffer} BDP, {algorithm}");
    let mut task = over(&shared(rate, rtt, buffer), "", "", "throughput", bulk(seconds));
    (task.case.name, task.case.group) = (name, format!("{rate} Mbit/s, {rtt} ms, {algorithm}"));
    task.case.drawn = vec!["share".to_owned()];
    task.case.x = Some(buffer);
    task.kinds = vec![Kind::H3, Kind::H1];
    task.names = who;
    (task.beside, task.beside_from) = (Some(bulk(seconds * 3.0)), Some(beside));
    task.case.conforms_to = Some(beside.to_owned());
    (task.links, task.rounds) = (trials, usize::from(trials));
    let time = Duration::from_secs_f64(seconds * (1.0 - 2.0 * CUT));
    task.sampled = Some(Sampled { step: Duration::from_millis(u64::from(rtt * ROUND_TRIPS)), time });
    task
}
