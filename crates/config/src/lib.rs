//! The configuration as other modules use it: typed, checked, with every default filled in.
//!
//! [`parse`] turns TOML into it in one step and names every fault at once. Nothing below re-checks what a
//! [`Config`] holds.
//!
//! It uses `litequic-base` alone (networks of addresses). Crates with settings use it, and the program.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod access;
mod acme;
mod admin;
mod auth;
mod certificates;
mod config;
mod document;
mod laboratory;
mod limits;
mod listen;
mod log;
mod matching;
mod origin;
mod rate_limit;
mod reading;
mod redirect;
mod reload;
mod reserved;
mod respond;
mod route;
mod rules;
mod server_id;
mod timeouts;
mod traces;
mod transport;

pub use access::{AccessField, AccessFormat, AccessLog, AccessTarget, Fraction};
pub use acme::{Acme, AcmeChallenge, AcmeHost, AcmeKey, Eab};
pub use admin::{Admin, AdminSocket};
pub use auth::Auth;
pub use certificates::{CertificateFiles, ClientCertificates, Verify};
pub use config::{Config, Live};
pub use document::{Change, Draft, Findings, ambiguities, load, metric, needs_restart, parse, reference, schema};
pub use laboratory::Laboratory;
pub use limits::{Limits, MemoryLimit, Sources};
pub use listen::{Listen, Workers};
pub use log::{Level, Log, LogFormat};
pub use matching::{Match, Pattern, Weight};
pub use origin::{
    AmbiguousFields, Balance, CheckIdle, Health, Origin, OriginAddress, OriginAddressError, OriginServer, OriginTls,
    PathReading, Statuses, StatusesError, Sticky, StickyBy, TlsVersion,
};
pub use rate_limit::{RateLimit, RateLimitBy};
pub use reading::{Fault, Faults, Network, Warning, foreign_variable, listen_address};
pub use redirect::Redirect;
pub use reload::{OnChange, Reload};
pub use reserved::{ReservedField, ReservedFields};
pub use respond::{FixedBody, Respond};
pub use route::{Route, Target};
pub use rules::{
    ErrorPages, Errors, HeaderRules, RouteTimeouts, Template, TemplatePart, Variable, body_type, media_type,
    request_field_fault, response_field_fault,
};
pub use server_id::{ServerId, ServerIdShape};
pub use timeouts::Timeouts;
pub use traces::{TraceEndpoint, TraceParent, TraceProtocol, Traces};
pub use transport::{AckFrequency, Congestion, Io, LiteQuic};
