//! Where the packets go: network namespaces of the lab's own, without a way out.
//!
//! `lo`: server, origin and client are in one, on its loopback with MTU 1500 (at the usual 65536 a server that probes
//! the path MTU sends jumbo datagrams and looks far cheaper than on any network). The receiver's soft interrupts run on
//! the sender's core and are charged to it. `veth`: the client is in a second one, across a veth pair with MTU 1500
//! whose receive packet steering gives each side's soft interrupts to that side's core. `path`: as `veth`, but what
//! joins them is made for each run: a link emulator (`link`) with a rate, a buffer and a delay.

use super::procfs;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// What namespaces of the lab are called: this, the process ID of the lab that made them, a side.
const PREFIX: &str = "litequic-lab-";
/// What a lab's program is called, at its beginning.
const PROGRAM: &str = "litequic-lab";
/// Where iproute2 keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// What the lab changed of the machine, to be restored even after a crash, and which lab.
const SAVED: &str = "/run/litequic-lab.sysctl";
/// The line of [`SAVED`] with the process ID of the lab begins so.
const SAVED_BY: &str = "lab ";
/// For killed processes of a namespace to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// The time between two looks whether a namespace's processes are gone.
const LOOK: Duration = Duration::from_millis(10);
/// The machine's, not a namespace's.
const SYSCTLS: [&str; 3] =
    ["/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max", "/proc/sys/net/core/rmem_default"];
/// The congestion controls that a namespace may choose from, which only the machine can say.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// The congestion control that distributions choose. A machine may have another, which a namespace would take over.
const USUAL: &str = "cubic";
/// A namespace's own. 10,000 connections of one client each need a port; a listen queue holds them. TCP's windows grow
/// to 32 MB, as QUIC's do here, and no connection begins with what an earlier one learnt of the path.
const OWN_SYSCTLS: [(&str, &str); 5] = [
    ("net/ipv4/ip_local_port_range", "1024 65000"),
    ("net/core/somaxconn", "4096"),
    ("net/ipv4/tcp_rmem", "4096 131072 33554432"),
    ("net/ipv4/tcp_wmem", "4096 65536 33554432"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
];

/// The path between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topology {
    /// One namespace, its loopback with MTU 1500.
    Lo,
    /// Two namespaces, a veth pair between them with MTU 1500.
    Veth,
    /// Two namespaces, an emulated link between them with MTU 1500.
    Path,
}

/// How large sockets' buffers are, and may become: the machine's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketBuffers {
    /// Receive buffers that a busy client does not overflow, as on a host tuned for QUIC.
    Ample,
    /// The kernel's defaults, as distributions have them (udp(7)).
    Default,
}

impl SocketBuffers {
    /// Values for [`SYSCTLS`].
    fn sysctls(self) -> [(&'static str, &'static str); 3] {
        let [receive, send, default] = SYSCTLS;
        match self {
            Self::Ample => [(receive, "16777216"), (send, "16777216"), (default, "4194304")],
            Self::Default => SYSCTLS.map(|path| (path, "212992")),
        }
    }
}

/// How fast a veth pair is, and how packets leave its server's side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VethShape {
    /// The rate to the client, Mbit/s, by the kernel's token bucket (tc-tbf(8)): a megabit of burst, and a buffer of
    /// 100 ms. `None`: as fast as the cores are.
    pub(crate) rate: Option<u64>,
    /// Microseconds of a round trip that the client's side adds (tc-netem(8)).
    pub(crate) round_trip: u32,
    /// The server's kernel cuts messages into packets, as for a network card that cannot.
    pub(crate) is_segmented: bool,
}

/// What a veth pair does for its receivers.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Veth {
    /// Join neighbours of a flow where they arrive (needs ethtool).
    #[arg(long = "veth-gro")]
    pub(crate) gro: bool,
    /// For how long GRO may wait for more.
    #[arg(long = "veth-gro-flush-timeout", value_name = "NANOSECONDS")]
    pub(crate) gro_flush_timeout: Option<u32>,
}

/// A namespace.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    /// Its name.
    pub(crate) namespace: String,
}

/// The namespaces, until they are dropped.
#[derive(Debug)]
pub(crate) struct Network {
    /// Where servers and the origin are.
    pub(crate) server: Namespace,
    /// Where the client is.
    pub(crate) client: Namespace,
    /// The servers' address.
    pub(crate) address: &'static str,
    /// What joins them.
    pub(crate) topology: Topology,
    /// The sockets' buffers.
    buffers: SocketBuffers,
    /// The shape of a veth pair.
    shape: VethShape,
    /// The cores that get the soft interrupts of their sides.
    pub(crate) server_core: usize,
    pub(crate) client_core: usize,
}

