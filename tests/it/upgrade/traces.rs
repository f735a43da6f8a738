//! Spans of the requests that a process finishes while another takes over, and while it ends.

use super::{Load, Service, ended, terminate};
use crate::support::collector::Collector;
use std::sync::Arc;

/// Requests between two events.
const SOME: u64 = 12;

#[tokio::test]
async fn all_finished_requests_have_spans_after_upgrades_and_a_drain() {
    let collector = Collector::http().await;
    let service = Arc::new(Service::new().await);
    let traces = format!("[traces]\nendpoint = \"{}\"\nratio = 1\n[[certificates]]", collector.url());
    service.edit("[[certificates]]", &traces);
    let mut processes = vec![service.start().await];
    let load = Load::begin(&service);
    for _ in 0..4 {
        load.goes_on(SOME).await;
        processes.push(service.start().await);
    }
    load.goes_on(SOME).await;
    let newest = processes.pop().unwrap();
    for process in processes {
        ended(process).await;
    }
    let answered = load.end().await;
    terminate(newest).await;
    let spans = collector.all();
    let (servers, clients): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.is_server);
    let answered_spans = servers.iter().filter(|span| span.get("http.response.status_code") == "200").count();
    assert_eq!(answered_spans as u64, answered);
    let answered_attempts = clients.iter().filter(|span| span.get("http.response.status_code") == "200").count();
    assert_eq!(answered_attempts as u64, answered);
}
