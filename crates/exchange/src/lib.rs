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
mod client;
mod counter;
mod date;
mod exchange;
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
pub use client::{Client, Covers, Protocol, plain};
pub use counter::ByteCounter;
pub use date::{set_date, with_date};
pub use exchange::{Abort, Exchange, Handler, has_rarely_a_body};
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
