//! Accounts in the receive budget the bytes received on an endpoint's connections: each connection's window is granted
//! when it begins, and its account is kept with s2n-quic's per-connection context.

use super::connections::Connections;
use crate::{
    config::Limits,
    quic::Metrics,
    receive_budget::{ReceiveBudget, WindowGrant},
};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events::RxStreamProgress};
use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// One endpoint's.
///
/// s2n-quic requests a connection's limits and creates its context one after the other: the grant is kept between.
#[derive(Debug, Clone)]
pub(super) struct Grants {
    budget: ReceiveBudget,
    connections: Connections,
    metrics: Arc<Metrics>,
    waiting: Arc<Mutex<Option<WindowGrant>>>,
}

impl Grants {
    pub(super) fn new(budget: ReceiveBudget, connections: Connections, metrics: Arc<Metrics>) -> Self {
        Self { budget, connections, metrics, waiting: Arc::default() }
    }

    /// The window of the connection that begins now, in bytes. Its client is in `network`, or a source of its own.
    pub(super) fn begin(&self, limits: &Limits, network: Option<(IpAddr, u8)>) -> u64 {
        let window = limits.receive_window(self.budget.used());
        if window < limits.connection_receive_buffer.into() {
            self.metrics.limit_receive_buffer.increment();
        }
        let grant = self.budget.begin(window, network);
        // One that did not become a connection is given back.
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner).replace(grant));
        window
    }
}

impl Subscriber for Grants {
    type ConnectionContext = Option<WindowGrant>;

    /// After that of `connections`, which makes the connection's entry.
    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Option<WindowGrant> {
        let grant = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(grant) = &grant {
            self.connections.receives(meta.id, grant.account());
        }
        grant
    }

    /// By how much the connection's flow control has risen with a packet: the ends of its streams, those that were received
    /// and those that were reset.
    fn on_rx_stream_progress(&mut self, grant: &mut Option<WindowGrant>, _: &ConnectionMeta, event: &RxStreamProgress) {
        if let Some(grant) = grant {
            grant.came(event.bytes as u64);
        }
    }
}
