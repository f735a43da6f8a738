//! What a download costs client and server over a fast link, by HTTP/2 and HTTP/3: "QUIC is not Quick Enough over Fast
//! Internet" (docs/papers.md), and what a server can do about it.

use super::{Amount, Experiment, Kind, Load, Options, Per, ROUNDS, Task, Variant, acks, download, over, task};
use crate::{
    bench::{
        Observe,
        load::{Generator, Receiver},
        namespace::{SocketBuffers, Topology},
    },
    fetch::Client,
    http::Http,
    load::Faults,
};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "downloads",
    about: "Is HTTP/3 quick enough over fast links? One download at a time, to a client that has its core alone; server and origin share \
            the other. The kernel's token bucket gives a veth pair 300 and 1000 Mbit/s; the emulator a link of 0.2 ms 50 to 300. Either \
            has a buffer of 100 ms. Sockets have the sizes that distributions give them (net.core.rmem_max of 212,992 bytes), of which \
            the lab's client requests 1 MiB as browsers do, or large ones. `litequic-h2` and `nginx-h2` are the same servers over \
            HTTP/2. CPU time is that of cgroups, of the client from its first byte of the body to its last one; interrupts of its core \
            are samples of the clock's tick. A client with less than 95 % of its core busy is not the limit; a run in which the \
            server's core is busier than 85 % is void. What the kernel hands over is counted in messages: on a veth pair one of GSO is \
            many packets, over the emulator each is one, but with `gro=`.",
    reference: Some("nginx-h2"),
    tasks,
    variants,
};

/// Servers over HTTP/2.
const OVER_TCP: [(&str, &str); 2] = [("nginx-h2", "nginx"), ("litequic-h2", "litequic")];
/// What browsers request of their socket.
const REQUESTED: u32 = 1 << 20; // bytes
/// Rates that a cell has with all clients, Mbit/s.
const MIDDLE: u64 = 300;
const FAST: u64 = 1_000;

fn variants() -> Result<Vec<Variant>> {
    let variant = |(name, of): (&str, &str)| Variant {
        name: name.to_owned(),
        twin_of: Some(of.to_owned()),
        front: Some(Http::Two),
        ..Variant::default()
    };
    Ok(OVER_TCP.map(variant).to_vec())
}

/// A client.
#[derive(Clone, Copy)]
enum Who {
    Other(Client),
    /// The lab's, by packets an ACK, whether it has GRO, and whether it takes one message a call.
    Own(&'static str, bool, bool),
}

/// Clients at the two main rates.
const CLIENTS: [Who; 6] = [
    Who::Other(Client::Curl),
    Who::Other(Client::Get),
    Who::Other(Client::Chromium),
    Who::Other(Client::Firefox),
    Who::Other(Client::ChromiumAsked),
    ASKED,
];
/// Clients at other rates, sizes and links.
const FEW: [Who; 2] = [CLIENTS[0], CLIENTS[2]];
/// Clients whose calls are counted; the lab's client counts its own.
const COUNTED: [Who; 4] = [CLIENTS[0], CLIENTS[1], CLIENTS[2], CLIENTS[3]];
/// The lab's client as the server would like it to be.
const ASKED: Who = Who::Own("auto", true, false);
/// The lab's client otherwise.
const ARMS: [Who; 5] = [
    Who::Own("auto", false, false),
    Who::Own("auto", false, true),
    Who::Own("2", true, false),
    Who::Own("10", true, false),
    Who::Own("100", true, false),
];

impl Who {
    fn generator(self, buffers: SocketBuffers) -> Generator {
        match self {
            Self::Other(client) => Generator::Client(client),
            Self::Own(threshold, gro, one) => Generator::Own {
                ack_threshold: threshold.to_owned(),
                gro,
                faults: Faults::default(),
                delay: 0,
                receiver: Receiver {
                    buffer: (buffers == SocketBuffers::Default).then_some(REQUESTED),
                    one,
                    ..Receiver::default()
                },
                bulk: None,
            },
        }
    }

    fn describe(self) -> String {
        let acks = acks(&self.generator(SocketBuffers::Ample));
        match self {
            Self::Other(_) => acks,
            Self::Own(_, gro, one) => {
                format!("{acks}{}{}", if gro { "" } else { ", no GRO" }, if one { ", one a call" } else { "" })
            }
        }
    }
}

/// What gives the rate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// The kernel's token bucket on a veth pair.
    Kernel,
    Emulator,
    /// The emulator, whose receiving side joins packets as a network card's driver does.
    Joining,
}

