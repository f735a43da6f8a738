//! The load generator, as the bench runs it, against servers in this process that behave, stall, send false data or
//! end.
#![cfg(test)]

use bytes::Bytes;
use quinn::{TransportConfig, crypto::rustls::QuicServerConfig};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime::Runtime,
    sync::Mutex,
};

/// The stall of a server that stalls once.
const STALL: Duration = Duration::from_millis(400);

/// Longer than any load here: one that takes as long does not end.
const PATIENCE: Duration = Duration::from_secs(60);

/// An HTTP/3 and an HTTP/1.1 server in one, until it is dropped.
struct Server {
    runtime: Option<Runtime>,
    h3: SocketAddr,
    h1: SocketAddr,
    behaviour: Arc<Behaviour>,
    folder: TempDir,
}

struct Behaviour {
    requests: AtomicU64,
    /// HTTP/3 connections that the client closed with H3_NO_ERROR.
    closed: AtomicU64,
    /// After so many the server winds the connection up, in good order.
    requests_a_connection: u64,
    /// Locked while the server stalls: no client is answered meanwhile.
    gate: Mutex<()>,
}

/// What is sent for a path: status, announced length, body.
struct Answer {
    status: u16,
    announced: usize,
    body: Vec<u8>,
}

impl Behaviour {
    async fn answer(&self, path: &str, received: Option<&[u8]>) -> Answer {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().await;
        if path == "/stalls-once" && number == 20 {
            tokio::time::sleep(STALL).await;
        }
        drop(gate);
        let (behaviour, length) = path.rsplit_once('/').unwrap_or_default();
        let length = length.parse().unwrap_or(1000);
        let mut body: Vec<u8> = (0..length).map(|index: usize| (index / 3).to_le_bytes()[0]).collect();
        let mut status = 200;
        match behaviour {
            "/truncated" if number > 1 => body.truncate(length / 2),
            "/wrong" if number > 1 => body[length / 2] ^= 1,
            "/missing" if number > 1 => status = 404,
            "/upload" => {
                let right = received.is_some_and(|received| {
                    received.len() == length
                        && received.iter().zip(0u64..).all(|(byte, index)| u64::from(*byte) == index % 251)
                });
                return Answer { status: if right { 200 } else { 400 }, announced: 0, body: Vec::new() };
            }
            _ => {}
        }
        Answer { status, announced: length, body }
    }
}

impl Server {
    fn start() -> Self {
        Self::with(TransportConfig::default(), u64::MAX)
    }

