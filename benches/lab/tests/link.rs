//! The link emulator as a command. Needs root, network namespaces and /dev/net/tun; without them tests say so.
#![cfg(test)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Two labs would measure each other, so the second one refuses to begin.
static ONE: Mutex<()> = Mutex::new(());

/// Why links cannot be emulated here.
fn lacks() -> Option<&'static str> {
    let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
    });
    let runs = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(name);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !is_root {
        return Some("not root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("no /dev/net/tun");
    }
    if !runs("unshare", &["--net", "true"])
        || !runs("ip", &["-V"])
        || !runs("taskset", &["-V"])
        || !runs("python3", &["-V"])
    {
        return Some("no network namespaces, iproute2, util-linux or python3");
    }
    (std::thread::available_parallelism().map_or(1, usize::from) < 2).then_some("one core")
}

struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Lab {
    /// Starts it, and waits until its links stand. `None`: another one is measuring.
    fn start(arguments: &[&str], links: usize) -> Option<Self> {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_litequic-lab")), arguments, links)
    }

    /// Starts the lab by a command that becomes it.
    fn start_by(mut command: Command, arguments: &[&str], links: usize) -> Option<Self> {
        command.arg("link").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut lab = Self(command.spawn().unwrap());
        let mut lines = BufReader::new(lab.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said = Vec::new();
        while said.iter().filter(|line: &&String| line.starts_with("link ")).count() < links {
            match lines.next() {
                Some(line) => said.push(line),
                None if said.iter().any(|line| line.contains("another litequic-lab")) => return None,
                None => panic!("it ended: {said:?}"),
            }
        }
        // Whatever else it says is not read: keep the pipe open all the same.
        std::thread::spawn(move || lines.for_each(drop));
        Some(lab)
    }

    fn namespace(&self, side: &str) -> String {
        format!("litequic-lab-{}-{side}", self.0.id())
    }

    /// Ends it as a terminal would; its report.
    fn interrupt(mut self) -> serde_json::Value {
        let namespaces = ["server", "client"].map(|side| Path::new("/run/netns").join(self.namespace(side)));
        assert!(namespaces.iter().all(|namespace| namespace.exists()));
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        let report = serde_json::from_reader(self.0.stdout.take().unwrap()).unwrap();
        self.0.wait().unwrap();
        assert!(namespaces.iter().all(|namespace| !namespace.exists()), "namespaces are left");
        report
    }
}

/// Sends datagrams of so many bytes from the server's side to the client's, who must get `arrive` of them unchanged.
fn send(lab: &Lab, link: u8, datagrams: usize, bytes: usize, arrive: usize) {
    let script = format!(
        "import socket, sys\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         if sys.argv[1] == 'send':\n\
         \x20for n in range({datagrams}): s.sendto(bytes([n % 256]) * {bytes}, ('192.0.2.{client}', 9))\n\
         else:\n\
         \x20s.bind(('192.0.2.{client}', 9)); s.settimeout(20); print('bound', flush=True)\n\
         \x20for n in range({arrive}): assert s.recv(65536) == bytes([n % 256]) * {bytes}, n\n",
        client = 4 * link + 2
    );
    let python = |side: &str, role: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &lab.namespace(side), "python3", "-c", &script, role]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut receiver = python("client", "receive");
    let mut bound = String::new();
    BufReader::new(receiver.stdout.take().unwrap()).read_line(&mut bound).unwrap();
    assert_eq!(bound, "bound\n");
    assert!(python("server", "send").wait().unwrap().success());
    assert!(receiver.wait().unwrap().success(), "datagrams are missing or changed");
}

