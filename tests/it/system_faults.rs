//! Faults of the system beneath litequic: name servers that do not answer, a clock that jumps, a process that is
//! stopped and continued, a full disk. Always the real process.

use crate::support::prelude::*;
use litequic_admin::WORKER_DEADLINE;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};

/// A directory with a configuration and the files that it names.
struct Setup {
    folder: tempfile::TempDir,
    made: SelfSigned,
    address: SocketAddr,
}

impl Setup {
    /// With `keys` besides the listener, the certificate and the log's format.
    fn new(keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
        let setup = Self { folder, made, address };
        setup.write("tls.crt", &setup.made.cert_pem);
        setup.write("tls.key", &setup.made.key_pem);
        let io = io_key();
        let text = format!(
            "{io}log.format = \"json\"\nlisten.udp = \"{address}\"\n{keys}\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n"
        );
        setup.write("litequic.toml", &text);
        setup
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).unwrap();
    }

    fn command(&self) -> Command {
        command(["run", "--config", &self.path("litequic.toml")])
    }

    /// `litequic get` of `path`, which shows the response's header.
    fn get(&self, path: &str) -> Command {
        let url = format!("https://localhost:{}{path}", self.address.port());
        let resolve = format!("localhost:{}:127.0.0.1", self.address.port());
        command(["get", "--timeout", "20s", "--ca", &self.path("tls.crt"), "--resolve", &resolve, &url])
    }
}

/// The names of the threads of the process `id`.
fn threads(id: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// A name server that never answers, and says when it is asked.
const SILENT_NAME_SERVER: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    s.bind(('127.0.0.1', 53))\n\
    print('listens', flush=True)\n\
    while True:\n    s.recvfrom(4096)\n    print('asked', flush=True)\n";

/// In namespaces with a loopback interface of their own, on which a name server listens, and a resolv.conf(5).
#[tokio::test]
async fn an_unresponsive_name_server_holds_one_thread_for_each_name() {
    let [Some(unshare), Some(nsenter), Some(python), Some(_)] =
        ["unshare", "nsenter", "python3", "ip"].map(needs::program)
    else {
        return;
    };
    let setup = Setup::new(
        "listen.workers = 2\nlisten.tcp = []\n\
         origins.hangs.url = \"http://hangs.test:80\"\norigins.local.url = \"http://localhost:9\"\n\
         [[routes]]\npath = \"/hangs\"\norigin = \"hangs\"\n[[routes]]\npath = \"/local\"\norigin = \"local\"\n",
    );
    // A request waits for two seconds; the lookup ends after 30.
    setup.write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n");
    let namespaces = || {
        let mut inside = Command::new(&unshare);
        inside.args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c"]);
        inside.arg("ip link set lo up && mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"").arg("sh");
        inside.arg(setup.path("resolv.conf")).env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
        inside
    };
    if !namespaces().arg("true").output().unwrap().status.success() {
        return needs::skip("there may be no namespaces here");
    }
    let (litequic, mut inside) = (setup.command(), namespaces());
    inside.arg(litequic.get_program()).args(litequic.get_args());
    let process = Process::spawn(inside);
    assert_eq!(process.address(), setup.address);
    let join = |command: &Command| {
        let mut inside = Command::new(&nsenter);
        inside.args(["--target", &process.id().to_string(), "--user", "--net", "--preserve-credentials"]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    };
    let mut server = Command::new(python);
    let name_server = Process::spawn(join(server.args(["-c", SILENT_NAME_SERVER])));
    name_server.await_stdout("listens");

    let get = |path: &str| Process::spawn(join(setup.get(path).arg("--head")));
    // Several clients, so that each worker gets some, more than once.
    for _ in 0..3 {
        let hang: Vec<_> = (0..6).map(|_| get("/hangs")).collect();
        let local = get("/local").end();
        assert!(local.stdout.contains("connection_refused"), "{local:?}");
        for hung in hang {
            let hung = hung.end();
            assert!(hung.stdout.contains("dns_error"), "{hung:?}");
        }
        let lookups = threads(process.id()).iter().filter(|name| *name == "lookup").count();
        assert_eq!(lookups, 1, "{:?}", threads(process.id()));
    }
    // A and AAAA.
    let asked = name_server.stdout().matches("asked").count();
    assert!((1..=2).contains(&asked), "{asked} queries");
    // No lookup keeps the process.
    process.signal("TERM");
    process.end_within(Duration::from_secs(10)).success();
}

/// How long litequic is stopped: longer than [`LIMIT`], and short enough for a QUIC client to wait.
const STOPPED: Duration = Duration::from_secs(3);
/// Every timeout of the connections and requests that are open when litequic is stopped.
const LIMIT: &str = "1500ms";
/// Connections of each kind: not all are polled in the turn of the worker in which all timers expire.
const CLIENTS: usize = 6;

/// An origin that answers `/later` once it is released, and `/half` with the first half of a body before.
async fn holding_back(released: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut released = released.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                loop {
                    let (mut path, mut length) = (String::new(), 0);
                    loop {
                        let mut line = String::new();
                        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                            return;
                        }
                        let line = line.trim().to_ascii_lowercase();
                        if path.is_empty() {
                            path = line.split(' ').nth(1).unwrap().to_owned();
                        }
                        if let Some(value) = line.strip_prefix("content-length: ") {
                            length = value.parse().unwrap();
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    stream.read_exact(&mut vec![0; length]).await.unwrap();
                    let (head, body) = ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", ["hello", "there"]);
                    let mut release = async || released.wait_for(|released| *released).await.is_ok();
                    if path == "/later" {
                        release().await;
                    }
                    let _ = stream.write_all(format!("{head}{}", body[0]).as_bytes()).await;
                    if path == "/half" {
                        release().await;
                    }
                    let _ = stream.write_all(body[1].as_bytes()).await;
                }
            });
        }
    });
    address
}

