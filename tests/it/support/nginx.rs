//! nginx as it comes from the distribution, as an origin: started by a test with a configuration and a folder of its
//! own, killed with the test.

use super::prelude::*;
use std::{
    fmt::Write as _,
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::Child,
    thread::sleep,
    time::Instant,
};
use tempfile::TempDir;

/// A free port may be another process' a moment later.
const ATTEMPTS: u32 = 5;
/// Everything that nginx would otherwise put below /var.
const FOLDERS: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// A running nginx.
pub(crate) struct Nginx {
    child: Child,
    folder: TempDir,
    pub(crate) address: SocketAddr,
    server: String,
}

/// A line of its access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which connection the request came over.
    pub(crate) connection: u64,
    pub(crate) method: String,
    /// As it stood in the request line.
    pub(crate) target: String,
    pub(crate) status: u16,
}

impl Nginx {
    /// Starts it with `server` in its server block. `None` where there is no nginx: the test is to return then.
    pub(crate) fn start(server: &str) -> Option<Self> {
        let program = needs::program("nginx")?;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        for _ in 0..ATTEMPTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
            if let Some(child) = run(&program, &folder, free, server) {
                return Some(Self { child, folder, address: free, server: server.to_owned() });
            }
        }
        panic!("nginx does not start: {}", fs::read_to_string(folder.path().join("error.log")).unwrap_or_default());
    }

    /// Its Unix socket.
    pub(crate) fn socket(&self) -> OriginAddress {
        OriginAddress::Unix(self.folder.path().join("socket"))
    }

    /// Where `path` of a URL lies on disk.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join("www").join(path.trim_start_matches('/'))
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Starts it again where it was.
    pub(crate) fn start_again(&mut self) {
        let program = needs::program("nginx").unwrap();
        fs::remove_file(self.folder.path().join("socket")).unwrap();
        self.child = run(&program, &self.folder, self.address, &self.server).expect("nginx does not start again");
    }

    /// The requests that it has finished, once there are `count` or more.
    pub(crate) fn seen(&self, count: usize) -> Vec<Seen> {
        let started = Instant::now();
        loop {
            let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            let seen: Vec<_> = log.lines().map(Seen::parse).collect();
            if seen.len() >= count {
                return seen;
            }
            assert!(started.elapsed() < DEADLINE, "nginx has seen {} of {count} requests", seen.len());
            sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seen {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let [connection, method, target, status] = words[..] else { panic!("an unknown line: {line}") };
        Self {
            connection: connection.parse().unwrap(),
            method: method.into(),
            target: target.into(),
            status: status.parse().unwrap(),
        }
    }
}

/// Starts nginx and waits until it listens; `None` if it ends instead.
fn run(program: &Path, folder: &TempDir, address: SocketAddr, server: &str) -> Option<Child> {
    let path = folder.path().join("nginx.conf");
    fs::write(&path, configuration(folder, address, server)).unwrap();
    let mut child = Command::new(program)
        .arg("-c")
        .arg(&path)
        .arg("-e")
        .arg(folder.path().join("error.log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    loop {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        // Both, so that neither is missing when a test begins.
        let listens = TcpStream::connect(address).is_ok() && UnixStream::connect(folder.path().join("socket")).is_ok();
        if listens && child.try_wait().unwrap().is_none() {
            return Some(child);
        }
        assert!(started.elapsed() < DEADLINE, "nginx does not listen");
        sleep(LOOK_AGAIN);
    }
}

/// One process, no root, nothing outside `folder`.
fn configuration(folder: &TempDir, address: SocketAddr, server: &str) -> String {
    let folder = folder.path().display();
    let mut text = format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log info;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\n\
         log_format seen '$connection $request_method $request_uri $status';\naccess_log {folder}/access.log seen;\n\
         types {{ text/html html; text/plain txt; }}\ndefault_type application/octet-stream;\n"
    );
    for name in FOLDERS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}_temp_path {folder}/{name};");
    }
    let _ = write!(
        text,
        "server {{\nlisten {address};\nlisten unix:{folder}/socket;\nroot {folder}/www;\n{server}\n}}\n}}\n"
    );
    text
}
