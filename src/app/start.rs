//! The start in its steps: prepared, bound, running. What fails before the last one leaves nothing behind.

use super::active_state::ActiveState;
use super::admin_socket::BoundSocket;
use super::clients::Clients;
use super::descriptors::{SOCKET_CONNECTIONS, SharedDescriptors};
use super::draining::OldestClient;
use super::handover::{Beginning, Predecessor, handover_server, take_over};
use super::issued::{Issued, Shared as Acme};
use super::mailbox::{Mailbox, WorkerRequests};
use super::metrics::Metrics;
use super::options::Options;
use super::running::Running;
use super::sockets::Sockets;
use super::start_error::StartError;
use super::worker::{self, Worker};
use super::{bounds, collector_tls, files, inside, memory, origin_tls, service, users};
use litequic_admin as admin;
use litequic_base::lifecycle::{Lifecycle, Phase, PhaseWatch};
use litequic_config::{Config, Limits};
use litequic_exchange::Handler;
use litequic_proxy::{self as proxy, CookieKey, Pages, Proxy, RoutingFiles};
use litequic_quic::{EndpointParts, SourceLimits, WorkerIndex};
use litequic_resources::{memory::MemoryGauge, receive::ReceiveBudget};
use litequic_telemetry::{Heartbeat, access_log::AccessLogger, traces::Tracing};
use litequic_tls::{self as tls, Asking, CertificateResolver, CertificateStore, ServerTls, TcpTls};
use std::{
    io, mem,
    net::{SocketAddr, TcpListener},
    num::NonZeroU16,
    path::PathBuf,
    sync::Arc,
};
use tokio::{select, sync::mpsc, task::JoinSet};

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

/// The operator's files and the offer of a running process: no address is bound yet.
pub(super) struct Prepared<'c> {
    config: &'c Config,
    options: Options,
    beginning: Beginning,
    /// Workers.
    count: usize,
    resolver: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
    access: Arc<AccessLogger>,
    in_force: ActiveState,
    tls: ServerTls,
    tcp_tls: TcpTls,
}

impl<'c> Prepared<'c> {
    pub(super) async fn new(
        config: &'c Config,
        certificates: CertificateStore,
        mut options: Options,
    ) -> Result<Self, StartError> {
        let mut beginning = Beginning::find(config, mem::take(&mut options.inherited)).await?;
        let count = beginning.inherited.workers(config);
        let mut metrics = Metrics::new(count);
        metrics.log = Arc::clone(&options.log);
        let metrics = Arc::new(metrics);
        let issued = Issued::stored(config);
        let certificates = issued.compose(&certificates, config);
        let acme = Acme::default();
        acme.answers.expect(&config.acme);
        let resolver = CertificateResolver::counting(certificates, Arc::clone(&metrics.unanswered));
        let access = AccessLogger::start(&config.access_log, Arc::clone(&metrics.access_log)).await?;
        let shared = SharedDescriptors::new(config, count, options.open_files);
        let files = RoutingFiles {
            pages: Pages::load(config).map_err(StartError::Pages)?,
            tls: origin_tls::read(config).map_err(StartError::OriginTls)?,
            users: users::read(config).map_err(StartError::Users)?,
        };
        let collector = collector_tls::read(config).map_err(StartError::OriginTls)?;
        let traces = (Arc::clone(&metrics.traces), Arc::clone(&metrics.exemplars));
        let traces = Tracing::start(config, collector, traces.0, traces.1);
        let in_force = ActiveState::new(
            (config, shared),
            files,
            (beginning.maintenance.clone(), beginning.http3, mem::take(&mut beginning.denied)),
            (CookieKey::new(beginning.secrets.cookie_key()), Arc::clone(&beginning.ids)),
            (Arc::clone(&resolver), issued, acme),
            (Arc::clone(&access), traces),
            Arc::clone(&metrics),
        );
        let routing = Arc::clone(&in_force.routing);
        let policy = move |server_name: Option<&str>| routing.load().certificate_request(server_name);
        let tickets = beginning.secrets.ticket_secret();
        let tcp_tls = TcpTls::new(Arc::clone(&resolver), options.key_log, tickets, policy.clone())?;
        let asking = Asking::new(Arc::clone(&resolver), options.key_log, policy)?;
        let tls = ServerTls::new(tls::server_config(Arc::clone(&resolver), options.key_log, tickets)?);
        let tls = tls.asking(asking).by_address(Arc::clone(&resolver));
        Ok(Self { config, options, beginning, count, resolver, metrics, access, in_force, tls, tcp_tls })
    }

