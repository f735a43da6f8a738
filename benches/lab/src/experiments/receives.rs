//! LiteQUIC's figure 5: ACKs a receive call over the link's rate. Where a call receives one, there is nothing to merge.

use super::{
    Amount, Experiment, Generator, Kind, Load, Options, QUICK_CUT, ROUNDS, Task, Variant, download, more_than, over,
};
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "receives",
    about: "From which rate on does a receive call return several ACKs? Downloads over links of 50 to 800 Mbit/s with a round \
            trip of 20 ms, 1, 10 and 100 connections that share them, clients that acknowledge every second packet; ACK frames a \
            receive call, and datagrams a send call. *litequic* as it comes; *unmoderated* receives each datagram as it \
            arrives (`receive_moderation = false`). The link delivers ACKs joined, as network cards with GRO do, within 100 µs. \
            Over loopback: the experiment `batch`.",
    reference: Some("unmoderated"),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    let unmoderated = "[litequic]\nreceive_moderation = false\n".to_owned();
    Ok(vec![Variant { name: "unmoderated".to_owned(), extra: unmoderated, ..Variant::default() }])
}

fn tasks(options: &Options) -> Vec<Task> {
    let (rates, counts): (&[u64], &[u32]) =
        if options.quick { (&[50], &[10]) } else { (&[50, 100, 200, 400, 800], &[1, 10, 100]) };
    let (seconds, beginning) = if options.quick { QUICK_CUT } else { (4.0, 1.0) };
    let mut tasks = Vec::new();
    for connections in counts {
        for rate in rates {
            let amount = Amount::Cut { seconds, beginning };
            let one = download(more_than(*rate, seconds), amount);
            let load = Load { connections: *connections, generator: Generator::own("2"), ..one };
            let path = format!("rate={rate}M,rtt=20ms,buffer=1bdp,gro=100us");
            let plural = if *connections == 1 { "" } else { "s" };
            let group = format!("{connections} connection{plural}");
            let mut task = over(&path, &group, &format!("{rate} Mbit/s"), "acks_per_call", load);
            task.case.drawn = ["datagrams_per_send", "cpu"].map(str::to_owned).to_vec();
            task.case.judged = vec!["cpu".to_owned()];
            task.case.x = Some(*rate as f64);
            task.kinds = vec![Kind::H3];
            task.names = ["litequic", "unmoderated"].map(str::to_owned).to_vec();
            task.rounds = ROUNDS;
            tasks.push(task);
        }
    }
    tasks
}
