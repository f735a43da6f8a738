//! A connection to an origin, over TCP or a Unix socket, as a byte stream for hyper's HTTP/1.1.
//!
//! The stream provides two things that hyper does not: whether a response byte has come, and that a failed write does
//! not destroy a response that is still being read.

use super::{lookup::Lookups, proxied::Proxied, resolve::Resolver};
use crate::{
    budget::TRAIN_BYTES,
    config::OriginAddress,
    descriptors::Descriptor,
    exchange::Room,
    proxy::Metrics,
    proxy::error::Error,
    suspension::{timeout, timeout_at},
    telemetry::Cause,
};
use bytes::BufMut;
use socket2::SockRef;
use std::{
    cell::{Cell, RefCell},
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    time::Instant,
};

/// Bytes that are read at once before a response's body is requested: its header, and most bodies as a whole. It is as
/// much as a stream may hold whatever the others do.
pub(super) const FIRST_READ: usize = TRAIN_BYTES;

/// The address to connect to.
#[derive(Debug)]
pub(super) enum Connector {
    Tcp(Resolver),
    Unix(PathBuf),
}

impl Connector {
    /// For `address`, whose name is resolved every `dns_interval`.
    pub(super) fn new(address: &OriginAddress, dns_interval: Duration) -> Self {
        match address {
            OriginAddress::Tcp { host, port } => Self::Tcp(Resolver::new(host, *port, dns_interval)),
            OriginAddress::Unix(path) => Self::Unix(path.clone()),
        }
    }

    /// Whether it is time to resolve the name again, while the last answer is used.
    pub(super) fn is_stale(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(resolver) => resolver.is_stale(),
        }
    }

    /// Resolves the name again.
    ///
    /// # Cancel safety
    ///
    /// The lookup goes on, and the next call has its result.
    pub(super) async fn refresh(&self) {
        if let Self::Tcp(resolver) = self {
            resolver.refresh().await;
        }
    }

    /// Whether a connection to `address` would be opened now: false once the name has other addresses.
    pub(super) fn leads_to(&self, address: Option<SocketAddr>) -> bool {
        match (self, address) {
            (Self::Tcp(resolver), Some(address)) => resolver.leads_to(address),
            _ => true,
        }
    }

    /// Connects within `limit`, lookup included, and sends a PROXY protocol header if configured. The connection has
    /// `descriptor`.
    ///
    /// # Errors
    ///
    /// One of the connection errors of [`Error`]; of several addresses, the last one's.
    pub(super) async fn connect(
        &self,
        limit: Duration,
        proxied: Option<Proxied>,
        descriptor: Descriptor,
        metrics: &Arc<Metrics>,
    ) -> Result<Stream, Error> {
        let deadline = Instant::now() + limit;
        let (socket, address) = self.open(deadline).await?;
        let mut stream = Stream::new(socket, address, descriptor, metrics);
        if let Some(proxied) = proxied {
            let said = timeout_at(deadline, stream.write_all(&proxied.header())).await;
            // A write to such a stream never fails: it waits, and its outcome shows when an answer is read.
            said.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))?;
        }
        Ok(stream)
    }

    /// Each address gets its share of the remaining time, so that one that never answers does not prevent trying the
    /// others.
    async fn open(&self, deadline: Instant) -> Result<(Socket, Option<SocketAddr>), Error> {
        let resolver = match self {
            Self::Unix(path) => {
                let connected = timeout_at(deadline, UnixStream::connect(path)).await;
                let stream = connected.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))?;
                return Ok((Socket::Unix(stream), None));
            }
            Self::Tcp(resolver) => resolver,
        };
        let addresses = timeout_at(deadline, resolver.addresses()).await;
        let addresses = addresses.map_err(|_| Error::ConnectTimeout)?.map_err(|_| Error::Resolve)?;
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut failure = Error::Resolve;
        for address in addresses {
            let share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
            left = left.saturating_sub(1);
            failure = match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // A request's head and its body's last piece are sent at once.
                    stream.set_nodelay(true).map_err(|error| classify(&error))?;
                    return Ok((Socket::Tcp(stream), Some(address)));
                }
                Ok(Err(error)) => classify(&error),
                Err(_) => Error::ConnectTimeout,
            };
        }
        Err(failure)
    }
}

/// Connects to `address` once, and closes the connection.
pub(super) async fn probe(address: &OriginAddress, limit: Duration) -> Result<(), Error> {
    let connect = async {
        match address {
            OriginAddress::Unix(path) => UnixStream::connect(path).await.map(drop),
            OriginAddress::Tcp { host, port } => Lookups::of_process().connect(host, *port).await.map(drop),
        }
    };
    timeout(limit, connect).await.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))
}

fn classify(error: &io::Error) -> Error {
    if error.raw_os_error().is_some_and(|code| [libc::EMFILE, libc::ENFILE].contains(&code)) {
        return Error::NoDescriptor;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Error::Unreachable,
        io::ErrorKind::TimedOut => Error::ConnectTimeout,
        _ => Error::Connect,
    }
}

/// The byte stream to an origin.
#[derive(Debug)]
pub(super) struct Stream {
    state: Rc<StreamState>,
}

