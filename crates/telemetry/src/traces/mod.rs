//! Traces: a span for each request, and one for each attempt at its origin, exported by OTLP.
//!
//! `context` decides about a request's trace, `span` writes spans in `protobuf`, `recorder` collects them on a worker,
//! and `exporter`, a task of the control thread, sends them to the collector: by `collector`, in the messages of
//! `otlp`. Workers never wait for any of it.

mod attribute;
mod collector;
mod context;
mod exporter;
mod metrics;
mod otlp;
mod protobuf;
mod recorder;
mod span;

pub use metrics::{ExportMetrics, SpanMetrics, Waiting};
pub use recorder::{SpanFlusher, SpansOfWorker};

use crate::Exemplars;
use arc_swap::ArcSwapOption;
use context::Sampler;
use exporter::{Exporter, SpanPiece};
use litequic_config::{Config, Fraction, Network, TraceEndpoint, TraceParent, TraceProtocol, Traces};
use litequic_exchange::{TraceId, TraceStart};
use otlp::Envelope;
use rustls::ClientConfig;
use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

/// Pieces in the queue between workers and the exporter at most: with 4 MiB of spans, those of quiet workers too.
const MAX_PIECES: usize = 1_024;
/// Bytes of spans that wait at most: some seconds of a collector that does not answer.
const MAX_WAITING: u64 = 4 << 20;
/// How long the end of the process waits for the last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// TLS to a collector, as its files are.
#[derive(Clone)]
pub struct CollectorTls {
    /// The client's side, with the protocol that is offered.
    pub config: Arc<ClientConfig>,
    /// Digest of what the collector's certificate is verified with.
    pub digest: [u8; 32],
}

impl PartialEq for CollectorTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for CollectorTls {}

impl fmt::Debug for CollectorTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectorTls")
    }
}

/// Where spans go.
#[derive(Debug)]
struct Destination {
    endpoint: TraceEndpoint,
    protocol: TraceProtocol,
    headers: Vec<(http::HeaderName, http::HeaderValue)>,
    timeout: Duration,
    tls: Option<CollectorTls>,
    envelope: Envelope,
}

/// How requests are traced.
#[derive(Debug)]
struct Setting {
    sampler: Sampler,
    parent: TraceParent,
    trusted: Vec<Network>,
    max_per_second: u32,
    query: bool,
    destination: Arc<Destination>,
}

impl Setting {
    /// `None` without traces, or without the TLS that they need.
    fn new(config: &Config, tls: Option<CollectorTls>) -> Option<Self> {
        let Traces { endpoint, protocol, ratio, parent, max_per_second, query, headers, timeout, .. } = &config.traces;
        let endpoint = endpoint.clone()?;
        if endpoint.is_https && tls.is_none() {
            return None;
        }
        let destination = Destination {
            tls: tls.filter(|_| endpoint.is_https),
            endpoint,
            protocol: *protocol,
            headers: headers.clone(),
            timeout: *timeout,
            envelope: Envelope::new(&config.traces),
        };
        Some(Self {
            sampler: Sampler::new(Fraction(ratio.0)),
            parent: *parent,
            trusted: config.trusted_proxies.clone(),
            max_per_second: *max_per_second,
            query: *query,
            destination: Arc::new(destination),
        })
    }

