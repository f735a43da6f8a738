//! The admin socket: `litequic ctl` with nothing configured, one process's place taken by another, and what is no
//! litequic.

use crate::support::{prelude::*, process::litequic_program};
use serde_json::Value as Json;
use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    thread,
};
use tempfile::TempDir;

/// A user that is neither root nor the tests'.
const STRANGER: &str = "65534";

/// A directory for sockets, and one with a configuration that says nothing of administration but `more`.
struct Setup {
    runtime: TempDir,
    folder: TempDir,
}

impl Setup {
    async fn new(more: &str) -> Self {
        let origin = origin::demo().await;
        let setup = Self { runtime: tempfile::tempdir().unwrap(), folder: tempfile::tempdir().unwrap() };
        let made = make_self_signed(["localhost"]).unwrap();
        let write = |name: &str, text: &str| fs::write(setup.folder.path().join(name), text).unwrap();
        write("tls.crt", &made.cert_pem);
        write("tls.key", &made.key_pem);
        write("token", "correct-horse-battery-staple");
        setup.configure(&format!(
            "{}listen.udp = \"127.0.0.1:{}\"\nlisten.tcp = []\nlisten.workers = 1\n{more}\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[origin]\nurl = \"http://{origin}\"\n",
            io_key(),
            free_udp_port(),
        ));
        setup
    }

    fn configure(&self, text: &str) {
        fs::write(self.folder.path().join("litequic.toml"), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).current_dir(self.folder.path());
        command
    }

    /// Another litequic.
    fn run(&self) -> Process {
        let process = Process::spawn(self.command(&["run", "--config", "litequic.toml"]));
        process.address();
        process
    }

    /// `litequic ctl` with nothing but what the environment has. It looks at no other place of this machine.
    fn ctl(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(&[&["ctl"], arguments].concat());
        command.env("RUNTIME_DIRECTORY", self.socket().parent().unwrap());
        Process::spawn(command).end()
    }

    /// The beginning of the answer of `process` to a request that changes something.
    fn answered_by(&self, process: &Process) -> String {
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        format!("process {}, {}\n", process.id(), folder.join("litequic.toml").display())
    }

    fn status(&self, arguments: &[&str]) -> Json {
        serde_json::from_str(&self.ctl(&[&["status", "--json"], arguments].concat()).success()).unwrap()
    }

    /// The default socket.
    fn socket(&self) -> PathBuf {
        self.runtime.path().join("litequic/admin.sock")
    }

