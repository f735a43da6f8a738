//! Provides the configuration to other crates: typed, checked, with every default filled in.
//!
//! [`parse_config`] converts TOML in one step and reports every fault at once. No other code has to check the values of
//! a [`Config`] again.
//!
//! Uses `litequic-base` alone (networks of addresses). Crates with settings use this crate, and the program does.
// String slices panic at an index within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod access_log;
mod acme;
mod admin;
mod auth;
mod certificates;
mod config;
mod document;
mod fixed_response;
mod laboratory;
mod limits;
mod listen;
mod log;
mod match_conditions;
mod origin;
mod rate_limit;
mod reading;
mod redirect;
mod reload;
mod reserved_fields;
mod route;
mod rules;
mod server_id;
mod timeouts;
mod traces;
mod transport;

pub use access_log::{AccessField, AccessLog, Fraction};
pub use acme::{Acme, AcmeChallenge, AcmeHost, AcmeKey, Eab};
pub use admin::{Admin, AdminSocket, addresses_overlap};
pub use auth::Auth;
pub use certificates::{CertificateFiles, ClientCertificates, VerifyMode};
pub use config::{Config, LiveConfig};
pub use document::{
    ConfigChange, FaultCollector, ParsedConfig, find_ambiguous_routes, find_bypassed_paths, json_schema, limit_metric,
    load_config, parse_config, reference_page, restart_keys,
};
pub use fixed_response::{FixedBody, FixedResponse};
pub use laboratory::Laboratory;
pub use limits::{Limits, MemoryLimit, Sources};
pub use listen::{Listen, ProxyProtocolUdp};
pub use litequic_base::log_writer::LogTarget;
pub use log::{LogConfig, LogFormat, LogSeverity};
pub use match_conditions::{MatchConditions, Specificity, ValuePattern};
pub use origin::{
    AmbiguousFields, Balance, HealthCheck, OriginAddress, OriginAddressError, OriginConfig, OriginProtocol,
    OriginServer, OriginTls, PathReading, StatusRange, StatusRangeError, Sticky, TlsVersion,
};
pub use rate_limit::{RateLimit, RateLimitBy};
pub use reading::{ConfigFault, ConfigFaults, ConfigWarning, Network, find_foreign_variable, parse_listen_address};
pub use redirect::Redirect;
pub use reload::{OnChange, ReloadConfig};
pub use reserved_fields::{ReservedField, ReservedFields};
pub use route::{RouteConfig, RouteTarget};
pub use rules::{
    ErrorPages, ErrorStatuses, HeaderRules, RouteTimeouts, Template, TemplatePart, Variable, body_media_type,
    page_media_type, request_field_fault, response_field_fault,
};
pub use server_id::{ServerId, ServerIdShape};
pub use timeouts::Timeouts;
pub use traces::{TraceEndpoint, TraceParent, TraceProtocol, Traces};
pub use transport::{AckFrequency, Congestion, Io, LiteQuic};
