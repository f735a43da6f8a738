//! Serves an admin address or the admin socket until the process stops, with limits of connections, time and size.

use super::admin_response::answer_admin_request;
use super::body::StreamedResponse;
use super::connection_slots::{ConnectionActivity, ConnectionSlots};
use super::qlog::QlogOrder;
use super::state::{AdminState, Surface};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase},
    token_bucket::SharedTokenBucket,
};
use litequic_telemetry::Counter;
use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{sleep, timeout},
};

/// Pause after a failed accept: without file descriptors the next one would fail at once as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for which responses in progress may continue once the process stops.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Delay of a request beyond [`AdminLimits::requests`], so that a client that repeats at once costs next to nothing.
const EXCESS_REQUEST_DELAY: Duration = Duration::from_millis(50);

/// Limits for the clients of an admin address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminLimits {
    /// Connections at a time. Beyond that, each new connection closes the one that has been without a request for
    /// longest, so that a probe is always answered.
    pub connections: usize,
    /// Requests per second, and in one burst, at one address; further ones are delayed.
    pub requests: u32,
    /// Longest time for which a connection may be idle, or send the header of a request.
    pub header_timeout: Duration,
    /// Longest time in which a response is made and sent.
    pub connection_age: Duration,
    /// Additional time for a streamed response.
    pub stream_age: Duration,
    /// Bytes of a request's header; at least 8192, which hyper requires.
    pub header_bytes: usize,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            // Enough for a few kubelets, scrapers and operators, and far below any limit of file descriptors.
            connections: 64,
            // Many times the rate of such clients.
            requests: 200,
            // A longer timeout than the usual interval of probes would only keep idle connections.
            header_timeout: Duration::from_secs(5),
            // A client that reads slowly on purpose holds a slot no longer than this.
            connection_age: Duration::from_secs(60),
            // The longest qlog.
            stream_age: Duration::from_secs(*QlogOrder::QLOG_SECONDS.end()),
            header_bytes: 16 * 1024,
        }
    }
}

/// A bound admin address, or the admin socket.
#[derive(Debug)]
pub struct AdminServer {
    listener: AdminListener,
    surface: Surface,
    limits: AdminLimits,
}

