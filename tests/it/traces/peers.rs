//! Programs that others have written: an OpenTelemetry Collector and Jaeger, built of `collector/` and `jaeger/` by
//! `.ci/run`, and an application with the Python SDK.

use super::{PARENT, TRACE, fetch, sent_twice, traced, tracing};
use crate::support::{
    collector::{Collector, SeenSpan},
    ports::free_tcp_port,
    prelude::*,
};
use serde_json::Value as Json;

const PROGRAM: &str = "litequic-test-collector";
const JAEGER: &str = "jaeger";

/// The spans in a file of JSON lines, as OTLP has them in JSON.
fn spans(file: &Path) -> Vec<Json> {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The last line may be incomplete.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let array = |value: &Json, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let resources = lines.flat_map(|line| array(&line, "resourceSpans"));
    let scopes = resources.flat_map(|resource| array(&resource, "scopeSpans"));
    scopes.flat_map(|scope| array(&scope, "spans")).collect()
}

#[tokio::test]
async fn an_opentelemetry_collector_reads_the_spans_over_http_and_over_grpc() {
    let Some(program) = needs::program(PROGRAM) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (http, grpc, file) = (free_tcp_port(), free_tcp_port(), folder.path().join("spans.json"));
    let config = format!(
        "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: 127.0.0.1:{http}\n      grpc:\n        \
         endpoint: 127.0.0.1:{grpc}\nexporters:\n  file:\n    path: {}\n    flush_interval: 100ms\nservice:\n  \
         telemetry:\n    metrics:\n      level: none\n  pipelines:\n    traces:\n      receivers: [otlp]\n      \
         exporters: [file]\n",
        file.display()
    );
    fs::write(folder.path().join("collector.yaml"), config).unwrap();
    let mut command = Command::new(program);
    command.arg("--config").arg(folder.path().join("collector.yaml"));
    let collector = Process::spawn(command);
    collector.await_stderr("Everything is ready");
    let origin = Always::new(Always::EMPTY_200).await;
    for (protocol, port) in [("http", http), ("grpc", grpc)] {
        let before = spans(&file).len();
        let litequic = Litequic::start(origin.address, |config| {
            traced(config, &format!("{protocol}://127.0.0.1:{port}"));
        })
        .await;
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        for version in HttpVersion::ALL {
            assert_eq!(fetch(&litequic, version, "/a", &[("traceparent", &*traceparent)]).await, 200);
        }
        until("six spans in the collector's file", async || spans(&file).len() >= before + 6).await;
        let spans = spans(&file).split_off(before);
        assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:#?}");
        let servers: Vec<_> = spans.iter().filter(|span| span["parentSpanId"] == PARENT).collect();
        assert_eq!(servers.len(), 3);
        for server in servers {
            assert_eq!((&server["name"], &server["kind"]), (&"GET /*".into(), &2.into()));
            let children = spans.iter().filter(|span| span["parentSpanId"] == server["spanId"]);
            assert_eq!(children.map(|span| &span["kind"]).collect::<Vec<_>>(), [&Json::from(3)]);
        }
        litequic.stop().await;
    }
    collector.end_by("TERM");
}

#[tokio::test]
async fn an_application_with_the_sdk_continues_the_trace() {
    let Some(python) = needs::python_module("opentelemetry.instrumentation.wsgi") else { return };
    let collector = Collector::http().await;
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/traces/app.py")).arg(collector.url());
    let app = Process::spawn(command);
    app.await_stdout("\n");
    let port: u16 = app.stdout().trim().parse().unwrap();
    let litequic = tracing((Ipv4Addr::LOCALHOST, port).into(), &collector, |_| {}).await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(fetch(&litequic, HttpVersion::Http3, "/a", &[("traceparent", &*traceparent)]).await, 200);
    let spans = collector.spans(3).await;
    let child = |parent: &str| -> SeenSpan {
        let mut children = spans.iter().filter(|span| span.parent_id == parent);
        let child = children.next().unwrap_or_else(|| panic!("a child of {parent} among {spans:#?}"));
        assert!(child.trace_id == TRACE && children.next().is_none(), "{spans:#?}");
        child.clone()
    };
    let request = child(PARENT);
    let attempt = child(&request.span_id);
    let application = child(&attempt.span_id);
    assert_eq!((request.is_server, attempt.is_server, application.is_server), (true, false, true));
    assert_eq!(application.get("http.status_code"), "200");
    litequic.stop().await;
    app.end_by("KILL");
}

