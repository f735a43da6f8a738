//! Encrypts connections to origins with TLS: rustls' unbuffered connection over a TCP stream.
//!
//! rustls would read 16 KiB at a time at most by itself, where large reads are what makes long GSO trains for clients.
//! So ciphertext is received into one large buffer a thread, decrypted there, and copied to the reader's buffer. The
//! connection keeps the beginning of a record until its rest comes
//! ([0045](../../../../docs/adr/0045-tls-to-origins.md)).

use crate::{answer::Error, metrics::ProxyMetrics};
use bytes::{Buf, BytesMut};
use rustls::{
    AlertDescription, ClientConfig, HandshakeKind,
    client::{Resumption, UnbufferedClientConnection},
    pki_types::ServerName,
    unbuffered::{ConnectionState, EncodeError, UnbufferedStatus, WriteTraffic},
};
use socket2::SockRef;
use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice, Read as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::Instant,
};

/// Most bytes of plaintext in a record (RFC 8446 §5.1).
const MAX_FRAGMENT: usize = 16 * 1024;
/// Most bytes of a record with its header and what encryption may add: 256 bytes (RFC 8446 §5.2), or 2,048 in TLS 1.2,
/// of which rustls' ciphers use less.
const MAX_RECORD: usize = 5 + MAX_FRAGMENT + 256;
/// Most bytes of plaintext that one write encrypts: eight records.
const MAX_WRITE_PLAINTEXT: usize = 8 * MAX_FRAGMENT;
/// Size of the scratch buffer: the largest read (`origin_connection`), the record that it ends within, and the
/// beginning of a handshake message, of which rustls accepts 64 KiB.
const SCRATCH_BYTES: usize = 256 * 1024 + MAX_RECORD + 64 * 1024;
/// Bytes of one read in a handshake, and on an idle connection.
const SMALL_READ: usize = 64 * 1024;
/// Reads on an idle connection after which the server counts as one that does not stop sending.
const MAX_IDLE_READS: usize = 4;
/// ALPN name of HTTP/2 (RFC 9113 §3.1).
const ALPN_HTTP2: &[u8] = b"h2";
/// Sessions that are remembered for each server (RFC 8446 §4.6.1): rustls keeps as many of a name.
const SESSIONS_PER_SERVER: usize = 8;

