//! How long experiments take, before they are run: with every contender and every client there is, on a machine at
//! rest, so that nothing is tried twice. Pure.

use crate::bench::{
    Task,
    contender::Contender,
    load::{Amount, Generator},
    options::Options,
};
use crate::fetch::Client;
use std::fmt::Write as _;

/// For a contender, its origin and a link to come up, to prove themselves, to become quiet and to end.
const AROUND: f64 = 0.9; // seconds
/// For a browser to start and to end.
const CHROMIUM: f64 = 1.5; // seconds
const FIREFOX: f64 = 5.0; // seconds
/// What a download gets of its path, where its amount is fixed.
const SHARE: f64 = 0.85;
/// The load beside the measured one comes first.
const BESIDE: f64 = 4.0; // seconds
/// If the rate is unknown, without a path: some 250 MB/s, and 20,000 requests a second.
const BYTES: f64 = 2.5e8;
const REQUESTS: f64 = 2e4;
/// What a connection begins with.
const WINDOW: f64 = 12_000.0; // bytes

/// What an experiment comes to.
pub(super) struct Plan {
    pub(super) cells: usize,
    pub(super) runs: usize,
    pub(super) seconds: f64,
}

/// Of an experiment's tasks.
pub(super) fn plan(tasks: &[Task], contenders: &[Contender], options: &Options) -> Plan {
    let mut plan = Plan { cells: 0, runs: 0, seconds: 0.0 };
    for task in tasks.iter().filter(|task| options.takes(&task.case.name)) {
        let takes = |one: &&Contender| options.wants(&one.name) && task.takes(one) && task.load.beyond(one).is_none();
        let runs = contenders.iter().filter(takes).count()
            * options.rounds(task.rounds).div_ceil(usize::from(options.links(task.links)));
        plan.cells += 1;
        plan.runs += runs;
        plan.seconds += runs as f64 * run(task);
    }
    plan
}

/// A run's seconds.
fn run(task: &Task) -> f64 {
    let load = &task.load;
    let path = task.path.as_ref();
    let rate = path.and_then(|path| path.down.bottleneck.as_ref()).map(|(rate, _)| rate.first() as f64 / 8.0);
    let rtt = path.map_or(0.0, |path| path.rtt.as_secs_f64());
    let rate = rate.or(task.shape.rate.map(|mbit| mbit as f64 * 125_000.0));
    let is_limited = path.is_some() || task.shape.rate.is_some();
    let rate = rate.unwrap_or(BYTES);
    let body = load.body as f64;
    let is_beside = task.beside.is_some() || load.generator.bulk().is_some();
    let measured = match load.amount {
        Amount::Seconds(seconds) | Amount::Cut { seconds, .. } => seconds,
        Amount::Requests(requests) if is_limited => requests as f64 * body / rate / SHARE,
        Amount::Requests(requests) => requests as f64 * (body / BYTES + 1.0 / REQUESTS),
        Amount::InTurn(requests) => {
            // The window doubles with each round trip; beside a bulk download the queue is full.
            let trips = 1.0 + (body / WINDOW + 1.0).log2();
            let limit = path.and_then(|path| path.down.bottleneck.as_ref()).map_or(0.0, |(_, limit)| *limit as f64);
            let queue = if is_beside { limit / rate } else { 0.0 };
            requests as f64 * (trips * (rtt + queue) + body / rate)
        }
    };
    let browser = match load.generator {
        Generator::Client(Client::Chromium | Client::ChromiumAsked) => CHROMIUM,
        Generator::Client(Client::Firefox) => FIREFOX,
        _ => 0.0,
    };
    let beside = if is_beside { BESIDE } else { 0.0 };
    // Two handshakes: one to prove itself, with its body of 100 KB.
    AROUND + browser + beside + 8.0 * rtt + 1e5 / rate + measured
}

/// A table of experiments and their plans.
pub(super) fn table(plans: &[(&str, Plan)]) -> String {
    let mut text = String::from("| experiment | cells | runs | minutes |\n|---|---:|---:|---:|\n");
    for (name, Plan { cells, runs, seconds }) in plans {
        let _ = writeln!(text, "| {name} | {cells} | {runs} | {:.0} |", seconds / 60.0);
    }
    let sum =
        plans.iter().fold((0, 0, 0.0), |sum, (_, plan)| (sum.0 + plan.cells, sum.1 + plan.runs, sum.2 + plan.seconds));
    let _ = writeln!(text, "| all | {} | {} | {:.0} |", sum.0, sum.1, sum.2 / 60.0);
    text
}
