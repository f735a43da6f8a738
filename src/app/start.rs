//! Starts litequic in steps: prepared, bound, running. A failure before the last step leaves nothing behind.

use super::{
    active_state::ActiveState,
    admin_hooks,
    admin_socket::BoundAdminSocket,
    client_control::WorkerClientControl,
    config_files,
    descriptors::{MAX_SOCKET_CONNECTIONS, OpenFilesLimit, SharedDescriptors},
    handover::{HandoverPath, HandoverServer, InheritedState, take_over},
    log_limits,
    mailbox::{WorkerRequestSender, create_mailbox},
    memory_watch,
    metrics::ProcessMetrics,
    running::{OldestClient, RunningProcess},
    service,
    sockets::{InheritedSockets, ProcessSockets},
    start_error::StartError,
    worker,
};
use litequic_admin as admin;
use litequic_base::lifecycle::{Lifecycle, ProcessPhase};
use litequic_config::{Config, Limits};
use litequic_exchange::{AdvertisedPort, Handler};
use litequic_proxy::{self as proxy, Proxy};
use litequic_quic::{EndpointParts, ProxyFlows, SourceLimits, WorkerIndex};
use litequic_resources::{memory::MemoryGauge, receive::ReceiveBudget};
use litequic_telemetry::{Heartbeat, log};
use litequic_tls::{self as tls, CertificateRequester, CertificateStore, ServerTls, TcpTls};
use std::{
    collections::BTreeSet,
    io, mem,
    net::{SocketAddr, TcpListener},
    num::NonZeroU16,
    path::PathBuf,
    sync::Arc,
};
use tokio::{select, sync::mpsc, task::JoinSet};

/// Options of a start that the configuration does not have, from the command line or a test.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// Write TLS secrets to the file that the environment variable `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// Description of the process for operators.
    pub identity: admin::ProcessIdentity,
    /// Queue of requests of `POST /reload`. `None` without a reloader.
    pub reload: Option<mpsc::Sender<admin::ReloadRequest>>,
    /// Admin socket of a configuration that names none.
    pub admin_socket: admin::DefaultSocket,
    /// Socket of the running process that has started this one, to take over from it.
    pub predecessor: Option<PathBuf>,
    /// Sockets that a service manager has bound.
    pub inherited: InheritedSockets,
    /// Gauge of the memory shortage. `None`: litequic measures memory itself, by `limits.memory`.
    pub memory: Option<MemoryGauge>,
    /// Metrics of the log's lines.
    pub log: Arc<log::LogLineMetrics>,
    /// Limit of open files to plan with.
    pub open_files: OpenFilesLimit,
}

/// Starts litequic: binds every address that it does not inherit, starts the workers, then the admin listeners. Returns
/// when it accepts clients. To be called on a tokio runtime, which the admin listeners use; workers have threads and
/// runtimes of their own. A running process that offers a handover is replaced in the last step.
///
/// `wrap` wraps each worker's proxy; pass the identity for the proxy alone.
///
/// # Errors
///
/// [`StartError`]. A process that was to be replaced continues.
pub async fn start_litequic<H: Handler>(
    config: &Config,
    certificates: CertificateStore,
    options: StartOptions,
    wrap: impl Fn(Proxy) -> H + Clone + Send + 'static,
) -> Result<RunningProcess, StartError> {
    BoundStart::new(config, certificates, options).await?.start_workers(wrap).await
}

/// Start with the operator's files, the offer of a running process, and all sockets bound, of which none is read yet.
struct BoundStart<'c> {
    config: &'c Config,
    options: StartOptions,
    beginning: InheritedState,
    /// Number of workers.
    count: usize,
    in_force: ActiveState,
    tls: ServerTls,
    tcp_tls: TcpTls,
    sockets: ProcessSockets,
    socket: Option<BoundAdminSocket>,
    addresses: ListenAddresses,
    token: Option<admin::Token>,
    /// Servers of `admin.listen` and of `admin.probes`.
    admin: [Option<admin::AdminServer>; 2],
    lifecycle: Lifecycle,
    heartbeats: Vec<Arc<Heartbeat>>,
    oldest: Vec<Arc<OldestClient>>,
    /// Queues of the workers that have started, by index.
    requests: Vec<WorkerRequestSender>,
    gauge: MemoryGauge,
    flows: Arc<ProxyFlows>,
}

