//! Records the spans of one worker: decides about each request's trace, and collects its spans until they are sent to
//! the exporter.

use super::{
    exporter::{MAX_WAITING_BYTES, PendingExemplar, SpanPiece, SpanQueue},
    metrics::SpanMetrics,
    sampler,
    span::{self, EndedRequest},
    trace_setting::{CurrentTraceSetting, TraceSetting},
};
use crate::Histogram;
use arc_swap::Cache;
use bytes::Bytes;
use litequic_base::token_bucket::TokenBucket;
use litequic_exchange::{
    self as exchange, RecordedFacts, RequestText, RequestTrace, SpanId, TraceFlags, TraceId, TraceStart, Tracer,
};
use std::{
    cell::RefCell,
    mem,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Number of bytes of spans from which on they are sent at once; fewer are sent at every [`SpanFlusher::flush_spans`].
const PIECE_BYTES: usize = 16 * 1024;
/// Number of bytes that the spans of a request rarely exceed.
const USUAL_REQUEST_BYTES: usize = 2 * 1024;
/// Burst of `traces.max_per_second`: the spans of one second.
const RATE_BURST: Duration = Duration::from_secs(1);

/// Span recorder of a worker, before the worker's thread has begun.
pub struct WorkerSpans {
    now: CurrentTraceSetting,
    queue: SpanQueue,
    metrics: Arc<SpanMetrics>,
}

impl WorkerSpans {
    pub(super) const fn new(now: CurrentTraceSetting, queue: SpanQueue, metrics: Arc<SpanMetrics>) -> Self {
        Self { now, queue, metrics }
    }

    /// Makes the tracer and its flusher, on the worker's thread.
    pub fn into_tracer(self) -> (impl Tracer + 'static, SpanFlusher) {
        let Self { now, queue, metrics } = self;
        let recorder = SpanRecorder { now: Cache::new(now), queue, metrics, unsent: None };
        let recorder = Rc::new(RefCell::new(recorder));
        (WorkerTracer(Rc::clone(&recorder)), SpanFlusher(recorder))
    }
}

struct SpanRecorder {
    now: Cache<CurrentTraceSetting, Option<Arc<TraceSetting>>>,
    queue: SpanQueue,
    metrics: Arc<SpanMetrics>,
    unsent: Option<UnsentSpans>,
}

/// Unsent spans under one setting.
struct UnsentSpans {
    setting: Arc<TraceSetting>,
    spans: Vec<u8>,
    count: u32,
    exemplars: Vec<PendingExemplar>,
    rate: TokenBucket,
}

impl SpanRecorder {
    /// Follows the setting in force, and returns its unsent spans. Spans under the former setting are sent first.
    fn follow_trace_setting(&mut self) -> Option<&mut UnsentSpans> {
        let now = self.now.load();
        let follows = match (now, &self.unsent) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, &before.setting),
            (now, before) => now.is_none() && before.is_none(),
        };
        if !follows {
            let next = now.as_ref().map(|setting| UnsentSpans {
                setting: Arc::clone(setting),
                spans: Vec::new(),
                count: 0,
                exemplars: Vec::new(),
                rate: TokenBucket::with_burst(setting.max_per_second, RATE_BURST),
            });
            if let Some(mut before) = mem::replace(&mut self.unsent, next) {
                before.send_spans(&self.queue, &self.metrics);
            }
        }
        self.unsent.as_mut()
    }

    fn decide_request_trace(&mut self, facts: &RecordedFacts, own: TraceId) -> Option<RequestTrace> {
        let UnsentSpans { setting, rate, .. } = self.follow_trace_setting()?;
        let traceparent = facts.client_traceparent();
        let counts = setting.follows_traceparent(facts.client.address.ip());
        let request_id = facts.request_text(RequestText::RequestId);
        let mut trace = sampler::decide_trace(traceparent, counts, request_id, own, setting.sampler);
        if trace.flags.is_sampled() && !rate.try_take_token(facts.started) {
            trace.flags = TraceFlags::new(false, trace.flags.is_random());
            self.metrics.over_limit.increment();
        }
        Some(trace)
    }

    fn record_request(&mut self, facts: &RecordedFacts, trace: &RequestTrace) {
        if !trace.flags.is_sampled() {
            return;
        }
        let took = exchange::elapsed_since(facts.started);
        // Traces may be off by now.
        if self.follow_trace_setting().is_none() {
            return;
        }
        let Self { unsent: Some(unsent), queue, metrics, .. } = self else { return };
        unsent.append_request(EndedRequest { facts, trace, took }, queue, metrics);
    }

    fn send_unsent(&mut self) {
        if self.follow_trace_setting().is_some()
            && let Some(unsent) = &mut self.unsent
        {
            unsent.send_spans(&self.queue, &self.metrics);
        }
    }
}

