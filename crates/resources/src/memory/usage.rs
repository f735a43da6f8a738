//! Reads the memory usage of the process and its limit: from its memory cgroups (cgroups(7), of version 1 or 2), and
//! from the configuration.

use litequic_config::MemoryLimit;
use procfs_core::{FromBufRead, ProcessCGroup, ProcessCGroups, process::MountInfo, process::MountInfos};
use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::{Path, PathBuf},
    str::FromStr,
};

/// Root of the kernel's files.
const ROOT: &str = "/";
/// Smallest value that means no limit in version 1, which rounds it to pages; version 2 has `max`.
const NO_LIMIT: u64 = 1 << 62;
/// Maximum number of nested cgroups that are read, from the process's own outwards.
const MAX_DEPTH: usize = 16;
/// Usage in per cent of the limit from which on droppable pages are read, which costs more.
const MIN_STAT_PERCENT: u64 = 80;
/// A cgroup counts if the process itself uses at least a quarter of its limit: otherwise closing connections would not
/// relieve it.
const OWN_SHARE_DIVISOR: u64 = 4;
/// Maximum number of bytes that are read of a file of the kernel; `memory.stat` has some 2 KiB.
const MAX_KERNEL_FILE_BYTES: u64 = 16 * 1024;

/// Usage and limit of memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MemoryReading {
    pub used: u64,
    pub limit: u64,
}

impl MemoryReading {
    fn used_per_mille(self) -> u128 {
        (u128::from(self.used) * 1_000).checked_div(self.limit.into()).unwrap_or(0)
    }
}

/// Files from which usage is read. They stay open, because descriptors often run out when memory does.
#[derive(Debug)]
pub struct MemoryUsage {
    statm: Option<File>,
    /// The process's cgroup and the groups above, if they have a limit or may get one.
    groups: Vec<MemoryCgroup>,
    page: u64,
}

#[derive(Debug)]
struct MemoryCgroup {
    directory: PathBuf,
    version: CgroupVersion,
    limits: Vec<File>,
    used: File,
    stat: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

impl MemoryUsage {
    /// Opens the files of this process and of its cgroups.
    pub fn open_own_files() -> Self {
        Self::open_files_under(Path::new(ROOT))
    }

    /// Directory of the process's memory cgroup, if it has one.
    pub fn cgroup_directory(&self) -> Option<&Path> {
        self.groups.first().map(|group| &*group.directory)
    }

    fn open_files_under(root: &Path) -> Self {
        let statm = File::open(root.join("proc/self/statm")).ok();
        Self { statm, groups: find_memory_cgroups(root), page: rustix::param::page_size() as u64 }
    }

    /// The usage and limit that are nearest to each other: of the `configured` limit, or of a cgroup whose limit the
    /// process itself uses to a good part. `None` if there is no limit.
    ///
    /// # Errors
    ///
    /// The usage of the process or of a cgroup cannot be read.
    pub fn read_nearest(&self, configured: MemoryLimit) -> io::Result<Option<MemoryReading>> {
        if configured == MemoryLimit::None || (configured == MemoryLimit::Cgroup && self.groups.is_empty()) {
            return Ok(None);
        }
        let own = self.anonymous_bytes()?;
        let mut nearest = match configured {
            MemoryLimit::Bytes(limit) => Some(MemoryReading { used: own, limit }),
            MemoryLimit::Cgroup | MemoryLimit::None => None,
        };
        for group in &self.groups {
            let reading = group.read_cgroup()?.filter(|reading| own >= reading.limit / OWN_SHARE_DIVISOR);
            nearest = nearest.into_iter().chain(reading).max_by_key(|reading| reading.used_per_mille());
        }
        Ok(nearest)
    }

    /// The smallest of the `configured` limit and the cgroups' limits, in bytes, however much of it is used. `None`
    /// without a limit.
    pub fn smallest_limit(&self, configured: MemoryLimit) -> Option<u64> {
        let own = match configured {
            MemoryLimit::None => return None,
            MemoryLimit::Bytes(limit) => Some(limit),
            MemoryLimit::Cgroup => None,
        };
        // A cgroup that cannot be read is skipped.
        let of_groups =
            self.groups.iter().filter_map(|group| group.read_cgroup().ok().flatten()).map(|reading| reading.limit);
        of_groups.chain(own).min()
    }

