//! How litequic leaves: readiness first, then GOAWAY, what runs may finish, and nothing lasts beyond the deadline. The
//! admin addresses belong to it, as that is where it is shown and requested.

use crate::support::prelude::*;
use litequic_base::lifecycle::ProcessPhase;
use std::collections::HashMap;
use tokio::time::Instant;

/// RFC 9114 §8.1.
const NO_ERROR: u64 = 0x100;
const REQUEST_REJECTED: u64 = 0x10b;

/// RFC 9114 §5.2: the first GOAWAY names the largest ID that there is.
const LAST_POSSIBLE_ID: u64 = (1 << 62) - 4;

/// Bytes that a client takes ahead on a stream.
const SMALL_WINDOW: quinn::VarInt = quinn::VarInt::from_u32(64 * 1024);

/// Enough for a worker without work to end, for which there is no event. Where it is too short, a test proves less, and
/// passes.
const TO_END: Duration = Duration::from_millis(500);

/// A body that takes longer than anything else here, and all that comes of it.
const DRIP: &str = "/drip/40/25";

fn whole_drip() -> String {
    (0..40).map(|drop| format!("drop {drop}\n")).collect()
}

fn with_admin(config: &mut Config) {
    config.admin.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    config.admin.probes = Some((Ipv4Addr::LOCALHOST, 0).into());
}

fn workers(config: &mut Config, count: u16) {
    config.listen.workers = Some(count.try_into().unwrap());
}

/// Sends a request to an admin address; returns status and body.
pub(crate) async fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = within("a connection", TcpStream::connect(address)).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The samples of a scrape, by name and labels.
async fn scrape(address: SocketAddr) -> HashMap<String, f64> {
    let (status, text) = ask(address, "GET /metrics").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(key, value)| (key.to_owned(), value.parse().unwrap())).collect()
}

/// litequic's control stream, read on.
struct Control {
    stream: quinn::RecvStream,
    read: Vec<u8>,
}

impl Control {
    /// Accepts the control stream, which is the only one that litequic opens, and reads its SETTINGS.
    async fn of(quic: &Quic) -> Self {
        let stream = within("the control stream", quic.connection.accept_uni()).await.unwrap();
        let mut control = Self { stream, read: Vec::new() };
        assert_eq!(control.varint().await, 0x00, "the control stream's type");
        assert_eq!(control.varint().await, raw::SETTINGS);
        for _ in 0..control.varint().await {
            control.byte().await;
        }
        control
    }

    /// The ID of the next frame, which is to be GOAWAY.
    async fn goaway(&mut self) -> u64 {
        assert_eq!(self.varint().await, raw::GOAWAY);
        let length = self.varint().await;
        let id = self.varint().await;
        assert_eq!(raw::varint(id).len() as u64, length);
        id
    }

    async fn varint(&mut self) -> u64 {
        let first = self.byte().await;
        let mut value = u64::from(first & 0x3f);
        for _ in 1..1 << (first >> 6) {
            value = value << 8 | u64::from(self.byte().await);
        }
        value
    }

    async fn byte(&mut self) -> u8 {
        let mut byte = [0];
        within("a byte of the control stream", self.stream.read_exact(&mut byte)).await.unwrap();
        self.read.extend(byte);
        byte[0]
    }
}

/// A request's HEADERS frame for `path`.
fn get(path: &str) -> Vec<u8> {
    raw::request("GET", path)
}

