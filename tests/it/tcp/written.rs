//! What a client has got: a response counts once the kernel has its first byte, and nothing that was handed over before
//! a failure is lost.

use crate::support::{
    http2::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, get},
    prelude::*,
    proxy::unbuffered,
};
use litequic_config::{AccessField, AccessLog, LogTarget};
use serde_json::Value as Json;
use tokio::net::TcpSocket;

/// Bytes that the kernel holds for a client: with more the connection is blocked sooner or later, whatever the kernel's
/// own limits.
const RECEIVE_BUFFER: u32 = 8 * 1024;
/// Between two looks at a metric.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Looks at a metric that does not change any more.
const STEADY: u32 = 15;
const LARGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";

/// A TCP connection to `address` that takes next to nothing as long as nothing is read.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
    socket.connect(address).await.unwrap()
}

async fn narrow_tls(litequic: &Litequic, protocol: &str) -> Tls {
    let stream = narrow(litequic.tcp[0]).await;
    Tls::over(stream, "localhost", tls::config(&litequic.cert_pem, &[protocol])).await.unwrap()
}

/// Waits until the kernel accepts nothing more for the client.
async fn blocked(litequic: &Litequic) {
    let (mut last, mut steady) = (0, 0);
    while steady < STEADY {
        sleep(LOOK_AGAIN).await;
        let now = litequic.sum(|worker| worker.shared.response_body_bytes.get());
        steady = if now == last && now > 0 { steady + 1 } else { 0 };
        last = now;
    }
}

fn responses(worker: &WorkerMetrics) -> u64 {
    worker.shared.responses_2xx.get()
}

/// A client of HTTP/2 that has filled the kernel's buffer with the response on stream 1, which does not end, and its
/// origin.
async fn full(litequic: &Litequic, script: &Script) -> (Http2, Peer) {
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let mut client = Http2::over(narrow_tls(litequic, "h2").await, &window).await;
    client.say(WINDOW_UPDATE, 0, 0, &0x4000_0000_u32.to_be_bytes()).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
    let mut peer = script.accept_request().await;
    peer.say(LARGE).await;
    let piece = vec![b'x'; 1 << 20];
    // The origin's connection is blocked too, once litequic reads no more.
    while timeout(Duration::from_millis(500), peer.stream.write_all(&piece)).await.is_ok() {}
    blocked(litequic).await;
    (client, peer)
}

#[tokio::test]
async fn a_response_is_counted_by_status_at_its_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (script, litequic) = Script::behind_litequic(|config| {
        config.access_log = AccessLog {
            path: Some(LogTarget::File(path.clone())),
            fields: AccessField::NAMES.iter().map(|(_, field)| *field).collect(),
            ..AccessLog::default()
        };
        unbuffered(config);
    })
    .await;
    let (mut client, _large) = full(&litequic, &script).await;
    assert_eq!(litequic.sum(responses), 1);
    client.say(HEADERS, END_HEADERS | END_STREAM, 3, &get(&[("x-n", "second")])).await;
    let mut peer = script.accept_request().await;
    peer.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello").await;
    // litequic closes the connection once it has all of the response.
    assert_eq!(peer.rest().await, "");
    assert_eq!(litequic.sum(responses), 1, "the second one is handed over, and not written");
    assert_eq!(litequic.sum(|worker| worker.shared.requests_open.get()), 2);
    drop(client);
    litequic.wait_until_idle().await;
    assert_eq!(litequic.sum(responses), 1);
    let lines = lines(litequic, &path).await;
    let ends: Vec<_> = lines.iter().map(|line| (line.get("status").cloned(), line["end"].as_str().unwrap())).collect();
    assert_eq!(lines.len(), 2);
    assert!(ends.contains(&(Some(200.into()), "cancelled")) && ends.contains(&(None, "cancelled")), "{ends:?}");
    let unsent = lines.iter().find(|line| line.get("status").is_none()).unwrap();
    assert_eq!((&unsent["bytes_out"], unsent.get("first_byte")), (&0.into(), None), "{unsent}");
}