/// What the stream has observed; shared with the code that sends requests over it.
#[derive(Debug)]
pub(super) struct StreamState {
    /// Borrowed for one call at a time.
    socket: RefCell<Socket>,
    /// The server's address, over TCP.
    pub(super) address: Option<SocketAddr>,
    /// Bytes that may be read at once, so that a response is buffered only as far as its client reads it.
    pub(super) room: Room,
    /// Bytes received, in all. Wraps.
    pub(super) received: Cell<u64>,
    write_failed: Cell<bool>,
    /// hyper no longer writes.
    fails_at_once: Cell<bool>,
    metrics: Arc<Metrics>,
    /// After the socket, which it counts.
    _descriptor: Descriptor,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads at most `room` bytes.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, room: usize) -> Poll<io::Result<()>> {
        if buf.remaining() <= room {
            return match self {
                Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
                Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            };
        }
        loop {
            let mut limited = (&mut *buf).limit(room);
            let read = match self {
                Self::Tcp(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read_buf(&mut limited)
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read_buf(&mut limited)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl Stream {
    /// That has just been connected.
    fn new(socket: Socket, address: Option<SocketAddr>, descriptor: Descriptor, metrics: &Arc<Metrics>) -> Self {
        metrics.wake.note(Cause::Origin);
        let state = StreamState {
            socket: RefCell::new(socket),
            address,
            room: Rc::new(Cell::new(FIRST_READ)),
            received: Cell::new(0),
            write_failed: Cell::new(false),
            fails_at_once: Cell::new(false),
            metrics: Arc::clone(metrics),
            _descriptor: descriptor,
        };
        Self { state: Rc::new(state) }
    }

    /// From now on a failed write returns its error.
    pub(super) fn fail_at_once(&self) {
        self.state.fails_at_once.set(true);
    }

    /// Has the connection reset when it is dropped (socket(7), SO_LINGER of no time); a Unix socket is only closed.
    pub(super) fn reset(&self) {
        if let Socket::Tcp(stream) = &*self.state.socket.borrow() {
            // An error means that it is gone already.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// What it will have observed.
    pub(super) fn state(&self) -> Rc<StreamState> {
        Rc::clone(&self.state)
    }

    /// An origin may answer and close without reading the whole request. hyper abandons the response when a write
    /// fails; so a write never fails, it waits, and reading returns the connection's outcome.
    fn written(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.state.note(&result);
        match result {
            Poll::Ready(Err(error))
                if error.kind() != io::ErrorKind::Interrupted && !self.state.fails_at_once.get() =>
            {
                tracing::debug!(%error, "the origin stopped reading the request");
                self.state.write_failed.set(true);
                Poll::Pending
            }
            other => other,
        }
    }
}

impl StreamState {
    /// A read or write that succeeds may be what the worker waited for.
    fn note<T>(&self, result: &Poll<T>) {
        if result.is_ready() {
            self.metrics.wake.note(Cause::Origin);
        }
    }

    /// Whether nothing is ready to be read, neither bytes nor the connection's end, at this moment: the runtime polls
    /// for them only between two turns of a worker, and a request sent meanwhile would be lost, or get bytes that are
    /// not its answer. One system call.
    pub(super) fn is_quiet(&self) -> bool {
        let socket = self.socket.borrow();
        let socket = match &*socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Unix(stream) => SockRef::from(stream),
        };
        let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let room = buf.remaining();
        let result = self.state.socket.borrow_mut().poll_read(cx, buf, self.state.room.get());
        self.state.note(&result);
        if let Poll::Ready(Ok(())) = result {
            let read = buf.filled().len().saturating_sub(before);
            if read == 0 && room > 0 && self.state.write_failed.get() {
                // The failed write consumed the socket's error. Without this a reset would look like an orderly end,
                // and a body that lasts until the end like a whole one.
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.state.received.set(self.state.received.get().wrapping_add(read as u64));
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.state.write_failed.get() {
            return Poll::Pending;
        }
        let result = match &mut *self.state.socket.borrow_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.written(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.write_failed.get() {
            return Poll::Pending;
        }
        let result = match &mut *self.state.socket.borrow_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.written(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets buffer nothing here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.state.socket.borrow_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::{Descriptors, Side};
    use tokio::{io::AsyncReadExt, net::TcpListener};

    fn descriptor() -> Descriptor {
        Arc::<Descriptors>::default().take(Side::Origins).unwrap()
    }

    #[tokio::test]
    async fn an_address_that_refuses_does_not_keep_the_next_from_being_tried() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = vec![closed, open.local_addr().unwrap()];
        let connector = Connector::Tcp(Resolver::with(addresses));
        for _ in 0..2 {
            connector.connect(Duration::from_secs(5), None, descriptor(), &Arc::default()).await.unwrap();
        }
        let nowhere = Connector::Tcp(Resolver::with(vec![closed, closed]));
        assert_eq!(
            nowhere.connect(Duration::from_secs(5), None, descriptor(), &Arc::default()).await.unwrap_err(),
            Error::Refused
        );
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_a_failed_lookup() {
        let connector = Connector::Tcp(Resolver::with(Vec::new()));
        assert_eq!(
            connector.connect(Duration::from_secs(5), None, descriptor(), &Arc::default()).await.unwrap_err(),
            Error::Resolve
        );
    }

    #[tokio::test]
    async fn after_a_failed_write_a_reset_does_not_look_like_an_orderly_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        peer.write_all(b"hello").await.unwrap();
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);

        let mut stream = Stream::new(Socket::Tcp(socket), None, descriptor(), &Arc::default());
        while !stream.state.write_failed.get() {
            // Once the reset is here a write never ends, and says nothing of the failure either.
            if let Ok(written) = timeout(Duration::from_millis(1), stream.write_all(b"more")).await {
                written.unwrap();
            }
        }
        let mut seen = Vec::new();
        assert_eq!(stream.read_to_end(&mut seen).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(stream.state.received.get(), seen.len() as u64);
    }
}
