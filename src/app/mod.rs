//! The composition root: the only place that knows every part. Reads as a table of contents of a running litequic.

pub mod reload;

mod access;
mod inside;
mod watch;
mod worker;

use crate::{
    admin,
    config::{self, AccessTarget, Config, Timeouts, Workers},
    exchange::Handler,
    lifecycle::{Lifecycle, Phase},
    net::{self, BindError, ListenError, Steering},
    proxy::{self, Proxy},
    quic::{EndpointParts, Layout, MAX_WORKERS, SecretError, Secrets, ServerId, WorkerIndex},
    telemetry::{
        Heartbeat, Metrics,
        access::{AccessLog, Reopener},
    },
    tls::{
        self, Asking, Authorities, Certificate, CertificateError, CertificateResolver, CertificateStore, ServerTls,
        TcpTls,
    },
};
use http::HeaderValue;
use reload::InForce;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use worker::{Ended, Worker};

/// How long workers may take to close their connections once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What the command line adds to the configuration.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// Where `POST /reload` goes. Without it there is none.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
}

/// Why litequic did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operator's files.
    #[error("{}", lines(.0))]
    Certificates(Vec<CertificateError>),
    /// The operator's file as well.
    #[error(transparent)]
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

fn lines(errors: &[CertificateError]) -> String {
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
    /// For a [`reload::Reloader`].
    pub in_force: InForce,
    /// To have the access log's file opened anew, where there is one.
    pub access_log: Option<Reopener>,
    lines: Option<AccessLog>,
    workers: Vec<Worker>,
    /// Every worker's sockets once more, read by nobody: the kernel's program picks a socket by its place in the group,
    /// and a worker that ends before the others would change their places.
    _groups: Vec<UdpSocket>,
    ended: mpsc::UnboundedReceiver<Ended>,
    /// The admin listeners; they end with [`Phase::Stopping`].
    tasks: JoinSet<()>,
}

/// Reads the certificates that the configuration names, and the authorities of clients.
///
/// # Errors
///
/// Every one that cannot be used, by its file.
pub fn certificates(config: &Config) -> Result<CertificateStore, StartError> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for files in &config.certificates {
        match Certificate::load(files) {
            Ok(certificate) => good.push(certificate),
            Err(error) => bad.push(error),
        }
    }
    let authorities = Authorities::load(&config.client_certificates).unwrap_or_else(|error| {
        bad.push(error);
        None
    });
    if !bad.is_empty() || good.is_empty() {
        return Err(StartError::Certificates(bad));
    }
    let default = good.remove(0);
    Ok(CertificateStore::new(default, good).with_authorities(authorities))
}

/// The keys of Retry and reset tokens: of the file that the configuration names, or random ones.
///
/// # Errors
///
/// [`StartError::Secret`], or [`StartError::Random`].
pub fn secrets(config: &Config) -> Result<Secrets, StartError> {
    match &config.listen.secret_file {
        Some(path) => Ok(Secrets::load(path)?),
        None => Secrets::random().map_err(|_| StartError::Random),
    }
}

/// What whoever asks `[admin] listen` has to show: of the file or the variable that the configuration names, if it does.
///
/// # Errors
///
/// [`StartError::Token`]
pub fn token(config: &Config) -> Result<Option<admin::Token>, StartError> {
    match (&config.admin.token_file, &config.admin.token_env) {
        (Some(path), _) => Ok(Some(admin::Token::read(path)?)),
        (None, Some(name)) => Ok(Some(admin::Token::from_env(name)?)),
        (None, None) => Ok(None),
    }
}

