//! The composition root: the only place that knows every part. Reads as a table of contents of a running litequic.

pub mod reload;

mod access;
mod files;
mod handover;
mod idle;
mod inside;
mod memory;
mod renewal;
mod service;
mod sockets;
mod watch;
mod worker;

pub use files::{Loads, load};
pub use sockets::Inherited;

use crate::{
    admin,
    config::{AccessTarget, Config, Limits, Timeouts},
    exchange::Handler,
    lifecycle::{Lifecycle, Phase, Watch},
    memory::Gauge,
    net::{BindError, ListenError},
    proxy::{self, PageError, Pages, Proxy},
    quic::{EndpointParts, Layout, Pools, SecretError, Secrets, ServerId, WorkerIndex},
    receive_budget::ReceiveBudget,
    telemetry::{Heartbeat, Metrics},
    tls::{self, Asking, CertificateResolver, CertificateStore, ServerTls, TcpTls},
};
pub use access::Access;
use handover::{Beginning, HandoverError, Kept, keeper, take_over};
use http::HeaderValue;
pub(crate) use idle::release_by;
use reload::InForce;
use sockets::Sockets;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    num::NonZeroU16,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use worker::{Ended, Worker};

/// How long this process goes on as before once another one has taken over: so that whoever came to it in that moment,
/// with a handshake and a request to make, is served here.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);

/// How long workers may take to close their connections once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What the command line adds to the configuration.
#[derive(Debug, Default)]
pub struct Options {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// Where `POST /reload` goes. Without it there is none.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
    /// What a service manager has bound.
    pub inherited: Inherited,
    /// Says how short memory is. Without it litequic looks itself, as `limits.memory` says.
    pub memory: Option<Gauge>,
}

