//! Defines the interface between the front ends (HTTP/3, TCP) and the proxy: one request, one response, streamed; which
//! authorities, paths and fields are accepted; HTTP/1.1 and HTTP/2 as bytes, and priorities.
//!
//! The crate uses `litequic-base` and `litequic-config`. Front ends, the proxy and `litequic-telemetry` use it; it
//! depends on none of them.
// Slicing a string within a character panics.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod address;
mod alt_svc;
mod authority;
mod body;
mod byte_counter;
mod client;
mod client_deadline;
mod exchange;
pub mod field_compression;
pub mod field_syntax;
mod fields;
mod forwarded_values;
mod head;
pub mod http1;
pub mod http2;
mod http_date;
mod interim_channel;
mod linger_budget;
mod path_check;
mod path_readings;
pub mod priority;
mod proxy_header;
mod request_record;
pub mod terms;
mod tls_identity;
mod trace_context;
mod tunnel;
pub mod well_formed;
mod whole_body;

pub use address::write_address;
pub use alt_svc::{AdvertisedPort, format_alt_svc};
pub use authority::{Authority, LastAuthority, check_authority, merge_authorities, strip_port};
pub use body::{Body, BodyCapacity, BodyError};
pub use byte_counter::ByteCounter;
pub use client::{Client, HostCoverage, Protocol, to_canonical_address};
pub use client_deadline::{ClientDeadline, DeadlineSwitch, MinimumRate, TimeoutCause};
pub use exchange::{Abort, Exchange, Handler, rarely_has_body};
pub use fields::{DecodedFields, DecodedLine, FieldLine, FieldName, FieldNameRef, Fields, NameId, NameSet, Span, name};
pub use forwarded_values::{ForwardedValues, LastForwarded};
pub use head::{Head, Request, Response};
pub use http_date::{set_date, with_date};
pub use interim_channel::{InterimReceiver, InterimSender};
pub use linger_budget::{LingerBudget, LingerLimit};
pub use path_check::check_path;
pub use path_readings::{MAX_READINGS, may_have_readings, path_readings};
pub use priority::read_priority_field;
pub use proxy_header::{parse_proxy_header, split_proxied_datagram};
pub use request_record::{
    Propagation, RecordGuard, RecordListener, RecordedFacts, RequestEnd, RequestRecord, RequestRecorder, RequestText,
    TraceStart, Tracer, elapsed_since,
};
pub use tls_identity::{CertificateRequest, ClientCertificate, ClientTls, TlsIdentity};
pub use trace_context::{
    AttemptSpan, RequestTrace, SpanId, TRACEPARENT_LEN, TraceFlags, TraceId, Traceparent, write_hex,
};
pub use tunnel::{ExpiryCause, TUNNEL_BUFFER, Tunnel, TunnelExpiry, Upgrade};
pub use whole_body::WholeBody;