/// Parts of a request that are sent before and while litequic is stopped, and the kind of both.
const SPLIT: [(&str, &str, &str); 5] = [
    ("a header", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Le", "ngth: 4\r\n\r\nbody"),
    ("a body", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo", "dy"),
    ("a response", "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n", ""),
    ("a response's body", "GET /half HTTP/1.1\r\nHost: localhost\r\n\r\n", ""),
    ("an idle connection", "", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
];

/// Configures every timeout of connections and requests, but for QUIC's `idle`.
fn timeouts(idle: &str) -> String {
    let short = ["request_header", "request_body", "connect", "response_header", "response_body", "send"];
    let short: String = short.iter().map(|key| format!("{key} = \"{LIMIT}\"\n")).collect();
    format!("[timeouts]\n{short}idle = \"{idle}\"\n")
}

/// A litequic to stop, before an origin that holds back until it is told otherwise.
struct Stoppable {
    setup: Setup,
    process: Process,
    admin: SocketAddr,
    release: watch::Sender<bool>,
}

impl Stoppable {
    async fn new(idle: &str) -> Self {
        let (release, released) = watch::channel(false);
        let origin = holding_back(released).await;
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let setup = Setup::new(&format!(
            "listen.workers = 1\norigin.url = \"http://{origin}\"\nadmin.probes = \"{admin}\"\n{}",
            timeouts(idle)
        ));
        let process = Process::spawn(setup.command());
        assert_eq!(process.address(), setup.address);
        Self { setup, process, admin, release }
    }

    /// Stops litequic for `length`, while clients and origin go on with `meanwhile`.
    async fn stop(&self, length: Duration, meanwhile: impl Future<Output = ()>) {
        self.process.signal("STOP");
        let end = tokio::time::Instant::now() + length;
        self.release.send(true).unwrap();
        meanwhile.await;
        tokio::time::sleep_until(end).await;
        self.process.signal("CONT");
    }
}

/// Requests `path` of the admin address `admin` over a new connection.
async fn request(admin: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(admin).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// What `/healthz` answers.
async fn health(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    within("liveness", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn liveness_does_not_fail_after_the_process_was_stopped() {
    let litequic = Stoppable::new("10s").await;
    let mut waiting = Vec::new();
    let meanwhile = async {
        for _ in 0..20 {
            waiting.push(request(litequic.admin, "healthz").await);
        }
    };
    litequic.stop(WORKER_DEADLINE + Duration::from_secs(1), meanwhile).await;
    let began = Instant::now();
    for stream in waiting {
        let answer = health(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    while began.elapsed() < Duration::from_secs(2) {
        let answer = health(request(litequic.admin, "healthz").await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{:?} after SIGCONT: {answer}", began.elapsed());
    }
}

#[tokio::test]
async fn after_a_pause_tcp_data_is_read_before_timeouts_fire() {
    // Less than [`STOPPED`], and enough to open all connections.
    let litequic = Stoppable::new("2900ms").await;
    let (address, certificate) = (litequic.setup.address, &litequic.setup.made.cert_pem);
    let config = || tls::config(certificate, &["http/1.1"]);
    let mut clients = Vec::new();
    for split in [(); CLIENTS].iter().flat_map(|()| SPLIT) {
        clients.push((split, Tls::connect(address, "localhost", config()).await.unwrap()));
    }
    for (_, client) in &mut clients {
        client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        client.until("hellothere").await;
    }
    for ((_, before, _), client) in &mut clients {
        client.say(before).await;
    }
    let mut handshakes = Vec::new();
    for _ in 0..CLIENTS {
        handshakes.push(TcpStream::connect(address).await.unwrap());
    }
    let mut shaken = JoinSet::new();
    let meanwhile = async {
        for ((_, _, after), client) in &mut clients {
            client.say(after).await;
        }
        for stream in handshakes {
            shaken.spawn(Tls::over(stream, "localhost", config()));
        }
    };
    litequic.stop(STOPPED, meanwhile).await;
    for ((what, ..), client) in &mut clients {
        let answer = within(what, client.until("there")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{what}: {answer}");
    }
    for handshake in within("handshakes", shaken.join_all()).await {
        handshake.unwrap();
    }
}

#[tokio::test]
async fn after_a_pause_quic_data_is_read_before_timeouts_fire() {
    let litequic = Stoppable::new("10s").await;
    let (address, certificate) = (litequic.setup.address, &litequic.setup.made.cert_pem);
    let header = |method, path| raw::request(method, path);
    let upload = [header("POST", "/"), raw::data("body")].concat();
    let (half, most) = (upload.len() / 4, upload.len() - 2);
    let split: [(&str, Vec<u8>, &[u8]); 4] = [
        ("a header", upload[..half].to_vec(), &upload[half..]),
        ("a body", upload[..most].to_vec(), &upload[most..]),
        ("a response", header("GET", "/later"), &[]),
        ("a response's body", header("GET", "/half"), &[]),
    ];
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let quic = Quic::connect(address, "localhost", certificate, quinn::TransportConfig::default()).await;
        clients.push(Raw::over(quic).await);
    }
    let mut exchanges = Vec::new();
    for client in &clients {
        for (what, before, after) in &split {
            exchanges.push((what, client.open(before).await, after));
        }
    }
    let meanwhile = async {
        for (_, exchange, after) in &mut exchanges {
            exchange.send(after).await;
            exchange.finish();
        }
    };
    litequic.stop(STOPPED, meanwhile).await;
    for (what, exchange, _) in &mut exchanges {
        assert_eq!(within(what, exchange.outcome()).await.status(), 200, "{what}");
    }
}

/// Seconds by which `Date` of the response `head` is ahead of this process's clock.
fn ahead(head: &str) -> i64 {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let (_, date) = fields.find(|(name, _)| name.eq_ignore_ascii_case("date")).unwrap();
    let seconds = |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    seconds(httpdate::parse_http_date(date).unwrap()) - seconds(SystemTime::now())
}

#[tokio::test]
async fn a_clock_set_by_an_hour_changes_only_the_date_field() {
    const HOUR: i64 = 3600;
    let (release, released) = watch::channel(false);
    let origin = holding_back(released).await;
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
    // Each QUIC client is asked to validate its address by a token.
    let setup = Setup::new(&format!(
        "listen.workers = 1\nadmin.probes = \"{admin}\"\nadmin.ready_needs_origin = true\nlaboratory.max_handshakes = 7\n\
         [origin]\nurl = \"http://{origin}\"\nhealth = {{ path = \"/\", interval = \"200ms\", timeout = \"10s\" }}\n\
         [[routes]]\npath = \"/limited\"\norigin = \"origin\"\nrate_limit = \"1/h\"\n\
         [[routes]]\norigin = \"origin\"\n"
    ));
    let Some(clock) = needs::Clock::of(setup.path("time")) else { return };
    let mut command = setup.command();
    command.envs(clock.variables());
    let process = Process::spawn(command);
    let (address, certificate) = (process.address(), &setup.made.cert_pem);
    let quic = async || Client::connect(address, certificate, quinn::TransportConfig::default()).await;
    let tcp = async || Tls::connect(address, "localhost", tls::config(certificate, &["http/1.1"])).await.unwrap();
    let (h3, mut h1) = (quic().await, tcp().await);
    let head = async |client: &mut Tls| {
        client.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        client.until("hellothere").await
    };
    assert!(ahead(&head(&mut h1).await).abs() < HOUR / 2);
    let mut open = h3.begin_get("/later").await;
    assert_eq!(h3.get("/limited").await.status, 200);
    assert_eq!(h3.get("/limited").await.status, 429);

    for set in [HOUR, 0, -HOUR, HOUR, -HOUR] {
        clock.set(set);
        let answer = head(&mut h1).await;
        assert!((ahead(&answer) - set).abs() < HOUR / 2, "set by {set}: {answer}");
        assert_eq!(h3.get("/").await.status, 200, "{set}");
        assert_eq!(h3.get("/limited").await.status, 429, "{set}");
        assert_eq!(quic().await.get("/").await.status, 200, "{set}");
        head(&mut tcp().await).await;
        for path in ["healthz", "readyz"] {
            let answer = health(request(admin, path).await).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{set}: {answer}");
        }
    }
    release.send(true).unwrap();
    assert_eq!(within("the response", client::answer(&mut open)).await.status, 200);
    process.end_by("TERM").success();
}

/// On a file system with one inode besides its directory.
#[tokio::test]
async fn a_full_disk_fails_the_successor_and_the_predecessor_continues() {
    let [Some(unshare), Some(nsenter)] = ["unshare", "nsenter"].map(needs::program) else { return };
    let origin = origin::demo().await;
    let setup = Setup::new(&format!(
        "listen.workers = 1\norigin.url = \"http://{origin}\"\nadmin.handover = \"full/handover.sock\"\n"
    ));
    fs::create_dir(setup.folder.path().join("full")).unwrap();
    let namespace = |script: &str| {
        let mut inside = Command::new(&unshare);
        inside.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        let mount = "mount -t tmpfs -o nr_inodes=2 none \"$1\"";
        inside.arg(format!("{mount} && {script} && shift && exec \"$@\"")).arg("sh").arg(setup.path("full"));
        inside.env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
        inside
    };
    if !namespace("true").arg("true").output().unwrap().status.success() {
        return needs::skip("there may be no mount namespace here");
    }
    let run = |mut inside: Command| {
        let litequic = setup.command();
        inside.arg(litequic.get_program()).args(litequic.get_args());
        Process::spawn(inside)
    };
    let is_full = |ended: &Ended| {
        assert_eq!(ended.code, Some(78), "{ended:?}");
        for part in ["cannot listen on admin.handover", "No space left on device"] {
            assert!(ended.stderr.contains(part), "{ended:?}");
        }
    };
    is_full(&run(namespace("touch \"$1/file\"")).end());

    let serving = run(namespace("true"));
    let quic =
        Quic::connect(serving.address(), "localhost", &setup.made.cert_pem, quinn::TransportConfig::default()).await;
    let client = Client::over(quic, "localhost").await;
    for _ in 0..2 {
        let mut beside = Command::new(&nsenter);
        beside.args(["--target", &serving.id().to_string(), "--user", "--mount", "--preserve-credentials"]);
        is_full(
            &spawn_blocking({
                let next = run(beside);
                || next.end()
            })
            .await
            .unwrap(),
        );
        assert_eq!(client.get("/status/204").await.status, 204, "{}", serving.stderr());
    }
    let mut get = setup.get("/bytes/100000");
    get.args(["--output", "/dev/full"]);
    let get = spawn_blocking(move || get.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&get.stderr).contains("cannot write /dev/full: No space left on device");
    assert!(get.status.code() == Some(74) && told, "{get:?}");
    serving.signal("TERM");
    spawn_blocking(|| serving.end().success()).await.unwrap();
}

#[test]
fn a_full_disk_is_an_error_of_each_command_that_writes() {
    for line in ["schema", "probe", "completions bash", "reference metrics"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = command(line.split(' ')).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let told = stderr.contains("cannot write to standard output: No space left on device");
        assert!(ended.status.code() == Some(74) && told, "{line}: {ended:?}");
    }
}
