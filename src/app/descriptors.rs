//! Raises the limit of open files at the start, and divides the descriptors among workers, clients and origins.
//! `check`, the start's log and `/status` show the result.

use super::memory_watch;
use litequic_admin::{self as admin, DerivedStatus, DescriptorSideStatus, DescriptorStatus};
use litequic_config::{AdminSocket, Config, FaultCollector, Limits};
use litequic_proxy::{Capacity, DerivedLimits};
use litequic_resources::descriptors::{DescriptorDivision, Descriptors, ProxySide};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fmt, fs, io, sync::Arc};

/// The kernel's maximum of RLIMIT_NOFILE (proc_sys_fs(5)).
const NR_OPEN_FILE: &str = "/proc/sys/fs/nr_open";
/// Linux's default of `fs.nr_open`, if the file cannot be read.
const DEFAULT_NR_OPEN: u64 = 1_048_576;

/// Descriptors of the process beside the following ones: standard streams, the control thread's runtime, signals,
/// inotify, the service manager's socket, the access log and its successor at a reload, files of memory cgroups,
/// certificates and pages while they are read, the handover's socket, pipe and processes, name lookups.
const PROCESS_DESCRIPTORS: usize = 64;
/// Descriptors of a worker: its runtime's epoll instance, eventfd and signal pipe.
const WORKER_DESCRIPTORS: usize = 8;
/// Descriptors of a worker for a UDP address: the socket, the duplicate that an upgrade hands over, and with io_uring
/// the ring and its eventfd.
const UDP_DESCRIPTORS: usize = 4;
/// Descriptors of a worker for a TCP address: the listener, the duplicate that an upgrade hands over, the spare
/// descriptor, and a connection that was accepted and not counted yet.
const TCP_DESCRIPTORS: usize = 4;
/// Descriptors of an admin address besides its connections: the listener, and the duplicate that an upgrade hands over.
const ADMIN_DESCRIPTORS: usize = 2;
/// Descriptors for a server of an origin: its health check, and the probe of `/readyz` and `/status`. Each may try two
/// of the server's addresses at once.
const SERVER_DESCRIPTORS: usize = 4;
/// Divisor of the part of all descriptors that the connections of one admin address may have: 32 of 1,024.
const ADMIN_SHARE: u32 = 32;
/// Maximum number of connections of the admin socket: a few `litequic ctl` at once.
pub(super) const MAX_SOCKET_CONNECTIONS: usize = 8;

/// Minimum number of connections of an admin address: a kubelet, a scraper and an operator at once.
const MIN_ADMIN_CONNECTIONS: usize = 4;
/// Limit of descriptors below which the defaults of `[limits]` are far out of reach: four times a shell's.
const LOW_LIMIT: u32 = 4_096;

/// The soft limit of open files could not be raised.
#[derive(Debug, thiserror::Error)]
#[error("cannot raise the limit of open files from {from} to {to}: {source}")]
pub struct RaiseLimitError {
    from: u64,
    to: u64,
    source: io::Error,
}

/// Raises the soft limit of open files to the hard one, at most `fs.nr_open`. The soft limit protects programs that use
/// select(2), which litequic does not.
///
/// # Errors
///
/// [`RaiseLimitError`]: the limit is unchanged.
pub fn raise_open_files() -> Result<(), RaiseLimitError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (from, to) = (current.unwrap_or(u64::MAX), reachable_limit(maximum, read_nr_open()));
    if from >= to {
        return Ok(());
    }
    // A hard limit beyond `fs.nr_open` cannot be set again: EPERM.
    let raised = Rlimit { current: Some(to), maximum: Some(to) };
    setrlimit(Resource::Nofile, raised).map_err(|error| RaiseLimitError { from, to, source: error.into() })
}

/// The soft limit that [`raise_open_files`] leads to.
fn reachable_limit(hard: Option<u64>, nr_open: u64) -> u64 {
    hard.map_or(nr_open, |hard| hard.min(nr_open))
}

fn read_nr_open() -> u64 {
    let read = fs::read_to_string(NR_OPEN_FILE).ok();
    read.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_NR_OPEN)
}

/// Limit of open files that descriptors are planned for.
#[derive(Debug, Clone, Copy, Default)]
pub enum OpenFilesLimit {
    /// The soft limit in force.
    #[default]
    InForce,
    /// The soft limit that a start would reach.
    Reachable,
    /// Two thirds of the soft limit in force: an origin in the same process has the other end of each connection to it.
    Shared,
    /// A number that the caller sets, in tests.
    Given(u32),
}

impl OpenFilesLimit {
    fn open_files_limit(self) -> u32 {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let limit = match self {
            Self::InForce => current.unwrap_or(u64::MAX),
            Self::Reachable => {
                reachable_limit(maximum, read_nr_open()).max(current.unwrap_or(u64::MAX).min(read_nr_open()))
            }
            Self::Shared => current.unwrap_or(u64::MAX) / 3 * 2,
            Self::Given(limit) => limit.into(),
        };
        u32::try_from(limit).unwrap_or(u32::MAX)
    }
}