thread_local! {
    /// Scratch for ciphertext, for one call at a time.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn with_record_scratch<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(SCRATCH_BYTES, 0);
        }
        act(buffer)
    })
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
        metrics: Option<&ProxyMetrics>,
    ) -> io::Result<OriginTlsStream> {
        let began = Instant::now();
        let shaking = litequic_base::timers::timeout_at(deadline, self.shake_hands(stream, header));
        let shaken = shaking.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let Some(metrics) = metrics else { return shaken };
        match &shaken {
            Ok(secured) => {
                metrics.origin_tls_duration.observe_time(began.elapsed());
                if secured.session.connection.handshake_kind() == Some(HandshakeKind::Resumed) {
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

    async fn shake_hands(&self, mut stream: TcpStream, header: Option<&[u8]>) -> io::Result<OriginTlsStream> {
        if let Some(header) = header {
            stream.write_all(header).await?;
        }
        let (Some(config), Some(name)) = (self.config.clone(), self.name.clone()) else {
            return Err(TlsFailure::protocol_failure("TLS is not configured for this server").into());
        };
        let wants_http2 = config.alpn_protocols == [ALPN_HTTP2];
        let connection = UnbufferedClientConnection::new(config, name)
            .map_err(|error| TlsFailure::protocol_failure(error.to_string()))?;
        let session = Box::new(OriginTlsSession {
            connection,
            refusal: self.refusal,
            incoming: Vec::new(),
            plaintext: BytesMut::new(),
            outgoing: BytesMut::new(),
            peer_closed: false,
            closing: false,
            failure: None,
            calls: SyscallCounts::default(),
        });
        let mut secured = OriginTlsStream { stream, session };
        poll_fn(|cx| secured.poll_tls_handshake(cx)).await?;
        if wants_http2 && secured.session.connection.alpn_protocol() != Some(ALPN_HTTP2) {
            let reason = "the server does not offer HTTP/2 by ALPN: see origin.protocol";
            return Err(TlsFailure::protocol_failure(reason).into());
        }
        Ok(secured)
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

/// System calls since the last count.
#[derive(Debug, Default)]
struct SyscallCounts {
    reads: u64,
    writes: u64,
    looks: u64,
}

/// A TCP stream with TLS, after its handshake.
pub(crate) struct OriginTlsStream {
    pub(super) stream: TcpStream,
    pub(super) session: Box<OriginTlsSession>,
}

/// TLS session with buffers.
pub(super) struct OriginTlsSession {
    connection: UnbufferedClientConnection,
    refusal: fn() -> Option<String>,
    /// Ciphertext that was received: the beginning of a record.
    incoming: Vec<u8>,
    /// Plaintext that did not fit into the reader's buffer.
    plaintext: BytesMut,
    /// Ciphertext that the socket has not accepted.
    outgoing: BytesMut,
    /// Whether the server's close_notify has come, which no data may follow (RFC 8446 §6.1).
    peer_closed: bool,
    /// Whether close_notify was queued.
    closing: bool,
    failure: Option<TlsFailure>,
    calls: SyscallCounts,
}

litequic_base::partial_debug!(OriginTlsStream { stream });

impl OriginTlsSession {
    /// Decrypts the complete records in `records` into `buf`, and keeps the plaintext that does not fit there, and the
    /// rest of `records`.
    fn take_records(&mut self, records: &mut [u8], buf: &mut ReadBuf<'_>) {
        let mut done = 0_usize;
        while self.failure.is_none() {
            let rest = records.get_mut(done..).unwrap_or_default();
            let Self { connection, plaintext, outgoing, peer_closed, .. } = self;
            let UnbufferedStatus { mut discard, state } = connection.process_tls_records(rest);
            let mut is_last = false;
            let result = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                    match traffic.next_record() {
                        Some(Ok(record)) => {
                            discard = discard.saturating_add(record.discard);
                            plaintext.extend_from_slice(put_plaintext(record.payload, buf));
                        }
                        Some(Err(error)) => break Err(error),
                        None => break Ok(()),
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append_encoded(outgoing, |out| data.encode(out));
                    Ok(())
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // The data is in `outgoing`, which is sent before anything else.
                    data.done();
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed) => {
                    *peer_closed = true;
                    Ok(())
                }
                Ok(_) => {
                    is_last = true;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            done = done.saturating_add(discard);
            if let Err(error) = result {
                self.end_by_error(&error, records.get_mut(done..).unwrap_or_default());
            }
            if is_last {
                break;
            }
        }
        // An idle connection has no memory for ciphertext.
        self.incoming = records.get(done..).unwrap_or_default().to_vec();
    }

    /// Ends the session by `error`, with an alert for the server, unless the server has sent one.
    fn end_by_error(&mut self, error: &rustls::Error, records: &mut [u8]) {
        self.failure = Some(TlsFailure::new(error, self.refusal));
        let Self { connection, outgoing, .. } = self;
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process_tls_records(records).state {
            append_encoded(outgoing, |out| data.encode(out));
        }
    }

    /// Moves plaintext that was decrypted before to `buf`.
    fn move_plaintext(&mut self, buf: &mut ReadBuf<'_>) {
        let kept = put_plaintext(&self.plaintext, buf).len();
        if kept == 0 {
            self.plaintext = BytesMut::new();
        } else {
            self.plaintext.advance(self.plaintext.len().saturating_sub(kept));
        }
    }

    /// Receives at most `most` bytes, or a record, by `read`, which is one system call, and decrypts them into `buf`.
    fn receive_records(
        &mut self,
        most: usize,
        buf: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        with_record_scratch(|scratch| {
            let kept = self.incoming.len();
            let space = scratch.get_mut(kept..).unwrap_or_default();
            let most = most.saturating_sub(kept).max(MAX_RECORD).min(space.len());
            if most == 0 {
                return Poll::Ready(Err(TlsFailure::protocol_failure("a handshake message is too long").into()));
            }
            let mut received = ReadBuf::new(space.get_mut(..most).unwrap_or_default());
            ready!(read(&mut received))?;
            let read = received.filled().len();
            if read == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let records = scratch.get_mut(..kept.saturating_add(read)).unwrap_or_default();
            records.get_mut(..kept).unwrap_or_default().copy_from_slice(&self.incoming);
            self.take_records(records, buf);
            Poll::Ready(Ok(()))
        })
    }

    /// Whether no unread bytes are left: no plaintext, no incomplete record, no end.
    pub(super) fn is_fully_read(&self) -> bool {
        self.plaintext.is_empty() && self.incoming.is_empty() && !self.peer_closed && self.failure.is_none()
    }

    /// Calls `write` to encrypt.
    fn write_traffic<T>(
        &mut self,
        write: impl FnOnce(&mut WriteTraffic<'_, rustls::client::ClientConnectionData>) -> T,
    ) -> io::Result<T> {
        if let Some(failure) = self.failure.clone() {
            return Err(failure.into());
        }
        match self.connection.process_tls_records(&mut self.incoming).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => Ok(write(&mut traffic)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Encrypts the beginning of `bufs` into `scratch`; returns the number of bytes taken, and the length of the
    /// records.
    fn encrypt_parts(&mut self, bufs: &[IoSlice<'_>], scratch: &mut [u8]) -> io::Result<(usize, usize)> {
        let at = scratch.len().saturating_sub(MAX_FRAGMENT);
        let (out, staging) = scratch.split_at_mut(at);
        self.write_traffic(|traffic| {
            let (mut sealed, mut taken, mut staged) = (0, 0_usize, 0);
            let mut encrypt = |plain: &[u8]| {
                let records = traffic.encrypt(plain, out.get_mut(sealed..).unwrap_or_default());
                sealed += records.map_err(io::Error::other)?;
                io::Result::Ok(())
            };
            for buf in bufs {
                let room = MAX_WRITE_PLAINTEXT.saturating_sub(taken);
                let mut rest = buf.get(..room).unwrap_or(buf);
                taken = taken.saturating_add(rest.len());
                while !rest.is_empty() {
                    // Small pieces, such as a head and a chunk's size, share a record.
                    let whole = if staged == 0 { rest.len() - rest.len() % MAX_FRAGMENT } else { 0 };
                    let (now, then) = if whole > 0 {
                        rest.split_at(whole)
                    } else {
                        rest.split_at_checked(MAX_FRAGMENT - staged).unwrap_or((rest, &[]))
                    };
                    rest = then;
                    if whole > 0 {
                        encrypt(now)?;
                        continue;
                    }
                    let end = staged + now.len();
                    staging.get_mut(staged..end).unwrap_or_default().copy_from_slice(now);
                    staged = end % MAX_FRAGMENT;
                    if staged == 0 {
                        encrypt(staging)?;
                    }
                }
            }
            if staged > 0 {
                encrypt(staging.get(..staged).unwrap_or_default())?;
            }
            Ok((taken, sealed))
        })?
    }
}

/// Copies the beginning of `plain` to `buf`, and returns the rest.
fn put_plaintext<'a>(plain: &'a [u8], buf: &mut ReadBuf<'_>) -> &'a [u8] {
    let (fitting, rest) = plain.split_at_checked(buf.remaining()).unwrap_or((plain, &[]));
    buf.put_slice(fitting);
    rest
}

/// Appends the bytes that `data` encodes, whose length rustls tells.
fn append_encoded(outgoing: &mut BytesMut, mut data: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let Err(EncodeError::InsufficientSize(needed)) = data(&mut []) else { return };
    let before = outgoing.len();
    outgoing.resize(before.saturating_add(needed.required_size), 0);
    let encoded = data(outgoing.get_mut(before..).unwrap_or_default()).unwrap_or_default();
    outgoing.truncate(before.saturating_add(encoded));
}

impl OriginTlsStream {
    fn poll_tls_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // This encodes the ClientHello.
        self.session.take_records(&mut [], &mut ReadBuf::new(&mut []));
        loop {
            let sent = self.poll_flush(cx);
            if let Some(failure) = self.session.failure.clone() {
                // The alert was sent as far as that is possible without a wait.
                return Poll::Ready(Err(failure.into()));
            }
            ready!(sent).map_err(handshake_end_error)?;
            if !self.session.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let Self { stream, session } = self;
            let received = session
                .receive_records(SMALL_READ, &mut ReadBuf::new(&mut []), |buf| Pin::new(stream).poll_read(cx, buf));
            ready!(received).map_err(handshake_end_error)?;
            session.calls.reads += 1;
            if session.peer_closed && session.connection.is_handshaking() {
                return Poll::Ready(Err(handshake_end_error(io::ErrorKind::UnexpectedEof.into())));
            }
        }
    }

    /// Sends the ciphertext that the socket has not accepted.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, session } = self;
        if session.outgoing.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !session.outgoing.is_empty() {
            let sent = ready!(Pin::new(&mut *stream).poll_write(cx, &session.outgoing))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            session.calls.writes += 1;
            session.outgoing.advance(sent);
        }
        session.outgoing = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Reads as many bytes as one system call brings.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the connection ends without close_notify, which an attacker may have caused.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        self.session.move_plaintext(buf);
        loop {
            let taken = buf.filled().len() > before;
            if buf.remaining() == 0 || self.session.peer_closed {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = self.session.failure.clone() {
                let _ = self.poll_flush(cx);
                return Poll::Ready(if taken { Ok(()) } else { Err(failure.into()) });
            }
            let Self { stream, session } = self;
            // With the complete record that a read ends within, the reader's buffer gets full: the reader then takes a
            // larger one.
            let most = buf.remaining().saturating_add(MAX_RECORD);
            let received = session.receive_records(most, buf, |buf| Pin::new(stream).poll_read(cx, buf));
            session.calls.reads += u64::from(matches!(received, Poll::Ready(Ok(()))));
            if buf.filled().len() > before {
                // An error comes again with the next read.
                return Poll::Ready(Ok(()));
            }
            ready!(received)?;
        }
    }

    /// Whether no data has come at this moment: session tickets and key updates are handled. One system call, or more
    /// if such have come.
    pub(crate) fn drain_quiet(&mut self) -> bool {
        let Self { stream, session } = self;
        for _ in 0..MAX_IDLE_READS {
            if !session.is_fully_read() {
                return false;
            }
            session.calls.looks += 1;
            let received = session.receive_records(SMALL_READ, &mut ReadBuf::new(&mut []), |buf| {
                // tokio's read would make a system call only after an event.
                match (&*SockRef::from(&*stream)).read(buf.initialize_unfilled()) {
                    Ok(read) => {
                        buf.advance(read);
                        Poll::Ready(Ok(()))
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            });
            match received {
                Poll::Pending => return true,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return false,
            }
        }
        false
    }

    /// Encrypts and sends the beginning of `bufs`. Ciphertext that the socket does not accept at once is held, at most
    /// that of one call.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let Self { stream, session } = self;
        with_record_scratch(|scratch| {
            let (taken, sealed) = session.encrypt_parts(bufs, scratch)?;
            let records = scratch.get(..sealed).unwrap_or_default();
            let sent = match Pin::new(stream).poll_write(cx, records) {
                Poll::Ready(sent) => {
                    session.calls.writes += 1;
                    sent?
                }
                Poll::Pending => 0,
            };
            session.outgoing.extend_from_slice(records.get(sent..).unwrap_or_default());
            Poll::Ready(Ok(taken))
        })
    }

    /// Sends close_notify, and closes this direction.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.session.closing && self.session.failure.is_none() {
            self.session.closing = true;
            // A key update that is owed precedes the alert.
            let mut alert = [0; 256];
            let queued = self.session.write_traffic(|traffic| traffic.queue_close_notify(&mut alert))?;
            let length = queued.map_err(io::Error::other)?;
            self.session.outgoing.extend_from_slice(alert.get(..length).unwrap_or_default());
        }
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Counts the system calls since the last count.
    pub(crate) fn count_tls_syscalls(&mut self, metrics: &ProxyMetrics) {
        let SyscallCounts { reads, writes, looks } = std::mem::take(&mut self.session.calls);
        metrics.syscalls_origin_read.increment_by(reads);
        metrics.syscalls_origin_write.increment_by(writes);
        metrics.syscalls_origin_look.increment_by(looks);
    }
}

/// The error for a connection that ended in the middle of a handshake.
fn handshake_end_error(error: io::Error) -> io::Error {
    match TlsFailure::in_error(&error) {
        Some(_) => error,
        None => TlsFailure::protocol_failure(format!("the connection ended within the TLS handshake: {error}")).into(),
    }
}
