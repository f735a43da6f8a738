//! Origins of several servers, over HTTP/3 and real sockets: one that ends under load and comes back, health checks,
//! names that lead elsewhere, the PROXY protocol.

use crate::support::{faults::serve_faults, nginx::Nginx, prelude::*, proxy::tcp};
use bytes::Buf;
use litequic_config::HealthCheck;
use litequic_proxy::{ServerMetrics, ServerName};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
};
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

/// Requests that are always in flight, each on its own connection to litequic.
const CLIENTS: usize = 12;

/// The demo's origin on a thread and a runtime of its own, so that it ends as a process does: at once, with every
/// connection.
struct Mortal {
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Mortal {
    fn start() -> Self {
        let mut this = Self { address: (Ipv4Addr::LOCALHOST, 0).into(), running: None };
        this.revive();
        this
    }

    fn revive(&mut self) {
        let (bound, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let wanted = self.address;
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind(wanted).await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve_faults(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        self.address = address.recv_timeout(DEADLINE).unwrap();
        self.running = Some((stop, thread));
    }

    fn kill(&mut self) {
        let (stop, thread) = self.running.take().unwrap();
        stop.send(()).unwrap();
        thread.join().unwrap();
    }
}

/// litequic before `servers`, as one origin.
pub(crate) async fn before(servers: &[SocketAddr], edit: impl FnOnce(&mut Config)) -> Litequic {
    Litequic::start(servers[0], |config| {
        origin(config).servers = servers.iter().copied().map(tcp).map(Into::into).collect();
        edit(config);
    })
    .await
}

pub(crate) fn origin(config: &mut Config) -> &mut OriginConfig {
    config.origins.get_mut(Config::ORIGIN_NAME).unwrap()
}

/// What metrics call the server at `address`.
fn name(address: SocketAddr) -> ServerName {
    ServerName::new(Config::ORIGIN_NAME, &tcp(address).to_string())
}

/// What `read` finds of the server at `address`, summed over all workers.
pub(crate) fn of(litequic: &Litequic, address: SocketAddr, read: impl Fn(&ServerMetrics) -> u64) -> u64 {
    litequic.sum(|worker: &WorkerMetrics| read(&worker.proxy.servers.counters_for(&name(address))))
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fate {
    /// It was begun after the server had died.
    after: bool,
    method: Method,
    /// The response's, or none.
    status: Option<u16>,
    /// `Proxy-Status`, or why there was no response.
    error: Option<String>,
    whole: bool,
}

async fn fate(client: &Client, method: &Method, path: &str, after: bool) -> Fate {
    let mut stream = client.open(client.request(method.clone(), path)).await;
    let mut fate = Fate { after, method: method.clone(), status: None, error: None, whole: false };
    if *method == Method::POST {
        // An error shows below.
        let _ = stream.send_data(Bytes::from_static(b"order")).await;
    }
    let _ = stream.finish().await;
    let response = match within("a response", stream.recv_response()).await {
        Ok(response) => response,
        Err(error) => {
            fate.error = Some(error.to_string());
            return fate;
        }
    };
    fate.status = Some(response.status().as_u16());
    fate.error = response.headers().get("proxy-status").map(|value| value.to_str().unwrap().to_owned());
    loop {
        match within("a body", stream.recv_data()).await {
            Ok(Some(mut piece)) => piece.advance(piece.remaining()),
            Ok(None) => break,
            Err(_) => return fate,
        }
    }
    fate.whole = true;
    fate
}

/// Kills the first of `servers` under load and has it back: only what it had begun fails, and traffic returns to it.
async fn one_dies_and_comes_back(servers: &[SocketAddr], kill_and_revive: impl FnOnce(bool) + Send + Clone + 'static) {
    let litequic = before(servers, |config| {
        origin(config).eject_time = Duration::from_millis(200);
        origin(config).eject_after = Some(3);
        config.listen.workers = Some(2.try_into().unwrap());
    })
    .await;
    let (dead, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut load = tokio::task::JoinSet::new();
    for n in 0..CLIENTS {
        let client = Client::to(&litequic).await;
        let (dead, stop) = (Arc::clone(&dead), Arc::clone(&stop));
        load.spawn(async move {
            let (method, path) =
                [(Method::GET, "/bytes/100000"), (Method::POST, "/echo"), (Method::GET, "/drip/5/2")][n % 3].clone();
            let mut fates = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let after = dead.load(Ordering::SeqCst);
                fates.push(fate(&client, &method, path, after).await);
            }
            fates
        });
    }
    let first = servers[0];
    until("load on every server", async || {
        servers.iter().all(|server| of(&litequic, *server, |server| server.requests.get()) > 20)
    })
    .await;

    let kill = kill_and_revive.clone();
    spawn_blocking(move || kill(true)).await.unwrap();
    dead.store(true, Ordering::SeqCst);
    until("an ejection", async || of(&litequic, first, |server| server.ejections.get()) > 0).await;
    let others = servers[1..].iter().map(|server| of(&litequic, *server, |server| server.requests.get())).sum::<u64>();
    until("load on the others", async || {
        let now = servers[1..].iter().map(|server| of(&litequic, *server, |server| server.requests.get()));
        now.sum::<u64>() > others + 200
    })
    .await;

    spawn_blocking(move || kill_and_revive(false)).await.unwrap();
    let counts = || {
        let failures = of(&litequic, first, |server| server.failures.get());
        (failures, of(&litequic, first, |server| server.requests.get()))
    };
    let mut since = counts();
    within("traffic on the first again", async {
        loop {
            sleep(LOOK_AGAIN).await;
            let now = counts();
            if now.0 != since.0 {
                since = now;
            } else if now.1 > since.1 + 5 {
                break;
            }
        }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let mut fates = Vec::new();
    while let Some(done) = within("the load's end", load.join_next()).await {
        fates.extend(done.unwrap());
    }

    let failed: Vec<_> = fates.iter().filter(|fate| !(fate.whole && fate.status == Some(200))).collect();
    assert!(failed.len() <= CLIENTS, "no more than were in flight: {} of {}: {failed:?}", failed.len(), fates.len());
    for fate in &failed {
        assert!(!fate.after, "begun when the server was dead: {fate:?}");
        match fate.status {
            // It broke off after its header.
            Some(200) => assert!(!fate.whole, "{fate:?}"),
            // The server had it: another one might have done it twice, or it was on a first connection.
            Some(502) => {
                let error = fate.error.as_deref().unwrap();
                let known = ["connection_terminated", "http_response_incomplete"];
                assert!(known.iter().any(|known| error.contains(known)), "{fate:?}");
            }
            // It broke off, and the reset overtook the header (RFC 9000 §3.2).
            None => assert!(fate.error.as_deref().unwrap().contains("H3_INTERNAL_ERROR"), "{fate:?}"),
            _ => panic!("{fate:?}"),
        }
    }
    assert!(litequic.sum(|worker| worker.proxy.origin_retries.get()) > 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_dead_server_fails_only_its_own_requests_and_returns() {
    let servers = [Mortal::start(), Mortal::start(), Mortal::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    let servers = Arc::new(Mutex::new(servers));
    let kill_and_revive = {
        let servers = Arc::clone(&servers);
        move |kill: bool| {
            let first = &mut servers.lock().unwrap()[0];
            if kill { first.kill() } else { first.revive() }
        }
    };
    one_dies_and_comes_back(&addresses, kill_and_revive).await;
}

#[tokio::test]
async fn one_of_three_nginx_servers_restarts_unnoticed() {
    let answer = "location / { return 200 \"it is well\"; }";
    let (Some(one), Some(two), Some(three)) = (Nginx::start(answer), Nginx::start(answer), Nginx::start(answer)) else {
        return;
    };
    let addresses = [one.address, two.address, three.address];
    let first = Arc::new(Mutex::new(one));
    let kill_and_revive = {
        let first = Arc::clone(&first);
        move |kill: bool| {
            let mut first = first.lock().unwrap();
            if kill { first.stop() } else { first.start_again() }
        }
    };
    one_dies_and_comes_back(&addresses, kill_and_revive).await;
}

fn health() -> HealthCheck {
    HealthCheck {
        path: "/health".into(),
        host: None,
        interval: Duration::from_millis(100),
        timeout: DEADLINE,
        healthy: 2,
        unhealthy: 2,
        ..HealthCheck::default()
    }
}

#[tokio::test]
async fn an_unhealthy_server_gets_no_requests_and_one_worker_checks() {
    let ill = Always::new("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n").await;
    let well = Always::new(Always::EMPTY_200).await;
    let litequic = before(&[ill.address, well.address], |config| {
        config.listen.workers = Some(3.try_into().unwrap());
        config.admin.probes = Some((Ipv4Addr::LOCALHOST, 0).into());
        config.admin.ready_needs_origin = true;
        origin(config).health = Some(health());
    })
    .await;
    let checks = &litequic.metrics.checks;
    let checks = [&ill, &well].map(|server| checks.counters_for(&name(server.address)));
    until("checks", async || checks[0].failed.get() > 3 && checks[1].passed.get() > 3).await;
    assert_eq!((checks[0].up.get(), checks[1].up.get()), (0, 1));
    assert_eq!((checks[0].passed.get(), checks[1].failed.get()), (0, 0));

    let before = ill.seen().matches("GET /health ").count() as u64;
    assert!(before <= checks[0].failed.get() + 1, "one at a time for all workers");
    for _ in 0..3 {
        let client = Client::to(&litequic).await;
        for _ in 0..10 {
            assert_eq!(client.get("/x").await.status, 200);
        }
    }
    assert!(!ill.seen().contains("GET /x "));
    assert!(well.seen().contains("GET /health HTTP/1.1\r\n"));
    assert!(well.seen().contains(&format!("host: {}\r\n", well.address)));

    let text = litequic.metrics.registry().render_metrics();
    for (server, up) in [(&ill, 0), (&well, 1)] {
        let line = format!("litequic_origin_server_up{{origin=\"origin\",server=\"{}\"}} {up}", tcp(server.address));
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(readiness(&litequic).await, 200, "one is well");
    litequic.stop().await;
}

/// What `/readyz` answers.
async fn readiness(litequic: &Litequic) -> u16 {
    let mut stream = TcpStream::connect(litequic.probes.unwrap()).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("readiness", stream.read_to_string(&mut answer)).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn with_all_servers_unhealthy_all_are_used_and_readiness_fails() {
    const ILL: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let servers = [Always::new(ILL).await, Always::new(ILL).await];
    let litequic = before(&[servers[0].address, servers[1].address], |config| {
        config.admin.probes = Some((Ipv4Addr::LOCALHOST, 0).into());
        config.admin.ready_needs_origin = true;
        origin(config).health = Some(health());
    })
    .await;
    until("not ready", async || readiness(&litequic).await == 503).await;
    let client = Client::to(&litequic).await;
    for _ in 0..10 {
        assert_eq!(client.get("/x").await.status, 404);
    }
    assert!(servers.iter().all(|server| server.seen().matches("GET /x ").count() == 5));
    assert_eq!(litequic.sum(|worker| worker.proxy.origin_panics.get()), 10);
    litequic.stop().await;
}

#[tokio::test]
async fn nginx_hears_of_the_client_by_the_proxy_protocol() {
    let port = free_tcp_port();
    let server = format!(
        "listen 127.0.0.1:{port} proxy_protocol;\n\
         location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port\"; }}"
    );
    let Some(_nginx) = Nginx::start(&server) else { return };
    let litequic = before(&[(Ipv4Addr::LOCALHOST, port).into()], |config| {
        origin(config).proxy_protocol = true;
        origin(config).health = Some(health());
    })
    .await;
    for _ in 0..2 {
        let client = Client::to(&litequic).await;
        let (local, served) = (client.quic.endpoint.local_addr().unwrap(), litequic.address.port());
        for _ in 0..3 {
            let answer = client.get("/").await;
            assert_eq!(String::from_utf8(answer.body).unwrap(), format!("127.0.0.1 {} {served}", local.port()));
        }
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.origin_connections.get()), 2, "one a client");
    let checks = litequic
        .metrics
        .checks
        .counters_for(&ServerName::new(Config::ORIGIN_NAME, &format!("http://127.0.0.1:{port}")));
    until("a check", async || checks.passed.get() > 0).await;
    assert_eq!(checks.failed.get(), 0);
    litequic.stop().await;
}

/// Answers each request with `text`.
async fn saying(address: SocketAddr, text: &'static str) -> SocketAddr {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    Server::at(address, move |stream| origin::answer_heads(stream, answer.clone())).await.detach()
}

/// Needs a mount namespace of its own, in which `/etc/hosts` is the test's.
#[tokio::test]
async fn a_changed_dns_address_is_followed_despite_open_connections() {
    const NAME: &str = "moving.test";
    let Some(unshare) = needs::program("unshare") else { return };
    let namespace = || {
        let mut command = Command::new(&unshare);
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"").arg("sh");
        command
    };
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, format!("127.0.0.1 {NAME}\n")).unwrap();
    let mut probe = namespace();
    if !probe.arg(&hosts).arg("true").output().unwrap().status.success() {
        return needs::skip("there may be no mount namespace here");
    }

    let old = saying((Ipv4Addr::LOCALHOST, 0).into(), "old").await;
    saying(([127, 0, 0, 2], old.port()).into(), "new").await;
    let made = make_self_signed(["localhost"]).unwrap();
    write_certificate(folder.path(), &made);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
    let text = format!(
        "{}log.format = \"json\"\nlisten.udp = \"{address}\"\nlisten.tcp = []\nlisten.workers = 1\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
         [origin]\nurl = \"http://{NAME}:{}\"\n[laboratory]\ndns_interval = \"1s\"\n",
        io_key(),
        old.port()
    );
    let file = folder.path().join("litequic.toml");
    fs::write(&file, text).unwrap();
    let litequic = command(["run", "--config", file.to_str().unwrap()]);
    let mut inside = namespace();
    inside.arg(&hosts).arg(litequic.get_program()).args(litequic.get_args());
    inside.env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
    let process = Process::spawn(inside);
    let address = process.address();

    let client = Client::connect(address, &made.cert_pem, quinn::TransportConfig::default()).await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await.body, b"old");
    }
    // In place: what is mounted is this very file.
    fs::write(&hosts, format!("127.0.0.2 {NAME}\n")).unwrap();
    until("the new address", async || client.get("/").await.body == b"new").await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await.body, b"new");
    }
}
