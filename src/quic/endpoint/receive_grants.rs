//! Accounts in the receive budget the bytes received on an endpoint's connections: each connection's window is granted
//! when it begins, and its account is kept with s2n-quic's per-connection context.

use crate::{
    config::Limits,
    quic::metrics::Metrics,
    receive_budget::{ReceiveBudget, WindowGrant},
};
use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Grants of an endpoint's connections.
///
/// s2n-quic requests a connection's limits and creates its context one after the other: the grant is kept between.
#[derive(Debug, Clone)]
pub(super) struct ReceiveGrants {
    budget: ReceiveBudget,
    metrics: Arc<Metrics>,
    pending: Arc<Mutex<Option<WindowGrant>>>,
}

impl ReceiveGrants {
    pub(super) fn new(budget: ReceiveBudget, metrics: Arc<Metrics>) -> Self {
        Self { budget, metrics, pending: Arc::default() }
    }

    /// The window of the connection that begins now, in bytes. Its client is in `network`, or a source of its own.
    pub(super) fn begin(&self, limits: &Limits, network: Option<(IpAddr, u8)>) -> u64 {
        let window = limits.receive_window(self.budget.used());
        if window < limits.connection_receive_buffer.into() {
            self.metrics.limit_receive_buffer.increment();
        }
        let grant = self.budget.begin(window, network);
        // One that did not become a connection is given back.
        drop(self.pending.lock().unwrap_or_else(PoisonError::into_inner).replace(grant));
        window
    }

    /// Takes the grant of the connection whose context is created.
    pub(super) fn take(&self) -> Option<WindowGrant> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
