//! How far clients may send ahead, and how much of it litequic buffers when origins do not read.

use crate::{
    floods::{EXCESSIVE_LOAD, beside},
    support::{
        prelude::*,
        raw::{Exchange, headers, pseudo, varint},
        stuffed::{self, Stuffed},
    },
};
use futures_util::future;
use litequic_config::Limits;

const MIB: u64 = 1024 * 1024;
const FLOOR: u64 = Limits::MIN_RECEIVE_WINDOW;
/// Bytes in flight at 200 Mbit/s over 100 ms.
const LONG_PATH: u64 = 2_500_000;
/// Nothing was taken for that long: nothing will be.
const STALLED: Duration = Duration::from_millis(500);

/// litequic before an origin that reads nothing behind `/stuck`, whose one connection is in use.
struct Stuck {
    litequic: Litequic,
    _first: (Raw, Exchange, Peer),
}

impl Stuck {
    async fn start(edit: impl FnOnce(&mut Config)) -> Self {
        let stuck = Script::new().await;
        let litequic = Litequic::demo(|config| {
            edit(config);
            let address = format!("http://{}", stuck.address).parse().unwrap();
            config.origins.insert(
                "stuck".into(),
                OriginConfig { max_connections: Some(1), request_buffer: 0, ..OriginConfig::new(address) },
            );
            config.routes.push(RouteConfig { path_prefix: "/stuck".into(), ..RouteConfig::catch_all("stuck") });
        })
        .await;
        let client = Raw::to(&litequic).await;
        let mut asked = client.open(&headers(&pseudo("GET", "/stuck"))).await;
        // Without an end it would be a slow upload, which is ended for those that wait.
        asked.finish();
        let peer = stuck.accept_request().await;
        Self { litequic, _first: (client, asked, peer) }
    }

    async fn clients(&self, count: usize) -> Vec<Raw> {
        let mut clients = Vec::with_capacity(count);
        while clients.len() < count {
            // As many handshakes at once as litequic takes without a Retry.
            let some = (count - clients.len()).min(100);
            clients.extend(future::join_all((0..some).map(|_| Raw::to(&self.litequic))).await);
        }
        clients
    }
}

/// Begins an upload that is not read, and writes until litequic takes no more for a while or closes the connection.
/// Returns how many bytes it took.
async fn fill(client: &Raw) -> (Exchange, u64) {
    // A DATA frame without an end.
    let begin = [headers(&pseudo("POST", "/stuck")), vec![0x00, 0x80, 0xff, 0xff, 0xff]].concat();
    let mut upload = client.open(&begin).await;
    let mut written = 0;
    while let Ok(Ok(more)) = timeout(STALLED, upload.send.write(&[7; 16 * 1024])).await {
        written += more as u64;
    }
    (upload, written)
}

#[tokio::test]
async fn idle_connections_leave_an_upload_a_window_for_a_long_path() {
    let stuck = Stuck::start(|_| {}).await;
    let idle = stuck.clients(300).await;
    let client = Raw::to(&stuck.litequic).await;
    let (upload, written) = within("a full window", fill(&client)).await;
    assert!(written >= LONG_PATH, "{written}");
    assert_eq!(stuck.litequic.sum(|worker| worker.quic.limit_receive_buffer.get()), 0);
    stuck.litequic.wait_until("all of it", |worker| worker.worker.receive_held.get(), |held| held >= LONG_PATH).await;
    drop((upload, client, idle));
    stuck
        .litequic
        .wait_until("everything read or gone", |worker| worker.worker.receive_held.get(), |held| held < 1000)
        .await;
    stuck.litequic.stop().await;
}

