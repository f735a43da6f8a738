//! Runs a worker: a thread with a runtime of its own, on which a request runs from its start to its end.

use super::active_state::ActiveState;
use super::idle_memory::{self, IdleTracker};
use super::mailbox::{self, Mailbox};
use super::metrics::{TurnMetrics, WorkerMetrics};
use super::running::OldestClient;
use super::start_error::StartError;
use litequic_acme::ChallengeResponses;
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase, panic_if_requested, propagate_panic},
    timers,
};
use litequic_config::{Io, LiteQuic};
use litequic_exchange::{AdvertisedPort, Client, Handler, HostCoverage, RequestRecorder, terms::CurrentTerms};
use litequic_http3::{self as http3, Http3Worker};
use litequic_net::{self as net, Backend, OpenSocket, SocketOptions};
use litequic_proxy::Proxy;
use litequic_quic::{self as quic, EndpointParts, SocketIo, WorkerIndex};
use litequic_resources::{
    connections::{ConnectionPool, ConnectionRegistry},
    descriptors::Descriptors,
    memory::{self, MemoryStep},
    send::SendBudget,
    transport::Transport,
};
use litequic_tcp::{self as tcp, TcpWorker};
use litequic_telemetry::{Heartbeat, access_log, log, traces};
use litequic_tls::{self as tls, CertificateResolver, ServerTls, TcpTls};
use std::{
    cell::RefCell,
    convert::Infallible,
    future::pending,
    io,
    net::{TcpListener, UdpSocket},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle, LocalOptions},
    select,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::sleep,
};

thread_local! {
    /// Function that the worker of this thread calls before it waits for events while it rests.
    static BEFORE_PARK: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Maximum number of waits between two ticks of a worker with no other work. The runtime keeps a timer of half a second
/// in up to three levels of its wheel one after the other, each with a wake, and its call that registers a timer wakes
/// its own thread (docs/upstream/timers-that-wake-their-own-thread.md).
const MAX_IDLE_TURNS: u32 = 4;

/// Delay from the close of the last connection to the end of its endpoint, so that CONNECTION_CLOSE is sent.
const CLOSE_DELAY: Duration = Duration::from_millis(50);
/// Longest time for which open handshakes keep a worker that has no other work.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// Time before the end of a drain, at most a quarter of it, at which streaming calls end: their last bytes are to reach
/// the clients.
const LAST_CALLS_TIME: Duration = Duration::from_secs(1);

pub(super) struct WorkerParts {
    pub(super) in_force: ActiveState,
    pub(super) index: WorkerIndex,
    /// UDP sockets, one per listen address.
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) endpoint: EndpointParts<ServerTls>,
    pub(super) metrics: WorkerMetrics,
    pub(super) tcp: TcpParts,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) oldest: Arc<OldestClient>,
    pub(super) mailbox: Mailbox,
}

pub(super) struct TcpParts {
    /// Listeners of TLS, one per address, with the port at which clients reach HTTP/3.
    pub(super) listeners: Vec<(TcpListener, AdvertisedPort)>,
    pub(super) tls: TcpTls,
    /// Listeners of plain HTTP, which redirect to the port `https`.
    pub(super) redirects: Vec<TcpListener>,
    pub(super) https: u16,
}

/// An endpoint ended by itself: its socket failed, or s2n-quic did.
#[derive(Debug, PartialEq, Eq)]
struct EndpointDied;

/// Report of a worker to the control thread.
pub(super) enum WorkerReport {
    /// The process drains, and worker `.0` serves no connection any more. It refuses new ones until the process stops.
    Drained(usize),
    /// Worker `index` has ended.
    Ended {
        index: usize,
        /// Whether the end was requested, and nothing panicked.
        in_order: bool,
    },
}