impl Network {
    /// Makes them; `server_core` and `client_core` get the soft interrupts of their side of a veth pair or a link. What
    /// a lab that crashed left behind goes first.
    pub(crate) fn new(
        topology: Topology,
        buffers: SocketBuffers,
        (server_core, client_core): (usize, usize),
        veth: &Veth,
    ) -> Result<Self> {
        sweep()?;
        let place = |side: &str| Namespace { namespace: format!("{PREFIX}{}-{side}", std::process::id()) };
        let (server, address) = (place("server"), if topology == Topology::Lo { "127.0.0.1" } else { "192.0.2.1" });
        let client = if topology == Topology::Lo { server.clone() } else { place("client") };
        // From here on dropping it cleans up.
        let network =
            Self { server, client, address, topology, buffers, shape: VethShape::default(), server_core, client_core };
        for namespace in network.namespaces() {
            ip(&["netns", "add", namespace])?;
            ip(&["-n", namespace, "link", "set", "lo", "mtu", "1500", "up"])?;
        }
        if topology == Topology::Veth {
            network.join(veth)?;
        }
        network.tune()?;
        network.control_congestion(None)?;
        Ok(network)
    }

    /// Whether this is the topology, and these are the buffers.
    pub(crate) fn is(&self, topology: Topology, buffers: SocketBuffers) -> bool {
        (topology, buffers) == (self.topology, self.buffers)
    }

    /// The same with another topology or other buffers: what was there goes first, with every process in it.
    pub(crate) fn change(&mut self, topology: Topology, buffers: SocketBuffers, veth: &Veth) -> Result<()> {
        if !self.is(topology, buffers) {
            self.remove();
            // What is replaced has nothing left to remove.
            let fresh = Self::new(topology, buffers, (self.server_core, self.client_core), veth)?;
            std::mem::forget(std::mem::replace(self, fresh));
        }
        Ok(())
    }

    fn remove(&self) {
        self.namespaces().into_iter().for_each(remove);
        restore();
    }

    /// Whether the kernel has a congestion control of TCP.
    pub(crate) fn has_congestion_control(name: &str) -> bool {
        fs::read_to_string(AVAILABLE).is_ok_and(|all| all.split_ascii_whitespace().any(|one| one == name))
    }

    /// From here on TCP connections of the servers' side have this congestion control, or the usual one as far as the
    /// kernel has it.
    pub(crate) fn control_congestion(&self, name: Option<&str>) -> Result<()> {
        const CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
        let Some(name) = name.or_else(|| Self::has_congestion_control(USUAL).then_some(USUAL)) else { return Ok(()) };
        inside(&self.server.namespace, || {
            fs::write(CONTROL, name).with_context(|| format!("cannot choose TCP's congestion control {name}"))?;
            let chosen = fs::read_to_string(CONTROL)?;
            if chosen.trim() != name {
                bail!("TCP's congestion control is {} rather than {name}", chosen.trim());
            }
            Ok(())
        })
    }

    fn join(&self, veth: &Veth) -> Result<()> {
        let (server, client) = (self.server.namespace.as_str(), self.client.namespace.as_str());
        let peer = ["peer", "name", "client", "mtu", "1500", "netns", client];
        ip(&[&["-n", server, "link", "add", "server", "mtu", "1500", "type", "veth"], peer.as_slice()].concat())?;
        for (namespace, link, address, core) in
            [(server, "server", "192.0.2.1/30", self.server_core), (client, "client", "192.0.2.2/30", self.client_core)]
        {
            ip(&["-n", namespace, "addr", "add", address, "dev", link])?;
            ip(&["-n", namespace, "link", "set", link, "up"])?;
            let steer = format!("echo {:x} >/sys/class/net/{link}/queues/rx-0/rps_cpus", 1_u64 << core.min(63));
            ip(&["netns", "exec", namespace, "sh", "-c", &steer])?;
            if veth.gro {
                ip(&["netns", "exec", namespace, "ethtool", "-K", link, "gro", "on"]).context("--veth-gro")?;
            }
            if let Some(nanoseconds) = veth.gro_flush_timeout {
                let flush = format!("echo {nanoseconds} >/sys/class/net/{link}/gro_flush_timeout");
                ip(&["netns", "exec", namespace, "sh", "-c", &flush]).context("--veth-gro-flush-timeout")?;
            }
        }
        Ok(())
    }

