//! Traces: a span for each request and each attempt, in the client's trace or one of its own, at a collector that a
//! test plays.

mod bounds;
mod collectors;
mod ends;
mod life;
mod peers;
mod secure;

use crate::support::{
    collector::{Collector, SeenSpan},
    origin::Head,
    prelude::*,
};
use litequic_config::{Fraction, TraceParent};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Sends all traces to the collector at `url`, and follows clients on this machine.
pub(super) fn traced(config: &mut Config, url: &str) {
    config.traces.endpoint = Some(url.parse().unwrap());
    config.traces.ratio = Fraction::ALL;
    config.trusted_proxies = vec![Network { address: [127, 0, 0, 0].into(), prefix: 8 }];
}

/// litequic before `origin`, with all traces at `collector`.
pub(super) async fn tracing(origin: SocketAddr, collector: &Collector, edit: impl FnOnce(&mut Config)) -> Litequic {
    Litequic::start(origin, |config| {
        traced(config, &collector.url());
        edit(config);
    })
    .await
}

/// A request for `path` in each version of HTTP, with these fields, of a client that reads the whole response.
pub(super) async fn fetch(litequic: &Litequic, version: HttpVersion, path: &str, fields: &[(&str, &str)]) -> u16 {
    match version {
        HttpVersion::Http1 => {
            let mut tls = Tls::http1(litequic).await;
            let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            tls.say(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n")).await;
            tls.rest().await.0.split(' ').nth(1).unwrap().parse().unwrap()
        }
        HttpVersion::Http2 => {
            let mut http2 = Http2::connect(litequic, &[]).await;
            let pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
            let section = http2::fields(&[&pseudo[..], fields].concat());
            http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &section).await;
            let mut frame = http2.find(&[http2::HEADERS]).await.unwrap();
            let status = http2::status(&frame);
            while frame.flags & http2::END_STREAM == 0 {
                frame = http2.find(&[http2::HEADERS, http2::DATA]).await.unwrap();
            }
            status
        }
        HttpVersion::Http3 => {
            let client = Client::to(litequic).await;
            let mut request = client.request(Method::GET, path);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            client.fetch(request, Bytes::new()).await.status.as_u16()
        }
    }
}

/// The span of the request, and those of its attempts.
pub(super) fn parted(spans: &[SeenSpan]) -> (&SeenSpan, Vec<&SeenSpan>) {
    let (servers, clients): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.is_server);
    let [server] = servers[..] else { panic!("{spans:#?}") };
    assert!(clients.iter().all(|client| client.trace_id == server.trace_id && client.parent_id == server.span_id));
    (server, clients)
}

/// Has `client` send two requests, the second of which comes to its origin twice: the first response leaves a
/// connection, which closes with the second request. Returns the heads of that.
async fn sent_twice(client: &Client, script: &Script) -> [Head; 2] {
    let (first, mut peer) = tokio::join!(client.get("/first"), async {
        let mut peer = script.accept_request().await;
        peer.say(Always::EMPTY_200).await;
        peer
    });
    assert_eq!(first.status.as_u16(), 200);
    let (second, heads) = tokio::join!(client.get("/second"), async {
        let stale = peer.head().await;
        drop(peer);
        let mut fresh = script.accept().await;
        let again = fresh.head().await;
        fresh.say(Always::EMPTY_200).await;
        [stale, again]
    });
    assert_eq!(second.status.as_u16(), 200);
    heads
}

/// An origin that answers one request, whose head it returns.
async fn answered(script: &Script, answer: &str) -> Head {
    let mut peer = script.accept().await;
    let head = peer.head().await;
    peer.say(answer).await;
    head
}

