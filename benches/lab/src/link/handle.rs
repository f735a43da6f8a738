//! A running emulator, as the lab sees it: a process of its own, at a real-time priority where that is allowed, whose
//! report comes when it ends.

use super::{Path, Report};
use crate::bench::{
    interrupt,
    namespace::Network,
    process::{self, Server},
};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path as FilePath, PathBuf},
    process::{Command, Stdio, id},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

/// Above the rival for the servers' core, below the kernel's own threads.
const PRIORITY: &str = "10";
/// For devices to be made and configured.
const BEGIN: Duration = Duration::from_secs(10);
/// For the report to be written.
const END: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// The emulator's line when its links are up.
pub(super) const UP: &str = "the links are up";

/// Whether this machine lets a process have a real-time priority.
static REAL_TIME: LazyLock<bool> = LazyLock::new(|| {
    let mut command = Command::new("chrt");
    command.args(["--fifo", PRIORITY, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
});

/// What is emulated.
#[derive(Debug, Clone)]
pub(crate) struct Links<'a> {
    pub(crate) path: &'a Path,
    /// How many, each with addresses of its own.
    pub(crate) count: u8,
    pub(crate) seed: u64,
    /// Where every packet is written down.
    pub(crate) log: Option<&'a FilePath>,
}

/// Links between a network's namespaces, until it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    server: Server,
    report: PathBuf,
}

impl Link {
    /// Whether emulators get a real-time priority: without one they are late whenever the machine has something to do.
    pub(crate) fn is_real_time() -> bool {
        *REAL_TIME
    }

    /// One link between the network's namespaces; `folder` takes its files, `log` every packet.
    pub(crate) fn start(network: &Network, path: &Path, log: Option<&FilePath>, folder: &FilePath) -> Result<Self> {
        Self::start_all(network, &Links { path, count: 1, seed: 1, log }, folder)
    }

    /// Any number of links.
    pub(crate) fn start_all(network: &Network, links: &Links, folder: &FilePath) -> Result<Self> {
        let report = folder.join("link.json");
        let mut arguments: Vec<String> = Vec::new();
        if Self::is_real_time() {
            arguments.extend(["chrt", "--fifo", PRIORITY].map(str::to_owned));
        }
        arguments.extend([env::current_exe()?.display().to_string(), "emulate".to_owned()]);
        let mut put = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        put("--path", links.path.to_string());
        put("--links", links.count.to_string());
        put("--seed", links.seed.to_string());
        put("--server", network.server.namespace.clone());
        put("--client", network.client.namespace.clone());
        put("--server-core", network.server_core.to_string());
        put("--client-core", network.client_core.to_string());
        put("--report", report.display().to_string());
        put("--lab", id().to_string());
        if let Some(log) = links.log {
            put("--log", log.display().to_string());
        }
        let core = network.client_core.to_string();
        let command = process::command(&network.server, &core, &arguments, &BTreeMap::new());
        let mut link = Self { server: Server::start("the link", command, folder.join("link.log"))?, report };
        let up = interrupt::wait_for(BEGIN, || {
            link.server.check()?;
            Ok(link.server.quote().contains(UP).then_some(()))
        })?;
        if up.is_none() {
            bail!("the link does not come up; its log: {}", link.server.quote());
        }
        Ok(link)
    }

    /// Its CPU time so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.server.cpu().total()
    }

    /// An error once it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.server.check()
    }

    /// From here on what it counts is reported; draws and traces begin anew.
    pub(crate) fn begin_anew(&self) -> Result<()> {
        killpg(self.server.group(), Signal::SIGUSR1).context("the link is gone")
    }

    /// From here on what it counts is reported; draws and traces go on.
    pub(crate) fn count_anew(&self) -> Result<()> {
        killpg(self.server.group(), Signal::SIGUSR2).context("the link is gone")
    }

    /// What it did since it began to count; its counts begin anew.
    pub(crate) fn report(&mut self) -> Result<Report> {
        let _ = fs::remove_file(&self.report);
        killpg(self.server.group(), Signal::SIGHUP).context("the link is gone")?;
        let text = interrupt::wait_for(END, || {
            self.server.check()?;
            Ok(fs::read_to_string(&self.report).ok())
        })?
        .context("the link does not report")?;
        serde_json::from_str(&text).context("the link's report")
    }

    /// Ends it; what it did.
    pub(crate) fn finish(mut self) -> Result<Report> {
        killpg(self.server.group(), Signal::SIGTERM).context("the link is gone")?;
        // Also on the way out after a signal: not through `wait_for`, which that ends.
        let end = Instant::now() + END;
        while self.server.check().is_ok() {
            if Instant::now() >= end {
                bail!("the link does not end");
            }
            thread::sleep(LOOK);
        }
        let text = fs::read_to_string(&self.report)
            .with_context(|| format!("the link left no report; its log: {}", self.server.quote()))?;
        serde_json::from_str(&text).context("the link's report")
    }
}
