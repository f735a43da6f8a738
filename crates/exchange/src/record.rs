//! The record of one request: filled in by the front end that accepted it and by the proxy, reported once when the
//! front end drops it, however it ended. A record that is off costs a comparison, and holds nothing.

use super::body::BodyError;
use super::client::Client;
use super::trace::{Attempt, RequestTrace, SpanId, TraceId, Traceparent};
use crate::priority::Priority;
use http::StatusCode;
use litequic_base::timers;
use std::{
    cell::RefCell,
    fmt,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// One worker's: decides which requests are recorded, and receives their records.
#[derive(Clone, Default)]
pub struct Records {
    listener: Option<Rc<dyn Listener>>,
    tracer: Option<Rc<dyn Tracer>>,
}

/// A receiver of records.
pub trait Listener {
    /// Whether the request that begins now is recorded.
    fn wants(&self) -> bool;
    /// The record of one that was. Called when the request ends, and so must not block.
    fn ended(&self, facts: &Facts);
}

/// A receiver of requests' traces.
pub trait Tracer {
    /// What is decided about the trace of a request of `peer` before its header is known.
    fn begin(&self, peer: IpAddr) -> TraceStart;
    /// Decides about the trace of a request whose header is known, which has the ID `own` if it begins here; `None` if
    /// requests are no longer traced.
    fn decide(&self, facts: &Facts, own: TraceId) -> Option<RequestTrace>;
    /// The record and the trace of one that was. Called when the request ends, and so must not block.
    fn ended(&self, facts: &Facts, trace: &RequestTrace);
}

/// A request's trace before its header is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStart {
    /// Requests are not traced.
    Off,
    /// The trace begins here with this ID and is not sampled, whatever is in the header.
    Unsampled(TraceId),
    /// The header decides. A trace that begins here has this ID, unless a trusted peer has given the request another.
    Undecided(TraceId),
}

/// One request's record, shared by all modules that serve it. Off by default.
#[derive(Debug, Clone, Default)]
pub struct Record(State);

#[derive(Debug, Clone, Default)]
enum State {
    /// Nothing is recorded.
    #[default]
    Off,
    /// Nothing is recorded; the origin gets the trace with this ID, which is not sampled.
    Unsampled(TraceId),
    On(Rc<Recorded>),
}

/// A record that is on, and the receivers of it.
struct Recorded {
    facts: RefCell<Facts>,
    listener: Option<Rc<dyn Listener>>,
    /// With the ID of a trace that begins with this request.
    tracer: Option<(Rc<dyn Tracer>, TraceId)>,
}

/// The front end's handle of a record: when it is dropped, the listeners get the record.
pub struct Recording(Record);

/// How a request's trace context goes on to its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Unchanged: litequic does not take part.
    Unchanged,
    /// A `traceparent` for each attempt, and `tracestate` unchanged.
    Continued,
    /// A `traceparent` for each attempt, and no `tracestate`: that is another trace's.
    Begun,
}

/// A text of a request that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestText {
    /// The ID that the origin and an answer in its place carry.
    RequestId,
    /// `:method`
    Method,
    /// `:authority`, or `Host`.
    Host,
    /// `:path`, with its query.
    Path,
    /// `User-Agent`
    UserAgent,
    /// `Referer`
    Referer,
    /// `traceparent`, as far as it was the only one.
    Traceparent,
}

impl RequestText {
    /// How many there are.
    const ALL: usize = 7;
}

/// Bytes of a request's texts, rarely more.
const TEXTS: usize = 256;