/// Reports the end of a worker when it is dropped.
struct EndReport {
    index: usize,
    in_order: bool,
    to: mpsc::UnboundedSender<WorkerReport>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        // An error means that the receiver is gone.
        let _ = self.to.send(WorkerReport::Ended { index: self.index, in_order: self.in_order });
    }
}

/// Starts the thread of a worker, which ends by the lifecycle, and waits until its endpoints listen. The thread is not
/// joined: its [`EndReport`] reports all there is to know.
pub(super) async fn start_worker<H: Handler>(
    parts: WorkerParts,
    wrap: impl Fn(Proxy) -> H + Send + 'static,
    reports: mpsc::UnboundedSender<WorkerReport>,
) -> Result<(), StartError> {
    let index = usize::from(parts.index.0);
    let failed = |reason: String| StartError::Worker { index, reason };
    let (started, starting) = oneshot::channel();
    thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            let mut farewell = EndReport { index, in_order: false, to: reports };
            farewell.in_order = run_worker(parts, wrap, started, &farewell.to);
        })
        .map_err(|error| failed(error.to_string()))?;
    match starting.await {
        Ok(started) => started.map_err(failed),
        Err(_) => Err(failed("the thread of the worker ended".into())),
    }
}

/// Runs a worker to its end. Returns whether that was in order.
fn run_worker<H: Handler>(
    parts: WorkerParts,
    wrap: impl Fn(Proxy) -> H,
    started: oneshot::Sender<Result<(), String>>,
    reports: &mpsc::UnboundedSender<WorkerReport>,
) -> bool {
    let [waits, wakes] = [(), ()].map(|()| (Arc::clone(&parts.metrics.wake), Arc::clone(&parts.heartbeat)));
    let mut runtime = Builder::new_current_thread();
    log::defer_log_wakes();
    let park = move || {
        let (wake, heartbeat) = &waits;
        if heartbeat.park() {
            // Work that was done after the decision to rest must not wait for a tick.
            BEFORE_PARK.with_borrow(|settle| {
                if let Some(settle) = settle {
                    settle();
                }
            });
        }
        log::wake_log_writer();
        wake.on_wait_begins();
    };
    let unpark = move || {
        let (wake, heartbeat) = &wakes;
        heartbeat.unpark();
        wake.on_wait_ended();
    };
    runtime.enable_all().on_thread_park(park).on_thread_unpark(unpark);
    let runtime = match runtime.build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error.to_string()));
            return false;
        }
    };
    let in_order = runtime.block_on(serve_endpoints(parts, wrap, started, reports));
    // The last lines of the log are sent before the end is reported.
    BEFORE_PARK.set(None);
    log::wake_log_writer();
    in_order
}