/// What Jaeger answers to a request for `path`, as JSON.
async fn query(port: u16, path: &str) -> Json {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("Jaeger's answer", stream.read_to_string(&mut answer)).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn jaeger_shows_a_request_that_was_sent_twice() {
    let Some(program) = needs::program(JAEGER) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (otlp, http, grpc) = (free_tcp_port(), free_tcp_port(), free_tcp_port());
    let config = format!(
        "extensions:\n  jaeger_storage:\n    backends:\n      here:\n        memory:\n          max_traces: 100\n  \
         jaeger_query:\n    storage:\n      traces: here\n    http:\n      endpoint: 127.0.0.1:{http}\n    grpc:\n      \
         endpoint: 127.0.0.1:{grpc}\nreceivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: \
         127.0.0.1:{otlp}\nexporters:\n  jaeger_storage_exporter:\n    trace_storage: here\nservice:\n  extensions: \
         [jaeger_storage, jaeger_query]\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n    traces:\n      \
         receivers: [otlp]\n      exporters: [jaeger_storage_exporter]\n"
    );
    fs::write(folder.path().join("jaeger.yaml"), config).unwrap();
    let mut command = Command::new(program);
    command.arg("--config").arg(folder.path().join("jaeger.yaml"));
    let jaeger = Process::spawn(command);
    jaeger.await_stderr("Everything is ready");
    let (script, litequic) = Script::behind_litequic(|config| {
        traced(config, &format!("http://127.0.0.1:{otlp}"));
        config.traces.attributes = vec![("service.name".into(), "edge".into())];
    })
    .await;
    let client = Client::to(&litequic).await;
    let [head, _] = sent_twice(&client, &script).await;
    let id = head.field("x-request-id").unwrap();
    let trace = async {
        loop {
            let answer = query(http, &format!("/api/traces/{id}")).await;
            match answer["data"][0]["spans"].as_array() {
                Some(spans) if spans.len() == 3 => return answer["data"][0].clone(),
                _ => sleep(LOOK_AGAIN).await,
            }
        }
    };
    let trace = within("a trace of three spans in Jaeger", trace).await;
    let spans = trace["spans"].as_array().unwrap();
    let tag = |span: &Json, key: &str| {
        let tags = span["tags"].as_array().unwrap();
        tags.iter().find(|tag| tag["key"] == key).map(|tag| tag["value"].clone())
    };
    let (servers, mut attempts): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| tag(span, "span.kind") == Some("server".into()));
    let [server] = servers[..] else { panic!("{trace:#}") };
    assert_eq!((&server["operationName"], tag(server, "url.path")), (&"GET /*".into(), Some("/second".into())));
    attempts.sort_by_key(|span| span["startTime"].as_u64());
    for (attempt, resend, status) in [(attempts[0], None, None), (attempts[1], Some(1), Some(200))] {
        assert_eq!(attempt["references"][0]["spanID"], server["spanID"], "{trace:#}");
        assert_eq!(tag(attempt, "http.request.resend_count"), resend.map(Json::from), "{trace:#}");
        assert_eq!(tag(attempt, "http.response.status_code"), status.map(Json::from), "{trace:#}");
    }
    assert_eq!(trace["processes"]["p1"]["serviceName"], "edge");
    litequic.stop().await;
    jaeger.end_by("TERM");
}
