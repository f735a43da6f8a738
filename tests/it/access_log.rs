//! The access log: a line for every request, however it ended, and none that a client could forge. And trace context,
//! which passes as it came.

mod ends;

use crate::support::{
    prelude::*,
    proxy::unbuffered,
    tunnel::{self, websocket},
};
use futures_util::{SinkExt, StreamExt};
use litequic_config::{AccessField, AccessLog, Fraction, LogTarget};
use serde_json::Value as Json;
use tokio_tungstenite::tungstenite::Message;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Every field there is, as JSON, into a file of `folder`.
fn everything(folder: &tempfile::TempDir) -> AccessLog {
    AccessLog {
        path: Some(LogTarget::File(folder.path().join("access.log"))),
        fields: AccessField::NAMES.iter().map(|(_, field)| *field).collect(),
        ..AccessLog::default()
    }
}

/// litequic before `origin` with such a log, and the log's file.
async fn logging(origin: SocketAddr, folder: &tempfile::TempDir) -> (Litequic, PathBuf) {
    let litequic = Litequic::start(origin, |config| {
        config.access_log = everything(folder);
        unbuffered(config);
    })
    .await;
    (litequic, folder.path().join("access.log"))
}

/// Ends litequic, and reads the lines that it wrote.
async fn lines(litequic: Litequic, path: &Path) -> Vec<Json> {
    litequic.stop().await;
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn seconds(line: &Json, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} in {line}"))
}

#[tokio::test]
async fn an_access_log_line_has_client_status_and_duration() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let client = Client::to(&litequic).await;
    let port = client.quic.endpoint.local_addr().unwrap().port();
    let body = vec![b'x'; 100_000];
    let request = client.request(Method::POST, "/echo?secret=1").header("user-agent", "test/1").header("referer", "/r");
    let answer = client.fetch(request.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01")), body).await;
    assert_eq!(answer.status.as_u16(), 200);
    let drip = client.get("/drip/5/20").await;
    assert_eq!(drip.status.as_u16(), 200);
    let (address, local) = (litequic.address, litequic.address.to_string());
    let lines = lines(litequic, &path).await;
    assert_eq!(lines.len(), 2);

    let line = &lines[0];
    let said = |field: &str| line[field].as_str().unwrap_or_else(|| panic!("{field} in {line}")).to_owned();
    for (field, expected) in [
        ("client", "127.0.0.1"),
        ("peer", "127.0.0.1"),
        ("client_port", &format!("127.0.0.1:{port}")),
        ("local", &local),
        ("protocol", "HTTP/3"),
        ("tls", "1.3"),
        ("server_name", "localhost"),
        ("method", "POST"),
        ("host", &format!("localhost:{}", address.port())),
        ("path", "/echo"),
        ("query", "secret=1"),
        ("user_agent", "test/1"),
        ("referer", "/r"),
        ("trace_id", TRACE),
        ("route", "*/"),
        ("origin", "origin"),
        ("end", "complete"),
    ] {
        assert_eq!(said(field), expected, "{field}");
    }
    assert_eq!(
        (&line["status"], &line["bytes_in"], &line["bytes_out"]),
        (&200.into(), &100_000.into(), &100_000.into())
    );
    assert_eq!(said("request_id").len(), 32);
    assert!(humantime::parse_rfc3339(&said("time")).is_ok());
    assert!(line.get("error").is_none());

    // The origin's header comes at once, its last drop after at least 80 ms.
    let slow = &lines[1];
    let (duration, first, origin) =
        (seconds(slow, "duration"), seconds(slow, "first_byte"), seconds(slow, "origin_time"));
    assert!(origin <= first && first < duration && duration >= 0.080, "{slow}");
}

#[tokio::test]
async fn a_line_behind_a_trusted_proxy_has_client_and_peer() {
    for (trusted, expected) in [([127, 0, 0, 0], "203.0.113.9"), ([192, 0, 2, 0], "127.0.0.1")] {
        let folder = tempfile::tempdir().unwrap();
        let litequic = Litequic::demo(|config| {
            config.access_log = everything(&folder);
            config.trusted_proxies = vec![Network { address: trusted.into(), prefix: 8 }];
        })
        .await;
        let client = Client::to(&litequic).await;
        let port = client.quic.endpoint.local_addr().unwrap().port();
        let request = client.request(Method::GET, "/status/204").header("x-forwarded-for", "203.0.113.9");
        assert_eq!(client.fetch(request, Bytes::new()).await.status.as_u16(), 204);
        let lines = lines(litequic, &folder.path().join("access.log")).await;
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&line["client"], &line["peer"]), (&expected.into(), &"127.0.0.1".into()), "{line}");
        assert_eq!(line["client_port"], format!("127.0.0.1:{port}"));
    }
}

