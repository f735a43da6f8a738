//! The built program as its users run it: arguments in, lines and an exit status out.

use super::DEADLINE;
use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// Between two looks at a process.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A `litequic` command with `arguments`, not yet started.
pub(crate) fn command<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litequic"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A `litequic` that runs. Killed when dropped. Its calls block: in an async test use `spawn_blocking`, or start it
/// before the clients.
pub(crate) struct Binary {
    child: Child,
    lines: Receiver<String>,
    /// Every line that was waited for or passed over so far.
    pub(crate) said: Vec<String>,
}

impl Binary {
    /// Starts `command`, whose stdout and stderr become one stream of lines.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            // Ends with the process, whose pipe then closes.
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // An error means that nobody listens; the pipe is read on, as a full one would stop the process.
                    let _ = sender.send(line);
                }
            });
        }
        Self { child, lines, said: Vec::new() }
    }

    /// The process' ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `text`.
    pub(crate) fn line(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?} after {:#?}", self.said);
            };
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for a line that contains `text`, and reads the first address of it behind `mark`.
    pub(crate) fn address(&mut self, text: &str, mark: &str) -> SocketAddr {
        let line = self.line(text);
        let Some((_, rest)) = line.split_once(mark) else { panic!("no {mark:?} in {line:?}") };
        let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || "[]:.".contains(c))).unwrap_or(rest.len());
        rest[..end].parse().unwrap_or_else(|_| panic!("no address behind {mark:?} in {line:?}"))
    }

    /// Sends `signal` ("TERM", "INT", "HUP").
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the process' end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end; it said {:#?}", self.said);
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // Errors say that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