/// The outcome of a request. Empty fields were never known. Values from a client are as the client sent them.
#[derive(Debug, Clone)]
pub struct Facts {
    /// When its stream was accepted.
    pub began: SystemTime,
    /// When its stream was accepted, for durations.
    pub started: Instant,
    /// The connection's peer: the client, or a proxy.
    pub client: Rc<Client>,
    /// The client that a trusted proxy named, behind its address.
    pub behind: Option<IpAddr>,
    /// All texts, one after the other.
    texts: Vec<u8>,
    /// Where each [`RequestText`] is among them: its beginning, and its end.
    places: [(u32, u32); RequestText::ALL],
    /// Whether there was a `traceparent`.
    has_traceparent: bool,
    /// The name of the route that it matched.
    pub route: Option<Arc<str>>,
    /// The path of that route: `/exact`, or `/prefix/*`.
    pub http_route: Option<Arc<str>>,
    /// Whether the request's version is HTTP/1.0.
    pub is_http_10: bool,
    /// The request's place in its trace, if requests are traced.
    pub trace: Option<RequestTrace>,
    /// The name of its origin.
    pub origin: Option<Arc<str>>,
    /// The server of it that was tried last.
    pub server: Option<Arc<str>>,
    /// The status of the final response, if the client got any of it.
    pub status: Option<StatusCode>,
    /// Body bytes that were received from the client.
    pub received: u64,
    /// Body bytes that were sent to the client.
    pub sent: u64,
    /// From the beginning until the final response's header was sent.
    pub first_byte: Option<Duration>,
    /// From the moment at which a connection to the origin was requested until its response's header came, or the
    /// failure.
    pub origin_time: Option<Duration>,
    /// From the moment at which a connection to the server of `auth` was requested until its answer was complete, or
    /// the failure.
    pub auth_time: Option<Duration>,
    /// The priority with which the response was sent, if responses are sent by their priorities.
    pub priority: Option<Priority>,
    /// Why litequic answered in the origin's place, or reset the response: an error type of RFC 9209 §2.3.
    pub error: Option<&'static str>,
    /// How it ended.
    pub end: RequestEnd,
}

const _: () = assert!(size_of::<Facts>() <= 544);

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The client has the whole response.
    Complete,
    /// The client went away, or cancelled it.
    Cancelled,
    /// The client read no bytes in time.
    Stalled,
    /// Another client got its place, or its connection's.
    Evicted,
    /// The operator closed its connection.
    Closed,
    /// The request violated the protocol.
    Malformed,
    /// There was no response, or it was cut off.
    Failed,
}

impl RequestEnd {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Stalled => "stalled",
            Self::Malformed => "malformed",
            Self::Failed => "failed",
            Self::Evicted => "evicted",
            Self::Closed => "closed",
        }
    }
}

impl Records {
    /// Sends `listener` every record that it requests.
    pub fn for_listener(listener: impl Listener + 'static) -> Self {
        Self { listener: Some(Rc::new(listener)), tracer: None }
    }

    /// Has `tracer` decide about each request's trace, and sends it every record of one.
    #[must_use]
    pub fn traced_by(self, tracer: impl Tracer + 'static) -> Self {
        Self { tracer: Some(Rc::new(tracer)), ..self }
    }

    /// A request of `client` begins.
    pub fn begin(&self, client: impl FnOnce() -> Rc<Client>) -> Recording {
        let listener = self.listener.as_ref().filter(|listener| listener.wants());
        if listener.is_none() && self.tracer.is_none() {
            return Recording(Record(State::Off));
        }
        let client = client();
        let tracer = self.tracer.as_ref().map(|tracer| (tracer, tracer.begin(client.address.ip())));
        let tracer = match tracer {
            None | Some((_, TraceStart::Off)) if listener.is_none() => return Recording(Record(State::Off)),
            None | Some((_, TraceStart::Off)) => None,
            Some((_, TraceStart::Unsampled(id))) if listener.is_none() => {
                return Recording(Record(State::Unsampled(id)));
            }
            Some((tracer, TraceStart::Unsampled(id) | TraceStart::Undecided(id))) => Some((Rc::clone(tracer), id)),
        };
        let facts = RefCell::new(Facts::new(client));
        Recording(Record(State::On(Rc::new(Recorded { facts, listener: listener.cloned(), tracer }))))
    }
}