    fn with(transport: TransportConfig, requests_a_connection: u64) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), cert.pem()).unwrap();
        let config = |alpn: &[u8]| {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut config = rustls::ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key)
                .unwrap();
            config.alpn_protocols = vec![alpn.to_vec()];
            config
        };
        let mut quic = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config(b"h3")).unwrap()));
        quic.transport_config(Arc::new(transport));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let behaviour = Arc::new(Behaviour {
            requests: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            requests_a_connection,
            gate: Mutex::new(()),
        });
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let guard = runtime.enter();
        let endpoint = quinn::Endpoint::server(quic, any).unwrap();
        let listener = runtime.block_on(TcpListener::bind(any)).unwrap();
        drop(guard);
        let (h3, h1) = (endpoint.local_addr().unwrap(), listener.local_addr().unwrap());
        runtime.spawn(serve_h3(endpoint, behaviour.clone()));
        runtime.spawn(serve_h1(listener, Arc::new(config(b"http/1.1")), behaviour.clone()));
        Self { runtime: Some(runtime), h3, h1, behaviour, folder }
    }

    /// Gone without a word.
    fn die(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn spawn(&self, protocol: &str, arguments: &str) -> Child {
        let address = if protocol == "h1" { self.h1 } else { self.h3 };
        Command::new(env!("CARGO_BIN_EXE_litequic-lab"))
            .arg("load")
            .args(arguments.split(' '))
            .args(["--protocol", protocol, "--address", &address.to_string(), "--json", "--ca"])
            .arg(self.ca())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn load(&self, protocol: &str, arguments: &str) -> Value {
        let child = self.spawn(protocol, arguments);
        finish(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The report of a load that ends in time. Its exit code shows whether it is void.
fn finish(mut child: Child) -> Value {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the load does not end");
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!report["void"].is_null())), "{report:#}");
    report
}

async fn serve_h3(endpoint: quinn::Endpoint, behaviour: Arc<Behaviour>) {
    while let Some(incoming) = endpoint.accept().await {
        let behaviour = behaviour.clone();
        tokio::spawn(async move {
            let quic = incoming.await.ok()?;
            let connection = h3_quinn::Connection::new(quic.clone());
            let mut connection = h3::server::Connection::<_, Bytes>::new(connection).await.ok()?;
            let mut accepted = 0;
            loop {
                let resolver = match connection.accept().await {
                    Ok(Some(resolver)) => resolver,
                    // Dropping it would take the last answers away: the client closes.
                    Ok(None) => {
                        quic.closed().await;
                        break;
                    }
                    Err(error) => {
                        behaviour.closed.fetch_add(u64::from(error.is_h3_no_error()), Ordering::SeqCst);
                        break;
                    }
                };
                let behaviour = behaviour.clone();
                accepted += 1;
                if accepted == behaviour.requests_a_connection {
                    connection.shutdown(0).await.ok()?;
                }
                tokio::spawn(async move {
                    let (request, mut stream) = resolver.resolve_request().await.ok()?;
                    let mut received = Vec::new();
                    // An answer to an incomplete request.
                    let hasty = request.uri().path().starts_with("/hasty");
                    while !hasty && let Ok(Some(mut piece)) = stream.recv_data().await {
                        use bytes::Buf;
                        received.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
                    }
                    let answer = behaviour.answer(request.uri().path(), Some(&received)).await;
                    let head =
                        http::Response::builder().status(answer.status).header("content-length", answer.announced);
                    stream.send_response(head.body(()).unwrap()).await.ok()?;
                    stream.send_data(Bytes::from(answer.body)).await.ok()?;
                    stream.finish().await.ok()
                });
            }
            Some(())
        });
    }
}

async fn serve_h1(listener: TcpListener, config: Arc<rustls::ServerConfig>, behaviour: Arc<Behaviour>) {
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, behaviour) = (acceptor.clone(), behaviour.clone());
        tokio::spawn(async move {
            tcp.set_nodelay(true).ok()?;
            let mut stream = acceptor.accept(tcp).await.ok()?;
            let mut bytes = Vec::new();
            let mut left = behaviour.requests_a_connection;
            loop {
                let head = loop {
                    if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                        break bytes.drain(..end + 4).collect::<Vec<u8>>();
                    }
                    if stream.read_buf(&mut bytes).await.ok()? == 0 {
                        return None;
                    }
                };
                let head = String::from_utf8(head).unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let length = length.map_or(0, |length| length.parse().unwrap());
                while bytes.len() < length {
                    stream.read_buf(&mut bytes).await.ok()?;
                }
                let received: Vec<u8> = bytes.drain(..length).collect();
                let path = head.split(' ').nth(1).unwrap();
                let answer = behaviour.answer(path, Some(&received)).await;
                left -= 1;
                let connection = if left == 0 { "close" } else { "keep-alive" };
                let head = format!(
                    "HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
                    answer.status, answer.announced
                );
                stream.write_all(head.as_bytes()).await.ok()?;
                stream.write_all(&answer.body).await.ok()?;
                stream.flush().await.ok()?;
                if left == 0 || answer.body.len() < answer.announced {
                    stream.shutdown().await.ok()?;
                    return None;
                }
            }
            #[expect(unreachable_code, reason = "names the block's type")]
            Some(())
        });
    }
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report:#}"))
}

/// A load that stands, with this many right answers.
fn assert_stands(report: &Value, ok: u64) {
    assert_eq!(report["void"], Value::Null, "{report:#}");
    assert_eq!((report["requests_ok"].as_u64(), report["requests_failed"].as_u64()), (Some(ok), Some(0)), "{report:#}");
}

/// A load that is void for a reason in which `why` occurs.
fn assert_void(report: &Value, why: &str) {
    assert!(report["void"].as_str().is_some_and(|void| void.contains(why)), "{report:#}");
    assert!(report["requests_failed"].as_u64() > Some(0), "{report:#}");
}

