//! What one download at 1 Gbit/s costs the server: of HTTP/1.1, HTTP/2 and HTTP/3, with a network card that segments
//! messages, and without.

use super::{Amount, Experiment, Kind, Load, Options, Per, ROUNDS, Task, Variant, acks, download, task};
use crate::{
    bench::{
        load::Generator,
        namespace::{SocketBuffers, Topology, VethShape},
    },
    fetch::Client,
    http::Http,
};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gigabit",
    about: "How much of a core does one download take from the server at 1 Gbit/s? The kernel's token bucket gives the rate to a veth \
            pair, netem (sch_netem) on the client's side a round trip of 20 ms; without it the pair's own is below 0.1 ms. The server has a core alone; the client and the origin share the other. \
            *Segmented* is a server whose kernel cuts each message into packets (`gso_max_segs 1`), as for a network card without \
            segmentation of UDP and TCP; otherwise messages cross the veth pair whole. CPU time is that of the server's cgroup; *busy* \
            is its share of a core. Contenders have their defaults; `nginx` `tuned` has `quic_gso on`.",
    reference: Some("nginx-h1"),
    tasks,
    variants,
};

/// Servers over another protocol.
const OVER_TCP: [(&str, &str, Http); 3] =
    [("litequic-h1", "litequic", Http::One), ("litequic-h2", "litequic", Http::Two), ("nginx-h2", "nginx", Http::Two)];
/// Mbit/s.
const RATE: u64 = 1_000;
/// Microseconds of a round trip: the pair's own, as within a rack, and within a country.
const ROUND_TRIPS: [u32; 2] = [0, 20_000];

fn variants() -> Result<Vec<Variant>> {
    let variant = |(name, of, front): (&str, &str, Http)| Variant {
        name: name.to_owned(),
        twin_of: Some(of.to_owned()),
        front: Some(front),
        ..Variant::default()
    };
    Ok(OVER_TCP.map(variant).to_vec())
}

fn tasks(options: &Options) -> Vec<Task> {
    if options.quick {
        let own = Generator::own("auto");
        return vec![cell(100, own, ROUND_TRIPS[0], true, &["litequic", "nginx-h1"])];
    }
    let all = ["litequic", "nginx", "haproxy", "caddy", "h2o", "litequic-h2", "nginx-h2", "litequic-h1", "nginx-h1"];
    let shapes = ROUND_TRIPS.into_iter().flat_map(|round_trip| [(round_trip, false), (round_trip, true)]);
    let cells = |(round_trip, is_segmented)| {
        let curl = || Generator::Client(Client::Curl);
        let mut tuned = cell(1_000, curl(), round_trip, is_segmented, &["nginx"]);
        tuned.case.name += ", tuned";
        tuned.tuned = true;
        [cell(1_000, curl(), round_trip, is_segmented, &all), tuned]
    };
    shapes.flat_map(cells).collect()
}

fn cell(megabytes: u64, generator: Generator, round_trip: u32, is_segmented: bool, contenders: &[&str]) -> Task {
    let load = Load { generator, ..download(megabytes * 1_000_000, Amount::Requests(1)) };
    let segmented = if is_segmented { "segmented" } else { "whole messages" };
    let delay = if round_trip == 0 { "no delay".to_owned() } else { format!("{} ms", round_trip / 1_000) };
    let group = format!("1 Gbit/s, {delay}, {segmented}");
    let name = acks(&load.generator);
    let mut task = task(&group, &name, Per::Gigabyte, false, load);
    task.case.primary = "busy".to_owned();
    task.case.judged = vec!["cpu".to_owned()];
    task.kinds = vec![Kind::H3, Kind::H1];
    task.names = contenders.iter().map(|name| (*name).to_owned()).collect();
    task.topology = Some(Topology::Veth);
    task.shape = VethShape { rate: Some(RATE), round_trip, is_segmented };
    (task.buffers, task.rounds) = (SocketBuffers::Ample, ROUNDS);
    task
}
