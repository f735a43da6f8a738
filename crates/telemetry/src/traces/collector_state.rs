//! What is known of the collector.

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

/// What is known of the collector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorState {
    /// When it accepted spans last.
    pub accepted_at: Option<SystemTime>,
    /// Why it did not accept the last spans, or not all; `None` if it did.
    pub problem: Option<String>,
}

/// What is known of the collector, written by the exporter.
pub(super) type SharedCollectorState = Arc<Mutex<CollectorState>>;
