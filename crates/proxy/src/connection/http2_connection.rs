//! Holds an HTTP/2 connection to an origin: its socket, and the state of its streams. Requests are streams of it
//! (`origin_stream`); one task reads and writes for all of them, once a turn of the worker
//! ([0072](../../../../docs/adr/0072-http2-to-origins.md)). `exchange::http2` has the rules of the protocol.

use super::connect::ConnectFailure;
use super::proxy_header::ProxiedClient;
use super::socket::OriginSocket;
use super::tls::TlsFailure;
use crate::answer::Error;
use crate::metrics::{ProxyMetrics, ServerMetrics};
use litequic_base::{timers::timeout_at, token_bucket::TokenBucket};
use litequic_exchange::{
    http1,
    http2::{ClientConnection, Http2ErrorCode},
};
use litequic_resources::descriptors::Descriptor;
use litequic_telemetry::{GaugeGuard, WakeCause};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// Most bytes of one read.
const MAX_READ: usize = 256 * 1024;
/// Most reads, and most writes, in one turn, so that other tasks get theirs.
const MAX_CALLS: usize = 8;
/// Most parts of one write.
const MAX_PARTS: usize = 32;
/// Requests cancelled a second, and at once, after which a connection gets no further ones: servers end a connection
/// that has had too many resets, for example nghttp2 after 1,000 and 33 a second.
const CANCELS_PER_SECOND: u32 = 20;
const CANCEL_BURST: Duration = Duration::from_secs(5);
/// Silence of the server, while a request waits for its answer, after which a connection gets no further requests.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// Interval for which the protocol's flood limits hold.
const FLOOD_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// Scratch for reads, which stays in the processor's cache.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An HTTP/2 connection to a server. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    pub(crate) state: RefCell<ClientConnection>,
    socket: RefCell<OriginSocket>,
    /// Task that reads and writes, once it has run.
    driver: RefCell<Option<Waker>>,
    /// Address of the server, over TCP.
    pub(crate) address: Option<SocketAddr>,
    /// Client whose address was sent to the server, if any.
    pub(crate) proxied: Option<ProxiedClient>,
    pub(super) is_https: bool,
    pub(crate) born: Instant,
    /// Number of requests so far.
    pub(crate) requests: Cell<u64>,
    /// Time at which the last request ended.
    idle_since: Cell<Instant>,
    /// Whether no further request is sent.
    is_retired: Cell<bool>,
    cancels: RefCell<TokenBucket>,
    interval_ends: Cell<Instant>,
    last_received: Cell<Instant>,
    pub(super) failure: RefCell<Option<TlsFailure>>,
    pub(super) metrics: Arc<ProxyMetrics>,
    _open: GaugeGuard<ProxyMetrics>,
    _counted: GaugeGuard<ServerMetrics>,
    /// Dropped after the counted socket.
    _descriptor: Descriptor,
}

