//! The client of a request, as its front end knows it.

use super::{forwarded_values::LastForwarded, tls_identity::TlsIdentity};
use std::{net::SocketAddr, sync::Arc};

/// Whether a client's connection may carry requests for a host: 421 otherwise (RFC 9110 §15.5.20).
pub type HostCoverage = dyn Fn(&Client, &str) -> bool;

/// The peer of a front end's connection.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client's address; an IPv4-mapped IPv6 address as IPv4.
    pub address: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The HTTP version.
    pub protocol: Protocol,
    /// The name in the TLS handshake (RFC 6066 §3), lower case.
    pub server_name: Option<Arc<str>>,
    /// The identity by its certificate.
    pub identity: TlsIdentity,
    /// What was told to an origin about it last.
    pub forwarded: LastForwarded,
    /// The number of its connection: no other open connection of the worker has it.
    pub connection: u64,
}

const _: () = assert!(size_of::<Client>() <= 352);

/// An IPv4-mapped IPv6 address as IPv4.
pub const fn to_canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The HTTP version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 9112 over TLS; HTTP/1.0 as well.
    Http1,
    /// RFC 9113 over TLS.
    Http2,
    /// RFC 9114 over QUIC.
    Http3,
}

impl Protocol {
    /// `https` or `http`: the value of `X-Forwarded-Proto`.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 | Self::Http3 => "https",
        }
    }

    /// The name in access logs.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}
