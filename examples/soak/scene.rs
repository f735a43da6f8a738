//! The processes: litequic with its files, an origin that stays, and one that is restarted: nginx, where there is one.

use crate::{
    content::Content,
    origin,
    ports::{free_tcp_port, free_udp_port},
};
use anyhow::{Context as _, Result, bail, ensure};
use litequic_tls::make_self_signed;
use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// For a process to listen, to end or to answer.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Of a process' output.
const MAX_LINES: usize = 100;
/// nginx' own folders, which would otherwise be below /var.
const FOLDERS: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
/// What nginx serves from disk.
pub(crate) const FILES: [Content; 8] = [
    Content { seed: 1, length: 0 },
    Content { seed: 2, length: 1 },
    Content { seed: 3, length: 1_000 },
    Content { seed: 4, length: 16_384 },
    Content { seed: 5, length: 1_000_000 },
    Content { seed: 6, length: 4_000_003 },
    Content { seed: 7, length: 15_000_000 },
    Content { seed: 8, length: 50_000_000 },
];

/// A process, killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// The last lines that it wrote, and the first that begin as a fault does.
    output: Arc<Mutex<Output>>,
}

#[derive(Default)]
struct Output {
    last: VecDeque<String>,
    faults: Vec<String>,
}

impl Process {
    /// Starts `command`; lines of its output that hold `fault` are kept apart.
    fn spawn(mut command: Command, fault: &'static str) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{command:?} does not start"))?;
        let output = Arc::default();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            collect(stdout, &output, fault);
            collect(stderr, &output, fault);
        }
        Ok(Self { child, output })
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.output().faults.clone()
    }

    /// The last lines that it wrote.
    pub(crate) fn tail(&self) -> String {
        self.output().last.iter().map(|line| format!("    {line}\n")).collect()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the signal `name`: TERM, KILL, HUP.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status()?;
        ensure!(status.success(), "no signal {name} to {}", self.child.id());
        Ok(())
    }

    /// Waits for its end, and gives its exit code.
    pub(crate) async fn ended(&mut self) -> Result<Option<i32>> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            sleep(LOOK_AGAIN).await;
        }
        bail!("it still runs after {PATIENCE:?}");
    }

    async fn listens(&mut self, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}) before it listened at {address}:\n{}", self.tail());
            }
            if TcpStream::connect(address).await.is_ok() {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
        bail!("nothing listens at {address}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors say that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `from` to its end, which is the process', on a thread of its own.
fn collect(from: impl Read + Send + 'static, output: &Arc<Mutex<Output>>, fault: &'static str) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            if line.contains(fault) && output.faults.len() < MAX_LINES {
                output.faults.push(line.clone());
            }
            if output.last.len() == MAX_LINES {
                output.last.pop_front();
            }
            output.last.push_back(line);
        }
    });
}

/// litequic and the origin that stays, and where everything is.
pub(crate) struct Scene {
    // Before the folder, which goes last.
    pub(crate) litequic: Process,
    pub(crate) steady: Process,
    pub(crate) places: Places,
    folder: TempDir,
}

/// The origin that is restarted.
pub(crate) struct Restarted {
    process: Process,
    address: SocketAddr,
    nginx: Option<PathBuf>,
    folder: PathBuf,
}

/// Where everything listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) udp: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// One process with two addresses: a reload sends requests to the other one, and no client notices.
    steady: [SocketAddr; 2],
    restarted: SocketAddr,
}

impl Scene {
    /// Starts everything; `program` is litequic.
    pub(crate) async fn set(program: &Path) -> Result<(Self, Restarted)> {
        let folder = tempfile::tempdir()?;
        let tcp = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let udp = (Ipv4Addr::LOCALHOST, free_udp_port()).into();
        let places = Places { udp, admin: tcp(), steady: [tcp(), tcp()], restarted: tcp() };
        prepare(folder.path(), &places)?;
        let mut steady = spawn_origin(&places.steady)?;
        for address in places.steady {
            steady.listens(address).await?;
        }
        let restarted = Restarted::start(folder.path(), find("nginx"), places.restarted).await?;
        renew_certificate(folder.path())?;
        let config = folder.path().join("litequic.toml");
        fs::write(&config, configuration(&places, 0))?;
        let mut command = guarded(program);
        command.arg("run").arg("--config").arg(&config).env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
        let mut litequic = Process::spawn(command, "\"ERROR\"")?;
        litequic.listens(places.admin).await?;
        Ok((Self { litequic, steady, places, folder }, restarted))
    }

    /// Writes the `generation`th configuration, now and then with a new certificate, and has litequic reload.
    pub(crate) fn reload(&self, generation: u64) -> Result<()> {
        const RENEWED_EVERY: u64 = 5;
        if generation.is_multiple_of(RENEWED_EVERY) {
            renew_certificate(self.folder.path())?;
        }
        let (new, config) = (self.folder.path().join("new.toml"), self.folder.path().join("litequic.toml"));
        fs::write(&new, configuration(&self.places, generation))?;
        fs::rename(new, config)?;
        self.litequic.signal("HUP")
    }
}

impl Restarted {
    async fn start(folder: &Path, nginx: Option<PathBuf>, address: SocketAddr) -> Result<Self> {
        let process = spawn_restarted(folder, nginx.as_deref(), address)?;
        let mut started = Self { process, address, nginx, folder: folder.into() };
        started.process.listens(address).await?;
        Ok(started)
    }

