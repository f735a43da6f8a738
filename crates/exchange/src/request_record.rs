//! Records one request. Front end and proxy fill in the record, which is reported once, when the front end drops it. A
//! record that is off costs a comparison, and holds nothing.

use super::body::BodyError;
use super::client::Client;
use super::trace_context::{AttemptSpan, RequestTrace, SpanId, TraceId, Traceparent};
use crate::priority::Priority;
use http::StatusCode;
use litequic_base::named_enum;
use litequic_base::timers;
use std::{
    cell::RefCell,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// One worker's recorder: decides which requests are recorded, and passes their records to the receivers.
#[derive(Clone, Default)]
pub struct RequestRecorder {
    listener: Option<Rc<dyn RecordListener>>,
    tracer: Option<Rc<dyn Tracer>>,
}

/// A receiver of records.
pub trait RecordListener {
    /// Whether the request that begins now is to be recorded.
    fn wants_record(&self) -> bool;
    /// Receives the record of a request that has ended. Called on the worker's thread, so it must not block.
    fn on_request_ended(&self, facts: &RecordedFacts);
}

/// A receiver of requests' traces.
pub trait Tracer {
    /// Decides about the trace of a request of `peer` before its header is known.
    fn start_trace(&self, peer: IpAddr) -> TraceStart;
    /// Decides about the trace of a request whose header is known; a trace that begins with it has the ID `own`. `None`
    /// if requests are no longer traced.
    fn sample_trace(&self, facts: &RecordedFacts, own: TraceId) -> Option<RequestTrace>;
    /// Receives the record and the trace of a request that has ended. Called on the worker's thread, so it must not
    /// block.
    fn on_trace_ended(&self, facts: &RecordedFacts, trace: &RequestTrace);
}

/// State of a request's trace before the header is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStart {
    /// Requests are not traced.
    Off,
    /// The trace begins here with this ID, and is not sampled, whatever the header says.
    Unsampled(TraceId),
    /// The header decides. A trace that begins here has this ID, unless a trusted peer has set another request ID.
    Undecided(TraceId),
}

/// A handle of one request's record, shared by all modules that serve the request. Off by default.
#[derive(Debug, Clone, Default)]
pub struct RequestRecord(RecordState);

#[derive(Debug, Clone, Default)]
enum RecordState {
    /// Nothing is recorded.
    #[default]
    Off,
    /// Nothing is recorded. The origin gets the trace with this ID, which is not sampled.
    Unsampled(TraceId),
    On(Rc<ActiveRecord>),
}

/// A record that is on, and its receivers.
struct ActiveRecord {
    facts: RefCell<RecordedFacts>,
    listener: Option<Rc<dyn RecordListener>>,
    /// The tracer, and the ID of a trace that begins with this request.
    tracer: Option<(Rc<dyn Tracer>, TraceId)>,
}

/// The front end's handle of a record. When it is dropped, the receivers get the record.
pub struct RecordGuard(pub RequestRecord);

/// Propagation of a request's trace context to its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The fields are unchanged: litequic does not take part in tracing.
    Unchanged,
    /// A `traceparent` for each attempt, and `tracestate` unchanged.
    Continued,
    /// A `traceparent` for each attempt, and no `tracestate`, which belongs to another trace.
    Begun,
}

/// A text of a request that the record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestText {
    /// The ID in the request to the origin, and in litequic's own response.
    RequestId,
    /// `:method`
    Method,
    /// `:authority`, or `Host`.
    Host,
    /// `:path`, including the query.
    Path,
    /// `User-Agent`
    UserAgent,
    /// `Referer`
    Referer,
    /// `traceparent`, if the request has exactly one.
    Traceparent,
}

impl RequestText {
    const COUNT: usize = 7;
}

/// Memory reserved for the texts, in bytes. Few requests need more.
const TEXT_CAPACITY: usize = 256;

