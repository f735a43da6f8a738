//! Opens connections to an origin, over TCP, TLS or a Unix socket.

use super::proxy_header::{ProxiedClient, local_header};
use super::socket::OriginSocket;
use super::tls::{OriginTlsConfig, TlsFailure, TlsToOrigin};
use crate::address::{PROCESS_FAILURES, PROCESS_LOOKUPS, RaceWinner, Resolver, order_addresses, race_addresses};
use crate::answer::Error;
use crate::metrics::{ProxyMetrics, ServerMetrics};
use litequic_base::{
    tcp_keepalive::{enable_keepalive, limit_unacknowledged_time},
    timers::{timeout, timeout_at},
};
use litequic_config::OriginAddress;
use litequic_resources::descriptors::Descriptor;
use socket2::SockRef;
use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, UnixStream},
    time::Instant,
};

/// Connects to the server at one address.
#[derive(Debug)]
pub(crate) enum Connector {
    Tcp(Box<Resolver>),
    Tls(Box<Resolver>, Box<OriginTlsConfig>),
    Unix(PathBuf),
}

/// Failure to open a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .reason.clone().unwrap_or_else(|| error.to_string()))]
pub(crate) struct ConnectFailure {
    pub(crate) error: Error,
    /// TLS failure, for the operator.
    pub(crate) reason: Option<String>,
}

impl From<Error> for ConnectFailure {
    fn from(error: Error) -> Self {
        Self { error, reason: None }
    }
}

impl From<io::Error> for ConnectFailure {
    fn from(error: io::Error) -> Self {
        Self { reason: TlsFailure::in_error(&error).map(ToString::to_string), ..classify_connect_error(&error).into() }
    }
}

/// Options and resources for opening a connection.
pub(crate) struct ConnectOptions<'a, S> {
    /// Longest time for lookup, connection and TLS together.
    pub(crate) limit: Duration,
    /// Client to name in a PROXY protocol header.
    pub(crate) proxied: Option<ProxiedClient>,
    pub(crate) descriptor: Descriptor,
    /// Returns a descriptor for an attempt beside another one, if one is free.
    pub(crate) spare: S,
    pub(crate) counters: &'a ServerMetrics,
    pub(crate) metrics: &'a Arc<ProxyMetrics>,
}

impl Connector {
    /// A connector to `address`, whose name is resolved every `dns_interval`. `tls` is used for https.
    pub(crate) fn new(address: &OriginAddress, dns_interval: Duration, tls: Option<&TlsToOrigin>) -> Self {
        let resolver = |host, port| Box::new(Resolver::new(host, port, dns_interval));
        match address {
            OriginAddress::Tcp { host, port } => Self::Tcp(resolver(host, *port)),
            OriginAddress::Https { host, port } => Self::Tls(resolver(host, *port), Box::new(tls_for_host(host, tls))),
            OriginAddress::Unix(path) => Self::Unix(path.clone()),
        }
    }

