//! *QUIC network stack optimization using syscall batching* (semester thesis, ETH Zürich, 2025): time to last byte over
//! body sizes and clients, and what it left open.

use super::{
    Amount, Experiment, Generator, IO_URING, Kind, Load, Options, Per, ROUNDS, Task, Variant, io_uring, load, over,
};
use crate::bench::load::size;
use anyhow::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "thesis",
    about: "Does io_uring shorten downloads? Time to last byte of 1 to 80 MB by 1, 11 and 51 clients over 1 Gbit/s and 20 ms, \
            and the server's CPU: litequic over the QUIC library's I/O (*library-io*), its own over epoll (*litequic*) and \
            over io_uring (*litequic-io-uring*). Then what the thesis left open: new connections, uploads, and paths that are \
            slower, longer, or lose packets.",
    reference: Some(LIBRARY),
    tasks,
    variants,
};

/// The QUIC library's own I/O.
const LIBRARY: &str = "library-io";
const MB: u64 = 1_000_000;
/// The thesis has a fast network without loss; the emulator carries this much.
const FAST: &str = "rate=1G,rtt=20ms,buffer=1bdp,gro=100us";
/// What it did not try: name, path, clients.
const OTHER_PATHS: [(&str, &str, u32); 3] = [
    ("100 Mbit/s, 20 ms", "rate=100M,rtt=20ms,buffer=1bdp", 11),
    ("1 Gbit/s, 100 ms", "rate=1G,rtt=100ms,buffer=1bdp,gro=100us", 11),
    ("1 Gbit/s, 20 ms, 0.5 % loss", "rate=1G,rtt=20ms,buffer=1bdp,loss=0.5%,gro=100us", 11),
];

fn variants() -> Result<Vec<Variant>> {
    let extra = "[litequic]\nio = \"s2n-quic\"\n".to_owned();
    let library = Variant { name: LIBRARY.to_owned(), extra, ..Variant::default() };
    Ok([vec![library], io_uring()?].concat())
}

fn tasks(options: &Options) -> Vec<Task> {
    if options.quick {
        return vec![cell(FAST, "downloads", (load::Kind::Download, MB, 2))];
    }
    let mut tasks = Vec::new();
    for clients in [1, 11, 51] {
        for body in [1, 10, 50, 80] {
            let mut task = cell(FAST, &plural(clients), (load::Kind::Download, body * MB, clients));
            task.case.x = Some((body * MB) as f64);
            tasks.push(task);
        }
    }
    let mut set_up = cell(FAST, "new connections", (load::Kind::Handshakes, 0, 11));
    set_up.load.amount = Amount::Requests(1_000);
    set_up.case.per = Per::Handshake;
    set_up.case.load = set_up.load.describe();
    tasks.push(set_up);
    tasks.push(cell(FAST, "uploads", (load::Kind::Upload, 50 * MB, 11)));
    for (name, path, clients) in OTHER_PATHS {
        tasks.push(cell(path, name, (load::Kind::Download, 10 * MB, clients)));
    }
    tasks
}

/// Each client sends one request at a time, over one connection.
fn cell(path: &str, group: &str, (kind, body, clients): (load::Kind, u64, u32)) -> Task {
    let amount = Amount::Requests(u64::from(clients));
    let generator = Generator::own("auto");
    let load = Load { kind, body, connections: clients, streams: 1, amount, generator, resume: false };
    let mut task = over(path, group, &size(body), "p50_us", load);
    task.case.drawn = vec!["cpu".to_owned()];
    task.case.judged = vec!["cpu".to_owned()];
    task.kinds = vec![Kind::H3];
    task.names = ["litequic", LIBRARY, IO_URING].map(str::to_owned).to_vec();
    task.rounds = ROUNDS;
    task
}

fn plural(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}