/// Starts litequic: binds every address, then starts the workers, then the admin listeners. Returns when clients may
/// come. To be called on a tokio runtime, which the admin listeners use; workers have threads and runtimes of their own.
///
/// `wrap` is put around each worker's proxy; pass the identity for the proxy alone.
///
/// # Errors
///
/// [`StartError`].
pub async fn start<H: Handler>(
    config: &Config,
    certificates: CertificateStore,
    options: Options,
    wrap: impl Fn(Proxy) -> H + Clone + Send + 'static,
) -> Result<Running, StartError> {
    let count = worker_count(config.listen.workers);
    let layout = Layout::new(ServerId::default());
    let secrets = Arc::new(secrets(config)?);
    let resolver = CertificateResolver::new(certificates);
    let metrics = Arc::new(Metrics::new(count));
    let in_force = InForce::new(config, Arc::clone(&resolver), Arc::clone(&metrics));
    let routing = Arc::clone(&in_force.routing);
    let policy = move |server_name: Option<&str>| routing.load().certificate_request(server_name);
    let tcp_tls = TcpTls::new(Arc::clone(&resolver), options.key_log, policy.clone())?;
    let asking = Asking::new(Arc::clone(&resolver), options.key_log, policy)?;
    let tls = ServerTls::new(tls::server_config(Arc::clone(&resolver), options.key_log)?).asking(asking);

    let Bound { addresses, mut sockets, mut tcp, mut redirects } = bind(config, count, &layout)?;
    let (tcp_addresses, redirect_addresses) = (tcp.addresses(), redirects.addresses());
    // The https that a redirect leads to.
    let https = tcp_addresses.first().or(addresses.first()).map_or(0, SocketAddr::port);
    let https = config.listen.advertised_port.map_or(https, NonZeroU16::get);
    let token = token(config)?;
    let (admin, probes) = (bind_admin(config).await)?;
    let lines = access_log(config, &metrics)?;

    let lifecycle = Lifecycle::default();
    let heartbeats: Vec<Arc<Heartbeat>> = (0..count).map(|_| Arc::default()).collect();
    let (ended_sender, ended) = mpsc::unbounded_channel();

    let mut workers = Vec::with_capacity(count);
    let mut groups = Vec::new();
    for (index, (counters, heartbeat)) in metrics.workers().iter().zip(&heartbeats).enumerate() {
        let sockets: Vec<UdpSocket> = sockets.iter_mut().filter_map(Iterator::next).collect();
        for socket in &sockets {
            let reason = |error: io::Error| StartError::Worker { index, reason: error.to_string() };
            groups.push(socket.try_clone().map_err(reason)?);
        }
        let access = lines.as_ref().map(|log| access::Factory::new(&config.access_log, log, Arc::clone(counters)));
        let companion = worker::Companion {
            listeners: tcp.take(index, |address| alt_svc(config, &addresses, address)),
            tls: tcp_tls.clone(),
            redirects: redirects.take(index, |_| ()).into_iter().map(|(listener, ())| listener).collect(),
            https,
        };
        let plan = worker::Plan {
            access,
            index: WorkerIndex(u8::try_from(index).unwrap_or(u8::MAX)),
            sockets,
            endpoint: EndpointParts {
                config: Arc::clone(&in_force.config),
                tls: tls.clone().counting_in(Arc::clone(counters)),
                secrets: Arc::clone(&secrets),
                layout,
                generation: 0,
                workers: count,
                metrics: Arc::clone(counters),
            },
            companion,
            resolver: Arc::clone(&resolver),
            routing: Arc::clone(&in_force.routing),
            heartbeat: Arc::clone(heartbeat),
            watch: lifecycle.watch(),
        };
        workers.push(Worker::start(plan, wrap.clone(), ended_sender.clone()).await?);
    }

    let mut tasks = JoinSet::new();
    let state = Arc::new(admin::State {
        metrics: Arc::clone(&metrics),
        lifecycle: lifecycle.clone(),
        heartbeats,
        readiness: admin::Readiness::new(Some(origin_probe(Arc::clone(&in_force.config)))),
        reload: options.reload,
        token,
        inside: Some(inside::inside(&in_force, &addresses)),
    });
    let local = |server: &Option<admin::Server>| server.as_ref().and_then(|server| server.local_address().ok());
    let (admin_address, probes_address) = (local(&admin), local(&probes));
    for server in [admin, probes].into_iter().flatten() {
        tasks.spawn(server.serve(Arc::clone(&state), lifecycle.watch()));
    }
    lifecycle.advance(Phase::Ready);
    for address in &addresses {
        tracing::info!(%address, workers = count, "listening for HTTP/3");
    }
    for address in &tcp_addresses {
        tracing::info!(%address, workers = count, "listening for HTTP/1.1 and HTTP/2");
    }
    for address in &redirect_addresses {
        tracing::info!(%address, https, "listening for plain HTTP, to send clients on to https");
    }
    Ok(Running {
        addresses,
        tcp: tcp_addresses,
        redirects: redirect_addresses,
        admin: admin_address,
        probes: probes_address,
        metrics,
        lifecycle,
        in_force,
        access_log: lines.as_ref().map(AccessLog::reopener),
        lines,
        workers,
        _groups: groups,
        ended,
        tasks,
    })
}

/// The standard library reads the affinity mask and the cgroups' quotas, versions 1 and 2; a quota of 1.5 counts as 1.
fn worker_count(workers: Workers) -> usize {
    let count = match workers {
        Workers::Auto => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        Workers::Count(count) => usize::from(count.get()),
    };
    count.min(MAX_WORKERS)
}

/// For each address: one socket a worker, in the order of the workers, which is how the kernel's program counts them.
type SocketGroups = Vec<std::vec::IntoIter<UdpSocket>>;

/// Everything that clients reach.
struct Bound {
    addresses: Vec<SocketAddr>,
    sockets: SocketGroups,
    tcp: Listeners,
    redirects: Listeners,
}

/// How often a port that the kernel chose for UDP may turn out to be another's in TCP.
const MAX_TRIES: usize = 32;