    /// Number of bytes in RAM that are no file's, as the kernel can drop the pages of the program itself. From
    /// `/proc/self/statm` (proc_pid_statm(5)): pages in RAM, the second number, less pages of files, the third.
    fn anonymous_bytes(&self) -> io::Result<u64> {
        let statm = read_kernel_file(self.statm.as_ref().ok_or(io::ErrorKind::NotFound)?)?;
        let mut numbers = statm.split_whitespace().skip(1).map_while(|number| number.parse::<u64>().ok());
        let (Some(resident), Some(files)) = (numbers.next(), numbers.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(resident.saturating_sub(files).saturating_mul(self.page))
    }
}

impl MemoryCgroup {
    /// Opens the files of a cgroup; `None` if it has none, as the root.
    fn open_cgroup(directory: &Path, version: CgroupVersion) -> Option<Self> {
        let (limits, used): (&[&str], _) = match version {
            CgroupVersion::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
            // Above `memory.high`, the kernel slows the process down.
            CgroupVersion::Two => (&["memory.max", "memory.high"], "memory.current"),
        };
        let open = |name: &str| File::open(directory.join(name)).ok();
        let limits: Vec<File> = limits.iter().filter_map(|name| open(name)).collect();
        let used = open(used).filter(|_| !limits.is_empty())?;
        Some(Self { directory: directory.into(), version, limits, used, stat: open("memory.stat") })
    }

