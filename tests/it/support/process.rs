//! Processes: `litequic` as its users see it, and the programs that some tests need. What they print, how they
//! end. Killed when the test is over.

pub(crate) use super::ports::{free_tcp_port, free_udp_port};

use super::prelude::*;
use std::{ffi::OsStr, io::Read, path, process::Child, sync::Condvar, thread, time::Instant};
use tempfile::TempDir;

/// For anything that litequic is to do on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that runs.
pub(crate) struct Process {
    /// The directory of its default admin socket, unless the command has one.
    _runtime: Option<TempDir>,
    child: Child,
    stdout: Output,
    stderr: Output,
}

/// How a process ended, and all it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// What a process has written so far.
#[derive(Clone)]
struct Output(Arc<(Mutex<Written>, Condvar)>);

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    ended: bool,
}

impl Ended {
    /// Reason for the end, which is the last line of a JSON log, in the form that it has without a log.
    pub(crate) fn reason(&self) -> String {
        let last = self.stderr.lines().last().unwrap_or_default();
        let last: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{self:?}"));
        format!("litequic: {}\n", last["message"].as_str().unwrap())
    }

    /// What it wrote to standard output, if it ended well.
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// The answer of `litequic ctl` to a change, behind the line that names the process.
    pub(crate) fn answer(self) -> String {
        let all = self.success();
        let (process, answer) = all.split_once('\n').unwrap();
        assert!(process.starts_with("process "), "{all}");
        answer.to_owned()
    }
}

impl Output {
    fn collect(mut from: impl Read + Send + 'static) -> Self {
        let output = Self(Arc::default());
        let writer = output.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                let read = from.read(&mut chunk).unwrap_or(0);
                let mut written = writer.0.0.lock().unwrap();
                written.bytes.extend_from_slice(&chunk[..read]);
                written.ended = read == 0;
                writer.0.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        output
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap().bytes).into_owned()
    }

    /// Waits until `done` holds, the output has ended, or `deadline` has come; false when it never held.
    fn wait(&self, deadline: Instant, done: impl Fn(&str, bool) -> bool) -> bool {
        let (written, changed) = &*self.0;
        let holds = |written: &Written| done(&String::from_utf8_lossy(&written.bytes), written.ended);
        let pending = |written: &mut Written| !holds(written) && !written.ended;
        let (written, _) = changed
            .wait_timeout_while(written.lock().unwrap(), deadline.saturating_duration_since(Instant::now()), pending)
            .unwrap();
        holds(&written)
    }
}

/// The program: that of this build, or the one that `LITEQUIC_TEST_PROGRAM` names, built from the same sources in
/// another way.
pub(crate) fn litequic_program() -> PathBuf {
    let named = env::var_os("LITEQUIC_TEST_PROGRAM").map(|program| path::absolute(program).unwrap());
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_litequic").into())
}

/// `litequic` with `arguments`, in an environment that changes nothing of it.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(litequic_program());
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("SSLKEYLOGFILE")
        .env_remove("NO_COLOR")
        .env_remove("RUNTIME_DIRECTORY")
        .env_remove("LITEQUIC_ADMIN")
        .env_remove("RUST_BACKTRACE");
    command
}

/// `command` where the kernel refuses `what`, as containers do: a key of `REFUSED` in tests/it/without.py. None where
/// there is no Python.
pub(crate) fn without(what: &str, command: &Command) -> Option<Command> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/without.py");
    let mut python = Command::new(needs::program("python3")?);
    python.args([script, what]).arg(command.get_program()).args(command.get_args()).env_remove("RUST_LOG");
    Some(python)
}

/// Writes `made` into `folder` as `tls.crt` and `tls.key`.
pub(crate) fn write_certificate(folder: impl AsRef<Path>, made: &SelfSigned) {
    fs::write(folder.as_ref().join("tls.crt"), &made.cert_pem).unwrap();
    fs::write(folder.as_ref().join("tls.key"), &made.key_pem).unwrap();
}

/// Runs `litequic` with `arguments` to its end.
pub(crate) fn litequic<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    Process::spawn(command(arguments)).end()
}

impl Process {
    pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::spawn(command(arguments))
    }

    pub(crate) fn spawn(command: Command) -> Self {
        Self::spawn_with(command, Stdio::null())
    }

    /// The same, with `stdin` as its standard input.
    pub(crate) fn spawn_with(mut command: Command, stdin: impl Into<Stdio>) -> Self {
        // Each has an admin socket of its own, as those of several users have.
        let has_runtime = command.get_envs().any(|(name, value)| name == "XDG_RUNTIME_DIR" && value.is_some());
        let runtime = (!has_runtime).then(|| tempfile::tempdir().unwrap());
        if let Some(runtime) = &runtime {
            command.env("XDG_RUNTIME_DIR", runtime.path());
        }
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let stdout = Output::collect(child.stdout.take().unwrap());
        let stderr = Output::collect(child.stderr.take().unwrap());
        Self { _runtime: runtime, child, stdout, stderr }
    }

    /// `litequic demo` on a free port with `more` arguments, and its port.
    pub(crate) fn demo(more: &[&str]) -> (Self, u16) {
        let process = Self::start([&["demo", "--listen", "127.0.0.1:0"], more].concat());
        process.await_stdout("Ctrl-C ends the demo");
        let text = process.stdout();
        let (_, rest) = text.split_once("https://127.0.0.1:").unwrap();
        let port = rest.split_once('/').unwrap().0.parse().unwrap();
        (process, port)
    }

    /// The fingerprint of a demo's certificate, as Chromium takes it.
    pub(crate) fn spki(&self) -> String {
        let text = self.stdout();
        let (_, rest) = text.split_once("--ignore-certificate-errors-spki-list=").unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard output holds `text`.
    pub(crate) fn await_stdout(&self, text: &str) {
        self.await_stdout_within(PATIENCE, text);
    }

    /// The same, for what takes longer.
    pub(crate) fn await_stdout_within(&self, limit: Duration, text: &str) {
        let found = self.stdout.wait(Instant::now() + limit, |written, _| written.contains(text));
        assert!(found, "no {text:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
    }

    /// Waits until standard output holds `text`; false if the output has ended before.
    pub(crate) fn stdout_has(&self, text: &str) -> bool {
        self.stdout.wait(Instant::now() + PATIENCE, |written, _| written.contains(text))
    }

    /// Waits until standard error holds `text`.
    pub(crate) fn await_stderr(&self, text: &str) {
        let found = self.stderr.wait(Instant::now() + PATIENCE, |written, _| written.contains(text));
        assert!(found, "no {text:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
    }

    /// Waits until the log has litequic's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.await_stderr("listening for HTTP/3");
        let log = self.stderr();
        let line = log.lines().find(|line| line.contains("listening for HTTP/3")).unwrap();
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["address"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the signal `name`: TERM, INT, HUP.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends the signal `name`, and waits for the end.
    pub(crate) fn end_by(self, name: &str) -> Ended {
        self.signal(name);
        self.end()
    }

    /// Waits for the end.
    pub(crate) fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// Waits for the end, which is to come before `limit`.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        // Both outputs end with the process.
        let ended = self.stdout.wait(deadline, |_, ended| ended) && self.stderr.wait(deadline, |_, ended| ended);
        assert!(ended, "it still runs after {limit:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
        let status = self.child.wait().unwrap();
        Ended { code: status.code(), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors say that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
