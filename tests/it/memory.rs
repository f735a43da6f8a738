//! What litequic does as its memory comes near the limit.

use crate::{reload::Setup, support::prelude::*};
use litequic_resources::memory::{MemoryGauge, MemoryReading, MemoryStep};
use quinn::ConnectionError;

const H3_NO_ERROR: u64 = 0x100;
const H3_EXCESSIVE_LOAD: u64 = 0x107;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// It runs for longer than any of the tests.
const LONG: &str = "/drip/1000/60";
/// Bytes: of no matter here, buffers stay as they are.
const LIMIT: MemoryReading = MemoryReading { used: 0, limit: 1 << 30 };

/// A client whose request goes on, and what is to be kept for it to.
async fn busy(client: Client) -> (Client, impl Sized) {
    unread(client, LONG).await
}

/// A client that reads of the answer nothing but its header.
async fn unread(client: Client, path: &str) -> (Client, impl Sized) {
    let mut stream = client.begin_get(path).await;
    within("a response", stream.recv_response()).await.unwrap();
    (client, stream)
}

fn is_refused(attempt: Result<Quic, ConnectionError>) {
    assert!(matches!(attempt, Err(ConnectionError::ConnectionClosed(_))), "{:?}", attempt.err());
}

fn goes_on(client: &Client) {
    let reason = client.quic.connection.close_reason();
    assert!(reason.is_none(), "{reason:?}");
}

/// Whether a TCP connection stays open.
async fn is_kept(address: SocketAddr) -> bool {
    let mut stream = within("a connection", TcpStream::connect(address)).await.unwrap();
    timeout(Duration::from_millis(300), stream.read(&mut [0])).await.is_err()
}

/// litequic, with memory as short as in `gauge`.
async fn start(gauge: &MemoryGauge) -> Litequic {
    let origin = origin::demo().await;
    Litequic::with_memory(origin, gauge, |config| {
        config.listen.tcp = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        config.sources.exempt.clear();
    })
    .await
}

async fn client_from(local: Ipv4Addr, litequic: &Litequic) -> Client {
    Client::over(Quic::at(local, litequic).await.unwrap(), "localhost").await
}

#[tokio::test]
async fn near_the_memory_limit_idle_connections_end() {
    let gauge = MemoryGauge::default();
    let litequic = start(&gauge).await;
    let idle = client_from(OTHER, &litequic).await;
    let (busy, too) = (busy(Client::to(&litequic).await).await, busy(Client::to(&litequic).await).await);
    idle.get("/status/204").await;
    let connect = || TcpStream::connect(litequic.tcp[0]);
    let held = (connect().await.unwrap(), connect().await.unwrap());
    litequic.wait_until("TCP connections", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 2).await;
    gauge.publish_pressure(MemoryStep::Refuse, LIMIT);
    assert_eq!(within("the end of an idle connection", idle.quic.closed()).await, H3_NO_ERROR);
    is_refused(Quic::at(Ipv4Addr::LOCALHOST, &litequic).await);
    assert!(!is_kept(litequic.tcp[0]).await, "this client has a TCP connection");
    // The old one, which closes, is not in the way.
    let newcomer = client_from(OTHER, &litequic).await;
    assert_eq!(newcomer.get("/status/204").await.status, 204, "this client had one connection");
    goes_on(&busy.0);
    goes_on(&too.0);
    assert!(litequic.sum(|worker| worker.worker.limit_memory_idle.get()) > 0);
    assert_eq!(
        litequic.sum(|worker| worker.quic.limit_memory_connections.get() + worker.tcp.limit_memory_connections.get()),
        2
    );
    assert_eq!(litequic.sum(|worker| worker.worker.limit_memory_held.get()), 0);
    gauge.publish_pressure(MemoryStep::Normal, LIMIT);
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    drop(held);
    litequic.stop().await;
}

/// Far from the limit: clients that read nothing fill no more of it than a quarter.
#[tokio::test]
async fn unread_responses_hold_at_most_a_quarter_of_the_memory_limit() {
    const SMALL: u64 = 16 << 20;
    let gauge = MemoryGauge::default();
    let litequic = start(&gauge).await;
    gauge.publish_pressure(MemoryStep::Normal, MemoryReading { used: 0, limit: SMALL });
    let held = |litequic: &Litequic| litequic.sum(|worker| worker.worker.send_buffered.get());
    let mut readers = Vec::new();
    for _ in 0..24 {
        readers.push(unread(Client::to(&litequic).await, "/bytes/50000000").await);
    }
    litequic.wait_until("a stream waits", |worker| worker.shared.limit_send_buffer.get(), |waits| waits > 0).await;
    // A buffer follows the path's window, which is small where a busy machine loses packets: then it takes more of
    // them.
    while held(&litequic) <= SMALL / 8 {
        assert!(readers.len() < 96, "held: {}", held(&litequic));
        readers.push(unread(Client::to(&litequic).await, "/bytes/50000000").await);
        sleep(Duration::from_millis(200)).await;
    }
    // The gauge is set twice a second.
    for _ in 0..15 {
        assert!(held(&litequic) <= SMALL / 4, "{}", held(&litequic));
        sleep(Duration::from_millis(100)).await;
    }
    let newcomer = client_from(OTHER, &litequic).await;
    assert_eq!(newcomer.get("/status/204").await.status, 204);
    drop(readers);
    litequic.stop().await;
}