/// Division of the descriptors, and the limits of origins that follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorPlan {
    /// Division of the descriptors among clients and origins.
    pub division: DescriptorDivision,
    /// Default limits of origins.
    pub derived: DerivedLimits,
    /// Number of workers of the process.
    pub workers: usize,
    /// Maximum number of connections of one admin address.
    pub(super) admin_connections: usize,
}

impl DescriptorPlan {
    /// Plans the descriptors for `config` and a number of `workers`, within the limit of `files`.
    pub(super) fn new(config: &Config, workers: usize, files: OpenFilesLimit) -> Self {
        let memory = memory_watch::available_memory(config.limits.memory);
        Self::from_limits(config, workers, files.open_files_limit(), memory)
    }

    /// Plans the descriptors of a process that `config` would start here.
    pub fn for_start(config: &Config) -> Self {
        Self::new(config, super::InheritedSockets::default().worker_count(config), OpenFilesLimit::Reachable)
    }

    fn from_limits(config: &Config, workers: usize, limit: u32, memory: u64) -> Self {
        let most = admin::AdminLimits::default().connections;
        let admin_connections = most.min((limit / ADMIN_SHARE) as usize).max(MIN_ADMIN_CONNECTIONS);
        let listen = &config.listen;
        let servers: usize = config.origins.values().map(|origin| origin.servers.len()).sum();
        let tcp = (listen.tcp.len() + listen.redirect.len()) * TCP_DESCRIPTORS;
        let worker = listen.udp.len() * UDP_DESCRIPTORS + tcp + WORKER_DESCRIPTORS;
        let admin_addresses = config.admin.listen.iter().chain(&config.admin.probes).count();
        let admin = admin_addresses * (admin_connections + ADMIN_DESCRIPTORS);
        let has_socket = config.admin.socket != AdminSocket::None;
        let socket = if has_socket { MAX_SOCKET_CONNECTIONS + ADMIN_DESCRIPTORS } else { 0 };
        let fixed = PROCESS_DESCRIPTORS + workers * worker + admin + socket + servers * SERVER_DESCRIPTORS;
        let division = DescriptorDivision { limit, fixed: u32::try_from(fixed).unwrap_or(u32::MAX) };
        let derived = DerivedLimits::new(&division, memory, workers, servers);
        Self { division, derived, workers, admin_connections }
    }

    /// Whether the plan satisfies all keys of `config`.
    pub fn is_enough_for(&self, config: &Config) -> bool {
        self.unreachable_keys(config).is_empty()
    }

    /// Keys of `config` that the plan cannot satisfy, each with the problem.
    fn unreachable_keys(&self, config: &Config) -> Vec<(String, String)> {
        let (division, workers) = (&self.division, self.workers as u64);
        let DescriptorDivision { limit, .. } = *division;
        let mut warnings = Vec::new();
        let mut warn = |key: String, connections: u64, side: ProxySide, whose: &str| {
            let most = division.max_for_side(side);
            if connections > most.into() {
                let problem = format!(
                    "cannot be reached: {workers} workers would need {connections} file descriptors, and of {limit} \
                     in total {whose} get at most {most}; raise the limit of open files (RLIMIT_NOFILE)"
                );
                warnings.push((key, problem));
            }
        };
        let clients = config.limits.max_connections;
        // The default is for machines of any size: only a limit that is low for any server is worth a warning.
        if clients != Limits::default().max_connections || limit < LOW_LIMIT {
            let all = u64::from(clients).saturating_mul(workers);
            warn("limits.max_connections".into(), all, ProxySide::Clients, "clients over TCP");
        }
        for (name, origin) in &config.origins {
            if let Some(number) = origin.max_connections {
                let all = u64::from(number).saturating_mul(workers).saturating_mul(origin.servers.len() as u64);
                let table = if name == Config::ORIGIN_NAME { "origin".into() } else { format!("origins.{name}") };
                warn(format!("{table}.max_connections"), all, ProxySide::Origins, "origins");
            }
        }
        warnings
    }
}

/// Warns of keys of `config` that the descriptors of a start here cannot satisfy.
pub(super) fn warn_unreachable_keys(config: &Config, findings: &mut FaultCollector) {
    for (key, problem) in DescriptorPlan::for_start(config).unreachable_keys(config) {
        findings.add_warning(&key, problem);
    }
}