impl<'c> BoundStart<'c> {
    async fn new(
        config: &'c Config,
        certificates: CertificateStore,
        mut options: StartOptions,
    ) -> Result<Self, StartError> {
        let mut beginning = InheritedState::from_running_process(
            config,
            options.predecessor.as_deref(),
            mem::take(&mut options.inherited),
        )
        .await?;
        let count = beginning.inherited.worker_count(config);
        let mut metrics = ProcessMetrics::new(count);
        metrics.log = Arc::clone(&options.log);
        let metrics = Arc::new(metrics);
        let shared = SharedDescriptors::new(config, count, options.open_files);
        let in_force = ActiveState::new(config, &certificates, shared, metrics, &mut beginning).await?;
        let resolver = &in_force.resolver;
        let routing = Arc::clone(&in_force.routing);
        let policy = move |server_name: Option<&str>| routing.load().certificate_request(server_name);
        let tickets = &beginning.secrets.tickets;
        let tcp_tls = TcpTls::new(Arc::clone(resolver), options.key_log, tickets, policy.clone())?;
        let asking = CertificateRequester::new(Arc::clone(resolver), options.key_log, policy)?;
        let tls = ServerTls::new(tls::server_config(Arc::clone(resolver), options.key_log, tickets)?);
        let tls = tls.with_certificate_requests(asking);
        let inherited = mem::take(&mut beginning.inherited);
        let mut sockets = ProcessSockets::bind_all(config, inherited, count, beginning.generation)?;
        let (tcp, redirects) = (sockets.tcp.bound_addresses(), sockets.redirects.bound_addresses());
        // Redirects lead to this port of https.
        let https = tcp.first().or(sockets.addresses.first()).map_or(0, SocketAddr::port);
        let https = config.listen.advertised_port.map_or(https, NonZeroU16::get);
        let token = config_files::read_token(config)?;
        let predecessor = beginning.predecessor.as_ref().map(|predecessor| predecessor.process);
        let configured = &config.admin.socket;
        let socket = BoundAdminSocket::bind_configured(configured, &options.admin_socket, predecessor).await?;
        let admin = admin_servers(&mut sockets, in_force.shared.plan_for(config).admin_connections)?;
        Ok(Self {
            addresses: ListenAddresses { udp: sockets.addresses.clone(), tcp, redirects, https },
            sockets,
            socket,
            token,
            admin,
            lifecycle: Lifecycle::default(),
            heartbeats: (0..count).map(|_| Arc::default()).collect(),
            oldest: (0..count).map(|_| Arc::default()).collect(),
            requests: Vec::new(),
            gauge: options.memory.clone().unwrap_or_default(),
            flows: Arc::default(),
            config,
            options,
            beginning,
            count,
            in_force,
            tls,
            tcp_tls,
        })
    }

