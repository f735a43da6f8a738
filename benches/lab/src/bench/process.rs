//! Processes of the lab: pinned, in a namespace, each the head of a process group that is ended as a whole. Reads their
//! CPU time and memory from /proc.

use super::{
    cgroup::Cgroup,
    interrupt,
    namespace::Namespace,
    procfs::{self, CoreTimes, Cpu, ProcessStat},
};
use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, SysconfVar, sysconf},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

/// For a server to end after SIGTERM. Those that drain have idle clients only: the load has ended.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// CPU time of all processes by core, in nanoseconds, where cgroups of version 1 are mounted.
const CPUACCT: &str = "/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu";
/// What is quoted of a log.
const QUOTE: usize = 600; // bytes

/// Clock ticks a second, of the times in /proc.
static TICKS: LazyLock<f64> = LazyLock::new(|| {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u32::try_from(ticks).ok());
    f64::from(ticks.unwrap_or(100))
});

/// A command in a place, on a core: `ip netns exec NAME taskset -c CORE …`. Both become the command, so that its
/// process ID is the one that is started here.
pub(crate) fn command(
    place: &Namespace,
    cores: &str,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &place.namespace, "taskset", "-c", cores]).args(arguments);
    command.envs(environment);
    group(command)
}

/// The same in a cgroup. Not by `ip netns exec`, which hides cgroups: it mounts another /sys.
pub(crate) fn command_in(
    group: &Cgroup,
    place: &Namespace,
    cores: &str,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group.processes());
    command.args(["nsenter", &format!("--net=/run/netns/{}", place.namespace), "taskset", "-c", cores]).args(arguments);
    command.envs(environment);
    self::group(command)
}

/// Returns a command like that of [`command_in`], but in no cgroup, for a program that puts others into one.
pub(crate) fn command_with_cgroups(place: &Namespace, cores: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("nsenter");
    command.args([&format!("--net=/run/netns/{}", place.namespace), "taskset", "-c", cores]).args(arguments);
    group(command)
}

/// A command as the head of a process group of its own, for `finish` to end.
pub(crate) fn group(mut command: Command) -> Command {
    command.stdin(Stdio::null()).process_group(0);
    command
}

