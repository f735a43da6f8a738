//! `litequic-lab link`, which lets any program run over a path, and `emulate`, the process that moves its packets.

use super::{
    check,
    emulator::{Asked, Emulator},
    handle::{Link, Links, UP},
    log::Log,
    path::Path,
    tun::Tun,
};
use crate::bench::{
    guard::Guard,
    interrupt,
    namespace::{Network, SocketBuffers, Topology, Veth, inside, ip},
    say,
};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::{
    sys::{prctl, signal::Signal},
    unistd::{geteuid, getppid},
};
use std::{
    fs,
    path::{Path as FilePath, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Links of one emulator: each has four addresses of 192.0.2.0/24.
const LINKS: i64 = 64;
/// Packets that a device holds until they are read: some 0.2 s at 500 Mbit/s.
const DEVICE_QUEUE: &str = "10000";

/// Emulate a path between two network namespaces, until interrupted; then print what it did as JSON.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The path, such as rate=20M,rtt=50ms,buffer=0.5bdp,loss=0.5%.
    #[arg(long, value_name = "KEY=VALUE,…", required_unless_present = "check")]
    path: Option<Path>,
    /// Hold the emulator against known answers instead, and say whether it gives them.
    #[arg(long, conflicts_with_all = ["path", "links", "log", "seconds"])]
    check: bool,
    /// Links, alike and independent, each with addresses of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=LINKS))]
    links: u8,
    /// What is lost, held back and doubled depends on it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write down every packet, as CSV.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// End after so many seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// The server's core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_core: usize,
    /// The core of the client and of the emulator.
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_core: usize,
}

/// Sets a path up and waits.
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !geteuid().is_root() {
        bail!("needs root: it makes network namespaces");
    }
    interrupt::listen()?;
    let _guard = Guard::start()?;
    let network = Network::new(
        Topology::Path,
        SocketBuffers::Ample,
        (arguments.server_core, arguments.client_core),
        &Veth::default(),
    )?;
    let folder = tempfile::tempdir()?;
    if !Link::is_real_time() {
        say("no real-time priority (chrt): the emulator will be late whenever the machine has something to do");
    }
    let Some(path) = arguments.path.as_ref().filter(|_| !arguments.check) else {
        return check::check(&network, folder.path());
    };
    let links = Links { path, count: arguments.links, seed: arguments.seed, log: arguments.log.as_deref() };
    let mut link = Link::start_all(&network, &links, folder.path())?;
    for number in 0..arguments.links {
        let [server, client] = addresses(number);
        say(&format!(
            "link {number}: server {server} (ip netns exec {} …), client {client} (ip netns exec {} …)",
            network.server.namespace, network.client.namespace
        ));
    }
    // A day: no user emulates longer without a look.
    let time = Duration::from_secs(arguments.seconds.map_or(86_400, u64::from));
    let ended = interrupt::wait_for(time, || {
        link.check()?;
        Ok(None::<()>)
    });
    if interrupt::check().is_ok() {
        ended?;
    }
    let report = link.finish()?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    report.void.map_or(Ok(()), |void| bail!("void: {void}"))
}

/// The server's and the client's address of a link.
pub(crate) fn addresses(link: u8) -> [String; 2] {
    let first = u32::from(link) * 4;
    [1, 2].map(|host| format!("192.0.2.{}", first + host))
}

/// The emulator's process; on what core and at which priority, its starter decides.
#[derive(Debug, Args)]
pub(crate) struct EmulateArguments {
    #[arg(long)]
    path: Path,
    #[arg(long, value_name = "NAMESPACE")]
    server: String,
    #[arg(long, value_name = "NAMESPACE")]
    client: String,
    #[arg(long, value_name = "N")]
    server_core: usize,
    #[arg(long, value_name = "N")]
    client_core: usize,
    #[arg(long)]
    links: u8,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// The process ID of the lab.
    #[arg(long, value_name = "N")]
    lab: u32,
}

/// Emulates until SIGTERM, then writes the report; SIGUSR1 begins it anew, and SIGUSR2 its counts. SIGHUP has it write
/// the report so far, and begins its counts anew.
pub(crate) fn emulate(arguments: &EmulateArguments) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot be killed with the lab")?;
    // It may have gone before.
    if getppid().as_raw() != arguments.lab.cast_signed() {
        bail!("the lab is gone");
    }
    interrupt::listen()?;
    let [anew, count, report] =
        [signal_hook::consts::SIGUSR1, signal_hook::consts::SIGUSR2, signal_hook::consts::SIGHUP].map(|signal| {
            let raised = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&raised)).map(|_| raised)
        });
    let (anew, count, report) = (anew?, count?, report?);
    // Wakes are as exact as the timer, also where there is no real-time priority.
    prctl::set_timerslack(1)?;
    let mut devices = Vec::new();
    for number in 0..arguments.links {
        let sides = [(&arguments.server, arguments.server_core), (&arguments.client, arguments.client_core)];
        for ((namespace, core), address) in sides.into_iter().zip(addresses(number)) {
            devices.push(device(namespace, &format!("path{number}"), &address, core, arguments.path.super_packets)?);
        }
    }
    let log = arguments.log.as_deref().map(Log::create).transpose()?;
    let mut emulator = Emulator::new(devices, &arguments.path, arguments.seed, log);
    say(UP);
    let asked = || match () {
        () if interrupt::check().is_err() => Some(Asked::End),
        () if report.swap(false, Relaxed) => Some(Asked::Report),
        () if anew.swap(false, Relaxed) => Some(Asked::BeginAnew),
        () if count.swap(false, Relaxed) => Some(Asked::CountAnew),
        () => None,
    };
    // Its reader must not see a part of it.
    let unfinished = arguments.report.with_extension("unfinished");
    emulator.run(asked, |report| {
        fs::write(&unfinished, serde_json::to_string(report)?)
            .and_then(|()| fs::rename(&unfinished, &arguments.report))
            .context("cannot write the report")
    })
}

/// A device that is up and has an address. As for a veth pair, each side's soft interrupts go to that side's core.
fn device(namespace: &str, name: &str, address: &str, core: usize, super_packets: bool) -> Result<Tun> {
    let tun = Tun::new(namespace, name, super_packets)?;
    // Or the kernel looks for routers by packets of its own, from time to time.
    let ipv6 = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    inside(namespace, || if FilePath::new(&ipv6).exists() { Ok(fs::write(&ipv6, "1")?) } else { Ok(()) })?;
    ip(&["-n", namespace, "addr", "add", &format!("{address}/30"), "dev", name])?;
    ip(&["-n", namespace, "link", "set", name, "mtu", "1500", "txqueuelen", DEVICE_QUEUE, "up"])?;
    let steer = format!("echo {:x} >/sys/class/net/{name}/queues/rx-0/rps_cpus", 1_u64 << core.min(63));
    ip(&["netns", "exec", namespace, "sh", "-c", &steer])?;
    Ok(tun)
}
