//! What operators see of certificates that litequic obtains, and the renewals that they order.

use super::plan::Validity;
use crate::config::AcmeHost;
use serde_json::{Value as Json, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The state of a host's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is valid, and not to be renewed yet.
    Valid,
    /// It is to be renewed.
    Due,
    /// There is none, or it has expired.
    Missing,
}

impl State {
    /// As metrics and `/status` have it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Due => "due",
            Self::Missing => "missing",
        }
    }
}

/// A host of `[[acme]]`.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) host: String,
    pub(super) state: State,
    pub(super) validity: Option<Validity>,
    pub(super) directory: String,
    /// When its certificate is ordered next.
    pub(super) next: u64,
    /// That step continues an order.
    pub(super) resumes: bool,
    /// Orders that failed in succession, and the one that runs.
    pub(super) failures: u64,
    pub(super) failing_since: Option<u64>,
    pub(super) problem: Option<String>,
}

/// The states of all hosts. Written by the manager, read by the admin interface.
#[derive(Debug, Default)]
pub struct Board {
    entries: Mutex<Vec<Entry>>,
    orders: Mutex<Vec<AcmeHost>>,
    changed: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub(super) fn set(&self, entries: Vec<Entry>) {
        *locked(&self.entries) = entries;
    }

    /// Has the manager look at the configuration, which has changed.
    pub fn change(&self) {
        self.changed.notify_one();
    }

    /// Waits for a change of the configuration, or an order.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take_orders(&self) -> Vec<AcmeHost> {
        std::mem::take(&mut *locked(&self.orders))
    }

    /// For `/status`: null without `[[acme]]`.
    pub fn json(&self) -> Json {
        let entries = locked(&self.entries);
        let one = |entry: &Entry| {
            json!({
                "host": entry.host,
                "state": entry.state.name(),
                "valid_from": entry.validity.map(|validity| validity.from),
                "expires": entry.validity.map(|validity| validity.until),
                "directory": entry.directory,
                "next": entry.next,
                "resumes": entry.resumes,
                "attempts": entry.failures,
                "failing_since": entry.failing_since,
                "problem": entry.problem,
            })
        };
        if entries.is_empty() { Json::Null } else { entries.iter().map(one).collect() }
    }
}
