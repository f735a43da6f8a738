//! Task of the control thread that sends spans to their collector: in batches, one export at a time, again as often as
//! the collector asks for it.

use super::CollectorState;
use super::collector::{CollectorConnection, ExportBody, ExportOutcome, export_spans};
use super::collector_state::SharedCollectorState;
use super::metrics::ExportMetrics;
use super::trace_setting::SpanDestination;
use crate::{Exemplar, Exemplars};
use bytes::Bytes;
use futures_util::future::OptionFuture;
use litequic_config::TraceProtocol;
use litequic_exchange::{SpanId, TraceId};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime},
};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

/// Maximum number of bytes of waiting spans: some seconds of a collector that does not respond.
pub(super) const MAX_WAITING_BYTES: u64 = 4 << 20;

/// Maximum number of bytes of spans in a request, except of a single piece. Collectors accept 4 MiB (gRPC's default).
const MAX_BATCH_BYTES: usize = 512 * 1024;
/// Longest time that spans wait for more.
const BATCH_TIME: Duration = Duration::from_secs(2);
/// Delay before the first retry of a request; each further one doubles it.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay of a retry, unless the collector asks for a longer one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Longest delay that a collector may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Piece of spans that a worker sends to the exporter.
#[derive(Debug)]
pub(super) struct SpanPiece {
    pub(super) destination: Arc<SpanDestination>,
    /// Encoded fields of `ScopeSpans`.
    pub(super) spans: Bytes,
    pub(super) count: u64,
    pub(super) exemplars: Vec<PendingExemplar>,
}

/// Sampled request that may become the exemplar of a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingExemplar {
    /// Family of the histogram.
    pub(super) histogram: &'static str,
    pub(super) bucket: usize,
    pub(super) took: Duration,
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
}

/// Batch of spans for one destination, which waits for more.
#[derive(Debug)]
struct SpanBatch {
    destination: Arc<SpanDestination>,
    /// Pieces that workers have sent.
    pieces: Vec<Bytes>,
    /// Number of bytes in all pieces.
    bytes: usize,
    count: u64,
    /// Latest time at which the batch is sent.
    due: Instant,
}

/// Export of spans to the collector that is being sent, or will be retried.
struct OutgoingExport {
    destination: Arc<SpanDestination>,
    message: ExportBody,
    count: u64,
    /// Number of bytes of the spans in the request.
    bytes: u64,
    /// Delay before the next retry.
    delay: Duration,
    at: Instant,
}

/// Running export, which returns the connection and the outcome.
type ExportInFlight = Pin<Box<dyn Future<Output = (Option<CollectorConnection>, ExportOutcome)> + Send>>;

pub(super) struct Exporter {
    pieces: mpsc::Receiver<SpanPiece>,
    metrics: Arc<ExportMetrics>,
    exemplars: Arc<Exemplars>,
    collector_state: SharedCollectorState,
    backlog: VecDeque<SpanBatch>,
    outgoing: Option<OutgoingExport>,
    connection: Option<(Arc<SpanDestination>, CollectorConnection)>,
    is_failing: bool,
    /// Whether the collector rejected spans of the last export.
    is_rejecting: bool,
    /// Whether the process ends, so that no request is retried.
    is_ending: bool,
}

impl Exporter {
    pub(super) fn new(
        pieces: mpsc::Receiver<SpanPiece>,
        metrics: Arc<ExportMetrics>,
        exemplars: Arc<Exemplars>,
        board: SharedCollectorState,
    ) -> Self {
        Self {
            pieces,
            metrics,
            exemplars,
            collector_state: board,
            backlog: VecDeque::new(),
            outgoing: None,
            connection: None,
            is_failing: false,
            is_rejecting: false,
            is_ending: false,
        }
    }

    /// Exports until `stop`, and then sends each remaining batch once.
    pub(super) async fn run_exporter(mut self, mut stop: oneshot::Receiver<()>) {
        let mut in_flight: Option<ExportInFlight> = None;
        loop {
            if in_flight.is_none() {
                self.prepare_export();
                let now = Instant::now();
                if let Some(outgoing) = self.outgoing.as_ref().filter(|outgoing| outgoing.at <= now) {
                    let (destination, message) = (Arc::clone(&outgoing.destination), outgoing.message.clone());
                    in_flight = Some(self.begin_export(destination, message));
                }
            }
            if self.is_ending && in_flight.is_none() && self.outgoing.is_none() && self.backlog.is_empty() {
                return;
            }
            let next = match (&in_flight, &self.outgoing) {
                (Some(_), _) => None,
                (None, Some(outgoing)) => Some(outgoing.at),
                (None, None) => self.backlog.front().map(|batch| batch.due),
            };
            select! {
                biased;
                _ = &mut stop, if !self.is_ending => self.begin_last_exports(),
                Some((connection, exported)) = OptionFuture::from(in_flight.as_mut()) => {
                    in_flight = None;
                    self.finish_export(connection, exported);
                }
                Some(piece) = self.pieces.recv(), if !self.is_ending => self.batch_piece(piece),
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            }
        }
    }

