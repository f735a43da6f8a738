//! Holds the traces of the process: the setting in force, and the exporter.

use super::collector_state::{CollectorState, SharedCollectorState};
use super::exporter::{Exporter, SpanQueue};
use super::metrics::{ExportMetrics, SpanMetrics};
use super::span_recorder::WorkerSpans;
use super::trace_setting::{CollectorTls, CurrentTraceSetting, TraceSetting};
use crate::Exemplars;
use arc_swap::ArcSwapOption;
use litequic_config::Config;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Maximum number of pieces in the queue between workers and the exporter: with 4 MiB of spans, those of quiet workers
/// too.
const MAX_PIECES: usize = 1_024;
/// Longest time that the end of the process waits for the last spans.
const LAST_SPANS_TIMEOUT: Duration = Duration::from_secs(2);

/// Traces of the process: the setting in force, and the exporter.
#[derive(Debug)]
pub struct Tracing {
    now: CurrentTraceSetting,
    queue: SpanQueue,
    collector_state: SharedCollectorState,
    exporter: Mutex<Option<ExporterTask>>,
}

/// Task of the exporter, which ends when this is dropped.
#[derive(Debug)]
struct ExporterTask {
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Tracing {
    /// Starts the exporter, on a tokio runtime, and traces requests as `config` says. Durations of sampled requests go
    /// to `exemplars`.
    pub fn start_exporter(
        config: &Config,
        tls: Option<CollectorTls>,
        metrics: Arc<ExportMetrics>,
        exemplars: Arc<Exemplars>,
    ) -> Arc<Self> {
        let (pieces, receiver) = mpsc::channel(MAX_PIECES);
        let (stop, stopped) = oneshot::channel();
        let board = SharedCollectorState::default();
        let exporter = Exporter::new(receiver, Arc::clone(&metrics), exemplars, Arc::clone(&board));
        let task = JoinSet::from_iter([exporter.run_exporter(stopped)]);
        let now = Arc::new(ArcSwapOption::from_pointee(TraceSetting::new(config, tls)));
        let exporter = Mutex::new(Some(ExporterTask { stop, task }));
        Arc::new(Self { now, queue: SpanQueue { pieces, metrics }, collector_state: board, exporter })
    }

    /// Has workers follow `config`, from their next request on. Spans that they have written go to the former
    /// destination.
    pub fn apply_trace_config(&self, config: &Config, tls: Option<CollectorTls>) {
        let setting = TraceSetting::new(config, tls);
        let is_other = |now: &TraceSetting| {
            setting.as_ref().is_none_or(|next| next.destination.endpoint != now.destination.endpoint)
        };
        if self.now.load().as_deref().is_none_or(is_other) {
            *self.collector_state.lock() = CollectorState::default();
        }
        self.now.store(setting.map(Arc::new));
    }

    /// Whether the TLS in force to the collector differs from `tls`.
    pub fn has_other_collector_tls(&self, tls: Option<&CollectorTls>) -> bool {
        self.now.load().as_deref().is_some_and(|now| now.destination.tls.as_ref() != tls)
    }

    /// TLS in force to the collector.
    pub fn collector_tls(&self) -> Option<CollectorTls> {
        self.now.load().as_deref()?.destination.tls.clone()
    }

    /// URL and state of the collector; `None` if traces are off.
    pub fn collector_status(&self) -> Option<(String, CollectorState)> {
        let now = self.now.load();
        let endpoint = now.as_deref()?.destination.endpoint.to_string();
        Some((endpoint, self.collector_state.lock().clone()))
    }

    /// Waits until the spans of ended workers are sent; at most two seconds.
    pub async fn finish_spans(&self) {
        let exporting = self.exporter.lock().take();
        if let Some(ExporterTask { stop, mut task }) = exporting {
            // An error means that the exporter has ended.
            let _ = stop.send(());
            let _ = timeout(LAST_SPANS_TIMEOUT, task.join_next()).await;
        }
    }

    /// A worker's recorder of spans, which counts in `metrics`.
    pub fn worker_spans(&self, metrics: Arc<SpanMetrics>) -> WorkerSpans {
        WorkerSpans::new(Arc::clone(&self.now), self.queue.clone(), metrics)
    }
}
