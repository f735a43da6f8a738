//! The composition root: the only module that depends on all others. Reads as a table of contents of a running
//! litequic.

pub mod reload;

mod acme_files;
mod admin_socket;
mod bounds;
mod clients;
mod collector_tls;
mod denial;
mod descriptors;
mod draining;
mod files;
mod handover;
mod idle;
mod inside;
mod issued;
mod mailbox;
mod memory;
mod metrics;
mod named_socket;
mod origin_tls;
mod renewal;
mod service;
mod sockets;
mod start;
mod switch;
mod users;
mod watch;
mod worker;

pub use descriptors::{DescriptorPlan, OpenFiles, RaiseError, raise_limit};
pub use files::{Loads, load};
pub use metrics::{Metrics, TurnMetrics, WorkerMetrics, is_counted, reference};
pub use sockets::Inherited;

use draining::{OldestClient, REPORT_INTERVAL};
use handover::{HandoverError, HandoverListener};
pub(crate) use idle::release_by;
use litequic_admin::{self as admin, DefaultSocket};
use litequic_base::lifecycle::{Lifecycle, Phase};
use litequic_config::{Config, Timeouts};
use litequic_exchange::Handler;
use litequic_net::{BindError, ListenError};
use litequic_proxy::{PageError, Proxy, UsersError};
use litequic_quic::{Replica, SecretError, Secrets, ServerIdKey, ServerIdKeyError};
use litequic_resources::memory::MemoryGauge;
use litequic_telemetry::{
    access_log::{self, AccessLogger},
    log,
};
use litequic_tls::CertificateStore;
use reload::InForce;
use start::Prepared;
use std::{collections::BTreeSet, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use worker::{Worker, WorkerReport};

/// How long this process serves as before once another one has taken over: so that clients that were steered to it in
/// that moment, with a handshake and a request to make, are served here.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);

/// How long workers may take to close their connections once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What the command line adds to the configuration.
#[derive(Debug, Default)]
pub struct Options {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// The receiver of `POST /reload`. `None`: there is none.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
    /// The admin socket of a configuration that names none.
    pub admin_socket: DefaultSocket,
    /// What a service manager has bound.
    pub inherited: Inherited,
    /// Reports how short memory is. Without it litequic watches memory itself, as `limits.memory` says.
    pub memory: Option<MemoryGauge>,
    /// The counts of the log's lines.
    pub log: Arc<log::Metrics>,
    /// The limit of open files that counts.
    pub open_files: OpenFiles,
}

/// A host without a name, where `listen.secret_file` is set.
const NO_REPLICA: &str = "this host has no name; set listen.replica to one that no other replica with this secret has";

/// Why litequic did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operator's files, valid a moment ago.
    #[error("{}", lines(.0))]
    Pages(Vec<PageError>),
    /// Files of users.
    #[error("{}", lines(.0))]
    Users(Vec<UsersError>),
    /// Files of TLS to origins, and to the collector of spans, by key.
    #[error("{}", .0.iter().map(|(key, problem)| format!("{key}: {problem}")).collect::<Vec<_>>().join("\n"))]
    OriginTls(Vec<(String, String)>),
    /// The operator's file as well.
    #[error("listen.secret_file: {0}")]
    Secret(#[from] SecretError),
    /// The key that the configuration names, for connection IDs.
    #[error("listen.server_id.key_file: {0}")]
    ServerIdKey(#[from] ServerIdKeyError),
    /// The host has no name, and the configuration none for the replica.
    #[error("listen.secret_file: {NO_REPLICA}")]
    NoReplica,
    /// The file that the configuration names as well.
    #[error(transparent)]
    AccessLog(#[from] access_log::OpenError),
    /// The token that the configuration names.
    #[error(transparent)]
    Token(#[from] admin::TokenError),
    /// A UDP address is in use, or not local.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A TCP address is in use, or not local.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An admin address is in use, or not local.
    #[error("cannot bind {key} = \"{address}\": {source}")]
    Admin {
        /// The key of `[admin]`.
        key: &'static str,
        /// Address that the key has.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The Unix socket that the configuration names for requests.
    #[error("cannot listen on admin.socket = {path:?}: {source}")]
    AdminSocket {
        /// Path that the key has.
        path: PathBuf,
        /// The kernel's reason, or another process.
        source: io::Error,
    },
    /// The sockets that a service manager passed cannot be used.
    #[error("cannot use a socket that the service manager passed: {0}")]
    Passed(io::Error),
    /// The running process keeps its place.
    #[error(transparent)]
    TakeOver(#[from] HandoverError),
    /// The Unix socket that the configuration names.
    #[error("cannot listen on admin.handover = {path:?}: {source}")]
    Handover {
        /// Path that the key has.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// pipe(2) failed.
    #[error("cannot create a pipe: {0}")]
    Pipe(io::Error),
    /// rustls rejected what it was given.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The system's random number generator failed.
    #[error("cannot generate random secrets")]
    Random,
    /// A thread or its endpoint did not start.
    #[error("worker {index} did not start: {reason}")]
    Worker {
        /// Which.
        index: usize,
        /// Why.
        reason: String,
    },
}

fn lines(errors: &[impl ToString]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A worker ended without a request to: its sockets are dead, so the process must end.
#[derive(Debug, thiserror::Error)]
#[error("worker {0} ended unexpectedly")]
pub struct WorkerDied(usize);

/// A litequic that serves.
pub struct Running {
    /// The addresses for HTTP/3, in the order of `[listen] udp`.
    pub addresses: Vec<SocketAddr>,
    /// The addresses for HTTP/1.1 and HTTP/2 over TCP, in the order of `[listen] tcp`.
    pub tcp: Vec<SocketAddr>,
    /// The addresses for redirects from plain HTTP, in the order of `[listen] redirect`.
    pub redirects: Vec<SocketAddr>,
    /// `[admin] listen`
    pub admin: Option<SocketAddr>,
    /// `[admin] probes`
    pub probes: Option<SocketAddr>,
    /// `[admin] socket`, or the default one.
    pub admin_socket: Option<PathBuf>,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// Advance it to [`Phase::Leaving`] to drain, to [`Phase::Stopping`] to stop at once.
    pub lifecycle: Lifecycle,
    in_force: InForce,
    /// Reopens the access log's file, if there is one.
    pub access_log: Arc<AccessLogger>,
    workers: Vec<Worker>,
    /// By worker.
    oldest: Vec<Arc<OldestClient>>,
    /// Duplicates of every worker's sockets, never read: the kernel's program picks a socket by its place in the group,
    /// and a worker that ends before the others would change their places.
    handover: HandoverListener,
    reports: mpsc::UnboundedReceiver<WorkerReport>,
    /// The admin listeners and the health checks; they end with [`Phase::Stopping`].
    tasks: JoinSet<()>,
    /// The systemd watchdog's task, which ends when this is dropped.
    _watchdog: JoinSet<()>,
}

/// The keys of tokens, tickets and cookies: of the file that the configuration names, or random ones.
///
/// # Errors
///
/// [`StartError::Secret`], [`StartError::NoReplica`] or [`StartError::Random`].
fn secrets(config: &Config) -> Result<Secrets, StartError> {
    let replica = replica(config);
    match &config.listen.secret_file {
        Some(path) => Ok(Secrets::load(path)?.of_replica(replica.ok_or(StartError::NoReplica)?)),
        // No other process has the secret.
        None => Ok(Secrets::random().map_err(|_| StartError::Random)?.of_replica(replica.unwrap_or_default())),
    }
}

/// The key that balancers decrypt connection IDs with, if there is one.
///
/// # Errors
///
/// [`StartError::ServerIdKey`].
fn server_id_key(config: &Config) -> Result<Option<ServerIdKey>, StartError> {
    let path = config.listen.server_id.as_ref().and_then(|server_id| server_id.key_file.as_ref());
    Ok(path.map(|path| ServerIdKey::load(path)).transpose()?)
}

/// The replica that this process is: by its server ID, or as configured, or by the host's name. `None` if the host has
/// none.
fn replica(config: &Config) -> Option<Replica> {
    if let Some(server_id) = &config.listen.server_id {
        // No name has a space.
        return Some(Replica::named(format!("server ID {}", server_id.digits())));
    }
    config.listen.replica.as_deref().map(Replica::named).or_else(Replica::of_host)
}

/// Starts litequic: binds every address that it does not inherit, starts the workers, then the admin listeners. Returns
/// when it accepts clients. To be called on a tokio runtime, which the admin listeners use; workers have threads and
/// runtimes of their own. Where another process runs that can be taken over from, it is, with the last step.
///
/// `wrap` is put around each worker's proxy; pass the identity for the proxy alone.
///
/// # Errors
///
/// [`StartError`]. A process that was to be taken over from goes on.
pub async fn start<H: Handler>(
    config: &Config,
    certificates: CertificateStore,
    options: Options,
    wrap: impl Fn(Proxy) -> H + Clone + Send + 'static,
) -> Result<Running, StartError> {
    Prepared::new(config, certificates, options).await?.bind().await?.run(wrap).await
}

impl Running {
    /// Waits until litequic has ended: requested by [`Running::lifecycle`], after the drain.
    ///
    /// # Errors
    ///
    /// [`WorkerDied`]. What the other workers were doing is cut off.
    pub async fn wait(mut self) -> Result<(), WorkerDied> {
        let mut watch = self.lifecycle.watch();
        let mut phase = Phase::Ready;
        // A worker's end, which begins the loop anew, does not lengthen the phase.
        let mut since = Instant::now();
        let mut next_line = since + REPORT_INTERVAL;
        // Workers without a connection: they refuse new ones until all are.
        let mut drained = BTreeSet::new();
        let outcome = loop {
            if self.workers.is_empty() {
                break Ok(());
            }
            let is_drained = self.workers.iter().all(|worker| drained.contains(&worker.index()));
            if is_drained && phase == Phase::Draining {
                // Nothing is cut off: the log need not say that.
                self.lifecycle.advance(Phase::Stopping);
                phase = Phase::Stopping;
                since = Instant::now();
            }
            let (timeouts, grace, handed_over) = (self.timeouts(), self.grace(), self.handover.handed_over());
            let next = async {
                match phase {
                    Phase::Starting | Phase::Ready => watch.reached(Phase::Leaving).await,
                    Phase::Leaving => wait_or(since + grace, watch.reached(Phase::Draining)).await,
                    Phase::Draining => wait_or(since + timeouts.drain, watch.reached(Phase::Stopping)).await,
                    Phase::Stopping => sleep_until(since + STOP_GRACE).await,
                }
            };
            select! {
                biased;
                Some(report) = self.reports.recv() => {
                    let ended = match report {
                        WorkerReport::Drained(index) => {
                            drained.insert(index);
                            continue;
                        }
                        WorkerReport::Ended(ended) => ended,
                    };
                    // Workers may have seen a phase that this loop has not seen yet.
                    if self.lifecycle.phase() < Phase::Draining || !ended.in_order {
                        break Err(WorkerDied(ended.index));
                    }
                    self.workers.retain(|worker| worker.index() != ended.index);
                }
                () = handed_over, if self.lifecycle.phase() < Phase::Leaving => {
                    self.lifecycle.advance(Phase::Leaving);
                }
                () = sleep_until(next_line), if phase == Phase::Draining => {
                    let left = (since + timeouts.drain).saturating_duration_since(Instant::now());
                    draining::report(&self.metrics, &self.oldest, left);
                    next_line += REPORT_INTERVAL;
                }
                () = next => {
                    phase = match phase {
                        Phase::Starting | Phase::Ready => self.enter(Phase::Leaving),
                        Phase::Leaving => self.enter(Phase::Draining),
                        Phase::Draining => self.enter(Phase::Stopping),
                        Phase::Stopping => break Ok(()), // a worker that does not end ends with the process
                    };
                    since = Instant::now();
                    next_line = since + REPORT_INTERVAL;
                }
            }
        };
        self.lifecycle.advance(Phase::Stopping);
        while self.tasks.join_next().await.is_some() {}
        tokio::join!(self.access_log.finish(), self.in_force.traces.finish());
        outcome
    }

    /// How long new connections are still accepted. A process that was taken over from need not wait for balancers.
    fn grace(&self) -> Duration {
        if self.handover.is_handed_over() { HANDOVER_GRACE } else { self.timeouts().drain_grace }
    }

    fn timeouts(&self) -> Timeouts {
        self.in_force.config.load().timeouts
    }

    /// Moves on to `phase`, unless a later one was set meanwhile.
    fn enter(&self, phase: Phase) -> Phase {
        self.lifecycle.advance(phase);
        let now = self.lifecycle.phase();
        match now {
            Phase::Starting | Phase::Ready => {}
            Phase::Leaving => {
                // With another process in its place the service goes on.
                if !self.handover.is_handed_over() {
                    service::stopping();
                }
                tracing::info!(grace = ?self.grace(), "leaving: no longer ready");
            }
            Phase::Draining => tracing::info!(deadline = ?self.timeouts().drain, "draining: requests may finish"),
            Phase::Stopping => tracing::info!("stopping"),
        }
        now
    }
}

/// Waits for `event`, until `deadline` at most.
async fn wait_or(deadline: Instant, event: impl Future<Output = ()>) {
    select! {
        () = sleep_until(deadline) => {}
        () = event => {}
    }
}
