//! A QUIC client on a socket of its own, for `litequic get` and health checks.

use rustls::ClientConfig;
use s2n_quic::{
    Client, Connection,
    client::Connect,
    provider::{StartError, io, limits, tls},
};
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use tokio::time;

/// How long an acknowledgement is delayed at most. s2n-quic acknowledges every tenth packet, or what was received for this
/// long; as its timers have a granularity of 1 ms, that is every second packet of those that arrive one by one, as RFC 9000
/// §13.2.2 wants, and once a batch of those that arrive together. A client has one connection, and the CPU time to
/// acknowledge early.
const MAX_ACK_DELAY: Duration = Duration::from_millis(1);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No UDP socket of the address' family.
    #[error("cannot open a UDP socket: {0}")]
    Socket(#[from] std::io::Error),
    /// A name that TLS cannot ask for.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// s2n-quic did not start.
    #[error("QUIC did not start: {0}")]
    Start(#[from] StartError),
    /// The server refused, spoke something else, or showed a certificate that is not trusted.
    #[error("cannot connect to {address}: {source}")]
    Refused {
        /// Which server.
        address: SocketAddr,
        /// What QUIC or TLS said.
        source: s2n_quic::connection::Error,
    },
    /// Nobody answered.
    #[error("{address} did not answer within {}", humantime::format_duration(*timeout))]
    Timeout {
        /// Which server.
        address: SocketAddr,
        /// How long it had.
        timeout: Duration,
    },
}

/// Connects to `address`, asks for `server_name` (a DNS name, or an IP address without brackets) and completes the
/// handshake. To be called inside a tokio runtime, on which s2n-quic spawns its tasks; they end after the connection.
///
/// # Errors
///
/// [`ConnectError`].
///
/// # Cancel safety
///
/// Dropping the future gives the attempt up.
pub async fn connect(
    address: SocketAddr,
    server_name: &str,
    tls: ClientConfig,
    timeout: Duration,
) -> Result<Connection, ConnectError> {
    // s2n-quic-rustls takes any string for a name and panics on what is none.
    if rustls::pki_types::ServerName::try_from(server_name).is_err() {
        return Err(ConnectError::ServerName(server_name.into()));
    }
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let io = io::tokio::Builder::default().with_receive_address(any)?.build()?;
    let limits = limits::Limits::new()
        .with_max_handshake_duration(timeout)
        .and_then(|limits| limits.with_max_ack_delay(MAX_ACK_DELAY))
        .unwrap_or_default();
    let builder = Client::builder()
        .with_tls(tls::rustls::Client::from(tls))
        .and_then(|builder| builder.with_io(io))
        .and_then(|builder| builder.with_limits(limits));
    let client = match builder {
        Ok(builder) => builder.start()?,
        Err(never) => match never {},
    };
    let attempt = client.connect(Connect::new(address).with_server_name(server_name));
    match time::timeout(timeout, attempt).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(source)) => Err(ConnectError::Refused { address, source }),
        Err(_) => Err(ConnectError::Timeout { address, timeout }),
    }
}
