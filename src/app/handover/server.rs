//! Serves the handover socket in the running process: keeps the sockets at their positions, hands them to a process
//! that takes over, and watches older processes that drain.

use super::{
    InheritedState,
    offer::{FORMAT, HandoverOffer, OfferedGeneration, OfferedGroup, OfferedIds, OfferedListeners, OfferedSecret},
    protocol::{
        ANSWER_TIMEOUT, DONE, GO, HandoverFailure, OlderProcess, READY, check_peer_user, expect_byte, receive_prepared,
        send_bytes,
    },
    successor::Successor,
    takeover::HandoverPath,
};
use crate::app::{
    active_state::ActiveState, denial, named_socket::SocketName, service, sockets::ProcessSockets,
    start_error::StartError,
};
use futures_util::{
    StreamExt,
    future::{self, OptionFuture},
    stream::FuturesUnordered,
};
use litequic_base::lifecycle::{PhaseWatch, ProcessPhase};
use litequic_config::{Config, ServerIdShape};
use litequic_net::{self as net, SocketGroup, Steering, SteeringMask};
use litequic_quic::{Generations, Secrets};
use litequic_telemetry::clients::DeniedNetwork;
use std::{
    io::{self, PipeReader, PipeWriter},
    mem,
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

/// Serves the handover socket, with all that a successor needs.
pub(in crate::app) struct HandoverServer {
    steering: Steering,
    generation: u8,
    groups: Vec<SocketGroup>,
    /// TCP listeners by address. Workers accept from duplicates.
    listeners: Vec<(SocketAddr, Vec<TcpListener>)>,
    secrets: Arc<Secrets>,
    /// State in force, of which the operator's orders are handed over.
    in_force: ActiveState,
    older: Vec<OlderProcess>,
    /// Generations of the older processes, which workers read; all generations from an offer on.
    others: Arc<Generations>,
    /// Pipe by which a successor notices the end of this process.
    pipe: (PipeReader, PipeWriter),
    socket: Option<HandoverSocket>,
}

/// Handle of a running [`HandoverServer`]; dropping it ends the server.
pub(in crate::app) struct HandoverListener {
    handed_over: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

impl HandoverListener {
    /// Waits until another process has taken over. Cancel safe.
    pub(in crate::app) fn wait_for_handover(&self) -> impl Future<Output = ()> + use<> {
        let mut handed_over = self.handed_over.clone();
        async move {
            // An error means that no process can take over any more.
            if handed_over.wait_for(|over| *over).await.is_err() {
                future::pending::<()>().await;
            }
        }
    }

    /// Returns a receiver that is true once another process has taken over.
    pub(in crate::app) fn watch_handover(&self) -> watch::Receiver<bool> {
        self.handed_over.clone()
    }

    /// Returns whether another process has taken over.
    pub(in crate::app) fn is_handed_over(&self) -> bool {
        *self.handed_over.borrow()
    }
}

/// The Unix socket of `admin.handover`, or of this process alone.
struct HandoverSocket {
    listener: UnixListener,
    name: SocketName,
    /// Whether the successor binds the same path.
    is_shared: bool,
}

/// A denied network in the format of an offer.
fn offered_network(denied: &DeniedNetwork) -> (String, u64) {
    (denied.network.to_string(), denial::seconds_rounded_up(denied.left))
}

impl HandoverServer {
    /// Keeps `sockets` for the successor of this process, and watches the older processes of `beginning`.
    ///
    /// # Errors
    ///
    /// [`StartError::Pipe`]
    pub(in crate::app) fn new(
        beginning: &mut InheritedState,
        sockets: ProcessSockets,
        config: &Config,
        in_force: ActiveState,
    ) -> Result<Self, StartError> {
        let pipe = io::pipe().map_err(StartError::Pipe)?;
        // Connection IDs have at most 20 bytes.
        let byte = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        let layout = in_force.ids.layout();
        let hashed = layout.hashed_range().map(|hashed| byte(hashed.start)..byte(hashed.end));
        let steering = Steering {
            id_len: byte(layout.id_len()),
            first_byte: layout.first_byte(),
            issuer_offset: byte(layout.issuer_offset()),
            mask: hashed.map(|hashed| SteeringMask { key: in_force.ids.mask, hashed }),
            skips_proxy_header: config.listen.proxy_protocol_udp.has_headers(),
        };
        let ProcessSockets { groups, tcp, redirects, admin, probes, .. } = sockets;
        let operator = [admin, probes].into_iter().flatten();
        let operator = operator.filter_map(|listener| Some((listener.local_addr().ok()?, vec![listener])));
        let listeners = tcp.0.into_iter().chain(redirects.0).chain(operator).collect();
        in_force.metrics.control.generation.set(beginning.generation.into());
        Ok(Self {
            steering,
            generation: beginning.generation,
            groups,
            listeners,
            secrets: Arc::clone(&beginning.secrets),
            in_force,
            older: mem::take(&mut beginning.older),
            others: Arc::clone(&beginning.others),
            pipe,
            socket: None,
        })
    }

    /// Steers new connections of every group to this process.
    ///
    /// # Errors
    ///
    /// The error of the first group that the kernel does not steer.
    pub(in crate::app) fn steer_all_groups(&self) -> Result<(), net::BindError> {
        self.groups.iter().try_for_each(|group| {
            let failed = |source| net::BindError::Steer { address: group.address, source };
            group.steer(&self.steering, self.generation).map_err(failed)
        })
    }

    /// Binds the socket that [`publish_socket`](Self::publish_socket) gives its `path`, under another name beside it:
    /// a full disk or a missing permission fails here, before a serving process gives up its place.
    ///
    /// # Errors
    ///
    /// The kernel's, if no socket of that name can be created.
    pub(in crate::app) fn bind_socket(&mut self, path: &HandoverPath) -> io::Result<()> {
        let (listener, name) = SocketName::bind_beside(&path.path)?;
        let listener = UnixListener::from_std(listener)?;
        self.socket = Some(HandoverSocket { listener, name, is_shared: path.is_shared });
        Ok(())
    }

    /// Renames the bound socket to `path`, where the next process finds it.
    ///
    /// # Errors
    ///
    /// The kernel's. There is no socket then.
    pub(in crate::app) fn publish_socket(&mut self, path: &Path) -> io::Result<()> {
        let published = self.socket.as_mut().map_or(Ok(()), |socket| socket.name.rename_to(path));
        if published.is_err() {
            self.socket = None;
        }
        published
    }

    /// Spawns the server. `watch` reports the drain, from which on no process can take over.
    pub(in crate::app) fn spawn_server(self, watch: PhaseWatch) -> HandoverListener {
        let (sender, handed_over) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(self.accept_successors(watch, sender));
        HandoverListener { handed_over, _task: task }
    }

    async fn accept_successors(mut self, mut watch: PhaseWatch, handed_over: watch::Sender<bool>) {
        if self.socket.is_none() {
            // No process will take the listeners over, and clients should get a reset at once.
            self.listeners.clear();
        }
        let mut ends: FuturesUnordered<_> = self.older.iter().filter_map(older_process_end).collect();
        self.count_older();
        // At most one process: a successor that failed, until it has ended.
        let mut leaving = FuturesUnordered::new();
        loop {
            let someone = OptionFuture::from(self.socket.as_ref().map(|socket| socket.listener.accept()));
            select! {
                biased;
                () = watch.wait_for_phase(ProcessPhase::Draining) => break,
                Some(generation) = ends.next() => self.forget_older(generation),
                // The failed successor may have steered packets to itself before it ended.
                Some(()) = leaving.next() => self.steer_back(),
                Some(came) = someone => match came {
                    Ok(_) if !leaving.is_empty() => {
                        self.in_force.metrics.control.upgrades_failed.increment();
                        tracing::error!("a new process cannot take over: the process of the previous attempt still \
                                         runs");
                    }
                    Ok((stream, _)) => {
                        let mut successor = Successor::new(stream);
                        // A slow successor must not keep this process from draining.
                        let took_over = select! {
                            biased;
                            () = watch.wait_for_phase(ProcessPhase::Draining) => break,
                            took_over = self.serve_successor(&mut successor) => took_over,
                        };
                        match took_over {
                            Ok(()) => {
                                // A shared socket file now belongs to the successor: do not unlink it.
                                let shared = self.socket.iter_mut().filter(|socket| socket.is_shared);
                                shared.for_each(|socket| socket.name.disown_file());
                                // This process stops its notifications before the successor sends any.
                                let _ = handed_over.send(true);
                                // The successor serves, whether or not DONE arrives.
                                let _ = send_bytes(&mut successor.stream, &[DONE]).await;
                                break;
                            }
                            // A process of another user was offered nothing, so that nothing has to be undone.
                            Err(HandoverFailure::OtherUser(_)) => {}
                            Err(_) => {
                                self.steer_back();
                                leaving.push(successor.evict_successor());
                            }
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection for a handover failed");
                        tokio::time::sleep(ANSWER_TIMEOUT).await;
                    }
                },
            }
        }
        self.socket = None;
        self.listeners.clear();
        // The sockets of this process and of older ones must keep their positions in the groups.
        future::pending::<()>().await;
    }

    /// Publishes the generations of older processes, whose connections get no stateless resets from this one.
    fn publish_older(&self) {
        self.others.replace_generations(self.older.iter().map(|older| older.generation));
    }

    fn count_older(&self) {
        self.in_force.metrics.control.older_processes.set(self.older.len() as u64);
    }

    /// Removes an older process that has ended.
    fn forget_older(&mut self, generation: u8) {
        self.older.retain(|older| older.generation != generation);
        self.publish_older();
        self.count_older();
        for group in &mut self.groups {
            group.remove_process(generation);
        }
        // An address without a generation was served by older processes only.
        self.groups.retain(|group| !group.generations.is_empty());
        tracing::info!(generation, "an older process ended");
        self.steer_back();
    }

    /// Hands over to `successor`, or logs the reason of a failure.
    async fn serve_successor(&self, successor: &mut Successor) -> Result<(), HandoverFailure> {
        // The successor may have connections before this process gets READY; then it watches the other processes
        // itself.
        self.others.include_all();
        let handed_over = self.hand_over_to(successor).await;
        match &handed_over {
            Ok(()) => self.in_force.metrics.control.upgrades.increment(),
            Err(reason) => {
                self.publish_older();
                self.in_force.metrics.control.upgrades_failed.increment();
                let process = successor.successor_id();
                tracing::error!(process, %reason, "a new process failed to take over; this process continues");
            }
        }
        handed_over
    }

    async fn hand_over_to(&self, successor: &mut Successor) -> Result<(), HandoverFailure> {
        let process = successor.successor_id();
        let stream = &mut successor.stream;
        check_peer_user(stream)?;
        tracing::info!(process, "a new process is about to take over");
        self.send_offer(stream).await?;
        let version_after = receive_prepared(stream).await?;
        send_bytes(stream, &[GO]).await?;
        expect_byte(stream, READY).await?;
        // The number of a process in another PID namespace means nothing to the service manager.
        if let Some(process) = process {
            service::notify_main_process(process).await;
        }
        tracing::info!(process, version = env!("CARGO_PKG_VERSION"), version_after, "a new process has taken over");
        Ok(())
    }

    async fn send_offer(&self, stream: &mut UnixStream) -> Result<(), HandoverFailure> {
        let group = |group: &SocketGroup| OfferedGroup {
            sockets: group.sockets.len(),
            generations: group.generations.iter().copied().map(OfferedGeneration::from).collect(),
        };
        let listeners =
            |(address, all): &(SocketAddr, Vec<TcpListener>)| OfferedListeners { address: *address, count: all.len() };
        let layout = self.in_force.ids.layout().0;
        let offer = HandoverOffer {
            format: FORMAT,
            denied: self.in_force.denial.list.denied_networks(Instant::now()).iter().map(offered_network).collect(),
            connection_ids: layout.map(|ServerIdShape { server_id, nonce, encrypted }| OfferedIds {
                encrypted,
                mask: self.in_force.ids.mask,
                nonce,
                server_id,
            }),
            generation: self.generation,
            version: env!("CARGO_PKG_VERSION").into(),
            secret: self.secrets.random.map(OfferedSecret),
            replica: self.secrets.replica.0.clone(),
            groups: self.groups.iter().map(group).collect(),
            listeners: self.listeners.iter().map(listeners).collect(),
            older: self.older.iter().map(|older| older.generation).collect(),
            maintenance: self.in_force.routing.load().maintenance.export_orders(),
            http3: self.in_force.http3.operator_order(),
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::with_capacity(offer.descriptor_count());
        descriptors.extend(self.groups.iter().flat_map(|group| &group.sockets).map(AsFd::as_fd));
        descriptors.extend(self.listeners.iter().flat_map(|(_, all)| all).map(AsFd::as_fd));
        descriptors.push(self.pipe.0.as_fd());
        descriptors.extend(self.older.iter().map(|older| older.pipe.as_fd()));
        match timeout(ANSWER_TIMEOUT, net::send_descriptors(stream, &offer.encode_offer(), &descriptors)).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(HandoverFailure::TimedOut),
        }
    }

    /// Steers new connections of every group to this process again.
    fn steer_back(&self) {
        if let Err(error) = self.steer_all_groups() {
            tracing::error!(%error, "steering to this process failed: datagrams may go to processes that ended");
        }
    }
}

/// Resolves to the generation of an older process when it has ended. `None` if its pipe cannot be watched: its position
/// then stays occupied.
fn older_process_end(older: &OlderProcess) -> Option<impl Future<Output = u8> + use<>> {
    let generation = older.generation;
    let reader = older.pipe.try_clone().and_then(|pipe: OwnedFd| pipe::Receiver::from_owned_fd(pipe));
    match reader {
        Ok(mut reader) => Some(async move {
            // Older processes never write to the pipe: a read ends when they do.
            let _ = reader.read_u8().await;
            generation
        }),
        Err(error) => {
            tracing::warn!(generation, %error, "cannot watch an older process: litequic will not notice its end");
            None
        }
    }
}