async fn lines(litequic: Litequic, path: &Path) -> Vec<Json> {
    litequic.stop().await;
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_failure_waits_for_a_header_that_is_queued_alone_over_http2() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let (mut client, mut large) = full(&litequic, &script).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 3, &get(&[])).await;
    let mut peer = script.accept_request().await;
    peer.say("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n").await;
    let open = |worker: &WorkerMetrics| worker.proxy.origin_connections_open.get();
    litequic.wait_until("both connections", open, |open| open == 2).await;
    blocked(&litequic).await;
    drop(peer);
    litequic.wait_until("the failure", open, |open| open == 1).await;
    assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()), 0, "the header is not written yet");
    // What stands before it in the kernel, and in h2, is read now.
    let mut on_three = Vec::new();
    let drain = tokio::spawn(async move {
        let piece = vec![b'x'; 1 << 16];
        while large.stream.write_all(&piece).await.is_ok() {}
    });
    while on_three.len() < 2 {
        let frame = client.find(&[HEADERS, RST_STREAM]).await.expect("a frame");
        if frame.stream == 3 {
            on_three.push(frame);
        }
    }
    drain.abort();
    assert_eq!((on_three[0].kind, on_three[1].kind), (HEADERS, RST_STREAM));
    assert_eq!((http2::status(&on_three[0]), on_three[1].code()), (201, 2), "INTERNAL_ERROR");
    drop(client);
    litequic.stop().await;
}

/// The kernel answers what is not read with a reset of the connection, which discards what it has not sent yet.
#[tokio::test]
async fn an_unread_http1_upload_does_not_truncate_the_response() {
    // More than the client's window has room for, less than the kernel holds for a client that reads nothing.
    const PART: usize = 30_000;
    let (script, litequic) = Script::behind_litequic(|config| config.limits.max_lingering_bytes = 100_000_000).await;
    let mut client = narrow_tls(&litequic, "http/1.1").await;
    client.say("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000000\r\n\r\n").await;
    let (stream, _) = client.into_parts();
    let (mut read, mut write) = tokio::io::split(stream);
    let upload = tokio::spawn(async move {
        let piece = vec![0; 100_000];
        while write.write_all(&piece).await.is_ok() {}
    });
    // Once this has a connection to its origin, the upload has begun.
    let mut peer = script.accept_request().await;
    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(PART))).await;
    // The end of the origin's bytes alone: its socket stays open, with the upload unread.
    peer.stream.shutdown().await.unwrap();
    let failed = |worker: &WorkerMetrics| worker.shared.streams_reset_by_proxy.get();
    litequic.wait_until("a failure", failed, |failures| failures == 1).await;
    let mut seen = Vec::new();
    let end = loop {
        match timeout(Duration::from_secs(20), read.read_buf(&mut seen)).await.expect("the connection's end") {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error.kind()),
        }
    };
    let body = seen.windows(4).position(|four| four == b"\r\n\r\n").expect("a header") + 4;
    assert_eq!(seen.len() - body, PART, "{end:?}");
    assert_eq!(end, Some(std::io::ErrorKind::UnexpectedEof), "the end is not an orderly one, nor a reset");
    upload.abort();
    drop((read, peer));
    litequic.wait_until("closed", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 0).await;
    litequic.stop().await;
}

/// The rest of a response that h2 has, and for which the client gives no room in its window.
#[tokio::test]
async fn a_response_whose_rest_is_not_taken_leaves_its_connection_idle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let litequic = Litequic::demo(|config| {
        config.access_log = AccessLog { path: Some(LogTarget::File(path.clone())), ..AccessLog::default() };
        config.timeouts.idle = Duration::from_millis(300);
    })
    .await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/bytes/100000")];
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &http2::fields(&get)).await;
    client.find(&[GOAWAY]).await.expect("the end of an idle connection");
    while client.next().await.is_some() {}
    litequic.wait_until_idle().await;
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_idle.get()), 1);
    let lines = lines(litequic, &path).await;
    assert_eq!((&lines[0]["status"], &lines[0]["end"]), (&200.into(), &"cancelled".into()), "{lines:?}");
    let sent = lines[0]["bytes_out"].as_u64().unwrap();
    assert!((65_000..65_536).contains(&sent), "the client's window: {sent}");
}
