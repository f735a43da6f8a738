//! Keeps the streams of a connection that wait for their turn.

use crate::connection::stream_state::StreamSendState;
use litequic_exchange::priority::{PriorityOrder, SendList};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Order of one connection's streams. Only one thread locks it.
#[derive(Debug)]
pub(super) struct StreamOrder(Mutex<PriorityOrder<Arc<StreamSendState>>>);

impl StreamOrder {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(PriorityOrder::new(SendList::Front)))
    }

    pub(super) fn lock_order(&self) -> MutexGuard<'_, PriorityOrder<Arc<StreamSendState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