    /// Gives a veth pair its shape.
    pub(crate) fn shape(&mut self, shape: VethShape) -> Result<()> {
        if self.shape == shape {
            return Ok(());
        }
        let VethShape { rate, round_trip, is_segmented } = shape;
        // linux/netdevice.h: GSO_MAX_SEGS.
        let segments = if is_segmented { "1" } else { "65535" };
        ip(&["-n", &self.server.namespace, "link", "set", "server", "gso_max_segs", segments])?;
        let place = ["-n", &self.client.namespace, "qdisc", "replace", "dev", "client", "root"];
        match round_trip {
            0 => run("tc", &[place.as_slice(), &["noqueue"]].concat())?,
            us => run("tc", &[place.as_slice(), &["netem", "delay", &format!("{us}us"), "limit", "100000"]].concat())?,
        };
        let place = ["-n", &self.server.namespace, "qdisc", "replace", "dev", "server", "root"];
        match rate {
            None => run("tc", &[place.as_slice(), &["noqueue"]].concat())?,
            Some(mbit) => {
                let bucket = ["tbf", "rate", &format!("{mbit}mbit"), "burst", "125kb", "latency", "100ms"];
                run("tc", &[place.as_slice(), &bucket].concat())?
            }
        };
        self.shape = shape;
        Ok(())
    }