/// The recorded facts of a request. Unknown values are empty. Values from a client are as the client sent them.
#[derive(Debug, Clone)]
pub struct RecordedFacts {
    /// Time at which the request's stream was accepted.
    pub began: SystemTime,
    /// Time at which the request's stream was accepted, for durations.
    pub started: Instant,
    /// The peer of the connection: the client, or a trusted proxy.
    pub client: Rc<Client>,
    /// The client's address, if a trusted proxy has named it.
    pub proxied_client: Option<IpAddr>,
    texts: Vec<u8>,
    /// Range of each [`RequestText`] in the texts.
    text_ranges: [(u32, u32); RequestText::COUNT],
    has_traceparent: bool,
    /// Name of the route.
    pub route: Option<Arc<str>>,
    /// Path of the route: `/exact`, or `/prefix/*`.
    pub http_route: Option<Arc<str>>,
    /// Whether the request's version is HTTP/1.0.
    pub is_http_10: bool,
    /// Trace of the request, if requests are traced.
    pub trace: Option<RequestTrace>,
    /// Name of the origin.
    pub origin: Option<Arc<str>>,
    /// Server of the origin that was tried last.
    pub server: Option<Arc<str>>,
    /// Status of the final response, if the client got any of it.
    pub status: Option<StatusCode>,
    /// `grpc-status` of the response, of its header or its trailers.
    pub grpc_status: Option<u32>,
    /// Body bytes that were received from the client.
    pub received: u64,
    /// Body bytes that were sent to the client.
    pub sent: u64,
    /// Time from the beginning until the final response's header was sent.
    pub first_byte: Option<Duration>,
    /// Time from the request of a connection to the origin until the response's header arrived, or the attempt failed.
    pub origin_time: Option<Duration>,
    /// Time from the request of a connection to the server of `auth` until its response was complete, or the attempt
    /// failed.
    pub auth_time: Option<Duration>,
    /// Priority of the response, if responses are sent by their priorities.
    pub priority: Option<Priority>,
    /// Error type of RFC 9209 §2.3, if litequic answered in the origin's place or reset the response.
    pub error: Option<&'static str>,
    /// End of the request.
    pub end: RequestEnd,
}

const _: () = assert!(size_of::<RecordedFacts>() <= 544);

named_enum! {
    /// The end of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestEnd {
        /// The client has the whole response.
        Complete = "complete",
        /// The client went away, or cancelled the request.
        Cancelled = "cancelled",
        /// The client read no bytes in time.
        Stalled = "stalled",
        /// The request, or its connection, was ended for another client.
        Evicted = "evicted",
        /// The operator closed the connection.
        Closed = "closed",
        /// The request violated the protocol.
        Malformed = "malformed",
        /// There was no response, or it was cut off.
        Failed = "failed",
    }
    /// Returns the end as one word, for logs.
    fn as_word;
}

impl RequestRecorder {
    /// Creates a recorder that passes requested records to `listener`.
    pub fn with_listener(listener: impl RecordListener + 'static) -> Self {
        Self { listener: Some(Rc::new(listener)), tracer: None }
    }

    /// Has `tracer` decide about each request's trace, and passes the records of traced requests to it.
    #[must_use]
    pub fn with_tracer(self, tracer: impl Tracer + 'static) -> Self {
        Self { tracer: Some(Rc::new(tracer)), ..self }
    }

    /// Begins the record of a request of `client`.
    pub fn begin_record(&self, client: impl FnOnce() -> Rc<Client>) -> RecordGuard {
        let listener = self.listener.as_ref().filter(|listener| listener.wants_record());
        if listener.is_none() && self.tracer.is_none() {
            return RecordGuard(RequestRecord(RecordState::Off));
        }
        let client = client();
        let tracer = self.tracer.as_ref().map(|tracer| (tracer, tracer.start_trace(client.address.ip())));
        let tracer = match tracer {
            None | Some((_, TraceStart::Off)) if listener.is_none() => {
                return RecordGuard(RequestRecord(RecordState::Off));
            }
            None | Some((_, TraceStart::Off)) => None,
            Some((_, TraceStart::Unsampled(id))) if listener.is_none() => {
                return RecordGuard(RequestRecord(RecordState::Unsampled(id)));
            }
            Some((tracer, TraceStart::Unsampled(id) | TraceStart::Undecided(id))) => Some((Rc::clone(tracer), id)),
        };
        let facts = RefCell::new(RecordedFacts::new(client));
        RecordGuard(RequestRecord(RecordState::On(Rc::new(ActiveRecord {
            facts,
            listener: listener.cloned(),
            tracer,
        }))))
    }
}