impl Http2Connection {
    /// Begins HTTP/2 on `socket`, and waits for the server's SETTINGS, so that its limit of streams is known.
    ///
    /// # Errors
    ///
    /// [`ConnectFailure`], with the fault of a server that does not speak HTTP/2.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn open(
        socket: OriginSocket,
        address: Option<SocketAddr>,
        proxied: Option<ProxiedClient>,
        descriptor: Descriptor,
        counted: GaugeGuard<ServerMetrics>,
        metrics: &Arc<ProxyMetrics>,
        deadline: Instant,
    ) -> Result<Rc<Self>, ConnectFailure> {
        let now = Instant::now();
        metrics.origin_connections.increment();
        let connection = Rc::new(Self {
            state: RefCell::new(ClientConnection::new(http1::RESPONSE_LIMITS)),
            is_https: socket.is_tls_socket(),
            socket: RefCell::new(socket),
            driver: RefCell::default(),
            address,
            proxied,
            born: now,
            requests: Cell::new(0),
            idle_since: Cell::new(now),
            is_retired: Cell::new(false),
            cancels: RefCell::new(TokenBucket::with_burst(CANCELS_PER_SECOND, CANCEL_BURST)),
            interval_ends: Cell::new(now + FLOOD_INTERVAL),
            last_received: Cell::new(now),
            failure: RefCell::default(),
            metrics: Arc::clone(metrics),
            _open: GaugeGuard::new(metrics, |metrics| &metrics.origin_connections_open),
            _counted: counted,
            _descriptor: descriptor,
        });
        let opened = poll_fn(|cx| match connection.poll_drive(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending if connection.state.borrow().has_settings() => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        });
        if timeout_at(deadline, opened).await.map_err(|_| Error::ConnectTimeout)? {
            if connection.accepts_requests() {
                return Ok(connection);
            }
            let reason = Some("the server accepts no streams on a new connection".to_owned());
            return Err(ConnectFailure { error: Error::Connect, reason });
        }
        if let Some(failure) = connection.failure.take() {
            return Err(ConnectFailure { error: failure.error, reason: Some(failure.to_string()) });
        }
        let reason = connection.state.borrow().fault.map(|fault| fault.to_string());
        Err(ConnectFailure { error: Error::Connect, reason })
    }

    /// Whether another request may be sent.
    pub(crate) fn accepts_requests(&self) -> bool {
        !self.is_retired.get() && self.state.borrow().accepts_streams()
    }

    /// Time since which the connection has no request; `None` while it has one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.state.borrow().is_idle().then(|| self.idle_since.get())
    }

    /// Sends no further request: the connection is closed once those in flight have ended.
    pub(crate) fn retire(&self) {
        if !self.is_retired.replace(true) {
            self.wake_driver();
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get() || self.state.borrow().go_away.is_some()
    }

    /// Wakes the task that writes.
    pub(super) fn wake_driver(&self) {
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Removes a stream, and cancels a request that is not complete.
    pub(super) fn end_stream(&self, id: u32) {
        let mut state = self.state.borrow_mut();
        let is_cancelled = state.remove_stream(id);
        let is_idle = state.is_idle();
        drop(state);
        self.metrics.origin_streams_open.decrement();
        if is_idle {
            self.idle_since.set(Instant::now());
        }
        if is_cancelled {
            self.count_cancel();
        }
        if is_idle || is_cancelled {
            self.wake_driver();
        }
    }

    /// Ends a request that got no answer since `began`. If nothing else came for [`MAX_SILENCE`], the server or the
    /// path to it is gone, and further requests use another connection.
    pub(super) fn on_unanswered(&self, began: Instant) {
        let is_silent = self.last_received.get() <= began && began.elapsed() >= MAX_SILENCE;
        if is_silent && !self.is_retired.get() {
            tracing::warn!(address = ?self.address, "an HTTP/2 connection to the origin is silent: leaving it");
            self.retire();
        }
    }

    /// Counts a cancelled request.
    pub(super) fn count_cancel(&self) {
        self.metrics.origin_streams_cancelled.increment();
        if !self.cancels.borrow_mut().take_tokens(1, Instant::now().into_std()) && !self.is_retired.get() {
            self.metrics.limit_origin_cancels.increment();
            self.retire();
        }
    }

    /// Reads and writes what is possible. Ready once the connection has ended, or has ended all its requests after
    /// [`Self::retire`] or GOAWAY.
    pub(crate) fn poll_drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.driver.replace(Some(cx.waker().clone()));
        let is_over = match self.poll_read_all(cx) {
            Poll::Ready(ended) => {
                if let Err(error) = &ended {
                    tracing::debug!(%error, "a connection to the origin ended");
                    TlsFailure::record_failure(error, &self.failure, &self.metrics);
                }
                true
            }
            Poll::Pending => false,
        };
        let closes = !is_over && self.is_retired() && self.state.borrow().is_idle();
        if closes {
            self.state.borrow_mut().begin_close();
        }
        // A server that was at fault, or is left, gets GOAWAY if the socket accepts it at once.
        let written = self.poll_write_all(cx);
        if let Poll::Ready(Err(error)) = &written {
            tracing::debug!(%error, "the origin stopped reading");
        }
        if !is_over && !closes {
            // What the server has sent is read even if it reads no more.
            return Poll::Pending;
        }
        self.is_retired.set(true);
        self.state.borrow_mut().on_closed();
        Poll::Ready(())
    }

    /// Reads all that has come. Ready at the connection's end.
    fn poll_read_all(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        READ.with_borrow_mut(|scratch| {
            scratch.resize(MAX_READ, 0);
            for _ in 0..MAX_CALLS {
                let mut buf = ReadBuf::new(scratch);
                let mut socket = self.socket.borrow_mut();
                let read = Pin::new(&mut *socket).poll_read(cx, &mut buf);
                if !socket.is_tls_socket() && read.is_ready() {
                    self.metrics.syscalls_origin_read.increment();
                }
                drop(socket);
                ready!(read)?;
                self.metrics.wake.note_cause(WakeCause::Origin);
                if buf.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                let now = Instant::now();
                self.last_received.set(now);
                let mut state = self.state.borrow_mut();
                if now >= self.interval_ends.get() {
                    self.interval_ends.set(now + FLOOD_INTERVAL);
                    state.begin_interval();
                }
                let before = state.go_away;
                let received = state.receive(buf.filled());
                let go_away = state.go_away.filter(|_| before.is_none());
                drop(state);
                if let Some(go_away) = go_away {
                    self.metrics.origin_goaways.increment();
                    if go_away.code != Http2ErrorCode::NoError {
                        tracing::warn!(address = ?self.address, code = %go_away.code, "the origin ends its connection");
                    }
                }
                if let Err(fault) = received {
                    self.metrics.origin_errors.increment();
                    tracing::warn!(address = ?self.address, error = %fault, "invalid HTTP/2 from the origin");
                    return Poll::Ready(Ok(()));
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// Writes all that is queued, as far as the socket accepts it.
    fn poll_write_all(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.socket.borrow_mut();
        let mut state = self.state.borrow_mut();
        for _ in 0..MAX_CALLS {
            if state.output_length() == 0 {
                return Pin::new(&mut *socket).poll_flush(cx);
            }
            let mut parts = [IoSlice::new(&[]); MAX_PARTS];
            let count = state.fill_output(&mut parts);
            let written = Pin::new(&mut *socket).poll_write_vectored(cx, parts.get(..count).unwrap_or_default());
            if !socket.is_tls_socket() && written.is_ready() {
                self.metrics.syscalls_origin_write.increment();
            }
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => state.on_output_written(written),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