#[tokio::test]
async fn uploads_that_nobody_takes_are_held_within_the_workers_budget() {
    const BUDGET: u64 = 8 * MIB;
    // Each has a 32nd of the budget: twice as much as there is.
    const UPLOADS: usize = 64;
    let stuck = Stuck::start(|config| {
        config.limits.worker_receive_buffer = BUDGET;
        (config.limits.stream_receive_buffer, config.limits.connection_receive_buffer) = (1 << 20, 1 << 20);
        // A client whose CONNECTION_CLOSE is lost on a busy machine is gone within what the end is waited for.
        config.timeouts.idle = Duration::from_secs(15);
    })
    .await;
    let clients = stuck.clients(UPLOADS).await;
    let uploads = beside(&stuck.litequic, future::join_all(clients.iter().map(fill))).await;
    let bound = BUDGET + UPLOADS as u64 * FLOOR;
    let metric = |worker: &WorkerMetrics| worker.worker.receive_held.get();
    stuck.litequic.wait_until("what is held", metric, |held| held > BUDGET / 2 && held <= bound).await;
    // Those that held most were closed, as in the metrics, and the others wait.
    let told = |worker: &WorkerMetrics| worker.shared.limit_receive_held.get();
    let is_closed = |client: &&Raw| client.quic.connection.close_reason().is_some();
    // A CONNECTION_CLOSE may still be on its way.
    let all = |told| told == clients.iter().filter(is_closed).count() as u64;
    stuck.litequic.wait_until("as many closed as told", told, all).await;
    let closed: Vec<_> = clients.iter().filter(is_closed).collect();
    assert!(!closed.is_empty() && closed.len() < UPLOADS, "{}", closed.len());
    for client in closed {
        assert_eq!(client.quic.closed().await, EXCESSIVE_LOAD);
    }
    assert!(uploads.iter().all(|(_, written)| *written > FLOOR / 2));
    // As long as so much is held, a new connection has less.
    let before = stuck.litequic.sum(|worker| worker.quic.limit_receive_buffer.get());
    let late = Raw::to(&stuck.litequic).await;
    assert!(stuck.litequic.sum(|worker| worker.quic.limit_receive_buffer.get()) > before);
    drop((uploads, clients, late));
    stuck
        .litequic
        .wait_until("everything given back", |worker| worker.worker.receive_held.get(), |held| held < 1000)
        .await;
    stuck.litequic.stop().await;
}

/// Bytes that cannot be read because those before them were never sent count as what they make litequic keep room for.
#[tokio::test]
async fn streams_whose_beginning_is_withheld_are_held_within_the_workers_budget() {
    const CLIENTS: usize = 40;
    let litequic = Litequic::demo(|config| {
        config.limits.worker_receive_buffer = 4 * MIB;
        (config.limits.stream_receive_buffer, config.limits.connection_receive_buffer) = (1 << 20, 1 << 20);
    })
    .await;
    // STREAM (RFC 9000 §19.8) with an offset and a length: the next request stream's last byte that the window, a 32nd
    // of the budget, lets pass but for some.
    let frame = [&[0x0e, 4][..], &varint(120_000), &[1, 7]].concat();
    let mut clients = future::join_all((0..CLIENTS).map(|_| Stuffed::to(&litequic))).await;
    let floods = clients.iter_mut().map(|client| Box::pin(client.flood(&frame)));
    let (error, ..) = beside(&litequic, future::select_all(floods)).await;
    assert_eq!(stuffed::code(&error), EXCESSIVE_LOAD);
    assert!(litequic.sum(|worker| worker.shared.limit_receive_held.get()) > 0);
    assert_eq!(litequic.sum(|worker| worker.shared.limit_control_frames.get()), 0);
    drop(clients);
    litequic.stop().await;
}

/// What is read at once is not held, however long an upload is, nor what was reset.
#[tokio::test]
async fn what_was_read_or_reset_is_held_no_longer() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Raw::to(&litequic).await;
    let mut upload = client.open(&headers(&pseudo("POST", "/sink"))).await;
    upload.send(&[vec![0x00, 0x80, 0xff, 0xff, 0xff], vec![7; 10_000_000]].concat()).await;
    litequic.wait_until("an upload", |worker| worker.worker.receive_granted.get(), |granted| granted == 3 * MIB).await;
    litequic.wait_until("all read", |worker| worker.worker.receive_held.get(), |held| held == 0).await;
    upload.send.reset(0x10c_u32.into()).unwrap();
    litequic.wait_until("no upload", |worker| worker.worker.receive_granted.get(), |granted| granted == 0).await;
    litequic.wait_until("nothing held", |worker| worker.worker.receive_held.get(), |held| held == 0).await;
    litequic.stop().await;
}