impl Record {
    /// Whether there is a listener that wants this record, or a trace that may be sampled.
    pub const fn is_on(&self) -> bool {
        self.on().is_some()
    }

    const fn on(&self) -> Option<&Rc<Recorded>> {
        match &self.0 {
            State::On(recorded) => Some(recorded),
            State::Off | State::Unsampled(_) => None,
        }
    }

    /// The ID of a trace that begins with this request, if requests are traced: the request has the same.
    pub fn own_trace_id(&self) -> Option<TraceId> {
        match &self.0 {
            State::Off => None,
            State::Unsampled(id) => Some(*id),
            State::On(recorded) => recorded.tracer.as_ref().map(|(_, id)| *id),
        }
    }

    /// Sets values, if the record is on. `note` must not call this function.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        if let Some(recorded) = self.on() {
            note(&mut recorded.facts.borrow_mut());
        }
    }

    /// Decides about the request's trace, if requests are traced: its header is known, and its ID. Returns how the
    /// trace context goes on.
    pub fn trace(&self) -> Propagation {
        let (facts, (tracer, own)) = match &self.0 {
            State::Off => return Propagation::Unchanged,
            State::Unsampled(_) => return Propagation::Begun,
            State::On(recorded) => match &recorded.tracer {
                None => return Propagation::Unchanged,
                Some(tracer) => (&recorded.facts, tracer),
            },
        };
        let mut facts = facts.borrow_mut();
        if facts.trace.is_none() {
            facts.trace = tracer.decide(&facts, *own);
        }
        match &facts.trace {
            Some(trace) if trace.continues() => Propagation::Continued,
            Some(_) => Propagation::Begun,
            None => Propagation::Unchanged,
        }
    }

    /// An attempt at `server` of `origin` begins, behind `earlier` ones with the same message. Returns the
    /// `traceparent` that the server gets, if the request has a trace.
    pub fn begin_attempt(&self, origin: &Arc<str>, server: &Arc<str>, earlier: u32) -> Option<Traceparent> {
        let recorded = match &self.0 {
            State::Off => return None,
            State::Unsampled(id) => return Some(Traceparent::unsampled(*id, earlier)),
            State::On(recorded) => recorded,
        };
        let mut facts = recorded.facts.borrow_mut();
        let began = facts.started;
        let trace = facts.trace.as_mut()?;
        let span_id = SpanId::random();
        if trace.flags.is_sampled() {
            trace.attempts.push(Attempt {
                span_id,
                origin: Arc::clone(origin),
                server: Arc::clone(server),
                earlier,
                target: Box::default(),
                began: elapsed(began),
                ended: None,
                is_reused: false,
                status: None,
                error: None,
            });
        }
        Some(trace.traceparent(span_id))
    }

    /// The attempt that began last sends the request for `target`.
    pub fn attempt_sends<'a>(&self, target: impl FnOnce() -> &'a str, is_reused: bool) {
        self.attempt(|attempt, _| {
            attempt.target = target().into();
            attempt.is_reused = is_reused;
        });
    }

    /// The attempt that began last has its response's status, or has failed by an error type of RFC 9209 §2.3.
    pub fn attempt_ended(&self, outcome: Result<StatusCode, &'static str>) {
        self.attempt(|attempt, now| {
            attempt.ended = attempt.ended.or(Some(now));
            match outcome {
                Ok(status) => attempt.status = Some(status),
                Err(error) => attempt.error = Some(error),
            }
        });
    }

    /// Notes something of the attempt that began last, of a request that is sampled.
    fn attempt(&self, note: impl FnOnce(&mut Attempt, Duration)) {
        self.note(|facts| {
            let started = facts.started;
            if let Some(attempt) = facts.trace.as_mut().and_then(|trace| trace.attempts.last_mut()) {
                note(attempt, elapsed(started));
            }
        });
    }

    /// Records the first reason of a failure.
    pub fn error(&self, word: &'static str) {
        self.note(|facts| facts.error = facts.error.or(Some(word)));
    }

    /// A response's body was cut off.
    pub fn broke_off(&self, error: BodyError) {
        self.error(match error {
            BodyError::Evicted => return self.evicted(),
            BodyError::TimedOut => "connection_read_timeout",
            BodyError::Malformed | BodyError::TooLarge => "http_protocol_error",
            BodyError::Cancelled | BodyError::Truncated => "http_response_incomplete",
        });
    }

    /// litequic ended the request because another client's waited: from now on this is how it ended.
    pub fn evicted(&self) {
        self.note(|facts| facts.end = RequestEnd::Evicted);
        self.error("connection_limit_reached");
    }

    /// The final response's header was sent to the client.
    pub fn responded(&self, status: StatusCode) {
        self.note(|facts| {
            facts.status = Some(status);
            facts.first_byte = Some(elapsed(facts.started));
        });
    }
}