/// Opens the endpoints and listeners of a worker, reports the result through `started`, and serves. Returns whether the
/// end was in order.
async fn serve_endpoints<H: Handler>(
    parts: WorkerParts,
    wrap: impl Fn(Proxy) -> H,
    started: oneshot::Sender<Result<(), String>>,
    reports: &mpsc::UnboundedSender<WorkerReport>,
) -> bool {
    let litequic = parts.endpoint.config.load().litequic;
    let mut listening = Vec::new();
    for socket in parts.sockets {
        match open_endpoint(socket, &litequic, parts.index, &parts.endpoint, &parts.metrics.net) {
            Ok(endpoint) => listening.push(endpoint),
            Err(error) => {
                let _ = started.send(Err(error.to_string()));
                return false;
            }
        }
    }
    let ActiveState { access, traces, resolver, routing, shared, acme, http3, .. } = parts.in_force;
    let (endpoint, metrics) = (parts.endpoint, parts.metrics);
    let (certificates, routes) = (Arc::clone(&resolver), Arc::clone(&routing));
    let covers = move |client: &Client, host: &str| {
        certificates.may_serve_host_now(client.server_name.as_deref(), client.local.ip(), host)
            && routes.load().admits_host(client, host)
    };
    let proxy = Proxy::new(routing, Arc::clone(&metrics.proxy), endpoint.pressure.clone());
    let end_calls = proxy.call_ender();
    let handler = Rc::new(wrap(proxy.with_deny_list(Arc::clone(&endpoint.denied))));
    let (records, lines) = access.worker_access_log(Arc::clone(&metrics.access_log)).into_records();
    let (tracer, spans) = traces.worker_spans(Arc::clone(&metrics.traces)).into_tracer();
    let mut endpoints = JoinSet::new();
    // Each listener holds a clone of `serving` until it serves no connection any more.
    let (serving, mut all_served) = mpsc::channel::<Infallible>(1);
    let context = WorkerContext {
        send: SendBudget::for_worker(endpoint.config.load().limits.worker_send_buffer),
        endpoint,
        metrics,
        covers: Rc::new(covers),
        registry: Rc::default(),
        descriptors: Arc::clone(&shared.capacity.descriptors),
        records: records.with_tracer(tracer),
    };
    let watch = &context.endpoint.watch;
    let tcp_servers = TcpServers { context: &context, serving: &serving, tasks: &mut endpoints };
    tcp_servers.spawn_listeners(parts.tcp, &handler, resolver, acme.answers);
    let front = context.http3_worker(http3.subscribe());
    let _ = started.send(Ok(()));

    let logged = listening.iter().map(|endpoint| Arc::clone(&endpoint.connections)).collect();
    for endpoint in listening {
        let (handler, front, metrics) = (Rc::clone(&handler), Rc::clone(&front), Arc::clone(&context.metrics.quic));
        let serving = serving.clone();
        endpoints.spawn_local(accept_connections(endpoint, handler, front, metrics, watch.clone(), serving));
    }
    drop(serving);
    let tick = WorkerTick {
        context: &context,
        heartbeat: &parts.heartbeat,
        lines: Rc::new(lines),
        spans: Rc::new(spans),
        oldest: &parts.oldest,
    };
    let index = usize::from(parts.index.0);
    let questions = mailbox::serve_requests(parts.mailbox, index, Rc::clone(&context.registry), logged);
    let drained = async {
        // No value is ever sent: this ends when all senders are dropped.
        while all_served.recv().await.is_some() {}
        // An error means that the receiver is gone.
        let _ = reports.send(WorkerReport::Drained(index));
        pending::<()>().await;
    };
    let mut draining = watch.clone();
    let calls_end = async {
        draining.wait_for_phase(ProcessPhase::Draining).await;
        let drain = context.endpoint.config.load().timeouts.drain;
        sleep(drain.saturating_sub(LAST_CALLS_TIME.min(drain / 4))).await;
        end_calls();
        pending::<()>().await;
    };
    let endpoints_end = async {
        while let Some(ended) = endpoints.join_next().await {
            if let Ok(Err(EndpointDied)) = ended {
                tracing::error!(worker = parts.index.0, "an endpoint ended unexpectedly: its socket or QUIC failed");
                return false;
            }
            propagate_panic(ended.map(|_| ()));
        }
        true
    };
    select! {
        () = timers::serve_timers() => false,
        () = tick.run_ticks() => false,
        () = questions => false,
        () = drained => false,
        () = calls_end => false,
        in_order = endpoints_end => in_order,
    }
}

/// State of a worker, from which the front ends over QUIC and over TCP are built.
struct WorkerContext {
    /// Parts of the QUIC endpoints, with which the front ends share limits, budgets and switches.
    endpoint: EndpointParts<ServerTls>,
    metrics: WorkerMetrics,
    covers: Rc<HostCoverage>,
    /// Budget of response bytes.
    send: Rc<SendBudget>,
    registry: Rc<ConnectionRegistry>,
    descriptors: Arc<Descriptors>,
    records: RequestRecorder,
}

