//! Begins a connection: the TLS handshake (RFC 8446), and its result about the client.

use super::{
    proxy_header::{ConnectionAddresses, read_connection_addresses},
    tcp_worker::{HandshakeConfig, TcpWorker},
};
use litequic_base::timers;
use litequic_config::TlsVersion;
use litequic_exchange::{
    CertificateRequest, Client, ClientCertificate, ClientTls, LastForwarded, Protocol, TlsIdentity, with_date,
};
use litequic_resources::connections::ConnectionEntry;
use rustls::{
    Error, HandshakeKind, PeerIncompatible, ProtocolVersion,
    server::{Acceptor, ClientHello},
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{io::AsyncWriteExt, net::TcpStream, select, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

/// Type of the record with a ClientHello (RFC 8446 §5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// Response to plain HTTP on a TLS port, which browsers show.
const PLAIN_HTTP_BODY: &str = "400 Bad Request\nthis port accepts https only";
/// The only protocol that a CA offers for a validation (RFC 8737 §3).
const VALIDATION_ALPN: &[u8] = b"acme-tls/1";
/// Longest wait for the client to take [`PLAIN_HTTP_BODY`].
const PLAIN_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Performs the handshake of the connection `holder` with the client at `address`. `None`, and counted, if the
/// handshake failed, or there was no room for it.
pub(super) async fn accept_tls<H>(
    stream: TcpStream,
    address: SocketAddr,
    holder: &ConnectionEntry,
    front: &TcpWorker<H>,
    tls: &HandshakeConfig,
) -> Option<(TlsStream<TcpStream>, Client)> {
    let terms = front.current_terms();
    let shaken = async {
        // A handshake waits as a request waits for a connection to its origin, so that a client which opens thousands
        // of connections at once is served.
        if timers::timeout(terms.timeouts.queue, holder.wait_for_handshake_slot(terms.limits.max_handshakes))
            .await
            .is_err()
        {
            front.metrics.limit_handshakes.increment();
            return None;
        }
        accept_tls_counted(stream, address, holder, front, tls).await
    };
    select! {
        shaken = shaken => shaken,
        reason = holder.wait_for_eviction() => {
            front.count_ended_handshake(reason);
            None
        }
    }
}

async fn accept_tls_counted<H>(
    mut stream: TcpStream,
    address: SocketAddr,
    holder: &ConnectionEntry,
    front: &TcpWorker<H>,
    tls: &HandshakeConfig,
) -> Option<(TlsStream<TcpStream>, Client)> {
    let metrics = &front.metrics;
    let terms = front.current_terms();
    let ends = read_connection_addresses(&mut stream, address, holder, front).await?;
    let serves_old = terms.config.listen.tls_min == TlsVersion::Tls12;
    let mut hello = HelloDecision::default();
    let shaking = Box::pin(run_handshake(stream, &ends, tls, serves_old, &mut hello));
    let shaken = timers::timeout(terms.timeouts.handshake, shaking).await;
    match shaken {
        Ok(Ok(shaken)) => {
            let session = shaken.0.get_ref().1;
            metrics.count_tcp_group(session.negotiated_key_exchange_group().map(|group| group.name()));
            if shaken.1.identity.tls == ClientTls::Tls12 {
                metrics.tcp_handshakes_tls12.increment();
            }
            match session.handshake_kind() {
                Some(HandshakeKind::Resumed) => metrics.handshakes_tcp_resumed.increment(),
                _ => metrics.handshakes_tcp_full.increment(),
            }
            return Some(shaken);
        }
        Ok(Err(TlsAcceptFailure::Validation)) => {}
        Ok(Err(TlsAcceptFailure::Plain)) => metrics.tcp_handshakes_plain.increment(),
        Ok(Err(TlsAcceptFailure::Io(error))) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(fault) => {
                tracing::debug!(client = %ends.client, error = %fault, "a TLS handshake failed");
                match fault {
                    Error::NoCertificatesPresented => metrics.client_certificates_missing.increment(),
                    Error::InvalidCertificate(_) => metrics.client_certificates_invalid.increment(),
                    _ => {}
                }
                match fault {
                    fault if is_version_mismatch(fault) && hello.is_for_certificates => {
                        metrics.tcp_handshakes_tls12_host.increment();
                    }
                    fault if is_version_mismatch(fault) => metrics.tcp_handshakes_version.increment(),
                    Error::PeerIncompatible(PeerIncompatible::ExtendedMasterSecretExtensionRequired) => {
                        metrics.tcp_handshakes_tls12_master_secret.increment();
                    }
                    Error::PeerIncompatible(
                        PeerIncompatible::NoCipherSuitesInCommon | PeerIncompatible::NoKxGroupsInCommon,
                    ) if hello.is_old => metrics.tcp_handshakes_tls12_suites.increment(),
                    _ => metrics.tcp_handshakes_tls.increment(),
                }
            }
            None => metrics.tcp_handshakes_closed.increment(),
        },
        Err(_) => {
            metrics.timeout_handshake.increment();
            metrics.tcp_handshakes_timeout.increment();
        }
    }
    None
}

/// Whether the client and litequic have no TLS version in common.
const fn is_version_mismatch(fault: &Error) -> bool {
    matches!(
        fault,
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                // TLS 1.3 always has this extension (RFC 8446 §9.2), versions below 1.2 never.
                | PeerIncompatible::SignatureAlgorithmsExtensionRequired
        )
    )
}

