//! What a service manager passes and receives: sd_listen_fds(3) and sd_notify(3), without one.

use super::{Download, Service, ended, terminate};
use crate::support::{prelude::*, process::litequic_program};
use std::{
    net::{TcpListener, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
};

/// Receives notifications of processes.
struct Notices(UnixDatagram);

impl Notices {
    fn of(service: &Service) -> Self {
        let socket = UnixDatagram::bind(service.directory.path().join("notify.sock")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// Has a process send it all notifications.
    fn from(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.0.local_addr().unwrap().as_pathname().unwrap());
    }

    /// Waits for a notice with that line, passing by signs of life. Returns all of it.
    fn wait(&self, line: &str) -> String {
        self.wait_after(line).0
    }

    /// The same, and earlier notifications, but watchdog ones.
    fn wait_after(&self, line: &str) -> (String, Vec<String>) {
        let mut seen = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let len = self.0.recv(&mut bytes).unwrap_or_else(|error| panic!("no {line} after {seen:?}: {error}"));
            let text = String::from_utf8(bytes[..len].to_vec()).unwrap();
            if text.lines().any(|one| one == line) {
                return (text, seen);
            }
            if text != "WATCHDOG=1\n" {
                seen.push(text);
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_hears_of_start_reload_life_upgrade_and_end() {
    let service = Service::new().await;
    let notices = Notices::of(&service);
    let start = |watchdog: Option<&str>| {
        let mut command = service.command();
        notices.from(command.envs(watchdog.map(|interval| ("WATCHDOG_USEC", interval))));
        Process::spawn(command)
    };
    let old = start(Some("200000"));
    notices.wait("READY=1");
    // Of its first look at the files.
    notices.wait("RELOADING=1");
    notices.wait("READY=1");
    notices.wait("WATCHDOG=1");
    old.signal("HUP");
    let reloading = notices.wait("RELOADING=1");
    assert!(reloading.lines().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading}");
    notices.wait("READY=1");

    // Its watchdog notifications would leave no room for more while they are not read.
    let new = start(None);
    notices.wait(&format!("MAINPID={}", new.id()));
    notices.wait("READY=1");
    ended(old).await;
    new.signal("TERM");
    // The old one has not sent that: the service continued.
    notices.wait("STOPPING=1");
    ended(new).await;
}

#[tokio::test]
async fn a_process_that_was_taken_over_from_tells_nothing_of_its_reloads() {
    let service = Service::new().await;
    let notices = Notices::of(&service);
    let start = || {
        let mut command = service.command();
        notices.from(&mut command);
        Process::spawn(command)
    };
    let old = start();
    notices.wait("READY=1");
    let mut download = Download::begin(&service, 1_000_000).await;
    let new = start();
    notices.wait(&format!("MAINPID={}", new.id()));
    // Of its start, and of its first look at the files.
    notices.wait("READY=1");
    notices.wait("RELOADING=1");
    notices.wait("READY=1");

    let old = spawn_blocking(|| {
        old.await_stderr("draining");
        old.signal("HUP");
        old.await_stderr("reloaded: nothing has changed");
        old
    });
    let old = old.await.unwrap();
    assert!(!download.read_to(usize::MAX).await);
    drop(download);
    ended(old).await;
    new.signal("TERM");
    assert_eq!(notices.wait_after("STOPPING=1").1, Vec::<String>::new());
    ended(new).await;
}

#[tokio::test]
async fn a_service_manager_that_reads_nothing_holds_nothing_up() {
    let service = Service::new().await;
    let notices = Notices::of(&service);
    let mut command = service.command();
    // A sign of life each half millisecond: soon there are as many as the kernel keeps.
    notices.from(command.env("WATCHDOG_USEC", "1000"));
    let process = Process::spawn(command);
    let process = spawn_blocking(|| {
        process.await_stderr("cannot notify the service manager");
        process
    });
    let process = process.await.unwrap();
    assert_eq!(service.status().await["phase"], "ready");
    terminate(process).await;
}

/// Starts litequic with `socket` as the one that a service manager passes. Its number is 3, after the shell has moved
/// it there from standard input.
fn start_with(service: &Service, socket: OwnedFd) -> Process {
    let litequic = service.command();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]);
    command.arg(litequic.get_program()).args(litequic.get_args()).env_remove("RUST_LOG");
    Process::spawn_with(command, socket)
}

#[tokio::test]
async fn sockets_that_are_passed_are_served() {
    let service = Service::new().await;
    // As many workers as sockets, by default.
    service.edit("workers = 2", "workers = \"auto\"");
    for tcp in [false, true] {
        let socket: OwnedFd = if tcp {
            TcpListener::bind(service.address).unwrap().into()
        } else {
            UdpSocket::bind(service.address).unwrap().into()
        };
        let process = start_with(&service, socket);
        let process = spawn_blocking(move || {
            process.await_stderr("listening for HTTP/1.1 and HTTP/2");
            process
        });
        let process = process.await.unwrap();
        assert_eq!(super::one_by_h3(&service).await, 1);
        assert_eq!(super::one_by_h1(&service).await, 1);
        if !tcp {
            assert_eq!(service.status().await["workers"].as_array().unwrap().len(), 1);
        }
        terminate(process).await;
    }
}

#[tokio::test]
async fn a_socket_that_no_key_names_is_said_and_others_serve() {
    let service = Service::new().await;
    let process = start_with(&service, TcpListener::bind("127.0.0.1:0").unwrap().into());
    let process = spawn_blocking(move || {
        process.await_stderr("the service manager passed a TCP socket that no key names");
        process.address();
        process
    });
    let process = process.await.unwrap();
    assert_eq!(super::one_by_h3(&service).await, 1);
    terminate(process).await;
}

/// Highest exposure that systemd-analyze may find, in tenths, of 100: as in packaging/verify/systemd.sh.
const EXPOSURE: u32 = 15;

#[test]
fn systemd_accepts_the_units_and_their_confinement() {
    let Some(analyze) = needs::program("systemd-analyze") else { return };
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let directory = tempfile::tempdir().unwrap();
    // The program where it is, and the units under their names.
    let service = fs::read_to_string(packaging.join("litequic.service")).unwrap();
    let service = service.replace("/usr/libexec/litequic/litequic", litequic_program().to_str().unwrap());
    fs::write(directory.path().join("litequic.service"), service).unwrap();
    fs::copy(packaging.join("litequic.socket"), directory.path().join("litequic.socket")).unwrap();
    let threshold = format!("--threshold={EXPOSURE}");
    let runs: [&[&str]; 2] = [
        &["verify", "./litequic.service", "./litequic.socket"],
        &["security", "--offline=true", &threshold, "./litequic.service"],
    ];
    for arguments in runs {
        let output = Command::new(&analyze).args(arguments).current_dir(&directory).output().unwrap();
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && error.is_empty(), "{arguments:?}\n{out}\n{error}");
    }
}

/// The values of `key` in the service's unit, in their order.
fn service(key: &str) -> Vec<String> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/litequic.service");
    let unit = fs::read_to_string(unit).unwrap();
    let lines = unit.lines().filter_map(|line| line.split_once('=')).filter(|(found, _)| *found == key);
    lines.map(|(_, value)| value.to_owned()).collect()
}

/// Under a real systemd: packaging/verify/systemd.sh.
#[tokio::test]
async fn a_fault_keeps_the_service_from_starting_once_and_fails_a_reload() {
    let fixture = Service::new().await;
    let config = fixture.directory.path().join("litequic.toml").display().to_string();
    // One of the unit's commands, for the configuration of this test.
    let run = |line: &str| {
        let words = line.replace("/etc/litequic/litequic.toml", &config);
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let Some(("/usr/libexec/litequic/litequic", arguments)) =
            words.split_first().map(|(first, rest)| (first.as_str(), rest))
        else {
            panic!("{line}")
        };
        Process::start(arguments)
    };
    // One that fails in an ExecStartPre= is started again, whatever RestartPreventExitStatus= is.
    assert_eq!(service("ExecStartPre"), [""; 0]);
    assert_eq!(service("RestartPreventExitStatus"), ["64 78"], "a usage error, and a fault of the configuration");
    let [start]: [String; 1] = service("ExecStart").try_into().unwrap();
    let [check, kill]: [String; 2] = service("ExecReload").try_into().unwrap();
    assert_eq!(kill, "+/bin/kill -HUP $MAINPID");
    let checked = spawn_blocking({
        let check = run(&check);
        || check.end()
    });
    assert_eq!(checked.await.unwrap().code, Some(0));
    fixture.edit("workers = 2", "workers = \"two\"");
    for line in [start, check] {
        let process = run(&line);
        let ended = spawn_blocking(|| process.end()).await.unwrap();
        assert_eq!(ended.code, Some(78), "{line}: {ended:?}");
        assert!(ended.stderr.contains("listen.workers = \"two\""), "{line}: {ended:?}");
    }
}