impl WorkerContext {
    /// Creates the front end over QUIC, whose connections drain once `on` is false.
    fn http3_worker(&self, on: watch::Receiver<bool>) -> Rc<Http3Worker> {
        Rc::new(Http3Worker {
            terms: CurrentTerms::new(Arc::clone(&self.endpoint.config)),
            metrics: Arc::clone(&self.metrics.http3),
            covers: Rc::clone(&self.covers),
            client_address: quic::client_address,
            transport: quic::transport_report,
            send: Rc::clone(&self.send),
            registry: Rc::clone(&self.registry),
            watch: self.endpoint.watch.clone(),
            is_enabled: on,
            records: self.records.clone(),
            denied: Arc::clone(&self.endpoint.denied),
        })
    }

    /// Creates a front end over TCP for the connections of `pool`; `handler` serves requests for the hosts that
    /// `covers` admits.
    fn tcp_worker<H>(&self, pool: ConnectionPool, covers: Rc<HostCoverage>, handler: Rc<H>) -> Rc<TcpWorker<H>> {
        Rc::new(TcpWorker {
            terms: CurrentTerms::new(Arc::clone(&self.endpoint.config)),
            metrics: Arc::clone(&self.metrics.tcp),
            handler,
            covers,
            transport: net::tcp_transport,
            send: Rc::clone(&self.send),
            receive: self.endpoint.receive.clone(),
            pressure: self.endpoint.pressure.clone(),
            registry: Rc::clone(&self.registry),
            pool,
            descriptors: Arc::clone(&self.descriptors),
            workers: self.endpoint.workers,
            watch: self.endpoint.watch.clone(),
            records: self.records.clone(),
            denied: Arc::clone(&self.endpoint.denied),
        })
    }
}

/// Periodic task of a worker: it records that the loop turns, sets budgets and gauges, and returns memory.
struct WorkerTick<'a> {
    context: &'a WorkerContext,
    heartbeat: &'a Heartbeat,
    /// Writer of buffered lines of the access log.
    lines: Rc<access_log::AccessLogFlusher>,
    /// Writer of buffered spans.
    spans: Rc<traces::SpanFlusher>,
    oldest: &'a OldestClient,
}

impl WorkerTick<'_> {
    /// Ticks twice a second while the worker works, more often when memory is short. Does not end.
    async fn run_ticks(self) {
        let Self { context, heartbeat, lines, spans, oldest } = self;
        let WorkerContext { send, registry: holders, endpoint, .. } = context;
        let EndpointParts { config, receive, watch, workers, .. } = endpoint;
        let (metrics, mut pressure) = (&context.metrics.worker, endpoint.pressure.clone());
        let (mut idle, mut relief) = (IdleTracker::default(), MemoryRelease::default());
        let settle = {
            let (send, receive, metrics) = (Rc::clone(send), receive.clone(), Arc::clone(metrics));
            move || {
                metrics.send_buffered.set(send.leased_bytes());
                metrics.receive_held.set(receive.buffered_bytes());
                metrics.receive_granted.set(receive.granted_bytes());
                lines.flush_lines();
                spans.flush_spans();
            }
        };
        BEFORE_PARK.set(Some(Box::new(settle.clone())));
        let mut awake = pressure.mark_awake();
        // Number of waits at the last tick, if that was half a second ago.
        let mut turns = None;
        loop {
            heartbeat.tick_heartbeat();
            timers::record_tick();
            holders.begin_period();
            panic_if_requested("worker");
            let limits = config.load().limits;
            settle();
            send.resize(pressure.worker_budget(limits.worker_send_buffer, *workers));
            receive.resize(pressure.worker_budget(limits.worker_receive_buffer, *workers));
            let drains = watch.watched_phase() >= ProcessPhase::Draining;
            if drains {
                *oldest.lock() = holders.oldest_client();
            }
            // A worker that is never idle does not park, and so wakes the log here.
            log::wake_log_writer();
            if pressure.pressure_step() > MemoryStep::Normal {
                relief.end_or_release(&pressure, *workers, holders, metrics);
                pressure.wait_for_pressure_within(memory::MEASURE_INTERVAL).await;
                turns = None;
                continue;
            }
            if idle.observe_busy_time(Handle::current().metrics().worker_total_busy_duration(0)) {
                idle_memory::return_freed_memory();
            }
            let now = heartbeat.ended_waits();
            let is_quiet = turns.replace(now).is_some_and(|before| now.wrapping_sub(before) <= MAX_IDLE_TURNS);
            if is_quiet && idle.is_fully_released() && !drains {
                drop(awake);
                timers::record_rest(None);
                select! {
                    () = heartbeat.rest_until_roused() => {}
                    () = pressure.wait_for_pressure_change() => {}
                }
                awake = pressure.mark_awake();
                turns = None;
                continue;
            }
            pressure.wait_for_pressure_within(Heartbeat::TICK_INTERVAL).await;
        }
    }
}

