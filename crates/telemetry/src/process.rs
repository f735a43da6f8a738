//! Reads the kernel's figures of this process, from `/proc/self` (proc(5)). Pure apart from the reading.

use rustix::process::{Resource, getrlimit};
use std::{fs, sync::OnceLock};

/// `USER_HZ`, the unit of times in `/proc/PID/stat`. Part of Linux's ABI: 100 on every architecture that litequic runs
/// on, whatever the kernel's own tick is.
const TICKS_A_SECOND: f64 = 100.0;

/// Directory of the open descriptors.
const FD_DIRECTORY: &str = "/proc/self/fd";

/// Result of [`parse_boot_time`], read once: it does not change, and `/proc/stat` is long and slow where there are many
/// processors.
static BOOT_TIME: OnceLock<Option<f64>> = OnceLock::new();

/// Figures of the process. An unreadable value is `None`: `/proc` may be hidden or missing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFigures {
    /// User and system time of all threads, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Start of the process, in seconds since the Unix epoch.
    pub start_time: Option<f64>,
    /// Number of open file descriptors.
    pub open_fds: Option<u64>,
    /// Limit of open file descriptors: RLIMIT_NOFILE.
    pub max_fds: Option<u64>,
}

impl ProcessFigures {
    /// Reads the current figures of this process.
    pub fn read_process_figures() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let boot = *BOOT_TIME.get_or_init(|| parse_boot_time(&read("/proc/stat")));
        let max_fds = getrlimit(Resource::Nofile).current;
        Self {
            open_fds: count_open_fds(),
            max_fds,
            ..Self::parse_proc_files(&read("/proc/self/stat"), &read("/proc/self/status"), boot)
        }
    }

    fn parse_proc_files(stat: &str, status: &str, boot: Option<f64>) -> Self {
        // The second field is the command in parentheses, which may hold blanks and parentheses itself.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        // proc(5) counts from 1, and the first field behind the command is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let seconds = |number| field(number).map(|ticks| ticks / TICKS_A_SECOND);
        Self {
            cpu_seconds: seconds(14).zip(seconds(15)).map(|(user, system)| user + system),
            resident_bytes: word_after_key(status, "VmRSS:").and_then(|kib| kib.parse::<u64>().ok()?.checked_mul(1024)),
            start_time: boot.zip(seconds(22)).map(|(boot, after)| boot + after),
            open_fds: None,
            max_fds: None,
        }
    }
}

/// Start of the system in seconds since the Unix epoch, from `/proc/stat`.
fn parse_boot_time(system: &str) -> Option<f64> {
    word_after_key(system, "btime")?.parse().ok()
}

/// Counts the open descriptors. From Linux 6.2 on, the folder's size has their number. Before, its entries are counted:
/// a millisecond for some 3000.
fn count_open_fds() -> Option<u64> {
    match fs::metadata(FD_DIRECTORY).ok()?.len() {
        0 => fs::read_dir(FD_DIRECTORY).ok().map(|entries| entries.count() as u64),
        open => Some(open),
    }
}

/// The word after `key` in the line that starts with `key`.
fn word_after_key<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_parentheses_shifts_nothing() {
        let stat = "71 (a) b (c) S 1 71 71 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 2500 1000 10";
        let boot = parse_boot_time("cpu 1 2\nbtime 1700000000\n");
        let process = ProcessFigures::parse_proc_files(stat, "Name:\ta\nVmRSS:\t  2048 kB\n", boot);
        assert_eq!(process.cpu_seconds, Some(2.0));
        assert_eq!(process.resident_bytes, Some(2 * 1024 * 1024));
        assert_eq!(process.start_time, Some(1_700_000_025.0));
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        assert_eq!(ProcessFigures::parse_proc_files("", "", None), ProcessFigures::default());
        assert_eq!(
            ProcessFigures::parse_proc_files("71 (x) S 1", "VmRSS:", parse_boot_time("btime soon")),
            ProcessFigures::default()
        );
    }

    #[test]
    fn this_process_has_started_and_has_memory() {
        let process = ProcessFigures::read_process_figures();
        assert!(process.cpu_seconds.is_some());
        assert!(process.resident_bytes.unwrap() > 100_000);
        assert!(process.start_time.unwrap() > 1_600_000_000.0);
        let some = [(); 40].map(|()| fs::File::open("/dev/null").unwrap());
        assert!(count_open_fds().unwrap() >= some.len() as u64);
    }
}
