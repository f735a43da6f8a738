//! The interface between the front ends (HTTP/3, TCP) and the proxy: one request, one response, streamed; which
//! authorities, paths and fields are accepted; HTTP/1.1 as bytes, and priorities.
//!
//! It uses `litequic-base` and `litequic-config`, and depends on neither side. Front ends and proxy use it, and what
//! reports requests (`litequic-telemetry`).
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod address;
mod alt_svc;
mod authority;
mod body;
mod counter;
mod date;
pub mod field;
mod fields;
mod forwarded;
mod head;
pub mod http1;
mod identity;
mod idle;
mod interim;
mod linger;
mod path;
mod patience;
pub mod priority;
mod reading;
mod record;
pub mod terms;
mod trace;
mod tunnel;
mod whole;

pub use address::write_address;
pub use alt_svc::alt_svc;
pub use authority::{Authority, LastAuthority, check_authority, host_of};
pub use body::{Body, BodyCapacity, BodyError};
pub use counter::ByteCounter;
pub use date::{set_date, with_date};
pub use fields::{DecodedFields, DecodedLine, FieldLine, FieldName, Fields, Name, NameId, NameSet, Span, name};
pub use forwarded::{Forwarded, LastForwarded};
pub use head::{Head, Request, Response};
pub use identity::{Certificate, CertificateRequest, ClientTls, Identity};
pub use idle::IdleTimer;
pub use interim::{Interim, InterimQueue};
pub use linger::{Linger, Lingered};
pub use path::path;
pub use patience::{ClientDeadline, MinimumRate, TimeoutCause};
pub use priority::priority_parameters;
pub use reading::{MAX_READINGS, has_readings, readings};
pub use record::{
    Facts, Listener, Propagation, Record, Recording, Records, RequestEnd, RequestText, TraceStart, Tracer, elapsed,
};
pub use trace::{Attempt, RequestTrace, SpanId, TRACEPARENT, TraceFlags, TraceId, Traceparent, write_hex};
pub use tunnel::{Duplex, Quiet, Silenced, TUNNEL_BUFFER, Tunnel, Upgrade};
pub use whole::WholeBody;

use http::Method;
use std::{fmt, future::Future, net::SocketAddr, rc::Rc, sync::Arc};

/// Whether a request with `method` has a body so rarely that its end, if still to come, is not waited for.
pub fn has_rarely_a_body(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE)
}

/// One request.
#[derive(Debug)]
pub struct Exchange {
    /// The request as checked by the front end.
    pub request: Request,
    /// The client.
    pub client: Rc<Client>,
    /// The channel of interim (1xx) responses.
    pub interim: Interim,
    /// The record of its outcome.
    pub record: Record,
}

const _: () = assert!(size_of::<Exchange>() <= 256);

/// Whether a client's connection may carry requests for a host: 421 otherwise (RFC 9110 §15.5.20).
pub type Covers = dyn Fn(&Client, &str) -> bool;

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
    pub identity: Identity,
    /// What was told to an origin about it last.
    pub forwarded: LastForwarded,
    /// The number of its connection: no other open connection of the worker has it.
    pub connection: u64,
}

const _: () = assert!(size_of::<Client>() <= 352);

/// An IPv4-mapped IPv6 address as IPv4.
pub const fn plain(address: SocketAddr) -> SocketAddr {
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// Serves requests. The proxy is one; tests have others.
pub trait Handler: 'static {
    /// Answers one request.
    ///
    /// The response's body may go on after the future is done, and the request's body may be read until the
    /// response's body ends.
    ///
    /// # Errors
    ///
    /// [`Abort`] when no response can be given: the front end resets the stream.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or the response's body, cancels the exchange: the client is gone.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Result<Response, Abort>>;

    /// Completes an answer of the front end's own to a request of `client` that it has rejected, and that the handler
    /// does not see.
    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        let _ = (client, response);
    }
}

/// Why an exchange ends without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// The request's body failed while it was forwarded: the client reset it, or it violated the protocol. The front
    /// end has the cause.
    Request,
    /// litequic is at fault.
    Internal,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "the request's body failed",
            Self::Internal => "internal error",
        })
    }
}

impl std::error::Error for Abort {}
