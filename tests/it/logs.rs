//! Standard error and output that take nothing, or have no room: litequic serves, counts the lines that it drops,
//! reports them once it can, and ends in time.

use crate::{
    drain::ask,
    support::{prelude::*, tls::credulous},
};
use rustix::{
    fs::{OFlags, fcntl_getfl},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::Value as Json;
use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    process::{Child, ExitStatus},
    thread::{self, JoinHandle},
    time::Instant,
};

/// Longer than every bound of an end added up: of the drain, the log, the access log, and the last line.
const ENDED: Duration = Duration::from_secs(20);
/// What a pipe holds by default (pipe(7)).
const PIPE: usize = 64 * 1024;

/// litequic as a process, of which no output is read.
struct Unread {
    child: Child,
    /// Configuration and certificate.
    _directory: tempfile::TempDir,
    udp: SocketAddr,
    tcp: SocketAddr,
    probes: SocketAddr,
    cert_pem: String,
}

/// How an [`Unread`] starts.
struct Start<'a> {
    stderr: Stdio,
    stdout: Stdio,
    /// More of the configuration.
    more: &'a str,
    environment: &'a [(&'a str, &'a str)],
}

impl Start<'_> {
    fn logging_to(stderr: impl Into<Stdio>) -> Self {
        Self { stderr: stderr.into(), stdout: Stdio::null(), more: "", environment: &[] }
    }
}

impl Unread {
    /// Starts litequic before the demo's origin, and waits until it serves.
    async fn start(start: Start<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        write_certificate(directory.path(), &made);
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (udp, tcp, probes) = (local(free_udp_port()), local(free_tcp_port()), local(free_tcp_port()));
        let origin = origin::demo().await;
        let config = format!(
            "{}listen.udp = \"{udp}\"\nlisten.tcp = \"{tcp}\"\nadmin.probes = \"{probes}\"\n{}\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[origin]\nurl = \"http://{origin}\"\n",
            io_key(),
            start.more,
        );
        let file = directory.path().join("litequic.toml");
        fs::write(&file, config).unwrap();
        let mut command = command(["run", "--config", file.to_str().unwrap()]);
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.envs(start.environment.iter().copied()).stdin(Stdio::null()).stdout(start.stdout).stderr(start.stderr);
        let child = command.spawn().unwrap();
        let unread = Self { child, _directory: directory, udp, tcp, probes, cert_pem: made.cert_pem };
        until("readiness", async || TcpStream::connect(probes).await.is_ok() && unread.ask("/readyz").await.0 == 200)
            .await;
        unread
    }

    async fn ask(&self, path: &str) -> (u16, String) {
        ask(self.probes, &format!("GET {path}")).await
    }