#[test]
fn ack_thresholds_are_exact() {
    let server = Server::start();
    for threshold in [2.0, 10.0, 100.0] {
        let load = format!("download --path /right/30000000 --bytes 30000000 --warmup 1 --ack-threshold {threshold}");
        // On a machine with other work a server can pause for longer than an ACK may wait: one try in three is enough.
        let reports = (0..3).map(|_| server.load("h3", &load));
        let held =
            reports.inspect(|report| assert_stands(report, 1)).find(|report| report["quic"]["threshold_held"] == true);
        let report = held.unwrap_or_else(|| panic!("{threshold} packets an ACK held in none of three loads"));
        let ratio = number(&report, "/quic/packets_received") / number(&report, "/quic/ack_packets_sent");
        assert!((ratio / threshold - 1.0).abs() < 0.05, "{ratio} instead of {threshold}: {report:#}");
        assert!(number(&report, "/quic/packets_received") > 20_000.0);
    }
}

#[test]
fn ack_frequency_is_obeyed_under_auto_alone() {
    let mut frequency = quinn::AckFrequencyConfig::default();
    frequency.ack_eliciting_threshold(29u32.into());
    let mut transport = TransportConfig::default();
    transport.ack_frequency_config(Some(frequency));
    let server = Server::with(transport, u64::MAX);
    let load = "download --path /right/20000000";
    let obeyed = server.load("h3", &format!("{load} --warmup 1 --ack-threshold auto"));
    assert_stands(&obeyed, 1);
    let ratio = number(&obeyed, "/quic/packets_per_ack");
    assert!((27.0..33.0).contains(&ratio), "{ratio}: {obeyed:#}");
    let own = server.load("h3", &format!("{load} --warmup 0 --ack-threshold 2"));
    assert_stands(&own, 1);
    let ratio = number(&own, "/quic/packets_per_ack");
    assert!((1.9..2.1).contains(&ratio), "{ratio}: {own:#}");
    assert_eq!(number(&own, "/quic/ack_frequency_frames"), 0.0);
}

#[test]
fn every_byte_of_many_streams_is_checked_with_and_without_gro() {
    let server = Server::start();
    for gro in ["on", "off"] {
        let report = server.load(
            "h3",
            &format!("download --path /right/100001 --connections 3 --streams 4 --requests 50 --gro {gro}"),
        );
        assert_stands(&report, 50);
        assert_eq!(number(&report, "/body_bytes_verified"), 50.0 * 100_001.0);
        let (datagrams, batches) = (number(&report, "/quic/datagrams_received"), number(&report, "/quic/gro_batches"));
        assert!(if gro == "on" { batches < datagrams } else { batches == datagrams }, "{report:#}");
    }
}

#[test]
fn a_faulty_path_is_seeded_and_delivers_every_byte() {
    let server = Server::start();
    let load = "download --path /right/8000000 --bytes 8000000 --warmup 0 --ack-threshold 2 --ack-gaps";
    let clean = server.load("h3", load);
    assert_stands(&clean, 1);
    assert_eq!((number(&clean, "/quic/lost_on_purpose"), number(&clean, "/quic/reordered_on_purpose")), (0.0, 0.0));
    let report = server.load("h3", &format!("{load} --lose 5000 --hold 5000 --seed 3"));
    assert_stands(&report, 1);
    let lost = number(&report, "/quic/lost_on_purpose");
    assert!(lost > 0.0 && number(&report, "/quic/reordered_on_purpose") > 0.0, "{report:#}");
    assert!(number(&report, "/quic/packets_missing") >= lost, "{report:#}");
    assert!(number(&report, "/quic/rtt_us") > 0.0, "{report:#}");
}

