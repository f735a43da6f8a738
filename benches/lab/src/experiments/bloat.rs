//! Bufferbloat: what a bulk download does to the latency of others.

use super::{Amount, Experiment, Generator, Load, Options, Task, download, few, load, more_than, over};
use crate::bench::load::Bulk;

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "bloat",
    "How long does a small request take beside a bulk download, over 20 Mbit/s and 50 ms with a buffer of 5 \
            bandwidth-delay products, of which a full one adds 250 ms, and with a quarter of one, 12 ms? Alone, with the download on \
            another connection, and on its own: without `Priority`, and with `u=0`, where what the server has handed over to \
            QUIC before is in front of it.",
    tasks,
);

/// Bandwidth-delay products of the buffer, and the name of what is measured with it.
const BUFFERS: [(&str, &str); 2] = [("5", "10 KB"), ("0.25", "10 KB, a short buffer")];

/// Where the bulk download is.
#[derive(Clone, Copy)]
enum Place {
    Nowhere,
    OnAnother,
    /// On the same connection, whose other requests have this `Priority`.
    OnTheSame(Option<&'static str>),
}

const PLACES: [(Place, &str); 4] = [
    (Place::Nowhere, "alone"),
    (Place::OnAnother, "beside a bulk download"),
    (Place::OnTheSame(None), "beside one on its connection"),
    (Place::OnTheSame(Some("u=0")), "beside one on its connection, u=0"),
];

fn tasks(options: &Options) -> Vec<Task> {
    let cells = BUFFERS.iter().flat_map(|buffer| PLACES.map(|(place, name)| cell(*buffer, place, name, options)));
    // Each place once.
    cells.take(if options.quick { PLACES.len() } else { usize::MAX }).collect()
}

fn cell((buffer, group): (&str, &str), place: Place, name: &str, options: &Options) -> Task {
    let amount = Amount::InTurn(options.many(12, 5));
    // Far longer than the requests take; it is ended with them.
    let seconds = if options.quick { 60.0 } else { 200.0 };
    let bulk = more_than(20, seconds);
    let mut load = Load { kind: load::Kind::Small, ..download(10_000, amount) };
    if let Place::OnTheSame(priority) = place {
        load.generator = Generator::beside_its_own(Bulk { body: bulk, priority });
    }
    let mut task = over(&format!("rate=20M,rtt=50ms,buffer={buffer}bdp"), group, name, "p50_us", load);
    task.case.drawn = vec!["p99_us".to_owned()];
    task.case.judged.clone_from(&task.case.drawn);
    task.names = few();
    match place {
        Place::Nowhere => {}
        Place::OnAnother => task.beside = Some(download(bulk, Amount::Cut { seconds, beginning: 1.0 })),
        // HTTP/1.1 has one request at a time on a connection.
        Place::OnTheSame(_) => task.names.retain(|name| name != "h1-cubic"),
    }
    task
}
