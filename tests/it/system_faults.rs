//! Faults of the system beneath litequic: name servers that do not answer, a clock that jumps, a process that is stopped and
//! continued, a full disk. Always the real process.

use crate::support::{
    DEADLINE, io_key, needs,
    process::{Process, command, free_udp_port},
};
use litequic::tls::{SelfSigned, self_signed};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
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
        let made = self_signed(["localhost"]).unwrap();
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
        command(["get", "--head", "--timeout", "20s", "--ca", &self.path("tls.crt"), "--resolve", &resolve, &url])
    }
}

/// Waits until `done` holds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(10));
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
async fn a_name_server_that_does_not_answer_holds_one_thread_for_each_name_and_no_other_name() {
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

    let get = |path: &str| Process::spawn(join(&setup.get(path)));
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