    fn text(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[tokio::test]
async fn ctl_works_with_nothing_configured() {
    let setup = Setup::new("admin.token_file = \"token\"").await;
    let process = setup.run();
    let socket = setup.socket();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("admin.socket")).unwrap();
    let event: Json = serde_json::from_str(line).unwrap();
    assert_eq!(event["message"], "listening for admin requests");
    assert_eq!(event["path"], socket.to_str().unwrap());

    // Neither the token nor a rule of Host.
    assert_eq!(setup.status(&[])["phase"], "ready");
    assert_eq!(setup.ctl(&["health"]).success(), "ok\n");
    let answered = setup.answered_by(&process);
    assert_eq!(setup.ctl(&["reload"]).success(), format!("{answered}nothing has changed\n"));
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /config HTTP/1.1\r\nHost: rebound.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\nserver: litequic\r\n"), "{answer}");

    assert_eq!(setup.ctl(&["drain"]).success(), format!("{answered}draining\n"));
    assert_eq!(process.end().code, Some(0));
    assert_eq!(fs::read_dir(socket.parent().unwrap()).unwrap().count(), 0, "the file goes with its process");
}

#[tokio::test]
async fn ctl_acts_on_the_one_of_two_processes_that_is_named() {
    let (setup, other) = (Setup::new("").await, Setup::new("").await);
    let first = setup.run();
    let (socket, taken) = (setup.socket(), format!("process {} answers there", first.id()));
    let second = {
        let mut command = other.command(&["run", "--config", "litequic.toml"]);
        command.env("XDG_RUNTIME_DIR", setup.runtime.path());
        Process::spawn(command)
    };
    second.address();
    let own = socket.with_file_name(format!("admin-{}.sock", second.id()));
    second.await_stderr(&format!("{taken}: this process has an admin socket of its own"));
    let (by_first, by_second) = (setup.answered_by(&first), other.answered_by(&second));
    for what in [&["drain"][..], &["status"], &["reload"]] {
        let ended = setup.ctl(what);
        let expected = format!(
            "litequic: several litequic processes run; select one with --config FILE or --admin PATH:\n  {}: {by_first}  \
             {}: {by_second}",
            socket.display(),
            own.display()
        );
        assert_eq!((ended.code, ended.stderr), (Some(64), expected));
    }
    let file = other.text("litequic.toml");
    assert_eq!(setup.ctl(&["reload", "--config", &file]).success(), format!("{by_second}nothing has changed\n"));
    assert_eq!(
        setup.ctl(&["--config", "litequic.toml", "http3", "on"]).success(),
        format!("{by_first}HTTP/3 is on, as configured\n")
    );
    let refused = setup.ctl(&["maintenance", "on", "--route", "absent", "--admin", own.to_str().unwrap()]);
    assert!(refused.code == Some(1) && refused.stderr.contains(by_second.trim_end()), "{refused:?}");
    let refused = setup.ctl(&["drain", "--config", "other.toml"]);
    assert!(
        refused.code == Some(69) && refused.stderr.contains("no litequic with a default socket runs by other.toml\n"),
        "{refused:?}"
    );
    assert!(setup.ctl(&["drain", "--config", &file]).success().starts_with(&by_second));
    assert!(second.end().code == Some(0) && socket.exists() && !own.exists(), "the file is the first's");
    assert_eq!(setup.ctl(&["ready"]).success(), "ready\n");

    let named = Setup::new(&format!("admin.socket = {socket:?}")).await;
    let ended = Process::spawn(named.command(&["run", "--config", "litequic.toml"])).end();
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let reason = format!("litequic: cannot listen on admin.socket = {socket:?}: {taken}\n");
    assert!(ended.reason().ends_with(&reason), "{ended:?}");

    let named = Setup::new("admin.socket = \"own.sock\"").await;
    let _third = named.run();
    for admin in [named.text("own.sock"), "./own.sock".into()] {
        assert_eq!(named.status(&["--admin", &admin])["phase"], "ready");
    }
    drop(first);
    assert!(socket.exists(), "a process that was killed leaves its file");
    let again = setup.run();
    assert_eq!(setup.status(&[])["phase"], "ready", "a stale socket is replaced");
    again.end_by("TERM").success();
    assert!(!socket.exists());
}

#[tokio::test]
async fn one_of_two_concurrent_starts_gets_the_default_socket() {
    let (setup, other) = (Setup::new("").await, Setup::new("").await);
    let both = [&setup, &other].map(|own| {
        let mut command = own.command(&["run", "--config", "litequic.toml"]);
        command.env("XDG_RUNTIME_DIR", setup.runtime.path());
        Process::spawn(command)
    });
    for process in &both {
        process.await_stderr("\"admin.socket\"");
    }
    let own = both.each_ref().map(|process| setup.socket().with_file_name(format!("admin-{}.sock", process.id())));
    assert!(setup.socket().exists() && own.iter().filter(|own| own.exists()).count() == 1, "{own:?}");
    for config in [&setup, &other].map(|setup| setup.text("litequic.toml")) {
        assert_eq!(setup.ctl(&["ready", "--config", &config]).success(), "ready\n");
    }
}

/// An upgrade with nothing configured for it: the new process is started by the old one.
#[tokio::test]
async fn sigusr2_starts_a_process_that_takes_over() {
    let setup = Setup::new("timeouts.drain_grace = \"0s\"").await;
    let old = setup.run();
    let sockets = || fs::read_dir(setup.socket().parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(sockets().count(), 2);
    // A process that an operator starts takes nothing over: its addresses are in use.
    let ended = Process::spawn(setup.command(&["run", "--config", "litequic.toml"])).end();
    assert!(ended.code == Some(69) && ended.stderr.contains("in use"), "{ended:?}");
    old.signal("USR2");
    old.await_stderr("took over: the previous process drains and ends");
    let generation = || (0..100).map(|_| setup.status(&[])["generation"].clone()).find(|generation| *generation == 1);
    assert!(generation().is_some());
    assert_eq!(sockets().count(), 2, "those of the new process");
    // The new process has the old one's outputs.
    setup.ctl(&["drain"]).success();
    assert_eq!(old.end().code, Some(0));
    assert_eq!(sockets().count(), 0);
}

#[tokio::test]
async fn no_socket_is_wanted_or_none_is_possible() {
    let setup = Setup::new("admin.socket = \"\"").await;
    let process = setup.run();
    assert!(!setup.socket().exists() && !process.stderr().contains("admin socket"), "{}", process.stderr());
    process.end_by("TERM").success();
    // A file has the name of the directory.
    let setup = Setup::new("").await;
    fs::write(setup.runtime.path().join("litequic"), "").unwrap();
    let process = setup.run();
    assert!(process.stderr().contains("Not a directory (os error 20)"), "{}", process.stderr());
    process.end_by("TERM").success();
}

#[tokio::test]
async fn an_upgrade_takes_the_socket_over() {
    let setup = Setup::new("admin.handover = \"handover.sock\"\ntimeouts.drain_grace = \"0s\"").await;
    let old = setup.run();
    assert_eq!(setup.status(&[])["generation"], 0);
    let new = setup.run();
    new.await_stderr("admin.socket");
    assert!(!new.stderr().contains("no admin socket"), "{}", new.stderr());
    assert_eq!(setup.status(&[])["generation"], 1);
    assert_eq!(old.end().code, Some(0));
    assert_eq!(setup.status(&[])["generation"], 1, "the old process leaves the file");
    new.end_by("TERM").success();
    assert!(!setup.socket().exists());
}

#[tokio::test]
async fn another_user_is_told_whose_the_socket_is_and_never_answered() {
    let (Some(setpriv), true) = (needs::program("setpriv"), rustix::process::geteuid().is_root()) else { return };
    let setup = Setup::new("").await;
    let process = setup.run();
    let socket = setup.socket();
    for folder in [setup.runtime.path(), socket.parent().unwrap()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ctl = || {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", STRANGER, "--clear-groups"]).arg(litequic_program()).args(["ctl", "status"]);
        command.arg("--admin").arg(&socket);
        Process::spawn(command).end()
    };
    let ended = ctl();
    let beginning =
        format!("litequic: {}: permission denied: only root may use it, and this is user ", socket.display());
    assert!(ended.code == Some(69) && ended.stderr.starts_with(&beginning), "{ended:?}");
    assert!(ended.stderr.ends_with("\n  sudo litequic ctl status\n"), "{ended:?}");
    // Whatever an operator does to the mode.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = ctl();
    let expected = format!("litequic: {}: the connection was closed without an answer\n", socket.display());
    assert_eq!((ended.code, ended.stderr), (Some(69), expected));
    process.await_stderr("closed a connection of another user to the admin socket");
    let own = Process::spawn(setup.command(&["ctl", "metrics", "--admin", socket.to_str().unwrap()])).end().success();
    assert!(own.contains("litequic_admin_limit_reached_total{limit=\"user\"} 1\n"), "{own}");
}

/// What is printed where no litequic is.
#[tokio::test]
async fn ctl_says_where_it_looked() {
    let setup = Setup::new("").await;
    let hints = "  is it running? systemctl status litequic\n  in another container or as another user: litequic ctl \
                 --admin ADDRESS status, with admin.listen in its configuration\n";
    let port = free_tcp_port();
    for (admin, expected) in [
        (setup.text("a.sock"), format!("{} (no such file)", setup.text("a.sock"))),
        (setup.text("token"), format!("{} (nothing listens)", setup.text("token"))),
        (format!("127.0.0.1:{port}"), format!("127.0.0.1:{port} (nothing listens)")),
        (format!(":{port}"), format!("127.0.0.1:{port} (nothing listens)")),
        (format!("http://localhost:{port}/"), format!("localhost:{port} (nothing listens)")),
        (setup.text(&"a".repeat(108)), format!("{} (path must be shorter than SUN_LEN)", setup.text(&"a".repeat(108)))),
    ] {
        let ended = setup.ctl(&["status", "--admin", &admin]);
        let expected = format!("litequic: no running litequic was found: not at {expected}\n{hints}");
        assert_eq!((ended.code, ended.stderr), (Some(69), expected));
    }
    // Without sockets of this machine, and nothing at any port.
    let (Some(unshare), true) = (needs::program("unshare"), rustix::process::geteuid().is_root()) else { return };
    let script = "mount -t tmpfs none /run && ip link set lo up && exec \"$0\" ctl status";
    let mut command = Command::new(unshare);
    command.args(["--net", "--mount", "sh", "-c", script]).arg(litequic_program());
    command.env_remove("LITEQUIC_ADMIN").env_remove("RUNTIME_DIRECTORY").env("XDG_RUNTIME_DIR", "");
    let ended = Process::spawn(command).end();
    let tried = "not at /run/litequic/admin.sock (no such file), not at 127.0.0.1:9443 (nothing listens)";
    let expected = format!("litequic: no running litequic was found: {tried}\n{hints}");
    assert_eq!((ended.code, ended.stderr), (Some(69), expected));
}

#[tokio::test]
async fn what_is_no_litequic_is_named_as_such() {
    let setup = Setup::new("").await;
    let page = "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let large = "HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n";
    for answer in [page, json, large, "\x15\x03\x01\0\x02\x02\x16", "SSH-2.0-OpenSSH_9.9\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // It may have hung up by then.
                let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer.as_bytes()));
                thread::spawn(move || stream.read(&mut [0; 4096]));
            }
        });
        for what in [&["status"][..], &["reload"], &["drain"], &["health"]] {
            let ended = setup.ctl(&[what, &["--admin", &admin]].concat());
            let expected = format!("litequic: {admin} answers, but is not litequic\n");
            assert_eq!((ended.code, ended.stderr), (Some(69), expected), "{answer:?}");
        }
    }
}
