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
mod changes;
mod config;
mod consistency;
mod diff;
mod draft;
mod examples;
mod fault;
mod file;
mod foreign;
mod keys;
mod laboratory;
mod limits;
mod listen;
mod log;
mod matching;
mod names;
mod origin;
mod position;
mod rate_limit;
mod redirect;
mod reference;
mod reload;
mod removed;
mod reserved;
mod respond;
mod route;
mod rule_readers;
mod rules;
mod section;
mod server_id;
mod source;
mod table;
mod timeouts;
mod traces;
mod transport;
mod values;

pub use access::{AccessField, AccessFormat, AccessLog, AccessTarget, Fraction};
pub use acme::{Acme, AcmeChallenge, AcmeHost, AcmeKey, Eab};
pub use admin::{Admin, AdminSocket};
pub use auth::Auth;
pub use certificates::{CertificateFiles, ClientCertificates, Verify};
pub use config::{Config, Live};
pub use consistency::ambiguities;
pub use diff::Change;
pub use draft::{Draft, Findings};
pub use fault::{Fault, Faults, Warning};
pub use file::{load, parse, schema};
pub use foreign::foreign_variable;
pub use keys::{metric, needs_restart};
pub use laboratory::Laboratory;
pub use limits::{Limits, MemoryLimit, Sources};
pub use listen::{Listen, Workers};
pub use litequic_base::network::Network;
pub use log::{Level, Log, LogFormat};
pub use matching::{Match, Pattern, Weight};
pub use names::listen_address;
pub use origin::{
    AmbiguousFields, Balance, CheckIdle, Health, Origin, OriginAddress, OriginAddressError, OriginServer, OriginTls,
    PathReading, Statuses, StatusesError, Sticky, StickyBy, TlsVersion,
};
pub use rate_limit::{RateLimit, RateLimitBy};
pub use redirect::Redirect;
pub use reference::reference;
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