    /// The resolver of the server's name; `None` for a Unix socket.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        match self {
            Self::Tcp(resolver) | Self::Tls(resolver, _) => Some(resolver),
            Self::Unix(_) => None,
        }
    }

    /// Whether a new connection could be to `address`: false once the name has other addresses.
    pub(crate) fn is_current_address(&self, address: Option<SocketAddr>) -> bool {
        match (self.resolver(), address) {
            (Some(resolver), Some(address)) => resolver.has_address(address),
            _ => true,
        }
    }

    /// Number of addresses of the server's name, as it was last resolved.
    pub(crate) fn address_count(&self) -> usize {
        self.resolver().map_or(1, Resolver::address_count)
    }

    /// Connects within the limit of `opening`, with lookup and TLS, and sends a PROXY protocol header if configured.
    /// Returns the socket with its address and its descriptor.
    ///
    /// # Errors
    ///
    /// One of the connection errors of [`Error`]; of several addresses, the last one's.
    pub(crate) async fn open_socket(
        &self,
        opening: ConnectOptions<'_, impl Fn() -> Option<Descriptor>>,
    ) -> Result<(OriginSocket, Option<SocketAddr>, Descriptor), ConnectFailure> {
        let ConnectOptions { limit, proxied, descriptor, spare, counters, metrics } = opening;
        let deadline = Instant::now() + limit;
        let header = proxied.map(ProxiedClient::encode_proxied);
        let (secure, header) = match self {
            // The header is sent in plaintext, before the ClientHello.
            Self::Tls(_, secure) => (Some((&**secure, header.as_deref())), None),
            Self::Tcp(_) | Self::Unix(_) => (None, header.as_deref()),
        };
        let with = ConnectAttempt { secure, deadline, metrics: Some(metrics) };
        let (mut socket, address, descriptor) = self.connect_socket(&with, descriptor, spare, counters).await?;
        if let Some(header) = header {
            metrics.syscalls_origin_write.increment();
            let written = timeout_at(deadline, socket.write_all(header)).await;
            written.map_err(|_| Error::ConnectTimeout)??;
        }
        Ok((socket, address, descriptor))
    }

    /// Opens the socket, and returns it with its address and its descriptor.
    async fn connect_socket(
        &self,
        with: &ConnectAttempt<'_>,
        descriptor: Descriptor,
        spare: impl Fn() -> Option<Descriptor>,
        counters: &ServerMetrics,
    ) -> Result<(OriginSocket, Option<SocketAddr>, Descriptor), ConnectFailure> {
        let deadline = with.deadline;
        let resolver = match self {
            Self::Unix(path) => {
                let connected = timeout_at(deadline, UnixStream::connect(path)).await;
                return Ok((OriginSocket::Unix(connected.map_err(|_| Error::ConnectTimeout)??), None, descriptor));
            }
            Self::Tcp(resolver) | Self::Tls(resolver, _) => resolver,
        };
        let addresses = timeout_at(deadline, resolver.ordered_addresses()).await;
        let mut addresses = addresses.map_err(|_| Error::ConnectTimeout)?.map_err(|_| Error::Resolve)?;
        if let [address] = *addresses {
            let connected = timeout_at(deadline, with.connect_address(address)).await;
            let error = match connected {
                Ok(Ok(connected)) => return Ok((connected, Some(address), descriptor)),
                Ok(Err(error)) => error,
                Err(_) => {
                    resolver.expire_answer();
                    return Err(Error::ConnectTimeout.into());
                }
            };
            if !is_address_failure(&error) {
                return Err(error.into());
            }
            // The name may have moved since it was resolved.
            match timeout_at(deadline, resolver.addresses_beside(&[address])).await {
                Ok(Some(others)) => addresses = others,
                _ => return Err(error.into()),
            }
        }
        let failed = |address, error: &io::Error| {
            if is_address_failure(error) {
                counters.address_failures.increment();
                resolver.on_unreachable(address, error);
            }
        };
        // Boxed, so that a request's future is not larger because of it.
        let attempt = |address| with.connect_address(address);
        let race = Box::pin(race_addresses(&addresses, deadline, descriptor, &spare, attempt, failed));
        let RaceWinner { stream, address, permit } = match race.await {
            Ok(won) => won,
            Err(error) => {
                let others = timeout_at(deadline, resolver.addresses_beside(&addresses)).await;
                let (Ok(Some(others)), Some(descriptor)) = (others, spare()) else { return Err(error.into()) };
                Box::pin(race_addresses(&others, deadline, descriptor, &spare, attempt, failed)).await?
            }
        };
        resolver.failures.clear_failure(address);
        Ok((stream, Some(address), permit))
    }
}

/// TLS configuration for `host`; a checked configuration with https always has `tls`.
fn tls_for_host(host: &str, tls: Option<&TlsToOrigin>) -> OriginTlsConfig {
    tls.map_or_else(OriginTlsConfig::unusable, |tls| tls.for_host(host))
}

