use super::*;
use crate::traces::{otlp::ExportEnvelope, sampler};
use bytes::Bytes;
use http::StatusCode;
use litequic_config::{Fraction, Traces};
use litequic_exchange::{
    Client, LastForwarded, RequestRecord, RequestRecorder, RequestText, TlsIdentity, TraceId, TraceStart, Traceparent,
    Tracer,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode as SpanStatus},
};
use proptest::prelude::*;
use prost::Message;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn client(protocol: Protocol, address: SocketAddr) -> Rc<Client> {
    Rc::new(Client {
        address,
        local: ([192, 0, 2, 2], 443).into(),
        protocol,
        server_name: None,
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    })
}

/// Tracer that samples all requests, continues every trace, and writes the spans of ended requests.
struct All {
    spans: Rc<RefCell<Vec<u8>>>,
}

impl Tracer for All {
    fn start_trace(&self, _: IpAddr) -> TraceStart {
        TraceStart::Undecided(TraceId::random())
    }
    fn sample_trace(&self, facts: &RecordedFacts, own: TraceId) -> Option<RequestTrace> {
        let traceparent = facts.client_traceparent();
        Some(sampler::decide_trace(
            traceparent,
            true,
            facts.request_text(RequestText::RequestId),
            own,
            sampler::Sampler::new(Fraction::ALL),
        ))
    }
    fn on_trace_ended(&self, facts: &RecordedFacts, trace: &RequestTrace) {
        let took = Duration::from_millis(1500);
        write_spans(&mut self.spans.borrow_mut(), EndedRequest { facts, trace, took });
    }
}

/// Spans of a request that `serve` records, as a collector reads them.
fn exported(protocol: Protocol, serve: impl FnOnce(&RequestRecord)) -> Vec<Span> {
    let spans = Rc::new(RefCell::new(Vec::new()));
    let records = RequestRecorder::default().with_tracer(All { spans: Rc::clone(&spans) });
    let recording = records.begin_record(|| client(protocol, ([192, 0, 2, 1], 4711).into()));
    serve(&recording.0);
    drop(recording);
    let traces = Traces { attributes: vec![("a".into(), "b".into())], ..Traces::default() };
    let message = ExportEnvelope::new(&traces).wrap_spans(&[spans.borrow().clone().into()], false);
    let request = ExportTraceServiceRequest::decode(&*message).unwrap();
    let [resource] = &request.resource_spans[..] else { panic!("{request:?}") };
    let attributes = attributes(&resource.resource.as_ref().unwrap().attributes);
    assert_eq!((&*attributes["service.name"], &*attributes["a"]), ("litequic", "b"));
    let [scope] = &resource.scope_spans[..] else { panic!("{resource:?}") };
    assert_eq!(scope.scope.as_ref().unwrap().name, "litequic");
    scope.spans.clone()
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |one: &KeyValue| match one.value.as_ref().and_then(|value| value.value.clone()).unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        other => panic!("{other:?}"),
    };
    let read: BTreeMap<_, _> = all.iter().map(|one| (one.key.clone(), value(one))).collect();
    assert_eq!(read.len(), all.len(), "a key occurs twice: {all:?}");
    read
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == SpanStatus::Error as i32)
}