/// Frees memory at each check while memory is short.
#[derive(Debug, Default)]
struct MemoryRelease {
    /// Whether connections have ended since memory was returned.
    ended: bool,
    /// Number of checks since memory was returned.
    rounds: u32,
}

impl MemoryRelease {
    /// Ends connections, or returns the memory of those that ended at the last check: by now they are dropped.
    fn end_or_release(
        &mut self,
        pressure: &memory::MemoryPressure,
        workers: usize,
        holders: &ConnectionRegistry,
        metrics: &TurnMetrics,
    ) {
        /// Number of checks after which memory is returned at the latest: a second.
        const MAX_ROUNDS: u32 = 10;
        self.rounds += 1;
        if self.ended || self.rounds >= MAX_ROUNDS {
            // The effect of a release is measured before further connections end.
            *self = Self::default();
            idle_memory::return_freed_memory();
            return;
        }
        let idle = holders.end_idle_connections(Instant::now());
        metrics.limit_memory_idle.increment_by(idle as u64);
        self.ended = idle > 0;
        if pressure.pressure_step() == MemoryStep::Close {
            let (connections, bytes) = holders.end_heaviest_connections(pressure.excess_bytes(workers));
            self.ended |= connections > 0;
            metrics.limit_memory_held.increment_by(connections);
            if connections > 0 {
                tracing::warn!(connections, bytes, "memory is short: ending the connections that hold the most");
            }
        }
    }
}

/// State that a worker's TCP listeners share.
struct TcpServers<'a> {
    context: &'a WorkerContext,
    serving: &'a mpsc::Sender<Infallible>,
    tasks: &'a mut JoinSet<Result<(), EndpointDied>>,
}

impl TcpServers<'_> {
    /// Serves HTTP/1.1 and HTTP/2 beside HTTP/3, by the same `handler`.
    fn spawn_listeners<H: Handler>(
        mut self,
        parts: TcpParts,
        handler: &Rc<H>,
        certificates: Arc<CertificateResolver>,
        answers: Arc<ChallengeResponses>,
    ) {
        let TcpParts { listeners, tls, redirects, https } = parts;
        let validated = Arc::clone(&answers);
        let validation = Box::new(move |name: Option<&str>| {
            let (answers, name) = (Arc::clone(&validated), name.map(str::to_owned));
            Box::pin(async move {
                let found = answers.tls_alpn01_certificate(name.as_deref()).await?;
                tls::challenge_config(&found.certificate, &found.key).ok()
            }) as tcp::DeferredValue<_>
        });
        let choose = Box::new(move |name: Option<&str>, local, is_old| tls.choose_server_config(name, local, is_old));
        let tls = Rc::new(tcp::HandshakeConfig { choose, validation });
        let context = self.context;
        let front = context.tcp_worker(ConnectionPool::Tls, Rc::clone(&context.covers), Rc::clone(handler));
        for (listener, advertised) in listeners {
            self.spawn_when_ready(tcp::serve_tls(listener, Rc::clone(&front), Rc::clone(&tls), advertised));
        }
        let validated = Arc::clone(&answers);
        let known = Rc::new(move |_: &Client, host: &str| certificates.has_name(host) || validated.has_host(host));
        let validation: Box<tcp::HttpValidation> =
            Box::new(move |host, path| Some(Box::pin(answers.http01_response(host, path)?) as tcp::DeferredValue<_>));
        let redirect = tcp::RedirectListener { port: https, metrics: Arc::clone(&context.metrics.tcp), validation };
        let front = context.tcp_worker(ConnectionPool::Plain, known, Rc::new(redirect));
        for listener in redirects {
            self.spawn_when_ready(tcp::serve_plain(listener, Rc::clone(&front)));
        }
    }

    /// Serves a listener once the process is ready: until then the previous process accepts from it.
    fn spawn_when_ready(&mut self, serving: impl Future<Output = io::Result<()>> + 'static) {
        let (mut watch, until_served) = (self.context.endpoint.watch.clone(), self.serving.clone());
        self.tasks.spawn_local(async move {
            watch.wait_for_phase(ProcessPhase::Ready).await;
            let served = serving.await.map_err(|_| EndpointDied);
            drop(until_served);
            served
        });
    }
}

