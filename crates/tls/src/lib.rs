//! TLS 1.3 for QUIC: certificates by SNI, clients' own certificates, the server's sessions with their tickets, and the
//! client's side for `litequic get`; and the configurations of TLS over TCP, from clients and to origins.
//!
//! It uses `litequic-config`, `litequic-exchange` (a client's identity) and `litequic-telemetry`. The program uses it
//! and gives its configurations of rustls to the front ends and the proxy, which do not know it.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod algorithm;
mod authorities;
mod certificate;
mod certificate_error;
mod challenge;
mod client;
mod client_certificates;
mod encoding;
mod hello;
mod keys;
mod metrics;
mod origin;
mod presented;
mod provider;
mod resolver;
mod revocation;
mod rules;
mod self_signed;
mod server;
mod server_tls;
mod session;
mod suites;
mod tcp;
mod tickets;
mod warning;

pub use algorithm::KeyAlgorithm;
pub use authorities::Authorities;
pub use certificate::{Certificate, Names};
pub use certificate_error::{CertificateError, CertificateErrors};
pub use challenge::challenge_config;
pub use client::{Trust, TrustError, client_config, client_config_as, client_config_noting};
pub use client_certificates::{Asking, Policy, subject};
pub use metrics::Metrics;
pub use origin::{OriginTlsFault, OriginTlsFiles, SystemRoots, refusal};
pub use presented::{Distrust, Presented, ServerCertificate, date};
pub use provider::ServersOnly;
pub use resolver::{CertificateResolver, CertificateStore, Unanswered, Unserved};
pub use self_signed::{SelfSigned, self_signed, self_signed_with};
pub use server::server_config;
pub use server_tls::ServerTls;
pub use tcp::TcpTls;
pub use warning::CertificateWarning;