/// A process that serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// How errors call it.
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it; what it prints goes to `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let child =
            command.spawn().with_context(|| format!("cannot start {name}: ip (iproute2) and taskset are needed"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process group.
    pub(crate) fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// An error that quotes the log if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); its log: {}", self.name, self.quote()),
        }
    }

    /// The end of its log.
    pub(crate) fn quote(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let end = log.get(log.len().saturating_sub(QUOTE)..).unwrap_or_default();
        let text = String::from_utf8_lossy(end).trim().replace('\n', " | ");
        if text.is_empty() { "empty".to_owned() } else { text }
    }

    /// All that it printed.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its processes: the group, and all descendants.
    pub(crate) fn processes(&self) -> Vec<(Pid, ProcessStat)> {
        tree(self.group(), &all())
    }

    /// CPU time of all its processes and threads so far, those that ended included.
    pub(crate) fn cpu(&self) -> Cpu {
        self.processes().iter().fold(Cpu::default(), |sum, (_, stat)| sum + stat.cpu)
    }

    /// How often its threads slept and were woken so far; those of threads that ended are forgotten.
    pub(crate) fn wakes(&self) -> u64 {
        self.processes().into_iter().map(|(pid, _)| wakes(pid.as_raw())).sum()
    }

    /// Memory of all its processes, in bytes, pages that they share counted once.
    pub(crate) fn memory(&self) -> u64 {
        let of = |pid: Pid| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            procfs::kilobytes(&rollup, "Pss")
        };
        self.processes().iter().filter_map(|(pid, _)| of(*pid)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for (signal, patience) in [(Signal::SIGTERM, TERM_PATIENCE), (Signal::SIGKILL, KILL_PATIENCE)] {
            // Gone already is as good.
            let _ = killpg(self.group(), signal);
            let end = Instant::now() + patience;
            while Instant::now() < end {
                if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                    // A process that outlived the head of the group.
                    let _ = killpg(self.group(), Signal::SIGKILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// The output and the CPU time of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its standard output.
    pub(crate) stdout: String,
    /// The end of its standard error.
    pub(crate) stderr: String,
    /// All of it.
    pub(crate) whole_stderr: String,
}

/// Runs a command to its end, calling `meanwhile` every 10 ms. It is killed after `patience`, on a signal, and when
/// `meanwhile` fails.
pub(crate) fn finish(
    mut command: Command,
    patience: Duration,
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<Finished> {
    // Of `ip netns exec NAME taskset -c CORE PROGRAM …` the program.
    let words: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let name = words.iter().skip(6).take(3).cloned().collect::<Vec<_>>().join(" ");
    let name = if name.is_empty() { command.get_program().to_string_lossy().into_owned() } else { name };
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = Killed(command.spawn().with_context(|| format!("cannot start {name}"))?);
    let status = interrupt::wait_for(patience, || {
        meanwhile()?;
        Ok(child.0.try_wait()?)
    })?;
    if status.is_none() {
        bail!("not finished after {} s: {name}", patience.as_secs());
    }
    let mut texts = [String::new(), String::new()];
    for (file, text) in [&mut stdout, &mut stderr].into_iter().zip(&mut texts) {
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        *text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let [stdout, stderr] = texts;
    let whole_stderr = stderr;
    let stderr = whole_stderr.trim().chars().rev().take(QUOTE).collect::<Vec<_>>().into_iter().rev().collect();
    Ok(Finished { stdout, stderr, whole_stderr })
}

/// A child that does not outlive its waiter.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// How often a process's threads slept and were woken so far; those of threads that ended are forgotten.
pub(crate) fn wakes(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let of = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        procfs::number(&status, "voluntary_ctxt_switches")
    };
    threads.filter_map(of).sum()
}

/// What a core did so far.
pub(crate) fn core_times(core: usize) -> Result<CoreTimes> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let times = procfs::core_times(&text, core, *TICKS);
    let times = times.with_context(|| format!("/proc/stat has no core {core}"))?;
    let processes = fs::read_to_string(CPUACCT).ok().and_then(|text| procfs::processes(&text, core));
    Ok(CoreTimes { processes, ..times })
}

/// CPU time so far of this process and of its children that ended: every load is among them.
pub(crate) fn own_cpu() -> Cpu {
    read_stat(std::process::id().cast_signed()).map_or_else(Cpu::default, |stat| stat.cpu)
}

fn read_stat(pid: i32) -> Option<ProcessStat> {
    procfs::process_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, *TICKS)
}

/// Every process there is.
fn all() -> BTreeMap<i32, ProcessStat> {
    let Ok(entries) = fs::read_dir(Path::new("/proc")) else { return BTreeMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, read_stat(pid)?))).collect()
}

/// Of all processes those of a group and their descendants, whatever group these chose.
fn tree(group: Pid, all: &BTreeMap<i32, ProcessStat>) -> Vec<(Pid, ProcessStat)> {
    let belongs = |mut pid: i32| {
        // Bounded: what was read one after the other may hold a circle.
        for _ in 0..64 {
            let Some(stat) = all.get(&pid) else { return false };
            if stat.group == group.as_raw() || pid == group.as_raw() {
                return true;
            }
            pid = stat.parent;
        }
        false
    };
    all.iter().filter(|(pid, _)| belongs(**pid)).map(|(pid, stat)| (Pid::from_raw(*pid), *stat)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: i32, group: i32) -> ProcessStat {
        ProcessStat { parent, group, state: 'S', cpu: Cpu::default() }
    }

    #[test]
    fn a_process_tree_has_its_group_and_all_descendants() {
        let all = BTreeMap::from([
            (1, stat(0, 1)),
            (10, stat(1, 10)),  // the head
            (11, stat(10, 10)), // a worker
            (12, stat(11, 12)), // a child in a group of its own
            (13, stat(1, 10)),  // an orphan of the group
            (20, stat(1, 20)),  // a stranger
            (21, stat(22, 21)), // a circle
            (22, stat(21, 22)),
        ]);
        let pids: Vec<i32> = tree(Pid::from_raw(10), &all).iter().map(|(pid, _)| pid.as_raw()).collect();
        assert_eq!(pids, [10, 11, 12, 13]);
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_and_says_so() {
        let mut command = Command::new("sleep");
        command.arg("1000").process_group(0);
        let error = finish(command, Duration::from_millis(50), || Ok(())).unwrap_err().to_string();
        assert!(error.starts_with("not finished after 0 s"), "{error}");
    }

    #[test]
    fn what_a_command_says_is_told_even_when_it_fails() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]).process_group(0);
        let finished = finish(command, Duration::from_secs(10), || Ok(())).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err"));
    }
}