#[test]
fn a_retried_request_is_three_spans_with_the_attributes_of_the_conventions() {
    let spans = exported(Protocol::Http3, |record| {
        record.update_facts(|facts| {
            facts.set_request_text(RequestText::Method, b"GET");
            facts.set_request_text(RequestText::Path, b"/api/a?token=1");
            facts.set_request_text(RequestText::Host, b"a.test:8443");
            facts.set_request_text(RequestText::UserAgent, b"test/1");
            facts.route = Some("a.test/api".into());
            facts.http_route = Some("/api/*".into());
            facts.set_request_text(RequestText::Traceparent, PARENT.as_bytes());
            facts.set_request_text(RequestText::RequestId, b"7");
            facts.sent = 300;
            facts.end = RequestEnd::Complete;
        });
        record.decide_propagation();
        let (origin, server) = ("app".into(), "http://10.0.0.1:8080".into());
        record.begin_attempt(&origin, &server, 0);
        record.begin_sending(|| "/a?token=1", true);
        record.end_attempt(Err("connection_terminated"));
        record.begin_attempt(&origin, &"unix:/run/a.sock".into(), 1);
        record.begin_sending(|| "/a?token=1", false);
        record.end_attempt(Ok(StatusCode::OK));
        record.record_response_status(StatusCode::OK);
    });
    let [server, first, second] = &spans[..] else { panic!("{spans:?}") };
    let parent = Traceparent::parse_traceparent(PARENT.as_bytes()).unwrap();
    assert!(spans.iter().all(|span| span.trace_id == parent.trace_id.bytes()));
    assert_eq!(server.parent_span_id, parent.parent_id.bytes());
    assert_eq!((&first.parent_span_id, &second.parent_span_id), (&server.span_id, &server.span_id));
    assert_eq!((&*server.name, server.kind), ("GET /api/*", SpanKind::Server as i32));
    assert_eq!((&*first.name, first.kind), ("GET", SpanKind::Client as i32));
    assert_eq!((server.flags, first.flags), (0x301, 0x101));
    assert_eq!(server.end_time_unix_nano - server.start_time_unix_nano, 1_500_000_000);
    assert!(first.start_time_unix_nano >= server.start_time_unix_nano);
    assert_eq!((is_error(server), is_error(first), is_error(second)), (false, true, false));

    let expected = [
        ("client.address", "192.0.2.1"),
        ("http.request.method", "GET"),
        ("http.response.body.size", "300"),
        ("http.response.status_code", "200"),
        ("http.route", "/api/*"),
        ("litequic.end", "complete"),
        ("litequic.request_id", "7"),
        ("litequic.route", "a.test/api"),
        ("network.peer.address", "192.0.2.1"),
        ("network.peer.port", "4711"),
        ("network.protocol.version", "3"),
        ("network.transport", "quic"),
        ("server.address", "a.test"),
        ("server.port", "8443"),
        ("url.path", "/api/a"),
        ("url.scheme", "https"),
        ("user_agent.original", "test/1"),
    ];
    let owned = |all: &[(&str, &str)]| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    assert_eq!(attributes(&server.attributes), owned(&expected));
    let expected = [
        ("error.type", "connection_terminated"),
        ("http.request.method", "GET"),
        ("litequic.connection.reused", "true"),
        ("litequic.origin", "app"),
        ("network.protocol.version", "1.1"),
        ("server.address", "10.0.0.1"),
        ("server.port", "8080"),
        ("url.full", "http://10.0.0.1:8080/a"),
    ];
    assert_eq!(attributes(&first.attributes), owned(&expected));
    let expected = [
        ("http.request.method", "GET"),
        ("http.request.resend_count", "1"),
        ("http.response.status_code", "200"),
        ("litequic.connection.reused", "false"),
        ("litequic.origin", "app"),
        ("network.protocol.version", "1.1"),
        ("server.address", "/run/a.sock"),
        ("url.full", "http://localhost/a"),
    ];
    assert_eq!(attributes(&second.attributes), owned(&expected));
}

#[test]
fn a_trace_that_is_not_continued_is_linked() {
    let link = Traceparent::parse_traceparent(PARENT.as_bytes());
    let spans = exported(Protocol::Http1, |record| {
        record.update_facts(|facts| {
            facts.set_request_text(RequestText::Method, b"GET");
            facts.is_http_10 = true;
            facts.trace = Some(RequestTrace {
                trace_id: TraceId::random(),
                span_id: SpanId::random(),
                parent_id: None,
                flags: TraceFlags::new(true, true),
                link,
                attempts: Vec::new(),
            });
        });
    });
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*span.parent_span_id, span.flags), (&b""[..], 0x103));
    let [linked] = &span.links[..] else { panic!("{span:?}") };
    assert_eq!((&*linked.trace_id, linked.flags), (&link.unwrap().trace_id.bytes()[..], 0x301));
    assert_eq!(attributes(&span.attributes)["network.protocol.version"], "1.0");
    assert_eq!(span.name, "GET");
}

#[test]
fn an_error_or_a_truncated_response_makes_the_span_an_error() {
    use RequestEnd::{Cancelled, Complete, Evicted, Failed, Malformed, Stalled};
    for (end, status, error, expected, kind) in [
        (Complete, Some(200), None, false, None),
        (Complete, Some(404), None, false, None),
        (Complete, Some(404), Some("destination_not_found"), false, Some("destination_not_found")),
        (Complete, Some(502), Some("connection_terminated"), true, Some("connection_terminated")),
        (Complete, Some(500), None, true, Some("500")),
        (Cancelled, Some(200), None, false, None),
        (Cancelled, None, None, false, None),
        (Stalled, Some(200), None, true, Some("stalled")),
        (Evicted, Some(200), Some("connection_limit_reached"), true, Some("connection_limit_reached")),
        (Failed, Some(200), Some("http_response_incomplete"), true, Some("http_response_incomplete")),
        (Failed, None, None, true, Some("failed")),
        (Malformed, Some(400), None, false, None),
        (Malformed, None, None, true, Some("malformed")),
    ] {
        let spans = exported(Protocol::Http2, |record| {
            record.update_facts(|facts| {
                facts.set_request_text(RequestText::Method, b"GET");
                facts.end = end;
                facts.error = error;
                facts.status = status.map(|status| StatusCode::from_u16(status).unwrap());
            });
        });
        let attributes = attributes(&spans[0].attributes);
        let found = attributes.get("error.type").map(String::as_str);
        assert_eq!((is_error(&spans[0]), found), (expected, kind), "{end:?} {status:?} {error:?}");
    }
}

