//! File descriptors: what litequic makes of its limit, and who is served where they are few or none is left. Always
//! the real process.

use crate::{drain::ask, reload::Setup, support::prelude::*};
use litequic::app;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value as Json;
use std::time::Instant;
use tokio::{net::TcpSocket, task::JoinSet};

/// The address of a client that opens connections and sends nothing.
const SILENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// litequic with `arguments`, whose soft and hard limit of open files are these.
fn limited(soft: u32, hard: u32, arguments: &[&str]) -> Command {
    let program = command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"")]);
    shell.arg(program.get_program()).args(program.get_args()).env_remove("RUST_LOG");
    shell
}

/// The event of the log that has `message`.
fn event(process: &Process, message: &str) -> Json {
    process.await_stderr(message);
    let log = process.stderr();
    serde_json::from_str(log.lines().find(|line| line.contains(message)).unwrap()).unwrap()
}

fn open_files(process: &Process) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

async fn start(setup: &Setup, limits: (u32, u32), more: &str) -> Process {
    setup.write(origin::demo().await, more);
    let process = Process::spawn(limited(limits.0, limits.1, &["run", "--config", &setup.path("litequic.toml")]));
    // The last line of the start.
    process.await_stderr("limits in force");
    process
}

#[tokio::test]
async fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let setup = Setup::new();
    let process = start(&setup, (256, 2_048), "").await;
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().filter(|word| *word == "2048").count(), 2, "{line}");
    let logged = event(&process, "limits in force");
    assert_eq!(logged["open_files"], 2_048);
    let fixed = logged["fixed_files"].as_u64().unwrap();
    let (clients, origins) = (logged["client_files"].as_u64().unwrap(), logged["origin_files"].as_u64().unwrap());
    let pool = 2_048 - fixed;
    assert_eq!((clients, origins), (pool - pool / 4, pool - pool / 2));
    let warning = event(&process, "cannot be reached");
    assert_eq!(warning["level"], "WARN");
    assert!(warning["message"].as_str().unwrap().contains("limits.max_connections"), "{warning}");

    let status: Json = serde_json::from_str(&ask(setup.admin, "GET /status").await.1).unwrap();
    let descriptors = &status["descriptors"];
    assert_eq!((&descriptors["limit"], &descriptors["clients"]["most"]), (&2_048.into(), &clients.into()));
    assert_eq!(descriptors["derived"]["origin.max_connections"], 512.min(origins));
    assert!(ask(setup.admin, "GET /metrics").await.1.contains("process_max_fds 2048\n"));

    let checked = Process::spawn(limited(256, 2_048, &["check", "--config", &setup.path("litequic.toml")])).end();
    assert!(checked.stderr.contains("limits.max_connections: cannot be reached"), "{}", checked.stderr);
    let told = checked.success();
    assert!(told.contains("file descriptors: 2048 "), "{told}");
    assert!(told.contains(&format!("clients over TCP {} to {clients}", pool / 2)), "{told}");
}

/// What is set aside for everything but connections is enough.
#[tokio::test]
async fn the_fixed_part_covers_what_is_open_before_the_first_connection() {
    for workers in [1, 4] {
        let setup = Setup::new();
        let more = format!(
            "listen.workers = {workers}\naccess_log.path = \"access.log\"\nadmin.handover = \"{}\"",
            setup.path("handover")
        );
        let process = start(&setup, (4_096, 4_096), &more).await;
        let fixed = event(&process, "limits in force")["fixed_files"].as_u64().unwrap();
        // The admin listener's share is for connections.
        let (open, admin) = (open_files(&process).len() as u64, 64);
        assert!(open + admin <= fixed, "{workers} workers: {open} are open, and {fixed} are the fixed part");
        assert!(fixed - admin <= open + 100, "{workers} workers: {open} are open, and {fixed} are the fixed part");
    }
}

/// A connection of the silent client.
async fn silent(server: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((SILENT, 0).into()).unwrap();
    socket.connect(server).await.ok()
}

