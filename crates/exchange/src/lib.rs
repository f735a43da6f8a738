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
pub use alt_svc::format_alt_svc;
pub use authority::{Authority, LastAuthority, check_authority, strip_port};
pub use body::{Body, BodyCapacity, BodyError};
pub use client::{Client, HostCoverage, Protocol, to_canonical_address};
pub use counter::ByteCounter;
pub use date::{set_date, with_date};
pub use exchange::{Abort, Exchange, Handler, rarely_has_body};
pub use fields::{DecodedFields, DecodedLine, FieldLine, FieldName, FieldNameRef, Fields, NameId, NameSet, Span, name};
pub use forwarded::{ForwardedValues, LastForwarded};
pub use head::{Head, Request, Response};
pub use identity::{CertificateRequest, ClientCertificate, ClientTls, TlsIdentity};
pub use idle::IdleTimer;
pub use interim::{InterimReceiver, InterimSender};
pub use linger::{LingerBudget, LingerLimit};
pub use path::check_path;
pub use patience::{ClientDeadline, MinimumRate, TimeoutCause};
pub use priority::read_priority_field;
pub use reading::{MAX_READINGS, may_have_readings, path_readings};
pub use record::{
    Propagation, RecordGuard, RecordListener, RecordedFacts, RequestEnd, RequestRecord, RequestRecorder, RequestText,
    TraceStart, Tracer, elapsed_since,
};
pub use trace::{AttemptSpan, RequestTrace, SpanId, TRACEPARENT_LEN, TraceFlags, TraceId, Traceparent, write_hex};
pub use tunnel::{ExpiryCause, TUNNEL_BUFFER, Tunnel, TunnelExpiry, TunnelStream, Upgrade};
pub use whole::WholeBody;