    /// Binds every address that is not inherited.
    pub(super) async fn bind(mut self) -> Result<Bound<'c>, StartError> {
        let inherited = mem::take(&mut self.beginning.inherited);
        let mut sockets = Sockets::bind(self.config, inherited, self.count, self.beginning.generation)?;
        let (tcp, redirects) = (sockets.tcp.addresses(), sockets.redirects.addresses());
        // The https port that redirects lead to.
        let https = tcp.first().or(sockets.addresses.first()).map_or(0, SocketAddr::port);
        let https = self.config.listen.advertised_port.map_or(https, NonZeroU16::get);
        let token = files::read_token(self.config)?;
        let predecessor = self.beginning.predecessor.as_ref().map(Predecessor::process);
        let default = &self.options.admin_socket;
        let socket = BoundSocket::bind(&self.config.admin.socket, default, predecessor).await?;
        let admin = admin_servers(&mut sockets, self.in_force.shared.plan(self.config).admin_connections)?;
        Ok(Bound {
            addresses: Addresses { udp: sockets.addresses.clone(), tcp, redirects, https },
            sockets,
            socket,
            token,
            admin,
            lifecycle: Lifecycle::default(),
            heartbeats: (0..self.count).map(|_| Arc::default()).collect(),
            oldest: (0..self.count).map(|_| Arc::default()).collect(),
            requests: Vec::new(),
            gauge: self.options.memory.clone().unwrap_or_default(),
            prepared: self,
        })
    }
}

/// All sockets exist, and none is read yet.
pub(super) struct Bound<'c> {
    prepared: Prepared<'c>,
    sockets: Sockets,
    socket: Option<BoundSocket>,
    addresses: Addresses,
    token: Option<admin::Token>,
    admin: (Option<admin::AdminServer>, Option<admin::AdminServer>),
    lifecycle: Lifecycle,
    heartbeats: Vec<Arc<Heartbeat>>,
    oldest: Vec<Arc<OldestClient>>,
    /// Questions to the workers that have started, by their index.
    requests: Vec<WorkerRequests>,
    gauge: MemoryGauge,
}

