//! The running process' side: keeps the sockets in their places, hands them to a process that takes over, and watches
//! older ones that drain.

use super::offer::{HandoverOffer, OfferedGeneration, OfferedGroup, OfferedIds, OfferedListeners, OfferedSecret};
use super::protocol::{ANSWER_DEADLINE, DONE, GO, Older, READY, Reason, hear, is_trusted, prepared, say};
use super::successor::Successor;
use crate::app::{denial, metrics::Metrics, named_socket::SocketName, service, switch::Http3};
use arc_swap::ArcSwap;
use futures_util::{StreamExt, future, stream::FuturesUnordered};
use litequic_base::lifecycle::{Phase, PhaseWatch};
use litequic_net::{self as net, SocketGroup, Steering};
use litequic_proxy::Routing;
use litequic_quic::{Generations, IdScheme, Secrets};
use litequic_telemetry::clients::{DeniedNetwork, DenyList};
use std::{
    io::{self, PipeReader, PipeWriter},
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Instant,
};
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream, unix::pipe},
    select,
    sync::watch,
    task::JoinSet,
    time::timeout,
};

/// Serves the socket of `admin.handover`, with all that a process which takes over needs.
pub(in crate::app) struct HandoverServer {
    steering: Steering,
    generation: u8,
    groups: Vec<SocketGroup>,
    /// By address. Workers accept from duplicates.
    listeners: Vec<(SocketAddr, Vec<TcpListener>)>,
    secrets: Arc<Secrets>,
    ids: Arc<IdScheme>,
    metrics: Arc<Metrics>,
    older: Vec<Older>,
    /// Generations of `older`, for the workers; from the offer on, all of them.
    others: Arc<Generations>,
    /// A process that takes over sees this process' end by it.
    pipe: (PipeReader, PipeWriter),
    socket: Option<Socket>,
    /// Routes that are in maintenance.
    routing: Option<Arc<ArcSwap<Routing>>>,
    http3: Option<Arc<Http3>>,
    /// Networks whose clients are denied.
    denied: Arc<DenyList>,
}

/// Handle of a running [`HandoverServer`], which ends when this is dropped.
pub(in crate::app) struct HandoverListener {
    handed_over: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

impl HandoverListener {
    /// Waits until another process has taken over. Cancel safe.
    pub(in crate::app) fn handed_over(&self) -> impl Future<Output = ()> + use<> {
        let mut handed_over = self.handed_over.clone();
        async move {
            // An error means that no process can take over any more.
            if handed_over.wait_for(|over| *over).await.is_err() {
                future::pending::<()>().await;
            }
        }
    }

    /// Reports whether another process has taken over, without waiting.
    pub(in crate::app) fn whether_handed_over(&self) -> watch::Receiver<bool> {
        self.handed_over.clone()
    }

    /// Whether one has.
    pub(in crate::app) fn is_handed_over(&self) -> bool {
        *self.handed_over.borrow()
    }
}

/// The Unix socket of `admin.handover`.
struct Socket {
    listener: UnixListener,
    name: SocketName,
}

/// A network that is denied, as an offer has it.
fn offered(denied: &DeniedNetwork) -> (String, u64) {
    (denied.network.to_string(), denial::seconds(denied.left))
}

impl HandoverServer {
    /// Keeps `groups` and `listeners` for the process of `generation`.
    ///
    /// # Errors
    ///
    /// Those of pipe(2).
    pub(in crate::app) fn new(
        (steering, generation): (Steering, u8),
        groups: Vec<SocketGroup>,
        listeners: Vec<(SocketAddr, Vec<TcpListener>)>,
        (secrets, ids): (Arc<Secrets>, Arc<IdScheme>),
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let pipe = io::pipe()?;
        metrics.control.generation.set(generation.into());
        let (older, others) = (Vec::new(), Arc::default());
        Ok(Self {
            steering,
            generation,
            groups,
            listeners,
            secrets,
            ids,
            metrics,
            older,
            others,
            pipe,
            socket: None,
            routing: None,
            http3: None,
            denied: Arc::default(),
        })
    }

    /// Passes to a process that takes over which routes are in maintenance by `routing`, and what was ordered of
    /// `http3`.
    pub(in crate::app) fn with_routing(self, routing: Arc<ArcSwap<Routing>>, http3: Arc<Http3>) -> Self {
        Self { routing: Some(routing), http3: Some(http3), ..self }
    }