/// Written without `fields`.
#[tokio::test]
async fn the_default_fields_name_the_server_and_the_clients_program() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin::demo().await;
    let litequic = Litequic::start(origin, |config| {
        config.access_log = AccessLog { fields: AccessLog::default().fields, ..everything(&folder) }
    })
    .await;
    let client = Client::to(&litequic).await;
    client.fetch(client.request(Method::GET, "/status/204?a=b").header("user-agent", "test/1"), Bytes::new()).await;
    let lines = lines(litequic, &folder.path().join("access.log")).await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["user_agent"], "test/1");
    assert_eq!(line["server"], format!("http://{origin}"));
    assert!(line.get("query").is_none() && line.get("peer").is_none(), "{line}");
}

#[tokio::test]
async fn requests_over_tcp_have_their_lines_too() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(origin::demo().await, &folder).await;
    let mut http1 = Tls::http1(&litequic).await;
    http1
        .say("POST /echo?secret=1 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test/1\r\nContent-Length: 5\r\n\r\nhello")
        .await;
    http1.until("hello").await;
    http1.say("GET / HTTP/1.1\r\nHost a\r\n\r\n").await;
    assert!(http1.rest().await.0.starts_with("HTTP/1.1 400"));
    let mut http2 = Http2::connect(&litequic, &[]).await;
    http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::get(&[])).await;
    while http2.find(&[http2::DATA]).await.unwrap().flags & http2::END_STREAM == 0 {}
    litequic.wait_until_idle().await;
    let lines = lines(litequic, &path).await;
    let said = |line: usize, field: &str| lines[line][field].as_str().unwrap_or_default().to_owned();
    let number = |line: usize, field: &str| lines[line][field].as_u64().unwrap_or_default();
    assert_eq!(lines.len(), 3);
    for (field, expected) in [
        ("protocol", "HTTP/1.1"),
        ("method", "POST"),
        ("host", "localhost"),
        ("path", "/echo"),
        ("query", "secret=1"),
        ("user_agent", "test/1"),
        ("route", "*/"),
        ("end", "complete"),
    ] {
        assert_eq!(said(0, field), expected, "{field}");
    }
    assert_eq!((number(0, "status"), number(0, "bytes_in"), number(0, "bytes_out")), (200, 5, 5));
    assert_eq!((number(1, "status"), said(1, "error").as_str()), (400, "http_request_error"));
    assert_eq!((said(1, "end").as_str(), said(1, "path").as_str()), ("complete", ""), "nothing is known of it");
    assert_eq!((number(2, "status"), said(2, "protocol").as_str()), (200, "HTTP/2"));
    assert_eq!((said(2, "host").as_str(), said(2, "end").as_str()), ("localhost", "complete"));
    assert!(number(2, "bytes_out") > 0 && seconds(&lines[2], "first_byte") <= seconds(&lines[2], "duration"));
}

#[tokio::test]
async fn requests_over_tcp_whose_client_takes_nothing_have_stalled() {
    let folder = tempfile::tempdir().unwrap();
    let litequic = Litequic::demo(|config| {
        config.access_log = everything(&folder);
        config.timeouts.send = Duration::from_millis(300);
    })
    .await;
    // HTTP/1.1: TCP's buffers are full. HTTP/2: the stream's window is, while the connection goes on.
    let mut one = Tls::http1(&litequic).await;
    one.say("GET /bytes/1G HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    litequic.wait_until("given up", |worker| worker.shared.timeout_send.get(), |times| times == 1).await;
    litequic.wait_until_idle().await;
    let mut two = Http2::connect(&litequic, &[0, 4, 0, 0, 0, 10]).await;
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/bytes/1G")];
    two.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &http2::fields(&get)).await;
    litequic.wait_until("given up", |worker| worker.shared.timeout_send.get(), |times| times == 2).await;
    litequic.wait_until_idle().await;
    let resets = [
        litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()),
        litequic.sum(|worker| worker.shared.streams_reset_by_client.get()),
    ];
    assert_eq!(resets, [2, 0]);
    let lines = lines(litequic, &folder.path().join("access.log")).await;
    let said = |line: &Json| format!("{} {} {}", line["protocol"], line["status"], line["end"]);
    assert_eq!(
        lines.iter().map(said).collect::<Vec<_>>(),
        ["\"HTTP/1.1\" 200 \"stalled\"", "\"HTTP/2\" 200 \"stalled\""]
    );
}

