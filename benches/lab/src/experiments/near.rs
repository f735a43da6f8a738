//! Clients next door, whose socket is the bottleneck: what is lost into it, and what it costs.

use super::{Amount, Experiment, Kind, Load, Options, Per, ROUNDS, Share, Task, Variant, acks, download, over, task};
use crate::{
    bench::{
        cgroup::{DEFAULT_PERIOD, SHORT_PERIOD},
        load::{Generator, Receiver},
        namespace::{SocketBuffers, Topology},
    },
    fetch::Client,
    load::Faults,
};
use anyhow::Result;
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "near",
    about: "What is lost into a client on the same machine or network, whose UDP socket has the size that distributions give it \
            (net.core.rmem_default and rmem_max of 212,992 bytes)? One download: the lab's client, which may sleep after each hundred \
            datagrams, with a socket of the default size or of 1 MiB as requested (of which twice 212,992 are granted); curl, \
            `litequic get`, Chromium, Firefox. Client and server in one namespace, across a veth pair, or a link of 1 Gbit/s; the server has its \
            core, or a tenth of it by periods of 100 ms, as Docker's, or 10 ms. *Lost* is what the server declared so, by its own counter, \
            with the beginning and without; the client's sockets count messages, which with GSO are many packets on `lo` and veth. \
            nginx over TCP speaks HTTP/1.1.",
    reference: Some("litequic"),
    tasks,
    variants,
};

const OFF: &str = "litequic-off";
const BBR: &str = "litequic-bbr";
/// The share of a core that the server has in cells with a quota.
const TENTH: f64 = 0.1;
/// More than a download gets of any of these paths.
const BODY: u64 = 2_000_000_000;
/// Seconds, and those of the beginning, which has slow start.
const LENGTH: (f64, f64) = (2.5, 0.5);
/// What browsers request of their socket.
const REQUESTED: u32 = 1 << 20; // bytes
/// Milliseconds of a link.
const LINKS: [f64; 4] = [0.2, 1.0, 2.0, 5.0];

fn variants() -> Result<Vec<Variant>> {
    let off = "[litequic]\nio = \"s2n-quic\"\ngso = false\ngro = false\n".to_owned();
    let bbr = "[litequic]\ncongestion = \"bbr\"\n".to_owned();
    let variant = |name: &str, extra| Variant { name: name.to_owned(), extra, ..Variant::default() };
    Ok(vec![variant(OFF, off), variant(BBR, bbr)])
}

/// A client.
#[derive(Clone, Copy)]
enum Who {
    /// The lab's, by packets an ACK, bytes of buffer that it requests, and milliseconds of a pause.
    Own(&'static str, u32, u32),
    Other(Client),
}

/// The lab's clients, and others.
const CLIENTS: [Who; 9] = [
    Who::Own("2", 0, 0),
    Who::Own("2", 0, 1),
    Who::Own("2", 0, 5),
    Who::Own("10", REQUESTED, 0),
    Who::Own("10", REQUESTED, 5),
    Who::Other(Client::Curl),
    Who::Other(Client::Get),
    Who::Other(Client::Chromium),
    Who::Other(Client::Firefox),
];
/// The clients that are compared over other networks.
const FEW: [Who; 3] = [CLIENTS[0], CLIENTS[2], CLIENTS[7]];

impl Who {
    fn generator(self) -> Generator {
        match self {
            Self::Own(threshold, buffer, pause) => Generator::Own {
                ack_threshold: threshold.to_owned(),
                gro: true,
                faults: Faults::default(),
                delay: 0,
                receiver: Receiver { buffer: Some(buffer), pause, one: false },
                bulk: None,
            },
            Self::Other(client) => Generator::Client(client),
        }
    }

    fn describe(self) -> String {
        let acks = acks(&self.generator());
        match self {
            Self::Own(_, buffer, pause) => {
                let socket = if buffer == 0 { "default socket" } else { "1 MiB requested" };
                format!("{acks}, {socket}, sleeps {pause} ms")
            }
            Self::Other(_) => acks,
        }
    }
}

/// What the server has of its core: in words, and as a share.
fn shares() -> [(&'static str, Share); 3] {
    let quota = |period: Duration| Share::Quota(TENTH, period);
    [
        ("whole core", Share::All),
        ("a tenth by 100 ms", quota(DEFAULT_PERIOD)),
        ("a tenth by 10 ms", quota(SHORT_PERIOD)),
    ]
}

fn tasks(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    if options.quick {
        tasks.push(cell(Topology::Lo, None, CLIENTS[4], shares()[0], &["litequic", "nginx-h1"], (1.0, 0.5)));
        tasks.push(cell(Topology::Path, Some(0.2), CLIENTS[2], shares()[1], &["litequic"], (1.0, 0.5)));
        return tasks;
    }
    let all = ["litequic", OFF, BBR, "nginx", "caddy", "nginx-h1"];
    for share in shares() {
        tasks.extend(CLIENTS.map(|who| cell(Topology::Lo, None, who, share, &all, LENGTH)));
    }
    let few = ["litequic", OFF, "nginx", "nginx-h1", "h1-cubic"];
    let links = LINKS.map(|milliseconds| (Topology::Path, Some(milliseconds)));
    for (topology, milliseconds) in std::iter::once((Topology::Veth, None)).chain(links) {
        let [whole, quota, _] = shares();
        for share in [whole, quota] {
            tasks.extend(FEW.map(|who| cell(topology, milliseconds, who, share, &few, LENGTH)));
        }
    }
    tasks
}

fn cell(
    topology: Topology,
    milliseconds: Option<f64>,
    who: Who,
    (share_name, share): (&str, Share),
    contenders: &[&str],
    (seconds, beginning): (f64, f64),
) -> Task {
    let load = Load { generator: who.generator(), ..download(BODY, Amount::Cut { seconds, beginning }) };
    let network = match topology {
        Topology::Lo => "lo".to_owned(),
        Topology::Veth => "veth".to_owned(),
        Topology::Path => format!("{} ms", milliseconds.unwrap_or_default()),
    };
    let (group, name) = (format!("{network}, {share_name}"), who.describe());
    let mut task = match milliseconds {
        // A buffer that holds more than the client's socket does.
        Some(milliseconds) => {
            over(&format!("rate=1000M,rtt={milliseconds}ms,buffer=3MB"), &group, &name, "goodput", load)
        }
        None => task(&group, &name, Per::Gigabyte, false, load),
    };
    task.case.load += &share.describe();
    task.case.primary = "goodput".to_owned();
    task.case.drawn = vec!["cpu".to_owned()];
    task.case.judged = ["lost_in_all", "spurious", "cpu"].map(str::to_owned).to_vec();
    task.kinds = vec![Kind::H3, Kind::H1];
    task.names = contenders.iter().map(|name| (*name).to_owned()).collect();
    (task.topology, task.buffers, task.share, task.rounds) = (Some(topology), SocketBuffers::Default, share, ROUNDS);
    task
}
