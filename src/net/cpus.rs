//! How many workers this process should have, and where they run: the affinity mask, bounded by the cgroup's quota.

use super::sys;
use std::{
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
};

/// Where the cgroup file systems are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// The cgroups that this process is in.
const OWN_CGROUPS: &str = "/proc/self/cgroup";

/// The CPU time that this process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpus {
    /// The CPUs of the affinity mask, ascending. Empty if the kernel does not tell.
    allowed: Vec<usize>,
    /// CPUs' worth of time that the cgroup grants, if it limits it.
    quota: Option<f64>,
}

impl Cpus {
    /// What the kernel says now. Reads files below /proc and /sys.
    pub fn detect() -> Self {
        // Without the mask the number of CPUs still is known.
        let allowed = sys::affinity().unwrap_or_else(|_| {
            let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (0..count).collect()
        });
        let own = fs::read_to_string(OWN_CGROUPS).unwrap_or_default();
        Self { allowed, quota: cgroup_quota(&own, Path::new(CGROUP_ROOT), |file| fs::read_to_string(file)) }
    }

    /// What `workers = "auto"` means: one a CPU, but no more than the quota fills. A part of a CPU counts as a whole: a
    /// quota of 1.5 is used up by two workers and not by one. At least one.
    pub fn workers(&self) -> NonZeroUsize {
        let cpus = self.allowed.len().max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "as saturates; a quota is positive"
        )]
        let granted = self.quota.map_or(cpus, |quota| quota.ceil() as usize);
        NonZeroUsize::new(granted.min(cpus)).unwrap_or(NonZeroUsize::MIN)
    }

    /// The CPU that each of `workers` workers is pinned to, by worker, or `None` if they must not be pinned.
    ///
    /// They are pinned only when there is one worker a CPU and no quota: the machine, or a cpuset of it, is litequic's.
    /// With fewer workers than CPUs there are neighbours, the origin of a sidecar for one, and a worker pinned to a CPU
    /// that a neighbour keeps busy would starve beside idle ones. The scheduler knows better.
    pub fn pinning(&self, workers: usize) -> Option<&[usize]> {
        (self.quota.is_none() && self.allowed.len() == workers && workers > 1).then_some(&self.allowed)
    }
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
///
/// When the CPU does not exist or is not for this process; the thread then runs where it did.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    sys::pin_current_thread(cpu)
}

/// The smallest quota, in CPUs, of the process' cgroup and all those above it, up to `root`. `own` is the text of
/// /proc/self/cgroup: a line `0::PATH` for version 2, `N:cpu,cpuacct:PATH` for version 1 (cgroups(7)).
fn cgroup_quota(own: &str, root: &Path, read: impl Fn(&Path) -> io::Result<String>) -> Option<f64> {
    let mut quotas = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        // A container sees its own cgroup as the root, but /proc may give the path from the host's: a folder that is
        // not there is skipped, and the root is always among the folders.
        if controllers.is_empty() {
            for folder in path.ancestors() {
                let text = read(&root.join(folder).join("cpu.max")).ok();
                quotas.extend(text.and_then(|text| parse_cpu_max(&text)));
            }
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            // The hierarchy is mounted under the controllers' names, in one order or with a link for each.
            let mounts: [PathBuf; 2] = [root.join("cpu"), root.join(controllers)];
            for folder in mounts.iter().flat_map(|mount| path.ancestors().map(move |folder| mount.join(folder))) {
                let file = |name| read(&folder.join(name)).ok();
                let quota = file("cpu.cfs_quota_us").zip(file("cpu.cfs_period_us"));
                quotas.extend(quota.and_then(|(quota, period)| ratio(&quota, &period)));
            }
        }
    }
    quotas.into_iter().reduce(f64::min)
}

/// `cpu.max`: "QUOTA PERIOD" in microseconds, "max" for no quota (the kernel's cgroup-v2.rst).
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// How many CPUs a quota and a period are; `None` for "max", -1 and nonsense, which are no limit.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: u32 = quota.trim().parse().ok()?;
    let period: u32 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn quota(own: &str, files: &[(&str, &str)]) -> Option<f64> {
        let files: HashMap<_, _> = files.iter().map(|(path, text)| (format!("/cg/{path}"), *text)).collect();
        cgroup_quota(own, Path::new("/cg"), |path| {
            files.get(path.to_str().unwrap()).map(|text| (*text).to_owned()).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_counts() {
        type Files = &'static [(&'static str, &'static str)];
        let table: &[(&str, &str, Files, Option<f64>)] = &[
            ("v2", "0::/a/b\n", &[("a/b/cpu.max", "200000 100000\n")], Some(2.0)),
            ("v2, parent", "0::/a/b\n", &[("a/b/cpu.max", "max 100000\n"), ("a/cpu.max", "50000 100000\n")], Some(0.5)),
            ("v2, container's root", "0::/\n", &[("cpu.max", "150000 100000\n")], Some(1.5)),
            ("v2, path of the host", "0::/kubepods/x\n", &[("cpu.max", "300000 100000\n")], Some(3.0)),
            ("v2, path outside", "0::/../../x\n", &[("cpu.max", "300000 100000\n")], Some(3.0)),
            ("v2, none", "0::/a\n", &[("a/cpu.max", "max 100000\n")], None),
            ("v2, no file", "0::/a\n", &[], None),
            (
                "v1",
                "4:cpu,cpuacct:/a\n0::/\n",
                &[("cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"), ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n")],
                Some(2.5),
            ),
            ("v1, none", "4:cpu:/\n", &[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")], None),
            ("another controller", "3:cpuset:/a\n", &[("cpuset/a/cpu.max", "1 1\n")], None),
            ("zero period", "0::/\n", &[("cpu.max", "1000 0\n")], None),
            ("nonsense", "what\n::\n", &[("cpu.max", "")], None),
            ("nothing", "", &[], None),
        ];
        for (what, own, files, expected) in table {
            assert_eq!(quota(own, files), *expected, "{what}");
        }
    }

    #[test]
    fn workers_fill_the_cpus_or_the_quota() {
        let table = [
            (4, None, 4),
            (4, Some(1.5), 2),
            (4, Some(2.0), 2),
            (4, Some(0.1), 1),
            (2, Some(8.0), 2),
            (0, None, 1),
            (1, Some(1e300), 1),
        ];
        for (cpus, quota, expected) in table {
            let cpus = Cpus { allowed: (0..cpus).collect(), quota };
            assert_eq!(cpus.workers().get(), expected, "{cpus:?}");
        }
    }

    #[test]
    fn only_workers_that_have_the_cpus_to_themselves_are_pinned() {
        let alone = Cpus { allowed: vec![2, 5], quota: None };
        assert_eq!(alone.pinning(2), Some(&[2, 5][..]));
        assert_eq!(alone.pinning(1), None);
        assert_eq!(alone.pinning(3), None);
        assert_eq!(Cpus { allowed: vec![2, 5], quota: Some(2.0) }.pinning(2), None);
        assert_eq!(Cpus { allowed: vec![0], quota: None }.pinning(1), None);
    }

    #[test]
    fn this_machine_has_room_for_a_worker() {
        let cpus = Cpus::detect();
        assert!(cpus.workers().get() <= cpus.allowed.len());
    }
}
