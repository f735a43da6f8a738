//! A process that has nothing to do sleeps: its threads wait for events, and no timer of litequic wakes them. One that
//! is busy is not taken for one that hangs, and one that hangs is found.

use crate::support::{client::tls_config, prelude::*};
use litequic::app::{self, RunningProcess, StartOptions};
use litequic_admin::WORKER_DEADLINE;
use litequic_base::lifecycle::ProcessPhase;
use litequic_exchange::{Abort, Exchange, Handler, Response};
use litequic_proxy::Proxy;
use quinn::{ClientConfig, TransportConfig, crypto::rustls::QuicClientConfig};
use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, channel},
    },
    time::Instant,
};
use tokio::task::yield_now;

/// How long wakes are counted.
const WINDOW: Duration = Duration::from_secs(5);

/// Context switches of each thread of the process `id` because it waited, by the thread's number, with its name.
fn waits(id: u32) -> BTreeMap<String, (String, u64)> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let count = |thread: std::io::Result<fs::DirEntry>| {
        let thread = thread.ok()?;
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        let status = read("status")?;
        let waits =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())?;
        Some((thread.file_name().to_string_lossy().into_owned(), (read("comm")?.trim().to_owned(), waits)))
    };
    threads.filter_map(count).collect()
}

/// How often each thread woke between `before` and `after`, by its name; those that did not are left out.
fn woken(before: &BTreeMap<String, (String, u64)>, after: BTreeMap<String, (String, u64)>) -> Vec<(String, u64)> {
    let since = |(thread, (name, waits)): (String, (String, u64))| {
        let woken = waits - before.get(&thread).map_or(0, |(_, waits)| *waits);
        (woken > 0).then_some((name, woken))
    };
    after.into_iter().filter_map(since).collect()
}

/// A process with two workers that serves `connections` idle connections wakes once a second at most.
async fn sleeps(connections: usize) {
    let folder = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost"]).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
    let path = |name: &str| folder.path().join(name);
    fs::write(path("tls.crt"), &made.cert_pem).unwrap();
    fs::write(path("tls.key"), &made.key_pem).unwrap();
    let text = format!(
        "{}log.format = \"json\"\nlisten.udp = \"{address}\"\nlisten.tcp = \"{address}\"\nlisten.workers = 2\n\
         origin.url = \"http://127.0.0.1:9\"\ntimeouts.idle = \"10m\"\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
        io_key()
    );
    fs::write(path("litequic.toml"), text).unwrap();
    let process = Process::spawn(command(["run", "--config", &path("litequic.toml").display().to_string()]));
    process.address();

    let config = || {
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(None).mtu_discovery_config(None);
        let tls = QuicClientConfig::try_from(tls_config(&made.cert_pem)).unwrap();
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        config
    };
    let mut open = Vec::new();
    if connections > 0 {
        let first = Quic::with_config(address, "localhost", config()).await.unwrap();
        for _ in 1..connections {
            let connecting = first.endpoint.connect_with(config(), address, "localhost").unwrap();
            open.push(within("a handshake", connecting).await.unwrap());
        }
        open.push(first.connection.clone());
    }
    let deadline = Instant::now() + 2 * DEADLINE;
    loop {
        let (before, began) = (waits(process.id()), Instant::now());
        sleep(WINDOW).await;
        let (woken, seconds) = (woken(&before, waits(process.id())), began.elapsed().as_secs());
        if woken.iter().map(|(_, wakes)| wakes).sum::<u64>() <= seconds {
            break;
        }
        assert!(Instant::now() < deadline, "wakes in {seconds} s with {connections} connections: {woken:?}");
    }
    let closed = open.iter().filter(|connection| connection.close_reason().is_some()).count();
    assert_eq!(closed, 0, "connections that ended meanwhile");
}

#[tokio::test]
async fn an_idle_process_wakes_once_a_second_at_most() {
    sleeps(0).await;
}

#[tokio::test]
async fn a_thousand_idle_connections_wake_a_process_once_a_second() {
    sleeps(1000).await;
}

/// Serves as the proxy does, but for two paths: `/hang` does not return to the worker's loop before `released`, `/busy`
/// keeps the loop turning without a pause until `is_over`.
#[derive(Clone)]
struct Control {
    released: Arc<Mutex<Receiver<()>>>,
    is_over: Arc<AtomicBool>,
}

struct Controlled(Proxy, Control);

impl Handler for Controlled {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let Self(proxy, control) = self;
        match exchange.request.head.path_without_query() {
            "/hang" => _ = control.released.lock().unwrap().recv_timeout(DEADLINE),
            "/busy" => {
                while !control.is_over.load(Relaxed) {
                    yield_now().await;
                }
            }
            _ => {}
        }
        proxy.handle(exchange).await
    }
}

/// A litequic with `control`, and the certificate that its clients trust.
async fn controlled(control: Control) -> (RunningProcess, String) {
    let mut config = config_before(origin::demo().await);
    config.listen.workers = Some(NonZeroU16::MIN);
    config.admin.probes = Some((Ipv4Addr::LOCALHOST, 0).into());
    let made = make_self_signed(["localhost"]).unwrap();
    let store = CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
    let wrap = move |proxy| Controlled(proxy, control.clone());
    (app::start_litequic(&config, store, StartOptions::default(), wrap).await.unwrap(), made.cert_pem)
}

/// What `/healthz` answers.
async fn health(probes: SocketAddr) -> String {
    let mut stream = TcpStream::connect(probes).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("liveness", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

/// Sends a request for `path` over a connection of its own, which is kept.
async fn request(running: &RunningProcess, cert_pem: &str, path: &str) -> (Quic, impl Sized + use<>) {
    let quic = Quic::connect(running.addresses[0], "localhost", cert_pem, TransportConfig::default()).await;
    let connection = h3_quinn::Connection::new(quic.connection.clone());
    let (driver, mut requests) = within("HTTP/3", h3::client::new(connection)).await.unwrap();
    let uri = format!("https://localhost{path}");
    let mut stream = requests.send_request(http::Request::get(uri).body(()).unwrap()).await.unwrap();
    stream.finish().await.unwrap();
    (quic, (driver, requests, stream))
}

#[tokio::test]
async fn a_hanging_worker_is_reported_and_a_busy_one_is_not() {
    for (path, hangs) in [("/hang", true), ("/busy", false)] {
        let (release, released) = channel();
        let is_over = Arc::<AtomicBool>::default();
        let control = Control { released: Arc::new(Mutex::new(released)), is_over: Arc::clone(&is_over) };
        let (running, cert_pem) = controlled(control).await;
        let (probes, lifecycle) = (running.probes.unwrap(), running.lifecycle.clone());
        let _client = request(&running, &cert_pem, path).await;
        let ended = tokio::spawn(running.wait_for_end());
        let began = Instant::now();
        loop {
            let answer = health(probes).await;
            let is_well = answer.starts_with("HTTP/1.1 200 ");
            if hangs && !is_well {
                assert!(answer.contains("worker 0 has hung for "), "{answer}");
                break;
            }
            assert!(is_well, "{path}: {answer}");
            if !hangs && began.elapsed() > WORKER_DEADLINE + Duration::from_secs(1) {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "{path}: {answer}");
            sleep(Duration::from_millis(50)).await;
        }
        is_over.store(true, Relaxed);
        let _ = release.send(());
        lifecycle.advance_phase(ProcessPhase::Stopping);
        within("the end", ended).await.unwrap().unwrap();
    }
}
