//! Encrypts connections to origins with TLS, by tokio-rustls over a TCP stream.
//!
//! rustls by itself reads 4 KiB at a time, where large reads are what makes long GSO trains for clients. So the socket
//! beneath it reads ahead as much as the reader has room for ([0045](../../../../docs/adr/0045-tls-to-origins.md)).

use crate::{answer::Error, metrics::ProxyMetrics};
use bytes::{Buf, BufMut, BytesMut};
use rustls::{AlertDescription, ClientConfig, HandshakeKind, client::Resumption, pki_types::ServerName};
use socket2::SockRef;
use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice, Read as _},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::io::poll_read_buf;

/// Most bytes of a record with its header and what encryption may add: 256 bytes (RFC 8446 §5.2), or 2,048 in TLS 1.2,
/// of which rustls' ciphers use less.
const MAX_RECORD: usize = 5 + 16 * 1024 + 256;
/// Bytes of one read in a handshake, and on an idle connection.
const SMALL_READ: usize = 64 * 1024;
/// ALPN name of HTTP/2 (RFC 9113 §3.1).
const ALPN_HTTP2: &[u8] = b"h2";
/// Sessions that are remembered for each server (RFC 8446 §4.6.1): rustls keeps as many of a name.
const SESSIONS_PER_SERVER: usize = 8;

thread_local! {
    /// Memory for ciphertext, which a connection has for one read: it stays in the processor's cache.
    static AHEAD: Cell<BytesMut> = Cell::default();
}

/// TLS to the servers of one origin, with the present content of its files. Two values are equal if their files are.
#[derive(Clone)]
pub struct TlsToOrigin {
    config: Arc<ClientConfig>,
    digest: [u8; 32],
    name: Option<ServerName<'static>>,
    refusal: fn() -> Option<String>,
}

impl TlsToOrigin {
    /// Uses `config`, which has no store of sessions, and whose `digest` differs if any of its files does. Certificates
    /// must have `name`, or the host of each URL. `refusal` returns the reason for the last refused certificate.
    pub fn new(
        config: Arc<ClientConfig>,
        digest: [u8; 32],
        name: Option<ServerName<'static>>,
        refusal: fn() -> Option<String>,
    ) -> Self {
        Self { config, digest, name, refusal }
    }

    /// A copy for one worker, which resumes sessions with the origin's `servers`.
    pub(crate) fn with_resumption(&self, servers: usize) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(servers.saturating_mul(SESSIONS_PER_SERVER));
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// A copy that offers HTTP/2 alone by ALPN (RFC 9113 §3.2).
    pub(crate) fn with_http2(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// TLS configuration for the server at `host`.
    pub(crate) fn for_host(&self, host: &str) -> OriginTlsConfig {
        let name = self.name.clone().or_else(|| ServerName::try_from(host.to_owned()).ok());
        OriginTlsConfig { config: Some(Arc::clone(&self.config)), name, refusal: self.refusal }
    }
}

impl PartialEq for TlsToOrigin {
    fn eq(&self, other: &Self) -> bool {
        (self.digest, &self.name) == (other.digest, &other.name)
    }
}

impl Eq for TlsToOrigin {}

litequic_base::partial_debug!(TlsToOrigin { name });

/// TLS configuration for connections to one server.
#[derive(Clone)]
pub(crate) struct OriginTlsConfig {
    /// `None` if the files could not be read.
    config: Option<Arc<ClientConfig>>,
    /// `None` for a host that no certificate can have.
    name: Option<ServerName<'static>>,
    refusal: fn() -> Option<String>,
}

litequic_base::partial_debug!(OriginTlsConfig { name });

impl OriginTlsConfig {
    /// A configuration by which every handshake fails: a checked configuration file has no such server.
    pub(crate) fn unusable() -> Self {
        Self { config: None, name: None, refusal: || None }
    }