    /// Starts the workers and the admin listeners, and takes over from the running process, if there is one.
    async fn start_workers<H: Handler>(
        mut self,
        wrap: impl Fn(Proxy) -> H + Clone + Send + 'static,
    ) -> Result<RunningProcess, StartError> {
        let (report, reports) = mpsc::unbounded_channel();
        let mut workers = BTreeSet::new();
        for index in 0..self.count {
            let failed = |error: io::Error| StartError::Worker { index, reason: error.to_string() };
            let Some(parts) = self.worker_parts(index).map_err(failed)? else { break };
            worker::start_worker(parts, wrap.clone(), report.clone()).await?;
            workers.insert(index);
        }
        let state = Arc::new(self.admin_state());
        let Self { config, options, mut beginning, count, in_force, sockets, socket, addresses, admin, .. } = self;
        let (lifecycle, heartbeats, oldest) = (self.lifecycle, self.heartbeats, self.oldest);
        let metrics = Arc::clone(&in_force.metrics);
        let server = HandoverServer::new(&mut beginning, sockets, config, in_force.clone())?;
        let mut predecessor = beginning.predecessor;
        let admin_path = socket.as_ref().map(|socket| socket.path.clone());
        let published = async |socket: Option<BoundAdminSocket>| match socket {
            Some(socket) => socket.publish_path().await,
            None => Ok(None),
        };
        let socket = match predecessor {
            // While nothing serves yet, an unavailable socket is a fault.
            None => published(socket).await?,
            Some(_) => socket,
        };
        let path = HandoverPath::choose_path(config, admin_path.as_deref());
        let (handover, handover_socket) = take_over(server, predecessor.as_mut(), path, &lifecycle).await?;
        let socket = match predecessor {
            None => socket,
            // This process serves, and the predecessor drains already: an error must not end it.
            Some(_) => published(socket).await.unwrap_or_else(|error| {
                tracing::error!("{error}");
                None
            }),
        };

        let mut tasks = JoinSet::new();
        let local =
            |server: &Option<admin::AdminServer>| server.as_ref().and_then(admin::AdminServer::bound_tcp_address);
        let [admin_address, probes_address] = admin.each_ref().map(local);
        for server in admin.into_iter().flatten() {
            tasks.spawn(server.serve_admin(Arc::clone(&state), lifecycle.watch_phase(), handover.wait_for_handover()));
        }
        let admin_socket = socket.and_then(|socket| {
            serve_admin_socket(socket, &state, &lifecycle, handover.wait_for_handover(), &mut tasks)
        });
        let totals = admin::record_history(Arc::clone(&state), metrics.request_registry(), lifecycle.watch_phase());
        tasks.spawn(totals);
        let ActiveState { routing, rerouted, denial, .. } = in_force.clone();
        let health_checks = proxy::check_health(routing, rerouted, Arc::clone(&metrics.checks));
        tasks.spawn(lifecycle.watch_phase().run_until(ProcessPhase::Stopping, health_checks));
        let expiry = async move { denial.run_expiry().await };
        tasks.spawn(lifecycle.watch_phase().run_until(ProcessPhase::Stopping, expiry));
        spawn_acme(&in_force, &lifecycle, handover.wait_for_handover(), &mut tasks);
        if options.memory.is_none() {
            tasks.spawn(memory_watch::watch_memory(in_force.clone(), self.gauge, lifecycle.watch_phase()));
        }
        if let Some(server_id) = &config.listen.server_id {
            let (id, layout) = (server_id.hex_digits(), server_id.describe_layout());
            tracing::info!(server_id = id, layout, "connection IDs contain this server's ID, for load balancers");
        }
        for (key, address) in [("admin.listen", admin_address), ("admin.probes", probes_address)] {
            if let Some(address) = address {
                tracing::info!(%address, key, "listening for admin requests");
            }
        }
        if let Some(path) = &admin_socket {
            tracing::info!(path = %path.display(), key = "admin.socket", "listening for admin requests");
        }
        // Scripts wait for these lines.
        addresses.log_listeners(count);
        let socket = admin_socket.as_ref().map(|path| path.display().to_string());
        let admin_addresses = [admin_address.map(|address| address.to_string()), socket];
        addresses.log_ready(&in_force.config.load(), &in_force.resolver.current_store(), admin_addresses);
        log_limits::log_limits_in_force(config, &in_force.shared.plan_for(config));
        let watchdog = JoinSet::from_iter([service::run_watchdog(heartbeats, handover.wait_for_handover())]);
        service::notify_ready();
        Ok(RunningProcess {
            addresses: addresses.udp,
            tcp: addresses.tcp,
            redirects: addresses.redirects,
            admin: admin_address,
            probes: probes_address,
            admin_socket,
            handover_socket,
            metrics,
            lifecycle,
            access_log: Arc::clone(&in_force.access),
            in_force,
            workers,
            oldest,
            handover,
            reports,
            tasks,
            _watchdog: watchdog,
        })
    }

