//! A cgroup of the lab's own, version 1 or 2, until it is dropped: a limit of memory, a quota of CPU time or none, and
//! what the kernel says of it (cgroups(7); the kernel's admin-guide, cgroup-v2 and cgroup-v1).

use super::procfs;
use anyhow::{Context as _, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Where both versions are mounted, by custom; a controller of version 1 in a folder of its name.
const ROOT: &str = "/sys/fs/cgroup";
/// Period of a quota that lets no packet wait for long. The kernel's default is ten times as long.
pub(crate) const SHORT_PERIOD: Duration = Duration::from_millis(10);
/// The kernel's default period, and Docker's.
pub(crate) const DEFAULT_PERIOD: Duration = Duration::from_millis(100);
/// What groups of the lab are called; the process ID of the lab follows.
const PREFIX: &str = "litequic-lab-";
/// A group is removed once its last process is gone, which may take a moment.
const REMOVALS: u32 = 50;
const REMOVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// What a cgroup limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// Bytes.
    Memory(u64),
    /// A share of one core, given anew each period: 0.2 is 2 ms in each 10 ms.
    Cpu(f64, Duration),
    /// Nothing: CPU time is counted, to the nanosecond. The name is the group's.
    Nothing(&'static str),
}

impl Limit {
    fn controller(self, version: Version) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Cpu(..) => "cpu",
            Self::Nothing(_) if version == Version::One => "cpuacct",
            Self::Nothing(_) => "cpu",
        }
    }

    /// What is added to the name of a lab's group.
    fn suffix(self) -> String {
        if let Self::Nothing(name) = self { format!("-{name}") } else { String::new() }
    }

    /// What is written into which file.
    fn files(self, version: Version) -> Vec<(&'static str, String)> {
        match (self, version) {
            (Self::Nothing(_), _) => Vec::new(),
            (Self::Memory(bytes), Version::One) => vec![("memory.limit_in_bytes", bytes.to_string())],
            (Self::Memory(bytes), Version::Two) => vec![("memory.max", bytes.to_string())],
            (Self::Cpu(share, period), version) => {
                let period = period.as_micros();
                let quota = format!("{:.0}", share * period as f64);
                match version {
                    Version::One => vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota)],
                    Version::Two => vec![("cpu.max", format!("{quota} {period}"))],
                }
            }
        }
    }
}

/// A cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    version: Version,
}

/// Its memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All that is charged.
    pub(crate) charged: u64,
    /// Of this pages of files that the kernel can drop at once.
    pub(crate) droppable: u64,
}

impl Cgroup {
    /// Makes one.
    pub(crate) fn new(limit: Limit) -> Result<Self> {
        let controller = limit.controller(Version::One);
        let own = Path::new(ROOT).join(controller);
        let both = limit.controller(Version::Two);
        let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers"));
        let (version, root) = if own.join("cgroup.procs").exists() {
            (Version::One, own)
        } else if controllers.is_ok_and(|all| all.split_ascii_whitespace().any(|one| one == both)) {
            (Version::Two, Path::new(ROOT).to_owned())
        } else {
            bail!("there are no {controller} cgroups at {} or {ROOT}", own.display());
        };
        sweep(&root);
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), format!("+{both}"))
                .with_context(|| format!("cannot delegate {both} to cgroups"))?;
        }
        let folder = root.join(format!("{PREFIX}{}{}", std::process::id(), limit.suffix()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // From here on dropping it cleans up.
        let group = Self { folder, version };
        for (file, value) in limit.files(version) {
            fs::write(group.folder.join(file), &value).with_context(|| format!("cannot write {value} to {file}"))?;
        }
        Ok(group)
    }

    /// Where the ID of a process is written to have it join.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The group's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What reads its usage, for another thread.
    pub(crate) fn usage(&self) -> impl Fn() -> Option<Usage> + Send + 'static {
        let version = self.version;
        let charged = if version == Version::One { "memory.usage_in_bytes" } else { "memory.current" };
        let (charged, stat) = (self.folder.join(charged), self.folder.join("memory.stat"));
        move || {
            let charged = fs::read_to_string(&charged).ok()?.trim().parse().ok()?;
            let droppable = droppable(version, &fs::read_to_string(&stat).ok()?).unwrap_or_default();
            Some(Usage { charged, droppable })
        }
    }

    /// Seconds for which its quota kept its processes from running.
    pub(crate) fn throttled(&self) -> Option<f64> {
        let stat = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        let (name, unit) =
            if self.version == Version::One { ("throttled_time", 1e-9) } else { ("throttled_usec", 1e-6) };
        procfs::pair(&stat, name).map(|time| time as f64 * unit)
    }

    /// Processes that the kernel ended for want of memory.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        procfs::pair(&fs::read_to_string(self.folder.join(file)).ok()?, "oom_kill")
    }
}

/// CPU seconds of all processes that are or were in the group of a folder.
pub(crate) fn cpu(folder: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let nanoseconds = || Some(read("cpuacct.usage")?.trim().parse::<f64>().ok()? * 1e-9);
    nanoseconds().or_else(|| procfs::pair(&read("cpu.stat")?, "usage_usec").map(|time| time as f64 * 1e-6))
}

/// Of a `memory.stat` the pages of files that have not been used for a while, with those of groups in it.
fn droppable(version: Version, stat: &str) -> Option<u64> {
    procfs::pair(stat, if version == Version::One { "total_inactive_file" } else { "inactive_file" })
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(REMOVAL);
        }
    }
}

/// Removes the groups of labs that are gone.
fn sweep(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // With a process in it, it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_share_of_each_period() {
        let files = |limit: Limit, version| -> Vec<String> {
            limit.files(version).into_iter().map(|(file, value)| format!("{file}={value}")).collect()
        };
        assert_eq!(
            files(Limit::Cpu(0.2, SHORT_PERIOD), Version::One),
            ["cpu.cfs_period_us=10000", "cpu.cfs_quota_us=2000"]
        );
        assert_eq!(files(Limit::Cpu(0.2, SHORT_PERIOD), Version::Two), ["cpu.max=2000 10000"]);
        assert_eq!(files(Limit::Memory(4096), Version::Two), ["memory.max=4096"]);
    }

    #[test]
    fn cpu_time_is_read_of_either_version() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cpu(folder.path()), None);
        fs::write(folder.path().join("cpu.stat"), "usage_usec 2500000\nuser_usec 1\n").unwrap();
        assert_eq!(cpu(folder.path()), Some(2.5));
        fs::write(folder.path().join("cpuacct.usage"), "1500000000\n").unwrap();
        assert_eq!(cpu(folder.path()), Some(1.5));
    }

    #[test]
    fn both_versions_say_what_the_kernel_can_drop() {
        let (one, two) = ("cache 9\ninactive_file 5\ntotal_inactive_file 7\n", "anon 9\ninactive_file 5\n");
        assert_eq!((droppable(Version::One, one), droppable(Version::Two, two)), (Some(7), Some(5)));
        assert_eq!(droppable(Version::One, two), None);
    }
}