#[tokio::test]
async fn a_download_finishes_whole_while_later_requests_are_rejected() {
    let litequic = Litequic::demo(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let mut control = Control::of(&raw.quic).await;
    let mut download = raw.open(&get(DRIP)).await;
    download.finish();
    litequic.wait_until("a response", |worker| worker.shared.responses_2xx.get(), |count| count == 1).await;

    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    assert_eq!(control.goaway().await, LAST_POSSIBLE_ID);
    assert_eq!(control.goaway().await, 4, "the first ID that was not accepted");

    let mut late = raw.open(&get("/")).await;
    assert_eq!(late.outcome().await, Outcome::Reset(REQUEST_REJECTED));
    assert_eq!(late.stopped().await, Some(REQUEST_REJECTED));

    let response = download.outcome().await.response();
    assert_eq!(String::from_utf8(response.body).unwrap(), whole_drip());
    assert_eq!(raw.quic.closed().await, NO_ERROR);
    assert_eq!(litequic.sum(|worker| worker.http3.requests.get()), 1);
    litequic.ended().await;
}

#[tokio::test]
async fn an_upload_that_was_accepted_may_go_on() {
    let litequic = Litequic::demo(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let mut control = Control::of(&raw.quic).await;
    let mut upload = raw.open(&raw::request("POST", "/echo")).await;
    upload.send(&raw::data("before ")).await;
    litequic.wait_until("a request", |worker| worker.http3.requests.get(), |count| count == 1).await;
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    assert_eq!(control.goaway().await, LAST_POSSIBLE_ID);
    assert_eq!(control.goaway().await, 4, "the first ID that was not accepted");
    upload.send(&raw::data("and after")).await;
    upload.finish();
    assert_eq!(upload.outcome().await.response().body, b"before and after");
    litequic.ended().await;
}

#[tokio::test]
async fn h3_sees_a_connection_that_ends_in_good_order() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    let mut download = client.begin_get(DRIP).await;
    assert_eq!(client::header(&mut download).await.status(), 200);
    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    assert_eq!(String::from_utf8(client::body(&mut download).await).unwrap(), whole_drip());
    drop(download);
    let end = client.ended().await;
    assert!(end.is_h3_no_error(), "{end:?}");
    litequic.ended().await;
}

#[tokio::test]
async fn idle_connections_close_without_error() {
    let litequic = Litequic::demo(|config| workers(config, 2)).await;
    let mut idle = Vec::new();
    for used in [true, false, true, false, true, false] {
        let client = Client::to(&litequic).await;
        if used {
            assert_eq!(client.get("/status/200").await.status, 200);
        }
        idle.push(client);
    }
    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    for client in &idle {
        assert_eq!(client.quic.closed().await, NO_ERROR);
    }
    litequic.ended().await;
}

/// Its handshake is over for it, and not for litequic: without a word it would wait for its idle timeout.
#[tokio::test]
async fn a_client_with_a_late_last_flight_gets_the_close_too() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Quic::with_late_last_flight(&litequic).await;
    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    client.reappear();
    assert_eq!(client.closed().await, NO_ERROR);
    litequic.ended().await;
}

#[tokio::test]
async fn during_the_grace_only_readiness_fails() {
    let litequic = Litequic::demo(|config| {
        with_admin(config);
        config.timeouts.drain_grace = Duration::from_secs(3600);
    })
    .await;
    let probes = litequic.probes.unwrap();
    let before = Client::to(&litequic).await;
    assert_eq!(before.get("/status/200").await.status, 200);
    assert_eq!(ask(probes, "GET /readyz").await.0, 200);

    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    assert_eq!(ask(probes, "GET /readyz").await, (503, "not ready: draining\n".into()));
    assert_eq!(ask(probes, "GET /healthz").await.0, 200);
    assert_eq!(before.get("/status/200").await.status, 200);
    assert_eq!(Client::to(&litequic).await.get("/status/200").await.status, 200);

    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    assert_eq!(before.quic.closed().await, NO_ERROR);
    litequic.ended().await;
}

#[tokio::test]
async fn a_handshake_completed_during_a_drain_gets_goaway() {
    let litequic = Litequic::demo(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let mut download = raw.open(&get(DRIP)).await;
    download.finish();
    litequic.wait_until("a response", |worker| worker.shared.responses_2xx.get(), |count| count == 1).await;
    let late = Quic::with_late_last_flight(&litequic).await;
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);

    late.reappear();
    let mut control = Control::of(&late).await;
    assert_eq!(control.goaway().await, LAST_POSSIBLE_ID);
    assert_eq!(control.goaway().await, 0);
    assert_eq!(late.closed().await, NO_ERROR);

    assert_eq!(String::from_utf8(download.outcome().await.response().body).unwrap(), whole_drip());
    litequic.ended().await;
}