impl RequestRecord {
    const fn active_record(&self) -> Option<&Rc<ActiveRecord>> {
        match &self.0 {
            RecordState::On(recorded) => Some(recorded),
            RecordState::Off | RecordState::Unsampled(_) => None,
        }
    }

    /// Returns the ID of a trace that begins with this request, if requests are traced. It is also the request's ID.
    pub fn own_trace_id(&self) -> Option<TraceId> {
        match &self.0 {
            RecordState::Off => None,
            RecordState::Unsampled(id) => Some(*id),
            RecordState::On(recorded) => recorded.tracer.as_ref().map(|(_, id)| *id),
        }
    }

    /// Calls `note` with the facts if the record is on. `note` must not call this function.
    pub fn update_facts(&self, note: impl FnOnce(&mut RecordedFacts)) {
        if let Some(recorded) = self.active_record() {
            note(&mut recorded.facts.borrow_mut());
        }
    }

    /// Decides about the request's trace, if requests are traced. Called once the header and the request's ID are
    /// known. Returns the propagation of the trace context.
    pub fn decide_propagation(&self) -> Propagation {
        let (facts, (tracer, own)) = match &self.0 {
            RecordState::Off => return Propagation::Unchanged,
            RecordState::Unsampled(_) => return Propagation::Begun,
            RecordState::On(recorded) => match &recorded.tracer {
                None => return Propagation::Unchanged,
                Some(tracer) => (&recorded.facts, tracer),
            },
        };
        let mut facts = facts.borrow_mut();
        if facts.trace.is_none() {
            facts.trace = tracer.sample_trace(&facts, *own);
        }
        match &facts.trace {
            Some(trace) if trace.is_continued() => Propagation::Continued,
            Some(_) => Propagation::Begun,
            None => Propagation::Unchanged,
        }
    }

    /// Begins an attempt at `server` of `origin`, after `earlier` attempts with the same message. Returns the
    /// `traceparent` for the server, if the request has a trace.
    pub fn begin_attempt(&self, origin: &Arc<str>, server: &Arc<str>, earlier: u32) -> Option<Traceparent> {
        let recorded = match &self.0 {
            RecordState::Off => return None,
            RecordState::Unsampled(id) => return Some(Traceparent::new_unsampled(*id, earlier)),
            RecordState::On(recorded) => recorded,
        };
        let mut facts = recorded.facts.borrow_mut();
        let began = facts.started;
        let trace = facts.trace.as_mut()?;
        let span_id = SpanId::random();
        if trace.flags.is_sampled() {
            trace.attempts.push(AttemptSpan {
                span_id,
                origin: Arc::clone(origin),
                server: Arc::clone(server),
                earlier,
                target: Box::default(),
                began: elapsed_since(began),
                ended: None,
                is_reused: false,
                status: None,
                error: None,
            });
        }
        Some(trace.attempt_traceparent(span_id))
    }

    /// Records that the last attempt sends the request for `target`.
    pub fn begin_sending<'a>(&self, target: impl FnOnce() -> &'a str, is_reused: bool) {
        self.update_attempt(|attempt, _| {
            attempt.target = target().into();
            attempt.is_reused = is_reused;
        });
    }

    /// Records the outcome of the last attempt: the response's status, or an error type of RFC 9209 §2.3.
    pub fn end_attempt(&self, outcome: Result<StatusCode, &'static str>) {
        self.update_attempt(|attempt, now| {
            attempt.ended = attempt.ended.or(Some(now));
            match outcome {
                Ok(status) => attempt.status = Some(status),
                Err(error) => attempt.error = Some(error),
            }
        });
    }

    /// Calls `note` with the last attempt of a sampled request, and with the time since the request's beginning.
    fn update_attempt(&self, note: impl FnOnce(&mut AttemptSpan, Duration)) {
        self.update_facts(|facts| {
            let started = facts.started;
            if let Some(attempt) = facts.trace.as_mut().and_then(|trace| trace.attempts.last_mut()) {
                note(attempt, elapsed_since(started));
            }
        });
    }

    /// Records the error type of the first failure.
    pub fn record_error(&self, word: &'static str) {
        self.update_facts(|facts| facts.error = facts.error.or(Some(word)));
    }

    /// Records that a response's body was cut off by `error`.
    pub fn record_broken_body(&self, error: BodyError) {
        self.record_error(match error {
            BodyError::Evicted => return self.record_eviction(),
            BodyError::TimedOut => "connection_read_timeout",
            BodyError::Malformed | BodyError::TooLarge => "http_protocol_error",
            BodyError::Cancelled | BodyError::Truncated => "http_response_incomplete",
        });
    }

    /// Records that litequic ended the request for another client's. No later end replaces this one.
    pub fn record_eviction(&self) {
        self.update_facts(|facts| facts.end = RequestEnd::Evicted);
        self.record_error("connection_limit_reached");
    }

    /// Records that the final response's header was sent to the client.
    pub fn record_response_status(&self, status: StatusCode) {
        self.update_facts(|facts| {
            facts.status = Some(status);
            facts.first_byte = Some(elapsed_since(facts.started));
        });
    }
}