#[tokio::test]
async fn failed_reset_and_malformed_requests_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new().await;
    let (litequic, path) = logging(script.address, &folder).await;
    let raw = Raw::to(&litequic).await;
    // The origin closes without an answer.
    let (mut exchange, peer) = raw.asked_at(&script).await;
    drop(peer);
    assert_eq!(exchange.outcome().await.status(), 502);
    // It breaks off within its answer.
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    drop(peer);
    exchange.outcome().await;
    // No rule of HTTP/3 allows a field name in upper case.
    raw.ask(&raw::headers(&[raw::pseudo("GET", "/bad"), vec![("X", "y")]].concat())).await;
    // A path that no origin gets.
    assert_eq!(raw.ask(&raw::request("GET", "/a/../b")).await.status(), 400);
    // The client cancels.
    let (mut exchange, _peer) = raw.asked_at(&script).await;
    exchange.receive.stop(0x10c_u32.into()).unwrap();
    litequic.wait_until_idle().await;
    // Its connection goes.
    let (_exchange, _peer) = raw.asked_at(&script).await;
    raw.quic.connection.close(0x100_u32.into(), b"");
    litequic.wait_until_idle().await;

    let mut said = Vec::new();
    for line in lines(litequic, &path).await {
        let word = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
        said.push(format!("{} {} {} {}", word("path"), line["status"], word("end"), word("error")));
    }
    assert_eq!(
        said,
        [
            "/ 502 complete connection_terminated",
            "/ 200 failed http_response_incomplete",
            "/bad null malformed -",
            "/a/../b 400 complete http_request_error",
            "/ null cancelled -",
            "/ null cancelled -",
        ]
    );
}

#[tokio::test]
async fn a_client_cannot_forge_a_line_or_a_field() {
    let evil = "x\",\"status\":999,\"y\":\"\\ status=999 \u{85}";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = everything(&folder);
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| config.access_log = log).await;
    let raw = Raw::to(&litequic).await;
    let fields = [raw::pseudo("GET", "/%0a%22status=999"), vec![("user-agent", evil), ("referer", evil)]].concat();
    assert_eq!(raw.ask(&raw::headers(&fields)).await.status(), 200);
    // What is refused is logged as it came.
    let fields = [raw::pseudo("GET", "/a\n{\"status\":999}\n"), vec![("user-agent", "a\nb=c")]].concat();
    raw.ask(&raw::headers(&fields)).await;
    litequic.stop().await;
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{text}");
    let first: Json = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&first["status"], first["user_agent"].as_str()), (&200.into(), Some(evil)));
    assert_eq!(first["path"], "/%0a%22status=999");
    let second: Json = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["path"], "/a\n{\"status\":999}\n");
}

#[tokio::test]
async fn a_sample_is_a_part_of_the_requests() {
    const REQUESTS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let log = AccessLog { sample: Fraction::from_share(0.5).unwrap(), ..everything(&folder) };
    let (_origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |config| config.access_log = log).await;
    let client = Client::to(&litequic).await;
    for _ in 0..REQUESTS {
        client.get("/").await;
    }
    let written = lines(litequic, &folder.path().join("access.log")).await.len();
    // None or all of them would be a chance of 2^-199.
    assert!(written > 0 && written < REQUESTS, "{written}");
}

#[tokio::test]
async fn a_valid_trace_context_passes_unchanged_and_names_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new().await;
    let (litequic, path) = logging(script.address, &folder).await;
    let client = Client::to(&litequic).await;
    let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let invalid = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
    let mut peer = None;
    for traceparent in [&valid, &invalid] {
        let request =
            client.request(Method::GET, "/").header("traceparent", traceparent).header("tracestate", "a=1,b=2");
        let mut stream = client.open(request).await;
        stream.finish().await.unwrap();
        let connection = match &mut peer {
            Some(connection) => connection,
            none => none.insert(script.accept().await),
        };
        let head = connection.head().await;
        assert_eq!((head.field("traceparent"), head.field("tracestate")), (Some(&**traceparent), Some("a=1,b=2")));
        connection.say(Always::EMPTY_200).await;
        assert_eq!(client::answer(&mut stream).await.status.as_u16(), 200);
    }
    let lines = lines(litequic, &path).await;
    let traces: Vec<_> = lines.iter().map(|line| line["trace_id"].as_str()).collect();
    assert_eq!(traces, [Some(TRACE), None]);
}

/// Waits until the file at `path` has `lines` lines.
async fn has_lines(path: &Path, lines: usize) {
    until(&format!("{lines} lines in {}", path.display()), async || {
        fs::read_to_string(path).unwrap_or_default().lines().count() >= lines
    })
    .await;
}

/// litequic as a process, its configuration in `folder` with `more` in it.
fn process(folder: &Path, more: &str) -> (Process, SocketAddr, String) {
    let made = make_self_signed(["localhost"]).unwrap();
    write_certificate(folder, &made);
    let udp: SocketAddr = (Ipv4Addr::LOCALHOST, free_udp_port()).into();
    let config = format!(
        "{}listen.udp = \"{udp}\"\nlog.format = \"json\"\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n{more}",
        io_key()
    );
    let file = folder.join("litequic.toml");
    fs::write(&file, config).unwrap();
    (Process::start(["run", "--config", file.to_str().unwrap()]), udp, made.cert_pem)
}