    /// The value of the metric `name`, with its labels.
    async fn count(&self, name: &str) -> u64 {
        let (_, text) = self.ask("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    async fn dropped(&self) -> u64 {
        self.count("litequic_log_lines_total{result=\"dropped\"}").await
    }

    /// A request each over HTTP/3 and HTTP/1.1 is answered.
    async fn serves(&self) {
        let transport = quinn::TransportConfig::default();
        let quic = Quic::connect(self.udp, "localhost", &self.cert_pem, transport).await;
        assert_eq!(Client::over(quic, "localhost").await.get("/bytes/1").await.status, 200);
        let mut tls = Tls::connect(self.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
        tls.say("GET /bytes/1 HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(tls.head().await.starts_with("http/1.1 200"));
        assert_eq!(self.ask("/healthz").await.0, 200);
    }

    /// Makes handshakes, of which rustls logs all there is to know at `trace`, until lines were dropped.
    async fn fill_the_log(&self) {
        let full = async {
            while self.dropped().await == 0 {
                for _ in 0..20 {
                    Tls::connect(self.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
                }
            }
        };
        within("a full log", full).await;
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
    }

    /// Waits for the end.
    async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + ENDED;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(Instant::now() < deadline, "it still runs after {ENDED:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a request that panics (`LITEQUIC_PANIC_IN`). Its client stays connected.
    async fn panic(&self) -> Tls {
        let mut tls = Tls::connect(self.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
        tls.say("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        tls
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // Errors say that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The environment in which [`Unread::fill_the_log`] works.
const LOUD: (&str, &str) = ("RUST_LOG", "rustls=trace");

/// A pipe that has no room.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(&[b'\n'; PIPE]).unwrap();
    (reader, writer)
}

/// Reads all from now on.
fn read_on(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        // A terminal whose last user has closed it fails (EIO).
        let _ = from.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    })
}

/// The events of a log, none of them cut or merged.
fn events(text: &str) -> Vec<Json> {
    let event = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().filter(|line| !line.is_empty()).map(event).collect()
}

#[tokio::test]
async fn an_unread_log_pipe_drops_counted_lines_and_blocks_no_worker() {
    let (reader, writer) = io::pipe().unwrap();
    let mut litequic = Unread::start(Start { environment: &[LOUD], ..Start::logging_to(writer) }).await;
    litequic.fill_the_log().await;
    litequic.serves().await;
    let reading = read_on(reader);
    let queued = async {
        let name = "litequic_log_lines_total{result=\"queued\"}";
        let mut before = litequic.dropped().await;
        // Room again: handshakes log, and no line is dropped.
        loop {
            let (queued, dropped) = (litequic.count(name).await, litequic.dropped().await);
            litequic.serves().await;
            if dropped == before && litequic.dropped().await == dropped && litequic.count(name).await > queued {
                return dropped;
            }
            before = dropped;
        }
    };
    let dropped = within("room in the log", queued).await;
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));
    let text = reading.join().unwrap();
    let events = events(&text);
    let missing = |event: &&Json| event["message"].as_str().unwrap().starts_with("lines are missing from the log");
    let missing: Vec<u64> = events.iter().filter(missing).map(|event| event["lines"].as_u64().unwrap()).collect();
    assert_eq!((missing.iter().sum::<u64>(), missing.is_empty()), (dropped, false));
    assert_eq!(events.last().unwrap()["message"], "draining: requests may finish", "an end in order writes every line");
    assert!(!text.contains("\"log."), "records of libraries have no position in their sources");
    assert!(events.iter().any(|event| event["target"].as_str().unwrap().starts_with("rustls::")), "{text}");
}

#[tokio::test]
async fn standard_error_of_every_kind_may_take_nothing_and_keeps_its_flags() {
    let (_pipe, pipe) = io::pipe().unwrap();
    // journald reads a stream socket; a datagram socket is not read either.
    let (_stream, stream) = UnixStream::pair().unwrap();
    let (_datagrams, datagrams) = UnixDatagram::pair().unwrap();
    let (_terminal, terminal) = terminal();
    let kinds: [OwnedFd; 4] = [pipe.into(), stream.into(), datagrams.into(), terminal];
    for stderr in kinds {
        let kind = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stderr))).unwrap();
        let shared = stderr.try_clone().unwrap();
        let mut litequic = Unread::start(Start { environment: &[LOUD], ..Start::logging_to(stderr) }).await;
        litequic.fill_the_log().await;
        litequic.serves().await;
        assert!(!fcntl_getfl(&shared).unwrap().contains(OFlags::NONBLOCK), "{kind:?}");
        litequic.signal("TERM");
        assert_eq!(litequic.ended().await.code(), Some(0), "{kind:?}");
    }
}

/// A terminal: who reads what is written to it, and who writes.
fn terminal() -> (OwnedFd, OwnedFd) {
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let name = ptsname(&reader, Vec::new()).unwrap().into_string().unwrap();
    (reader, File::options().read(true).write(true).open(name).unwrap().into())
}

#[tokio::test]
async fn every_kind_of_standard_error_gets_every_line_whole() {
    let (pipe, pipe_writer) = io::pipe().unwrap();
    let (stream, stream_writer) = UnixStream::pair().unwrap();
    let (reader, writer) = terminal();
    let file = tempfile::NamedTempFile::new().unwrap();
    let kinds: [(Box<dyn Read + Send>, OwnedFd, bool); 4] = [
        (Box::new(pipe), pipe_writer.into(), false),
        (Box::new(stream), stream_writer.into(), false),
        (Box::new(File::from(reader)), writer, true),
        (Box::new(file.reopen().unwrap()), file.reopen().unwrap().into(), false),
    ];
    for (reader, writer, terminal) in kinds {
        // A file is read once it is written.
        let is_file = File::from(writer.try_clone().unwrap()).metadata().unwrap().is_file();
        let (mut reading, mut waiting) = if is_file { (None, Some(reader)) } else { (Some(read_on(reader)), None) };
        let mut litequic = Unread::start(Start::logging_to(writer)).await;
        litequic.serves().await;
        litequic.signal("TERM");
        assert_eq!(litequic.ended().await.code(), Some(0));
        let reading = reading.take().unwrap_or_else(|| read_on(waiting.take().unwrap()));
        let text = reading.join().unwrap();
        let last = text.lines().last().unwrap();
        assert!(text.contains("listening for HTTP/3") && last.contains("draining"), "{text}");
        match terminal {
            true => assert!(last.contains('\x1b'), "people read it: {last}"),
            false => assert_eq!(events(&text).last().unwrap()["level"], "INFO"),
        }
    }
}

#[tokio::test]
async fn lines_beyond_a_burst_are_summed_up() {
    let (reader, writer) = io::pipe().unwrap();
    let reading = read_on(reader);
    let mut litequic = Unread::start(Start::logging_to(writer)).await;
    let mut tls = Tls::connect(litequic.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
    for _ in 0..150 {
        tls.say("GET /fail/garbage HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let head = tls.head().await;
        assert!(head.starts_with("http/1.1 502"), "{head}");
        let length = head.split_once("content-length: ").unwrap().1.split_once('\r').unwrap().0;
        tls.exactly(length.parse().unwrap()).await;
    }
    let suppressed = litequic.count("litequic_log_lines_total{result=\"suppressed\"}").await;
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));
    let events = events(&reading.join().unwrap());
    let answers =
        events.iter().filter(|event| event["message"] == "answered with litequic's own error response").count();
    let summaries: Vec<&Json> =
        events.iter().filter(|event| event["message"].as_str().unwrap().contains(" more in the last ")).collect();
    assert!(suppressed >= 100 && answers >= 100, "{suppressed}, {answers}");
    let origin = summaries.iter().find(|event| event["origin"].is_string()).unwrap();
    assert_eq!(origin["level"], "WARN");
}

#[tokio::test]
async fn a_panic_ends_the_process_while_its_logs_are_blocked() {
    let (mut reader, writer) = full_pipe();
    let more = "access_log.path = \"stderr\"";
    // The log's thread panics behind its first write, for which there is no room yet.
    let environment = &[("LITEQUIC_PANIC_IN", "log")];
    let mut litequic = Unread::start(Start { more, environment, ..Start::logging_to(writer) }).await;
    let mut tls = Tls::connect(litequic.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
    let path = "x".repeat(1500);
    for _ in 0..2 * PIPE / path.len() {
        tls.say(format!("GET /status/204?{path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {path}\r\n\r\n")).await;
        assert!(tls.head().await.starts_with("http/1.1 204"));
    }
    let lines = async {
        while litequic.count("litequic_access_log_lines_total{result=\"queued\"}").await == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    within("lines of the access log", lines).await;
    assert!(litequic.child.try_wait().unwrap().is_none());
    reader.read_exact(&mut [0; 8192]).unwrap();
    assert_eq!(litequic.ended().await.code(), Some(70));
}

#[tokio::test]
async fn a_panics_line_is_the_last_after_a_blocked_log() {
    let (reader, writer) = io::pipe().unwrap();
    let environment = &[LOUD, ("LITEQUIC_PANIC_IN", "request")];
    let mut litequic = Unread::start(Start { environment, ..Start::logging_to(writer) }).await;
    litequic.fill_the_log().await;
    let _client = litequic.panic().await;
    let reading = read_on(reader);
    assert_eq!(litequic.ended().await.code(), Some(70));
    let text = reading.join().unwrap();
    let events = events(&text);
    let last = events.last().unwrap();
    assert_eq!(last["message"], "internal error: a thread panicked, stopping");
    assert_eq!(last["panic"], "panic requested by the environment, in request");
}

#[tokio::test]
async fn a_panic_of_the_logs_own_thread_is_the_last_line_too() {
    let (reader, writer) = io::pipe().unwrap();
    let reading = read_on(reader);
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost"]).unwrap();
    let (cert, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    fs::write(&cert, &made.cert_pem).unwrap();
    fs::write(&key, &made.key_pem).unwrap();
    let mut command = command(["run", "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:9"]);
    command.arg("--cert").arg(cert).arg("--key").arg(key).env("LITEQUIC_PANIC_IN", "log");
    command.env("XDG_RUNTIME_DIR", directory.path());
    let mut child = command.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
    drop(command);
    let ended = spawn_blocking(move || child.wait().unwrap());
    assert_eq!(within("the end", ended).await.unwrap().code(), Some(70));
    let events = events(&reading.join().unwrap());
    let last = events.last().unwrap();
    assert_eq!(
        (&last["thread"], &last["panic"]),
        (&"log".into(), &"panic requested by the environment, in log".into())
    );
}

#[tokio::test]
async fn logs_on_a_full_disk_drop_counted_lines() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let more = "access_log.path = \"/dev/full\"";
    let mut litequic = Unread::start(Start { more, ..Start::logging_to(full()) }).await;
    litequic.serves().await;
    for name in ["litequic_log_lines_total{result=\"lost\"}", "litequic_access_log_lost_lines_total"] {
        until(name, async || litequic.count(name).await != 0).await;
    }
    litequic.serves().await;
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));
}

#[tokio::test]
async fn standard_output_gets_the_lines_of_the_access_log_alone() {
    for word in ["stdout", "-"] {
        let (reader, writer) = io::pipe().unwrap();
        let reading = read_on(reader);
        let more = format!("access_log.path = \"{word}\"");
        let start = Start { stdout: writer.into(), more: &more, ..Start::logging_to(Stdio::null()) };
        let mut litequic = Unread::start(start).await;
        litequic.serves().await;
        litequic.signal("TERM");
        assert_eq!(litequic.ended().await.code(), Some(0));
        let lines = events(&reading.join().unwrap());
        let paths: Vec<_> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/bytes/1"; 2], "{word}");
    }
}

/// A pipe that was closed, and one that has no room, lose lines, and no request.
#[tokio::test]
async fn a_blocked_standard_output_drops_counted_access_log_lines() {
    let more = "access_log.path = \"stdout\"";
    let (closed, writer) = io::pipe().unwrap();
    drop(closed);
    let start = Start { stdout: writer.into(), more, ..Start::logging_to(Stdio::null()) };
    let mut litequic = Unread::start(start).await;
    litequic.serves().await;
    until("lost lines", async || litequic.count("litequic_access_log_lost_lines_total").await >= 2).await;
    litequic.serves().await;
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));

    let (_reader, writer) = full_pipe();
    let start = Start { stdout: writer.into(), more, ..Start::logging_to(Stdio::null()) };
    let mut litequic = Unread::start(start).await;
    for _ in 0..10 {
        litequic.serves().await;
    }
    assert_eq!(litequic.count("litequic_access_log_lost_lines_total").await, 0, "they wait for the reader");
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));
}