    /// Inputs of worker `index`.
    fn worker_parts(&mut self, index: usize) -> io::Result<Option<worker::WorkerParts>> {
        let (asking, mailbox) = create_mailbox();
        self.requests.push(asking);
        let Self { config, beginning, count, in_force, tls, tcp_tls, sockets, addresses, lifecycle, .. } = self;
        let (Some(counters), Some(heartbeat), Some(oldest)) =
            (in_force.metrics.worker_metrics().get(index), self.heartbeats.get(index), self.oldest.get(index))
        else {
            return Ok(None);
        };
        let advertised = |address| advertised_port(config, &addresses.udp, address);
        let redirects = sockets.redirects.duplicates_for(index, *count, |_| ())?;
        let tcp = worker::TcpParts {
            listeners: sockets.tcp.duplicates_for(index, *count, advertised)?,
            tls: tcp_tls.clone(),
            redirects: redirects.into_iter().map(|(listener, ())| listener).collect(),
            https: addresses.https,
        };
        Ok(Some(worker::WorkerParts {
            in_force: in_force.clone(),
            index: WorkerIndex(u8::try_from(index).unwrap_or(u8::MAX)),
            sockets: sockets.next_worker_sockets(),
            endpoint: EndpointParts {
                config: Arc::clone(&in_force.config),
                tls: tls.clone().with_metrics(Arc::clone(&counters.tls)),
                secrets: Arc::clone(&beginning.secrets),
                ids: Arc::clone(&beginning.ids),
                generation: beginning.generation,
                others: Arc::clone(&beginning.others),
                workers: *count,
                metrics: Arc::clone(&counters.quic),
                receive: ReceiveBudget::new(config.limits.worker_receive_buffer, Limits::MIN_RECEIVE_WINDOW),
                sources: SourceLimits::default(),
                pressure: self.gauge.subscribe_pressure(),
                denied: Arc::clone(&in_force.denial.list),
                flows: Arc::clone(&self.flows),
                watch: lifecycle.watch_phase(),
            },
            metrics: counters.clone(),
            tcp,
            heartbeat: Arc::clone(heartbeat),
            oldest: Arc::clone(oldest),
            mailbox,
        }))
    }

    /// State that the admin listeners serve.
    fn admin_state(&mut self) -> admin::AdminState {
        let (in_force, metrics) = (&self.in_force, &self.in_force.metrics);
        admin::AdminState {
            identity: self.options.identity.clone(),
            registry: metrics.registry(),
            control: Arc::clone(&metrics.control),
            metrics: Arc::clone(&metrics.admin),
            metrics_text: admin::CachedMetrics::default(),
            history: admin::MetricHistory::default(),
            lifecycle: self.lifecycle.clone(),
            heartbeats: self.heartbeats.clone(),
            readiness: admin::Readiness::new(Some(admin_hooks::build_origin_probe(in_force))),
            reload: self.options.reload.take(),
            token: self.token.take(),
            names: self.config.admin.names.clone(),
            hooks: admin_hooks::build_admin_hooks(in_force, &self.addresses.udp),
            clients: Arc::new(WorkerClientControl::new(
                mem::take(&mut self.requests),
                Arc::clone(metrics),
                Arc::clone(&in_force.denial),
            )),
        }
    }
}

/// Maximum number of URLs in the last line of the start.
const MAX_URLS: usize = 4;

/// Addresses of the listeners for clients.
struct ListenAddresses {
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    redirects: Vec<SocketAddr>,
    /// Port that redirects lead to.
    https: u16,
}

impl ListenAddresses {
    fn log_listeners(&self, workers: usize) {
        let https = self.https;
        for address in &self.udp {
            tracing::info!(%address, workers, "listening for HTTP/3");
        }
        for address in &self.tcp {
            tracing::info!(%address, workers, "listening for HTTP/1.1 and HTTP/2");
        }
        for address in &self.redirects {
            tracing::info!(%address, https, "listening for plain HTTP, to redirect clients to https");
        }
    }

    /// Logs the last line of the start: the URLs for clients, and the places of the access log and the status.
    fn log_ready(&self, config: &Config, certificates: &CertificateStore, admin: [Option<String>; 2]) {
        let admin = admin.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let admin = if admin.is_empty() { "none: [admin] listen = \"127.0.0.1:9443\"" } else { &admin };
        let access_log = config.access_log.path.as_ref();
        let access_log = access_log.map_or_else(|| "none: [access_log] path = \"stdout\"".into(), ToString::to_string);
        let (http3, reload) = (config.listen.http3, config.reload.on_change.scope_name());
        tracing::info!(urls = self.client_urls(certificates, config), http3, admin, access_log, reload, "ready");
    }