impl Bound<'_> {
    /// Starts the workers and the admin listeners, and takes over from the running process, if there is one.
    pub(super) async fn run<H: Handler>(
        mut self,
        wrap: impl Fn(Proxy) -> H + Clone + Send + 'static,
    ) -> Result<Running, StartError> {
        let (report, reports) = mpsc::unbounded_channel();
        let mut workers = Vec::with_capacity(self.prepared.count);
        for index in 0..self.prepared.count {
            let failed = |error: io::Error| StartError::Worker { index, reason: error.to_string() };
            let Some(parts) = self.worker_parts(index).map_err(failed)? else { break };
            workers.push(Worker::start(parts, wrap.clone(), report.clone()).await?);
        }
        let state = Arc::new(self.state());
        let Self { prepared, sockets, socket, addresses, admin, lifecycle, heartbeats, oldest, gauge, .. } = self;
        let Prepared { config, options, beginning, count, metrics, access, in_force, .. } = prepared;
        let Beginning { generation, secrets, ids, mut predecessor, older, others, .. } = beginning;
        let server = handover_server(sockets, (ids, generation), secrets, &metrics)?.with_older(older, others);
        let server = server.with_routing(Arc::clone(&in_force.routing), Arc::clone(&in_force.http3));
        let server = server.with_denied(Arc::clone(&in_force.denial.list));
        let published = async |socket: Option<BoundSocket>| match socket {
            Some(socket) => socket.publish().await,
            None => Ok(None),
        };
        let socket = match predecessor {
            // A fault, while nothing serves yet.
            None => published(socket).await?,
            Some(_) => socket,
        };
        let handover = take_over(server, predecessor.as_mut(), config, &lifecycle).await?;
        let socket = match predecessor {
            None => socket,
            // It serves, and the one before is on its way out.
            Some(_) => published(socket).await.unwrap_or_else(|error| {
                tracing::error!("{error}");
                None
            }),
        };

        let mut tasks = JoinSet::new();
        let local = |server: &Option<admin::AdminServer>| server.as_ref().and_then(admin::AdminServer::local_address);
        let (admin_address, probes_address) = (local(&admin.0), local(&admin.1));
        for server in [admin.0, admin.1].into_iter().flatten() {
            tasks.spawn(server.serve(Arc::clone(&state), lifecycle.watch(), handover.handed_over()));
        }
        let admin_socket =
            socket.and_then(|socket| serve_socket(socket, (&state, &lifecycle), handover.handed_over(), &mut tasks));
        tasks.spawn(check_health(in_force.clone(), lifecycle.watch()));
        tasks.spawn(expire_denied(in_force.clone(), lifecycle.watch()));
        spawn_acme(&in_force, &lifecycle, handover.handed_over(), &mut tasks);
        if options.memory.is_none() {
            tasks.spawn(memory::watch(in_force.clone(), gauge, lifecycle.watch()));
        }
        bounds::log(config, &in_force.shared.plan(config));
        if let Some(server_id) = &config.listen.server_id {
            let (id, layout) = (server_id.digits(), server_id.layout());
            tracing::info!(server_id = id, layout, "connection IDs name this server, for load balancers");
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
        addresses.log(count);
        let socket = admin_socket.as_ref().map(|path| path.display().to_string());
        let admin_addresses = [admin_address.map(|address| address.to_string()), socket];
        addresses.log_ready(&in_force.config.load(), &in_force.resolver.store(), admin_addresses);
        let watchdog = JoinSet::from_iter([service::watchdog(heartbeats, handover.handed_over())]);
        service::ready();
        Ok(Running {
            addresses: addresses.udp,
            tcp: addresses.tcp,
            redirects: addresses.redirects,
            admin: admin_address,
            probes: probes_address,
            admin_socket,
            metrics,
            lifecycle,
            in_force,
            access_log: access,
            workers,
            oldest,
            handover,
            reports,
            tasks,
            _watchdog: watchdog,
        })
    }

    /// What worker `index` is made of.
    fn worker_parts(&mut self, index: usize) -> io::Result<Option<worker::WorkerParts>> {
        let Self { prepared, sockets, addresses, lifecycle, heartbeats, oldest, requests, gauge, .. } = self;
        let (asking, mailbox) = Mailbox::new();
        requests.push(asking);
        let Prepared { config, beginning, count, resolver, metrics, access, in_force, tls, tcp_tls, .. } = prepared;
        let (Some(counters), Some(heartbeat), Some(oldest)) =
            (metrics.workers().get(index), heartbeats.get(index), oldest.get(index))
        else {
            return Ok(None);
        };
        let http3_port = |address| http3_port(config, &addresses.udp, address);
        let redirects = sockets.redirects.of(index, *count, |_| ())?;
        let tcp = worker::TcpParts {
            listeners: sockets.tcp.of(index, *count, http3_port)?,
            tls: tcp_tls.clone(),
            redirects: redirects.into_iter().map(|(listener, ())| listener).collect(),
            https: addresses.https,
        };
        Ok(Some(worker::WorkerParts {
            access: access.of_worker(Arc::clone(&counters.access_log)),
            traces: in_force.traces.of_worker(Arc::clone(&counters.traces)),
            index: WorkerIndex(u8::try_from(index).unwrap_or(u8::MAX)),
            sockets: sockets.next_udp(),
            endpoint: EndpointParts {
                config: Arc::clone(&in_force.config),
                tls: tls.clone().counting_in(Arc::clone(&counters.tls)),
                secrets: Arc::clone(&beginning.secrets),
                ids: Arc::clone(&beginning.ids),
                generation: beginning.generation,
                others: Arc::clone(&beginning.others),
                workers: *count,
                metrics: Arc::clone(&counters.quic),
                receive: ReceiveBudget::new(config.limits.worker_receive_buffer, Limits::RECEIVE_FLOOR),
                sources: SourceLimits::default(),
                pressure: gauge.pressure(),
                denied: Arc::clone(&in_force.denial.list),
                watch: lifecycle.watch(),
            },
            metrics: counters.clone(),
            tcp,
            resolver: Arc::clone(resolver),
            answers: Arc::clone(&in_force.acme.answers),
            routing: Arc::clone(&in_force.routing),
            heartbeat: Arc::clone(heartbeat),
            oldest: Arc::clone(oldest),
            mailbox,
            descriptors: Arc::clone(&in_force.shared.capacity.descriptors),
            watch: lifecycle.watch(),
            http3: in_force.http3.subscribe(),
        }))
    }

    /// What the admin listeners show.
    fn state(&mut self) -> admin::AdminState {
        let Prepared { config, options, metrics, in_force, .. } = &mut self.prepared;
        admin::AdminState {
            registry: metrics.registry(),
            control: Arc::clone(&metrics.control),
            metrics: Arc::clone(&metrics.admin),
            scrape: admin::Scrape::default(),
            lifecycle: self.lifecycle.clone(),
            heartbeats: self.heartbeats.clone(),
            readiness: admin::Readiness::new(Some(inside::origin_probe(in_force))),
            reload: options.reload.take(),
            token: self.token.take(),
            names: config.admin.names.clone(),
            hooks: Some(inside::admin_hooks(in_force, &self.addresses.udp)),
            clients: Some(Arc::new(Clients::new(
                mem::take(&mut self.requests),
                Arc::clone(metrics),
                Arc::clone(&in_force.denial),
            ))),
        }
    }
}