#[test]
fn unknown_methods_follow_the_conventions_and_queries_are_left_out() {
    let spans = exported(Protocol::Http2, |record| {
        record.update_facts(|facts| {
            facts.set_request_text(RequestText::Method, b"BREW");
            facts.http_route = Some("/*".into());
            facts.set_request_text(RequestText::Path, b"/a?b=1&sig=abc");
            facts.set_request_text(RequestText::Host, b"[2001:db8::1]");
        });
    });
    let attributes = attributes(&spans[0].attributes);
    assert_eq!(spans[0].name, "HTTP /*");
    for (key, value) in [
        ("http.request.method", "_OTHER"),
        ("http.request.method_original", "BREW"),
        ("url.path", "/a"),
        ("server.address", "2001:db8::1"),
        ("server.port", "443"),
    ] {
        assert_eq!(attributes[key], value, "{key}");
    }
    assert!(!attributes.contains_key("url.query"));
}

#[test]
fn values_are_cut_between_characters_and_invalid_bytes_are_escaped() {
    assert_eq!(&*printable_value(b"a\xffb"), b"a\\xFFb");
    assert_eq!(&*printable_value(b"a\xc3"), b"a\\xC3");
    let long = format!("{}ö", "a".repeat(MAX_VALUE - 1));
    assert_eq!(&*printable_value(long.as_bytes()), b"a".repeat(MAX_VALUE - 1));
    let bad = [b'\xff'; MAX_VALUE];
    assert_eq!(printable_value(&bad).len(), MAX_VALUE);
    for (given, expected) in [
        (&b"a.test:1"[..], ("a.test", Some(1))),
        (b"a.test", ("a.test", None)),
        (b"[::1]:1", ("::1", Some(1))),
        (b"[::1]", ("::1", None)),
        (b"", ("", None)),
        (b"a:x", ("a", None)),
    ] {
        assert_eq!(split_authority(given), (expected.0.as_bytes(), expected.1));
    }
}

fn anything() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..3000).prop_map(Bytes::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Checks that messages that others have compiled read every written byte.
    #[test]
    fn any_request_makes_a_span_that_others_read(
        method in anything(),
        path in anything(),
        host in anything(),
        agent in anything(),
        status in prop::option::of(100u16..1000),
        sent: u64,
        attempts in prop::collection::vec((any::<bool>(), "[ -~]{0,60}", prop::option::of(100u16..1000)), 0..6),
    ) {
        let count = attempts.len();
        let spans = exported(Protocol::Http2, |record| {
            record.update_facts(|facts| {
                facts.set_request_text(RequestText::Method, &[b"X", &method[..]].concat());
                facts.set_request_text(RequestText::Path, &path);
                facts.set_request_text(RequestText::Host, &host);
                facts.set_request_text(RequestText::UserAgent, &agent);
                facts.sent = sent;
                facts.status = status.map(|status| StatusCode::from_u16(status).unwrap());
            });
            record.decide_propagation();
            for (earlier, (reused, target, status)) in (0..).zip(attempts) {
                record.begin_attempt(&"o".into(), &target.as_str().into(), earlier);
                record.begin_sending(|| &target, reused);
                if let Some(status) = status {
                    record.end_attempt(Ok(StatusCode::from_u16(status).unwrap()));
                }
            }
        });
        prop_assert_eq!(spans.len(), count + 1);
        for span in &spans {
            prop_assert!(span.trace_id.len() == 16 && span.span_id.len() == 8);
            prop_assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
            prop_assert!(attributes(&span.attributes).values().all(|value| value.len() <= MAX_VALUE));
        }
        prop_assert_eq!(attributes(&spans[0].attributes).get("http.response.body.size").cloned(),
            status.map(|_| sent.cast_signed().to_string()));
    }
}
