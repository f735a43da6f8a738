//! Collectors that refuse, hang, break off, reject and flood, and what becomes of spans meanwhile.

use super::{fetch, traced, tracing};
use crate::support::{
    collector::{Collector, Manner},
    origin::closed_port,
    prelude::*,
};
use std::sync::atomic::Ordering::Relaxed;

/// Waits until `read` finds `expected` in the exporter's counters.
pub(super) async fn counted(
    litequic: &Litequic,
    what: &str,
    read: impl Fn(&litequic_telemetry::traces::ExportMetrics) -> u64,
    expected: u64,
) {
    until(&format!("{what} = {expected}: {:?}", litequic.metrics.traces), async || {
        read(&litequic.metrics.traces) == expected
    })
    .await;
}

/// litequic whose collector treats its first requests by `script`, after one request of a client.
async fn after_one(is_grpc: bool, script: Vec<Manner>) -> (Litequic, Collector, Always) {
    let collector = Collector::start(is_grpc, script).await;
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = tracing(origin.address, &collector, |config| {
        config.traces.timeout = Duration::from_millis(500);
    })
    .await;
    assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
    (litequic, collector, origin)
}

#[tokio::test]
async fn what_may_be_sent_again_is_and_nothing_is_lost() {
    let answer = |status: &str| Manner::Say(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes());
    // A google.rpc.Status with a RetryInfo of half a second.
    let details = "CAgaNAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIICgYQgMq17gE";
    for (is_grpc, manner) in [
        (false, answer("503 Service Unavailable\r\nRetry-After: 1")),
        (false, answer("429 Too Many Requests")),
        (false, answer("502 Bad Gateway")),
        (false, Manner::Hang),
        (false, Manner::Break(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec())),
        (false, Manner::Break(Vec::new())),
        (true, Manner::Status(14, "try%20later", None)),
        (true, Manner::Status(8, "", Some(details.into()))),
        (true, Manner::Hang),
    ] {
        let shown = format!("{is_grpc} {manner:?}");
        let (litequic, collector, _origin) = after_one(is_grpc, vec![manner]).await;
        assert_eq!(collector.spans(2).await.len(), 2, "{shown}");
        counted(&litequic, "exported", |metrics| metrics.exported.load(Relaxed), 2).await;
        let metrics = &litequic.metrics.traces;
        assert_eq!(metrics.exports_retried.load(Relaxed), 1, "{shown}");
        assert_eq!(metrics.waiting.get(), 0, "{shown}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let answer = |status: &str| Manner::Say(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes());
    for (is_grpc, manner) in [
        (false, answer("400 Bad Request")),
        (false, answer("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/v1/traces")),
        (false, answer("404 Not Found")),
        (true, Manner::Status(3, "no", None)),
        (true, Manner::Status(8, "no", None)),
    ] {
        let shown = format!("{is_grpc} {manner:?}");
        let (litequic, collector, _origin) = after_one(is_grpc, vec![manner]).await;
        counted(&litequic, "failed", |metrics| metrics.failed.load(Relaxed), 2).await;
        // The next spans are accepted.
        assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
        assert_eq!(collector.spans(2).await.len(), 2, "{shown}");
        counted(&litequic, "exported", |metrics| metrics.exported.load(Relaxed), 2).await;
        assert_eq!((collector.requests(), litequic.metrics.traces.waiting.get()), (2, 0), "{shown}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_accepted_request_is_not_sent_again_whatever_its_body_is() {
    let partial = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n\x0a\x09\x08\x01\x12\x05stale".to_vec();
    for (manner, rejected) in [
        (Manner::Say(partial), 1),
        (Manner::Break(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec()), 0),
        (Manner::Gigabyte, 0),
        (Manner::Break(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()), 0),
        (Manner::Break(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()), 0),
    ] {
        let shown = format!("{manner:?}");
        let (litequic, collector, _origin) = after_one(false, vec![manner]).await;
        counted(&litequic, "exported", |metrics| metrics.exported.load(Relaxed), 2 - rejected).await;
        assert_eq!(litequic.metrics.traces.rejected.load(Relaxed), rejected, "{shown}");
        assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
        assert_eq!(collector.spans(2).await.len(), 2, "{shown}");
        assert_eq!(collector.requests(), 2, "{shown}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_collector_that_comes_later_gets_what_waited_over_one_connection() {
    let origin = Always::new(Always::EMPTY_200).await;
    let collector = Collector::http().await;
    let litequic = Litequic::start(origin.address, |config| {
        traced(config, &format!("http://{}", closed_port()));
    })
    .await;
    assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 200);
    counted(&litequic, "retried", |metrics| metrics.exports_retried.load(Relaxed), 1).await;
    assert!(litequic.metrics.traces.waiting.get() > 0);
    litequic.stop().await;

    let litequic = tracing(origin.address, &collector, |_| {}).await;
    let client = Client::to(&litequic).await;
    for exports in 1..=3 {
        client.get("/").await;
        collector.asked(exports).await;
    }
    assert_eq!(collector.spans(6).await.len(), 6);
    assert_eq!(collector.connections(), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn the_last_spans_are_sent_at_the_end_of_the_process() {
    let (litequic, collector, _origin) = after_one(false, Vec::new()).await;
    // Within two seconds of the request: nothing is due yet, or it is being sent.
    litequic.stop().await;
    assert_eq!(collector.all().len(), 2);
}

#[tokio::test]
async fn a_collector_that_is_the_origin_too_gets_each_span_once() {
    let collector = Collector::http().await;
    let litequic = tracing(collector.address, &collector, |_| {}).await;
    let client = Client::to(&litequic).await;
    // Another program's spans pass through litequic: requests as any other.
    let passed = client.post("/v1/traces", "").await;
    assert_eq!(passed.status.as_u16(), 200);
    assert_eq!(collector.spans(2).await.len(), 2);
    counted(&litequic, "exported", |metrics| metrics.exported.load(Relaxed), 2).await;
    litequic.stop().await;
    // The other program's, and litequic's one export: that had no span, so none followed it.
    assert_eq!((collector.requests(), collector.all().len()), (2, 2));
}
