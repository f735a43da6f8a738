//! Metrics of handshakes, of how connections end, of sizes and of clients' protocols.

use crate::support::prelude::*;
use litequic::app::ProcessMetrics;
use litequic_telemetry::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What one worker counts.
type Read = fn(&WorkerMetrics) -> &Counter;

/// Waits until what `counter` counts is `expected`.
async fn counts(litequic: &Litequic, what: &str, counter: Read, expected: u64) {
    litequic.wait_until(what, |worker| counter(worker).get(), |count| count == expected).await;
}

/// A line of a scrape, by its name and labels.
fn scraped(metrics: &ProcessMetrics, sample: &str) -> f64 {
    let text = metrics.registry().render_metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{sample} in {text}"))
}

#[tokio::test]
async fn a_quic_connections_end_is_counted_by_what_ended_it() {
    let litequic = Litequic::demo(|_| {}).await;
    let table: [(u32, &str, Read); 4] = [
        (0x100, "H3_NO_ERROR", |worker| &worker.quic.closed_client),
        (0x105, "H3_FRAME_UNEXPECTED", |worker| &worker.quic.closed_client_h3),
        (0x201, "QPACK_ENCODER_STREAM_ERROR", |worker| &worker.quic.closed_client_h3),
        (7, "no code of HTTP/3", |worker| &worker.quic.closed_client_application),
    ];
    for (code, what, counter) in table {
        let before = litequic.sum(|worker| counter(worker).get());
        let client = Client::to(&litequic).await;
        client.get("/status/204").await;
        client.quic.connection.close(quinn::VarInt::from_u32(code), b"");
        counts(&litequic, what, counter, before + 1).await;
    }
    // A second control stream violates HTTP/3 (RFC 9114 §6.2.1).
    let quic = Quic::to(&litequic).await;
    for _ in 0..2 {
        let mut control = quic.connection.open_uni().await.unwrap();
        // SETTINGS without any.
        control.write_all(&[0, 4, 0]).await.unwrap();
        std::mem::forget(control);
    }
    counts(&litequic, "litequic closes", |worker| &worker.quic.closed_litequic_h3, 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn the_end_of_a_quic_connection_is_logged_as_idle_or_drained() {
    let litequic = Litequic::demo(|config| config.timeouts.idle = Duration::from_secs(1)).await;
    let client = Client::to(&litequic).await;
    client.get("/status/204").await;
    client.quic.vanish();
    counts(&litequic, "idle", |worker| &worker.quic.closed_idle, 1).await;
    let other = Client::to(&litequic).await;
    other.get("/status/204").await;
    let metrics = Arc::clone(&litequic.metrics);
    litequic.stop().await;
    assert_eq!(metrics.sum_over_workers(|worker| worker.quic.closed_litequic.get()), 1);
}

#[tokio::test]
async fn a_client_that_distrusts_the_certificate_is_counted_by_its_alert() {
    let litequic = Litequic::demo(|_| {}).await;
    let stranger = make_self_signed(["localhost"]).unwrap().cert_pem;
    let transport = quinn::TransportConfig::default();
    assert!(Quic::try_connect(litequic.address, "localhost", &stranger, transport).await.is_err());
    counts(&litequic, "an alert", |worker| &worker.quic.handshakes_failed_alert, 1).await;
    let config = tls::config(&litequic.cert_pem, &["unheard-of"]);
    assert!(Tls::connect(litequic.tcp[0], "localhost", config).await.is_err());
    counts(&litequic, "no common protocol", |worker| &worker.tcp.tcp_handshakes_tls, 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_of_an_older_tls_version_is_rejected_and_counted() {
    let Some(curl) = needs::program("curl") else { return };
    let litequic = Litequic::demo(|_| {}).await;
    let url = format!("https://localhost:{}/", litequic.tcp[0].port());
    let mut command = Command::new(curl);
    command.args(["--silent", "--insecure", "--noproxy", "*", "--max-time", "20", "--tls-max", "1.2", &url]);
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(!output.status.success());
    counts(&litequic, "another version", |worker| &worker.tcp.tcp_handshakes_version, 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn full_and_resumed_handshakes_are_told_apart_over_tcp() {
    let litequic = Litequic::demo(|_| {}).await;
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    for _ in 0..2 {
        let mut client = Tls::connect(litequic.tcp[0], "localhost", config.clone()).await.unwrap();
        // The tickets come before the answer.
        client.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        assert!(client.head().await.starts_with("http/1.1 204 "));
    }
    counts(&litequic, "full", |worker| &worker.tcp.handshakes_tcp_full, 1).await;
    counts(&litequic, "resumed", |worker| &worker.tcp.handshakes_tcp_resumed, 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_tcp_connections_end_is_counted_by_what_ended_it() {
    let litequic = Litequic::demo(|config| config.timeouts.idle = Duration::from_secs(1)).await;
    let mut done = Tls::http1(&litequic).await;
    done.stream.shutdown().await.unwrap();
    counts(&litequic, "the client's", |worker| &worker.tcp.tcp_closed_client, 1).await;
    let mut idle = Http2::connect(&litequic, &[]).await;
    counts(&litequic, "idle", |worker| &worker.tcp.tcp_closed_idle, 1).await;
    assert!(idle.find(&[http2::GOAWAY]).await.is_some());
    let mut broken = Http2::connect(&litequic, &[]).await;
    // DATA on a stream that was never opened.
    broken.say(http2::DATA, 0, 1, b"x").await;
    counts(&litequic, "broken", |worker| &worker.tcp.tcp_closed_broken, 1).await;
    litequic.stop().await;
}

/// Those that failed to begin are in neither.
#[tokio::test]
async fn tcp_connections_that_ended_are_those_that_came_as_far_as_requests() {
    let litequic = Litequic::demo(|config| config.listen.redirect = vec![([127, 0, 0, 1], 0).into()]).await;
    let get = "GET /status/204 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (address, says) in [(litequic.tcp[0], get), (litequic.tcp[0], "\0"), (litequic.redirects[0], get)] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(says.as_bytes()).await.unwrap();
        let _ = within("the end", plain.read_to_end(&mut Vec::new())).await;
    }
    assert!(
        Tls::connect(litequic.tcp[0], "localhost", tls::config(&litequic.cert_pem, &["unheard-of"])).await.is_err()
    );
    let mut http1 = Tls::http1(&litequic).await;
    http1.say(get).await;
    http1.rest().await;
    let http2 = Http2::connect(&litequic, &[]).await;
    litequic.wait_until("it is there", |worker| worker.tcp.tcp_connections_h2.get(), |count| count == 1).await;
    drop(http2);
    litequic.wait_until("all have ended", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 0).await;
    let family = |name: &str| -> Vec<u64> {
        let all = litequic.metrics.registry().summed_samples();
        all.into_iter().filter(|(sample, _)| sample.starts_with(&format!("{name}{{"))).map(|(_, count)| count).collect()
    };
    assert_eq!(family("tcp_connections"), [1, 1, 1]);
    assert_eq!(family("tcp_connections_closed").iter().sum::<u64>(), 3);
    assert_eq!(family("tcp_handshakes_failed").iter().sum::<u64>(), 3);
    litequic.stop().await;
}

#[tokio::test]
async fn responses_are_counted_by_route_protocol_and_class_and_bodies_by_size() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    client.post("/echo", vec![b'x'; 5000]).await;
    client.get("/bytes/100").await;
    client.get("/status/404").await;
    let mut http1 = Tls::http1(&litequic).await;
    http1.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").await;
    http1.rest().await;
    drop(client);
    let metrics = Arc::clone(&litequic.metrics);
    litequic.stop().await;
    let route = |protocol: &str, class: &str| {
        let labels = format!("{{route=\"*/\",protocol=\"{protocol}\",class=\"{class}\"}}");
        scraped(&metrics, &format!("litequic_route_responses_total{labels}"))
    };
    assert_eq!([route("h3", "2xx"), route("h3", "4xx"), route("h1", "2xx"), route("h2", "2xx")], [2.0, 1.0, 1.0, 0.0]);
    let size = |of: &str, what: &str| scraped(&metrics, &format!("litequic_{of}_size_bytes_{what}"));
    // Requests without a body do not count.
    assert_eq!([size("request", "count"), size("request", "sum")], [2.0, 5005.0]);
    assert_eq!(size("response", "count"), 4.0);
    assert_eq!(
        size("response", "sum"),
        metrics.sum_over_workers(|worker| worker.shared.response_body_bytes.get()) as f64
    );
    assert_eq!(size("request", "bucket{le=\"4096.0\"}"), 1.0);
    assert_eq!(size("request", "bucket{le=\"16384.0\"}"), 2.0);
}

/// A client of each protocol uploads to one route, which echoes, and downloads from another.
#[tokio::test]
async fn bytes_are_counted_by_route_alike_over_every_protocol() {
    let litequic = Litequic::demo(|config| {
        config
            .routes
            .insert(0, RouteConfig { path_prefix: "/echo".into(), ..RouteConfig::catch_all(Config::ORIGIN_NAME) });
    })
    .await;
    let counted = || {
        [("request", "*/echo"), ("response", "*/echo"), ("request", "*/"), ("response", "*/")].map(|(body, route)| {
            scraped(&litequic.metrics, &format!("litequic_route_{body}_body_bytes_total{{route=\"{route}\"}}"))
        })
    };
    let upload = "x".repeat(5000);
    assert_eq!(counted(), [0.0; 4]);

    let client = Client::to(&litequic).await;
    assert_eq!(client.post("/echo", upload.clone().into_bytes()).await.body.len(), 5000);
    assert_eq!(client.get("/bytes/100").await.body.len(), 100);
    assert_eq!(counted(), [5000.0, 5000.0, 0.0, 100.0], "HTTP/3");

    let mut http2 = Http2::connect(&litequic, &[]).await;
    let header = |method, path| http2::fields(&http2::pseudo(method, path));
    http2.say(http2::HEADERS, http2::END_HEADERS, 1, &header("POST", "/echo")).await;
    http2.say(http2::DATA, http2::END_STREAM, 1, upload.as_bytes()).await;
    http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 3, &header("GET", "/bytes/100")).await;
    let mut ended = 0;
    while ended < 2 {
        let frame = http2.find(&[http2::HEADERS, http2::DATA]).await.expect("both responses end");
        ended += u32::from(frame.flags & http2::END_STREAM != 0);
    }
    assert_eq!(counted(), [10_000.0, 10_000.0, 0.0, 200.0], "HTTP/2");

    for request in [
        format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n{upload}"),
        "GET /bytes/100 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".into(),
    ] {
        let mut http1 = Tls::http1(&litequic).await;
        http1.say(request).await;
        assert!(http1.rest().await.0.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(counted(), [15_000.0, 15_000.0, 0.0, 300.0], "HTTP/1.1");

    // The routes' bytes are all there are.
    let received = litequic.sum(|worker| worker.shared.request_body_bytes.get());
    let sent = litequic.sum(|worker| worker.shared.response_body_bytes.get());
    assert_eq!((received, sent), (15_000, 15_300));
    litequic.stop().await;
}

#[tokio::test]
async fn clients_that_wait_for_leave_are_counted_by_the_limit() {
    let litequic = Litequic::demo(|config| {
        config.limits.stream_receive_buffer = 16 << 10;
        config.limits.connection_receive_buffer = 16 << 10;
    })
    .await;
    let client = Client::to(&litequic).await;
    let answer = client.fetch(client.request(Method::POST, "/echo"), Bytes::from(vec![b'x'; 1 << 20])).await;
    assert_eq!(answer.body.len(), 1 << 20);
    let waited = |worker: &WorkerMetrics| {
        worker.quic.limit_stream_receive_buffer.get() + worker.quic.limit_connection_receive_buffer.get()
    };
    litequic.wait_until("leave was waited for", waited, |times| times > 0).await;
    litequic.stop().await;
}