#[tokio::test]
async fn what_runs_at_the_deadline_is_cut_off() {
    let deadline = Duration::from_millis(300);
    let (origin, litequic) = Script::behind_litequic(|config| config.timeouts.drain = deadline).await;
    let raw = Raw::to(&litequic).await;
    let mut request = raw.open(&get("/")).await;
    request.finish();
    let mut peer = origin.accept_request().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    assert_eq!(request.header().await.status(), 200);

    let began = Instant::now();
    litequic.lifecycle.advance_phase(ProcessPhase::Leaving);
    assert_eq!(request.outcome().await, Outcome::Closed(NO_ERROR));
    assert!(began.elapsed() >= deadline, "{:?}", began.elapsed());
    litequic.ended().await;
    // The origin's connection closes: the rest is not needed.
    peer.rest().await;
}

/// Connects, and returns the worker. No other client may connect meanwhile.
async fn placed(litequic: &Litequic) -> (usize, Client) {
    let counts =
        || litequic.metrics.worker_metrics().iter().map(|worker| worker.http3.connections.get()).collect::<Vec<_>>();
    let before = counts();
    let mut transport = quinn::TransportConfig::default();
    // A download needs the client's word again and again.
    transport.stream_receive_window(SMALL_WINDOW);
    let client = Client::with_transport(litequic, transport).await;
    let next = before.iter().sum::<u64>() + 1;
    litequic.wait_until("a connection", |worker| worker.http3.connections.get(), |sum| sum == next).await;
    let worker = counts().iter().zip(&before).position(|(now, before)| now > before).unwrap();
    (worker, client)
}

/// Connections to each worker, `each` at least.
async fn on_every_worker(litequic: &Litequic, each: usize) -> Vec<Vec<Client>> {
    let mut placed_on: Vec<_> = litequic.metrics.worker_metrics().iter().map(|_| Vec::new()).collect();
    while placed_on.iter().any(|clients| clients.len() < each) {
        let (worker, client) = placed(litequic).await;
        placed_on[worker].push(client);
    }
    placed_on
}

#[tokio::test]
async fn a_worker_s_end_does_not_put_the_deadline_off() {
    let deadline = Duration::from_secs(4);
    let (origin, litequic) = Script::behind_litequic(|config| {
        workers(config, 2);
        config.timeouts.drain = deadline;
    })
    .await;
    let clients = on_every_worker(&litequic, 1).await;
    let mut requests = Vec::new();
    for clients in &clients {
        let mut request = clients[0].open(clients[0].request(Method::GET, "/")).await;
        request.finish().await.unwrap();
        let peer = origin.accept_request().await;
        requests.push((request, peer));
    }
    let began = Instant::now();
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    sleep(deadline / 2).await; // a part of the time itself
    let (request, peer) = &mut requests[0];
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client::header(request).await.status(), 200);
    let first_ended = Instant::now();
    litequic.ended().await;
    assert!(began.elapsed() >= deadline, "{:?}", began.elapsed());
    assert!(first_ended.elapsed() < deadline, "{:?}: the time begins anew", first_ended.elapsed());
}

/// The kernel's program picks a socket by its place in the group, which a socket that closes changes.
#[tokio::test]
async fn downloads_outlive_a_worker_that_has_nothing_left_to_do() {
    for idle in 0..4 {
        let litequic = Litequic::demo(|config| workers(config, 4)).await;
        let clients = on_every_worker(&litequic, 2).await;
        let mut downloads = Vec::new();
        for (worker, clients) in clients.iter().enumerate().filter(|(worker, _)| *worker != idle) {
            for client in clients.iter().take(2) {
                let mut download = client.begin_get("/bytes/1M").await;
                assert_eq!(client::header(&mut download).await.status(), 200);
                downloads.push((worker, download));
            }
        }
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        for client in &clients[idle] {
            assert_eq!(client.quic.closed().await, NO_ERROR);
        }
        sleep(TO_END).await;
        // The last worker's first: its place is the one that moves, and the others are still at work.
        for (worker, download) in downloads.iter_mut().rev() {
            let body = client::body(download).await;
            assert_eq!(body.len(), 1_000_000, "{idle} idle, {worker} at work");
        }
        drop(downloads);
        litequic.ended().await;
    }
}