impl Drop for SpanRecorder {
    fn drop(&mut self) {
        self.send_unsent();
    }
}

impl UnsentSpans {
    fn append_request(&mut self, request: EndedRequest<'_>, queue: &SpanQueue, metrics: &SpanMetrics) {
        let EndedRequest { facts, trace, took } = request;
        let before = self.spans.len();
        let count = span::write_spans(&mut self.spans, request);
        // The request's own span was counted when the request began.
        if count > 1 {
            self.rate.take_tokens(count.saturating_sub(1), Instant::now());
        }
        if self.spans.len() > PIECE_BYTES && before > 0 {
            let last = self.spans.split_off(before);
            self.send_spans(queue, metrics);
            self.spans = last;
        }
        self.count = self.count.saturating_add(count);
        self.note_exemplar("request_duration_seconds", took, trace, trace.span_id);
        if let (Some(origin_time), Some(attempt)) = (facts.origin_time, trace.attempts.last()) {
            self.note_exemplar("origin_duration_seconds", origin_time, trace, attempt.span_id);
        }
        if self.spans.len() >= PIECE_BYTES {
            self.send_spans(queue, metrics);
        }
    }

    /// Keeps the newest request of each bucket of a histogram.
    fn note_exemplar(&mut self, histogram: &'static str, took: Duration, trace: &RequestTrace, span_id: SpanId) {
        let bucket = Histogram::bucket_index(took);
        let noted = PendingExemplar { histogram, bucket, took, trace_id: trace.trace_id, span_id };
        match self.exemplars.iter_mut().find(|one| (one.histogram, one.bucket) == (histogram, bucket)) {
            Some(before) => *before = noted,
            None => self.exemplars.push(noted),
        }
    }

    /// Sends all unsent spans. Never waits.
    fn send_spans(&mut self, queue: &SpanQueue, metrics: &SpanMetrics) {
        let count = mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let noted = mem::take(&mut self.exemplars);
        let bytes = self.spans.len() as u64;
        let waiting = &queue.metrics.waiting;
        let destination = Arc::clone(&self.setting.destination);
        let sent = waiting.reserve_bytes(bytes, MAX_WAITING_BYTES) && {
            // A buffer that is more than half full is sent as it is, without a copy.
            let spans = if self.spans.len() > PIECE_BYTES / 2 {
                mem::replace(&mut self.spans, Vec::with_capacity(PIECE_BYTES + USUAL_REQUEST_BYTES)).into()
            } else {
                Bytes::copy_from_slice(&self.spans)
            };
            let piece = SpanPiece { destination, spans, count: count.into(), exemplars: noted };
            let sent = queue.pieces.try_send(piece).is_ok();
            if !sent {
                waiting.release_bytes(bytes);
            }
            sent
        };
        if !sent {
            metrics.full.increment_by(count.into());
        }
        self.spans.clear();
    }
}

struct WorkerTracer(Rc<RefCell<SpanRecorder>>);

impl Tracer for WorkerTracer {
    fn start_trace(&self, peer: IpAddr) -> TraceStart {
        match self.0.borrow_mut().now.load() {
            None => TraceStart::Off,
            Some(setting) => setting.begin_trace(peer, TraceId::random()),
        }
    }

    fn sample_trace(&self, facts: &RecordedFacts, own: TraceId) -> Option<RequestTrace> {
        self.0.borrow_mut().decide_request_trace(facts, own)
    }

    fn on_trace_ended(&self, facts: &RecordedFacts, trace: &RequestTrace) {
        self.0.borrow_mut().record_request(facts, trace);
    }
}

/// Sends the spans of a worker that would otherwise wait for more.
pub struct SpanFlusher(Rc<RefCell<SpanRecorder>>);

impl SpanFlusher {
    /// Sends unsent spans; to be called periodically.
    pub fn flush_spans(&self) {
        self.0.borrow_mut().send_unsent();
    }
}