/// Why litequic did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operator's files, which were good a moment ago.
    #[error("{}", lines(.0))]
    Pages(Vec<PageError>),
    /// The operator's file as well.
    #[error("listen.secret_file: {0}")]
    Secret(#[from] SecretError),
    /// The file that the configuration names as well.
    #[error("cannot write access_log.path = \"{path}\": {source}")]
    AccessLog {
        /// Where lines were to go.
        path: AccessTarget,
        /// The system's reason.
        source: io::Error,
    },
    /// The token that the configuration names.
    #[error(transparent)]
    Token(#[from] admin::TokenError),
    /// A UDP address is taken, or not ours.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A TCP address is taken, or not ours.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An admin address is taken, or not ours.
    #[error("cannot bind {key} = \"{address}\": {source}")]
    Admin {
        /// The key of `[admin]`.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The sockets that a service manager passed are none that can be used.
    #[error("a socket that was passed cannot be used: {0}")]
    Passed(io::Error),
    /// The process that runs keeps its place.
    #[error(transparent)]
    TakeOver(#[from] HandoverError),
    /// The Unix socket that the configuration names.
    #[error("cannot listen on admin.handover = {path:?}: {source}")]
    Handover {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel has none.
    #[error("no pipe can be made: {0}")]
    Pipe(io::Error),
    /// rustls refused what it was given.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The system has no randomness.
    #[error("no random secrets can be made")]
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

/// A worker ended although nobody told it to: its sockets are dead, so the process must end.
#[derive(Debug, thiserror::Error)]
#[error("worker {0} died")]
pub struct WorkerDied(usize);

/// A litequic that serves.
pub struct Running {
    /// Where clients reach it, in the order of `[listen] udp`.
    pub addresses: Vec<SocketAddr>,
    /// The same over TCP, in the order of `[listen] tcp`.
    pub tcp: Vec<SocketAddr>,
    /// And in plain HTTP, in the order of `[listen] redirect`.
    pub redirects: Vec<SocketAddr>,
    /// `[admin] listen`
    pub admin: Option<SocketAddr>,
    /// `[admin] probes`
    pub probes: Option<SocketAddr>,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// Advance it to [`Phase::Leaving`] to drain, to [`Phase::Stopping`] to stop at once.
    pub lifecycle: Lifecycle,
    in_force: InForce,
    /// To have the access log's file opened anew, where there is one.
    pub access_log: Arc<Access>,
    workers: Vec<Worker>,
    /// Every worker's sockets once more, read by nobody: the kernel's program picks a socket by its place in the group,
    /// and a worker that ends before the others would change their places.
    kept: Kept,
    ended: mpsc::UnboundedReceiver<Ended>,
    /// The admin listeners and the health checks; they end with [`Phase::Stopping`].
    tasks: JoinSet<()>,
    /// It ends with this.
    _watchdog: JoinSet<()>,
}

/// The keys of Retry and reset tokens: of the file that the configuration names, or random ones.
///
/// # Errors
///
/// [`StartError::Secret`], or [`StartError::Random`].
fn secrets(config: &Config) -> Result<Secrets, StartError> {
    match &config.listen.secret_file {
        Some(path) => Ok(Secrets::load(path)?),
        None => Secrets::random().map_err(|_| StartError::Random),
    }
}

/// Starts litequic: binds every address that it does not inherit, starts the workers, then the admin listeners. Returns
/// when clients may come. To be called on a tokio runtime, which the admin listeners use; workers have threads and
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
    let Beginning { inherited, generation, secrets, mut predecessor, older, others } =
        Beginning::find(config, options.inherited).await?;
    let count = inherited.workers(config);
    let resolver = CertificateResolver::new(certificates);
    let metrics = Arc::new(Metrics::new(count));
    let access = (Access::start(&config.access_log, Arc::clone(metrics.control())).await)?;
    let in_force = InForce::new(
        config,
        Pages::load(config).map_err(StartError::Pages)?,
        Arc::clone(&resolver),
        Arc::clone(&access),
        Arc::clone(&metrics),
    );
    let routing = Arc::clone(&in_force.routing);
    let policy = move |server_name: Option<&str>| routing.load().certificate_request(server_name);
    let tcp_tls = TcpTls::new(Arc::clone(&resolver), options.key_log, policy.clone())?;
    let asking = Asking::new(Arc::clone(&resolver), options.key_log, policy)?;
    let tls = ServerTls::new(tls::server_config(Arc::clone(&resolver), options.key_log)?).asking(asking);

    let mut sockets = Sockets::bind(config, inherited, count, generation)?;
    let (tcp, redirects) = (sockets.tcp.addresses(), sockets.redirects.addresses());
    // The https that a redirect leads to.
    let https = tcp.first().or(sockets.addresses.first()).map_or(0, SocketAddr::port);
    let https = config.listen.advertised_port.map_or(https, NonZeroU16::get);
    let token = files::read_token(config)?;
    let admin = admin_servers(&mut sockets)?;

    let lifecycle = Lifecycle::default();
    let heartbeats: Vec<Arc<Heartbeat>> = (0..count).map(|_| Arc::default()).collect();
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let layout = Layout::new(ServerId::default());
    let gauge = options.memory.clone().unwrap_or_default();

    let mut workers = Vec::with_capacity(count);
    for (index, (counters, heartbeat)) in metrics.workers().iter().zip(&heartbeats).enumerate() {
        let failed = |error: io::Error| StartError::Worker { index, reason: error.to_string() };
        let alt_svc = |address| alt_svc(config, &sockets.addresses, address);
        let redirects = sockets.redirects.of(index, count, |_| ()).map_err(failed)?;
        let companion = worker::Companion {
            listeners: sockets.tcp.of(index, count, alt_svc).map_err(failed)?,
            tls: tcp_tls.clone(),
            redirects: redirects.into_iter().map(|(listener, ())| listener).collect(),
            https,
        };
        let plan = worker::Plan {
            access: access.of_worker(Arc::clone(counters)),
            index: WorkerIndex(u8::try_from(index).unwrap_or(u8::MAX)),
            sockets: sockets.next_udp(),
            endpoint: EndpointParts {
                config: Arc::clone(&in_force.config),
                tls: tls.clone().counting_in(Arc::clone(counters)),
                secrets: Arc::clone(&secrets),
                layout,
                generation,
                others: Arc::clone(&others),
                workers: count,
                metrics: Arc::clone(counters),
                receive: ReceiveBudget::new(config.limits.worker_receive_buffer, Limits::RECEIVE_FLOOR),
                sources: Pools::default(),
                pressure: gauge.pressure(),
            },
            companion,
            resolver: Arc::clone(&resolver),
            routing: Arc::clone(&in_force.routing),
            heartbeat: Arc::clone(heartbeat),
            watch: lifecycle.watch(),
        };
        workers.push(Worker::start(plan, wrap.clone(), ended_sender.clone()).await?);
    }

    let addresses = Addresses { udp: sockets.addresses.clone(), tcp, redirects };
    let state = Arc::new(admin::State {
        metrics: Arc::clone(&metrics),
        scrape: admin::Scrape::default(),
        lifecycle: lifecycle.clone(),
        heartbeats: heartbeats.clone(),
        readiness: admin::Readiness::new(Some(inside::origin_probe(&in_force))),
        reload: options.reload,
        token,
        names: config.admin.names.clone(),
        inside: Some(inside::inside(&in_force, &addresses.udp)),
    });
    let keeper = keeper(sockets, (layout, generation), secrets, &metrics)?.minding(older, others);
    let kept = take_over(keeper, predecessor.as_mut(), config, &lifecycle).await?;

    let mut tasks = JoinSet::new();
    let local = |server: &Option<admin::Server>| server.as_ref().and_then(|server| server.local_address().ok());
    let (admin_address, probes_address) = (local(&admin.0), local(&admin.1));
    for server in [admin.0, admin.1].into_iter().flatten() {
        tasks.spawn(server.serve(Arc::clone(&state), lifecycle.watch(), kept.handed_over()));
    }
    tasks.spawn(check_health(in_force.clone(), lifecycle.watch()));
    if options.memory.is_none() {
        tasks.spawn(memory::watch(in_force.clone(), gauge, lifecycle.watch()));
    }
    addresses.log(count, https);
    let watchdog = JoinSet::from_iter([service::watchdog(heartbeats, kept.handed_over())]);
    service::ready();
    Ok(Running {
        addresses: addresses.udp,
        tcp: addresses.tcp,
        redirects: addresses.redirects,
        admin: admin_address,
        probes: probes_address,
        metrics,
        lifecycle,
        in_force,
        access_log: access,
        workers,
        kept,
        ended,
        tasks,
        _watchdog: watchdog,
    })
}

/// Where clients reach litequic.
struct Addresses {
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    redirects: Vec<SocketAddr>,
}

impl Addresses {
    fn log(&self, workers: usize, https: u16) {
        for address in &self.udp {
            tracing::info!(%address, workers, "listening for HTTP/3");
        }
        for address in &self.tcp {
            tracing::info!(%address, workers, "listening for HTTP/1.1 and HTTP/2");
        }
        for address in &self.redirects {
            tracing::info!(%address, https, "listening for plain HTTP, to send clients on to https");
        }
    }
}

/// A day: a client that has heard of HTTP/3 remembers it for as long.
const ALT_SVC_AGE: Duration = Duration::from_secs(86_400);

/// Where HTTP/3 is, for clients of the TCP listener at `address` (RFC 7838 §3): at the port that they reach, which is the
/// same for both unless the configuration says another.
fn alt_svc(config: &Config, udp: &[SocketAddr], address: SocketAddr) -> Option<HeaderValue> {
    let same = udp.iter().find(|udp| udp.port() == address.port()).or(udp.first());
    let port = config.listen.advertised_port.map_or_else(|| same.map_or(0, SocketAddr::port), NonZeroU16::get);
    // A number between quotation marks is a value.
    HeaderValue::try_from(format!("h3=\":{port}\"; ma={}", ALT_SVC_AGE.as_secs())).ok()
}

/// Servers at duplicates of the operator's listeners; the listeners themselves are for a process that takes over.
fn admin_servers(sockets: &mut Sockets) -> Result<(Option<admin::Server>, Option<admin::Server>), StartError> {
    let server = |key, listener: &Option<TcpListener>, surface| {
        let Some(listener) = listener else { return Ok(None) };
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let server = listener.try_clone().and_then(|own| admin::Server::new(own, surface, admin::Limits::default()));
        server.map(Some).map_err(|source| StartError::Admin { key, address, source })
    };
    Ok((
        server("admin.listen", &sockets.admin, admin::Surface::Operator)?,
        server("admin.probes", &sockets.probes, admin::Surface::Probes)?,
    ))
}

/// Checks origins' servers until the process stops.
async fn check_health(in_force: InForce, mut watch: Watch) {
    let InForce { routing, rerouted, metrics, .. } = in_force;
    select! {
        _ = proxy::check_health(routing, rerouted, Arc::clone(metrics.control())) => {}
        () = watch.reached(Phase::Stopping) => {}
    }
}

impl Running {
    /// Waits until litequic has ended: told to by [`Running::lifecycle`], after the drain.
    ///
    /// # Errors
    ///
    /// [`WorkerDied`]. What the other workers were doing is cut off.
    pub async fn wait(mut self) -> Result<(), WorkerDied> {
        let mut watch = self.lifecycle.watch();
        let mut phase = Phase::Ready;
        // A worker's end, which begins the loop anew, does not lengthen the phase.
        let mut since = Instant::now();
        let outcome = loop {
            if self.workers.is_empty() {
                break Ok(());
            }
            let (timeouts, grace, handed_over) = (self.timeouts(), self.grace(), self.kept.handed_over());
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
                Some(ended) = self.ended.recv() => {
                    // Workers may have heard of a phase that this loop has yet to see.
                    if self.lifecycle.phase() < Phase::Draining || !ended.in_order {
                        break Err(WorkerDied(ended.index));
                    }
                    self.workers.retain(|worker| worker.index() != ended.index);
                }
                () = handed_over, if self.lifecycle.phase() < Phase::Leaving => {
                    self.lifecycle.advance(Phase::Leaving);
                }
                () = next => {
                    phase = match phase {
                        Phase::Starting | Phase::Ready => self.enter(Phase::Leaving),
                        Phase::Leaving => self.enter(Phase::Draining),
                        Phase::Draining => self.enter(Phase::Stopping),
                        Phase::Stopping => break Ok(()), // a worker that does not end ends with the process
                    };
                    since = Instant::now();
                }
            }
        };
        self.lifecycle.advance(Phase::Stopping);
        while self.tasks.join_next().await.is_some() {}
        self.access_log.finish().await;
        outcome
    }

    /// How long clients may still come. A process that was taken over from need not wait until balancers look elsewhere.
    fn grace(&self) -> Duration {
        if self.kept.is_handed_over() { HANDOVER_GRACE } else { self.timeouts().drain_grace }
    }

    fn timeouts(&self) -> Timeouts {
        self.in_force.config.load().timeouts
    }

    /// Moves on to `phase`, or to a later one if somebody was faster.
    fn enter(&self, phase: Phase) -> Phase {
        self.lifecycle.advance(phase);
        let now = self.lifecycle.phase();
        match now {
            Phase::Starting | Phase::Ready => {}
            Phase::Leaving => {
                // With another process in its place the service goes on.
                if !self.kept.is_handed_over() {
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
