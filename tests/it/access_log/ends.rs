//! How requests end and how large responses are, as the log and the counters have it, compared with what clients
//! report: those of QUIC that close behind the last byte, curl, h2load, `litequic get`, Chromium.

use super::{everything, lines, logging};
use crate::support::{chromium::Browser, prelude::*};

use serde_json::Value as Json;

/// Sizes of bodies: none, one that travels with its header, those around what does, many packets.
const SIZES: [usize; 6] = [0, 1, 1000, 4096, 4097, 300_000];

/// Bytes and end of a line.
fn told(line: &Json) -> (u64, u64, String) {
    let number = |field: &str| line[field].as_u64().unwrap_or_default();
    (number("status"), number("bytes_out"), line["end"].as_str().unwrap_or_default().to_owned())
}

fn complete(size: usize) -> (u64, u64, String) {
    (200, size as u64, "complete".to_owned())
}

/// Requests that clients have ended by the metrics, response bytes, and responses of routes.
fn counted(litequic: &Litequic) -> (u64, u64) {
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    (sum(|worker| worker.shared.streams_reset_by_client.get()), sum(|worker| worker.shared.response_body_bytes.get()))
}

#[tokio::test]
async fn a_quic_close_without_error_after_the_last_byte_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let mut expected = Vec::new();
    // H3_NO_ERROR, and two codes that are unknown and mean the same (RFC 9114 §9).
    for code in [0x100_u32, 0, 0x21] {
        for size in SIZES {
            let raw = Raw::to(&litequic).await;
            let mut exchange = raw.open(&raw::request("GET", &format!("/bytes/{size}"))).await;
            exchange.finish();
            assert_eq!(exchange.outcome().await.response().body.len(), size);
            raw.quic.connection.close(code.into(), b"");
            litequic.wait_until_idle().await;
            expected.push(complete(size));
        }
    }
    litequic.wait_until_idle().await;
    let whole = 3 * SIZES.iter().sum::<usize>() as u64;
    assert_eq!(counted(&litequic), (0, whole));
    assert_eq!(lines(litequic, &path).await.iter().map(told).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_quic_close_with_an_error_or_an_idle_timeout_is_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let (script, litequic) = Script::behind_litequic(|config| {
        config.access_log = everything(&folder);
        config.timeouts.idle = Duration::from_secs(2);
    })
    .await;
    let raw = Raw::to(&litequic).await;
    let (_exchange, mut peer) = raw.asked_at(&script).await;
    raw.quic.vanish();
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    litequic.wait_until("the client is forgotten", |worker| worker.shared.requests_open.get(), |open| open == 0).await;
    // In the middle of the body; the origin's connection is the same.
    let raw = Raw::to(&litequic).await;
    let mut exchange = raw.open(&raw::get()).await;
    exchange.finish();
    peer.head().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    exchange.header().await;
    raw.quic.connection.close(0x102_u32.into(), b"");
    litequic.wait_until("the client is gone", |worker| worker.shared.requests_open.get(), |open| open == 0).await;
    let lines = lines(litequic, &folder.path().join("access.log")).await;
    let ended: Vec<_> = lines.iter().map(|line| told(line).2).collect();
    assert_eq!(ended, ["cancelled", "cancelled"]);
}

#[tokio::test]
async fn a_client_that_resets_its_upload_after_the_response_keeps_the_response() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new().await;
    let (litequic, path) = logging(script.address, &folder).await;
    let raw = Raw::to(&litequic).await;
    let mut exchange = raw.open(&raw::with("POST", &[("content-length", "1000")])).await;
    exchange.send(&raw::data([b'x'; 100])).await;
    let mut peer = script.accept_request().await;
    peer.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
    assert_eq!(exchange.outcome().await.status(), 401);
    let _ = exchange.send.reset(0x10c_u32.into());
    litequic.wait_until_idle().await;
    assert_eq!(told(&lines(litequic, &path).await[0]), (401, 2, "complete".into()));
}

