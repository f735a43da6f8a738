//! Send buffers follow the path: a long path is filled, and a stream that waits to send more is woken by
//! acknowledgements.

use crate::support::prelude::*;
use bytes::Buf;
use quinn::VarInt;
use std::time::Instant;

const MIB: u64 = 1024 * 1024;
/// What a worker's heartbeat and all else that is no acknowledgement wake it in a second at most. Looking every 5 to 25
/// ms whether there is an acknowledgement would do so a hundred times.
const OTHER_WAKES: f64 = 10.0;

/// A client behind `link` that lets litequic send as much as it likes.
async fn connect(litequic: &Litequic, link: &Link) -> Client {
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(64 << 20)).receive_window(VarInt::from_u32(64 << 20));
    Client::connect(link.address, &litequic.cert_pem, transport).await
}

#[tokio::test]
async fn a_stream_without_send_credit_is_woken_by_acks_alone() {
    /// A stream has half of it: a dozen round trips.
    const BUFFER: u32 = 16 * 1024;
    /// So much that the kernel has all of it before the first byte is read, and the origin causes no more wakes.
    const SIZE: usize = 60_000;
    let (script, litequic) = Script::behind_litequic(|config| {
        config.limits.stream_send_buffer = BUFFER;
        config.limits.connection_send_buffer = BUFFER;
        config.limits.worker_send_buffer = BUFFER.into();
    })
    .await;
    // Acknowledgements come five times a second, and release the budget.
    let up = Way { bunch: Some(Duration::from_millis(200)), ..Way::default() };
    let link = Link::between(litequic.address, Faults { up, down: Way::default(), seed: 1 });
    let client = connect(&litequic, &link).await;
    let mut stream = client.begin_get("/").await;
    let mut peer = script.accept_request().await;
    let other = |worker: &WorkerMetrics| worker.wake.metrics.wakes_other.get();
    let (began, before) = (Instant::now(), litequic.sum(other));
    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n{}", "x".repeat(SIZE))).await;
    client::header(&mut stream).await;
    assert_eq!(client::body(&mut stream).await.len(), SIZE);
    let (woken, seconds) = (litequic.sum(other) - before, began.elapsed().as_secs_f64());
    assert!(woken as f64 <= OTHER_WAKES * (1.0 + seconds), "{woken} times in {seconds} s");
    assert!(litequic.sum(|worker| worker.shared.limit_send_buffer.get()) > 0, "it waited");
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_buffered_response_frees_the_origin_connection_before_its_acks() {
    const HALF: usize = 50_000;
    let (script, litequic) = Script::behind_litequic(|config| {
        let origin = config.origins.get_mut(Config::ORIGIN_NAME).unwrap();
        origin.max_connections = Some(1);
    })
    .await;
    let link = Link::between(litequic.address, Faults::default());
    let deaf = connect(&litequic, &link).await;
    link.deafen(true);
    let mut stream = deaf.begin_get("/").await;
    let mut peer = script.accept_request().await;
    // The second half comes when the client's window is full of the first.
    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 2 * HALF, "x".repeat(HALF))).await;
    let sent = |worker: &WorkerMetrics| worker.shared.response_body_bytes.get();
    litequic.wait_until("its first half", sent, |bytes| bytes >= HALF as u64).await;
    peer.say("x".repeat(HALF)).await;
    let other = Client::to(&litequic).await;
    let answered = async {
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    };
    let (answer, ()) = tokio::join!(other.get("/"), within("the other request", answered));
    assert_eq!(answer.body, b"ok");
    link.deafen(false);
    client::header(&mut stream).await;
    assert_eq!(client::body(&mut stream).await.len(), 2 * HALF);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_download_over_a_long_path_keeps_a_mebibyte_in_flight() {
    const SIZE: usize = 20_000_000;
    /// A machine that others keep busy delays datagrams, which slow start takes for a full path.
    const ATTEMPTS: usize = 10;
    let litequic = Litequic::demo(|_| {}).await;
    let delay = Duration::from_millis(100);
    let down = Way { delay, rate: Some(10_000_000), queue: 8192, ..Way::default() };
    let up = Way { delay, ..Way::default() };
    let mut most = 0;
    for _ in 0..ATTEMPTS {
        let link = Link::between(litequic.address, Faults { up: up.clone(), down: down.clone(), seed: 1 });
        let client = connect(&litequic, &link).await;
        let mut stream = client.begin_get("/bytes/20000000").await;
        client::header(&mut stream).await;
        let (mut read, mut held) = (0, None);
        while let Some(mut chunk) = within("the body", stream.recv_data()).await.unwrap() {
            while chunk.has_remaining() {
                assert_eq!(usize::from(chunk.get_u8()), read % 251);
                read += 1;
            }
            if read > SIZE / 2 && held.is_none() {
                // What is in flight stays so, and the gauge, which is set twice a second, shows it.
                link.cut(true);
                held = Some(settled(&litequic).await);
                link.cut(false);
            }
        }
        assert_eq!(read, SIZE);
        litequic.wait_until_idle().await;
        most = most.max(held.unwrap());
        if most > MIB {
            break;
        }
    }
    assert!(most > MIB, "{most}");
    assert!(most <= 16 * MIB, "{most}");
    litequic.stop().await;
}

/// What streams hold once that has not changed for longer than the gauge takes.
async fn settled(litequic: &Litequic) -> u64 {
    let held = || litequic.sum(|worker| worker.worker.send_buffered.get());
    let (mut last, mut since) = (held(), Instant::now());
    while since.elapsed() < Duration::from_millis(1200) {
        sleep(Duration::from_millis(50)).await;
        if held() != last {
            (last, since) = (held(), Instant::now());
        }
    }
    last
}
