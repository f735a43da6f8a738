//! A connection to an origin, over TCP or a Unix socket, as a byte stream for hyper's HTTP/1.1.
//!
//! The stream provides two things that hyper does not: whether a response byte has come, and that a failed write does
//! not destroy a response that is still being read.

use super::{
    addresses::{Blame, Failures, order},
    lookup::Lookups,
    proxied::Proxied,
    race::{self, Won},
    resolve::Resolver,
};
use crate::{
    budget::TRAIN_BYTES,
    config::OriginAddress,
    descriptors::Descriptor,
    exchange::BodyCapacity,
    proxy::balance::{EjectionCause as Failure, Rule},
    proxy::error::Error,
    proxy::{Metrics, ServerMetrics},
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
    Tcp(Box<Resolver>),
    Unix(PathBuf),
}

/// What opening a connection needs.
pub(super) struct Opening<'a, S> {
    /// The time for all of it.
    pub(super) limit: Duration,
    /// The client to name in a PROXY protocol header.
    pub(super) proxied: Option<Proxied>,
    /// The connection's descriptor.
    pub(super) descriptor: Descriptor,
    /// Another descriptor, if one is free, for an attempt beside another one.
    pub(super) spare: S,
    pub(super) counters: &'a ServerMetrics,
    pub(super) metrics: &'a Arc<Metrics>,
}

impl Connector {
    /// For `address`, whose name is resolved every `dns_interval`.
    pub(super) fn new(address: &OriginAddress, dns_interval: Duration) -> Self {
        match address {
            OriginAddress::Tcp { host, port } => Self::Tcp(Box::new(Resolver::new(host, *port, dns_interval))),
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

    /// Whether the server has several addresses.
    pub(super) fn has_several_addresses(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp(resolver) => resolver.has_several(),
        }
    }

    /// A request over a connection to `address`, one of several, succeeded.
    pub(super) fn went_well(&self, address: SocketAddr) {
        if let Self::Tcp(resolver) = self {
            resolver.went_well(address);
        }
    }

    /// A request over a connection to `address`, one of several, failed by `cause`, as the connection broke.
    pub(super) fn broke(&self, address: SocketAddr, rule: Rule, cause: Failure) -> Blame {
        match self {
            Self::Unix(_) => Blame::Server,
            Self::Tcp(resolver) => resolver.broke(address, rule, cause),
        }
    }

    /// Connects within the limit of `opening`, lookup included, and sends a PROXY protocol header if configured.
    ///
    /// # Errors
    ///
    /// One of the connection errors of [`Error`]; of several addresses, the last one's.
    pub(super) async fn connect(&self, opening: Opening<'_, impl Fn() -> Option<Descriptor>>) -> Result<Stream, Error> {
        let Opening { limit, proxied, descriptor, spare, counters, metrics } = opening;
        let deadline = Instant::now() + limit;
        let (socket, address, descriptor) = self.open(deadline, descriptor, spare, counters).await?;
        let mut stream = Stream::new(socket, address, descriptor, metrics);
        if let Some(proxied) = proxied {
            let said = timeout_at(deadline, stream.write_all(&proxied.header())).await;
            // A write to such a stream never fails: it waits, and its outcome shows when an answer is read.
            said.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))?;
        }
        Ok(stream)
    }

    /// The connection itself, its address, and the descriptor that it has.
    async fn open(
        &self,
        deadline: Instant,
        descriptor: Descriptor,
        spare: impl Fn() -> Option<Descriptor>,
        counters: &ServerMetrics,
    ) -> Result<(Socket, Option<SocketAddr>, Descriptor), Error> {
        let resolver = match self {
            Self::Unix(path) => {
                let connected = timeout_at(deadline, UnixStream::connect(path)).await;
                let stream = connected.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))?;
                return Ok((Socket::Unix(stream), None, descriptor));
            }
            Self::Tcp(resolver) => resolver,
        };
        let addresses = timeout_at(deadline, resolver.addresses()).await;
        let addresses = addresses.map_err(|_| Error::ConnectTimeout)?.map_err(|_| Error::Resolve)?;
        if let [address] = *addresses {
            let connected = timeout_at(deadline, attempt(address)).await.map_err(|_| Error::ConnectTimeout)?;
            let stream = connected.map_err(|error| classify(&error))?;
            return Ok((Socket::Tcp(stream), Some(address), descriptor));
        }
        let failed = |address, error: &io::Error| {
            if is_addresses(error) {
                counters.address_failures.increment();
                resolver.unreachable(address, error);
            }
        };
        // Boxed, so that a request's future is not larger because of it.
        let race = Box::pin(race::race(&addresses, deadline, descriptor, spare, attempt, failed));
        let Won { stream, address, permit } = race.await.map_err(|error| classify(&error))?;
        resolver.reached(address);
        Ok((Socket::Tcp(stream), Some(address), permit))
    }
}

