//! Certificates by ACME (RFC 8555): litequic obtains and renews those of the hosts of `[[acme]]` by itself, alone or as one of
//! several replicas that share a folder.
//!
//! `plan` decides when a certificate is ordered (pure), `folder` stores what must survive a crash, `order` and `account` talk to
//! the CA by instant-acme over `http`, `answers` has what the CA's validation requests get, and `manager` puts it together.

mod account;
mod answers;
mod board;
mod folder;
mod http;
mod manager;
mod metrics;
mod order;
mod plan;

pub use answers::{Answers, ChallengeCertificate};
pub use board::Board;
pub use manager::{Manager, Wiring};
pub use metrics::Metrics;

use crate::config::{Acme, AcmeHost};
use folder::Folder;

/// The certificates that are stored for the hosts of `tables`, with their keys, in PEM. Files that cannot be used are left for the
/// [`Manager`] to report. Blocks on the file system.
pub fn stored(tables: &[Acme]) -> Vec<(AcmeHost, String)> {
    let hosts = tables.iter().flat_map(|table| table.hosts.iter().map(move |host| (table, host)));
    let stored = hosts.filter_map(|(table, host)| {
        let stored = Folder::new(&table.folder).certificate(host).ok()??;
        Some((host.clone(), stored.pem))
    });
    stored.collect()
}
