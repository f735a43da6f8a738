//! What litequic does as its memory comes near the limit. The real process, whose limit is changed by a reload so that what
//! it uses is a given share of it.

use crate::{
    reload::Setup,
    support::{
        client::{Client, Quic},
        origin,
        process::{Process, free_tcp_port},
        within,
    },
};
use http::Method;
use quinn::ConnectionError;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    time::{sleep, timeout},
};

const H3_NO_ERROR: u64 = 0x100;
const H3_EXCESSIVE_LOAD: u64 = 0x107;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// It runs for longer than any of the tests.
const LONG: &str = "/drip/1000/60";
const STEP: &str = "litequic_memory_step";

fn reached(limit: &str) -> String {
    format!("litequic_limit_reached_total{{limit=\"{limit}\"}}")
}

/// litequic, whose limits change.
struct Running {
    setup: Setup,
    process: Process,
    origin: SocketAddr,
    tcp: SocketAddr,
}

impl Running {
    async fn start() -> Self {
        let (setup, origin) = (Setup::new(), origin::demo().await);
        let tcp = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let running = Self { process: setup.start_with(origin, &Self::keys(tcp, "none")).await, setup, origin, tcp };
        // What the first connection makes it take is no surprise later.
        drop(running.setup.client().await.get("/bytes/1000000").await);
        running
    }

    fn keys(tcp: SocketAddr, limit: &str) -> String {
        format!("listen.tcp = \"{tcp}\"\nlimits.by_source = true\nlimits.memory = \"{limit}\"")
    }

    /// Has what the process uses be about so many per mille of its limit, and waits for the `step`.
    async fn used(&self, per_mille: u64, step: u64) {
        let pages = fs::read_to_string(format!("/proc/{}/statm", self.process.id())).unwrap();
        let resident = pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096;
        self.limit(&format!("{} B", resident * 1000 / per_mille), step).await;
    }

    async fn limit(&self, limit: &str, step: u64) {
        let (code, answer) = self.setup.change(self.origin, &Self::keys(self.tcp, limit)).await;
        assert_eq!(code, 200, "{answer}");
        self.is_at(STEP, |now| now == step).await;
    }

    async fn is_at(&self, metric: &str, is: impl Fn(u64) -> bool) {
        within(metric, async {
            while !is(self.setup.metric(metric).await) {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn client_from(&self, local: Ipv4Addr) -> Result<Client, ConnectionError> {
        Ok(Client::over(self.setup.quic_from(local).await?, "localhost").await)
    }
}

/// A client whose request goes on, and what is to be kept for it to.
async fn busy(client: Client) -> (Client, impl Sized) {
    let mut stream = client.open(client.request(Method::GET, LONG)).await;
    stream.finish().await.unwrap();
    within("a response", stream.recv_response()).await.unwrap();
    (client, stream)
}

fn is_refused(attempt: Result<Quic, ConnectionError>) {
    assert!(matches!(attempt, Err(ConnectionError::ConnectionClosed(_))), "{:?}", attempt.err());
}

/// Whether a TCP connection stays open.
async fn is_kept(address: SocketAddr) -> bool {
    let mut stream = within("a connection", TcpStream::connect(address)).await.unwrap();
    timeout(Duration::from_millis(300), stream.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn near_the_limit_idle_connections_end_and_a_client_gets_no_second_one() {
    let running = Running::start().await;
    let (idle, busy) = (running.client_from(OTHER).await.unwrap(), busy(running.setup.client().await).await);
    idle.get("/status/204").await;
    let held = TcpStream::connect(running.tcp).await.unwrap();
    running.used(875, 1).await;
    assert_eq!(within("the end of an idle connection", idle.quic.closed()).await, H3_NO_ERROR);
    is_refused(running.setup.quic(&running.setup.made).await);
    assert!(!is_kept(running.tcp).await, "this client has a TCP connection");
    // A connection that closes counts until QUIC has forgotten it.
    running.is_at("litequic_connections_held", |held| held == 1).await;
    let newcomer = running.client_from(OTHER).await.expect("a client that has none");
    assert_eq!(newcomer.get("/status/204").await.status, 204);
    assert!(busy.0.quic.connection.close_reason().is_none(), "{:?}", busy.0.quic.connection.close_reason());
    for limit in ["memory_idle", "memory_connections"] {
        assert!(running.setup.metric(&reached(limit)).await > 0, "{limit}");
    }
    assert_eq!(running.setup.metric(&reached("memory_held")).await, 0);
    running.process.await_stderr("memory is short");
    running.limit("none", 0).await;
    assert_eq!(running.setup.client().await.get("/status/204").await.status, 204);
    running.process.await_stderr("memory is less short");
    drop(held);
}

#[tokio::test]
async fn nearer_to_it_no_client_gets_a_connection() {
    let running = Running::start().await;
    let busy = busy(running.setup.client().await).await;
    running.used(925, 2).await;
    is_refused(running.setup.quic_from(OTHER).await);
    assert!(!is_kept(running.tcp).await);
    assert!(busy.0.quic.connection.close_reason().is_none());
    assert!(running.setup.metric("litequic_memory_steps_total").await > 0);
    running.limit("none", 0).await;
    assert!(is_kept(running.tcp).await);
    assert!(running.setup.quic_from(OTHER).await.is_ok());
}

#[tokio::test]
async fn at_it_the_connection_that_holds_the_most_ends_and_others_go_on() {
    let running = Running::start().await;
    let light = busy(running.setup.client().await).await;
    let heavy = running.client_from(OTHER).await.unwrap();
    let mut unread = heavy.open(heavy.request(Method::GET, "/bytes/50000000")).await;
    unread.finish().await.unwrap();
    running.is_at("litequic_send_buffered_bytes", |held| held > 100_000).await;
    running.used(980, 3).await;
    assert_eq!(within("the end of the heaviest", heavy.quic.closed()).await, H3_EXCESSIVE_LOAD);
    assert!(running.setup.metric(&reached("memory_held")).await > 0);
    assert!(light.0.quic.connection.close_reason().is_none(), "{:?}", light.0.quic.connection.close_reason());
    running.process.await_stderr("the connection that holds the most ends");
}
