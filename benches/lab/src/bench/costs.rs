//! What a client and the two cores did until now: read at a download's first byte and at its last one, it is what the
//! download cost, without the client's start and end.

use super::{
    cgroup,
    namespace::{Namespace, inside},
    process, procfs,
};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    ops::Sub,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A server whose core is busier than this limits the download itself, percent.
const SERVER_LIMITS: f64 = 85.0;

/// Where costs are read.
#[derive(Debug, Clone, Args)]
pub(crate) struct Meter {
    /// The client's cgroup.
    #[arg(long = "cgroup", value_name = "FOLDER", required = false)]
    pub(crate) folder: PathBuf,
    /// The core of the server,
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) server_core: usize,
    /// and that of the client.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) client_core: usize,
}

/// What was done until a moment, or between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// Seconds since the Unix epoch, or between the two moments.
    seconds: f64,
    /// CPU seconds of the client's processes.
    cpu: f64,
    /// Seconds for which the client's core was busy, those in interrupts, and those of the server's.
    client_core: f64,
    interrupts: f64,
    server_core: f64,
    /// How often the client's threads slept and were woken.
    wakes: f64,
    /// Messages that its sockets dropped.
    drops: f64,
    /// Packets that its device handed to the kernel, and that it sent: with offloads one may be many.
    received: f64,
    sent: f64,
}

impl Meter {
    /// Reads it in the namespace of the client.
    pub(crate) fn read(&self) -> Result<Costs> {
        let net = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let drops = procfs::snmp(&net("snmp")?, "Udp", "RcvbufErrors").context("no RcvbufErrors")?;
        let (received, sent) = procfs::packets(&net("dev")?);
        let (client, server) = (process::core_times(self.client_core)?, process::core_times(self.server_core)?);
        Ok(Costs {
            seconds: SystemTime::now().duration_since(UNIX_EPOCH).as_ref().map_or(0.0, Duration::as_secs_f64),
            cpu: cgroup::cpu(&self.folder).context("the client's cgroup has no CPU time")?,
            client_core: client.with_nice().busy,
            interrupts: client.interrupts,
            server_core: server.with_nice().busy,
            wakes: wakes(&self.folder) as f64,
            drops: drops as f64,
            received: received as f64,
            sent: sent as f64,
        })
    }

    /// Reads costs in the client's namespace, `place`, for a process that runs in another.
    pub(crate) fn read_in(&self, place: &Namespace) -> Result<Costs> {
        inside(&place.namespace, || self.read())
    }

    /// Options of a command line that say the same.
    pub(crate) fn options(&self) -> [(&'static str, String); 3] {
        [
            ("--cgroup", self.folder.display().to_string()),
            ("--server-core", self.server_core.to_string()),
            ("--client-core", self.client_core.to_string()),
        ]
    }

    /// Moves this process into the client's cgroup, for a child that it starts to be there from the beginning.
    pub(crate) fn join(&self) -> Result<()> {
        move_to(&self.folder)
    }

    /// Moves it out of there.
    pub(crate) fn leave(&self) -> Result<()> {
        move_to(self.folder.parent().context("the root cgroup is no client's")?)
    }
}

fn move_to(folder: &Path) -> Result<()> {
    fs::write(folder.join("cgroup.procs"), std::process::id().to_string())
        .with_context(|| format!("cannot join {}", folder.display()))
}

/// How often threads slept and were woken: of the processes in a cgroup, and of this one's children that ended.
fn wakes(folder: &Path) -> u64 {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let living: u64 = processes.lines().filter_map(|pid| pid.parse().ok()).map(process::wakes).sum();
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.voluntary_context_switches());
    living + u64::try_from(ended).unwrap_or_default()
}

impl Sub for Costs {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            seconds: self.seconds - other.seconds,
            cpu: self.cpu - other.cpu,
            client_core: self.client_core - other.client_core,
            interrupts: self.interrupts - other.interrupts,
            server_core: self.server_core - other.server_core,
            wakes: self.wakes - other.wakes,
            drops: self.drops - other.drops,
            received: self.received - other.received,
            sent: self.sent - other.sent,
        }
    }
}

impl Costs {
    /// The wakes of a client that ended, whose threads are gone when it was read: those that its parent has counted
    /// since.
    pub(crate) fn with_wakes_of(self, later: Self) -> Self {
        Self { wakes: later.wakes, ..self }
    }

    /// Whether the client ended since then.
    pub(crate) fn lacks_wakes_of(self, earlier: Self) -> bool {
        self.wakes < earlier.wakes
    }

    /// Figures of a download of so many bytes.
    pub(crate) fn figures(self, bytes: f64) -> BTreeMap<String, f64> {
        let (gigabytes, megabytes) = (bytes / 1e9, bytes / 1e6);
        let percent = |busy: f64| 100.0 * busy / self.seconds;
        let figures = [
            ("receiver_cpu", self.cpu / gigabytes),
            ("receiver_interrupts", self.interrupts / gigabytes),
            ("receiver_core", percent(self.client_core)),
            ("server_core", percent(self.server_core)),
            ("receiver_wakes", self.wakes / megabytes),
            ("receiver_sent", self.sent / megabytes),
            ("receiver_packets", self.received / megabytes),
            ("client_drops", self.drops),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// An error: the server was the limit of a download of such figures, and it says nothing of the client.
pub(crate) fn verify(figures: &BTreeMap<String, f64>) -> Result<()> {
    match figures.get("server_core") {
        Some(busy) if *busy > SERVER_LIMITS => {
            bail!("the server's core was {busy:.0} % busy, more than {SERVER_LIMITS:.0} %")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_between_two_moments_by_the_bytes() {
        let before = Costs { seconds: 10.0, cpu: 1.0, sent: 100.0, ..Costs::default() };
        let after = Costs { seconds: 12.0, cpu: 1.5, sent: 300.0, client_core: 1.9, drops: 7.0, ..Costs::default() };
        let figures = (after - before).figures(2e8);
        let expected = [("receiver_cpu", 2.5), ("receiver_sent", 1.0), ("receiver_core", 95.0), ("client_drops", 7.0)];
        for (name, value) in expected {
            assert!((figures[name] - value).abs() < 1e-9, "{name}: {figures:?}");
        }
        for name in figures.keys() {
            assert!(crate::report::figures::is_shown(name), "{name}");
        }
    }

    #[test]
    fn a_download_that_the_server_limits_is_void() {
        let costs = |server_core| Costs { seconds: 1.0, server_core, ..Costs::default() };
        assert!(verify(&costs(0.85).figures(1e6)).is_ok());
        let error = verify(&costs(0.9).figures(1e6)).unwrap_err().to_string();
        assert_eq!(error, "the server's core was 90 % busy, more than 85 %");
    }
}