    /// What is decided about a request of `peer` before its header is known. A trace that begins here has the ID `own`,
    /// which decides whether it is sampled; only a peer that is trusted can have another one followed.
    fn begin(&self, peer: IpAddr, own: TraceId) -> TraceStart {
        if self.sampler.takes(own) || self.parent == TraceParent::Any || self.trusts(peer) {
            TraceStart::Undecided(own)
        } else {
            TraceStart::Unsampled(own)
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    /// Whether the `traceparent` of the peer at `address` decides.
    fn follows(&self, address: IpAddr) -> bool {
        match self.parent {
            TraceParent::Any => true,
            TraceParent::None => false,
            TraceParent::Trusted => self.trusts(address),
        }
    }
}

/// What is in force, read without a lock, written by the control thread.
type InForce = Arc<ArcSwapOption<Setting>>;

/// What is known of the collector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorState {
    /// When it accepted spans last.
    pub accepted_at: Option<SystemTime>,
    /// Why it did not accept the last spans, or not all; `None` if it did.
    pub problem: Option<String>,
}

/// What is known of the collector, written by the exporter.
type Board = Arc<Mutex<CollectorState>>;

/// The process's traces: what is in force, and the exporter.
#[derive(Debug)]
pub struct Tracing {
    now: InForce,
    queue: Queue,
    board: Board,
    exporter: Mutex<Option<Exporting>>,
}

/// The task of the exporter, which ends when this is dropped.
#[derive(Debug)]
struct Exporting {
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

/// The way from workers to the exporter.
#[derive(Debug, Clone)]
struct Queue {
    pieces: mpsc::Sender<SpanPiece>,
    metrics: Arc<ExportMetrics>,
}

impl Tracing {
    /// Starts the exporter, on a tokio runtime, and traces requests as `config` says. What it learns of requests' times
    /// goes to `exemplars`.
    pub fn start(
        config: &Config,
        tls: Option<CollectorTls>,
        metrics: Arc<ExportMetrics>,
        exemplars: Arc<Exemplars>,
    ) -> Arc<Self> {
        let (pieces, receiver) = mpsc::channel(MAX_PIECES);
        let (stop, stopped) = oneshot::channel();
        let board = Board::default();
        let exporter = Exporter::new(receiver, Arc::clone(&metrics), exemplars, Arc::clone(&board));
        let task = JoinSet::from_iter([exporter.run(stopped)]);
        let now = Arc::new(ArcSwapOption::from_pointee(Setting::new(config, tls)));
        let exporter = Mutex::new(Some(Exporting { stop, task }));
        Arc::new(Self { now, queue: Queue { pieces, metrics }, board, exporter })
    }

    /// Has workers follow `config`, from their next request on. Spans that they have written go where they were meant
    /// to.
    pub fn follow(&self, config: &Config, tls: Option<CollectorTls>) {
        let setting = Setting::new(config, tls);
        let is_other =
            |now: &Setting| setting.as_ref().is_none_or(|next| next.destination.endpoint != now.destination.endpoint);
        if self.now.load().as_deref().is_none_or(is_other) {
            *self.board() = CollectorState::default();
        }
        self.now.store(setting.map(Arc::new));
    }

    /// Whether TLS to the collector is another than `tls`.
    pub fn has_other_tls(&self, tls: Option<&CollectorTls>) -> bool {
        self.now.load().as_deref().is_some_and(|now| now.destination.tls.as_ref() != tls)
    }

    /// TLS to the collector, as it is in force.
    pub fn tls(&self) -> Option<CollectorTls> {
        self.now.load().as_deref()?.destination.tls.clone()
    }

    /// The URL of the collector, and what is known of it; `None` without traces.
    pub fn collector(&self) -> Option<(String, CollectorState)> {
        let now = self.now.load();
        let endpoint = now.as_deref()?.destination.endpoint.to_string();
        Some((endpoint, self.board().clone()))
    }

    /// Waits until the spans of ended workers are sent; two seconds at most.
    pub async fn finish(&self) {
        let exporting = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Exporting { stop, mut task }) = exporting {
            // An error means that it has ended.
            let _ = stop.send(());
            let _ = timeout(LAST_SPANS, task.join_next()).await;
        }
    }

    /// One worker's part of it, which counts in `metrics`.
    pub fn of_worker(&self, metrics: Arc<SpanMetrics>) -> SpansOfWorker {
        SpansOfWorker::new(Arc::clone(&self.now), self.queue.clone(), metrics)
    }

    fn board(&self) -> MutexGuard<'_, CollectorState> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
