//! What is watched while a load runs, beside CPU time: memory, system calls (strace), a profile (perf). The last two
//! cost the server a lot, so such runs measure nothing else.

use super::{interrupt, namespace::Namespace, process, process::Server, profile};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observe {
    /// CPU time only.
    Cpu,
    /// Memory while the load lasts.
    Memory,
    /// System calls by name.
    SystemCalls,
    /// Where CPU time goes.
    Profile,
    /// Calls of the client that receive, by name; the client counts them.
    ReceiveCalls,
}

impl Observe {
    /// The program that it needs.
    pub(crate) fn program(self) -> Option<&'static str> {
        match self {
            Self::Cpu | Self::Memory => None,
            Self::SystemCalls => Some("strace"),
            Self::Profile | Self::ReceiveCalls => Some("perf"),
        }
    }
}

/// For strace or perf to attach, and to write down what they saw.
const ATTACH: Duration = Duration::from_secs(10);
const WRITE_DOWN: Duration = Duration::from_secs(120);
/// Between two looks at memory, which cost the kernel a walk through it.
const MEMORY_LOOK: Duration = Duration::from_millis(200);
/// CPU time between two looks in which nothing happened, seconds: the kernel counts in hundredths.
const NOTHING: f64 = 0.015;
/// Samples a second of CPU time. Odd, so as not to run in step with timers.
const SAMPLES: u32 = 1999;

/// What watches a server.
#[derive(Debug)]
pub(crate) enum Observer {
    /// Nothing but its CPU time.
    Cpu,
    /// Its memory.
    Memory {
        /// Bytes before the load.
        before: u64,
        /// The most since,
        most: u64,
        /// and while nothing happened.
        idle: Option<u64>,
        /// The last look, and the CPU time until then.
        looked: (Instant, f64),
    },
    /// strace or perf, writing to a file.
    Tracer { tracer: Server, file: PathBuf, what: Observe },
}

impl Observer {
    /// Begins; `folder` takes what tracers write.
    pub(crate) fn start(what: Observe, server: &Server, place: &Namespace, core: &str, folder: &Path) -> Result<Self> {
        let file = folder.join("observed");
        let pids: Vec<String> = server.processes().iter().map(|(pid, _)| pid.to_string()).collect();
        let arguments: Vec<String> = match what {
            Observe::Cpu | Observe::ReceiveCalls => return Ok(Self::Cpu),
            Observe::Memory => {
                let before = server.memory();
                let looked = (Instant::now(), server.cpu().total());
                return Ok(Self::Memory { before, most: before, idle: None, looked });
            }
            Observe::SystemCalls => {
                let mut arguments = ["strace", "-c", "-f", "-q", "-o"].map(str::to_owned).to_vec();
                arguments.push(file.display().to_string());
                arguments.extend(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.clone()]));
                arguments
            }
            Observe::Profile => {
                let (frequency, file, pids) = (SAMPLES.to_string(), file.display().to_string(), pids.join(","));
                ["perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", &frequency, "-o", &file, "-p", &pids]
                    .map(str::to_owned)
                    .to_vec()
            }
        };
        let command = process::command(place, core, &arguments, &BTreeMap::new());
        let mut tracer = Server::start(what.program().unwrap_or_default(), command, folder.join("tracer.log"))?;
        let attached = interrupt::wait_for(ATTACH, || {
            tracer.check()?;
            let is_traced = |pid: &String| match what {
                Observe::SystemCalls => fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
                    status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
                }),
                // perf makes the file when its events are open.
                _ => fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0),
            };
            Ok(pids.iter().all(is_traced).then_some(()))
        })?;
        if attached.is_none() {
            bail!("{} did not attach; its log: {}", what.program().unwrap_or_default(), tracer.quote());
        }
        Ok(Self::Tracer { tracer, file, what })
    }

    /// Looks, when it is time to.
    pub(crate) fn look(&mut self, server: &Server) {
        if let Self::Memory { most, idle, looked, .. } = self
            && looked.0.elapsed() >= MEMORY_LOOK
        {
            let (memory, cpu) = (server.memory(), server.cpu().total());
            *most = memory.max(*most);
            // Neither while connections are opened nor while they get their request at the end.
            if cpu - looked.1 <= NOTHING && memory > 0 {
                *idle = Some(memory.max(idle.unwrap_or_default()));
            }
            *looked = (Instant::now(), cpu);
        }
    }

    /// Ends; figures of what it saw, of a load of so many bytes and connections.
    pub(crate) fn finish(self, bytes: f64, connections: u32) -> Result<BTreeMap<String, f64>> {
        match self {
            Self::Cpu => Ok(BTreeMap::new()),
            Self::Memory { before, most, idle, .. } => {
                let each = |memory: u64| memory.saturating_sub(before) as f64 / 1e3 / f64::from(connections);
                Ok(BTreeMap::from([
                    ("memory".to_owned(), before as f64 / 1e6),
                    ("memory_each".to_owned(), each(idle.unwrap_or(most))),
                    ("memory_most".to_owned(), each(most)),
                    ("memory_peak".to_owned(), most as f64 / 1e6),
                ]))
            }
            Self::Tracer { mut tracer, file, what } => {
                let _ = killpg(tracer.group(), Signal::SIGINT);
                interrupt::wait_for(WRITE_DOWN, || Ok(tracer.check().is_err().then_some(())))?;
                let log = tracer.quote();
                drop(tracer);
                if what == Observe::SystemCalls {
                    let text = fs::read_to_string(&file).context("strace wrote nothing")?;
                    return system_calls(&text, bytes)
                        .with_context(|| format!("strace's table is empty; its log: {log}"));
                }
                let mut script = Command::new("perf");
                script.args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"]).arg(&file);
                let finished = process::finish(process::group(script), WRITE_DOWN, || Ok(()))?;
                profile::shares(&finished.stdout)
                    .with_context(|| format!("perf took no samples; its output: {} {log}", finished.stderr))
            }
        }
    }
}

/// Reads strace's table of calls; figures are calls a MB.
fn system_calls(table: &str, bytes: f64) -> Option<BTreeMap<String, f64>> {
    let megabytes = bytes / 1e6;
    let mut figures = BTreeMap::new();
    // "% time  seconds  usecs/call  calls  [errors]  syscall"
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let ([_, _, _, calls, name] | [_, _, _, calls, _, name]) = *fields.as_slice() else { continue };
        let (Ok(calls), false) = (calls.parse::<f64>(), name == "total") else { continue };
        figures.insert(format!("calls/{name}"), calls / megabytes);
    }
    let sum: f64 = figures.values().sum();
    if figures.is_empty() {
        return None;
    }
    figures.insert("syscalls".to_owned(), sum);
    Some(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_becomes_calls_a_megabyte() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.900000           9       100           sendmmsg
 10.00    0.100000           2        50        10 recvmmsg
------ ----------- ----------- --------- --------- ----------------
100.00    1.000000           6       150        10 total
";
        let figures = system_calls(table, 2e6).unwrap();
        assert_eq!(figures["calls/sendmmsg"], 50.0);
        assert_eq!(figures["calls/recvmmsg"], 25.0);
        assert_eq!(figures["syscalls"], 75.0, "the total is not a call");
    }

    #[test]
    fn an_empty_table_is_no_result() {
        assert_eq!(system_calls("", 1e6), None);
    }
}
