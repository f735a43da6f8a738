//! Bounds of logs: a reader that is too slow, and an upgrade while a log runs.

use super::*;
use crate::upgrade::Service;

/// Bytes of one download.
const PART: usize = 10_000_000;
/// Downloads until the buffers of both sockets are full, at the latest.
const MOST: usize = 12;

/// The kernel holds some megabytes for a reader, and workers 256 KiB each: what comes then is left out and counted. No
/// download waits for it.
#[tokio::test]
async fn a_reader_that_is_too_slow_loses_events_and_each_is_counted() {
    let litequic = start().await;
    let client = Client::to(&litequic).await;
    client.get("/bytes/1").await;
    let mut reader = TcpStream::connect(litequic.admin.unwrap()).await.unwrap();
    let order = format!("POST /qlog?client={}&seconds=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address(&client));
    reader.write_all(order.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    within("an answer", reader.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    for _ in 0..MOST {
        assert_eq!(client.get(&format!("/bytes/{PART}")).await.body.len(), PART);
    }
    let mut text = Vec::new();
    let all = async {
        let mut chunk = vec![0; 1 << 16];
        while !String::from_utf8_lossy(&text[text.len().saturating_sub(400)..]).contains("litequic:log_ended") {
            let read = reader.read(&mut chunk).await.unwrap();
            assert!(read > 0, "it was cut off");
            text.extend_from_slice(&chunk[..read]);
        }
    };
    // Read as it comes, it has all again.
    let more = async {
        assert_eq!(client.get(&format!("/bytes/{PART}")).await.body.len(), PART);
        close(&client);
    };
    within("the log's end", async { tokio::join!(all, more) }).await;
    // Records stand between the sizes of chunks.
    let text = String::from_utf8(text).unwrap();
    let records =
        text.lines().filter_map(|line| serde_json::from_str::<Json>(line.strip_prefix(RECORD_SEPARATOR)?).ok());
    let (mut omitted, mut last, mut missing) = (0, None::<u64>, 0);
    for event in records {
        match event["name"].as_str() {
            Some("litequic:events_omitted") => omitted += event["data"]["count"].as_u64().unwrap(),
            Some("quic:packet_sent") => {
                let number = event["data"]["header"]["packet_number"].as_u64().unwrap();
                missing += last.map_or(0, |last| number - last - 1);
                last = Some(number);
            }
            _ => {}
        }
    }
    assert!(omitted > 1_000, "{omitted}");
    // s2n-quic skips some numbers on purpose.
    assert!(missing > 500 && missing <= omitted + omitted / 10, "{missing} of {omitted}");
    litequic.stop().await;
}

/// The older process goes on with its log while it drains; the newer one has its own connections.
#[tokio::test]
async fn an_upgrade_ends_no_log() {
    let service = Service::new().await;
    let old = service.start().await;
    let client = service.h3().await;
    let mut stream = client.begin_get("/drip/100/50").await;
    client::header(&mut stream).await;
    let recording = Recording::by(service.admin, "127.0.0.1", &["--seconds", "60"]);
    recording.is_in_force("open connections").await;
    let new = service.start().await;
    let other = service.h3().await;
    assert_eq!(other.get("/status/204").await.status, 204);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, list) = ask(service.admin, "GET /clients").await;
        let list: Json = serde_json::from_str(&list).unwrap();
        assert_eq!(list["connections"], 1, "{list}");
        if list["older_processes"] == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "{list}");
        sleep(LOOK_AGAIN).await;
    }
    let of_new = Recording::by(service.admin, "127.0.0.1", &["--seconds", "60"]);
    of_new.is_in_force("open connections").await;
    assert_eq!(other.get("/bytes/1000").await.body.len(), 1_000);
    close(&other);
    let port = |log: &Log| log.all("quic:tuple_assigned")[0]["tuple_remote"]["port_v4"].clone();
    let log = of_new.log().await;
    assert_eq!((log.reason(), port(&log)), ("connection", address(&other).port().into()));

    // The response goes on for seconds behind the upgrade.
    let body = client::body(&mut stream).await;
    assert!(body.ends_with(b"drop 99\n"));
    close(&client);
    let log = recording.log().await;
    assert_eq!((log.reason(), port(&log)), ("connection", address(&client).port().into()));
    let bytes: u64 = log
        .frames("quic:packet_sent")
        .iter()
        .filter(|frame| frame["frame_type"] == "stream" && frame["stream_id"] == 0)
        .map(|frame| frame["offset"].as_u64().unwrap() + frame["raw"]["payload_length"].as_u64().unwrap())
        .max()
        .unwrap();
    assert!(bytes >= body.len() as u64, "{bytes} of {}", body.len());
    drop((old, new));
}