/// However long the rest takes: no client waits for a timeout.
#[tokio::test]
async fn a_process_that_drains_refuses_new_clients_until_its_end() {
    /// RFC 9000 §20.1.
    const CONNECTION_REFUSED: u64 = 0x02;
    let litequic = Litequic::demo(|config| workers(config, 2)).await;
    let mut download = Tls::http1(&litequic).await;
    download.say("GET /drip/400/25 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    download.head().await;
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    for _ in 0..2 {
        // Of two workers, one without any connection.
        for _ in 0..8 {
            let transport = quinn::TransportConfig::default();
            let attempt = Quic::try_connect(litequic.address, "localhost", &litequic.cert_pem, transport);
            match within("an answer", attempt).await.err() {
                Some(quinn::ConnectionError::ConnectionClosed(close)) => {
                    assert_eq!(u64::from(close.error_code), CONNECTION_REFUSED, "{close:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        sleep(TO_END).await;
    }
    assert!(litequic.sum(|worker| worker.quic.handshakes_refused.get()) >= 16);
    drop(download);
    litequic.ended().await;
}

#[tokio::test]
async fn the_log_says_what_a_drain_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let (process, download, client) = {
        let made = make_self_signed(["localhost"]).unwrap();
        let text = format!(
            "{}[listen]\nudp = \"127.0.0.1:{}\"\nworkers = 2\n[origin]\nurl = \"http://{}\"\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
            io_key(),
            free_udp_port(),
            origin::demo().await
        );
        let config = directory.path().join("litequic.toml");
        fs::write(&config, text).unwrap();
        write_certificate(directory.path(), &made);
        let process = Process::start([std::ffi::OsStr::new("run"), "--config".as_ref(), config.as_ref()]);
        let stream = TcpStream::connect(process.address()).await.unwrap();
        let client = stream.local_addr().unwrap();
        let config = tls::config(&made.cert_pem, &["http/1.1"]);
        let mut download = Tls::over(stream, "localhost", config).await.unwrap();
        download.say("GET /drip/1000/25 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        download.head().await;
        (process, download, client)
    };
    process.signal("TERM");
    let message = "draining: waiting for open connections";
    let process = spawn_blocking(move || {
        process.await_stderr(message);
        process
    });
    let process = process.await.unwrap();
    let log = process.stderr();
    let line: serde_json::Value =
        serde_json::from_str(log.lines().find(|line| line.contains(message)).unwrap()).unwrap();
    let counts = ["connections", "requests", "tunnels"].map(|count| line[count].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)], "{line}");
    assert_eq!(line["oldest_client"], client.to_string(), "{line}");
    assert!(line["left"].as_u64() <= Some(20) && line["connected_for"].as_u64() >= Some(4), "{line}");
    drop(download);
    let ended = spawn_blocking(|| process.end()).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn stopping_at_once_waits_for_no_client() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::to(&litequic).await;
    let _request = raw.open(&get("/")).await;
    let _peer = origin.accept_request().await;
    litequic.lifecycle.advance_phase(ProcessPhase::Draining);
    litequic.lifecycle.advance_phase(ProcessPhase::Stopping);
    assert_eq!(raw.quic.closed().await, NO_ERROR);
    litequic.ended().await;
}

#[tokio::test]
async fn a_worker_that_ends_before_the_process_looks_has_not_died() {
    let litequic = Litequic::demo(|_| {}).await;
    litequic.lifecycle.advance_phase(ProcessPhase::Stopping);
    std::thread::sleep(TO_END); // nothing on this thread learns of it until the worker has ended
    litequic.ended().await;
}

#[tokio::test]
async fn post_drain_drains_and_probes_cannot() {
    let litequic = Litequic::demo(|config| {
        with_admin(config);
        config.timeouts.drain_grace = Duration::from_secs(3600);
    })
    .await;
    let (admin, probes) = (litequic.admin.unwrap(), litequic.probes.unwrap());
    assert_eq!(ask(probes, "POST /drain").await.0, 404);
    assert_eq!(ask(admin, "GET /drain").await.0, 405);
    assert_eq!(litequic.lifecycle.current_phase(), ProcessPhase::Ready);
    assert_eq!(ask(admin, "POST /drain").await, (202, "draining\n".into()));
    assert_eq!(ask(admin, "GET /readyz").await.0, 503);
    assert_eq!(ask(admin, "POST /drain").await, (202, "draining already\n".into()));
    litequic.stop().await;
}

#[tokio::test]
async fn the_process_ends_with_0_after_post_drain() {
    let ended = drained_by_post(|_| {}).await;
    assert!(!ended.stderr.contains("received a signal to"), "{ended:?}");
}

/// As for a Kubernetes sidecar: by its preStop hook first, by SIGTERM when the application has ended.
#[tokio::test]
async fn one_signal_after_post_drain_cuts_nothing_off() {
    let ended = drained_by_post(|process| process.signal("TERM")).await;
    assert!(ended.stderr.contains("received a signal to drain") && !ended.stderr.contains("stop now"), "{ended:?}");
}

/// `litequic run` that gets a request to drain while a download runs, which completes whatever is done `then`.
async fn drained_by_post(then: impl Fn(&Process)) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost"]).unwrap();
    let (udp, admin) = (free_udp_port(), free_tcp_port());
    let text = format!(
        "{}[listen]\nudp = \"127.0.0.1:{udp}\"\nworkers = 2\n[origin]\nurl = \"http://{}\"\n\
         [admin]\nlisten = \"127.0.0.1:{admin}\"\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
        io_key(),
        origin::demo().await
    );
    let config = directory.path().join("litequic.toml");
    fs::write(&config, text).unwrap();
    write_certificate(directory.path(), &made);

    let process = Process::start([std::ffi::OsStr::new("run"), "--config".as_ref(), config.as_ref()]);
    let address = process.address();
    let client = Client::connect(address, &made.cert_pem, quinn::TransportConfig::default()).await;
    let mut download = client.begin_get(DRIP).await;
    assert_eq!(client::header(&mut download).await.status(), 200);
    let admin = (Ipv4Addr::LOCALHOST, admin).into();
    assert_eq!(ask(admin, "POST /drain").await.0, 202);
    then(&process);
    assert_eq!(String::from_utf8(client::body(&mut download).await).unwrap(), whole_drip());
    let ended = spawn_blocking(|| process.end_within(Duration::from_secs(15))).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("drain requested by POST /drain"), "{ended:?}");
    ended
}

#[tokio::test]
async fn readiness_follows_the_origin_where_it_is_asked_to() {
    let address = origin::closed_port();
    let litequic = Litequic::start(address, |config| {
        with_admin(config);
        config.admin.ready_needs_origin = true;
    })
    .await;
    let probes = litequic.probes.unwrap();
    let (status, reason) = ask(probes, "GET /readyz").await;
    assert_eq!(status, 503);
    assert!(
        reason.starts_with("not ready: an origin is unreachable: ") && reason.contains(&address.to_string()),
        "{reason}"
    );
    assert_eq!(ask(probes, "GET /healthz").await.0, 200);

    let _origin = tokio::net::TcpListener::bind(address).await.unwrap();
    until("readiness", async || ask(probes, "GET /readyz").await.0 == 200).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_scrape_counts_what_was_served() {
    let litequic = Litequic::demo(with_admin).await;
    let probes = litequic.probes.unwrap();
    let before = scrape(probes).await;
    let client = Client::to(&litequic).await;
    for _ in 0..3 {
        assert_eq!(client.get("/bytes/1000").await.body.len(), 1000);
    }
    assert_eq!(client.get("/status/404").await.status, 404);
    assert!(client.post("/sink", vec![0; 500]).await.text().starts_with("500 "));
    litequic.wait_until_idle().await;
    let after = scrape(probes).await;
    let table = [
        ("litequic_connections_total", 1.0),
        ("litequic_connections_open", 1.0),
        ("litequic_requests_total{protocol=\"h3\"}", 5.0),
        ("litequic_requests_open", 0.0),
        ("litequic_responses_total{class=\"2xx\"}", 4.0),
        ("litequic_responses_total{class=\"4xx\"}", 1.0),
        ("litequic_responses_total{class=\"5xx\"}", 0.0),
        ("litequic_request_body_bytes_total", 500.0),
        ("litequic_origin_requests_total", 5.0),
        ("litequic_origin_connections_total", 1.0),
        ("litequic_malformed_requests_total", 0.0),
    ];
    for (key, more) in table {
        assert_eq!(after[key] - before[key], more, "{key}");
    }
    assert!(after["litequic_response_body_bytes_total"] >= 3000.0);
    assert_eq!(after["litequic_workers"], 1.0);
    litequic.stop().await;
}
