//! One worker's spans: the decision about each request's trace, and its spans' bytes until they are sent to the
//! exporter.

use super::exporter::{MAX_WAITING, Noted, Queue, SpanPiece, Timed};
use super::metrics::SpanMetrics;
use super::setting::{InForce, Setting};
use super::{context, span};
use crate::Histogram;
use arc_swap::Cache;
use bytes::Bytes;
use litequic_base::rate::Bucket;
use litequic_exchange::{
    self as exchange, Facts, RequestText, RequestTrace, SpanId, TraceFlags, TraceId, TraceStart, Tracer,
};
use std::{
    cell::RefCell,
    mem,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of spans that are sent at once; fewer are sent at every [`SpanFlusher::flush`].
const PIECE: usize = 16 * 1024;
/// Bytes that the spans of a request take rarely more than.
const LARGE: usize = 2 * 1024;
/// What `traces.max_per_second` permits at once: the worth of a second.
const BURST: Duration = Duration::from_secs(1);

/// A worker's part before its thread began.
pub struct SpansOfWorker {
    now: InForce,
    queue: Queue,
    metrics: Arc<SpanMetrics>,
}

impl SpansOfWorker {
    pub(super) const fn new(now: InForce, queue: Queue, metrics: Arc<SpanMetrics>) -> Self {
        Self { now, queue, metrics }
    }

    /// On the worker's thread.
    pub fn tracer(self) -> (impl Tracer + 'static, SpanFlusher) {
        let Self { now, queue, metrics } = self;
        let recorder = Recorder { now: Cache::new(now), queue, metrics, unsent: None, scratch: Vec::new() };
        let recorder = Rc::new(RefCell::new(recorder));
        (WorkerTracer(Rc::clone(&recorder)), SpanFlusher(recorder))
    }
}

/// A worker's spans.
struct Recorder {
    now: Cache<InForce, Option<Arc<Setting>>>,
    queue: Queue,
    metrics: Arc<SpanMetrics>,
    unsent: Option<Unsent>,
    /// Memory for a span that is being written.
    scratch: Vec<u8>,
}

/// Spans by a setting that were not sent yet.
struct Unsent {
    setting: Arc<Setting>,
    spans: Vec<u8>,
    count: u32,
    noted: Vec<Noted>,
    rate: Bucket,
}

impl Recorder {
    /// By the setting in force. Spans by the former one are sent first.
    fn follow(&mut self) -> Option<&mut Unsent> {
        let now = self.now.load();
        let follows = match (now, &self.unsent) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, &before.setting),
            (now, before) => now.is_none() && before.is_none(),
        };
        if !follows {
            let next = now.as_ref().map(|setting| Unsent {
                setting: Arc::clone(setting),
                spans: Vec::new(),
                count: 0,
                noted: Vec::new(),
                rate: Bucket::with_burst(setting.max_per_second, BURST),
            });
            if let Some(mut before) = mem::replace(&mut self.unsent, next) {
                before.send(&self.queue, &self.metrics);
            }
        }
        self.unsent.as_mut()
    }

    fn decide(&mut self, facts: &Facts, own: TraceId) -> Option<RequestTrace> {
        let Unsent { setting, rate, .. } = self.follow()?;
        let traceparent = facts.traceparent();
        let counts = setting.follows(facts.client.address.ip());
        let ids = (facts.text(RequestText::RequestId), own);
        let mut trace = context::decide(traceparent, counts, ids, setting.sampler);
        if trace.flags.is_sampled() && !rate.take_if_there(facts.started) {
            trace.flags = TraceFlags::new(false, trace.flags.is_random());
            self.metrics.over_limit.increment();
        }
        Some(trace)
    }

    fn ended(&mut self, facts: &Facts, trace: &RequestTrace) {
        if !trace.flags.is_sampled() {
            return;
        }
        let took = exchange::elapsed(facts.started);
        // Without traces by now.
        if self.follow().is_none() {
            return;
        }
        let Self { unsent: Some(unsent), queue, metrics, scratch, .. } = self else { return };
        unsent.add((facts, trace), took, scratch, (queue, metrics));
    }

    fn flush(&mut self) {
        if self.follow().is_some()
            && let Some(unsent) = &mut self.unsent
        {
            unsent.send(&self.queue, &self.metrics);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Unsent {
    fn add(
        &mut self,
        (facts, trace): (&Facts, &RequestTrace),
        took: Duration,
        scratch: &mut Vec<u8>,
        (queue, metrics): (&Queue, &SpanMetrics),
    ) {
        let before = self.spans.len();
        let count = span::write(&mut self.spans, scratch, (facts, trace), took, self.setting.query);
        // The request's own span was taken when it began.
        if count > 1 {
            self.rate.take(count.saturating_sub(1), Instant::now());
        }
        if self.spans.len() > PIECE && before > 0 {
            let last = self.spans.split_off(before);
            self.send(queue, metrics);
            self.spans = last;
        }
        self.count = self.count.saturating_add(count);
        self.note(Timed::Request, took, trace, trace.span_id);
        if let (Some(origin_time), Some(attempt)) = (facts.origin_time, trace.attempts.last()) {
            self.note(Timed::Origin, origin_time, trace, attempt.span_id);
        }
        if self.spans.len() >= PIECE {
            self.send(queue, metrics);
        }
    }

    /// Notes the newest request of each bucket of a histogram.
    fn note(&mut self, timed: Timed, took: Duration, trace: &RequestTrace, span_id: SpanId) {
        let bucket = Histogram::bucket(took);
        let noted = Noted { timed, bucket, took, trace_id: trace.trace_id, span_id };
        match self.noted.iter_mut().find(|one| (one.timed, one.bucket) == (timed, bucket)) {
            Some(before) => *before = noted,
            None => self.noted.push(noted),
        }
    }

    /// Sends what there is. Never waits.
    fn send(&mut self, queue: &Queue, metrics: &SpanMetrics) {
        let count = mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let noted = mem::take(&mut self.noted);
        let bytes = self.spans.len() as u64;
        let waiting = &queue.metrics.waiting;
        let destination = Arc::clone(&self.setting.destination);
        let sent = waiting.add(bytes, MAX_WAITING) && {
            // Memory that is full goes with what is in it.
            let spans = if self.spans.len() > PIECE / 2 {
                mem::replace(&mut self.spans, Vec::with_capacity(PIECE + LARGE)).into()
            } else {
                Bytes::copy_from_slice(&self.spans)
            };
            let piece = SpanPiece { destination, spans, count: count.into(), noted };
            let sent = queue.pieces.try_send(piece).is_ok();
            if !sent {
                waiting.subtract(bytes);
            }
            sent
        };
        if !sent {
            metrics.full.add(count.into());
        }
        self.spans.clear();
    }
}

/// Notified of requests.
struct WorkerTracer(Rc<RefCell<Recorder>>);

impl Tracer for WorkerTracer {
    fn begin(&self, peer: IpAddr) -> TraceStart {
        match self.0.borrow_mut().now.load() {
            None => TraceStart::Off,
            Some(setting) => setting.begin(peer, TraceId::random()),
        }
    }

    fn decide(&self, facts: &Facts, own: TraceId) -> Option<RequestTrace> {
        self.0.borrow_mut().decide(facts, own)
    }

    fn ended(&self, facts: &Facts, trace: &RequestTrace) {
        self.0.borrow_mut().ended(facts, trace);
    }
}

/// Sends spans that would otherwise wait for more.
pub struct SpanFlusher(Rc<RefCell<Recorder>>);

impl SpanFlusher {
    /// To be called periodically.
    pub fn flush(&self) {
        self.0.borrow_mut().flush();
    }
}
