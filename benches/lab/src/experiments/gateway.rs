//! The mix of HttpArena's profile Gateway-H3: small and large responses behind many streams, from an origin that
//! answers some of them at once and some after a wait; and responses of one size, as a CDN in front asks for them.
//! benches/httparena has the entry itself.

use super::{Amount, Experiment, Generator, Kind, Load, Observe, Options, Per, Task, load, task};
use crate::bench::files::path_of;
use std::iter;

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "gateway",
    "What does a mix of responses cost, as the public board HttpArena requests it of gateways (profile Gateway-H3)? 20 paths in \
            turn over 64 connections of 32 streams: 6 static files, as long as their compressed variants; 7 of JSON; 4 of a few bytes; \
            3 that wait for a database, here 2 ms; then 1, 10 and 100 KB alone; 1 and 10 KB for longer with limits raised, for latencies \
            of a busy server; then all at two fixed rates, for those of a server that has time. Requests a second, \
            CPU, memory at most, p99; failures are counted, and costs are those of a success. Unlike on the board static files come from the origin as well, and proxy and client have a core each: \
            rates are bounded by the client and the origin, CPU time is what can be compared.",
    tasks,
);

/// Bytes of static files: of the board's reset.css, components.css, app.js, vendor.js and header.html by Brotli, and
/// of its hero.webp.
const STATIC: [u32; 6] = [2_420, 33_268, 47_275, 67_294, 9_390, 46_080];
/// Items of a JSON response, and of a query's.
const ITEMS: [u32; 7] = [1, 5, 10, 15, 25, 40, 50];
const ROWS: [u32; 3] = [10, 25, 50];
/// Bytes of an item; 50 are some 10 KB.
const ITEM: u32 = 200;
/// Sums of two numbers.
const SUMS: [u32; 4] = [1, 2, 3, 3];
/// What a query takes, milliseconds.
const QUERY: u32 = 2;

fn paths() -> Vec<String> {
    let now = STATIC.into_iter().chain(SUMS).chain(ITEMS.map(|items| items * ITEM)).map(|bytes| path_of(bytes.into()));
    now.chain(ROWS.map(|rows| format!("/d{QUERY}-{}", rows * ITEM))).collect()
}

/// Requests a second of each connection, in the order of the mix and [`ALONE`]: they take 26 to 41 and 42 to 98 % of
/// nginx's core, 18 to 20 and 32 to 38 % of litequic's.
const RATES: [[u32; 2]; 4] = [[70, 160], [110, 260], [90, 200], [20, 45]];
/// Seconds at a fixed rate.
const SECONDS: u32 = 5;
/// Bytes of a response, if all have the same path, and requests.
const ALONE: [(&str, u64, u64); 3] =
    [("1 KB", 1_000, 100_000), ("10 KB", 10_000, 100_000), ("100 KB", 100_000, 20_000)];

/// Requests of the longer runs: the first ones of all streams, which wait for handshakes, are less than 1 % of them.
const LONGER: u64 = 300_000;

fn tasks(options: &Options) -> Vec<Task> {
    let (connections, streams) = if options.quick { (8, 8) } else { (64, 32) };
    let cell = |name: &str, paths: Vec<String>, requests: u64, defaults: bool, rate: Option<u32>| {
        let load = Load {
            kind: load::Kind::Small,
            body: 0,
            connections,
            streams,
            amount: Amount::Requests(options.many(requests, 2_000)),
            generator: Generator::Mix(paths, rate),
            resume: false,
        };
        let mut task = task("gateway", name, Per::Request, false, load);
        task.case.judged = ["rate", "p99_us"].map(str::to_owned).to_vec();
        task.kinds = vec![Kind::H3];
        task.observe = Observe::Memory;
        task.defaults = defaults;
        task
    };
    let alone = ALONE.map(|(name, bytes, requests)| cell(name, vec![path_of(bytes)], requests, true, None));
    let longer = ALONE.into_iter().take(2).map(|(name, bytes, _)| {
        cell(&format!("{name}, longer, limits raised"), vec![path_of(bytes)], LONGER, false, None)
    });
    let mixes = [("limits raised", false), ("defaults", true)];
    let mixes = mixes.map(|(name, defaults)| cell(name, paths(), 100_000, defaults, None));
    let all = iter::once(("mix", paths())).chain(ALONE.map(|(name, bytes, _)| (name, vec![path_of(bytes)])));
    let paced = all.zip(RATES).flat_map(|((name, paths), rates)| {
        rates.map(|rate| {
            let name = format!("{name}, {} a second", rate * connections);
            cell(&name, paths.clone(), (rate * connections * SECONDS).into(), true, Some(rate))
        })
    });
    mixes.into_iter().chain(alone).chain(longer).chain(paced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_boards_shares() {
        let paths = paths();
        assert_eq!(paths.len(), 20);
        assert_eq!(paths.iter().filter(|path| path.starts_with("/d")).count(), 3);
        assert_eq!((STATIC.len(), ITEMS.len(), SUMS.len()), (6, 7, 4));
    }
}