#[test]
fn links_carry_packets_unchanged_are_independent_and_leave_nothing_behind() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lacks) = lacks() {
        println!("skipped: {lacks}");
        return;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = "rate=10M,rtt=10ms,buffer=1MB,ce=10kB";
    let arguments = ["--path", path, "--links", "2", "--log", log.path().to_str().unwrap()];
    let Some(lab) = Lab::start(&arguments, 2) else {
        println!("skipped: another lab is measuring");
        return;
    };
    send(&lab, 0, 200, 1200, 200);
    send(&lab, 1, 100, 300, 100);
    let report = lab.interrupt();
    let down = |link: usize| &report["links"][link]["down"];
    assert_eq!((down(0)["packets"].as_u64(), down(1)["packets"].as_u64()), (Some(200), Some(100)));
    assert_eq!(down(0)["delivered"], 200, "{report}");
    assert_eq!(down(0)["bytes"], 200 * 1228);
    let lines: Vec<String> = fs::read_to_string(log.path()).unwrap().lines().map(str::to_owned).collect();
    let of = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((of("link,direction"), of("0,down"), of("1,down")), (1, 200, 100));
}

#[test]
fn super_packets_are_split_for_the_link_and_joined_for_the_receiver() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lacks) = lacks() {
        println!("skipped: {lacks}");
        return;
    }
    let Some(lab) = Lab::start(&["--path", "rate=10M,rtt=10ms,buffer=1MB,super=on,gro=5ms"], 1) else {
        println!("skipped: another lab is measuring");
        return;
    };
    // TCP sends super-packets by itself; a checksum that is wrong would stop it.
    let script = "import socket, sys, zlib\n\
        data = bytes(i * 7 % 256 for i in range(1000000))\n\
        if sys.argv[1] == 'send':\n\
        \x20s = socket.create_connection(('192.0.2.2', 9), 20); s.sendall(data); s.close()\n\
        else:\n\
        \x20l = socket.create_server(('192.0.2.2', 9)); l.settimeout(20); print('bound', flush=True)\n\
        \x20s, _ = l.accept(); s.settimeout(20); got = bytearray()\n\
        \x20while piece := s.recv(65536): got += piece\n\
        \x20assert got == data\n";
    let python = |side: &str, role: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &lab.namespace(side), "python3", "-c", script, role]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut receiver = python("client", "receive");
    let mut bound = String::new();
    BufReader::new(receiver.stdout.take().unwrap()).read_line(&mut bound).unwrap();
    assert!(python("server", "send").wait().unwrap().success());
    assert!(receiver.wait().unwrap().success());
    let report = lab.interrupt();
    let packets = report["links"][0]["down"]["packets"].as_u64().unwrap();
    assert!(packets >= 1_000_000 / 1460, "the link saw packets of MTU size: {packets}");
    assert_eq!(report["links"][0]["down"]["device_drops"], 0, "{report}");
}

/// Files that a process has open.
fn open_files(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

fn children(process: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = format!("PPid:\t{process}");
    let is_child = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| text.lines().any(|l| l == parent))
    };
    pids.filter(is_child).collect()
}

/// A lock that flock(1) holds for the lab would be held by its servers, and as long as they live.
#[test]
fn servers_end_with_a_killed_laboratory_and_inherit_no_descriptor() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lacks) = lacks() {
        println!("skipped: {lacks}");
        return;
    }
    let inherited = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 9<\"$0\" && exec \"$@\""]).arg(inherited.path());
    command.arg(env!("CARGO_BIN_EXE_litequic-lab"));
    let Some(mut lab) = Lab::start_by(command, &["--path", "rate=10M,rtt=10ms,buffer=1MB"], 1) else {
        println!("skipped: another lab is measuring");
        return;
    };
    let id = lab.0.id();
    assert!(open_files(id).contains(&inherited.path().to_owned()));
    let children = children(id);
    assert!(!children.is_empty());
    for child in children {
        assert!(!open_files(child).contains(&inherited.path().to_owned()), "process {child}");
    }
    // As a worker whose master was killed: in another session, and no signal but SIGKILL ends it.
    let script = "trap '' TERM INT HUP; echo up; while true; do sleep 1000; done";
    let mut server = Command::new("ip");
    server.args(["netns", "exec", &lab.namespace("server"), "setsid", "sh", "-c", script]).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut up = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut up).unwrap();
    assert_eq!(up, "up\n");
    let namespaces = ["server", "client"].map(|side| Path::new("/run/netns").join(lab.namespace(side)));
    lab.0.kill().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while namespaces.iter().any(|namespace| namespace.exists()) {
        assert!(Instant::now() < end, "namespaces are left");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.wait().unwrap().signal(), Some(nix::libc::SIGKILL));
}