    /// Takes the remaining pieces from the queue, once all workers have ended.
    fn begin_last_exports(&mut self) {
        self.is_ending = true;
        while let Ok(piece) = self.pieces.try_recv() {
            self.batch_piece(piece);
        }
        let now = Instant::now();
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.at = now;
        }
    }

    fn batch_piece(&mut self, piece: SpanPiece) {
        let SpanPiece { destination, spans, count, exemplars: noted } = piece;
        let at = SystemTime::now();
        for PendingExemplar { histogram, bucket, took, trace_id, span_id } in noted {
            let (trace_id, span_id) = (trace_id.to_string(), span_id.to_string());
            let exemplar = Exemplar { seconds: took.as_secs_f64(), at, trace_id, span_id };
            self.exemplars.set_exemplar(histogram, bucket, exemplar);
        }
        let fits = |batch: &&mut SpanBatch| {
            Arc::ptr_eq(&batch.destination, &destination) && batch.bytes.saturating_add(spans.len()) <= MAX_BATCH_BYTES
        };
        match self.backlog.back_mut().filter(fits) {
            Some(batch) => {
                batch.bytes = batch.bytes.saturating_add(spans.len());
                batch.pieces.push(spans);
                batch.count = batch.count.saturating_add(count);
            }
            None => {
                // The batch before is complete: it cannot get more pieces.
                if let Some(complete) = self.backlog.back_mut() {
                    complete.due = Instant::now();
                }
                let due = Instant::now() + BATCH_TIME;
                self.backlog.push_back(SpanBatch { destination, bytes: spans.len(), pieces: vec![spans], count, due });
            }
        }
    }

    /// Makes a request of the first batch, if that is due.
    fn prepare_export(&mut self) {
        let now = Instant::now();
        let is_due = |batch: &mut SpanBatch| batch.bytes >= MAX_BATCH_BYTES || batch.due <= now || self.is_ending;
        if self.outgoing.is_some() {
            return;
        }
        if let Some(batch) = self.backlog.pop_front_if(is_due) {
            let SpanBatch { destination, pieces, bytes, count, .. } = batch;
            let is_grpc = destination.endpoint.protocol == TraceProtocol::Grpc;
            let message = ExportBody::from(destination.envelope.wrap_spans(&pieces, is_grpc));
            let bytes = bytes as u64;
            self.outgoing =
                Some(OutgoingExport { destination, message, count, bytes, delay: FIRST_RETRY_DELAY, at: now });
        }
    }

    fn begin_export(&mut self, destination: Arc<SpanDestination>, message: ExportBody) -> ExportInFlight {
        let open = self.connection.take().filter(|(to, _)| Arc::ptr_eq(to, &destination));
        Box::pin(async move { export_spans(open.map(|(_, open)| open), &destination, message).await })
    }

    /// Handles the outcome of the request that was sent.
    fn finish_export(&mut self, connection: Option<CollectorConnection>, exported: ExportOutcome) {
        let Some(mut outgoing) = self.outgoing.take() else { return };
        self.connection = connection.map(|open| (Arc::clone(&outgoing.destination), open));
        let OutgoingExport { count, bytes, .. } = outgoing;
        let endpoint = &outgoing.destination.endpoint;
        match exported {
            ExportOutcome::Accepted(partial) => {
                let rejected = partial.rejected.min(count);
                self.metrics.exports_ok.fetch_add(1, Relaxed);
                self.metrics.exported.fetch_add(count - rejected, Relaxed);
                self.metrics.rejected.fetch_add(rejected, Relaxed);
                self.metrics.waiting.release_bytes(bytes);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(%endpoint, "the collector accepts spans again");
                }
                let message = &*partial.message;
                let is_rejecting = rejected > 0;
                if is_rejecting && !self.is_rejecting {
                    tracing::warn!(%endpoint, rejected, message, "the collector rejects spans");
                }
                self.is_rejecting = is_rejecting;
                let problem = is_rejecting.then(|| format!("{rejected} spans rejected: {message}"));
                *self.collector_state.lock() = CollectorState { accepted_at: Some(SystemTime::now()), problem };
            }
            ExportOutcome::Again { after, problem } if !self.is_ending => {
                self.metrics.exports_retried.fetch_add(1, Relaxed);
                let asked = after.unwrap_or_default().min(MAX_RETRY_AFTER);
                outgoing.at = Instant::now() + outgoing.delay.max(asked);
                outgoing.delay = outgoing.delay.saturating_mul(2).min(MAX_RETRY_DELAY);
                self.report_export_failure(&problem, &outgoing);
                self.outgoing = Some(outgoing);
            }
            ExportOutcome::Again { problem, .. } | ExportOutcome::Refused(problem) => {
                self.metrics.exports_failed.fetch_add(1, Relaxed);
                self.metrics.failed.fetch_add(count, Relaxed);
                self.metrics.waiting.release_bytes(bytes);
                self.report_export_failure(&problem, &outgoing);
            }
        }
    }

    /// Reports a failed export; logs only the first failure until an export succeeds.
    fn report_export_failure(&mut self, problem: &str, outgoing: &OutgoingExport) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(endpoint = %outgoing.destination.endpoint, error = problem, "cannot export spans");
        }
        self.collector_state.lock().problem = Some(problem.to_owned());
    }
}

#[derive(Debug, Clone)]
pub(super) struct SpanQueue {
    pub(super) pieces: mpsc::Sender<SpanPiece>,
    pub(super) metrics: Arc<ExportMetrics>,
}