    /// Sends `header`, if given, and performs the handshake, until `deadline`.
    ///
    /// # Errors
    ///
    /// A [`TlsFailure`] in an [`io::Error`], or the socket's error; [`io::ErrorKind::TimedOut`] at the deadline. Each
    /// is counted in `metrics`, if given.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(super) async fn connect_tls(
        &self,
        stream: TcpStream,
        header: Option<&[u8]>,
        deadline: Instant,
        metrics: Option<&Arc<ProxyMetrics>>,
    ) -> io::Result<OriginTlsStream> {
        let began = Instant::now();
        let shaking = litequic_base::timers::timeout_at(deadline, self.shake_hands(stream, header, metrics));
        let shaken = shaking.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let Some(metrics) = metrics else { return shaken };
        match &shaken {
            Ok(secured) => {
                metrics.origin_tls_duration.observe_time(began.elapsed());
                if secured.tls.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
                    metrics.origin_tls_resumed.increment();
                } else {
                    metrics.origin_tls_full.increment();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => metrics.origin_tls_timeout.increment(),
            Err(error) => match TlsFailure::in_error(error) {
                Some(failure) => failure.count_tls_failure(metrics),
                None => metrics.origin_tls_protocol.increment(),
            },
        }
        shaken
    }

    async fn shake_hands(
        &self,
        mut stream: TcpStream,
        header: Option<&[u8]>,
        metrics: Option<&Arc<ProxyMetrics>>,
    ) -> io::Result<OriginTlsStream> {
        if let Some(header) = header {
            stream.write_all(header).await?;
        }
        let (Some(config), Some(name)) = (self.config.clone(), self.name.clone()) else {
            return Err(TlsFailure::protocol_failure("TLS is not configured for this server").into());
        };
        let wants_http2 = config.alpn_protocols == [ALPN_HTTP2];
        let socket = ReadAheadSocket {
            stream,
            ahead: BytesMut::new(),
            read_size: SMALL_READ,
            position: RecordPosition::default(),
            metrics: metrics.cloned(),
        };
        let tls = match TlsConnector::from(config).connect(name, socket).await {
            Ok(tls) => Box::new(tls),
            Err(error) => {
                let error = classify_tls_error(error, self.refusal);
                if TlsFailure::in_error(&error).is_some() {
                    return Err(error);
                }
                let reason = format!("the connection ended within the TLS handshake: {error}");
                return Err(TlsFailure::protocol_failure(reason).into());
            }
        };
        if wants_http2 && tls.get_ref().1.alpn_protocol() != Some(ALPN_HTTP2) {
            let reason = "the server does not offer HTTP/2 by ALPN: see origin.protocol";
            return Err(TlsFailure::protocol_failure(reason).into());
        }
        Ok(OriginTlsStream { tls, refusal: self.refusal })
    }
}

/// Failure of TLS with an origin, in the handshake or later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct TlsFailure {
    pub(crate) error: Error,
    /// Reason, for the operator.
    reason: String,
}

impl TlsFailure {
    fn protocol_failure(reason: impl Into<String>) -> Self {
        Self { error: Error::TlsProtocol, reason: reason.into() }
    }

    fn new(error: &rustls::Error, refusal: fn() -> Option<String>) -> Self {
        let text = error.to_string();
        match error {
            rustls::Error::InvalidCertificate(_) => {
                let reason = refusal().unwrap_or(text);
                Self {
                    error: Error::TlsCertificate,
                    reason: format!("litequic rejected the server's certificate: {reason}"),
                }
            }
            rustls::Error::AlertReceived(alert) => {
                let hint = match alert {
                    AlertDescription::NoApplicationProtocol => ": it does not offer HTTP/1.1",
                    AlertDescription::ProtocolVersion => ": it does not support TLS 1.3 (see origin.tls.min)",
                    AlertDescription::CertificateRequired => ": it requires a client certificate (origin.tls.cert)",
                    _ => "",
                };
                Self { error: Error::TlsAlert, reason: format!("the server sent the TLS alert {alert:?}{hint}") }
            }
            rustls::Error::PeerIncompatible(rustls::PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
                Self::protocol_failure("the server does not support TLS 1.3 (see origin.tls.min)")
            }
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
                Self::protocol_failure("the server's answer is not TLS: does it expect plaintext on this port?")
            }
            _ => Self::protocol_failure(text),
        }
    }

    /// The TLS failure in `error`, if there is one.
    pub(crate) fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Keeps and counts the first failure of TLS on a connection, if that is what `error` says.
    pub(super) fn record_failure(error: &io::Error, first: &RefCell<Option<Self>>, metrics: &ProxyMetrics) {
        if let Some(failure) = Self::in_error(error)
            && first.borrow().is_none()
        {
            failure.count_tls_failure(metrics);
            first.replace(Some(failure.clone()));
        }
    }

    fn count_tls_failure(&self, metrics: &ProxyMetrics) {
        match self.error {
            Error::TlsCertificate => metrics.origin_tls_certificate.increment(),
            Error::TlsAlert => metrics.origin_tls_alert.increment(),
            _ => metrics.origin_tls_protocol.increment(),
        }
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, failure)
    }
}

/// The error of a read or handshake of tokio-rustls, with a [`TlsFailure`] in place of rustls' errors.
fn classify_tls_error(error: io::Error, refusal: fn() -> Option<String>) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(fault) => TlsFailure::new(fault, refusal).into(),
        None if error.kind() == io::ErrorKind::InvalidData => TlsFailure::protocol_failure(error.to_string()).into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => error.kind().into(),
        None => error,
    }
}