/// Decisions by a ClientHello.
#[derive(Default)]
struct HelloDecision {
    /// The client has no TLS 1.3, and is served all the same.
    is_old: bool,
    /// The client has no TLS 1.3, and is refused, as its host is one whose clients may present a certificate.
    is_for_certificates: bool,
}

/// Whether `hello` offers no cipher suite of TLS 1.3.
fn lacks_tls13(hello: &ClientHello<'_>) -> bool {
    !ClientTls::offers_tls13(hello.cipher_suites().iter().map(|suite| u16::from(*suite)))
}

enum TlsAcceptFailure {
    /// The first byte is not that of a TLS record.
    Plain,
    /// A CA's validation was answered. The connection has no other purpose.
    Validation,
    Io(io::Error),
}

impl From<io::Error> for TlsAcceptFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn run_handshake(
    mut stream: TcpStream,
    ends: &ConnectionAddresses,
    tls: &HandshakeConfig,
    serves_old: bool,
    decided: &mut HelloDecision,
) -> Result<(TlsStream<TcpStream>, Client), TlsAcceptFailure> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await? > 0 && first != [HANDSHAKE_RECORD] {
        if first.iter().all(u8::is_ascii_uppercase) {
            // Errors are ignored, as is a client that does not read the response.
            let _ = timeout(PLAIN_ANSWER_TIMEOUT, answer_plain_http(&mut stream)).await;
        }
        return Err(TlsAcceptFailure::Plain);
    }
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let hello = start.client_hello();
    if hello.alpn().is_some_and(|mut offered| offered.next() == Some(VALIDATION_ALPN) && offered.next().is_none()) {
        let config = (tls.validation)(hello.server_name()).await;
        if let Some(config) = config {
            // Whether the handshake succeeds or fails, nothing follows.
            if let Ok(mut stream) = start.into_stream(config).await {
                let _ = stream.shutdown().await;
            }
        }
        return Err(TlsAcceptFailure::Validation);
    }
    let server_name = start.client_hello().server_name().map(|name| Arc::from(name.to_ascii_lowercase()));
    decided.is_old = serves_old && lacks_tls13(&start.client_hello());
    let (asked, config) = (tls.choose)(server_name.as_deref(), ends.local.ip(), decided.is_old);
    decided.is_for_certificates = decided.is_old && asked != CertificateRequest::None;
    let stream = start.into_stream(config).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(ClientCertificate::new);
    let version = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => ClientTls::Tls12,
        _ => ClientTls::Tls13,
    };
    // A client without ALPN is served HTTP/1.1.
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    let client = Client {
        address: ends.client,
        local: ends.local,
        protocol,
        server_name,
        forwarded: LastForwarded::default(),
        identity: TlsIdentity {
            certificate_request: asked,
            certificate,
            tls: version,
            group: session.negotiated_key_exchange_group().map(|group| group.name().into()),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        },
        connection: 0,
    };
    Ok((stream, client))
}

/// Answers plain HTTP, and waits until the client has closed: otherwise the kernel's reset would discard the response.
async fn answer_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    let length = PLAIN_HTTP_BODY.len();
    let head = with_date(|date| {
        format!(
            "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n"
        )
    });
    stream.write_all([head.as_bytes(), PLAIN_HTTP_BODY.as_bytes()].concat().as_slice()).await?;
    stream.shutdown().await?;
    tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    Ok(())
}