async fn over_http1(setup: &Setup, server: SocketAddr) -> u16 {
    let mut client = Tls::connect(server, "localhost", tls::config(&setup.made.cert_pem, &["http/1.1"])).await.unwrap();
    client.say("GET /bytes/1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    client.head().await.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn with_1024_descriptors_a_silent_source_locks_no_other_out() {
    const CONNECTIONS: usize = 1_200;
    const REFUSED: &str = "litequic_limit_reached_total{limit=\"max_connections\"} ";
    app::raise_open_files().unwrap();
    let setup = Setup::new();
    let process = start(&setup, (1_024, 1_024), "listen.workers = 2").await;
    let server = process.address();
    let mut held = JoinSet::new();
    for _ in 0..CONNECTIONS {
        held.spawn(async move {
            loop {
                // A connection that litequic closes is opened again.
                let Some(mut stream) = silent(server).await else { continue };
                let _ = stream.read(&mut [0]).await;
                sleep(LOOK_AGAIN).await;
            }
        });
    }
    let deadline = Instant::now() + DEADLINE;
    let has_refused = |metrics: &str| metrics.lines().any(|line| line.starts_with(REFUSED) && !line.ends_with(" 0"));
    while !has_refused(&ask(setup.admin, "GET /metrics").await.1) {
        assert!(Instant::now() < deadline);
        sleep(LOOK_AGAIN).await;
    }
    for _ in 0..15 {
        assert_eq!(within("HTTP/1.1", over_http1(&setup, server)).await, 200);
    }
    let client = within("HTTP/3", setup.client()).await;
    let requests = (0..12).map(|_| client.get("/slow/100"));
    let answers = within("twelve requests at once", futures_util::future::join_all(requests)).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let began = Instant::now();
    assert_eq!(ask(setup.admin, "GET /metrics").await.0, 200);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(open_files(&process).len() < 1_000);
}

fn set_limit(process: &Process, soft: u64) {
    let pid = Pid::from_raw(process.id().try_into().unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(1_024) }).unwrap();
}

#[tokio::test]
async fn without_descriptors_clients_are_closed_and_later_served_again() {
    const CLOSED: u32 = 20;
    const AT_ONCE: Duration = Duration::from_millis(200);
    let setup = Setup::new();
    let process = start(&setup, (1_024, 1_024), "").await;
    let server = process.address();
    let client: Client = setup.client().await;
    assert_eq!(client.get("/status/204").await.status, 204);
    // A new descriptor has the lowest number that is free, and it must be below the limit.
    let open = open_files(&process);
    set_limit(&process, (0..).find(|number| !open.contains(number)).unwrap().into());
    // A connection that is not closed at once has one of the descriptors that are left, and keeps it: litequic gives
    // some of its own back at any time, and ends a silent client at `timeouts.request_header`.
    let (mut held, mut closed, deadline) = (Vec::new(), 0, Instant::now() + DEADLINE);
    while closed < CLOSED {
        assert!(Instant::now() < deadline, "{closed} were closed, {} are held", held.len());
        let mut stream = silent(server).await.unwrap();
        match timeout(AT_ONCE, stream.read(&mut [0])).await {
            Ok(Ok(0) | Err(_)) => closed += 1,
            Ok(Ok(_)) => panic!("litequic spoke first"),
            Err(_) => held.push(stream),
        }
    }
    process.await_stderr("no file descriptor is left for clients");
    assert_eq!(client.get("/status/204").await.status, 204, "a connection that is open goes on");
    set_limit(&process, 1_024);
    assert_eq!(over_http1(&setup, server).await, 200);
    let metrics = ask(setup.admin, "GET /metrics").await.1;
    let counted =
        metrics.lines().find_map(|line| line.strip_prefix("litequic_limit_reached_total{limit=\"descriptors\"} "));
    assert!(counted.unwrap().parse::<u32>().unwrap() >= CLOSED, "{counted:?}");
}