/// A TCP stream with TLS, after its handshake.
pub(crate) struct OriginTlsStream {
    pub(super) tls: Box<TlsStream<ReadAheadSocket>>,
    refusal: fn() -> Option<String>,
}

litequic_base::partial_debug!(OriginTlsStream { tls });

impl OriginTlsStream {
    /// Reads until `buf` is full or the socket is empty.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the connection ends without close_notify, which an attacker may have caused.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // With the complete record that a read ends within, the reader's buffer gets full: the reader then takes a
        // larger one.
        let socket = self.tls.get_mut().0;
        socket.read_size = buf.remaining().saturating_add(MAX_RECORD);
        let mut held = mem::replace(&mut socket.ahead, AHEAD.take());
        socket.ahead.extend_from_slice(&held);
        let read = Pin::new(&mut *self.tls).poll_read(cx, buf);
        // An idle connection has no memory for ciphertext, and one whose client stopped that of a record.
        let ahead = &mut self.tls.get_mut().0.ahead;
        if ahead.is_empty() {
            held = BytesMut::new();
        }
        held.clear();
        held.extend_from_slice(ahead);
        ahead.clear();
        AHEAD.set(mem::replace(ahead, held));
        read.map_err(|error| classify_tls_error(error, self.refusal))
    }

    /// Whether no unread bytes are left: no plaintext, no incomplete record, no close_notify.
    pub(super) fn is_fully_read(&self) -> bool {
        let (socket, session) = self.tls.get_ref();
        socket.ahead.is_empty() && socket.position.is_between_records() && session.wants_read()
    }

    /// Receives records on the idle connection by one system call, and handles session tickets and key updates. Returns
    /// whether no other bytes have come.
    pub(super) fn take_idle_records(&mut self) -> bool {
        let (socket, session) = self.tls.get_mut();
        let mut received = vec![0; SMALL_READ];
        // tokio's read would make a system call only after an event.
        let Ok(read @ 1..) = (&*SockRef::from(&socket.stream)).read(&mut received) else { return false };
        let mut records = received.get(..read).unwrap_or_default();
        socket.position.advance(records);
        while session.wants_read() && !records.is_empty() {
            if session.read_tls(&mut records).is_err() || session.process_new_packets().is_err() {
                return false;
            }
        }
        self.is_fully_read()
    }
}

/// A TCP stream beneath TLS, which reads more at once than rustls asks for.
#[derive(Debug)]
pub(super) struct ReadAheadSocket {
    pub(super) stream: TcpStream,
    /// Ciphertext that rustls has not taken.
    ahead: BytesMut,
    /// Most bytes of the next read.
    read_size: usize,
    /// Position behind the last byte that was received.
    position: RecordPosition,
    /// Counters of system calls, but for health checks and probes.
    metrics: Option<Arc<ProxyMetrics>>,
}

impl AsyncRead for ReadAheadSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, ahead, read_size, position, metrics } = &mut *self;
        if ahead.is_empty() {
            if !ahead.try_reclaim(*read_size) {
                *ahead = BytesMut::with_capacity(*read_size);
            }
            let read = ready!(poll_read_buf(Pin::new(stream), cx, &mut (&mut *ahead).limit(*read_size)))?;
            *read_size = read_size.saturating_sub(read).max(MAX_RECORD);
            position.advance(ahead);
            if let Some(metrics) = metrics {
                metrics.syscalls_origin_read.increment();
            }
        }
        let taken = ahead.get(..buf.remaining()).unwrap_or(ahead);
        buf.put_slice(taken);
        let taken = taken.len();
        ahead.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAheadSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs));
        if let Some(metrics) = &self.metrics {
            metrics.syscalls_origin_write.increment();
        }
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Position in a stream of records (RFC 8446 §5.1). rustls does not show whether it holds the beginning of one.
#[derive(Debug, Default)]
struct RecordPosition {
    /// Beginning of a record's header.
    header: Vec<u8>,
    /// Bytes up to the record's end, once its header is complete.
    rest: usize,
}

impl RecordPosition {
    fn advance(&mut self, mut received: &[u8]) {
        while let Some((first, others)) = received.split_first() {
            if self.rest > 0 {
                let behind = received.get(self.rest..).unwrap_or_default();
                self.rest -= received.len() - behind.len();
                received = behind;
                continue;
            }
            self.header.push(*first);
            received = others;
            if let [_, _, _, high, low] = *self.header {
                self.rest = u16::from_be_bytes([high, low]).into();
                self.header.clear();
            }
        }
    }

    const fn is_between_records(&self) -> bool {
        self.header.is_empty() && self.rest == 0
    }
}
