//! Many requests at once from one address, as of a load test, an office behind a NAT, or a balancer in front: which of
//! them fail, and the memory they take. No request of an idle server should.

use super::{Options, attacks::perform};
use crate::{
    bench::{Act, Assault, Lab, Trial, h2load::Burst},
    http::Http,
    report::Per,
};
use anyhow::{Result, bail};

/// Connections and streams on each, up to 10,000 requests in flight.
const SHAPES: [(u32, u32); 7] = [(1, 100), (10, 100), (20, 50), (100, 10), (1_000, 1), (100, 100), (1_000, 10)];
/// Requests in flight over HTTP/1.1, each on a connection of its own.
const SHAPES_H1: [u32; 3] = [100, 1_000, 10_000];
/// Requests of a case: as many as h2load's users try, on few connections fewer. nginx closes a connection after 1,000
/// (`keepalive_requests`), and h2load opens no other.
const REQUESTS: u32 = 10_000;
const REQUESTS_EACH: u32 = 1_000;
/// Requests to an origin that is slow, and how slow it is.
const LATE_REQUESTS: u32 = 1_000;
const LATE: u32 = 8_000; // milliseconds

/// Runs the command.
pub(super) fn run(options: Options) -> Result<()> {
    if options.plan {
        bail!("--plan: a case takes 3 to 20 s for each contender and round");
    }
    super::check_names(&[], &options)?;
    conduct(&mut Lab::new(options)?)
}

/// Runs it in a laboratory that is set up.
pub(super) fn conduct(lab: &mut Lab) -> Result<()> {
    let quick = lab.options().quick;
    let assault = Assault {
        experiment: "inflight",
        about: format!(
            "Which requests fail when one address has up to 10,000 of them in flight? {REQUESTS} requests of 1 KB (at most \
             {REQUESTS_EACH} on a connection) with h2load, and \
             {LATE_REQUESTS} at once to an origin that takes {} s. Contenders have their defaults and {} file descriptors.",
            LATE / 1_000,
            super::attacks::DESCRIPTORS
        ),
        trials: bursts(quick).into_iter().map(trial).collect(),
        names: &super::attacks::THREE,
        hardened: false,
        limit: None,
    };
    perform(lab, &assault)
}

fn bursts(quick: bool) -> Vec<Burst> {
    let burst = |protocol, (connections, streams), requests, path: String| Burst {
        protocol,
        connections,
        streams,
        requests,
        path,
    };
    if quick {
        return Http::ALL.map(|protocol| burst(protocol, (10, 1), 100, "/b1000".to_owned())).into();
    }
    let shapes = |protocol| match protocol {
        Http::One => SHAPES_H1.map(|connections| (connections, 1)).to_vec(),
        Http::Two | Http::Three => SHAPES.to_vec(),
    };
    let fast = Http::ALL.into_iter().flat_map(|protocol| {
        shapes(protocol).into_iter().map(move |shape: (u32, u32)| {
            burst(protocol, shape, REQUESTS.min(shape.0 * REQUESTS_EACH), "/b1000".to_owned())
        })
    });
    let late = Http::ALL.into_iter().map(|protocol| {
        let shape = if protocol == Http::One { (LATE_REQUESTS, 1) } else { (LATE_REQUESTS / 100, 100) };
        burst(protocol, shape, LATE_REQUESTS, format!("/w{LATE}"))
    });
    fast.chain(late).collect()
}

fn trial(burst: Burst) -> Trial {
    let Burst { protocol, connections, streams, .. } = burst;
    let is_late = burst.path.starts_with("/w");
    let origin = if is_late { format!(", an origin that takes {} s", LATE / 1_000) } else { String::new() };
    let name = format!("{}, {connections} × {streams}{origin}", protocol.name());
    let group = if is_late { "a slow origin" } else { protocol.name() };
    let case = super::case(group, name, burst.describe(), Per::Request, "answered");
    Trial { case, act: Act::Burst(burst), descriptors: super::attacks::DESCRIPTORS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_shape_is_a_case_with_its_own_name_and_enough_requests() {
        for quick in [false, true] {
            let all = bursts(quick);
            assert!(all.iter().all(|burst| burst.connections * burst.streams <= burst.requests));
            let names: BTreeSet<String> = all.iter().map(|burst| trial(burst.clone()).case.name).collect();
            assert_eq!(names.len(), all.len());
        }
        assert!(bursts(false).iter().any(|burst| burst.connections * burst.streams == 10_000));
    }
}
