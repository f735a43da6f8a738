//! Certificates by ACME (RFC 8555): litequic obtains and renews those of the hosts of `[[acme]]` by itself, alone or as
//! one of several replicas that share a folder.
//!
//! `plan` decides when a certificate is ordered (pure), `folder` stores what must survive a crash, `order` and
//! `account` talk to the CA by instant-acme over `http`, `failure` says why there is no certificate, `answers` has what
//! the CA's validation requests get, `dns` sets records, and `manager` puts it together.
//!
//! It uses `litequic-base`, `litequic-config` and `litequic-telemetry`. The program uses it.
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
