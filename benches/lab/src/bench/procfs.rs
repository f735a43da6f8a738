//! What files of /proc say. Pure: each function takes a file's text.

use std::{
    collections::BTreeSet,
    ops::{Add, Sub},
};

/// CPU time of processes, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cpu {
    /// In user mode.
    pub(crate) user: f64,
    /// In the kernel.
    pub(crate) system: f64,
}

impl Cpu {
    /// Both.
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }
}

impl Add for Cpu {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl Sub for Cpu {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { user: self.user - other.user, system: self.system - other.system }
    }
}

/// A line of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProcessStat {
    /// The process that started it.
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// `Z` for one that is dead already.
    pub(crate) state: char,
    /// Of the process: all of its threads, those that ended included, and all of its children that ended and were
    /// waited for. Summed over a process tree no time is lost or counted twice when a thread or a child ends.
    pub(crate) cpu: Cpu,
}

/// Reads /proc/PID/stat; the clock ticks `ticks` times a second.
pub(crate) fn process_stat(text: &str, ticks: f64) -> Option<ProcessStat> {
    // The name may hold anything, brackets and blanks included.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // proc(5): utime is field 14, group was field 5.
    let mut times = fields.skip(8).map(|field| field.parse::<f64>().ok().map(|time| time / ticks));
    let mut next = || times.next().flatten();
    let (user, system, children_user, children_system) = (next()?, next()?, next()?, next()?);
    let cpu = Cpu { user: user + children_user, system: system + children_system };
    Some(ProcessStat { parent, group, state, cpu })
}

/// What a core did, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CoreTimes {
    /// Anything but what yields to all others, interrupts included.
    pub(crate) busy: f64,
    /// Of it in interrupts: over a path those that deliver packets, which on an idle core are no process's.
    pub(crate) interrupts: f64,
    /// Processes with a positive nice value, in user mode.
    pub(crate) nice: f64,
    /// Nothing, or waiting for a disk.
    pub(crate) idle: f64,
    /// Taken away by the hypervisor.
    pub(crate) stolen: f64,
    /// All processes, to the nanosecond, where cgroups have it (cpuacct, version 1). The others are samples of the
    /// clock's tick: a server that wakes in step with it seems to run for twice as long as it does.
    pub(crate) processes: Option<f64>,
}

impl CoreTimes {
    /// Counts time at low priority as busy, where it is the measured client's own: browsers lower the priority of some of
    /// their threads.
    pub(crate) fn with_nice(self) -> Self {
        Self { busy: self.busy + self.nice, nice: 0.0, ..self }
    }

    /// All of it.
    pub(crate) fn total(self) -> f64 {
        self.busy + self.nice + self.idle + self.stolen
    }
}

impl Sub for CoreTimes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            busy: self.busy - other.busy,
            interrupts: self.interrupts - other.interrupts,
            nice: self.nice - other.nice,
            idle: self.idle - other.idle,
            stolen: self.stolen - other.stolen,
            processes: self.processes.zip(other.processes).map(|(now, then)| now - then),
        }
    }
}

/// Reads a core's line of /proc/stat.
pub(crate) fn core_times(text: &str, core: usize, ticks: f64) -> Option<CoreTimes> {
    let name = format!("cpu{core}");
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
    let fields: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .map(|time: f64| time / ticks)
        .collect();
    let [user, nice, system, idle, waiting, irq, soft_irq, stolen, ..] = *fields.as_slice() else { return None };
    let interrupts = irq + soft_irq;
    let (busy, idle) = (user + system + interrupts, idle + waiting);
    Some(CoreTimes { busy, interrupts, nice, idle, stolen, processes: None })
}

/// Seconds that processes ran on a core, from a cpuacct.usage_percpu.
pub(crate) fn processes(text: &str, core: usize) -> Option<f64> {
    text.split_ascii_whitespace().nth(core)?.parse::<f64>().ok().map(|nanoseconds| nanoseconds * 1e-9)
}

/// A `Key:  N kB` line of /proc/PID/status or smaps_rollup, in bytes.
pub(crate) fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// A `Key:  N` line of /proc/PID/status.
pub(crate) fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim().parse().ok()
}

/// The number behind a key and a blank, as the files of cgroups have it.
pub(crate) fn pair(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?.trim().parse().ok()
}

/// A counter of a table that /proc/net/snmp has: a line of names, a line of numbers.
pub(crate) fn snmp(text: &str, protocol: &str, counter: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| *name == protocol);
    let (names, numbers) = (lines.next()?.1, lines.next()?.1);
    let at = names.split_ascii_whitespace().position(|name| name == counter)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Packets that a namespace's devices received and sent, all but the loopback, from /proc/net/dev.
pub(crate) fn packets(text: &str) -> (u64, u64) {
    let of = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let mut counters = counters.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = |at| counters.nth(at)?.ok();
        // Eight counters each of what came and of what left, of which packets are the second.
        (name.trim() != "lo").then_some((next(1)?, next(7)?))
    };
    text.lines().filter_map(of).fold((0, 0), |sum, (received, sent)| (sum.0 + received, sum.1 + sent))
}

/// The first `model name` of /proc/cpuinfo.
pub(crate) fn cpu_model(text: &str) -> Option<&str> {
    value_of(text, "model name")
}