#[tokio::test]
async fn standard_output_that_takes_nothing_stops_neither_litequic_nor_the_demo() {
    let (_reader, writer) = full_pipe();
    let mut litequic = Unread::start(Start { stdout: writer.into(), ..Start::logging_to(Stdio::null()) }).await;
    litequic.serves().await;
    litequic.signal("TERM");
    assert_eq!(litequic.ended().await.code(), Some(0));

    let (_reader, writer) = full_pipe();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
    let mut demo = command(["demo", "--listen", &address.to_string()]);
    let child = demo.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    drop(demo);
    let directory = tempfile::tempdir().unwrap();
    let mut demo =
        Unread { child, _directory: directory, udp: address, tcp: address, probes: address, cert_pem: String::new() };
    until("the demo", async || TcpStream::connect(address).await.is_ok()).await;
    // More lines than the pipe and the queue hold.
    let mut tls = Tls::connect(address, "localhost", credulous(&["http/1.1"])).await.unwrap();
    let path = "x".repeat(4000);
    for _ in 0..3 * PIPE / path.len() {
        tls.say(format!("GET /status/204?{path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert!(tls.head().await.starts_with("http/1.1 204"));
    }
    demo.signal("INT");
    assert_eq!(demo.ended().await.code(), Some(0));
}