fn tasks(options: &Options) -> Vec<Task> {
    let default = SocketBuffers::Default;
    let (all, two) = (["litequic", "nginx", "caddy", "nginx-h2", "litequic-h2"], ["litequic", "nginx"]);
    if options.quick {
        return vec![
            cell(Link::Kernel, MIDDLE, 8, default, ASKED, &two),
            cell(Link::Kernel, MIDDLE, 8, default, FEW[0], &["litequic-h2", "nginx-h2"]),
            cell(Link::Emulator, MIDDLE, 8, default, FEW[1], &["litequic", "litequic-h2"]),
        ];
    }
    let mut tasks = Vec::new();
    for (rate, buffers) in [(MIDDLE, default), (FAST, default), (FAST, SocketBuffers::Ample)] {
        tasks.extend(CLIENTS.map(|who| cell(Link::Kernel, rate, 200, buffers, who, &all)));
    }
    tasks.extend(FEW.map(|who| cell(Link::Kernel, MIDDLE, 200, SocketBuffers::Ample, who, &all)));
    tasks.extend(ARMS.map(|who| cell(Link::Kernel, FAST, 200, default, who, &["litequic"])));
    for megabytes in [50, 1_000] {
        tasks.extend(FEW.map(|who| cell(Link::Kernel, FAST, megabytes, default, who, &all)));
    }
    tasks.extend(CLIENTS.map(|who| cell(Link::Emulator, MIDDLE, 200, default, who, &all)));
    tasks.extend(FEW.map(|who| cell(Link::Joining, MIDDLE, 200, default, who, &all)));
    tasks.extend([FEW[0], FEW[1], ASKED].map(|who| cell(Link::Emulator, 100, 50, default, who, &all)));
    tasks.extend(FEW.map(|who| cell(Link::Emulator, 50, 50, default, who, &all)));
    tasks.extend(COUNTED.map(|who| counted(cell(Link::Kernel, FAST, 200, default, who, &all))));
    tasks.extend(FEW.map(|who| counted(cell(Link::Emulator, MIDDLE, 200, default, who, &all))));
    tasks
}

/// The cell with the client's calls counted.
fn counted(mut cell: Task) -> Task {
    cell.case.name += ", calls";
    cell.case.group += ", calls";
    cell.case.primary = "receiver_calls".to_owned();
    (cell.case.drawn, cell.case.judged) = (Vec::new(), Vec::new());
    (cell.observe, cell.rounds) = (Observe::ReceiveCalls, 1);
    cell
}

fn cell(link: Link, rate: u64, megabytes: u64, buffers: SocketBuffers, who: Who, contenders: &[&str]) -> Task {
    let load = Load { generator: who.generator(buffers), ..download(megabytes * 1_000_000, Amount::Requests(1)) };
    let by = match link {
        Link::Kernel => "kernel",
        Link::Emulator => "emulator",
        Link::Joining => "emulator with GRO",
    };
    let sockets = if buffers == SocketBuffers::Default { "default sockets" } else { "large sockets" };
    let (group, name) = (format!("{rate} Mbit/s by the {by}, {megabytes} MB, {sockets}"), who.describe());
    // 100 ms of the rate.
    let path = format!("rate={rate}M,rtt=0.2ms,buffer={}", rate * 12_500);
    let mut task = match link {
        Link::Kernel => task(&group, &name, Per::Gigabyte, false, load),
        Link::Emulator => over(&path, &group, &name, "goodput", load),
        Link::Joining => over(&format!("{path},gro=50us"), &group, &name, "goodput", load),
    };
    task.case.load += &format!("; {sockets}");
    task.case.primary = "goodput".to_owned();
    task.case.drawn = vec!["receiver_cpu".to_owned()];
    task.case.judged = vec!["receiver_cpu".to_owned()];
    task.kinds = vec![Kind::H3];
    task.names = contenders.iter().map(|name| (*name).to_owned()).collect();
    task.topology = Some(if link == Link::Kernel { Topology::Veth } else { Topology::Path });
    task.shape.rate = (link == Link::Kernel).then_some(rate);
    (task.buffers, task.is_client_alone, task.rounds) = (buffers, true, ROUNDS);
    task
}