/// Of the CPU's flags, those that matter to cryptography and copying.
pub(crate) fn cpu_flags(text: &str) -> Vec<&str> {
    const TELLING: [&str; 7] = ["aes", "vaes", "pclmulqdq", "vpclmulqdq", "avx2", "avx512f", "sha_ni"];
    let flags = value_of(text, "flags").unwrap_or_default();
    flags.split_ascii_whitespace().filter(|flag| TELLING.contains(flag)).collect()
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key)?;
    Some(value.trim())
}

/// At how many local addresses /proc/net/udp or /proc/net/tcp has a socket at a port; of TCP one that listens.
pub(crate) fn addresses_at(text: &str, port: u16, tcp: bool) -> usize {
    /// TCP_LISTEN (include/net/tcp_states.h); an unconnected socket of UDP is in another state.
    const LISTEN: &str = "0A";
    let port = format!("{port:04X}");
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (address, there) = words.next()?.rsplit_once(':')?;
        (there == port && (!tcp || words.nth(1) == Some(LISTEN))).then_some(address)
    });
    addresses.collect::<BTreeSet<&str>>().len()
}

/// Datagrams lost to full receive buffers of the sockets at a local port of /proc/net/udp.
pub(crate) fn drops_at(text: &str, port: u16) -> u64 {
    let port = format!("{port:04X}");
    let drops = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (_, there) = words.next()?.rsplit_once(':')?;
        (there == port).then_some(words.last()?.parse::<u64>().ok()?)
    };
    text.lines().filter_map(drops).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_blanks_is_read() {
        let text = "77 (a) S (b) S 5 6 6 0 -1 4194560 1 2 3 4 150 250 10 20 20 0 3 0 100 1000 50 1\n";
        let stat = process_stat(text, 100.0).unwrap();
        assert_eq!((stat.parent, stat.group, stat.state), (5, 6, 'S'));
        assert!((stat.cpu.user - 1.6).abs() < 1e-9, "own and children's: {:?}", stat.cpu);
        assert!((stat.cpu.system - 2.7).abs() < 1e-9, "own and children's: {:?}", stat.cpu);
    }

    #[test]
    fn a_line_cut_short_is_none() {
        assert_eq!(process_stat("77 (a) S 5 6 6 0", 100.0), None);
        assert_eq!(process_stat("", 100.0), None);
        assert_eq!(core_times("cpu0 1 2 3", 0, 100.0), None);
    }

    #[test]
    fn the_own_process_can_be_read() {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let stat = process_stat(&text, 100.0).unwrap();
        assert!(stat.parent > 0 && stat.group > 0);
    }

    #[test]
    fn a_cores_line_is_its_own_and_soft_interrupts_are_work() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 100 20 100 300 100 0 50 50 0 0\ncpu10 1 1 1 1 1 1 1 1 1 1\n";
        let times = core_times(text, 1, 100.0).unwrap();
        assert_eq!((times.busy, times.interrupts, times.idle, times.stolen), (2.5, 0.5, 4.0, 0.5));
        assert_eq!((times.nice, times.total()), (0.2, 7.2));
        assert_eq!(core_times(text, 2, 100.0), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(kilobytes("VmPeak:\t 10 kB\nVmRSS:\t  1234 kB\n", "VmRSS"), Some(1234 * 1024));
        assert_eq!(kilobytes("VmRSSX:\t  1234 kB\n", "VmRSS"), None);
    }

    #[test]
    fn a_number_of_a_process_is_its_own() {
        let text = "Threads:\t3\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t42\n";
        assert_eq!(number(text, "voluntary_ctxt_switches"), Some(42));
        assert_eq!(number(text, "ctxt_switches"), None);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 10 7\n";
        assert_eq!(snmp(text, "Udp", "RcvbufErrors"), Some(7));
        assert_eq!(snmp(text, "Udp", "Other"), None);
        assert_eq!(snmp(text, "Sctp", "A"), None);
    }

    #[test]
    fn packets_of_devices_are_summed_without_the_loopback() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n\
                    \x20   lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  wire: 100 7 0 0 0 0 0 0 200 5 0 0 0 0 0 0\n\
                    \x20 two:1 1 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n";
        assert_eq!(packets(text), (8, 7));
    }

    #[test]
    fn a_cpu_is_named_with_its_telling_flags() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nflags\t\t: fpu aes avx2 foo\n";
        assert_eq!(cpu_model(text), Some("A CPU @ 3 GHz"));
        assert_eq!(cpu_flags(text), ["aes", "avx2"]);
    }

    #[test]
    fn what_a_socket_dropped_is_in_the_last_column() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                    \x20 7: 010200C0:20FB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 31\n\
                    \x20 8: 010200C0:20FB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 11\n";
        assert_eq!((drops_at(text, 8443), drops_at(text, 8444)), (42, 0));
    }

    #[test]
    fn a_socket_is_found_by_its_port() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                    \x20  7: 010200C0:20FB 00000000:0000 07 00000000:00000000\n\
                    \x20  8: 010200C0:20FC 00000000:0000 0A 00000000:00000000\n";
        assert_eq!((addresses_at(text, 8443, false), addresses_at(text, 8443, true)), (1, 0));
        assert_eq!((addresses_at(text, 8444, true), addresses_at(text, 8445, false)), (1, 0));
    }
}
