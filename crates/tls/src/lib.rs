//! Provides TLS 1.3 for QUIC: certificates by SNI, clients' certificates, server sessions with tickets, and the
//! client's side for `litequic get`. Also configures TLS over TCP, for clients and to origins.
//!
//! Uses `litequic-base`, `litequic-config`, `litequic-exchange` (a client's identity) and `litequic-telemetry`. The
//! program uses this crate, and passes rustls' configurations to the front ends and the proxy, which do not depend on
//! it.
// String slices panic at an index within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod algorithm;
mod authorities;
mod certificate;
mod certificate_error;
mod certificate_warning;
mod challenge;
mod client;
mod client_certificates;
mod encoding;
mod hello;
mod hello_rules;
mod local_authority;
mod metrics;
mod origin_tls;
mod presented_certificate;
mod provider;
mod resolver;
mod revocation;
mod self_signed;
mod server;
mod server_tls;
mod session;
mod suites;
mod tcp_tls;
mod tickets;
mod traffic_secrets;

pub use algorithm::KeyAlgorithm;
pub use authorities::ClientAuthorities;
pub use certificate::{CertificateNames, LoadedCertificate};
pub use certificate_error::{CertificateError, CertificateErrors};
pub use challenge::challenge_config;
pub use client::{ServerTrust, TrustError, client_config, client_config_recording};
pub use client_certificates::{CertificatePolicy, CertificateRequester, parse_subject};
pub use local_authority::LocalAuthority;
pub use metrics::{CertificateMisses, TlsMetrics};
pub use origin_tls::{OriginTlsFault, OriginTlsFiles, SystemRoots, take_rejection_reason};
pub use presented_certificate::{CertificateRejection, PresentedCertificate, ServerCertificate, format_http_date};
pub use provider::ServersOnly;
pub use resolver::{CertificateResolver, CertificateStore, UnservedCertificate};
pub use self_signed::{SelfSigned, make_self_signed, make_self_signed_with};
pub use server::server_config;
pub use server_tls::ServerTls;
pub use tcp_tls::TcpTls;