impl RecordGuard {
    /// Sets the end of the request. Without a call the request counts as cancelled, by the end of its connection.
    pub fn set_end(&self, end: RequestEnd) {
        self.0.update_facts(|facts| {
            if facts.end != RequestEnd::Evicted {
                facts.end = end;
            }
        });
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        let Some(recorded) = self.0.active_record() else { return };
        if recorded.facts.borrow().is_request() {
            self.0.decide_propagation();
        }
        let facts = recorded.facts.borrow();
        if let Some(listener) = &recorded.listener {
            listener.on_request_ended(&facts);
        }
        if let (Some((tracer, _)), Some(trace)) = (&recorded.tracer, &facts.trace) {
            tracer.on_trace_ended(&facts, trace);
        }
    }
}

impl RecordedFacts {
    fn new(client: Rc<Client>) -> Self {
        Self {
            began: SystemTime::now(),
            started: timers::turn_time().into_std(),
            client,
            proxied_client: None,
            texts: Vec::with_capacity(TEXT_CAPACITY),
            text_ranges: [(0, 0); RequestText::COUNT],
            has_traceparent: false,
            route: None,
            http_route: None,
            is_http_10: false,
            trace: None,
            origin: None,
            server: None,
            status: None,
            grpc_status: None,
            received: 0,
            sent: 0,
            first_byte: None,
            origin_time: None,
            auth_time: None,
            priority: None,
            error: None,
            end: RequestEnd::Cancelled,
        }
    }

    /// Returns a text; empty if it is unknown.
    pub fn request_text(&self, which: RequestText) -> &[u8] {
        let (from, to) = self.text_ranges.get(which as usize).copied().unwrap_or_default();
        self.texts.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Records a text, in place of an earlier value.
    pub fn set_request_text(&mut self, which: RequestText, value: &[u8]) {
        let from = self.texts.len();
        self.texts.extend_from_slice(value);
        if let Some(place) = self.text_ranges.get_mut(which as usize)
            && let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(self.texts.len()))
        {
            *place = (from, to);
        }
    }

    /// Records a field of the request if the record has a place for it. Names of pseudo-header fields have their colon.
    pub fn record_field(&mut self, name: &[u8], value: &[u8]) {
        let which = match name {
            b":method" => RequestText::Method,
            b":authority" => RequestText::Host,
            b"host" if self.request_text(RequestText::Host).is_empty() => RequestText::Host,
            b":path" => RequestText::Path,
            b"user-agent" => RequestText::UserAgent,
            b"referer" => RequestText::Referer,
            b"traceparent" => {
                // Two fields are as invalid as none (Trace Context §3.2).
                let value = if self.has_traceparent { b"" } else { value };
                self.has_traceparent = true;
                self.set_request_text(RequestText::Traceparent, value);
                return;
            }
            _ => return,
        };
        self.set_request_text(which, value);
    }

    /// Returns the client's `traceparent`, if there is a valid one (Trace Context §3.2).
    pub fn client_traceparent(&self) -> Option<Traceparent> {
        Traceparent::parse_traceparent(self.request_text(RequestText::Traceparent))
    }

    /// Returns the ID of the request's trace: as litequic has decided, or that of a valid `traceparent`.
    pub fn request_trace_id(&self) -> Option<TraceId> {
        match &self.trace {
            Some(trace) => Some(trace.trace_id),
            None => Some(self.client_traceparent()?.trace_id),
        }
    }

    /// Whether there was a request. A stream without a header, or reset before its header, had none.
    fn is_request(&self) -> bool {
        !self.request_text(RequestText::Method).is_empty() || self.status.is_some() || self.end == RequestEnd::Malformed
    }
}

