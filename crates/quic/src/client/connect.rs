//! Connects a QUIC client: opens its socket, sets its limits, and explains a failed attempt.

use super::{
    observer::{ObservedTls, Observer},
    port_unreachable,
};
use rustls::ClientConfig;
use s2n_quic::{
    Client, Connection,
    client::Connect,
    connection::Error,
    provider::{StartError, io, limits, tls},
};
use s2n_quic_core::endpoint::Location;
use socket2::SockRef;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};
use tokio::time;

/// Longest delay of the client's acknowledgements. s2n-quic acknowledges every tenth packet, or the packets received
/// within this delay; as its timers have a granularity of 1 ms, that is every second packet of those that arrive one by
/// one, as RFC 9000 §13.2.2 wants, and once a batch of those that arrive together. A client has one connection, and the
/// CPU time to acknowledge early.
const CLIENT_MAX_ACK_DELAY: Duration = Duration::from_millis(1);

/// Receive buffer that a client requests, bytes, for packets that arrive during other work. The kernel caps the value
/// at `net.core.rmem_max`.
const CLIENT_RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// Error of a client's attempt to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A UDP socket of the address' family cannot be opened.
    #[error("cannot open a UDP socket: {0}")]
    Socket(#[from] std::io::Error),
    /// TLS cannot send the server name.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// s2n-quic did not start.
    #[error("QUIC did not start: {0}")]
    Start(#[from] StartError),
    /// No route exists, or an ICMP message answered the first packet.
    #[error("cannot reach {address}: {source}{}", nothing_listens(.source))]
    Unreachable {
        /// The server's address.
        address: SocketAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The server refused, does not support HTTP/3, or presented a certificate that is not trusted.
    #[error("cannot connect to {address}: {}", reason(.source))]
    Refused {
        /// The server's address.
        address: SocketAddr,
        /// The error of QUIC or TLS.
        source: Error,
    },
    /// No packet arrived within the timeout.
    #[error(
        "no answer from {address} within {}: no server listens there, or UDP is blocked",
        humantime::format_duration(*timeout)
    )]
    Silent {
        /// The server's address.
        address: SocketAddr,
        /// Timeout of the handshake.
        timeout: Duration,
    },
    /// Packets arrived, but the handshake did not finish within the timeout.
    #[error("the handshake with {address} did not finish within {}", humantime::format_duration(*timeout))]
    Timeout {
        /// The server's address.
        address: SocketAddr,
        /// Timeout of the handshake.
        timeout: Duration,
    },
}

/// CONNECTION_REFUSED (RFC 9000 §20.1).
const CONNECTION_REFUSED: u64 = 0x02;
/// Beginning of the codes of TLS alerts (RFC 9001 §4.8).
const CRYPTO_ERROR: u64 = 0x100;
/// Alert of servers that choose certificates by name alone, such as rustls (RFC 8446 §6.2).
const ACCESS_DENIED: u8 = 49;
const UNRECOGNIZED_NAME: u8 = 112;
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// Text for the operator about an error that ended the handshake.
fn reason(error: &Error) -> String {
    match error {
        Error::Transport { initiator: Location::Remote, code, .. } if code.as_u64() == CONNECTION_REFUSED => {
            "the server refuses new QUIC connections at present (CONNECTION_REFUSED): it is full, drains or denies this \
             client, or HTTP/3 is off"
                .into()
        }
        Error::Transport { initiator: Location::Remote, code, .. }
            if let Some(alert) = code.as_u64().checked_sub(CRYPTO_ERROR).and_then(|alert| u8::try_from(alert).ok()) =>
        {
            let why = match alert {
                ACCESS_DENIED | UNRECOGNIZED_NAME => ": it has no certificate for this name",
                NO_APPLICATION_PROTOCOL => ": it does not serve HTTP/3 there",
                _ => "",
            };
            format!("the server ended the TLS handshake{why} (alert {alert} of RFC 8446 §6)")
        }
        error => error.to_string(),
    }
}

fn nothing_listens(error: &std::io::Error) -> &'static str {
    // ICMP port unreachable, as connect(2) and udp(7) name it.
    if error.kind() == ErrorKind::ConnectionRefused { ": no server listens there for UDP" } else { "" }
}

/// Connects to `address`, requests `server_name` (a DNS name, or an IP address without brackets) and completes the
/// handshake; `observer` gets s2n-quic's events of the connection. To be called inside a tokio runtime, on which
/// s2n-quic spawns its tasks; they end after the connection.
///
/// # Errors
///
/// [`ConnectError`].
///
/// # Cancel safety
///
/// Dropping the future aborts the attempt.
pub async fn connect_client(
    address: SocketAddr,
    server_name: &str,
    tls: ClientConfig,
    timeout: Duration,
    observer: &Observer,
) -> Result<Connection, ConnectError> {
    // s2n-quic-rustls accepts any string as a name and panics on invalid ones.
    if rustls::pki_types::ServerName::try_from(server_name).is_err() {
        return Err(ConnectError::ServerName(server_name.into()));
    }
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    SockRef::from(&socket).set_recv_buffer_size(CLIENT_RECEIVE_BUFFER_BYTES)?;
    // The kernel reports ICMP errors only to connected sockets (udp(7)).
    socket.connect(address).map_err(|source| ConnectError::Unreachable { address, source })?;
    let unreachable = port_unreachable::watch_unreachable(&socket)?;
    let io = io::tokio::Builder::default().with_rx_socket(socket)?.build()?;
    let limits = limits::Limits::new()
        .with_max_handshake_duration(timeout)
        .and_then(|limits| limits.with_max_ack_delay(CLIENT_MAX_ACK_DELAY))
        .unwrap_or_default();
    let builder = Client::builder()
        .with_tls(ObservedTls { tls: tls::rustls::Client::from(tls), observer: observer.clone() })
        .and_then(|builder| builder.with_io(io))
        .and_then(|builder| builder.with_limits(limits))
        .and_then(|builder| builder.with_event(observer.clone()));
    let client = match builder {
        Ok(builder) => builder.start()?,
        Err(never) => match never {},
    };
    let attempt = client.connect(Connect::new(address).with_server_name(server_name));
    let began = Instant::now();
    let late = |timeout| match observer.observed_state().received {
        true => ConnectError::Timeout { address, timeout },
        false => ConnectError::Silent { address, timeout },
    };
    tokio::select! {
        source = unreachable => Err(ConnectError::Unreachable { address, source }),
        outcome = time::timeout(timeout, attempt) => match outcome {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(Error::MaxHandshakeDurationExceeded { .. })) | Err(_) => Err(late(timeout)),
            // s2n-quic's idle timeout may expire before a longer `timeout`.
            Ok(Err(Error::IdleTimerExpired { .. })) => Err(late(Duration::from_secs(began.elapsed().as_secs()))),
            Ok(Err(source)) => Err(ConnectError::Refused { address, source }),
        },
    }
}
