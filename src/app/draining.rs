//! Logs the progress of a drain: connections, requests and tunnels that are still open.

use super::metrics::ProcessMetrics;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time between two log lines while the process drains.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Oldest client of a worker, with the time of its connection: written by the worker while it drains, read by the
/// control thread.
pub(super) type OldestClient = Mutex<Option<(SocketAddr, Instant)>>;

/// Logs the open connections, requests and tunnels of all workers, the oldest of their clients, and the remaining time.
pub(super) fn log_drain_progress(metrics: &ProcessMetrics, oldest: &[Arc<OldestClient>], left: Duration) {
    let connections =
        metrics.sum_over_workers(|worker| worker.http3.connections_open.get() + worker.tcp.tcp_connections_open.get());
    let requests = metrics.sum_over_workers(|worker| worker.shared.requests_open.get());
    let tunnels = metrics.sum_over_workers(|worker| worker.proxy.tunnels_open.get());
    let oldest = oldest.iter().filter_map(|worker| *worker.lock()).min_by_key(|(_, since)| *since);
    let oldest_client = oldest.map(|(client, _)| tracing::field::display(client));
    let connected_for = oldest.map(|(_, since)| since.elapsed().as_secs());
    tracing::info!(
        connections,
        requests,
        tunnels,
        oldest_client,
        connected_for,
        left = left.as_secs(),
        "draining: waiting for open connections"
    );
}
