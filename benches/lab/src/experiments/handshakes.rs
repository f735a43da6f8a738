//! Handshakes: full ones, and resumed by ticket; by group of the key exchange and by chain of certificates.

use super::{Amount, Chain, Experiment, Generator, Kind, Load, Options, Per, Task, load, task};
use crate::{
    bench::load::Receiver,
    load::{Faults, Group},
};

/// Over this the number of round trips shows in the time that a handshake takes.
const DELAY: u32 = 50; // milliseconds
/// What a chain or a group is to be compared in.
const FEW: [&str; 2] = ["litequic", "nginx"];

pub(super) const EXPERIMENT: Experiment = Experiment::new(
    "handshakes",
    "What does a handshake cost, with a P-256 certificate and 16 in flight at a time? Then with a ticket, where the \
            server resumes sessions (*resumed* tells how many it did). Then with clients that offer X25519MLKEM768 alone, which \
            browsers offer first; without, X25519 is agreed on. Then by group and chain, which are as long as Let's Encrypt's. \
            Bytes and datagrams are those of a connection that is closed as soon as it is confirmed, with the server's \
            settings and its ticket. With 50 ms to the client a handshake is confirmed after 100 ms, and after \
            150 ms if the server had to wait for the client to prove its address: more than three times what the client had sent \
            (RFC 9000 §8.1).",
    tasks,
);

fn tasks(options: &Options) -> Vec<Task> {
    let full = |name: &str, handshakes: u64, delay: u32, resume: bool| {
        let generator = Generator::Own {
            ack_threshold: "auto".to_owned(),
            gro: true,
            faults: Faults::default(),
            delay,
            receiver: Receiver::default(),
            bulk: None,
        };
        let amount = Amount::Requests(options.many(handshakes, 100));
        let kind = load::Kind::Handshakes;
        let load = Load { kind, body: 0, connections: 16, streams: 1, amount, generator, resume };
        task("handshakes", name, Per::Handshake, false, load)
    };
    let mut tasks = vec![full("full", 5_000, 0, false), full("with tickets", 5_000, 0, true)];
    tasks.push(Task { group: Some(Group::X25519Mlkem768), ..full("full, X25519MLKEM768", 5_000, 0, false) });
    for chain in [Chain::Ecdsa, Chain::Rsa] {
        for (group, name) in
            [(Group::X25519, "X25519"), (Group::Secp256r1, "secp256r1"), (Group::X25519Mlkem768, "X25519MLKEM768")]
        {
            for delay in [0, DELAY] {
                let late = if delay > 0 { format!(", {delay} ms to the client") } else { String::new() };
                let name = format!("{}, {name}{late}", chain.name());
                let task = full(&name, if delay > 0 { 500 } else { 5_000 }, delay, false);
                let (group, names) = (Some(group), FEW.map(str::to_owned).to_vec());
                let mut task = Task { group, chain, names, kinds: vec![Kind::H3], ..task };
                if delay > 0 {
                    task.case.primary = "p50_us".to_owned();
                }
                tasks.push(task);
            }
        }
    }
    tasks
}
