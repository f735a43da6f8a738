//! State of the collector, for `/status`.

use parking_lot::Mutex;
use std::{sync::Arc, time::SystemTime};

/// State of the collector, by its last responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorState {
    /// Time at which the collector last accepted spans.
    pub accepted_at: Option<SystemTime>,
    /// Reason for which the collector did not accept all of the last spans; `None` if it did.
    pub problem: Option<String>,
}

/// State of the collector, which the exporter writes.
pub(super) type SharedCollectorState = Arc<Mutex<CollectorState>>;