    /// URLs of the names in certificates, and of the hosts of `[[acme]]`, without wildcards; that of the first address
    /// if there is none.
    fn client_urls(&self, certificates: &CertificateStore, config: &Config) -> String {
        let https = self.https;
        let url = |host: &str| match https {
            443 => format!("https://{host}/"),
            port => format!("https://{host}:{port}/"),
        };
        let names = certificates.all.iter().flat_map(|one| one.names.dns.iter().cloned());
        let obtained = config.acme.iter().flat_map(|table| &table.hosts).map(ToString::to_string);
        let mut hosts: Vec<String> = Vec::new();
        for name in names.chain(obtained).filter(|name| !name.contains('*')) {
            if !hosts.contains(&name) {
                hosts.push(name);
            }
        }
        let mut urls: Vec<_> = hosts.iter().take(MAX_URLS).map(|host| url(host)).collect();
        if hosts.len() > MAX_URLS {
            urls.push("…".into());
        }
        if urls.is_empty() {
            urls.extend(self.udp.first().map(|address| format!("https://{address}/")));
        }
        urls.join(", ")
    }
}

/// Port at which clients of the TCP listener at `address` reach HTTP/3 (RFC 7838 §3), unless `listen.advertised_port`
/// names another: the port that they know, if `udp` has the listener's, or else the first of `udp`.
fn advertised_port(config: &Config, udp: &[SocketAddr], address: SocketAddr) -> AdvertisedPort {
    let is_shared = udp.iter().any(|udp| udp.port() == address.port());
    let port = if is_shared { address.port() } else { udp.first().map_or(0, SocketAddr::port) };
    AdvertisedPort::choose(config.listen.advertised_port, port, is_shared)
}

/// Creates servers with at most `connections` connections at duplicates of the operator's listeners; a successor gets
/// the listeners themselves.
fn admin_servers(
    sockets: &mut ProcessSockets,
    connections: usize,
) -> Result<[Option<admin::AdminServer>; 2], StartError> {
    let limits = admin::AdminLimits { connections, ..admin::AdminLimits::default() };
    let server = |key, listener: &Option<TcpListener>, surface| {
        let Some(listener) = listener else { return Ok(None) };
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let server = listener.try_clone().and_then(|own| admin::AdminServer::new(own, surface, limits));
        server.map(Some).map_err(|source| StartError::Admin { key, address, source })
    };
    Ok([
        server("admin.listen", &sockets.admin, admin::Surface::Operator)?,
        server("admin.probes", &sockets.probes, admin::Surface::Probes)?,
    ])
}

/// Serves `socket` in one of `tasks`, and returns its path. After a handover the old process still serves its
/// connections until it drains: its file names the successor's socket a moment after `handed_over`.
fn serve_admin_socket(
    socket: BoundAdminSocket,
    state: &Arc<admin::AdminState>,
    lifecycle: &Lifecycle,
    handed_over: impl Future<Output = ()> + Send + 'static,
    tasks: &mut JoinSet<()>,
) -> Option<PathBuf> {
    let limits = admin::AdminLimits { connections: MAX_SOCKET_CONNECTIONS, ..admin::AdminLimits::default() };
    let BoundAdminSocket { listener, path, name, .. } = socket;
    let server = match admin::AdminServer::from_unix_listener(listener, limits) {
        Ok(server) => server,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "no admin socket");
            return None;
        }
    };
    let mut draining = lifecycle.watch_phase();
    let replaced = async move {
        handed_over.await;
        draining.wait_for_phase(ProcessPhase::Draining).await;
    };
    let (state, watch) = (Arc::clone(state), lifecycle.watch_phase());
    tasks.spawn(async move {
        server.serve_admin(state, watch, replaced).await;
        drop(name);
    });
    Some(path)
}

/// Obtains certificates until another process takes over or this one drains, and answers validation requests until the
/// process stops.
fn spawn_acme(
    in_force: &ActiveState,
    lifecycle: &Lifecycle,
    handed_over: impl Future<Output = ()> + Send + 'static,
    tasks: &mut JoinSet<()>,
) {
    let obtaining = in_force.clone().obtain_certificates();
    tasks.spawn(lifecycle.watch_phase().run_until(ProcessPhase::Leaving, async move {
        select! {
            () = obtaining => {}
            () = handed_over => {}
        }
    }));
    let answering = in_force.clone().serve_acme_answers();
    tasks.spawn(lifecycle.watch_phase().run_until(ProcessPhase::Stopping, answering));
}