    /// Passes to a process that takes over which networks are `denied`.
    pub(in crate::app) fn with_denied(self, denied: Arc<DenyList>) -> Self {
        Self { denied, ..self }
    }

    /// Watches processes that drain, and lists in `others` those that still do.
    pub(in crate::app) fn with_older(mut self, found: Vec<Older>, others: Arc<Generations>) -> Self {
        self.older = found;
        self.others = others;
        self
    }

    /// Steers new connections of every group to this process.
    ///
    /// # Errors
    ///
    /// Of the first group that the kernel does not steer.
    pub(in crate::app) fn steer(&self) -> Result<(), net::BindError> {
        self.groups.iter().try_for_each(|group| {
            let failed = |source| net::BindError::Steer { address: group.address(), source };
            group.steer(&self.steering, self.generation).map_err(failed)
        })
    }

    /// Binds the socket that [`publish`](Self::publish) puts at `path`, under another name beside it: all that a full
    /// disk or a missing permission can prevent has happened before a process in service gives way.
    ///
    /// # Errors
    ///
    /// The kernel's, when there can be no socket of that name.
    pub(in crate::app) fn bind(&mut self, path: &Path) -> io::Result<()> {
        self.socket = Some(Socket::bind(path)?);
        Ok(())
    }

    /// Gives the socket that was bound for it the name `path`, where the next process finds it.
    ///
    /// # Errors
    ///
    /// The kernel's. There is no socket then.
    pub(in crate::app) fn publish(&mut self, path: &Path) -> io::Result<()> {
        let published = self.socket.as_mut().map_or(Ok(()), |socket| socket.name.publish(path));
        if published.is_err() {
            self.socket = None;
        }
        published
    }

    /// Begins. `watch` reports when it is too late to take over: a process that drains ends by itself.
    pub(in crate::app) fn start(self, watch: PhaseWatch) -> HandoverListener {
        let (sender, handed_over) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(self.run(watch, sender));
        HandoverListener { handed_over, _task: task }
    }