/// The one way from an address to a stream: TLS with the origin would be part of it.
async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A request's head and its body's last piece are sent at once.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to `address` once, and closes the connection.
pub(super) async fn probe(address: &OriginAddress, limit: Duration) -> Result<(), Error> {
    let connect = async {
        match address {
            OriginAddress::Unix(path) => UnixStream::connect(path).await.map(drop),
            OriginAddress::Tcp { host, port } => reach(host, *port, limit, None).await.map(drop),
        }
    };
    timeout(limit, connect).await.map_err(|_| Error::ConnectTimeout)?.map_err(|error| classify(&error))
}

/// Connects to `host`, a name or an address without brackets, outside of any pool: for a health check or a probe.
/// Addresses that failed are tried last; one that fails now is noted for the time `memory`, if there is one.
///
/// # Errors
///
/// The lookup's, or that of the last address.
///
/// # Cancel safety
///
/// The lookup goes on, the connection is lost.
pub(super) async fn reach(host: &str, port: u16, limit: Duration, memory: Option<Duration>) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let addresses = Lookups::of_process().addresses(host, port).await?;
    if let [address] = *addresses {
        return attempt(address).await;
    }
    let failures = Failures::of_process();
    let now = Instant::now();
    let addresses = order(&addresses, 0, |address| failures.has(address, now));
    let failed = |address, error: &io::Error| {
        if let Some(memory) = memory.filter(|_| is_addresses(error)) {
            failures.note(address, memory, Instant::now());
        }
    };
    // Two attempts at a time: their descriptors are in the fixed part of the process.
    let second = Arc::new(());
    let another = || (Arc::strong_count(&second) == 1).then(|| Arc::clone(&second));
    let won = race::race(&addresses, deadline, Arc::new(()), another, attempt, failed).await?;
    failures.forget(won.address);
    Ok(won.stream)
}