    pub(crate) fn is_nginx(&self) -> bool {
        self.nginx.is_some()
    }

    /// Ends it by the signal `name`, and starts it again after `pause`.
    pub(crate) async fn again(&mut self, name: &str, pause: Duration) -> Result<()> {
        self.process.signal(name)?;
        self.process.ended().await.context("the origin does not end")?;
        sleep(pause).await;
        self.process = spawn_restarted(&self.folder, self.nginx.as_deref(), self.address)?;
        self.process.listens(self.address).await
    }
}

/// litequic's answer at its admin address to a GET of `path`.
pub(crate) async fn ask(admin: SocketAddr, path: &str) -> Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(body.to_owned())
    };
    timeout(PATIENCE, asked).await.context("the admin address does not answer")?
}

/// What is new in each configuration has no effect on clients: limits that are never reached, routes to the same
/// answers.
fn configuration(places: &Places, generation: u64) -> String {
    let n = generation;
    let Places { udp, admin, steady: [one, other], restarted } = places;
    let to = if n.is_multiple_of(2) { "one" } else { "other" };
    let level = if n % 3 == 1 { "debug" } else { "info" };
    let more_routes: String = (0..n % 4)
        .map(|route| format!("[[routes]]\nhost = \"{route}.example\"\npath_prefix = \"/{n}\"\norigin = \"one\"\n"))
        .collect();
    format!(
        "trusted_proxies = [\"10.0.{}.0/24\"]\n\
         listen.udp = \"{udp}\"\nlisten.workers = 2\nadmin.listen = \"{admin}\"\nlog.level = \"{level}\"\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
         [origin]\nurl = \"http://{restarted}\"\nidle_timeout = \"5s\"\nmax_connections = {}\n\
         [origins.one]\nurl = \"http://{one}\"\nidle_timeout = \"5s\"\nmax_connections = {}\n\
         [origins.other]\nurl = \"http://{other}\"\nidle_timeout = \"5s\"\n\
         [[routes]]\npath_prefix = \"{}\"\norigin = \"{to}\"\n{more_routes}\
         [limits]\nmax_headers = {}\nmax_streams = {}\nworker_send_buffer = \"{} MiB\"\n\
         worker_receive_buffer = \"{} MiB\"\nmax_body_bytes = \"{} GiB\"\n\
         [timeouts]\nidle = \"15s\"\nsend = \"{}s\"\nresponse_header = \"{}s\"\n",
        n % 256,
        400 + n % 100,
        400 + n % 7,
        origin::STEADY,
        100 + n % 50,
        100 + n % 28,
        32 << (n % 2),
        64 << (n / 2 % 2),
        1 + n % 10,
        60 + n % 10,
        // Shorter than `idle`: an origin that does not answer is distinguished from a litequic that does not.
        8 + n % 3,
    )
}

fn renew_certificate(folder: &Path) -> Result<()> {
    let made = make_self_signed(["localhost"])?;
    // litequic looks half a second after the last change: it does not see the one without the other.
    fs::write(folder.join("tls.crt"), made.cert_pem)?;
    fs::write(folder.join("tls.key"), made.key_pem)?;
    Ok(())
}

fn spawn_origin(addresses: &[SocketAddr]) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("origin").args(addresses.iter().map(ToString::to_string));
    Process::spawn(command, origin::SHORT)
}

fn spawn_restarted(folder: &Path, nginx: Option<&Path>, address: SocketAddr) -> Result<Process> {
    let Some(nginx) = nginx else { return spawn_origin(&[address]) };
    let mut command = guarded(nginx);
    command.arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
    Process::spawn(command, "[emerg]")
}

/// `program`, which the kernel ends with this process however that ends, where there is util-linux' `setpriv`.
fn guarded(program: &Path) -> Command {
    let Some(setpriv) = find("setpriv") else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// In `PATH`, or where Debian keeps servers.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|program| program.is_file())
}

/// nginx' files and its configuration: one process, no root, nothing outside `folder`; what is not a file goes to the
/// origin that stays, unbuffered.
fn prepare(folder: &Path, places: &Places) -> Result<()> {
    for content in FILES {
        let directory = folder.join(format!("www/files/{}", content.seed));
        fs::create_dir_all(&directory)?;
        let all = usize::try_from(content.length)?;
        fs::write(directory.join(content.length.to_string()), content.piece(0, all))?;
    }
    let (root, Places { restarted, steady: [steady, _], .. }) = (folder.display(), places);
    let temporary: String = FOLDERS.iter().map(|name| format!("{name}_temp_path {root}/{name};\n")).collect();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {root}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\n{temporary}access_log off;\ndefault_type application/octet-stream;\nsendfile on;\n\
         client_max_body_size 0;\n\
         # Slow readers are the point.\n\
         send_timeout 1h;\nproxy_send_timeout 1h;\nproxy_read_timeout 1h;\nclient_body_timeout 1h;\n\
         upstream steady {{ server {steady}; keepalive 32; }}\n\
         server {{\nlisten {restarted};\nroot {root}/www;\n\
         location /files/ {{ }}\n\
         location / {{\nproxy_pass http://steady;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_buffering off;\nproxy_request_buffering off;\n}}\n}}\n}}\n"
    );
    fs::write(folder.join("nginx.conf"), text)?;
    Ok(())
}
