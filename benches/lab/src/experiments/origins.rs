//! What TLS and HTTP/2 to the origin cost, beside HTTP/1.1 without, and beside nginx.

use super::{Amount, Experiment, Generator, Kind, Load, Options, Per, Task, acks, large, load, task};
use crate::bench::Variant;
use anyhow::Result;

/// litequic in plaintext, which all are compared with first; then who has HTTP/2 or TLS.
const PLAIN: &str = "litequic";
const HTTPS: &str = "litequic-https";
const HTTP2: &str = "litequic-h2";
const NGINX: &str = "nginx";
const NGINX_HTTPS: &str = "nginx-https";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "origins",
    about: "What do TLS (`-https`) and HTTP/2 in plaintext (`-h2`) to the origin cost, with its certificate verified and connections kept, beside plaintext? \
            Large bodies at 2 and 10 packets an ACK, small objects, uploads. The origin is the same nginx, or the same sink of \
            uploads, at another port; its certificate is P-256, its cipher that of clients, TLS_AES_128_GCM_SHA256. Others are \
            compared with *litequic* in plaintext, then with *litequic-https*.",
    reference: Some(PLAIN),
    tasks,
    variants,
};

fn variants() -> Result<Vec<Variant>> {
    let https = |name: &str, twin_of: Option<&str>| Variant {
        name: name.to_owned(),
        https_origin: true,
        twin_of: twin_of.map(str::to_owned),
        ..Variant::default()
    };
    let http2 = Variant { name: HTTP2.to_owned(), http2_origin: true, ..Variant::default() };
    Ok(vec![http2, https(HTTPS, None), https(NGINX_HTTPS, Some(NGINX))])
}

fn tasks(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    for threshold in ["2", "10"] {
        let generator = Generator::own(threshold);
        let name = acks(&generator);
        tasks.push(task("large bodies", &name, Per::Gigabyte, false, large(options, 8, generator)));
    }
    let (connections, streams) = if options.quick { (10, 5) } else { (100, 10) };
    let amount = Amount::Requests(options.many(200_000, 2_000));
    let (kind, generator) = (load::Kind::Small, Generator::own("2"));
    let small = Load { kind, body: 1_000, connections, streams, amount, generator, resume: false };
    let mut small = task("small objects", "1 KB", Per::Request, false, small);
    // Connections are kept: the handshakes of the first requests, one for each in flight, are another cost.
    let warm_up = options.many(20_000, 500);
    small.warm_up = Some(warm_up);
    small.case.load.push_str(&format!(", after {warm_up} requests that do not count"));
    tasks.push(small);
    let upload = Load { kind: load::Kind::Upload, ..large(options, 4, Generator::own("auto")) };
    tasks.push(task("uploads", "unsaturated", Per::Gigabyte, false, upload));
    for task in &mut tasks {
        task.kinds = vec![Kind::H3];
        // The origin that counts uploads has no HTTP/2.
        let names = [PLAIN, HTTP2, HTTPS, NGINX, NGINX_HTTPS].into_iter();
        task.names = names.filter(|name| *name != HTTP2 || !task.is_served_by_sink()).map(str::to_owned).collect();
        task.case.also_to = Some(HTTPS.to_owned());
    }
    tasks
}