#[test]
fn lies_of_the_server_void_the_report() {
    for protocol in ["h3", "h1"] {
        for (path, why) in [("/truncated/5000", ""), ("/wrong/5000", "CRC-32"), ("/missing/5000", "404")] {
            let server = Server::start();
            let report = server.load(protocol, &format!("small --path {path} --warmup 1 --requests 5"));
            assert_void(&report, why);
            assert_eq!(report["requests_ok"].as_u64(), Some(1), "the first was right: {report:#}");
            assert!(!report["errors"].as_array().unwrap().is_empty());
        }
        let server = Server::start();
        let report = server.load(protocol, "small --path /right/5000 --expect-hash 12345678 --warmup 0");
        assert_void(&report, "instead of 12345678");
        let report = server.load(protocol, "small --path /right/5000 --bytes 5001 --warmup 0");
        assert_void(&report, "5000 bytes came instead of 5001");
    }
}

#[test]
fn uploads_arrive_whole() {
    let server = Server::start();
    for (protocol, streams) in [("h3", 2), ("h1", 1)] {
        let load =
            format!("upload --path /upload/3000000 --bytes 3000000 --connections 2 --streams {streams} --requests 6");
        let report = server.load(protocol, &load);
        assert_stands(&report, 6);
        assert_eq!(number(&report, "/body_bytes_sent"), 18_000_000.0);
        let report = server.load(protocol, "upload --path /upload/3000000 --bytes 2999999");
        assert_void(&report, "400");
    }
}

#[test]
fn an_upload_that_was_answered_before_it_was_taken_is_not_one() {
    let report = Server::start().load("h3", "upload --path /hasty/1000 --bytes 3000000");
    assert_void(&report, "");
}

#[test]
fn http_1_1_is_loaded_by_the_same_rules() {
    let server = Server::start();
    let report = server.load("h1", "download --path /right/5000000 --bytes 5000000 --connections 3 --requests 9");
    assert_stands(&report, 9);
    assert_eq!(report["quic"], Value::Null);
    assert_eq!(number(&report, "/body_bytes_received"), 45_000_000.0);
}

#[test]
fn a_rate_charges_the_server_for_those_who_waited_through_a_stall() {
    // One request at a time: in a closed loop only one meets the stall.
    for protocol in ["h3", "h1"] {
        let server = Server::start();
        let closed = server.load(protocol, "small --path /stalls-once --warmup 0 --requests 200");
        assert_stands(&closed, 200);
        assert_eq!(closed["latency"]["counted_from"], "sent");
        assert!(number(&closed, "/latency/max_us") >= 400_000.0, "the stall is seen: {closed:#}");
        assert!(number(&closed, "/latency/p90_us") < 100_000.0, "by one alone: {closed:#}");

        let server = Server::start();
        let open = server.load(protocol, "small --path /stalls-once --warmup 0 --seconds 1 --rate 200");
        assert_stands(&open, 200);
        assert_eq!(open["latency"]["counted_from"], "intended");
        // 80 of the 200 were due during the stall: a tenth of all waited three quarters of it or longer.
        assert!(number(&open, "/latency/p90_us") > 200_000.0, "{open:#}");
    }
}

#[test]
fn in_turn_only_one_request_is_in_flight_on_all_connections() {
    for protocol in ["h3", "h1"] {
        let server = Server::start();
        let load = "small --path /stalls-once --warmup 0 --requests 100 --connections 5 --in-turn";
        let report = server.load(protocol, load);
        assert_stands(&report, 100);
        assert!(number(&report, "/latency/max_us") >= 400_000.0, "the stall is seen: {report:#}");
        assert!(number(&report, "/latency/p99_us") < 300_000.0, "by one alone: {report:#}");
    }
}