    async fn run(mut self, mut watch: PhaseWatch, handed_over: watch::Sender<bool>) {
        if self.socket.is_none() {
            // No process will take them over, and clients should get a reset at once.
            self.listeners.clear();
        }
        let mut ends: FuturesUnordered<_> = self.older.iter().filter_map(end).collect();
        self.count_older();
        // One at most: a process that did not take over, until it is gone.
        let mut leaving = FuturesUnordered::new();
        loop {
            let someone = async {
                match &self.socket {
                    Some(socket) => socket.listener.accept().await,
                    None => future::pending().await,
                }
            };
            select! {
                biased;
                () = watch.reached(Phase::Draining) => break,
                Some(generation) = ends.next() => self.forget(generation),
                // Undoes what it may have done before it ended.
                Some(()) = leaving.next() => self.restore(),
                came = someone => match came {
                    Ok(_) if !leaving.is_empty() => {
                        self.metrics.control.upgrades_failed.increment();
                        tracing::error!("a new process cannot take over: the last one that tried still runs");
                    }
                    Ok((stream, _)) => {
                        let mut successor = Successor::new(stream);
                        // A slow successor must not keep this process from draining.
                        let took_over = select! {
                            biased;
                            () = watch.reached(Phase::Draining) => break,
                            took_over = self.serve(&mut successor) => took_over,
                        };
                        match took_over {
                            Ok(()) => {
                                // The name is the other's.
                                self.socket.iter_mut().for_each(|socket| socket.name.leave());
                                // This process stops sending notifications before the new one sends its own.
                                let _ = handed_over.send(true);
                                // It serves, whether or not this arrives.
                                let _ = say(&mut successor.stream, DONE).await;
                                break;
                            }
                            // It was offered nothing.
                            Err(Reason::Stranger(_)) => {}
                            Err(_) => {
                                self.restore();
                                leaving.push(successor.turn_away());
                            }
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection on admin.handover failed");
                        tokio::time::sleep(ANSWER_DEADLINE).await;
                    }
                },
            }
        }
        self.socket = None;
        self.listeners.clear();
        // The sockets of older processes, and of this one's workers, stay in their places.
        future::pending::<()>().await;
    }

    /// Connections of older processes get no stateless resets from here.
    fn show_older(&self) {
        self.others.set(self.older.iter().map(Older::generation));
    }

    fn count_older(&self) {
        self.metrics.control.older_processes.set(self.older.len() as u64);
    }

    /// An older process has ended.
    fn forget(&mut self, generation: u8) {
        self.older.retain(|older| older.generation != generation);
        self.show_older();
        self.count_older();
        for group in &mut self.groups {
            group.leave(generation);
        }
        // An address that only older processes had.
        self.groups.retain(|group| !group.generations().is_empty());
        tracing::info!(generation, "an older process ended");
        self.restore();
    }

    /// Hands over to `successor`, or logs why not.
    async fn serve(&self, successor: &mut Successor) -> Result<(), Reason> {
        // It may have connections before this process gets READY; from then on it watches the others.
        self.others.set_all();
        let handed_over = self.hand_over(successor).await;
        match &handed_over {
            Ok(()) => self.metrics.control.upgrades.increment(),
            Err(reason) => {
                self.show_older();
                self.metrics.control.upgrades_failed.increment();
                let process = successor.process();
                tracing::error!(process, %reason, "a new process failed to take over; this process continues");
            }
        }
        handed_over
    }

    async fn hand_over(&self, successor: &mut Successor) -> Result<(), Reason> {
        let process = successor.process();
        let stream = &mut successor.stream;
        is_trusted(stream)?;
        tracing::info!(process, "a new process is about to take over");
        self.make_offer(stream).await?;
        let version_after = prepared(stream).await?;
        say(stream, GO).await?;
        hear(stream, READY, ANSWER_DEADLINE).await?;
        // A process of another PID namespace means nothing to the service manager.
        if let Some(process) = process {
            service::main_process(process).await;
        }
        tracing::info!(process, version = env!("CARGO_PKG_VERSION"), version_after, "a new process has taken over");
        Ok(())
    }

    async fn make_offer(&self, stream: &mut UnixStream) -> Result<(), Reason> {
        let group = |group: &SocketGroup| OfferedGroup {
            sockets: group.sockets().len(),
            generations: group.generations().iter().copied().map(OfferedGeneration::from).collect(),
        };
        let listeners =
            |(address, all): &(SocketAddr, Vec<TcpListener>)| OfferedListeners { address: *address, count: all.len() };
        let layout = self.ids.layout().shape();
        let offer = HandoverOffer {
            denied: self.denied.list(Instant::now()).iter().map(offered).collect(),
            connection_ids: layout.map(|shape| OfferedIds::new(shape, self.ids.mask())),
            generation: self.generation,
            version: Some(env!("CARGO_PKG_VERSION").into()),
            hears_version: true,
            secret: self.secrets.to_hand_over().copied().map(OfferedSecret),
            replica: Some(self.secrets.replica().name().to_owned()),
            groups: self.groups.iter().map(group).collect(),
            listeners: self.listeners.iter().map(listeners).collect(),
            older: self.older.iter().map(|older| older.generation).collect(),
            maintenance: self.routing.iter().flat_map(|routing| routing.load().maintenance().words()).collect(),
            http3: self.http3.as_ref().and_then(|http3| http3.order()),
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::with_capacity(offer.descriptors());
        descriptors.extend(self.groups.iter().flat_map(SocketGroup::sockets).map(AsFd::as_fd));
        descriptors.extend(self.listeners.iter().flat_map(|(_, all)| all).map(AsFd::as_fd));
        descriptors.push(self.pipe.0.as_fd());
        descriptors.extend(self.older.iter().map(|older| older.pipe.as_fd()));
        match timeout(ANSWER_DEADLINE, net::send(stream, &offer.encode(), &descriptors)).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(Reason::Late),
        }
    }

    /// Steers new connections of every group to this process again.
    fn restore(&self) {
        if let Err(error) = self.steer() {
            tracing::error!(%error, "steering to this process failed: datagrams may go to processes that ended");
        }
    }
}

/// Resolves to an older process' generation when it has ended. `None` if its pipe cannot be waited for: its place stays
/// taken then.
fn end(older: &Older) -> Option<impl Future<Output = u8> + use<>> {
    let generation = older.generation;
    let reader = older.pipe.try_clone().and_then(|pipe: OwnedFd| pipe::Receiver::from_owned_fd(pipe));
    match reader {
        Ok(mut reader) => Some(async move {
            // Nothing is ever written.
            let _ = reader.read_u8().await;
            generation
        }),
        Err(error) => {
            tracing::warn!(generation, %error, "cannot watch an older process: its end goes unnoticed");
            None
        }
    }
}

impl Socket {
    /// Binds a socket beside `path`.
    fn bind(path: &Path) -> io::Result<Self> {
        let (listener, name) = SocketName::bind(path)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, name })
    }
}
