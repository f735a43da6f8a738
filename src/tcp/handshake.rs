//! A connection's beginning: the TLS handshake (RFC 8446), and what it finds out about the client.

use super::front::{ChooseTls, Front};
use crate::exchange::{Certificate, Client, Identity, Protocol};
use rustls::{Error, server::Acceptor};
use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

/// The type of the record that a ClientHello comes in (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// For who speaks plain HTTP to a TLS port: browsers show it.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 44\r\n\r\n\
    400 Bad Request\nthis port speaks https alone";
/// How long the answer to plain HTTP may take to be taken.
const PLAIN_WAIT: Duration = Duration::from_secs(1);

/// Shakes hands with the client at `address`. `None` if that failed, which is counted.
pub(super) async fn shake<H>(
    stream: TcpStream,
    address: SocketAddr,
    front: &Rc<Front<H>>,
    tls: &ChooseTls,
) -> Option<(TlsStream<TcpStream>, Client)> {
    let _place = front.handshake()?;
    let metrics = &front.metrics;
    let (_, timeouts) = front.terms();
    match timeout(timeouts.handshake, Box::pin(hands(stream, address, tls))).await {
        Ok(Ok(shaken)) => return Some(shaken),
        Ok(Err(Failure::Plain)) => metrics.tcp_handshakes_plain.increment(),
        Ok(Err(Failure::Io(error))) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(fault) => {
                tracing::debug!(client = %address, error = %fault, "a TLS handshake failed");
                metrics.tcp_handshakes_tls.increment();
                match fault {
                    Error::NoCertificatesPresented => metrics.client_certificates_missing.increment(),
                    Error::InvalidCertificate(_) => metrics.client_certificates_invalid.increment(),
                    _ => {}
                }
            }
            None => metrics.tcp_handshakes_closed.increment(),
        },
        Err(_) => metrics.timeout_handshake.increment(),
    }
    None
}

enum Failure {
    /// It is no TLS.
    Plain,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn hands(
    mut stream: TcpStream,
    address: SocketAddr,
    tls: &ChooseTls,
) -> Result<(TlsStream<TcpStream>, Client), Failure> {
    let local = stream.local_addr()?;
    let mut first = [0; 1];
    if stream.peek(&mut first).await? > 0 && first != [HANDSHAKE] {
        if first.iter().all(u8::is_ascii_uppercase) {
            // An error, or a client that does not take it, makes no difference.
            let _ = timeout(PLAIN_WAIT, answer_plain(&mut stream)).await;
        }
        return Err(Failure::Plain);
    }
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let server_name = start.client_hello().server_name().map(|name| Arc::from(name.to_ascii_lowercase()));
    let (asked, config) = tls(server_name.as_deref());
    let stream = start.into_stream(config).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(Certificate::new);
    // Who asks for nothing gets what everybody understands.
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    let client = Client {
        address: plain(address),
        local: plain(local),
        protocol,
        server_name,
        identity: Identity { asked, certificate },
    };
    Ok((stream, client))
}

/// What was sent is read, or the kernel would take the answer back with its reset.
async fn answer_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// An IPv4-mapped IPv6 address as IPv4.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
