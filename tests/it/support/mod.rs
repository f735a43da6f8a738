//! What the suites share: litequic in this process (`proxy`) or as another (`process`), clients (`client`, `raw`,
//! `initial`, `stuffed`, `unasked`, `wire`; `tls` and `http2` over TCP), one that must be served all the while
//! (`bystander`), a `link` with faults between them, origins (`origin`, `nginx`), what switches protocols (`tunnel`), a
//! `collector` of spans, a browser (`chromium`), a load `balancer`, and the programs that some tests need (`needs`).

pub(crate) mod balancer;
pub(crate) mod bystander;
pub(crate) mod cable;
pub(crate) mod chromium;
pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod faults;
pub(crate) mod http2;
pub(crate) mod initial;
pub(crate) mod link;
pub(crate) mod namespace;
pub(crate) mod needs;
pub(crate) mod neqo;
pub(crate) mod nginx;
pub(crate) mod origin;
pub(crate) mod picture;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod sequence;
pub(crate) mod stuffed;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod unasked;
pub(crate) mod wire;

/// What most tests name: litequic, clients, origins and processes of this module, and a little of the libraries.
pub(crate) mod prelude {
    pub(crate) use super::{
        DEADLINE, LOOK_AGAIN,
        client::{self, Client, Quic},
        http2::{self, Http2},
        io_key,
        link::{Faults, Link, Way},
        needs,
        origin::{self, Always, Peer, Script, Server},
        process::{Ended, Process, command, free_tcp_port, free_udp_port, write_certificate},
        proxy::{Litequic, config_before, defaults},
        raw::{self, Outcome, Raw},
        tls::{self, Tls},
        tunnel::HttpVersion,
        until, within,
    };
    pub(crate) use bytes::Bytes;
    pub(crate) use http::Method;
    pub(crate) use litequic::app::WorkerMetrics;
    pub(crate) use litequic_config::{Config, Network, OriginAddress, OriginConfig, RouteConfig};
    pub(crate) use litequic_tls::{CertificateStore, SelfSigned, make_self_signed};

    pub(crate) use std::{
        env, fs,
        net::{Ipv4Addr, SocketAddr},
        path::{Path, PathBuf},
        process::{Command, Stdio},
        sync::{Arc, Mutex},
        time::Duration,
    };
    pub(crate) use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        task::spawn_blocking,
        time::{sleep, timeout},
    };
}

use litequic_config::{Io, LiteQuic};
use prelude::*;
use std::env;

/// Longer than anything that a test waits for, on a machine that has much else to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Between two looks at state without events.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The value of `LITEQUIC_TEST_IO`: the `litequic.io` of every litequic that a test starts.
pub(crate) fn io() -> Io {
    let Ok(asked) = env::var("LITEQUIC_TEST_IO") else { return LiteQuic::default().io };
    let mut known = Io::NAMES.iter().chain(Io::HIDDEN_NAMES);
    let named = known.find(|(name, _)| *name == asked);
    named.unwrap_or_else(|| panic!("LITEQUIC_TEST_IO={asked} is none of {:?} {:?}", Io::NAMES, Io::HIDDEN_NAMES)).1
}

/// The same, for a configuration's text.
pub(crate) fn io_key() -> String {
    let mut known = Io::NAMES.iter().chain(Io::HIDDEN_NAMES);
    let (name, _) = known.find(|(_, one)| *one == io()).unwrap();
    format!("litequic.io = \"{name}\"\n")
}

/// Whether this machine allows io_uring. If not, reports that a test is skipped, or fails it.
pub(crate) fn has_io_uring() -> bool {
    let probe = process::litequic(["probe"]).success();
    let line = probe.lines().find(|line| line.starts_with("io_uring ")).unwrap();
    let has = line.ends_with(" yes");
    if !has {
        needs::skip(line);
    }
    has
}

/// Waits until `condition` holds; fails with `what` if it does not come to it.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(LOOK_AGAIN).await;
        }
    };
    within(what, holds).await;
}

/// Waits for `event`; fails with `what` if it does not come.
pub(crate) async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, event).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}
