//! Programs that others have written: an OpenTelemetry Collector, built of `collector/` by `.ci/run`, and an
//! application with the Python SDK.

use super::{PARENT, TRACE, fetch, traced, tracing};
use crate::support::{
    collector::{Collector, SeenSpan},
    needs,
    origin::Always,
    ports::free_tcp_port,
    process::Process,
    proxy::Litequic,
    tunnel::HttpVersion,
    within,
};
use litequic::config::TraceProtocol;
use serde_json::Value as Json;
use std::{fs, net::Ipv4Addr, path::Path, process::Command, time::Duration};
use tokio::time::sleep;

const PROGRAM: &str = "litequic-test-collector";
/// Between two looks at a file.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

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
    for (protocol, port) in [(TraceProtocol::Http, http), (TraceProtocol::Grpc, grpc)] {
        let before = spans(&file).len();
        let litequic = Litequic::start(origin.address, |config| {
            traced(config, &format!("http://127.0.0.1:{port}"));
            config.traces.protocol = protocol;
        })
        .await;
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        for version in HttpVersion::ALL {
            assert_eq!(fetch(&litequic, version, "/a", &[("traceparent", &*traceparent)]).await, 200);
        }
        let all = async {
            while spans(&file).len() < before + 6 {
                sleep(LOOK_AGAIN).await;
            }
        };
        within("six spans in the collector's file", all).await;
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