#[tokio::test]
async fn requests_of_each_protocol_and_their_attempts_are_spans() {
    for (version, number) in HttpVersion::ALL.into_iter().zip(["1.1", "2", "3"]) {
        for collector in [Collector::http().await, Collector::grpc().await] {
            let script = Script::new().await;
            let litequic = tracing(script.address, &collector, |config| {
                config.traces.attributes = vec![("deployment.environment.name".into(), "test".into())];
                config.traces.headers = vec![("x-token".parse().unwrap(), "secret".parse().unwrap())];
            })
            .await;
            let traceparent = format!("00-{TRACE}-{PARENT}-01");
            let fields = [("traceparent", &*traceparent), ("tracestate", "a=1,b=2"), ("user-agent", "test/1")];
            let (status, head) = tokio::join!(
                fetch(&litequic, version, "/a?token=1", &fields),
                answered(&script, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            );
            assert_eq!(status, 200);
            let spans = collector.spans(2).await;
            let (server, clients) = parted(&spans);
            assert_eq!((&*server.trace_id, &*server.parent_id, &*server.name), (TRACE, PARENT, "GET /*"));
            let sent = format!("00-{TRACE}-{}-01", clients[0].span_id);
            assert_eq!(head.all("traceparent"), [&*sent]);
            assert_eq!(head.all("tracestate"), ["a=1,b=2"]);
            for (key, value) in [
                ("http.request.method", "GET"),
                ("http.response.status_code", "200"),
                ("http.response.body.size", "5"),
                ("http.route", "/*"),
                ("url.path", "/a"),
                ("url.query", ""),
                ("url.scheme", "https"),
                ("server.address", "localhost"),
                ("client.address", "127.0.0.1"),
                ("network.protocol.version", number),
                ("network.transport", if number == "3" { "quic" } else { "tcp" }),
                ("user_agent.original", "test/1"),
                ("litequic.route", "*/"),
                ("litequic.end", "complete"),
                ("litequic.request_id", head.field("x-request-id").unwrap()),
                ("error.type", ""),
            ] {
                assert_eq!(server.get(key), value, "{key} over HTTP/{number}");
            }
            let url = format!("http://{}/a", script.address);
            for (key, value) in [("url.full", &*url), ("litequic.origin", "origin"), ("http.request.resend_count", "")]
            {
                assert_eq!(clients[0].get(key), value, "{key}");
            }
            assert_eq!(collector.resource()["deployment.environment.name"], "test");
            assert!(collector.heads().iter().all(|head| head.contains("secret")), "{:?}", collector.heads());
            litequic.stop().await;
        }
    }
}

#[tokio::test]
async fn an_unsampled_request_has_no_span_and_its_origin_is_told_so() {
    let collector = Collector::http().await;
    let script = Script::new().await;
    let litequic = tracing(script.address, &collector, |_| {}).await;
    let client = Client::to(&litequic).await;
    let mut peer = None;
    for (sent, flags) in [(Some("00"), "00"), (Some("01"), "01"), (None, "03")] {
        let mut request = client.request(Method::GET, "/");
        if let Some(flags) = sent {
            request = request.header("traceparent", format!("00-{TRACE}-{PARENT}-{flags}"));
        }
        let mut stream = client.open(request).await;
        stream.finish().await.unwrap();
        let connection = match &mut peer {
            Some(connection) => connection,
            none => none.insert(script.accept().await),
        };
        let head = connection.head().await;
        let traceparent = head.field("traceparent").unwrap();
        assert!(traceparent.ends_with(flags) && !traceparent.contains(PARENT), "{traceparent}");
        connection.say(Always::EMPTY_200).await;
        assert_eq!(client::answer(&mut stream).await.status.as_u16(), 200);
    }
    let spans = collector.spans(4).await;
    let servers: Vec<_> = spans.iter().filter(|span| span.is_server).map(|span| span.parent_id.as_str()).collect();
    assert_eq!(servers, [PARENT, ""]);
    litequic.stop().await;
}

#[tokio::test]
async fn an_untrusted_trace_is_linked_and_a_new_id_made() {
    for (parent, trusted, is_followed) in [
        (TraceParent::Trusted, false, false),
        (TraceParent::Trusted, true, true),
        (TraceParent::None, true, false),
        (TraceParent::Any, false, true),
    ] {
        let collector = Collector::http().await;
        let script = Script::new().await;
        let litequic = tracing(script.address, &collector, |config| {
            config.traces.parent = parent;
            if !trusted {
                config.trusted_proxies.clear();
            }
        })
        .await;
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        let fields = [("traceparent", &*traceparent), ("tracestate", "a=1")];
        let (status, head) =
            tokio::join!(fetch(&litequic, HttpVersion::Http3, "/", &fields), answered(&script, Always::EMPTY_200));
        assert_eq!(status, 200);
        let spans = collector.spans(2).await;
        let (server, clients) = parted(&spans);
        let id = head.field("x-request-id").unwrap();
        let (trace, link) = if is_followed { (TRACE, vec![]) } else { (id, vec![TRACE.to_owned()]) };
        assert_eq!((&*server.trace_id, &server.links), (trace, &link), "{parent:?} {trusted}");
        assert_eq!(head.field("tracestate"), is_followed.then_some("a=1"));
        let flags = if is_followed { "01" } else { "03" };
        assert_eq!(head.field("traceparent"), Some(&*format!("00-{trace}-{}-{flags}", clients[0].span_id)));
        litequic.stop().await;
    }
}

#[tokio::test]
async fn without_traces_the_context_passes_and_with_ratio_0_nothing_is_sampled() {
    let collector = Collector::http().await;
    let script = Script::new().await;
    let litequic = tracing(script.address, &collector, |config| config.traces.ratio = Fraction(0)).await;
    let (status, head) = tokio::join!(
        fetch(&litequic, HttpVersion::Http3, "/", &[("traceparent", "no such thing"), ("tracestate", "a=1")]),
        answered(&script, Always::EMPTY_200)
    );
    assert_eq!((status, head.all("tracestate").len()), (200, 0));
    let id = head.field("x-request-id").unwrap();
    let traceparent = head.field("traceparent").unwrap();
    assert!(traceparent.starts_with(&format!("00-{id}-")) && traceparent.ends_with("-02"), "{traceparent}");
    litequic.stop().await;
    assert_eq!(collector.requests(), 0);
}