    /// Reads the usage and limit of the cgroup; `None` if it has no limit.
    fn read_cgroup(&self) -> io::Result<Option<MemoryReading>> {
        let number = |file: &File| read_kernel_file(file).map(|text| text.trim().parse::<u64>().ok());
        let mut nearest = None;
        for limit in &self.limits {
            nearest = nearest.into_iter().chain(number(limit)?.filter(|limit| *limit < NO_LIMIT)).min();
        }
        let Some(limit) = nearest else { return Ok(None) };
        let used = number(&self.used)?.ok_or(io::ErrorKind::InvalidData)?;
        let reading = MemoryReading { used, limit };
        if reading.used_per_mille() < u128::from(MIN_STAT_PERCENT) * 10 {
            return Ok(Some(reading));
        }
        // The kernel drops pages of files before it kills a process.
        let droppable: &[&str] = match self.version {
            CgroupVersion::One => &["total_inactive_file", "total_active_file"],
            CgroupVersion::Two => &["inactive_file", "active_file", "slab_reclaimable"],
        };
        let stat = self.stat.as_ref().map_or_else(|| Ok(String::new()), read_kernel_file)?;
        let droppable =
            droppable.iter().filter_map(|name| memory_stat_value::<u64>(&stat, name)).fold(0, u64::saturating_add);
        Ok(Some(MemoryReading { used: used.saturating_sub(droppable), limit }))
    }
}

/// Memory of the machine in bytes; `None` if `/proc/meminfo` cannot be read.
pub fn installed_memory() -> Option<u64> {
    let text = fs::read_to_string(Path::new(ROOT).join("proc/meminfo")).ok()?;
    parse_total_memory(&text)
}

/// Parses `MemTotal` of `/proc/meminfo` (proc_meminfo(5)), in kibibytes; returns bytes.
fn parse_total_memory(meminfo: &str) -> Option<u64> {
    let words = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    words.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// Reads a file of the kernel from its beginning.
fn read_kernel_file(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(MAX_KERNEL_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Value of the line `name` of `memory.stat`.
fn memory_stat_value<T: FromStr>(stat: &str, name: &str) -> Option<T> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Memory cgroups of the process, its own first.
fn find_memory_cgroups(root: &Path) -> Vec<MemoryCgroup> {
    let read = |name: &str| fs::read(root.join(name)).unwrap_or_default();
    let cgroups = ProcessCGroups::from_buf_read(&*read("proc/self/cgroup"));
    let mounts = MountInfos::from_buf_read(&*read("proc/self/mountinfo"));
    let (Ok(ProcessCGroups(cgroups)), Ok(MountInfos(mounts))) = (cgroups, mounts) else { return Vec::new() };
    let is_first = |group: &&ProcessCGroup| group.controllers.iter().any(|controller| controller == "memory");
    let first = cgroups.iter().find(is_first).map(|group| (group, CgroupVersion::One));
    // If version 1 has the memory controller, version 2 does not.
    let found =
        first.or_else(|| cgroups.iter().find(|group| group.hierarchy == 0).map(|group| (group, CgroupVersion::Two)));
    let Some((group, version)) = found else { return Vec::new() };
    let Some(mount) = mounts.iter().find(|mount| has_memory_controller(mount, version)) else { return Vec::new() };
    let mounted = root.join(mount.mount_point.strip_prefix("/").unwrap_or(&mount.mount_point));
    // The mount may show only a part of the hierarchy, such as that of a container.
    let path = Path::new(&group.pathname);
    let inside = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/")).unwrap_or(Path::new(""));
    let own = mounted.join(inside);
    // In a namespace of its own, the process's group may be outside of the mount.
    let own = if own.starts_with(&mounted) && own.is_dir() { own } else { mounted.clone() };
    let directories = own.ancestors().take_while(|directory| directory.starts_with(&mounted)).take(MAX_DEPTH);
    directories.filter_map(|directory| MemoryCgroup::open_cgroup(directory, version)).collect()
}

fn has_memory_controller(mount: &MountInfo, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::One => mount.fs_type == "cgroup" && mount.super_options.contains_key("memory"),
        CgroupVersion::Two => mount.fs_type == "cgroup2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a machine, removed when dropped.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("litequic-memory-{name}-{}", std::process::id()));
            // By default, the process has 20,000 pages of its own in RAM.
            let usual = [("proc/self/statm", "99999 20005 5 5 0 5 0\n")];
            for (file, text) in usual.iter().chain(files) {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn read(&self, configured: MemoryLimit) -> Option<(u64, u64)> {
            let usage = MemoryUsage { page: 4_096, ..MemoryUsage::open_files_under(&self.0) };
            usage.read_nearest(configured).unwrap().map(|found| (found.used, found.limit))
        }

        fn limit(&self, configured: MemoryLimit) -> Option<u64> {
            MemoryUsage::open_files_under(&self.0).smallest_limit(configured)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V1: &str = "9:name=systemd:/\n4:memory:/docker/abc\n3:cpuset:/\n0::/\n";
    const V1_MOUNT: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2_MOUNT: &str = "30 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_1_in_a_container_that_sees_its_own_group_alone() {
        let machine = Machine::new(
            "one",
            &[
                ("proc/self/cgroup", V1),
                ("proc/self/mountinfo", V1_MOUNT),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "120000000\n"),
                (
                    "sys/fs/cgroup/memory/memory.stat",
                    "cache 5\ninactive_file 9\ntotal_inactive_file 15000000\ntotal_active_file 5000000\n",
                ),
            ],
        );
        assert_eq!(machine.read(MemoryLimit::Cgroup), Some((100_000_000, 134_217_728)));
    }

    #[test]
    fn version_1_without_a_limit() {
        let machine = Machine::new(
            "one-free",
            &[
                ("proc/self/cgroup", V1),
                ("proc/self/mountinfo", V1_MOUNT),
                ("proc/self/statm", "9999 1005 5 5 0 5 0\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "120000000\n"),
            ],
        );
        assert_eq!(machine.read(MemoryLimit::Cgroup), None);
        assert_eq!(
            machine.read(MemoryLimit::Bytes(50_000_000)),
            Some((4_096_000, 50_000_000)),
            "the one that is configured"
        );
        assert_eq!(machine.read(MemoryLimit::None), None);
        assert_eq!(machine.limit(MemoryLimit::Cgroup), None);
    }

    #[test]
    fn version_2_uses_the_nearest_of_nested_limits() {
        let machine = Machine::new(
            "two",
            &[
                ("proc/self/cgroup", "0::/kubepods/pod1/c1\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/kubepods/pod1/c1/memory.max", "max\n"),
                ("sys/fs/cgroup/kubepods/pod1/c1/memory.high", "max\n"),
                ("sys/fs/cgroup/kubepods/pod1/c1/memory.current", "70000000\n"),
                ("sys/fs/cgroup/kubepods/pod1/memory.max", "100000000\n"),
                ("sys/fs/cgroup/kubepods/pod1/memory.high", "90000000\n"),
                ("sys/fs/cgroup/kubepods/pod1/memory.current", "85000000\n"),
                (
                    "sys/fs/cgroup/kubepods/pod1/memory.stat",
                    "anon 1\nfile 2\ninactive_file 2000000\nactive_file 2000000\nslab_reclaimable 1000000\n",
                ),
                ("sys/fs/cgroup/kubepods/memory.max", "1000000000\n"),
                ("sys/fs/cgroup/kubepods/memory.current", "500000000\n"),
            ],
        );
        assert_eq!(machine.read(MemoryLimit::Cgroup), Some((80_000_000, 90_000_000)));
        assert_eq!(machine.read(MemoryLimit::Bytes(82_000_000)), Some((81_920_000, 82_000_000)), "nearer");
        assert_eq!(machine.read(MemoryLimit::None), None);
        assert_eq!(machine.limit(MemoryLimit::Cgroup), Some(90_000_000));
        assert_eq!(machine.limit(MemoryLimit::Bytes(95_000_000)), Some(90_000_000));
        assert_eq!(machine.limit(MemoryLimit::Bytes(82_000_000)), Some(82_000_000));
        assert_eq!(machine.limit(MemoryLimit::None), None);
    }

    #[test]
    fn version_2_in_a_namespace_whose_group_is_elsewhere() {
        for path in ["0::/\n", "0::/../../other\n", "0::/gone\n"] {
            let machine = Machine::new(
                "two-namespace",
                &[
                    ("proc/self/cgroup", path),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/memory.max", "1000\n"),
                    ("sys/fs/cgroup/memory.current", "10\n"),
                ],
            );
            assert_eq!(machine.read(MemoryLimit::Cgroup), Some((10, 1_000)), "{path}");
        }
    }

    #[test]
    fn an_unreadable_cgroup_sets_no_limit() {
        for (name, files) in [
            ("none", &[][..]),
            ("rubbish", &[("proc/self/cgroup", "x:y"), ("proc/self/mountinfo", "1 2 3")][..]),
            ("unmounted", &[("proc/self/cgroup", V1), ("proc/self/mountinfo", "")][..]),
            (
                "words",
                &[
                    ("proc/self/cgroup", "0::/\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/memory.max", "many\n"),
                    ("sys/fs/cgroup/memory.current", "some\n"),
                ],
            ),
        ] {
            let machine = Machine::new(name, files);
            assert_eq!(machine.read(MemoryLimit::Cgroup), None, "{name}");
        }
    }

    #[test]
    fn a_cgroup_filled_by_others_does_not_count() {
        for (pages, limit) in [(25_005, Some((99_000_000, 100_000_000))), (6_005, None)] {
            let machine = Machine::new(
                "others",
                &[
                    ("proc/self/cgroup", "0::/\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("proc/self/statm", &format!("99999 {pages} 5 5 0 5 0\n")),
                    ("sys/fs/cgroup/memory.max", "100000000\n"),
                    ("sys/fs/cgroup/memory.current", "99000000\n"),
                ],
            );
            assert_eq!(machine.read(MemoryLimit::Cgroup), limit);
        }
    }

    #[test]
    fn a_file_that_becomes_unreadable_is_an_error() {
        let machine = Machine::new(
            "failing",
            &[
                ("proc/self/cgroup", "0::/\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/memory.max", "1000\n"),
                ("sys/fs/cgroup/memory.current", "some\n"),
            ],
        );
        let usage = MemoryUsage::open_files_under(&machine.0);
        assert!(usage.read_nearest(MemoryLimit::Cgroup).is_err());
        assert_eq!(usage.read_nearest(MemoryLimit::None).unwrap(), None);
        fs::write(machine.0.join("sys/fs/cgroup/memory.current"), "10\n").unwrap();
        assert_eq!(
            usage.read_nearest(MemoryLimit::Cgroup).unwrap(),
            Some(MemoryReading { used: 10, limit: 1_000 }),
            "a file stays open"
        );
    }

    #[test]
    fn usage_of_this_process_is_readable() {
        const HELD: usize = 8 << 20;
        let held = std::hint::black_box(vec![1_u8; HELD]);
        let usage = MemoryUsage::open_own_files();
        let reading = usage.read_nearest(MemoryLimit::Bytes(u64::MAX / 2_000)).unwrap().unwrap();
        assert!(reading.used >= HELD as u64, "{reading:?}");
        drop(held);
    }

    #[test]
    fn the_machines_memory_is_the_total() {
        assert_eq!(parse_total_memory("MemTotal:       24683864 kB\nMemFree:  1 kB\n"), Some(24_683_864 * 1_024));
        assert_eq!(parse_total_memory("MemFree: 1 kB\n"), None);
        assert!(installed_memory().unwrap() > 64 << 20);
    }
}