#[tokio::test]
async fn clients_over_tcp_that_leave_behind_the_last_byte_have_it_all() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let mut expected = Vec::new();
    for size in SIZES {
        let mut one = Tls::http1(&litequic).await;
        one.say(format!("GET /bytes/{size} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        one.head().await;
        if size > 0 {
            one.exactly(size).await;
        }
        drop(one);
        litequic.wait_until_idle().await;
        // RST_STREAM with CANCEL behind END_STREAM.
        let mut two = Http2::connect(&litequic, &[0, 4, 0, 0x7f, 0xff, 0xff]).await;
        two.say(http2::WINDOW_UPDATE, 0, 0, &[0, 0x0f, 0xff, 0xff]).await;
        let path = format!("/bytes/{size}");
        let get = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", &path)];
        two.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::fields(&get)).await;
        while two.find(&[http2::DATA, http2::HEADERS]).await.unwrap().flags & http2::END_STREAM == 0 {}
        two.say(http2::RST_STREAM, 0, 1, &[0, 0, 0, 8]).await;
        drop(two);
        litequic.wait_until_idle().await;
        expected.extend([complete(size), complete(size)]);
    }
    // No body at all.
    let mut one = Tls::http1(&litequic).await;
    one.say("HEAD /bytes/1000 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    one.head().await;
    one.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    one.head().await;
    one.say("GET /status/304 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    one.head().await;
    drop(one);
    litequic.wait_until_idle().await;
    expected.extend([200, 204, 304].map(|status| (status, 0, "complete".to_owned())));
    assert_eq!(counted(&litequic), (0, 2 * SIZES.iter().sum::<usize>() as u64));
    assert_eq!(lines(litequic, &path).await.iter().map(told).collect::<Vec<_>>(), expected);
}

/// Runs `command` to its end beside what this thread serves, and returns its standard output.
async fn run(command: Command) -> String {
    spawn_blocking(|| Process::spawn(command).end().success()).await.unwrap()
}

#[tokio::test]
async fn litequic_get_and_the_log_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &litequic.cert_pem).unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        for size in SIZES {
            let url = format!("https://localhost:{}/bytes/{size}", litequic.address.port());
            let resolve = format!("localhost:{}:127.0.0.1", litequic.address.port());
            let head: &[&str] = if round == 3 { &["--head"] } else { &[] };
            let body = folder.path().join("body");
            let [ca, to] = [&ca, &body].map(|path| path.to_str().unwrap());
            let get = ["get", &url, "--resolve", &resolve, "--ca", ca, "--output", to];
            run(command([&get[..], head].concat())).await;
            let got = fs::read(&body).unwrap().len();
            assert_eq!(got, if round == 3 { 0 } else { size });
            expected.push(complete(got));
        }
    }
    litequic.wait_until_idle().await;
    assert_eq!(counted(&litequic), (0, 3 * SIZES.iter().sum::<usize>() as u64));
    assert_eq!(lines(litequic, &path).await.iter().map(told).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn curl_and_the_log_agree() {
    let Some(curl) = needs::program("curl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &litequic.cert_pem).unwrap();
    let base = format!("https://localhost:{}", litequic.address.port());
    let mut reported = Vec::new();
    for protocol in ["--http1.1", "--http2"] {
        for (path, more) in [
            ("/bytes/0", &[][..]),
            ("/bytes/1000", &[]),
            ("/bytes/300000", &[]),
            ("/bytes/1000", &["--head"]),
            ("/status/204", &[]),
            ("/status/304", &[]),
            ("/nothing", &[]),
            ("/echo", &["--data", "hello"]),
            ("/drip/3/1", &[]),
        ] {
            let mut command = Command::new(&curl);
            command.args(["--silent", "--cacert", ca.to_str().unwrap(), protocol, "--output", "/dev/null"]);
            command.args(["--resolve", &format!("localhost:{}:127.0.0.1", litequic.address.port())]);
            command.args(["--write-out", "%{http_code} %{size_download}"]).args(more).arg(format!("{base}{path}"));
            reported.push(format!("{} complete", run(command).await));
            litequic.wait_until_idle().await;
        }
    }
    assert_eq!(counted(&litequic).0, 0);
    let lines = lines(litequic, &path).await;
    let logged = lines.iter().map(told).map(|(status, bytes, end)| format!("{status} {bytes} {end}"));
    assert_eq!(logged.collect::<Vec<_>>(), reported);
}

#[tokio::test]
async fn h2load_and_the_log_agree() {
    const REQUESTS: usize = 200;
    let Some(h2load) = needs::program("h2load") else { return };
    for protocol in ["h2", "http/1.1"] {
        let folder = tempfile::tempdir().unwrap();
        let (litequic, path) = logging(origin::demo().await, &folder).await;
        let mut command = Command::new(&h2load);
        command.args(["-n", &REQUESTS.to_string(), "-c", "4", "-m", "5", &format!("--npn-list={protocol}")]);
        command.arg(format!("https://localhost:{}/bytes/5000", litequic.address.port()));
        let report = run(command).await;
        assert!(report.contains(&format!("{REQUESTS} succeeded, 0 failed")), "{report}");
        litequic.wait_until_idle().await;
        assert_eq!(counted(&litequic), (0, 5000 * REQUESTS as u64));
        let lines = lines(litequic, &path).await;
        assert_eq!(lines.len(), REQUESTS);
        assert!(lines.iter().all(|line| told(line) == complete(5000)), "{protocol}: {lines:?}");
    }
}

#[tokio::test]
async fn chromium_and_the_log_agree() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = make_self_signed(["localhost"]).unwrap();
    let spki = certificate.spki_sha256.clone();
    let edit = |config: &mut Config| config.access_log = everything(&folder);
    let litequic = Litequic::showing(&[certificate], origin::demo().await, edit).await;
    let address = litequic.address;
    let Some(sizes) = spawn_blocking(move || fetched(address, &spki)).await.unwrap() else { return };
    litequic.wait_until_idle().await;
    let lines = lines(litequic, &folder.path().join("access.log")).await;
    let logged = lines.iter().filter(|line| line["path"].as_str().unwrap().starts_with("/bytes/"));
    let logged: Vec<_> = logged.inspect(|line| assert_eq!(line["protocol"], "HTTP/3")).map(told).collect();
    assert_eq!(logged, sizes.into_iter().map(complete).collect::<Vec<_>>());
}

/// The lengths of bodies that the browser fetched one after the other before it was closed.
fn fetched(address: SocketAddr, spki: &str) -> Option<Vec<usize>> {
    let mut browser = Browser::trusting(spki, Some(address.port()), &[])?;
    browser.open(&format!("https://localhost:{}/headers", address.port()));
    browser.wait_for("location.pathname == '/headers' && document.readyState == 'complete'");
    let fetch = |size| {
        format!("fetch('/bytes/{size}', {{ cache: 'no-store' }}).then(a => a.arrayBuffer()).then(b => b.byteLength)")
    };
    let got = SIZES.map(|size| browser.evaluate(&fetch(size)).as_u64().unwrap());
    Some(got.map(|size| usize::try_from(size).unwrap()).to_vec())
}
