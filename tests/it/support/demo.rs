//! `litequic demo` as a process of its own, on free ports.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long it may take to serve: a slow machine's time to make a key and start its threads, with room.
const START: Duration = Duration::from_secs(20);

/// A demo that serves. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Demo {
    child: Child,
    /// Where it serves, on 127.0.0.1.
    pub(crate) port: u16,
    /// Its certificate's fingerprint, as Chromium takes it.
    pub(crate) spki: String,
}

impl Demo {
    /// Starts it and waits until it says that it serves.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_litequic"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // An error means that nobody asks any more; it is read on, as a full pipe would stop the demo.
                let _ = sender.send(line);
            }
        });
        let mut demo = Self { child, port: 0, spki: String::new() };
        while demo.port == 0 || demo.spki.is_empty() {
            let line = said.recv_timeout(START).expect("the demo says where it serves");
            if let Some(port) = after(&line, "serves HTTP/3 at https://127.0.0.1:") {
                demo.port = port.trim_end_matches('/').parse().unwrap();
            }
            if let Some(spki) = after(&line, "--ignore-certificate-errors-spki-list=") {
                demo.spki = spki.into();
            }
        }
        demo
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Errors say that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The word behind `mark`.
fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark)?.1.split_whitespace().next()
}