fn bind(config: &Config, workers: usize, layout: &Layout) -> Result<Bound, StartError> {
    let mut tries = 0;
    loop {
        let (addresses, sockets) = bind_udp(config, workers, layout)?;
        tries += 1;
        let tcp = match Listeners::bind(&config.listen.tcp, workers, |ip| port_of(&addresses, ip)) {
            Ok(tcp) => tcp,
            // A number that nobody asked for: the next may be free for both.
            Err(error) if error.is_taken() && tries < MAX_TRIES && has_free_choice(config) => continue,
            Err(error) => return Err(error.into()),
        };
        let redirects = Listeners::bind(&config.listen.redirect, workers, |_| 0)?;
        return Ok(Bound { addresses, sockets, tcp, redirects });
    }
}

/// Whether the kernel chooses a port for UDP that TCP is to have as well.
fn has_free_choice(config: &Config) -> bool {
    config.listen.udp.iter().any(|udp| udp.port() == 0 && config.listen.tcp.contains(udp))
}

fn bind_udp(config: &Config, workers: usize, layout: &Layout) -> Result<(Vec<SocketAddr>, SocketGroups), StartError> {
    let steering = Steering {
        id_len: u8::try_from(layout.id_len()).unwrap_or(u8::MAX),
        worker_offset: u8::try_from(layout.worker_offset()).unwrap_or(u8::MAX),
        workers: u16::try_from(workers).unwrap_or(u16::MAX),
    };
    let mut addresses = Vec::new();
    let mut groups = Vec::new();
    for address in &config.listen.udp {
        let sockets = net::bind_group(*address, workers, &steering)?;
        addresses.push(sockets.first().and_then(|socket| socket.local_addr().ok()).unwrap_or(*address));
        groups.push(sockets.into_iter());
    }
    Ok((addresses, groups))
}

/// The port that UDP got at `ip`, or 0.
fn port_of(addresses: &[SocketAddr], ip: IpAddr) -> u16 {
    addresses.iter().find(|address| address.ip() == ip).map_or(0, SocketAddr::port)
}

/// TCP listeners: for each address one a worker.
struct Listeners(Vec<(SocketAddr, Vec<Option<TcpListener>>)>);

impl Listeners {
    /// Binds all of `addresses`; one with port 0 gets that of `port`.
    fn bind(addresses: &[SocketAddr], workers: usize, port: impl Fn(IpAddr) -> u16) -> Result<Self, ListenError> {
        let group = |address: &SocketAddr| {
            let chosen = if address.port() == 0 { port(address.ip()) } else { address.port() };
            let address = SocketAddr::new(address.ip(), chosen);
            let listeners = net::listen_group(address, workers)?;
            let bound = listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(address);
            Ok((bound, listeners.into_iter().map(Some).collect()))
        };
        addresses.iter().map(group).collect::<Result<_, _>>().map(Self)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|(address, _)| *address).collect()
    }

    /// Those of one worker, each with what `with` says of its address.
    fn take<T>(&mut self, worker: usize, with: impl Fn(SocketAddr) -> T) -> Vec<(TcpListener, T)> {
        let taken =
            self.0.iter_mut().filter_map(|(address, group)| Some((group.get_mut(worker)?.take()?, with(*address))));
        taken.collect()
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

async fn bind_admin(config: &Config) -> Result<(Option<admin::Server>, Option<admin::Server>), StartError> {
    let bind = async |key, address: Option<SocketAddr>, surface| match address {
        None => Ok(None),
        Some(address) => admin::Server::bind(address, surface, admin::Limits::default())
            .await
            .map(Some)
            .map_err(|source| StartError::Admin { key, address, source }),
    };
    Ok((
        bind("admin.listen", config.admin.listen, admin::Surface::Operator).await?,
        bind("admin.probes", config.admin.probes, admin::Surface::Probes).await?,
    ))
}

/// Opens the access log, if the configuration has one.
fn access_log(config: &Config, metrics: &Metrics) -> Result<Option<AccessLog>, StartError> {
    let Some(path) = &config.access_log.path else { return Ok(None) };
    match AccessLog::start(access::target(path), Arc::clone(metrics.control())) {
        Ok(log) => Ok(Some(log)),
        Err(source) => Err(StartError::AccessLog { path: path.clone(), source }),
    }
}

/// Ready when any origin can be reached, or nobody asks for one.
fn origin_probe(config: config::Live) -> admin::OriginProbe {
    Box::new(move || {
        let config = config.load_full();
        Box::pin(async move {
            if !config.admin.ready_needs_origin {
                return Ok(());
            }
            let mut reason = "there is none".to_owned();
            for origin in config.origins.values() {
                match proxy::probe(origin, config.timeouts.connect).await {
                    Ok(()) => return Ok(()),
                    Err(error) => reason = format!("{}: {error}", origin.address),
                }
            }
            Err(reason)
        })
    })
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
            let timeouts = self.timeouts();
            let next = async {
                match phase {
                    Phase::Starting | Phase::Ready => watch.reached(Phase::Leaving).await,
                    Phase::Leaving => wait_or(since + timeouts.drain_grace, watch.reached(Phase::Draining)).await,
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
        if let Some(lines) = self.lines {
            lines.finish().await;
        }
        outcome
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
            Phase::Leaving => tracing::info!(grace = ?self.timeouts().drain_grace, "leaving: no longer ready"),
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