/// Logs the addresses of clients' listeners.
struct Addresses {
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    redirects: Vec<SocketAddr>,
    /// The port that redirects lead to.
    https: u16,
}

impl Addresses {
    fn log(&self, workers: usize) {
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
}

/// URLs that the last line of the start names at most.
const MAX_URLS: usize = 4;

impl Addresses {
    /// Logs the last line of the start: where clients find the server, and where its lines and its state are.
    fn log_ready(&self, config: &Config, certificates: &CertificateStore, admin: [Option<String>; 2]) {
        let admin = admin.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let admin = if admin.is_empty() { "none: [admin] listen = \"127.0.0.1:9443\"" } else { &admin };
        let access_log = config.access_log.path.as_ref();
        let access_log = access_log.map_or_else(|| "none: [access_log] path = \"stdout\"".into(), ToString::to_string);
        let (http3, reload) = (config.listen.http3, config.reload.on_change.name());
        tracing::info!(urls = self.urls(certificates), http3, admin, access_log, reload, "ready");
    }

    /// The URLs of the names in certificates, but for wildcards; by address where there is none.
    fn urls(&self, certificates: &CertificateStore) -> String {
        let https = self.https;
        let url = |host: &str| match https {
            443 => format!("https://{host}/"),
            port => format!("https://{host}:{port}/"),
        };
        let names = certificates.all().iter().flat_map(|one| &one.names().dns);
        let mut hosts: Vec<&str> = Vec::new();
        for name in names.filter(|name| !name.contains('*')) {
            if !hosts.contains(&name.as_str()) {
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

/// Where HTTP/3 is, for clients of the TCP listener at `address` (RFC 7838 §3): at the port that they reach, which is
/// the same for both unless the configuration says another.
fn http3_port(config: &Config, udp: &[SocketAddr], address: SocketAddr) -> u16 {
    let same = udp.iter().find(|udp| udp.port() == address.port()).or(udp.first());
    config.listen.advertised_port.map_or_else(|| same.map_or(0, SocketAddr::port), NonZeroU16::get)
}

/// Servers of at most `connections` connections at duplicates of the operator's listeners; the listeners themselves are
/// for a process that takes over.
fn admin_servers(
    sockets: &mut Sockets,
    connections: usize,
) -> Result<(Option<admin::AdminServer>, Option<admin::AdminServer>), StartError> {
    let limits = admin::AdminLimits { connections, ..admin::AdminLimits::default() };
    let server = |key, listener: &Option<TcpListener>, surface| {
        let Some(listener) = listener else { return Ok(None) };
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let server = listener.try_clone().and_then(|own| admin::AdminServer::new(own, surface, limits));
        server.map(Some).map_err(|source| StartError::Admin { key, address, source })
    };
    Ok((
        server("admin.listen", &sockets.admin, admin::Surface::Operator)?,
        server("admin.probes", &sockets.probes, admin::Surface::Probes)?,
    ))
}

/// Serves `socket` in one of `tasks`, and returns its path. A process that was taken over from answers there until it
/// drains: its file has the successor's socket a moment after `handed_over`.
fn serve_socket(
    socket: BoundSocket,
    (state, lifecycle): (&Arc<admin::AdminState>, &Lifecycle),
    handed_over: impl Future<Output = ()> + Send + 'static,
    tasks: &mut JoinSet<()>,
) -> Option<PathBuf> {
    let limits = admin::AdminLimits { connections: SOCKET_CONNECTIONS, ..admin::AdminLimits::default() };
    let (listener, path, name) = socket.into_parts();
    let server = match admin::AdminServer::local(listener, limits) {
        Ok(server) => server,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "no admin socket");
            return None;
        }
    };
    let mut draining = lifecycle.watch();
    let replaced = async move {
        handed_over.await;
        draining.reached(Phase::Draining).await;
    };
    let (state, watch) = (Arc::clone(state), lifecycle.watch());
    tasks.spawn(async move {
        server.serve(state, watch, replaced).await;
        drop(name);
    });
    Some(path)
}

/// Obtains certificates until another process takes over or this one drains, and answers validation requests until it
/// stops.
fn spawn_acme(
    in_force: &ActiveState,
    lifecycle: &Lifecycle,
    handed_over: impl Future<Output = ()> + Send + 'static,
    tasks: &mut JoinSet<()>,
) {
    let (obtaining, mut draining) = (in_force.clone(), lifecycle.watch());
    tasks.spawn(async move {
        select! {
            () = obtaining.obtain() => {}
            () = handed_over => {}
            () = draining.reached(Phase::Leaving) => {}
        }
    });
    let (answering, mut stopping) = (in_force.clone(), lifecycle.watch());
    tasks.spawn(async move {
        select! {
            () = answering.answer() => {}
            () = stopping.reached(Phase::Stopping) => {}
        }
    });
}

/// Removes networks from the list of those that are denied once their time is over, until the process stops.
async fn expire_denied(in_force: ActiveState, mut watch: PhaseWatch) {
    select! {
        () = in_force.denial.expire() => {}
        () = watch.reached(Phase::Stopping) => {}
    }
}

/// Checks origins' servers until the process stops.
async fn check_health(in_force: ActiveState, mut watch: PhaseWatch) {
    let ActiveState { routing, rerouted, metrics, .. } = in_force;
    select! {
        _ = proxy::check_health(routing, rerouted, Arc::clone(&metrics.checks)) => {}
        () = watch.reached(Phase::Stopping) => {}
    }
}
