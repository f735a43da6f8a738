//! Tests with a real client over 127.0.0.1, byte by byte.

use super::*;
use crate::AdminMetrics;
use litequic_base::lifecycle::Lifecycle;
use litequic_telemetry::{Heartbeat, MetricsRegistry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const DEADLINE: Duration = Duration::from_secs(10);

struct Admin {
    address: SocketAddr,
    lifecycle: Lifecycle,
    metrics: Arc<AdminMetrics>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(surface: Surface, limits: AdminLimits) -> Admin {
    let lifecycle = Lifecycle::default();
    lifecycle.advance_phase(ProcessPhase::Ready);
    let metrics = Arc::<AdminMetrics>::default();
    let mut registry = MetricsRegistry::default();
    registry.register_group(metrics.clone());
    let state = Arc::new(AdminState {
        registry,
        metrics: Arc::clone(&metrics),
        lifecycle: lifecycle.clone(),
        heartbeats: vec![Arc::default(), Arc::<Heartbeat>::default()],
        ..crate::state::tests::state()
    });
    let server = AdminServer::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap(), surface, limits).unwrap();
    let address = server.bound_tcp_address().unwrap();
    let task = tokio::spawn(server.serve_admin(state, lifecycle.watch_phase(), pending()));
    Admin { address, lifecycle, metrics, task }
}

impl Admin {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends `head` with `Connection: close` and returns the whole response.
    async fn ask(&self, head: &str) -> String {
        self.ask_by(head, "127.0.0.1").await
    }

    async fn ask_by(&self, head: &str, host: &str) -> String {
        let mut stream = self.connect().await;
        stream
            .write_all(format!("{head} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        read_to_end(&mut stream).await
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn each_address_answers_what_its_surface_has() {
    let probes = start(Surface::Probes, AdminLimits::default()).await;
    let operator = start(Surface::Operator, AdminLimits::default()).await;
    let cases = [
        ("GET /healthz", "200 OK", "200 OK", "ok\n"),
        ("GET /readyz?verbose", "200 OK", "200 OK", "ready\n"),
        ("GET /metrics", "200 OK", "200 OK", "# EOF\n"),
        ("POST /metrics", "405 Method Not Allowed", "405 Method Not Allowed", "/metrics allows GET, HEAD\n"),
        ("GET /drain", "404 Not Found", "405 Method Not Allowed", ""),
        ("GET /nowhere", "404 Not Found", "404 Not Found", "GET, HEAD /metrics\n"),
        ("GET /", "404 Not Found", "200 OK", ""),
        ("GET /status", "404 Not Found", "200 OK", ""),
        ("GET /config", "404 Not Found", "200 OK", ""),
        ("POST /status", "404 Not Found", "405 Method Not Allowed", ""),
        ("GET /healthz/", "404 Not Found", "404 Not Found", "GET, HEAD /healthz\n"),
    ];
    for (head, on_probes, on_operator, body) in cases {
        for (admin, status) in [(&probes, on_probes), (&operator, on_operator)] {
            let answer = admin.ask(head).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}: {answer}");
            assert!(answer.contains(body), "{head}: {answer}");
            assert!(answer.contains("cache-control: no-store\r\n"), "{head}: {answer}");
        }
    }
    for admin in [&probes, &operator] {
        assert!(admin.ask_by("GET /metrics", "rebound.test").await.starts_with("HTTP/1.1 403 "));
        assert!(admin.ask_by("GET /healthz", "rebound.test").await.starts_with("HTTP/1.1 200 "));
    }
    assert!(operator.ask_by("GET /status", "rebound.test").await.starts_with("HTTP/1.1 403 "));
    assert!(operator.ask("GET /drain").await.contains("allow: POST\r\n"));
    assert!(operator.ask("GET /nothing").await.contains("POST /drain\n"));
    assert!(!probes.ask("GET /nothing").await.contains("/drain"));
}

#[tokio::test]
async fn head_is_answered_without_a_body() {
    let admin = start(Surface::Probes, AdminLimits::default()).await;
    let answer = admin.ask("HEAD /metrics").await;
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn metrics_have_the_text_format_that_accept_prefers() {
    let admin = start(Surface::Probes, AdminLimits::default()).await;
    let answer = admin.ask("GET /metrics HTTP/1.1\r\nAccept: text/plain\r\nX: ").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert!(answer.contains("# TYPE litequic_build_info gauge\n") && !answer.contains("# EOF"), "{answer}");
    assert!(admin.ask("GET /metrics").await.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_post_drains_and_readiness_fails_at_once() {
    let admin = start(Surface::Operator, AdminLimits::default()).await;
    assert!(admin.ask("POST /drain").await.starts_with("HTTP/1.1 202 "));
    assert_eq!(admin.lifecycle.current_phase(), ProcessPhase::Leaving);
    let answer = admin.ask("GET /readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("not ready: draining\n"), "{answer}");
    assert!(admin.ask("GET /healthz").await.starts_with("HTTP/1.1 200 "), "draining is no reason to be killed");
    assert!(admin.ask("POST /drain").await.ends_with("draining already\n"));
}

#[tokio::test]
async fn a_web_page_cannot_drain() {
    let admin = start(Surface::Operator, AdminLimits::default()).await;
    let answer = admin.ask("POST /drain HTTP/1.1\r\nOrigin: https://evil.example\r\nX: ").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(admin.lifecycle.current_phase(), ProcessPhase::Ready);
}

#[tokio::test]
async fn a_drain_with_a_body_reads_none_of_it() {
    let admin = start(Surface::Operator, AdminLimits::default()).await;
    let mut stream = admin.connect().await;
    stream.write_all(b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 202 "));
}

#[tokio::test]
async fn a_header_too_large_or_too_slow_ends_the_connection() {
    let limits = AdminLimits { header_timeout: Duration::from_millis(50), ..AdminLimits::default() };
    let admin = start(Surface::Probes, limits).await;
    let mut large = admin.connect().await;
    let field = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(limits.header_bytes));
    large.write_all(field.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut large).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");

    let mut slow = admin.connect().await;
    slow.write_all(b"GET /healthz HTT").await.unwrap();
    let _ = read_to_end(&mut slow).await;
    let mut idle = admin.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut idle).await.ends_with("ok\n"), "an idle connection is closed after its answer");
    assert!(admin.metrics.header.get() >= 2, "the large one and the slow one");
}

/// Idle connections must not delay a kubelet's probe beyond its timeout: the pod would be restarted.
#[tokio::test]
async fn a_probe_is_answered_at_once_whoever_holds_the_places() {
    for surface in [Surface::Probes, Surface::Operator] {
        let limits = AdminLimits { header_timeout: DEADLINE * 3, ..AdminLimits::default() };
        let admin = start(surface, limits).await;
        let mut held = Vec::new();
        for number in 0..2 * limits.connections {
            let mut silent = admin.connect().await;
            // Idle connections: silent, amid a header, or with an unread response.
            silent
                .write_all([&b""[..], b"GET /hea", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"][number % 3])
                .await
                .unwrap();
            held.push(silent);
        }
        for path in ["/healthz", "/readyz"] {
            assert!(admin.ask(&format!("GET {path}")).await.starts_with("HTTP/1.1 200 "), "{path}");
        }
        let displaced = admin.metrics.connections.get();
        assert!(displaced >= limits.connections as u64, "{displaced}");
    }
}

#[tokio::test]
async fn requests_beyond_the_rate_wait_and_are_answered() {
    let admin = start(Surface::Probes, AdminLimits { requests: 1, ..AdminLimits::default() }).await;
    let mut stream = admin.connect().await;
    stream.write_all("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n".repeat(9).as_bytes()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let answers = read_to_end(&mut stream).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 10, "{answers}");
    assert!(admin.metrics.requests.get() > 0);
    assert!(answers.contains("\nlitequic_admin_limit_reached_total{limit=\"requests\"} "), "{answers}");
}

#[tokio::test]
async fn stopping_ends_the_server_and_its_connections() {
    let admin = start(Surface::Probes, AdminLimits::default()).await;
    let mut idle = admin.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut first = [0];
    idle.read_exact(&mut first).await.unwrap();
    admin.lifecycle.advance_phase(ProcessPhase::Stopping);
    read_to_end(&mut idle).await;
    timeout(DEADLINE, admin.task).await.expect("the server ends").unwrap();
    assert!(TcpStream::connect(admin.address).await.is_err());
}