/// Starts an endpoint on `socket`, with the I/O that the configuration names.
fn open_endpoint(
    socket: UdpSocket,
    litequic: &LiteQuic,
    worker: WorkerIndex,
    parts: &EndpointParts<ServerTls>,
    metrics: &Arc<net::SocketMetrics>,
) -> Result<quic::QuicEndpoint, quic::EndpointError> {
    let LiteQuic { io, receive_batch, gso, gro, .. } = *litequic;
    let local = socket.local_addr()?;
    let backend = match io {
        Io::S2nQuic => return quic::start_endpoint(quic::library_io(socket, gso, gro)?, local, worker, parts),
        Io::Auto | Io::Epoll => Backend::Epoll,
        Io::IoUring => Backend::IoUring,
    };
    let options = SocketOptions { backend, receive_batch, gso, gro };
    let OpenSocket { receiver, sender, may_probe_mtu, .. } = OpenSocket::new(socket, options, Arc::clone(metrics))?;
    quic::start_endpoint(SocketIo { receive: receiver, transmit: sender, local, may_probe_mtu }, local, worker, parts)
}

/// Accepts the connections of one endpoint until the process stops. `serving` is dropped once the process drains and no
/// connection is left; from then on the endpoint refuses new ones, so that clients need not wait for a timeout.
///
/// # Errors
///
/// [`EndpointDied`] if the endpoint ends before that. Its connections are lost.
async fn accept_connections<H: Handler>(
    endpoint: quic::QuicEndpoint,
    handler: Rc<H>,
    front: Rc<Http3Worker>,
    metrics: Arc<quic::QuicMetrics>,
    mut watch: PhaseWatch,
    serving: mpsc::Sender<Infallible>,
) -> Result<(), EndpointDied> {
    let quic::QuicEndpoint { mut server, connections } = endpoint;
    let windows: Rc<dyn Transport> = Rc::new(quic::QuicTransport(connections));
    let mut connections = JoinSet::new();
    let mut draining = false;
    let mut serving = Some(serving);
    let mut stopping = watch.clone();
    let mut is_settled = false;
    loop {
        select! {
            connection = server.accept() => match connection {
                Some(connection) => {
                    is_settled = false;
                    let windows = Rc::clone(&windows);
                    connections.spawn_local(http3::serve_http3(connection, Rc::clone(&handler), Rc::clone(&front), windows));
                }
                None => return Err(EndpointDied),
            },
            Some(ended) = connections.join_next() => propagate_panic(ended),
            () = watch.wait_for_phase(ProcessPhase::Draining), if !draining => draining = true,
            // A client whose handshake is in progress, with the last flight still to come, must get CONNECTION_CLOSE as
            // well.
            () = wait_for_handshakes(&metrics), if draining && !is_settled && connections.is_empty() => {
                is_settled = true;
                drop(serving.take());
            }
            () = stopping.wait_for_phase(ProcessPhase::Stopping), if is_settled => break,
        }
    }
    Ok(())
}

