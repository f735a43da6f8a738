//! Rate limits.

use super::{configured, started};
use crate::support::prelude::*;

/// An hour, so that no test is so slow that a request more is due.
const LIMITED: &str = r#"
routes = [
    { path_prefix = "/limited", origin = "origin", rate_limit = "1/h burst=3" },
    { path_prefix = "/together", origin = "origin", rate_limit = "2/h by=route" },
]
"#;

#[tokio::test]
async fn excess_requests_get_429_with_retry_after_over_each_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, LIMITED).await;
    let client = Client::to(&litequic).await;
    for _ in 0..2 {
        assert_eq!(client.get("/limited").await.status, 200);
    }
    let mut tls = Tls::http1(&litequic).await;
    let request = "GET /limited HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tls.say(request).await;
    assert!(tls.head().await.starts_with("http/1.1 200 "));
    tls.say(request).await;
    assert!(tls.head().await.starts_with("http/1.1 429 "));

    let answer = client.get("/limited/further").await;
    assert_eq!(answer.status, 429);
    let wait: u32 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert!(answer.text().starts_with("429 Too Many Requests: too many requests\nrequest "), "{}", answer.text());
    assert!(answer.field("proxy-status").unwrap().starts_with("litequic; error=http_request_denied"));
    // The origin gets nothing of it, and other routes continue.
    assert_eq!(client.get("/").await.status, 200);
    assert_eq!(origin.seen().matches("GET ").count(), 4);

    assert_eq!(litequic.sum(|worker| worker.proxy.limit_rate.get()), 2);
    let text = litequic.metrics.registry().render_metrics();
    assert!(text.contains("litequic_route_limited_total{route=\"*/limited\"} 2\n"), "{text}");
    assert!(text.contains("litequic_route_limited_total{route=\"*/together\"} 0\n"), "{text}");
    litequic.stop().await;
}

/// Clients of every worker are counted together: 100 a second is 100 a second of the process.
#[tokio::test]
async fn a_limit_is_one_for_all_workers_and_connections() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut config = configured(origin.address, LIMITED);
    config.listen.workers = Some(4.try_into().unwrap());
    let litequic = Litequic::with_config(&config).await;
    for (path, allowed) in [("/limited", 3), ("/together", 2)] {
        let mut served = 0;
        for _ in 0..12 {
            let status = Client::to(&litequic).await.get(path).await.status.as_u16();
            assert!(matches!(status, 200 | 429), "{status}");
            served += u32::from(status == 200);
        }
        assert_eq!(served, allowed, "{path}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn only_a_trusted_proxys_client_addresses_are_rate_limited() {
    let origin = Always::new(Always::EMPTY_200).await;
    for (trusted, statuses) in
        [("trusted_proxies = \"127.0.0.0/8\"\n", [200, 200, 200, 429, 200]), ("", [200, 200, 200, 429, 429])]
    {
        let litequic = started(origin.address, &format!("{trusted}{LIMITED}")).await;
        let client = Client::to(&litequic).await;
        for (client_address, status) in ["198.51.100.1"; 4].into_iter().chain(["198.51.100.2"]).zip(statuses) {
            let request = client.request(Method::GET, "/limited").header("x-forwarded-for", client_address);
            assert_eq!(client.fetch(request, "").await.status, status, "{trusted}{client_address}");
        }
        litequic.stop().await;
    }
}
