//! Obtains and renews certificates by ACME (RFC 8555) for the hosts of `[[acme]]`, alone or as one of several replicas
//! that share a folder.
//!
//! `plan` decides when a certificate is ordered (pure), and `folder` stores the state that must survive a crash.
//! `order` and `account` use instant-acme over `ca_client`; `failure` describes failures. `challenge_responses` answers
//! the CA's validation requests, and `dns` sets records. `acme_client` runs all of this, and `host_table` has the
//! results for operators.
//!
//! Uses `litequic-base`, `litequic-config` and `litequic-telemetry`. The program uses this crate.
// String slices panic at an index within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod account;
mod acme_client;
mod ca_client;
mod challenge_responses;
mod dns;
mod failure;
mod folder;
mod host_table;
mod metrics;
mod order;
mod plan;
mod stored_certificates;

pub use acme_client::{AcmeClient, AcmeHooks, DirectoryTls, ServeCertificate};
pub use challenge_responses::{ChallengeCertificate, ChallengeResponses};
pub use host_table::{AcmeHostEntry, AcmeHostTable, CertificateState};
pub use metrics::AcmeMetrics;
pub use plan::Validity;
pub use stored_certificates::{check_eab_file, is_folder_exposed, read_stored_certificates, report_stored_state};