#[tokio::test]
async fn after_a_rotation_sigusr1_has_the_lines_go_to_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Always::new(Always::EMPTY_200).await;
    let more = format!(
        "[origin]\nurl = \"http://{}\"\n[access_log]\npath = \"access.log\"\nfields = [\"path\", \"status\"]",
        origin.address
    );
    let (process, udp, cert_pem) = process(folder.path(), &more);
    process.address();
    let client = Client::connect(udp, &cert_pem, quinn::TransportConfig::default()).await;
    let (path, rotated) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    client.get("/one").await;
    // While litequic runs, and without another request to push it.
    has_lines(&path, 1).await;
    fs::rename(&path, &rotated).unwrap();
    process.signal("USR1");
    until("the new file", async || path.exists()).await;
    client.get("/two").await;
    process.signal("TERM");
    // The client continues meanwhile, and closes after GOAWAY.
    assert_eq!(spawn_blocking(|| process.end()).await.unwrap().code, Some(0));
    assert_eq!(fs::read_to_string(rotated).unwrap(), "{\"path\":\"/one\",\"status\":200}\n");
    assert_eq!(fs::read_to_string(path).unwrap(), "{\"path\":\"/two\",\"status\":200}\n");
}

#[tokio::test]
async fn sigusr1_ends_nothing_where_there_is_no_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Always::new(Always::EMPTY_200).await;
    let (mut process, udp, cert_pem) =
        process(folder.path(), &format!("[origin]\nurl = \"http://{}\"", origin.address));
    process.address();
    process.signal("USR1");
    let quic = Quic::connect(udp, "localhost", &cert_pem, quinn::TransportConfig::default()).await;
    assert_eq!(Client::over(quic, "localhost").await.get("/").await.status.as_u16(), 200);
    assert!(process.is_running());
}

#[test]
fn a_file_that_cannot_be_opened_is_said_before_anything_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let more = "[origin]\nurl = \"http://127.0.0.1:1\"\n[access_log]\npath = \"absent/access.log\"";
    let (process, ..) = process(folder.path(), more);
    let ended = process.end();
    assert_eq!(ended.code, Some(78));
    assert!(
        ended.stderr.contains("access_log.path = \"absent/access.log\": cannot be written: ")
            && ended.stderr.contains("No such file"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_reader_that_takes_nothing_keeps_no_request_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Opened for both, so that litequic's open does not wait; there is no reader.
    let _reader = fs::File::options().read(true).write(true).open(&path).unwrap();
    let origin = Always::new(Always::EMPTY_200).await;
    let (litequic, _) = logging(origin.address, &folder).await;
    let client = Client::to(&litequic).await;
    let agent = "x".repeat(2000);
    // A pipe holds 64 KiB; these lines are some 2 KiB each, and the writer is stuck long before the last.
    for _ in 0..200 {
        let request = client.request(Method::GET, "/").header("user-agent", &agent);
        assert_eq!(client.fetch(request, Bytes::new()).await.status.as_u16(), 200);
    }
    let lines = |worker: &WorkerMetrics| worker.access_log.queued.get();
    litequic.wait_until("lines are handed over", lines, |lines| lines == 200).await;
    // Nor the end, for longer than its grace.
    litequic.stop().await;
}

#[tokio::test]
async fn a_tunnel_has_its_line_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (litequic, path) = logging(tunnel::echo().await, &folder).await;
    for over in HttpVersion::ALL {
        let (mut socket, kept) = websocket(&litequic, over, "/chat").await;
        within("a message", socket.send(Message::text("hello"))).await.unwrap();
        within("its echo", socket.next()).await.unwrap().unwrap();
        within("a close", socket.close(None)).await.unwrap();
        while let Some(Ok(_)) = within("the end", socket.next()).await {}
        drop(socket);
        litequic.wait_until_idle().await;
        drop(kept);
    }
    let lines = lines(litequic, &path).await;
    assert_eq!(lines.len(), 3);
    for (line, (protocol, method, status)) in
        lines.iter().zip([("HTTP/1.1", "GET", 101), ("HTTP/2", "CONNECT", 200), ("HTTP/3", "CONNECT", 200)])
    {
        assert_eq!((line["protocol"].as_str(), line["method"].as_str()), (Some(protocol), Some(method)), "{line}");
        assert_eq!((line["status"].as_u64(), line["end"].as_str()), (Some(status), Some("complete")), "{line}");
        // A text of 5 bytes and a close without a reason, masked and not.
        let bytes = (line["bytes_in"].as_u64(), line["bytes_out"].as_u64());
        assert_eq!(bytes, (Some(6 + 5 + 6), Some(2 + 5 + 2)), "{line}");
    }
}