/// Parameters of one attempt to connect to an address.
struct ConnectAttempt<'a> {
    /// TLS configuration, and the bytes that are sent before the handshake.
    secure: Option<(&'a OriginTlsConfig, Option<&'a [u8]>)>,
    deadline: Instant,
    metrics: Option<&'a Arc<ProxyMetrics>>,
}

impl ConnectAttempt<'_> {
    async fn connect_address(&self, address: SocketAddr) -> io::Result<OriginSocket> {
        let stream = TcpStream::connect(address).await?;
        // A request's head and the last piece of its body are sent at once.
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        enable_keepalive(&socket)?;
        limit_unacknowledged_time(&socket)?;
        match self.secure {
            None => Ok(OriginSocket::Tcp(stream)),
            // Boxed, so that a request's future is not larger because of it.
            Some((secure, header)) => {
                let shaken = Box::pin(secure.connect_tls(stream, header, self.deadline, self.metrics)).await;
                Ok(OriginSocket::Tls(shaken?))
            }
        }
    }
}

/// A server that a health check or a probe connects to, outside of any pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeTarget<'a> {
    pub(crate) address: &'a OriginAddress,
    pub(crate) tls: Option<&'a TlsToOrigin>,
    /// Whether the server gets a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
}

/// Connects to `target` once, with TLS for https, and closes the connection.
pub(crate) async fn probe_target(target: ProbeTarget<'_>, limit: Duration) -> Result<(), ConnectFailure> {
    let reached = timeout(limit, reach_server(target, limit, None)).await;
    reached.map_err(|_| Error::ConnectTimeout)?.map(drop).map_err(ConnectFailure::from)
}

/// Connects to `target`, with a PROXY protocol header and TLS if configured. Addresses that have failed are tried last;
/// one that fails now is marked for the time `memory`, if given.
///
/// # Errors
///
/// The error of the lookup, or of the last address.
///
/// # Cancel safety
///
/// The lookup goes on, the connection is lost.
pub(crate) async fn reach_server(
    target: ProbeTarget<'_>,
    limit: Duration,
    memory: Option<Duration>,
) -> io::Result<OriginSocket> {
    let deadline = Instant::now() + limit;
    let header = target.proxy_protocol.then(local_header);
    let (host, port) = match target.address {
        OriginAddress::Tcp { host, port } | OriginAddress::Https { host, port } => (host, *port),
        OriginAddress::Unix(path) => {
            let mut socket = UnixStream::connect(path).await?;
            socket.write_all(header.as_deref().unwrap_or_default()).await?;
            return Ok(OriginSocket::Unix(socket));
        }
    };
    let secure = target.address.is_https().then(|| tls_for_host(host, target.tls));
    let with =
        ConnectAttempt { secure: secure.as_ref().map(|secure| (secure, header.as_deref())), deadline, metrics: None };
    let addresses = PROCESS_LOOKUPS.clone().resolve_host(host, port).await?;
    let mut socket = if let [address] = *addresses {
        with.connect_address(address).await?
    } else {
        let failures = PROCESS_FAILURES.clone();
        let now = Instant::now();
        let addresses = order_addresses(&addresses, 0, |address| failures.is_failed(address, now));
        let failed = |address, error: &io::Error| {
            if let Some(memory) = memory.filter(|_| is_address_failure(error)) {
                failures.mark_failed(address, memory, Instant::now());
            }
        };
        // Two attempts run at a time: their descriptors are in the fixed part of the process.
        let second = Arc::new(());
        let another = || (Arc::strong_count(&second) == 1).then(|| Arc::clone(&second));
        let attempt = |address| with.connect_address(address);
        let won = race_addresses(&addresses, deadline, Arc::new(()), another, attempt, failed).await?;
        failures.clear_failure(won.address);
        won.stream
    };
    if let (OriginSocket::Tcp(stream), Some(header)) = (&mut socket, header) {
        stream.write_all(&header).await?;
    }
    Ok(socket)
}

