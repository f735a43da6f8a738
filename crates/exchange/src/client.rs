//! Describes the client of a request, as its front end knows the client.

use super::{forwarded_values::LastForwarded, tls_identity::TlsIdentity};
use litequic_base::named_enum;
use std::{net::SocketAddr, sync::Arc};

/// Decides whether a client's connection may carry requests for a host. If not, the response is 421 (RFC 9110
/// §15.5.20).
pub type HostCoverage = dyn Fn(&Client, &str) -> bool;

/// The client of a connection: addresses, HTTP version and TLS identity.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client's address; an IPv4-mapped IPv6 address as IPv4.
    pub address: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// HTTP version of the connection.
    pub protocol: Protocol,
    /// Server name (SNI) of the TLS handshake (RFC 6066 §3), in lower case.
    pub server_name: Option<Arc<str>>,
    /// TLS identity: the certificate, if any, and the session's parameters.
    pub identity: TlsIdentity,
    /// Cached values of the fields by which an origin learns the client's address.
    pub forwarded: LastForwarded,
    /// Number of the connection, unique among the worker's open connections.
    pub connection: u64,
}

const _: () = assert!(size_of::<Client>() <= 352);

/// Converts an IPv4-mapped IPv6 address to IPv4; any other address is unchanged.
pub const fn to_canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

named_enum! {
    /// The HTTP version of a client.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Protocol {
        /// HTTP/1.1 (RFC 9112) or HTTP/1.0, over TLS or in plain text.
        Http1 = "HTTP/1.1",
        /// HTTP/2 (RFC 9113) over TLS.
        Http2 = "HTTP/2",
        /// HTTP/3 (RFC 9114) over QUIC.
        Http3 = "HTTP/3",
    }
    /// Returns the protocol's name in access logs.
    fn protocol_name;
}

impl Protocol {
    /// Returns the URI scheme, which is also the value of `X-Forwarded-Proto`.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 | Self::Http3 => "https",
        }
    }
}