    fn tune(&self) -> Result<()> {
        let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
        let allowed = (!available.is_empty()).then_some((ALLOWED, available.trim()));
        let sysctls: Vec<(&str, &str)> = self.buffers.sysctls().into_iter().chain(allowed).collect();
        let mut saved = format!("{SAVED_BY}{}\n", std::process::id());
        for (path, _) in &sysctls {
            saved += &format!("{path} {}\n", fs::read_to_string(path)?.trim());
        }
        fs::write(SAVED, saved).with_context(|| format!("cannot write {SAVED}"))?;
        for (path, value) in sysctls {
            fs::write(path, value).with_context(|| format!("cannot write {path}"))?;
        }
        for namespace in self.namespaces() {
            inside(namespace, || {
                for (name, value) in OWN_SYSCTLS {
                    let path = Path::new("/proc/sys").join(name);
                    fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn namespaces(&self) -> Vec<&str> {
        let mut names = vec![self.server.namespace.as_str(), self.client.namespace.as_str()];
        names.dedup();
        names
    }

    /// Makes every address of these IPv6 networks an address of the client's side, which programs can bind to: a local
    /// route each (AnyIP), and binding to addresses that no interface has.
    pub(crate) fn own_networks(&self, networks: &[&str]) -> Result<()> {
        const BIND: &str = "/proc/sys/net/ipv6/ip_nonlocal_bind";
        let namespace = &self.client.namespace;
        inside(namespace, || fs::write(BIND, "1").with_context(|| format!("cannot write {BIND}")))?;
        for network in networks {
            ip(&["-n", namespace, "-6", "route", "replace", "local", network, "dev", "lo"])?;
        }
        Ok(())
    }

    /// Datagrams lost so far to full receive buffers, on either side.
    pub(crate) fn drops(&self) -> Result<u64> {
        self.namespaces().into_iter().map(|namespace| udp(namespace, "RcvbufErrors")).sum()
    }

    /// Datagrams that sockets at a port of the servers' side have dropped, as long as they are open.
    pub(crate) fn drops_at(&self, port: u16) -> Result<u64> {
        let sockets = inside(&self.server.namespace, || Ok(fs::read_to_string("/proc/thread-self/net/udp")?))?;
        Ok(procfs::drops_at(&sockets, port))
    }

    /// At how many addresses of the servers' side there is a socket at a port: UDP, or TCP that listens.
    pub(crate) fn listening_at(&self, port: u16, tcp: bool) -> Result<usize> {
        let file = if tcp { "tcp" } else { "udp" };
        let sockets = inside(&self.server.namespace, || {
            let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            // Without IPv6 there is only the first.
            Ok(read(file)? + &read(&format!("{file}6")).unwrap_or_default())
        })?;
        Ok(procfs::addresses_at(&sockets, port, tcp))
    }

    /// Messages that the servers' side gave to UDP so far: with GSO one is many datagrams.
    pub(crate) fn datagrams_sent(&self) -> Result<u64> {
        udp(&self.server.namespace, "OutDatagrams")
    }
}

/// A counter of UDP in a namespace.
fn udp(namespace: &str, counter: &str) -> Result<u64> {
    // Which namespace /proc/net shows is the thread's business.
    let text = inside(namespace, || Ok(fs::read_to_string("/proc/thread-self/net/snmp")?))?;
    procfs::snmp(&text, "Udp", counter).with_context(|| format!("/proc/net/snmp has no {counter}"))
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes what labs that are no longer alive left: processes in their namespaces, the namespaces, the sysctls. Refuses
/// to go on beside a lab that is alive: two would measure each other.
fn sweep() -> Result<()> {
    let entries = fs::read_dir(NAMESPACES).map(|entries| entries.filter_map(Result::ok).collect()).unwrap_or_default();
    let entries: Vec<fs::DirEntry> = entries;
    for name in entries.iter().filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(owner) = owner(&name) else { continue };
        if owner.cast_signed() != std::process::id().cast_signed() && is_lab(owner) {
            bail!("another litequic-lab is measuring (process {owner})");
        }
        remove(&name);
    }
    restore();
    Ok(())
}

/// The process that made a namespace, if it is a lab's.
fn owner(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Whether a process is a lab, whatever is added to its program's name, as of another build beside the first.
fn is_lab(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(PROGRAM))
}

/// Removes what a lab that has ended left. Beside another lab, which may have begun since then, that is nothing of the
/// machine's.
pub(crate) fn remove_all_of(lab: u32) {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().filter_map(Result::ok) {
        if let Ok(name) = entry.file_name().into_string()
            && owner(&name) == Some(lab)
        {
            remove(&name);
        }
    }
    let by = format!("{SAVED_BY}{lab}");
    if fs::read_to_string(SAVED).is_ok_and(|saved| saved.lines().any(|line| line == by)) {
        restore();
    }
}

/// Ends every process in a namespace, then removes it. What cannot be removed is left to the next lab's sweep.
fn remove(namespace: &str) {
    if !Path::new(NAMESPACES).join(namespace).exists() {
        return;
    }
    let end = Instant::now() + KILL_PATIENCE;
    loop {
        let pids = ip(&["netns", "pids", namespace]).unwrap_or_default();
        for pid in pids.lines().filter_map(|line| line.trim().parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // Once the namespace is removed, no process in it can be found.
        if pids.is_empty() || Instant::now() >= end {
            break;
        }
        thread::sleep(LOOK);
    }
    let _ = ip(&["netns", "del", namespace]);
}

/// Puts the machine's sysctls back.
fn restore() {
    let Ok(saved) = fs::read_to_string(SAVED) else { return };
    for (path, value) in saved.lines().filter_map(|line| line.split_once(' ')) {
        if path == ALLOWED || SYSCTLS.contains(&path) {
            let _ = fs::write(path, value);
        }
    }
    let _ = fs::remove_file(SAVED);
}

/// Runs something in a named namespace: on a thread of its own, which alone changes its namespace.
pub(crate) fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let file = Path::new(NAMESPACES).join(namespace);
    let file = fs::File::open(&file).with_context(|| format!("there is no namespace {namespace}"))?;
    thread::scope(|scope| {
        let work = || {
            setns(&file, CloneFlags::CLONE_NEWNET).context("cannot enter the namespace")?;
            work()
        };
        scope.spawn(work).join().unwrap_or_else(|_| bail!("a thread panicked"))
    })
}

/// Runs `ip`; what it printed.
pub(crate) fn ip(arguments: &[&str]) -> Result<String> {
    run("ip", arguments)
}

/// Runs a program of iproute2's; what it printed.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    // Not through `finish`'s look at signals: this also runs on the way out.
    let output = command.output().with_context(|| format!("cannot run {program} (iproute2)"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_labs_have_an_owner() {
        assert_eq!(owner("litequic-lab-4711-server"), Some(4711));
        assert_eq!(owner("litequic-lab-x-server"), None);
        assert_eq!(owner("h3srv"), None);
        assert_eq!(owner("my-litequic-lab-4711"), None);
    }

    #[test]
    fn a_reused_pid_is_no_laboratory() {
        assert!(!is_lab(1));
        assert!(!is_lab(u32::MAX));
    }

    #[test]
    fn another_build_of_the_laboratory_is_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("litequic-lab-new");
        fs::copy("/bin/sleep", &other).unwrap();
        let mut child = Command::new(&other).arg("1000").spawn().unwrap();
        // The kernel lets spawn return before it has given the process its new name (exec_mmap, then __set_task_comm).
        let found = (0..1_000).any(|_| {
            let found = is_lab(child.id());
            thread::sleep(Duration::from_millis(u64::from(!found)));
            found
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }
}
