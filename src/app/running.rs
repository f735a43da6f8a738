//! Represents a litequic that serves, until it has drained and ended.

use super::active_state::ActiveState;
use super::handover::HandoverListener;
use super::metrics::ProcessMetrics;
use super::service;
use super::worker::WorkerReport;
use litequic_base::lifecycle::{Lifecycle, ProcessPhase};
use litequic_base::short_duration::format_short_duration;
use litequic_config::Timeouts;
use litequic_telemetry::access_log::AccessLogger;
use parking_lot::Mutex;
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

/// Time for which this process serves as before once another one has taken over: clients that were steered to it at
/// that moment, with a handshake and a request, are served here.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);

/// Timeout of workers' connections to close once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Time between two log lines while the process drains.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Oldest client of a worker, with the time of its connection: written by the worker while it drains, read by the
/// control thread.
pub(super) type OldestClient = Mutex<Option<(SocketAddr, std::time::Instant)>>;

/// A worker ended without a request to end: its sockets are dead, so the process must end.
#[derive(Debug, thiserror::Error)]
#[error("worker {0} ended unexpectedly")]
pub struct WorkerDied(usize);

/// A litequic that serves.
pub struct RunningProcess {
    /// The addresses for HTTP/3, in the order of `[listen] udp`.
    pub addresses: Vec<SocketAddr>,
    /// The addresses for HTTP/1.1 and HTTP/2 over TCP, in the order of `[listen] tcp`.
    pub tcp: Vec<SocketAddr>,
    /// The addresses for redirects from plain HTTP, in the order of `[listen] redirect`.
    pub redirects: Vec<SocketAddr>,
    /// Address of `[admin] listen`.
    pub admin: Option<SocketAddr>,
    /// Address of `[admin] probes`.
    pub probes: Option<SocketAddr>,
    /// Path of `[admin] socket`, or of the default socket.
    pub admin_socket: Option<PathBuf>,
    /// Socket at which a successor takes over; `None` if none can.
    pub handover_socket: Option<PathBuf>,
    /// Metrics of the process.
    pub metrics: Arc<ProcessMetrics>,
    /// Phase of the process: [`ProcessPhase::Leaving`] drains, [`ProcessPhase::Stopping`] stops at once.
    pub lifecycle: Lifecycle,
    pub(super) in_force: ActiveState,
    /// Access log, whose file can be reopened.
    pub access_log: Arc<AccessLogger>,
    /// Indices of the workers that have not ended.
    pub(super) workers: BTreeSet<usize>,
    /// Oldest client of each worker, by the worker's index.
    pub(super) oldest: Vec<Arc<OldestClient>>,
    /// Duplicates of every worker's sockets, never read: the kernel's program picks a socket by its position in the
    /// group, and a worker that ends before the others would change the positions.
    pub(super) handover: HandoverListener,
    pub(super) reports: mpsc::UnboundedReceiver<WorkerReport>,
    /// Tasks of the admin listeners and health checks, which end with [`ProcessPhase::Stopping`].
    pub(super) tasks: JoinSet<()>,
    /// Task of the systemd watchdog; dropping it ends the task.
    pub(super) _watchdog: JoinSet<()>,
}