#[tokio::test]
async fn nearer_to_it_a_client_without_a_connection_gets_one_still() {
    let gauge = MemoryGauge::default();
    let litequic = start(&gauge).await;
    let busy = (busy(Client::to(&litequic).await).await, busy(Client::to(&litequic).await).await);
    gauge.publish_pressure(MemoryStep::Shrink, LIMIT);
    is_refused(Quic::at(Ipv4Addr::LOCALHOST, &litequic).await);
    assert_eq!(client_from(OTHER, &litequic).await.get("/status/204").await.status, 204);
    assert!(is_kept(litequic.tcp[0]).await, "over TCP this client has no connection");
    goes_on(&busy.0.0);
    litequic.stop().await;
}

#[tokio::test]
async fn at_it_no_client_gets_a_connection() {
    let gauge = MemoryGauge::default();
    let litequic = start(&gauge).await;
    gauge.publish_pressure(MemoryStep::Close, LIMIT);
    is_refused(Quic::at(OTHER, &litequic).await);
    assert!(!is_kept(litequic.tcp[0]).await);
    gauge.publish_pressure(MemoryStep::Normal, LIMIT);
    assert!(is_kept(litequic.tcp[0]).await);
    assert!(Quic::at(OTHER, &litequic).await.is_ok());
    litequic.stop().await;
}

#[tokio::test]
async fn at_the_memory_limit_the_largest_connection_ends() {
    let gauge = MemoryGauge::default();
    let litequic = start(&gauge).await;
    let light = busy(Client::to(&litequic).await).await;
    let heavy = unread(client_from(OTHER, &litequic).await, "/bytes/50000000").await;
    litequic.wait_until("held", |worker| worker.worker.send_buffered.get(), |held| held > 100_000).await;
    gauge.publish_pressure(MemoryStep::Close, LIMIT);
    assert_eq!(within("the end of the heaviest", heavy.0.quic.closed()).await, H3_EXCESSIVE_LOAD);
    gauge.publish_pressure(MemoryStep::Normal, LIMIT);
    let ended = litequic.sum(|worker| worker.worker.limit_memory_held.get());
    assert!(ended > 0);
    // On a slow machine it is the next one's turn by now.
    if ended == 1 {
        goes_on(&light.0);
    }
    litequic.stop().await;
}

/// The real process, with less than it takes when no client is connected.
#[tokio::test]
async fn the_process_compares_what_it_uses_with_the_limit() {
    const TOO_LITTLE: &str = "limits.memory = \"4 MiB\"";
    let (setup, origin) = (Setup::new(), origin::demo().await);
    let tcp = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
    let listen = format!("listen.tcp = \"{tcp}\"");
    let process = setup.start_with(origin, &format!("{listen}\nlimits.memory = \"none\"")).await;
    let is_at = async |step: u64| {
        until("a step", async || setup.metric("litequic_memory_step").await == step).await;
    };
    is_at(0).await;
    let heavy = unread(setup.client().await, "/bytes/50000000").await;
    assert_eq!(setup.change(origin, &format!("{listen}\n{TOO_LITTLE}")).await.0, 200);
    assert_eq!(within("the end of the heaviest", heavy.0.quic.closed()).await, H3_EXCESSIVE_LOAD);
    assert_eq!(setup.metric("litequic_memory_step").await, 3);
    assert_eq!(setup.metric("litequic_memory_limit_bytes").await, 4 << 20);
    assert!(setup.metric("litequic_memory_used_bytes").await > 4 << 20);
    assert!(setup.metric("litequic_memory_steps_total").await > 0);
    is_refused(setup.quic_from(OTHER).await);
    assert!(!is_kept(tcp).await);
    process.await_stderr("memory is short");
    assert_eq!(setup.change(origin, &format!("{listen}\nlimits.memory = \"none\"")).await.0, 200);
    is_at(0).await;
    assert_eq!(setup.client().await.get("/status/204").await.status, 204);
    process.await_stderr("memory pressure has decreased");
}