/// Whether `error` of an attempt tells something about its address.
fn is_addresses(error: &io::Error) -> bool {
    classify(error) != Error::NoDescriptor
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
    pub(super) room: BodyCapacity,
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
    /// A stream that has just been connected.
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
        if result.is_ready() {
            self.state.metrics.syscalls_origin_write.increment();
        }
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
        self.metrics.syscalls_origin_look.increment();
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
            self.state.metrics.syscalls_origin_read.increment();
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
    use super::{super::lookup, *};
    use crate::descriptors::{Descriptors, Side};
    use tokio::{io::AsyncReadExt, net::TcpListener};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn descriptor() -> Descriptor {
        Arc::<Descriptors>::default().take(Side::Origins).unwrap()
    }

    /// Connects with the descriptors `of` the process.
    async fn connect(connector: &Connector, of: &Arc<Descriptors>, counters: &ServerMetrics) -> Result<Stream, Error> {
        let opening = Opening {
            limit: PATIENCE,
            proxied: None,
            descriptor: of.take(Side::Origins).unwrap(),
            spare: || of.take(Side::Origins),
            counters,
            metrics: &Arc::default(),
        };
        connector.connect(opening).await
    }

    /// A listener at `address` whose backlog is full: the kernel drops each SYN.
    struct Deaf {
        address: SocketAddr,
        _socket: socket2::Socket,
        _fills_it: std::net::TcpStream,
    }

    impl Deaf {
        fn new(ip: [u8; 4]) -> Self {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
            socket.listen(0).unwrap();
            let address = socket.local_addr().unwrap().as_socket().unwrap();
            Self { address, _fills_it: std::net::TcpStream::connect(address).unwrap(), _socket: socket }
        }
    }

    async fn closed(address: &str) -> SocketAddr {
        TcpListener::bind(address).await.unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_refuses_does_not_keep_the_next_from_being_tried_and_is_tried_last() {
        let (closed, counters) = (closed("127.0.0.1:0").await, ServerMetrics::default());
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connector = Connector::Tcp(Box::new(Resolver::with(vec![closed, open.local_addr().unwrap()])));
        for _ in 0..4 {
            connect(&connector, &Arc::default(), &counters).await.unwrap();
        }
        assert_eq!(counters.address_failures.get(), 1);
        let nowhere = Connector::Tcp(Box::new(Resolver::with(vec![closed, closed])));
        assert_eq!(connect(&nowhere, &Arc::default(), &counters).await.unwrap_err(), Error::Refused);
    }

    #[tokio::test]
    async fn ipv6_and_ipv4_are_tried_in_turn_whichever_does_not_work() {
        for (closed_at, open_at) in [("[::1]:0", "127.0.0.1:0"), ("127.0.0.1:0", "[::1]:0")] {
            let Ok(open) = TcpListener::bind(open_at).await else { continue };
            let open = open.local_addr().map(|address| (address, open)).unwrap();
            // Of one family three, and the other one's turn comes second.
            let mut addresses = vec![closed(closed_at).await, closed(closed_at).await, closed(closed_at).await];
            addresses.push(open.0);
            let (connector, counters) = (Connector::Tcp(Box::new(Resolver::with(addresses))), ServerMetrics::default());
            let stream = connect(&connector, &Arc::default(), &counters).await.unwrap();
            assert_eq!(stream.state.address, Some(open.0));
            assert_eq!(counters.address_failures.get(), 1, "{open_at}");
        }
    }

    #[tokio::test]
    async fn a_black_hole_holds_a_second_descriptor_for_as_long_as_the_race_and_delays_one_connection() {
        let (deaf, counters) = (Deaf::new([127, 0, 0, 1]), ServerMetrics::default());
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connector = Connector::Tcp(Box::new(Resolver::with(vec![deaf.address, open.local_addr().unwrap()])));
        let descriptors = Arc::<Descriptors>::default();
        for _ in 0..4 {
            let stream = connect(&connector, &descriptors, &counters).await.unwrap();
            assert_eq!(stream.state.address, Some(open.local_addr().unwrap()));
            assert_eq!(descriptors.taken().origins, 1);
            drop(stream);
        }
        assert_eq!(counters.address_failures.get(), 1, "three connections of four begin with the address that works");
        assert_eq!(descriptors.taken().origins, 0);
        let other = Deaf::new([127, 0, 0, 1]);
        let connector = Connector::Tcp(Box::new(Resolver::with(vec![deaf.address, other.address])));
        let mut connecting = std::pin::pin!(connect(&connector, &descriptors, &counters));
        while descriptors.taken().origins < 2 {
            assert!(timeout(Duration::from_millis(1), connecting.as_mut()).await.is_err());
        }
        assert_eq!(counters.address_failures.get(), 1, "both still run");
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_the_name_lost_meanwhile_is_used_once() {
        let deaf = Deaf::new([127, 0, 0, 1]);
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = open.local_addr().unwrap();
        let (connector, counters) =
            (Connector::Tcp(Box::new(Resolver::with(vec![deaf.address, address]))), ServerMetrics::default());
        let descriptors = Arc::default();
        let mut connecting = std::pin::pin!(connect(&connector, &descriptors, &counters));
        assert!(timeout(Duration::from_millis(1), connecting.as_mut()).await.is_err());
        let Connector::Tcp(resolver) = &connector else { panic!() };
        resolver.resolved(vec!["192.0.2.1:80".parse().unwrap()]);
        let stream = connecting.await.unwrap();
        assert_eq!(stream.state.address, Some(address));
        assert!(!connector.leads_to(stream.state.address));
    }

    #[tokio::test]
    async fn health_checks_and_probes_try_the_next_address_too() {
        const NAME: &str = "reach.addresses.test";
        let (deaf, open) = loop {
            let deaf = Deaf::new([127, 0, 0, 2]);
            // At the same port.
            if let Ok(open) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], deaf.address.port()))).await {
                break (deaf, open);
            }
        };
        let port = deaf.address.port();
        lookup::tests::resolve(NAME, &[deaf.address.ip(), open.local_addr().unwrap().ip()]);
        let target = OriginAddress::Tcp { host: NAME.into(), port };
        timeout(PATIENCE, probe(&target, PATIENCE)).await.unwrap().unwrap();
        assert!(!Failures::of_process().has(deaf.address, Instant::now()), "a probe has no memory");
        for _ in 0..3 {
            let stream = timeout(PATIENCE, reach(NAME, port, PATIENCE, Some(PATIENCE))).await.unwrap().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), open.local_addr().unwrap());
            assert!(Failures::of_process().has(deaf.address, Instant::now()));
        }
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_a_failed_lookup() {
        let (connector, counters) = (Connector::Tcp(Box::new(Resolver::with(Vec::new()))), ServerMetrics::default());
        assert_eq!(connect(&connector, &Arc::default(), &counters).await.unwrap_err(), Error::Resolve);
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
