//! A memory cgroup of the lab's own, version 1 or 2, until it is dropped: a limit, and what the kernel says of it.

use super::procfs;
use anyhow::{Context as _, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Where both versions are mounted, by custom.
const ROOT_V1: &str = "/sys/fs/cgroup/memory";
const ROOT_V2: &str = "/sys/fs/cgroup";
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

/// A memory cgroup.
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
    /// Makes one with a limit in bytes.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        let (version, root) = if Path::new(ROOT_V1).join("memory.limit_in_bytes").exists() {
            (Version::One, Path::new(ROOT_V1))
        } else if fs::read_to_string(Path::new(ROOT_V2).join("cgroup.controllers"))
            .is_ok_and(|all| all.split_ascii_whitespace().any(|one| one == "memory"))
        {
            (Version::Two, Path::new(ROOT_V2))
        } else {
            bail!("there are no memory cgroups at {ROOT_V1} or {ROOT_V2}");
        };
        sweep(root);
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), "+memory").context("cannot delegate memory to cgroups")?;
        }
        let folder = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // From here on dropping it cleans up.
        let group = Self { folder, version };
        let file = if version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(group.folder.join(file), limit.to_string()).context("cannot limit a cgroup's memory")?;
        Ok(group)
    }

    /// Where the ID of a process is written to have it join.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
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

    /// Processes that the kernel ended for want of memory.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        procfs::pair(&fs::read_to_string(self.folder.join(file)).ok()?, "oom_kill")
    }
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
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
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
    fn both_versions_say_what_the_kernel_can_drop() {
        let (one, two) = ("cache 9\ninactive_file 5\ntotal_inactive_file 7\n", "anon 9\ninactive_file 5\n");
        assert_eq!((droppable(Version::One, one), droppable(Version::Two, two)), (Some(7), Some(5)));
        assert_eq!(droppable(Version::One, two), None);
    }
}
