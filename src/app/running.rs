//! A litequic that serves, until it has drained and ended.

use super::active_state::ActiveState;
use super::draining::{self, OldestClient, REPORT_INTERVAL};
use super::handover::HandoverListener;
use super::metrics::ProcessMetrics;
use super::service;
use super::worker::{Worker, WorkerReport};
use litequic_base::lifecycle::{Lifecycle, ProcessPhase};
use litequic_config::Timeouts;
use litequic_telemetry::access_log::AccessLogger;
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// How long this process serves as before once another one has taken over: so that clients that were steered to it in
/// that moment, with a handshake and a request to make, are served here.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);

/// How long workers may take to close their connections once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A worker ended without a request to: its sockets are dead, so the process must end.
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
    /// `[admin] listen`
    pub admin: Option<SocketAddr>,
    /// `[admin] probes`
    pub probes: Option<SocketAddr>,
    /// `[admin] socket`, or the default one.
    pub admin_socket: Option<PathBuf>,
    /// Everything that is counted.
    pub metrics: Arc<ProcessMetrics>,
    /// Advance it to [`Phase::Leaving`] to drain, to [`Phase::Stopping`] to stop at once.
    pub lifecycle: Lifecycle,
    pub(super) in_force: ActiveState,
    /// Reopens the access log's file, if there is one.
    pub access_log: Arc<AccessLogger>,
    pub(super) workers: Vec<Worker>,
    /// By worker.
    pub(super) oldest: Vec<Arc<OldestClient>>,
    /// Duplicates of every worker's sockets, never read: the kernel's program picks a socket by its place in the group,
    /// and a worker that ends before the others would change their places.
    pub(super) handover: HandoverListener,
    pub(super) reports: mpsc::UnboundedReceiver<WorkerReport>,
    /// The admin listeners and the health checks; they end with [`Phase::Stopping`].
    pub(super) tasks: JoinSet<()>,
    /// The systemd watchdog's task, which ends when this is dropped.
    pub(super) _watchdog: JoinSet<()>,
}

impl RunningProcess {
    /// Waits until litequic has ended: requested by [`Running::lifecycle`], after the drain.
    ///
    /// # Errors
    ///
    /// [`WorkerDied`]. What the other workers were doing is cut off.
    pub async fn wait_for_end(mut self) -> Result<(), WorkerDied> {
        let mut watch = self.lifecycle.watch_phase();
        let mut phase = ProcessPhase::Ready;
        // A worker's end, which begins the loop anew, does not lengthen the phase.
        let mut since = Instant::now();
        let mut next_line = since + REPORT_INTERVAL;
        // Workers without a connection: they refuse new ones until all are.
        let mut drained = BTreeSet::new();
        let outcome = loop {
            if self.workers.is_empty() {
                break Ok(());
            }
            let is_drained = self.workers.iter().all(|worker| drained.contains(&worker.worker_index()));
            if is_drained && phase == ProcessPhase::Draining {
                // Nothing is cut off: the log need not say that.
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
                        wait_until_or(since + grace, watch.wait_for_phase(ProcessPhase::Draining)).await
                    }
                    ProcessPhase::Draining => {
                        wait_until_or(since + timeouts.drain, watch.wait_for_phase(ProcessPhase::Stopping)).await
                    }
                    ProcessPhase::Stopping => sleep_until(since + STOP_GRACE).await,
                }
            };
            select! {
                biased;
                Some(report) = self.reports.recv() => {
                    let ended = match report {
                        WorkerReport::Drained(index) => {
                            drained.insert(index);
                            continue;
                        }
                        WorkerReport::Ended(ended) => ended,
                    };
                    // Workers may have seen a phase that this loop has not seen yet.
                    if self.lifecycle.current_phase() < ProcessPhase::Draining || !ended.in_order {
                        break Err(WorkerDied(ended.index));
                    }
                    self.workers.retain(|worker| worker.worker_index() != ended.index);
                }
                () = handed_over, if self.lifecycle.current_phase() < ProcessPhase::Leaving => {
                    self.lifecycle.advance_phase(ProcessPhase::Leaving);
                }
                () = sleep_until(next_line), if phase == ProcessPhase::Draining => {
                    let left = (since + timeouts.drain).saturating_duration_since(Instant::now());
                    draining::log_drain_progress(&self.metrics, &self.oldest, left);
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

    /// How long new connections are still accepted. A process that was taken over from need not wait for balancers.
    fn leaving_grace(&self) -> Duration {
        if self.handover.is_handed_over() { HANDOVER_GRACE } else { self.current_timeouts().drain_grace }
    }

    fn current_timeouts(&self) -> Timeouts {
        self.in_force.config.load().timeouts
    }

    /// Moves on to `phase`, unless a later one was set meanwhile.
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
                tracing::info!(grace = ?self.leaving_grace(), "leaving: no longer ready");
            }
            ProcessPhase::Draining => {
                tracing::info!(deadline = ?self.current_timeouts().drain, "draining: requests may finish")
            }
            ProcessPhase::Stopping => tracing::info!("stopping"),
        }
        now
    }
}

/// Waits for `event`, until `deadline` at most.
async fn wait_until_or(deadline: Instant, event: impl Future<Output = ()>) {
    select! {
        () = sleep_until(deadline) => {}
        () = event => {}
    }
}