impl AdminServer {
    /// Creates a server for `listener`. Must be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel's error if the listener cannot be registered.
    pub fn new(listener: std::net::TcpListener, surface: Surface, limits: AdminLimits) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        if surface == Surface::Operator && !address.ip().to_canonical().is_loopback() {
            tracing::warn!(%address, "[admin] listen is reachable from other machines, and the token is sent in plaintext: encrypt this link");
        }
        Ok(Self { listener: AdminListener::Tcp(listener), surface, limits })
    }

    /// Creates a server of the admin socket: processes of the same user and of root may request everything. Must be
    /// called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel's error if the listener cannot be registered.
    pub fn from_unix_listener(listener: std::os::unix::net::UnixListener, limits: AdminLimits) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = AdminListener::Unix(UnixListener::from_std(listener)?);
        Ok(Self { listener, surface: Surface::Local, limits })
    }

    /// Returns the TCP address, with the kernel's choice for port 0; `None` for a Unix socket.
    pub fn bound_tcp_address(&self) -> Option<SocketAddr> {
        match &self.listener {
            AdminListener::Tcp(listener) => listener.local_addr().ok(),
            AdminListener::Unix(_) => None,
        }
    }

    /// Serves until `watch` sees [`ProcessPhase::Stopping`], or `replaced` completes because another process accepts
    /// connections here. Then responses in progress may finish for a short time. Streamed ones continue until this
    /// process stops, because a qlog is about its connections.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the address and all its connections.
    pub async fn serve_admin(self, state: Arc<AdminState>, mut watch: PhaseWatch, replaced: impl Future<Output = ()>) {
        let mut replaced = pin!(replaced);
        let (replacement, is_replaced) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut places: ConnectionSlots<Id, AbortHandle> = ConnectionSlots::new(self.limits.connections);
        let pace = Arc::new(SharedTokenBucket::new(self.limits.requests));
        loop {
            // Free the slots of connections that have ended.
            while let Some(ended) = connections.try_join_next_with_id() {
                places.vacate_slot(ended.map_or_else(|error: JoinError| error.id(), |(id, ())| id));
            }
            tokio::select! {
                biased;
                () = watch.wait_for_phase(ProcessPhase::Stopping) => break,
                () = &mut replaced => {
                    replacement.send_replace(true);
                    break;
                }
                accepted = self.listener.accept_trusted(&state.metrics.user) => match accepted {
                    Ok(stream) => {
                        if let Some(silent) = places.evict_if_full() {
                            silent.abort();
                            state.metrics.connections.increment();
                        }
                        let (state, pace) = (Arc::clone(&state), Arc::clone(&pace));
                        places.occupy_slot(Instant::now(), |activity| {
                            let asked = AdminContext { surface: self.surface, state, rate_limit: pace, activity, streams: Arc::default() };
                            let (limits, watch, is_replaced) = (self.limits, watch.clone(), is_replaced.clone());
                            let served = serve_admin_connection(stream, limits, asked, watch, is_replaced);
                            let handle = connections.spawn(served);
                            (handle.id(), handle)
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the admin listener failed to accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        let mut ended = pin!(async { while connections.join_next().await.is_some() {} });
        tokio::select! {
            () = ended.as_mut() => {}
            // Dropping the set aborts connections that outlast the grace.
            () = watch.wait_for_phase(ProcessPhase::Stopping) => {
                let _ = timeout(STOP_GRACE, ended).await;
            }
        }
    }
}

#[derive(Debug)]
enum AdminListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Connection over TCP or to a Unix socket.
trait AdminStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> AdminStream for S {}

impl AdminListener {
    /// Accepts the next connection. On a Unix socket, connections of other users are closed and counted in `refused`:
    /// the file's mode, which an operator may change, is not the only protection. Cancel safe.
    async fn accept_trusted(&self, refused: &Counter) -> io::Result<Box<dyn AdminStream>> {
        let listener = match self {
            Self::Tcp(listener) => return Ok(Box::new(listener.accept().await?.0)),
            Self::Unix(listener) => listener,
        };
        loop {
            let (stream, _) = listener.accept().await?;
            match stream.peer_cred().map(|peer| peer.uid()) {
                Ok(user) if is_trusted_user(user) => return Ok(Box::new(stream)),
                Ok(user) => tracing::warn!(user, "closed a connection of another user to the admin socket"),
                Err(error) => tracing::warn!(%error, "closed a connection to the admin socket: its user is unknown"),
            }
            refused.increment();
        }
    }
}

/// Whether a process of `user` has all rights of the operator: the user of this process, and root, who has them anyway.
fn is_trusted_user(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// State that answers the requests of a connection.
#[derive(Clone)]
struct AdminContext {
    surface: Surface,
    state: Arc<AdminState>,
    rate_limit: Arc<SharedTokenBucket>,
    activity: Arc<ConnectionActivity>,
    /// Whether a response is being streamed.
    streams: Arc<AtomicBool>,
}

/// Waits until a connection reaches its age limit, which is higher if it `streams` a response.
async fn wait_for_max_age(limits: AdminLimits, streams: &AtomicBool) {
    sleep(limits.connection_age).await;
    if streams.load(Relaxed) {
        sleep(limits.stream_age).await;
    }
}

/// Serves one connection to its end. Once the process stops or is replaced, it ends soon.
async fn serve_admin_connection(
    stream: Box<dyn AdminStream>,
    limits: AdminLimits,
    asked: AdminContext,
    mut watch: PhaseWatch,
    mut is_replaced: watch::Receiver<bool>,
) {
    let (metrics, streams) = (Arc::clone(&asked.state.metrics), Arc::clone(&asked.streams));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let AdminContext { surface, state, rate_limit: pace, activity, streams } = asked.clone();
        // The body is dropped unread, and hyper then closes the connection.
        let (parts, _) = request.into_parts();
        async move {
            activity.set_answering(true, Instant::now());
            if !pace.try_take_token(Instant::now()) {
                state.metrics.requests.increment();
                sleep(EXCESS_REQUEST_DELAY).await;
            }
            let answer = answer_admin_request(&state, surface, &parts).await;
            if answer.body().size_hint().exact().is_some() {
                activity.set_answering(false, Instant::now());
                return Ok::<_, Infallible>(answer);
            }
            Ok(answer.map(|body| StreamedResponse::begin_streaming(activity, streams).attach_to(body)))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes)
            .serve_connection(TokioIo::new(stream), service)
    );
    let replaced = async {
        if is_replaced.wait_for(|is_replaced| *is_replaced).await.is_err() {
            // The address is closed, and this task will be aborted.
            pending::<()>().await;
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = wait_for_max_age(limits, &streams) => {
            metrics.age.increment();
            return;
        }
        () = watch.wait_for_phase(ProcessPhase::Stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = replaced => {
            connection.as_mut().graceful_shutdown();
            let time = if streams.load(Relaxed) { limits.stream_age } else { STOP_GRACE };
            match timeout(time, connection).await {
                Ok(served) => served,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = served {
        if error.is_timeout() || error.is_parse_too_large() {
            metrics.header.increment();
        }
        // The client is at fault; the line helps an operator to debug it.
        tracing::debug!(%error, "an admin connection failed");
    }
}

#[cfg(test)]
mod tests;