impl RunningProcess {
    /// Waits until litequic has drained and ended, as [`RunningProcess::lifecycle`] requests.
    ///
    /// # Errors
    ///
    /// [`WorkerDied`]. Requests of other workers are cut off.
    pub async fn wait_for_end(mut self) -> Result<(), WorkerDied> {
        let mut watch = self.lifecycle.watch_phase();
        let mut phase = ProcessPhase::Ready;
        // A worker's end restarts the loop, and must not lengthen the phase.
        let mut since = Instant::now();
        let mut next_line = since + REPORT_INTERVAL;
        // Workers without a connection, which refuse new ones until all workers have none.
        let mut drained = BTreeSet::new();
        let outcome = loop {
            if self.workers.is_empty() {
                break Ok(());
            }
            if self.workers.is_subset(&drained) && phase == ProcessPhase::Draining {
                // No connection is cut off, so that no line about that is logged.
                self.lifecycle.advance_phase(ProcessPhase::Stopping);
                phase = ProcessPhase::Stopping;
                since = Instant::now();
            }
            let (timeouts, grace, handed_over) =
                (self.current_timeouts(), self.leaving_grace(), self.handover.wait_for_handover());
            let next = async {
                match phase {
                    ProcessPhase::Starting | ProcessPhase::Ready => watch.wait_for_phase(ProcessPhase::Leaving).await,
                    ProcessPhase::Leaving => {
                        let _ = timeout_at(since + grace, watch.wait_for_phase(ProcessPhase::Draining)).await;
                    }
                    ProcessPhase::Draining => {
                        let _ = timeout_at(since + timeouts.drain, watch.wait_for_phase(ProcessPhase::Stopping)).await;
                    }
                    ProcessPhase::Stopping => sleep_until(since + STOP_GRACE).await,
                }
            };
            select! {
                biased;
                Some(report) = self.reports.recv() => {
                    match report {
                        WorkerReport::Drained(index) => _ = drained.insert(index),
                        // Workers may have seen a phase that this loop has not seen yet.
                        WorkerReport::Ended { index, in_order } => match self.lifecycle.current_phase() {
                            ProcessPhase::Draining | ProcessPhase::Stopping if in_order => {
                                self.workers.remove(&index);
                            }
                            _ => break Err(WorkerDied(index)),
                        },
                    }
                }
                () = handed_over, if self.lifecycle.current_phase() < ProcessPhase::Leaving => {
                    self.lifecycle.advance_phase(ProcessPhase::Leaving);
                }
                () = sleep_until(next_line), if phase == ProcessPhase::Draining => {
                    let left = (since + timeouts.drain).saturating_duration_since(Instant::now());
                    log_drain_progress(&self.metrics, &self.oldest, left);
                    next_line += REPORT_INTERVAL;
                }
                () = next => {
                    phase = match phase {
                        ProcessPhase::Starting | ProcessPhase::Ready => self.enter_phase(ProcessPhase::Leaving),
                        ProcessPhase::Leaving => self.enter_phase(ProcessPhase::Draining),
                        ProcessPhase::Draining => self.enter_phase(ProcessPhase::Stopping),
                        ProcessPhase::Stopping => break Ok(()), // a worker that does not end ends with the process
                    };
                    since = Instant::now();
                    next_line = since + REPORT_INTERVAL;
                }
            }
        };
        self.lifecycle.advance_phase(ProcessPhase::Stopping);
        while self.tasks.join_next().await.is_some() {}
        tokio::join!(self.access_log.finish_access_log(), self.in_force.traces.finish_spans());
        outcome
    }

    /// Time for which new connections are still accepted. After a handover, load balancers need no time to notice.
    fn leaving_grace(&self) -> Duration {
        if self.handover.is_handed_over() { HANDOVER_GRACE } else { self.current_timeouts().drain_grace }
    }

    fn current_timeouts(&self) -> Timeouts {
        self.in_force.config.load().timeouts
    }

    /// Advances to `phase`, unless a later one was set meanwhile.
    fn enter_phase(&self, phase: ProcessPhase) -> ProcessPhase {
        self.lifecycle.advance_phase(phase);
        let now = self.lifecycle.current_phase();
        match now {
            ProcessPhase::Starting | ProcessPhase::Ready => {}
            ProcessPhase::Leaving => {
                // With another process in its place the service goes on.
                if !self.handover.is_handed_over() {
                    service::notify_stopping();
                }
                tracing::info!(grace = format_short_duration(self.leaving_grace()), "leaving: no longer ready");
            }
            ProcessPhase::Draining => {
                tracing::info!(
                    deadline = format_short_duration(self.current_timeouts().drain),
                    "draining: requests may finish"
                );
            }
            ProcessPhase::Stopping => tracing::info!("stopping"),
        }
        now
    }
}

/// Logs the open connections, requests and tunnels of all workers, the oldest of their clients, and the remaining time.
fn log_drain_progress(metrics: &ProcessMetrics, oldest: &[Arc<OldestClient>], left: Duration) {
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