/// Waits until no handshake is open, plus [`CLOSE_DELAY`] for the last packets.
async fn wait_for_handshakes(metrics: &quic::QuicMetrics) {
    let began = Instant::now();
    loop {
        sleep(CLOSE_DELAY).await;
        if metrics.handshakes_open.get() == 0 || began.elapsed() >= HANDSHAKE_GRACE {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_base::lifecycle::Lifecycle;
    use litequic_config::Config;
    use litequic_exchange::{Abort, Exchange, Response};
    use litequic_quic::Secrets;
    use litequic_tls::{self as tls, CertificateStore};
    use tokio::time::timeout;

    /// The allocator has a size class of 4,096 bytes, and the next one is 5,120.
    #[test]
    fn the_future_of_a_request_over_http3_has_at_most_4_kib() {
        let size = http3::request_future_size::<Proxy>();
        assert!(size <= 4096, "{size}");
    }

    const DEADLINE: Duration = Duration::from_secs(5);

    /// Handler without any work.
    struct NoHandler;

    impl Handler for NoHandler {
        async fn handle(&self, _: Exchange) -> Result<Response, Abort> {
            Err(Abort::Internal)
        }
    }

    fn parts() -> EndpointParts<ServerTls> {
        let certificate = tls::make_self_signed(["localhost"]).unwrap().to_loaded_certificate().unwrap();
        let resolver = CertificateResolver::new(CertificateStore::new(certificate, []));
        let origin = "http://origin".parse().unwrap();
        let config = Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into()).into_live();
        let secrets = Secrets::from_random().unwrap();
        let tls = ServerTls::new(tls::server_config(resolver, false, &secrets.tickets).unwrap());
        EndpointParts::for_one_worker(config, tls).unwrap()
    }

    /// Returns the outcome of `accept_connections` with an endpoint whose own tasks are cancelled if it `dies`.
    async fn accept_one(lifecycle: &Lifecycle, dies: bool) -> Result<(), EndpointDied> {
        let watch = lifecycle.watch_phase();
        let parts = EndpointParts { watch: watch.clone(), ..parts() };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let tasks = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = {
            let _entered = tasks.enter();
            open_endpoint(socket, &parts.config.load().litequic, WorkerIndex(0), &parts, &Arc::default()).unwrap()
        };
        let tasks = if dies {
            tasks.shutdown_background();
            None
        } else {
            Some(tasks)
        };
        let metrics = Arc::clone(&parts.metrics);
        let context = WorkerContext {
            endpoint: parts,
            metrics: WorkerMetrics::default(),
            covers: Rc::new(|_: &Client, _: &str| true),
            send: SendBudget::for_worker(0),
            registry: Rc::default(),
            descriptors: Arc::default(),
            records: RequestRecorder::default(),
        };
        let front = context.http3_worker(watch::channel(true).1);
        let (serving, _all_served) = mpsc::channel(1);
        let accepted = accept_connections(endpoint, Rc::new(NoHandler), front, metrics, watch, serving);
        let outcome = timeout(DEADLINE, accepted).await;
        if let Some(tasks) = tasks {
            tasks.shutdown_background();
        }
        outcome.expect("an end")
    }

    #[tokio::test]
    async fn an_endpoint_that_dies_ends_the_worker_with_an_error() {
        let lifecycle = Lifecycle::default();
        assert_eq!(accept_one(&lifecycle, true).await, Err(EndpointDied));
        lifecycle.advance_phase(ProcessPhase::Stopping);
        assert_eq!(accept_one(&lifecycle, false).await, Ok(()));
    }
}