#[test]
fn a_cut_load_ends_in_time_and_abandons_requests() {
    for protocol in ["h3", "h1"] {
        let server = Server::start();
        let load = "download --path /right/500000 --warmup 0 --connections 2 --seconds 3 --cut --beginning 1";
        let report = server.load(protocol, load);
        assert_eq!((&report["void"], report["requests_failed"].as_u64()), (&Value::Null, Some(0)), "{report:#}");
        assert!(number(&report, "/body_bytes_received") >= number(&report, "/body_bytes_verified"), "{report:#}");
        assert!(number(&report, "/steady/body_bytes") <= number(&report, "/body_bytes_received"), "{report:#}");
        assert!(number(&report, "/steady/seconds") > 0.0 && number(&report, "/wall_seconds") >= 3.0, "{report:#}");

        // Too long to end in time.
        let load = "upload --path /upload/1 --bytes 100000000000 --warmup 0 --seconds 2 --cut --beginning 1";
        let report = server.load(protocol, load);
        assert_eq!((&report["void"], report["requests_failed"].as_u64()), (&Value::Null, Some(0)), "{report:#}");
        assert!(number(&report, "/steady/body_bytes") > 0.0, "{report:#}");
        assert!(number(&report, "/steady/body_bytes") < number(&report, "/body_bytes_sent"), "{report:#}");

        let closed = server.behaviour.gate.blocking_lock();
        let report = server.load(protocol, "download --path /right/500000 --warmup 0 --seconds 1 --cut");
        drop(closed);
        // On a busy machine the client may have given the server up by then.
        let reasons = ["nothing was measured", "no sign of the server for 10s"];
        assert!(reasons.iter().any(|reason| report["void"] == *reason), "{report:#}");
    }
}

#[test]
fn connections_that_a_server_winds_up_are_replaced() {
    let server = Server::with(TransportConfig::default(), 10);
    for (protocol, streams) in [("h3", 3), ("h1", 1)] {
        let load = format!("small --path /right/100 --connections 2 --streams {streams} --requests 100 --warmup 0");
        let report = server.load(protocol, &load);
        assert_stands(&report, 100);
        assert!(number(&report, "/reconnects") >= 6.0, "{report:#}");
    }
}

#[test]
fn a_load_leaves_no_connection_behind() {
    let server = Server::start();
    assert_stands(&server.load("h3", "download --path /right/1000 --connections 3"), 3);
    let start = Instant::now();
    while server.behaviour.closed.load(Ordering::SeqCst) < 3 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn handshakes_are_counted_and_resumed_when_asked() {
    let server = Server::start();
    for protocol in ["h3", "h1"] {
        let report = server.load(protocol, "handshakes --connections 2 --requests 20");
        assert_stands(&report, 20);
        assert_eq!((number(&report, "/handshakes"), number(&report, "/resumed")), (20.0, 0.0));
        assert!(number(&report, "/handshakes_per_second") > 1.0);
        let report = server.load(protocol, "handshakes --connections 2 --requests 20 --resume");
        assert_stands(&report, 20);
        assert_eq!(number(&report, "/resumed"), 20.0, "{report:#}");
    }
}

#[test]
fn idle_connections_count_if_they_answer_at_the_end() {
    let server = Server::start();
    for protocol in ["h3", "h1"] {
        let report = server.load(protocol, "idle --connections 20 --seconds 0.3 --path /right/10");
        assert_stands(&report, 20);
        assert_eq!(number(&report, "/latency/count"), 20.0, "the handshakes");
    }
    // This server has had enough after 200 ms.
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_millis(200).try_into().unwrap()));
    let report =
        Server::with(transport, u64::MAX).load("h3", "idle --connections 3 --seconds 1 --path /right/10 --stall 2");
    assert_void(&report, "");
}

#[test]
fn a_connection_waiting_beyond_a_stall_is_not_lost() {
    let server = Server::start();
    // Five requests a second: each of four connections is idle for 0.8 s.
    let report =
        server.load("h3", "small --path /right/10 --warmup 0 --connections 4 --rate 5 --seconds 2 --stall 0.5");
    assert_stands(&report, 10);
}

#[test]
fn a_server_that_dies_ends_the_load_in_bounded_time() {
    for protocol in ["h3", "h1"] {
        let mut server = Server::start();
        let child = server.spawn(protocol, "small --path /right/1000 --connections 2 --seconds 50 --stall 1");
        let start = Instant::now();
        while server.behaviour.requests.load(Ordering::SeqCst) < 100 {
            assert!(start.elapsed() < PATIENCE);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        server.die();
        let died = Instant::now();
        let report = finish(child);
        assert_void(&report, "");
        assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());
    }
}

#[test]
fn no_server_is_a_void_report_in_bounded_time() {
    let mut server = Server::start();
    server.die();
    for protocol in ["h3", "h1"] {
        let report = server.load(protocol, "download --path /right/1000 --stall 0.5");
        assert_void(&report, "");
    }
}