/// Returns the time since `began`, by the clock of this turn.
pub fn elapsed_since(began: Instant) -> Duration {
    timers::turn_time().into_std().saturating_duration_since(began)
}

litequic_base::partial_debug!(RequestRecorder);

litequic_base::partial_debug!(ActiveRecord { facts });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LastForwarded, Protocol, TlsIdentity, TraceFlags};
    use std::cell::Cell;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn client() -> Rc<Client> {
        Rc::new(Client {
            address: ([192, 0, 2, 1], 1).into(),
            local: ([192, 0, 2, 2], 443).into(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: TlsIdentity::default(),
            connection: 0,
        })
    }

    struct Heard {
        wants: bool,
        ends: Rc<RefCell<Vec<RequestEnd>>>,
    }

    impl RecordListener for Heard {
        fn wants_record(&self) -> bool {
            self.wants
        }
        fn on_request_ended(&self, facts: &RecordedFacts) {
            self.ends.borrow_mut().push(facts.end);
        }
    }

    #[test]
    fn a_record_is_reported_once_however_the_request_ended() {
        let ends = Rc::default();
        let records = RequestRecorder::with_listener(Heard { wants: true, ends: Rc::clone(&ends) });
        let recording = records.begin_record(client);
        let shared = recording.0.clone();
        recording.set_end(RequestEnd::Complete);
        drop(recording);
        shared.record_error("too late");
        drop(records.begin_record(client));
        assert_eq!(*ends.borrow(), [RequestEnd::Complete, RequestEnd::Cancelled]);
    }

    #[test]
    fn values_without_a_listener_are_not_computed() {
        let ends = Rc::default();
        let asked = Cell::new(0);
        for records in
            [RequestRecorder::default(), RequestRecorder::with_listener(Heard { wants: false, ends: Rc::clone(&ends) })]
        {
            let recording = records.begin_record(|| {
                asked.set(1);
                client()
            });
            recording.0.update_facts(|_| asked.set(2));
            assert!(recording.0.active_record().is_none());
        }
        assert_eq!((asked.get(), ends.borrow().len()), (0, 0));
    }

    #[test]
    fn the_trace_id_is_litequics_or_that_of_one_valid_traceparent() {
        let mut facts = RecordedFacts::new(client());
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        facts.record_field(b"traceparent", value.as_bytes());
        assert_eq!(facts.request_trace_id().map(|id| id.to_string()).as_deref(), Some(TRACE));
        facts.record_field(b"traceparent", value.as_bytes());
        assert_eq!(facts.request_trace_id(), None, "two of them");
        let trace = trace(true);
        facts.trace = Some(trace.clone());
        assert_eq!(facts.request_trace_id(), Some(trace.trace_id));
    }

    fn trace(is_sampled: bool) -> RequestTrace {
        RequestTrace {
            trace_id: TraceId::random(),
            span_id: SpanId::random(),
            parent_id: None,
            flags: TraceFlags::new(is_sampled, true),
            link: None,
            attempts: Vec::new(),
        }
    }

    /// A tracer with fixed decisions, which keeps the ended traces.
    struct Traced {
        start: TraceStart,
        sampled: bool,
        ended: Rc<RefCell<Vec<RequestTrace>>>,
    }

    impl Tracer for Traced {
        fn start_trace(&self, _: IpAddr) -> TraceStart {
            self.start
        }
        fn sample_trace(&self, _: &RecordedFacts, _: TraceId) -> Option<RequestTrace> {
            Some(trace(self.sampled))
        }
        fn on_trace_ended(&self, _: &RecordedFacts, trace: &RequestTrace) {
            self.ended.borrow_mut().push(trace.clone());
        }
    }

    fn undecided() -> TraceStart {
        TraceStart::Undecided(TraceId::random())
    }

    #[test]
    fn an_unsampled_request_has_a_traceparent_and_a_record_for_listeners_only() {
        let id = TraceId::random();
        for wants in [None, Some(false), Some(true)] {
            let (ends, ended) = (Rc::default(), Rc::default());
            let records = match wants {
                Some(wants) => RequestRecorder::with_listener(Heard { wants, ends: Rc::clone(&ends) }),
                None => RequestRecorder::default(),
            };
            let start = TraceStart::Unsampled(id);
            let records = records.with_tracer(Traced { start, sampled: false, ended: Rc::clone(&ended) });
            let recording = records.begin_record(client);
            let record = &recording.0;
            assert_eq!((record.active_record().is_some(), record.own_trace_id()), (wants == Some(true), Some(id)));
            assert_eq!(record.decide_propagation(), Propagation::Begun);
            let attempts = [0, 1].map(|n| record.begin_attempt(&"origin".into(), &"http://a:1".into(), n).unwrap());
            assert!(attempts.iter().all(|sent| !sent.flags.is_sampled() && sent.flags.is_random()));
            assert_ne!(attempts[0].parent_id, attempts[1].parent_id);
            drop(recording);
            assert_eq!((ends.borrow().len(), ended.borrow().len()), if wants == Some(true) { (1, 1) } else { (0, 0) });
        }
        let highest = TraceId::new([0xff; 16]).unwrap();
        assert_ne!(Traceparent::new_unsampled(highest, 1).parent_id.bytes(), &[0; 8], "an ID is not all zeros");
    }

    #[test]
    fn each_sampled_attempt_is_recorded_and_each_has_a_traceparent() {
        for sampled in [true, false] {
            let ended: Rc<RefCell<Vec<RequestTrace>>> = Rc::default();
            let records = RequestRecorder::default().with_tracer(Traced {
                start: undecided(),
                sampled,
                ended: Rc::clone(&ended),
            });
            let recording = records.begin_record(client);
            let record = &recording.0;
            record.update_facts(|facts| facts.set_request_text(RequestText::Method, b"GET"));
            assert_eq!(
                (record.decide_propagation(), record.decide_propagation()),
                (Propagation::Begun, Propagation::Begun),
                "decided once"
            );
            let mut sent = Vec::new();
            for (earlier, outcome) in [(0, Err("connection_terminated")), (1, Ok(StatusCode::OK))] {
                sent.push(record.begin_attempt(&"origin".into(), &"http://a:1".into(), earlier).unwrap());
                record.begin_sending(|| "/a", outcome.is_err());
                record.end_attempt(outcome);
            }
            drop(recording);
            let ended = ended.borrow();
            let [trace] = &ended[..] else { panic!("{ended:?}") };
            assert!(sent.iter().all(|sent| sent.trace_id == trace.trace_id && sent.flags.is_sampled() == sampled));
            assert_ne!(sent[0].parent_id, sent[1].parent_id);
            assert!((0..).zip(&trace.attempts).all(|(earlier, attempt)| attempt.earlier == earlier));
            let of = |attempt: &AttemptSpan| (attempt.span_id, attempt.is_reused, attempt.status, attempt.error);
            let attempts: Vec<_> = trace.attempts.iter().map(of).collect();
            let expected = [
                (sent[0].parent_id, true, None, Some("connection_terminated")),
                (sent[1].parent_id, false, Some(StatusCode::OK), None),
            ];
            assert_eq!(attempts, if sampled { &expected[..] } else { &[] });
        }
    }

    #[test]
    fn a_request_without_a_method_has_no_trace() {
        let ended: Rc<RefCell<Vec<RequestTrace>>> = Rc::default();
        for (start, method) in [(TraceStart::Off, "GET"), (undecided(), ""), (undecided(), "GET")] {
            let records =
                RequestRecorder::default().with_tracer(Traced { start, sampled: true, ended: Rc::clone(&ended) });
            let recording = records.begin_record(client);
            assert_eq!(recording.0.active_record().is_some(), start != TraceStart::Off);
            recording.0.update_facts(|facts| facts.set_request_text(RequestText::Method, method.as_bytes()));
        }
        assert_eq!(ended.borrow().len(), 1);
        assert_eq!(RequestRecord::default().decide_propagation(), Propagation::Unchanged);
    }

    #[test]
    fn the_host_is_the_authority_where_there_is_one() {
        let mut facts = RecordedFacts::new(client());
        facts.record_field(b"host", b"b.test");
        assert_eq!(facts.request_text(RequestText::Host), b"b.test");
        facts.record_field(b":authority", b"a.test");
        facts.record_field(b"host", b"b.test");
        assert_eq!(facts.request_text(RequestText::Host), b"a.test");
    }
}
