//! What wakes a worker is counted by its cause, over each I/O.

use crate::{io::every_io, support::prelude::*};

/// Enough wakes of a cause that they are not chance.
const SEVERAL: u64 = 5;

/// A litequic over each I/O, in turn.
async fn over_every_io(origin: SocketAddr, test: impl AsyncFn(&Litequic)) {
    for io in every_io() {
        let litequic = Litequic::start(origin, |config| config.litequic.io = io).await;
        test(&litequic).await;
        let metrics = Arc::clone(&litequic.metrics);
        litequic.stop().await;
        // Each wait but the last, which the stop ended, was followed by another.
        let waits = metrics.sum_over_workers(|worker| worker.wake.metrics.syscalls_epoll_wait.get());
        assert_eq!(metrics.sum_over_workers(all) + 1, waits, "{io:?}: each wait has one cause");
    }
}

fn all(worker: &WorkerMetrics) -> u64 {
    worker.wake.metrics.wakes_timer.get()
        + worker.wake.metrics.wakes_datagrams.get()
        + worker.wake.metrics.wakes_origin.get()
        + worker.wake.metrics.wakes_other.get()
}

#[tokio::test]
async fn a_download_wakes_its_worker_by_acknowledgements() {
    over_every_io(origin::demo().await, async |litequic| {
        let delay = Duration::from_millis(5);
        let down = Way { delay, rate: Some(4_000_000), ..Way::default() };
        let link = Link::between(litequic.address, Faults { down, up: Way { delay, ..Way::default() }, seed: 1 });
        let transport = quinn::TransportConfig::default();
        let client = Client::connect(link.address, &litequic.cert_pem, transport).await;
        let before = litequic.sum(|worker| worker.wake.metrics.wakes_datagrams.get());
        assert_eq!(client.get("/bytes/1M").await.body.len(), 1_000_000);
        let woken = |worker: &WorkerMetrics| worker.wake.metrics.wakes_datagrams.get();
        litequic.wait_until("wakes by datagrams", woken, |now| now >= before + 4 * SEVERAL).await;
    })
    .await;
}

#[tokio::test]
async fn a_vanished_client_wakes_its_worker_for_probes_alone() {
    let script = Script::new().await;
    over_every_io(script.address, async |litequic| {
        let client = Raw::to(litequic).await;
        let (_exchange, mut peer) = client.asked_at(&script).await;
        client.quic.vanish();
        let before = litequic.sum(|worker| worker.wake.metrics.wakes_timer.get());
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        let woken = |worker: &WorkerMetrics| worker.wake.metrics.wakes_timer.get();
        litequic.wait_until("wakes by a timer", woken, |now| now >= before + 3).await;
    })
    .await;
}

#[tokio::test]
async fn an_origin_that_dribbles_and_a_tcp_client_wake_the_worker_themselves() {
    let script = Script::new().await;
    over_every_io(script.address, async |litequic| {
        let woken = |worker: &WorkerMetrics| worker.wake.metrics.wakes_origin.get();
        let client = Raw::to(litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await;
        exchange.header().await;
        let before = litequic.sum(woken);
        for _ in 0..1000 {
            if litequic.sum(woken) >= before + SEVERAL {
                break;
            }
            let body = litequic.sum(|worker| worker.shared.response_body_bytes.get());
            peer.say("a").await;
            litequic.wait_until("a byte", |worker| worker.shared.response_body_bytes.get(), |now| now > body).await;
        }
        litequic.wait_until("wakes by an origin", woken, |now| now >= before + SEVERAL).await;

        let before = litequic.sum(woken);
        // One that comes while the worker is awake causes no wake.
        for _ in 0..1000 {
            if litequic.sum(woken) >= before + SEVERAL {
                break;
            }
            within("a connection", TcpStream::connect(litequic.tcp[0])).await.unwrap();
            sleep(Duration::from_millis(2)).await;
        }
        litequic.wait_until("wakes by a TCP client", woken, |now| now >= before + SEVERAL).await;
    })
    .await;
}