impl fmt::Display for DescriptorPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { division, derived, workers, .. } = self;
        write!(
            f,
            "file descriptors: {} (fixed part {}, clients over TCP {} to {}, origins {} to {}); derived for each of {} \
             workers and each server: origin.max_connections {}, origin.max_queue {}",
            division.limit,
            division.fixed,
            division.reserved_for(ProxySide::Clients),
            division.max_for_side(ProxySide::Clients),
            division.reserved_for(ProxySide::Origins),
            division.max_for_side(ProxySide::Origins),
            workers,
            derived.max_connections,
            derived.max_queue,
        )
    }
}

/// Descriptors that clients and origins share; reloads update the division.
#[derive(Debug, Clone)]
pub(super) struct SharedDescriptors {
    files: OpenFilesLimit,
    workers: usize,
    pub(super) capacity: Arc<Capacity>,
}

impl SharedDescriptors {
    /// Divides the descriptors within the limit of `files` among `workers` workers, by `config`.
    pub(super) fn new(config: &Config, workers: usize, files: OpenFilesLimit) -> Self {
        let DescriptorPlan { division, derived, .. } = DescriptorPlan::new(config, workers, files);
        let descriptors = Arc::new(Descriptors::new(division));
        Self { files, workers, capacity: Arc::new(Capacity::new(descriptors, workers, derived)) }
    }

    /// Plans the descriptors of this process for `config`.
    pub(super) fn plan_for(&self, config: &Config) -> DescriptorPlan {
        DescriptorPlan::new(config, self.workers, self.files)
    }

    /// Applies the division of `config`; open connections stay open.
    pub(super) fn update_division(&self, config: &Config) {
        let DescriptorPlan { division, derived, .. } = self.plan_for(config);
        self.capacity.descriptors.set_division(division);
        self.capacity.set_derived(derived);
    }

    /// Division in force and descriptors in use, for `/status`.
    pub(super) fn descriptor_status(&self) -> DescriptorStatus {
        let (division, taken, derived) = (
            self.capacity.descriptors.division(),
            self.capacity.descriptors.taken_descriptors(),
            self.capacity.derived_limits(),
        );
        let side = |side| DescriptorSideStatus {
            open: Some(taken.taken_by(side).into()),
            reserved: Some(division.reserved_for(side).into()),
            most: Some(division.max_for_side(side).into()),
        };
        DescriptorStatus {
            limit: Some(division.limit.into()),
            fixed: Some(division.fixed.into()),
            clients: side(ProxySide::Clients),
            origins: side(ProxySide::Origins),
            derived: DerivedStatus {
                max_connections: Some(derived.max_connections as u64),
                max_queue: Some(derived.max_queue as u64),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn config() -> Config {
        let origin = "http://origin".parse().unwrap();
        Config::with_defaults(([127, 0, 0, 1], 8443).into(), origin, "cert.pem".into(), "key.pem".into())
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_limit_and_nr_open() {
        for (hard, nr_open, expected) in
            [(Some(4_096), 1_048_576, 4_096), (Some(1 << 40), 1_048_576, 1_048_576), (None, 1 << 30, 1 << 30)]
        {
            assert_eq!(reachable_limit(hard, nr_open), expected);
        }
        assert!(read_nr_open() >= 1_024);
    }

    #[test]
    fn fixed_descriptors_depend_on_workers_addresses_and_servers() {
        let mut config = config();
        let fixed =
            |config: &Config, workers| DescriptorPlan::from_limits(config, workers, 1_048_576, GIB).division.fixed;
        assert_eq!(fixed(&config, 1), 64 + (8 + 4 + 4) + 4 + 10);
        assert_eq!(fixed(&config, 4), 64 + 4 * (8 + 4 + 4) + 4 + 10);
        config.admin.socket = AdminSocket::None;
        assert_eq!(fixed(&config, 1), 64 + (8 + 4 + 4) + 4);
        config.admin.probes = Some(([127, 0, 0, 1], 9090).into());
        assert_eq!(fixed(&config, 1), 64 + (8 + 4 + 4) + 4 + 66);
        config.listen.tcp.clear();
        assert_eq!(fixed(&config, 1), 64 + (8 + 4) + 4 + 66);
    }

    #[test]
    fn a_warning_names_the_key_that_cannot_be_reached() {
        let mut config = config();
        let warnings = |config: &Config, limit| {
            let warnings = DescriptorPlan::from_limits(config, 2, limit, GIB).unreachable_keys(config);
            warnings.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(warnings(&config, 20_000), [""; 0], "a default is for machines of any size");
        assert_eq!(warnings(&config, 1_024), ["limits.max_connections"]);
        config.limits.max_connections = 10_000;
        assert_eq!(warnings(&config, 1_048_576), [""; 0]);
        assert_eq!(warnings(&config, 20_000), ["limits.max_connections"]);
        config.limits.max_connections = 100;
        config.origins.values_mut().for_each(|origin| origin.max_connections = Some(6_000));
        assert_eq!(warnings(&config, 20_000), ["origin.max_connections"]);
    }
}