impl Recording {
    /// For all modules that serve the request.
    pub const fn record(&self) -> &Record {
        &self.0
    }

    /// How it ended; until this is called it counts as cancelled: its connection closed.
    pub fn ended(&self, end: RequestEnd) {
        self.0.note(|facts| {
            if facts.end != RequestEnd::Evicted {
                facts.end = end;
            }
        });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(recorded) = self.0.on() else { return };
        if recorded.facts.borrow().is_request() {
            self.0.trace();
        }
        let facts = recorded.facts.borrow();
        if let Some(listener) = &recorded.listener {
            listener.ended(&facts);
        }
        if let (Some((tracer, _)), Some(trace)) = (&recorded.tracer, &facts.trace) {
            tracer.ended(&facts, trace);
        }
    }
}

impl Facts {
    fn new(client: Rc<Client>) -> Self {
        Self {
            began: SystemTime::now(),
            started: timers::now().into_std(),
            client,
            behind: None,
            texts: Vec::with_capacity(TEXTS),
            places: [(0, 0); RequestText::ALL],
            has_traceparent: false,
            route: None,
            http_route: None,
            is_http_10: false,
            trace: None,
            origin: None,
            server: None,
            status: None,
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

    /// A text; empty if it was never known.
    pub fn text(&self, which: RequestText) -> &[u8] {
        let (from, to) = self.places.get(which as usize).copied().unwrap_or_default();
        self.texts.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Records a text. Of one that was known already, this is what counts.
    pub fn set_text(&mut self, which: RequestText, value: &[u8]) {
        let from = self.texts.len();
        self.texts.extend_from_slice(value);
        if let Some(place) = self.places.get_mut(which as usize)
            && let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(self.texts.len()))
        {
            *place = (from, to);
        }
    }

    /// Records the field of a request if it is wanted; pseudo-header fields have their colon.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let which = match name {
            b":method" => RequestText::Method,
            b":authority" => RequestText::Host,
            b"host" if self.text(RequestText::Host).is_empty() => RequestText::Host,
            b":path" => RequestText::Path,
            b"user-agent" => RequestText::UserAgent,
            b"referer" => RequestText::Referer,
            b"traceparent" => {
                // Two are as good as none (Trace Context §3.2).
                let value = if self.has_traceparent { b"" } else { value };
                self.has_traceparent = true;
                self.set_text(RequestText::Traceparent, value);
                return;
            }
            _ => return,
        };
        self.set_text(which, value);
    }

    /// The client's `traceparent`, if it sent one and it is valid (Trace Context §3.2).
    pub fn traceparent(&self) -> Option<Traceparent> {
        Traceparent::parse(self.text(RequestText::Traceparent))
    }

    /// The trace that the request belongs to: as litequic has decided, or that of a valid `traceparent`.
    pub fn trace_id(&self) -> Option<TraceId> {
        match &self.trace {
            Some(trace) => Some(trace.trace_id),
            None => Some(self.traceparent()?.trace_id),
        }
    }

