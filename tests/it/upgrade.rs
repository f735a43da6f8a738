//! A new process takes over, and no client notices: each test runs real ones.

mod balancers;
mod cookies;
mod failures;
mod program;
mod replicas;
mod resets;
mod server_id;
mod service_manager;
mod traces;

use crate::{
    drain::ask,
    support::{client::Stream, prelude::*},
};
use bytes::Buf;
use futures_util::future;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    ffi::OsStr,
    net::TcpListener,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// For all that a test does.
const PATIENCE: Duration = Duration::from_secs(180);

/// A configuration, and processes that run by it one after the other.
pub(super) struct Service {
    pub(super) directory: TempDir,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) cert_pem: String,
}

impl Service {
    /// Before the demo's origin, in this process.
    pub(super) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        let port = free_udp_port();
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let text = format!(
            "{}[listen]\nudp = \"127.0.0.1:{port}\"\ntcp = \"127.0.0.1:{port}\"\nworkers = 2\n\
             [origin]\nurl = \"http://{}\"\n[timeouts]\ndrain = \"10m\"\ndrain_grace = \"0s\"\nsend = \"10m\"\nidle = \"2m\"\n\
             [admin]\nlisten = \"{admin}\"\nhandover = \"handover.sock\"\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
            io_key(),
            origin::demo().await
        );
        fs::write(directory.path().join("litequic.toml"), text).unwrap();
        write_certificate(directory.path(), &made);
        Self { directory, address: (Ipv4Addr::LOCALHOST, port).into(), admin, cert_pem: made.cert_pem }
    }

    /// The command of another process.
    pub(super) fn command(&self) -> Command {
        let config = self.directory.path().join("litequic.toml");
        command([OsStr::new("run"), "--config".as_ref(), config.as_ref()])
    }

    /// Changes the configuration of processes that start from now on.
    pub(super) fn edit(&self, from: &str, to: &str) {
        let path = self.directory.path().join("litequic.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Starts another process, and waits until it serves.
    pub(super) async fn start(&self) -> Process {
        let process = Process::spawn(self.command());
        spawn_blocking(move || {
            process.address();
            process
        })
        .await
        .unwrap()
    }

    /// A connection that takes 64 KiB of a response ahead, and stays open when nothing moves.
    pub(super) async fn h3(&self) -> Client {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(quinn::VarInt::from_u32(64 * 1024));
        transport.keep_alive_interval(Some(Duration::from_secs(5)));
        Client::connect(self.address, &self.cert_pem, transport).await
    }

    async fn h1(&self) -> http1::SendRequest<Empty<Bytes>> {
        let tls = Tls::connect(self.address, "localhost", tls::config(&self.cert_pem, &["http/1.1"])).await.unwrap();
        let (requests, connection) = http1::handshake(TokioIo::new(tls.stream)).await.unwrap();
        tokio::spawn(connection);
        requests
    }

    async fn h2(&self) -> http2::SendRequest<Empty<Bytes>> {
        let tls = Tls::connect(self.address, "localhost", tls::config(&self.cert_pem, &["h2"])).await.unwrap();
        let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tls.stream)).await.unwrap();
        tokio::spawn(connection);
        requests
    }

    pub(super) async fn status(&self) -> serde_json::Value {
        let (status, text) = ask(self.admin, "GET /status").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until `/status` has it.
    pub(super) async fn until(&self, key: &str, value: u64) {
        let found = timeout(PATIENCE, async {
            while self.status().await[key] != value {
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(found.await.is_ok(), "{key} = {value}");
    }
}

/// Ends a process, in order.
pub(super) async fn terminate(process: Process) {
    process.signal("TERM");
    ended(process).await;
}

/// Waits for a process' end, which is to be in order.
pub(super) async fn ended(process: Process) {
    let ended = spawn_blocking(|| process.end_within(PATIENCE)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A download that is taken as slowly as the test likes.
struct Download {
    _client: Client,
    stream: Stream,
    read: usize,
}

impl Download {
    async fn begin(service: &Service, len: usize) -> Self {
        let client = service.h3().await;
        let mut stream = client.begin_get(&format!("/bytes/{len}")).await;
        assert_eq!(client::header(&mut stream).await.status(), 200);
        Self { _client: client, stream, read: 0 }
    }

    /// Reads on up to the byte `end`, checks each, and returns false at the body's end.
    async fn read_to(&mut self, end: usize) -> bool {
        while self.read < end {
            let chunk = timeout(PATIENCE, self.stream.recv_data()).await.expect("more of the body");
            let Some(mut chunk) = chunk.unwrap() else { return false };
            let bytes = chunk.copy_to_bytes(chunk.remaining());
            for (at, byte) in (self.read..).zip(&bytes) {
                assert_eq!(usize::from(*byte), at % 251, "at {at}");
            }
            self.read += bytes.len();
        }
        true
    }
}

/// Requests by one protocol after the other, until stopped.
struct Load {
    ends: Arc<AtomicBool>,
    /// Requests that were answered.
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin(service: &Arc<Service>) -> Self {
        let (ends, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let again = |protocol: u8| {
            let (service, ends, answered) = (Arc::clone(service), Arc::clone(&ends), Arc::clone(&answered));
            tokio::spawn(async move {
                while !ends.load(Relaxed) {
                    let more = match protocol {
                        1 => one_by_h1(&service).await,
                        2 => some_by_h2(&service).await,
                        _ => one_by_h3(&service).await,
                    };
                    answered.fetch_add(more, Relaxed);
                }
            })
        };
        let tasks = [1, 2, 3].map(again).into();
        Self { ends, answered, tasks }
    }

    /// Waits until `more` requests were answered.
    async fn goes_on(&self, more: u64) {
        let enough = self.answered.load(Relaxed) + more;
        let all = timeout(PATIENCE, async {
            while self.answered.load(Relaxed) < enough {
                assert!(self.tasks.iter().all(|task| !task.is_finished()), "a request failed");
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(all.await.is_ok(), "no answers");
    }

    /// Ends it; fails if any request did.
    async fn end(self) -> u64 {
        self.ends.store(true, Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.answered.load(Relaxed)
    }
}

/// A request over TCP for so many bytes.
fn bytes(service: &Service, len: usize) -> Request<Empty<Bytes>> {
    let host = format!("localhost:{}", service.address.port());
    let request = Request::get(format!("https://{host}/bytes/{len}")).header("host", host);
    request.body(Empty::new()).unwrap()
}

/// Reads `body` to its end, and checks each of its `len` bytes.
async fn check(body: Incoming, len: usize) {
    let body = timeout(PATIENCE, body.collect()).await.expect("a body").unwrap().to_bytes();
    assert_eq!(body.len(), len);
    assert!(body.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
}

async fn one_by_h1(service: &Service) -> u64 {
    let mut request = bytes(service, 1000);
    // On HTTP/1.1 the path alone.
    *request.uri_mut() = "/bytes/1000".parse().unwrap();
    let response = timeout(PATIENCE, service.h1().await.send_request(request)).await.expect("an answer").unwrap();
    assert_eq!(response.status(), 200);
    check(response.into_body(), 1000).await;
    1
}

/// On one connection, until GOAWAY.
async fn some_by_h2(service: &Service) -> u64 {
    let mut requests = service.h2().await;
    let mut answered = 0;
    while answered < 5 && requests.ready().await.is_ok() {
        match timeout(PATIENCE, requests.send_request(bytes(service, 1000))).await.expect("an answer") {
            Ok(response) => {
                assert_eq!(response.status(), 200);
                check(response.into_body(), 1000).await;
                answered += 1;
            }
            // Sent, and never to be answered: it may be sent again (RFC 9113 §8.7).
            Err(error) if is_unprocessed(&error) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    answered
}

/// Whether the server reported that it had not processed a request, or the connection had been closed before it was
/// sent.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let text = format!("{error:?}");
    error.is_canceled() || text.contains("REFUSED_STREAM") || text.contains("GoAway") && text.contains("NO_ERROR")
}

async fn one_by_h3(service: &Service) -> u64 {
    let client = service.h3().await;
    let answer = client.get("/bytes/1000").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 1000));
    1
}

#[tokio::test]
async fn twenty_upgrades_cut_no_connection_and_lose_no_request() {
    const UPGRADES: usize = 20;
    const STEP: usize = 96 * 1024;
    let service = Arc::new(Service::new().await);
    let mut processes = vec![service.start().await];
    let begin = (0..50).map(|_| Download::begin(&service, (UPGRADES + 1) * STEP));
    let mut downloads = future::join_all(begin).await;
    let load = Load::begin(&service);
    for upgrade in 1..=UPGRADES {
        processes.push(service.start().await);
        let progress = downloads.iter_mut().map(|download| download.read_to(upgrade * STEP));
        assert!(future::join_all(progress).await.into_iter().all(|more| more), "{upgrade}");
        load.goes_on(6).await;
    }
    let status = service.status().await;
    assert_eq!(status["generation"], UPGRADES);
    assert!(status["older_processes"].as_u64().unwrap() >= 1, "{status}");
    for download in &mut downloads {
        assert!(!download.read_to(usize::MAX).await);
        assert_eq!(download.read, (UPGRADES + 1) * STEP);
    }
    drop(downloads);
    assert!(load.end().await >= 6 * UPGRADES as u64);

    let newest = processes.pop().unwrap();
    for process in processes {
        assert!(process.stderr().contains("a new process has taken over"), "{}", process.stderr());
        ended(process).await;
    }
    service.until("older_processes", 0).await;
    terminate(newest).await;
}

#[tokio::test]
async fn a_terminated_process_finishes_requests_of_each_protocol() {
    const LEN: usize = 2_000_000;
    let service = Service::new().await;
    let process = service.start().await;
    let mut downloads = future::join_all((0..4).map(|_| Download::begin(&service, LEN))).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut h1 = service.h1().await;
        let mut request = bytes(&service, LEN);
        *request.uri_mut() = format!("/bytes/{LEN}").parse().unwrap();
        others.push(h1.send_request(request).await.unwrap());
        let mut h2 = service.h2().await;
        others.push(h2.send_request(bytes(&service, LEN)).await.unwrap());
    }
    process.signal("TERM");
    let waiting = spawn_blocking(move || {
        process.await_stderr("draining");
        process
    });
    let process = waiting.await.unwrap();
    for download in &mut downloads {
        assert!(!download.read_to(usize::MAX).await);
        assert_eq!(download.read, LEN);
    }
    for response in others {
        assert_eq!(response.status(), 200);
        check(response.into_body(), LEN).await;
    }
    drop(downloads);
    ended(process).await;
}

#[tokio::test]
async fn a_new_process_that_fails_leaves_the_old_one_serving() {
    let service = Arc::new(Service::new().await);
    let old = service.start().await;
    let mut download = Download::begin(&service, 1_000_000).await;
    let load = Load::begin(&service);

    // Its configuration is wrong: it never connects.
    service.edit("workers = 2", "workers = \"two\"");
    let failed = spawn_blocking({
        let command = service.command();
        || Process::spawn(command).end()
    });
    assert_eq!(failed.await.unwrap().code, Some(78));
    load.goes_on(6).await;

    // It cannot bind all its addresses.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_tcp_port())).unwrap();
    let redirect = format!("\nredirect = \"{}\"", taken.local_addr().unwrap());
    service.edit("workers = \"two\"", &format!("workers = 2{redirect}"));
    let failed = spawn_blocking({
        let command = service.command();
        || Process::spawn(command).end()
    });
    let failed = failed.await.unwrap();
    assert_eq!(failed.code, Some(69), "{failed:?}");
    load.goes_on(6).await;

    // It ends in the worst moment: new connections are steered to it already.
    service.edit(&redirect, "");
    let mut command = service.command();
    command.env("LITEQUIC_PANIC_IN", "takeover");
    let failed = spawn_blocking(|| Process::spawn(command).end()).await.unwrap();
    assert_ne!(failed.code, Some(0), "{failed:?}");
    load.goes_on(6).await;
    let status = service.status().await;
    assert_eq!((&status["generation"], &status["phase"]), (&0.into(), &"ready".into()));
    let metrics = ask(service.admin, "GET /metrics").await.1;
    assert!(metrics.contains("\nlitequic_upgrades_total{result=\"failed\"} 2\n"), "{metrics}");

    // And one that is well takes over after all.
    let new = service.start().await;
    assert_eq!(service.status().await["generation"], 1);
    load.goes_on(6).await;
    assert!(!download.read_to(usize::MAX).await);
    drop(download);
    load.end().await;
    ended(old).await;
    terminate(new).await;
}

#[tokio::test]
async fn what_is_in_maintenance_stays_so_when_a_process_takes_over() {
    let service = Service::new().await;
    let old = service.start().await;
    let (status, told) = ask(service.admin, "POST /maintenance?state=on&retry_after=70").await;
    assert_eq!((status, told.lines().next()), (200, Some("all answers 503, Retry-After: 70")));
    let new = service.start().await;
    ended(old).await;
    let answer = service.h3().await.get("/bytes/1").await;
    assert_eq!((answer.status.as_u16(), answer.field("retry-after")), (503, Some("70")));
    assert_eq!(service.status().await["maintenance"][0]["retry_after"], 70);
    assert_eq!(ask(service.admin, "POST /maintenance?state=off").await.0, 200);
    assert_eq!(service.h3().await.get("/bytes/1").await.status, 200);
    terminate(new).await;
}

#[tokio::test]
async fn networks_stay_denied_when_a_process_takes_over() {
    let service = Service::new().await;
    let old = service.start().await;
    for (network, seconds) in [("198.51.100.0/24", 3_600), ("2001:db8::/32", 60)] {
        let order = format!("POST /deny?network={network}&seconds={seconds}");
        assert_eq!(ask(service.admin, &order).await.0, 200);
    }
    let new = service.start().await;
    ended(old).await;
    let (_, list) = ask(service.admin, "GET /denied").await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let denied = list["denied"].as_array().unwrap();
    assert_eq!((&denied[0]["network"], &denied[1]["network"]), (&"198.51.100.0/24".into(), &"2001:db8::/32".into()));
    assert!((3_000..=3_600).contains(&denied[0]["seconds"].as_u64().unwrap()), "{list}");
    assert_eq!(service.status().await["denied_networks"], 2);
    terminate(new).await;
    // A restart forgets them.
    let restarted = service.start().await;
    assert_eq!(service.status().await["denied_networks"], 0);
    terminate(restarted).await;
}

#[tokio::test]
async fn an_order_about_http3_holds_when_a_process_takes_over() {
    let service = Service::new().await;
    let old = service.start().await;
    assert_eq!(ask(service.admin, "POST /http3?state=off").await.0, 200);
    let new = service.start().await;
    ended(old).await;
    assert_eq!(service.status().await["http3"], serde_json::json!({ "on": false, "configured": true }));
    assert_eq!(ask(service.admin, "POST /http3?state=on").await.0, 200);
    assert_eq!(service.h3().await.get("/bytes/1").await.status, 200);
    terminate(new).await;
}

/// By SIGUSR2, and the Unix socket is the owner's alone.
#[tokio::test]
async fn a_process_starts_its_own_successor() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    let service = Service::new().await;
    let socket = service.directory.path().join("handover.sock");
    // Of a process that is gone.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let process = service.start().await;
    let metadata = fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    process.signal("USR2");
    service.until("generation", 1).await;
    assert_eq!(one_by_h3(&service).await, 1);
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("started a new process")).unwrap();
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    let kill = format!("kill -TERM {}", event["process"]);
    service.until("older_processes", 0).await;
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    // Its successor has its outputs.
    ended(process).await;
    assert!(!socket.exists());
}