/// Whether `error` of an attempt is a failure of the address.
fn is_address_failure(error: &io::Error) -> bool {
    classify_connect_error(error) != Error::NoDescriptor
}

fn classify_connect_error(error: &io::Error) -> Error {
    if let Some(failure) = TlsFailure::in_error(error) {
        return failure.error;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::resolve_for_tests;
    use crate::connection::OriginConnection;
    use litequic_resources::descriptors::{Descriptors, ProxySide};
    use tokio::net::TcpListener;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// Connects with the descriptors `of` the process.
    async fn connect(
        connector: &Connector,
        of: &Arc<Descriptors>,
        counters: &ServerMetrics,
    ) -> Result<OriginConnection, Error> {
        let metrics = Arc::default();
        let opening = ConnectOptions {
            limit: TEST_TIMEOUT,
            proxied: None,
            descriptor: of.take_descriptor(ProxySide::Origins).unwrap(),
            spare: || of.take_descriptor(ProxySide::Origins),
            counters,
            metrics: &metrics,
        };
        let opened = connector.open_socket(opening).await.map_err(|unopened| unopened.error);
        opened.map(|(socket, address, descriptor)| OriginConnection::new(socket, address, descriptor, &metrics))
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
    async fn after_a_refusal_the_next_address_is_tried_and_the_refusing_last() {
        let (closed, counters) = (closed("127.0.0.1:0").await, ServerMetrics::default());
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connector = Connector::Tcp(Box::new(Resolver::with_addresses(vec![closed, open.local_addr().unwrap()])));
        for _ in 0..4 {
            connect(&connector, &Arc::default(), &counters).await.unwrap();
        }
        assert_eq!(counters.address_failures.get(), 1);
        let nowhere = Connector::Tcp(Box::new(Resolver::with_addresses(vec![closed, closed])));
        assert_eq!(connect(&nowhere, &Arc::default(), &counters).await.unwrap_err(), Error::Refused);
    }

    #[tokio::test]
    async fn ipv6_and_ipv4_are_tried_in_turn_whichever_does_not_work() {
        for (closed_at, open_at) in [("[::1]:0", "127.0.0.1:0"), ("127.0.0.1:0", "[::1]:0")] {
            let Ok(open) = TcpListener::bind(open_at).await else { continue };
            let open = open.local_addr().map(|address| (address, open)).unwrap();
            // One family has three addresses, and the other family's turn comes second.
            let mut addresses = vec![closed(closed_at).await, closed(closed_at).await, closed(closed_at).await];
            addresses.push(open.0);
            let (connector, counters) =
                (Connector::Tcp(Box::new(Resolver::with_addresses(addresses))), ServerMetrics::default());
            let stream = connect(&connector, &Arc::default(), &counters).await.unwrap();
            assert_eq!(stream.address, Some(open.0));
            assert_eq!(counters.address_failures.get(), 1, "{open_at}");
        }
    }

    #[tokio::test]
    async fn a_black_hole_delays_one_connection_and_holds_a_descriptor_meanwhile() {
        let (deaf, counters) = (Deaf::new([127, 0, 0, 1]), ServerMetrics::default());
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connector =
            Connector::Tcp(Box::new(Resolver::with_addresses(vec![deaf.address, open.local_addr().unwrap()])));
        let descriptors = Arc::<Descriptors>::default();
        for _ in 0..4 {
            let stream = connect(&connector, &descriptors, &counters).await.unwrap();
            assert_eq!(stream.address, Some(open.local_addr().unwrap()));
            assert_eq!(descriptors.taken_descriptors().origins, 1);
            drop(stream);
        }
        assert_eq!(counters.address_failures.get(), 1, "three connections of four begin with the address that works");
        assert_eq!(descriptors.taken_descriptors().origins, 0);
        let other = Deaf::new([127, 0, 0, 1]);
        let connector = Connector::Tcp(Box::new(Resolver::with_addresses(vec![deaf.address, other.address])));
        let mut connecting = std::pin::pin!(connect(&connector, &descriptors, &counters));
        while descriptors.taken_descriptors().origins < 2 {
            assert!(timeout(Duration::from_millis(1), connecting.as_mut()).await.is_err());
        }
        assert_eq!(counters.address_failures.get(), 1, "both still run");
    }

    #[tokio::test]
    async fn a_connection_to_an_address_that_the_name_lost_is_not_reused() {
        let deaf = Deaf::new([127, 0, 0, 1]);
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = open.local_addr().unwrap();
        let (connector, counters) =
            (Connector::Tcp(Box::new(Resolver::with_addresses(vec![deaf.address, address]))), ServerMetrics::default());
        let descriptors = Arc::default();
        let mut connecting = std::pin::pin!(connect(&connector, &descriptors, &counters));
        assert!(timeout(Duration::from_millis(1), connecting.as_mut()).await.is_err());
        let Connector::Tcp(resolver) = &connector else { panic!() };
        resolver.set_addresses(vec!["192.0.2.1:80".parse().unwrap()]);
        let stream = connecting.await.unwrap();
        assert_eq!(stream.address, Some(address));
        assert!(!connector.is_current_address(stream.address));
    }

    #[tokio::test]
    async fn a_refused_connection_goes_to_where_the_name_has_moved() {
        const NAME: &str = "moved.addresses.test";
        let old = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = old.local_addr().unwrap().port();
        let Ok(new) = TcpListener::bind(("127.0.0.1", port)).await else { return };
        resolve_for_tests(NAME, &[old.local_addr().unwrap().ip()]);
        let address = OriginAddress::Tcp { host: NAME.into(), port };
        let connector = Connector::new(&address, Duration::from_secs(3600), None);
        let (descriptors, counters) = (Arc::default(), ServerMetrics::default());
        let before = connect(&connector, &descriptors, &counters).await.unwrap();
        assert_eq!(before.address, old.local_addr().ok());
        drop(old);
        resolve_for_tests(NAME, &[new.local_addr().unwrap().ip()]);
        assert_eq!(connect(&connector, &descriptors, &counters).await.unwrap_err(), Error::Refused, "once a second");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
        let after = connect(&connector, &descriptors, &counters).await.unwrap();
        assert_eq!(after.address, new.local_addr().ok());
    }

    #[tokio::test]
    async fn health_checks_and_probes_try_the_next_address_too() {
        const NAME: &str = "reach.addresses.test";
        let (deaf, open) = loop {
            let deaf = Deaf::new([127, 0, 0, 2]);
            // Both listeners need the same port.
            if let Ok(open) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], deaf.address.port()))).await {
                break (deaf, open);
            }
        };
        let port = deaf.address.port();
        resolve_for_tests(NAME, &[deaf.address.ip(), open.local_addr().unwrap().ip()]);
        let address = OriginAddress::Tcp { host: NAME.into(), port };
        let target = ProbeTarget { address: &address, tls: None, proxy_protocol: false };
        timeout(TEST_TIMEOUT, probe_target(target, TEST_TIMEOUT)).await.unwrap().unwrap();
        assert!(!PROCESS_FAILURES.clone().is_failed(deaf.address, Instant::now()), "a probe has no memory");
        for _ in 0..3 {
            let reached =
                timeout(TEST_TIMEOUT, reach_server(target, TEST_TIMEOUT, Some(TEST_TIMEOUT))).await.unwrap().unwrap();
            let OriginSocket::Tcp(stream) = reached else { panic!("{reached:?}") };
            assert_eq!(stream.peer_addr().unwrap(), open.local_addr().unwrap());
            assert!(PROCESS_FAILURES.clone().is_failed(deaf.address, Instant::now()));
        }
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_a_failed_lookup() {
        let (connector, counters) =
            (Connector::Tcp(Box::new(Resolver::with_addresses(Vec::new()))), ServerMetrics::default());
        assert_eq!(connect(&connector, &Arc::default(), &counters).await.unwrap_err(), Error::Resolve);
    }
}
