//! The record of one request: filled in by the front end that accepted it and by the proxy, reported once when the
//! front end drops it, however it ended. A record that is off costs a comparison, and holds nothing.

use super::{BodyError, Client};
use bytes::Bytes;
use http::StatusCode;
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
pub struct Records(Option<Rc<dyn Listener>>);

/// A receiver of records.
pub trait Listener {
    /// Whether the request that begins now is recorded.
    fn wants(&self) -> bool;
    /// The record of one that was. Called when the request ends, and so must not block.
    fn ended(&self, facts: &Facts);
}

/// One request's record, shared by all modules that serve it. Off by default.
#[derive(Debug, Clone, Default)]
pub struct Record(Option<Rc<RefCell<Facts>>>);

/// The front end's handle of a record: when it is dropped, the listener gets the record.
pub struct Recording {
    record: Record,
    listener: Option<Rc<dyn Listener>>,
}

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
    /// The ID that the origin and an answer in its place carry.
    pub request_id: Bytes,
    /// `:method`
    pub method: Bytes,
    /// `:authority`, or `Host`.
    pub host: Bytes,
    /// `:path`, with its query.
    pub path: Bytes,
    /// `User-Agent`
    pub user_agent: Bytes,
    /// `Referer`
    pub referer: Bytes,
    /// `traceparent`, as far as it was the only one.
    pub traceparent: Option<Bytes>,
    /// The name of the route that it matched.
    pub route: Option<Arc<str>>,
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
    /// Why litequic answered in the origin's place, or reset the response: an error type of RFC 9209 §2.3.
    pub error: Option<&'static str>,
    /// How it ended.
    pub end: RequestEnd,
}

const _: () = assert!(size_of::<Facts>() <= 416);

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
        }
    }
}

impl Records {
    /// Sends `listener` every record that it requests.
    pub fn for_listener(listener: impl Listener + 'static) -> Self {
        Self(Some(Rc::new(listener)))
    }

    /// A request of `client` begins.
    pub fn begin(&self, client: impl FnOnce() -> Rc<Client>) -> Recording {
        let listener = self.0.as_ref().filter(|listener| listener.wants()).cloned();
        let record = Record(listener.as_ref().map(|_| Rc::new(RefCell::new(Facts::new(client())))));
        Recording { record, listener }
    }
}

impl Record {
    /// Whether there is a listener that wants this record.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sets values, if the record is on. `note` must not call this function.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        if let Some(facts) = &self.0 {
            note(&mut facts.borrow_mut());
        }
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
            facts.first_byte = Some(facts.started.elapsed());
        });
    }
}

impl Recording {
    /// For all modules that serve the request.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// How it ended; until this is called it counts as cancelled: its connection closed.
    pub fn ended(&self, end: RequestEnd) {
        self.record.note(|facts| {
            if facts.end != RequestEnd::Evicted {
                facts.end = end;
            }
        });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let (Some(listener), Some(facts)) = (&self.listener, &self.record.0) {
            listener.ended(&facts.borrow());
        }
    }
}

impl Facts {
    fn new(client: Rc<Client>) -> Self {
        Self {
            began: SystemTime::now(),
            started: Instant::now(),
            client,
            behind: None,
            request_id: Bytes::new(),
            method: Bytes::new(),
            host: Bytes::new(),
            path: Bytes::new(),
            user_agent: Bytes::new(),
            referer: Bytes::new(),
            traceparent: None,
            route: None,
            origin: None,
            server: None,
            status: None,
            received: 0,
            sent: 0,
            first_byte: None,
            origin_time: None,
            auth_time: None,
            error: None,
            end: RequestEnd::Cancelled,
        }
    }

    /// Records the field of a request if it is wanted; pseudo-header fields have their colon.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let place = match name {
            b":method" => &mut self.method,
            b":authority" => &mut self.host,
            b"host" if self.host.is_empty() => &mut self.host,
            b":path" => &mut self.path,
            b"user-agent" => &mut self.user_agent,
            b"referer" => &mut self.referer,
            b"traceparent" => {
                // Two are as good as none (Trace Context §3.2): an empty one is not valid.
                let value = if self.traceparent.is_some() { b"" } else { value };
                self.traceparent = Some(Bytes::copy_from_slice(value));
                return;
            }
            _ => return,
        };
        *place = Bytes::copy_from_slice(value);
    }

    /// The trace that the request belongs to, if its `traceparent` is valid (Trace Context §3.2).
    pub fn trace_id(&self) -> Option<&str> {
        trace_id(std::str::from_utf8(self.traceparent.as_deref()?).ok()?)
    }
}

/// `version "-" trace-id "-" parent-id "-" trace-flags`, lower-case hexadecimal digits, the IDs not all zeros. A
/// version that is not known yet may go on after another `-`; `ff` is none.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.splitn(5, '-');
    let mut hex = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_known = version == "00";
    let ends_well = parts.next().is_none() || !is_known;
    let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
    (version != "ff" && ends_well && !is_zero(trace) && !is_zero(parent)).then_some(trace)
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Identity, LastForwarded, Protocol};
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
    fn a_trace_id_is_that_of_a_valid_traceparent() {
        let parent = "00f067aa0ba902b7";
        for (traceparent, expected) in [
            (format!("00-{TRACE}-{parent}-01"), Some(TRACE)),
            (format!("cc-{TRACE}-{parent}-01-what-the-future-brings"), Some(TRACE)),
            (format!("00-{TRACE}-{parent}-01-more"), None),
            (format!("ff-{TRACE}-{parent}-01"), None),
            (format!("00-{}-{parent}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{parent}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{TRACE}-{parent}"), None),
            (format!("00-{TRACE}-{parent}-1"), None),
            (format!(" 00-{TRACE}-{parent}-01"), None),
            ("\n".into(), None),
            (String::new(), None),
        ] {
            let mut facts = Facts::new(client());
            facts.field(b"traceparent", &Bytes::from(traceparent.clone()));
            assert_eq!(facts.trace_id(), expected, "{traceparent}");
            facts.field(b"traceparent", &Bytes::from(traceparent));
            assert_eq!(facts.trace_id(), None, "two of them");
        }
    }

    #[test]
    fn the_host_is_the_authority_where_there_is_one() {
        let mut facts = Facts::new(client());
        facts.field(b"host", &Bytes::from_static(b"b.test"));
        assert_eq!(facts.host, "b.test");
        facts.field(b":authority", &Bytes::from_static(b"a.test"));
        facts.field(b"host", &Bytes::from_static(b"b.test"));
        assert_eq!(facts.host, "a.test");
    }
}
