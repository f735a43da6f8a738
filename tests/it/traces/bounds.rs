//! Bounds: of spans a second, of what waits for a collector that hangs, of what strangers can cause.

use super::tracing;
use crate::support::{
    collector::{Collector, Manner},
    prelude::*,
};
use litequic_config::TraceParent;

/// Bytes of spans that may wait.
const MAX_WAITING: u64 = 4 << 20;

#[tokio::test]
async fn strangers_who_want_every_request_sampled_get_the_limit() {
    const REQUESTS: u64 = 300;
    let collector = Collector::http().await;
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = tracing(origin.address, &collector, |config| {
        config.traces.parent = TraceParent::Any;
        config.traces.max_per_second = 1;
    })
    .await;
    let client = Client::to(&litequic).await;
    for number in 1..=REQUESTS {
        let traceparent = format!("00-{number:032x}-00f067aa0ba902b7-01");
        let request = client.request(Method::GET, "/").header("traceparent", traceparent);
        assert_eq!(client.fetch(request, Bytes::new()).await.status.as_u16(), 200);
    }
    let over = litequic.sum(|worker| worker.traces.over_limit.get());
    assert!(over > REQUESTS / 2, "{over}");
    litequic.stop().await;
    assert_eq!(collector.all().len() as u64, 2 * (REQUESTS - over));
    // The origin is told that they are not sampled.
    assert_eq!(origin.seen().matches("-00\r\n").count() as u64, over);
}

#[tokio::test]
async fn while_a_collector_hangs_requests_go_on_and_what_waits_is_bounded() {
    /// More spans than may wait: each has a long path.
    const REQUESTS: u64 = 1_000;
    let path = format!("/{}", "a".repeat(2_000));
    let collector = Collector::start(false, vec![Manner::Hang; 1_000]).await;
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = tracing(origin.address, &collector, |config| {
        config.traces.max_per_second = 1_000_000;
        config.traces.timeout = Duration::from_secs(60);
    })
    .await;
    let client = Client::to(&litequic).await;
    for _ in 0..REQUESTS {
        assert_eq!(client.get(&path).await.status.as_u16(), 200);
    }
    litequic.wait_until("spans are dropped", |worker| worker.traces.full.get(), |full| full > 0).await;
    let waiting = litequic.metrics.traces.waiting.get();
    assert!(waiting <= MAX_WAITING && waiting > MAX_WAITING / 2, "{waiting}");
    let full = litequic.sum(|worker| worker.traces.full.get());
    assert!(full < 2 * REQUESTS, "{full}");
    assert_eq!(collector.connections(), 1);
    litequic.stop().await;
}