    /// Whether there was a request: a stream that was reset before its header, or never had one, is none.
    fn is_request(&self) -> bool {
        !self.text(RequestText::Method).is_empty() || self.status.is_some() || self.end == RequestEnd::Malformed
    }
}

/// The time since `began`, by the clock of this turn.
pub fn elapsed(began: Instant) -> Duration {
    timers::now().into_std().saturating_duration_since(began)
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.listener.is_some()).field(&self.tracer.is_some()).finish()
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorded").field(&self.facts).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, LastForwarded, Protocol, TraceFlags};
    use std::cell::Cell;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn client() -> Rc<Client> {
        Rc::new(Client {
            address: ([192, 0, 2, 1], 1).into(),
            local: ([192, 0, 2, 2], 443).into(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: Identity::default(),
            connection: 0,
        })
    }

    struct Heard {
        wants: bool,
        ends: Rc<RefCell<Vec<RequestEnd>>>,
    }

    impl Listener for Heard {
        fn wants(&self) -> bool {
            self.wants
        }
        fn ended(&self, facts: &Facts) {
            self.ends.borrow_mut().push(facts.end);
        }
    }

    #[test]
    fn a_record_is_told_once_however_the_request_ended() {
        let ends = Rc::default();
        let records = Records::for_listener(Heard { wants: true, ends: Rc::clone(&ends) });
        let recording = records.begin(client);
        let shared = recording.record().clone();
        recording.ended(RequestEnd::Complete);
        drop(recording);
        shared.error("too late");
        drop(records.begin(client));
        assert_eq!(*ends.borrow(), [RequestEnd::Complete, RequestEnd::Cancelled]);
    }

    #[test]
    fn values_without_a_listener_are_not_computed() {
        let ends = Rc::default();
        let asked = Cell::new(0);
        for records in [Records::default(), Records::for_listener(Heard { wants: false, ends: Rc::clone(&ends) })] {
            let recording = records.begin(|| {
                asked.set(1);
                client()
            });
            recording.record().note(|_| asked.set(2));
            assert!(!recording.record().is_on());
        }
        assert_eq!((asked.get(), ends.borrow().len()), (0, 0));
    }

    #[test]
    fn a_trace_id_is_that_of_the_one_valid_traceparent_unless_litequic_has_decided() {
        let mut facts = Facts::new(client());
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        facts.field(b"traceparent", value.as_bytes());
        assert_eq!(facts.trace_id().map(|id| id.to_string()).as_deref(), Some(TRACE));
        facts.field(b"traceparent", value.as_bytes());
        assert_eq!(facts.trace_id(), None, "two of them");
        let trace = trace(true);
        facts.trace = Some(trace.clone());
        assert_eq!(facts.trace_id(), Some(trace.trace_id));
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

    /// Decides as it is told, and keeps what ended.
    struct Traced {
        start: TraceStart,
        sampled: bool,
        ended: Rc<RefCell<Vec<RequestTrace>>>,
    }

    impl Tracer for Traced {
        fn begin(&self, _: IpAddr) -> TraceStart {
            self.start
        }
        fn decide(&self, _: &Facts, _: TraceId) -> Option<RequestTrace> {
            Some(trace(self.sampled))
        }
        fn ended(&self, _: &Facts, trace: &RequestTrace) {
            self.ended.borrow_mut().push(trace.clone());
        }
    }

    fn undecided() -> TraceStart {
        TraceStart::Undecided(TraceId::random())
    }

    #[test]
    fn a_request_that_cannot_be_sampled_has_a_traceparent_and_is_recorded_only_for_a_listener() {
        let id = TraceId::random();
        for wants in [None, Some(false), Some(true)] {
            let (ends, ended) = (Rc::default(), Rc::default());
            let records = match wants {
                Some(wants) => Records::for_listener(Heard { wants, ends: Rc::clone(&ends) }),
                None => Records::default(),
            };
            let start = TraceStart::Unsampled(id);
            let records = records.traced_by(Traced { start, sampled: false, ended: Rc::clone(&ended) });
            let recording = records.begin(client);
            let record = recording.record();
            assert_eq!((record.is_on(), record.own_trace_id()), (wants == Some(true), Some(id)));
            assert_eq!(record.trace(), Propagation::Begun);
            let attempts = [0, 1].map(|n| record.begin_attempt(&"origin".into(), &"http://a:1".into(), n).unwrap());
            assert!(attempts.iter().all(|sent| !sent.flags.is_sampled() && sent.flags.is_random()));
            assert_ne!(attempts[0].parent_id, attempts[1].parent_id);
            drop(recording);
            assert_eq!((ends.borrow().len(), ended.borrow().len()), if wants == Some(true) { (1, 1) } else { (0, 0) });
        }
        let highest = TraceId::new([0xff; 16]).unwrap();
        assert_ne!(Traceparent::unsampled(highest, 1).parent_id.bytes(), &[0; 8], "an ID is not all zeros");
    }

    #[test]
    fn each_attempt_of_a_sampled_request_is_recorded_and_all_have_a_traceparent() {
        for sampled in [true, false] {
            let ended: Rc<RefCell<Vec<RequestTrace>>> = Rc::default();
            let records =
                Records::default().traced_by(Traced { start: undecided(), sampled, ended: Rc::clone(&ended) });
            let recording = records.begin(client);
            let record = recording.record();
            record.note(|facts| facts.set_text(RequestText::Method, b"GET"));
            assert_eq!((record.trace(), record.trace()), (Propagation::Begun, Propagation::Begun), "decided once");
            let mut sent = Vec::new();
            for (earlier, outcome) in [(0, Err("connection_terminated")), (1, Ok(StatusCode::OK))] {
                sent.push(record.begin_attempt(&"origin".into(), &"http://a:1".into(), earlier).unwrap());
                record.attempt_sends(|| "/a", outcome.is_err());
                record.attempt_ended(outcome);
            }
            drop(recording);
            let ended = ended.borrow();
            let [trace] = &ended[..] else { panic!("{ended:?}") };
            assert!(sent.iter().all(|sent| sent.trace_id == trace.trace_id && sent.flags.is_sampled() == sampled));
            assert_ne!(sent[0].parent_id, sent[1].parent_id);
            assert!((0..).zip(&trace.attempts).all(|(earlier, attempt)| attempt.earlier == earlier));
            let of = |attempt: &Attempt| (attempt.span_id, attempt.is_reused, attempt.status, attempt.error);
            let attempts: Vec<_> = trace.attempts.iter().map(of).collect();
            let expected = [
                (sent[0].parent_id, true, None, Some("connection_terminated")),
                (sent[1].parent_id, false, Some(StatusCode::OK), None),
            ];
            assert_eq!(attempts, if sampled { &expected[..] } else { &[] });
        }
    }

    #[test]
    fn what_was_no_request_has_no_trace() {
        let ended: Rc<RefCell<Vec<RequestTrace>>> = Rc::default();
        for (start, method) in [(TraceStart::Off, "GET"), (undecided(), ""), (undecided(), "GET")] {
            let records = Records::default().traced_by(Traced { start, sampled: true, ended: Rc::clone(&ended) });
            let recording = records.begin(client);
            assert_eq!(recording.record().is_on(), start != TraceStart::Off);
            recording.record().note(|facts| facts.set_text(RequestText::Method, method.as_bytes()));
        }
        assert_eq!(ended.borrow().len(), 1);
        assert_eq!(Record::default().trace(), Propagation::Unchanged);
    }

    #[test]
    fn the_host_is_the_authority_where_there_is_one() {
        let mut facts = Facts::new(client());
        facts.field(b"host", b"b.test");
        assert_eq!(facts.text(RequestText::Host), b"b.test");
        facts.field(b":authority", b"a.test");
        facts.field(b"host", b"b.test");
        assert_eq!(facts.text(RequestText::Host), b"a.test");
    }
}
