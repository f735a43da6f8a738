//! Reload: what changes while litequic serves, what does not, and what the operator learns. Always the real process,
//! with its signals and its files.

use crate::{
    drain::ask,
    support::{prelude::*, process::litequic, tls::credulous},
};
use bytes::Buf;
use litequic_quic::{self as quic, Observer};
use litequic_tls::{ServerTrust, client_config};
use quinn::crypto::rustls::QuicClientConfig;
use std::{
    io::{Read, Write},
    os::unix::fs::symlink,
    time::Instant,
};
use tokio::{sync::watch, task::JoinSet};

/// Long enough for each write to be seen by itself, and far below the quiet that litequic waits for.
const BETWEEN_WRITES: Duration = Duration::from_millis(20);

/// For how long nothing must have changed before litequic reloads (`app::watch`).
const QUIET: Duration = Duration::from_millis(500);

/// A body that takes a second, and all that comes of it.
const DRIP: &str = "/drip/40/25";

fn whole_drip() -> String {
    (0..40).map(|drop| format!("drop {drop}\n")).collect()
}

/// A directory with a configuration, and with its certificate behind a link, as Kubernetes has it.
pub(crate) struct Setup {
    directory: tempfile::TempDir,
    pub(crate) made: SelfSigned,
    udp: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let made = make_self_signed(["localhost"]).unwrap();
        let setup = Self {
            directory: tempfile::tempdir().unwrap(),
            udp: (Ipv4Addr::LOCALHOST, free_udp_port()).into(),
            admin: (Ipv4Addr::LOCALHOST, free_tcp_port()).into(),
            made,
        };
        fs::create_dir(setup.path("tls")).unwrap();
        setup.project("..v1", &setup.made);
        for file in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{file}"), setup.path(&format!("tls/{file}"))).unwrap();
        }
        setup
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Puts `made` where litequic reads it, as kubelet does: a new directory, and `..data` swapped to it.
    pub(crate) fn project(&self, version: &str, made: &SelfSigned) {
        let version_path = self.path(&format!("tls/{version}"));
        fs::create_dir(&version_path).unwrap();
        fs::write(format!("{version_path}/tls.crt"), &made.cert_pem).unwrap();
        fs::write(format!("{version_path}/tls.key"), &made.key_pem).unwrap();
        symlink(version, self.path("tls/..data_tmp")).unwrap();
        fs::rename(self.path("tls/..data_tmp"), self.path("tls/..data")).unwrap();
    }

    /// The configuration, with `more` at its top.
    fn text(&self, origin: SocketAddr, more: &str) -> String {
        let (udp, admin) = (self.udp, self.admin);
        let io = io_key();
        let workers = if more.contains("listen.workers") { "" } else { "listen.workers = 1\n" };
        format!(
            "{more}\n{io}{workers}listen.udp = \"{udp}\"\nadmin.listen = \"{admin}\"\norigin.url = \"http://{origin}\"\n\
             [[certificates]]\ncert = \"tls/tls.crt\"\nkey = \"tls/tls.key\"\n"
        )
    }

    /// Writes the configuration as editors do: beside it, and then in its place.
    pub(crate) fn write(&self, origin: SocketAddr, more: &str) {
        fs::write(self.path(".litequic.toml.swp"), self.text(origin, more)).unwrap();
        fs::rename(self.path(".litequic.toml.swp"), self.path("litequic.toml")).unwrap();
    }

    /// Starts litequic, and returns when it serves and watches.
    pub(crate) async fn start(&self, origin: SocketAddr) -> Process {
        self.start_with(origin, "").await
    }

    /// The same with `more` at the top of its configuration.
    pub(crate) async fn start_with(&self, origin: SocketAddr, more: &str) -> Process {
        self.write(origin, more);
        let process = Process::start(["run", "--config", &self.path("litequic.toml")]);
        assert_eq!(process.address(), self.udp);
        let (status, said) = self.reload().await;
        assert!(status == 200 && said.starts_with("nothing has changed"), "{status} {said}");
        process
    }

    pub(crate) async fn client(&self) -> Client {
        Client::over(self.quic(&self.made).await.unwrap(), "localhost").await
    }

    /// A connection from the address `local`.
    pub(crate) async fn quic_from(&self, local: Ipv4Addr) -> Result<Quic, quinn::ConnectionError> {
        Quic::from(local, self.udp, &self.made.cert_pem).await
    }

    /// A connection that trusts `made` alone.
    pub(crate) async fn quic(&self, made: &SelfSigned) -> Result<Quic, quinn::ConnectionError> {
        Quic::try_connect(self.udp, "localhost", &made.cert_pem, quinn::TransportConfig::default()).await
    }

    /// Writes the configuration, has it reloaded, and returns the answer. litequic looks by itself, too: where it was
    /// faster, and nothing is left to be reloaded, once more from what was there before.
    pub(crate) async fn change(&self, origin: SocketAddr, more: &str) -> (u16, String) {
        let before = fs::read(self.path("litequic.toml")).unwrap();
        for _ in 0..20 {
            self.write(origin, more);
            let answer = self.reload().await;
            if !answer.1.starts_with("nothing has changed") {
                return answer;
            }
            fs::write(self.path("litequic.toml"), &before).unwrap();
            self.reload().await;
        }
        panic!("litequic was always faster");
    }

    pub(crate) async fn reload(&self) -> (u16, String) {
        ask(self.admin, "POST /reload").await
    }

    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = ask(self.admin, "GET /metrics").await;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
    }
}

/// An origin that answers with `body` alone.
pub(crate) async fn saying(body: &str) -> Always {
    Always::new(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
}

#[tokio::test]
async fn a_reload_keeps_running_downloads_alive() {
    let (setup, next) = (Setup::new(), saying("the next origin").await);
    let process = setup.start(origin::demo().await).await;
    let client = setup.client().await;
    let mut download = client.begin_get(DRIP).await;
    client::header(&mut download).await;

    setup.write(next.address, "");
    process.signal("HUP");
    process.await_stderr("\"key\":\"origin.url\"");
    assert_eq!(client.get("/").await.text(), "the next origin");
    assert_eq!(String::from_utf8(client::body(&mut download).await).unwrap(), whole_drip());
    assert!(client.quic.connection.close_reason().is_none());
    assert!(setup.metric("litequic_reloads_total{result=\"ok\"}").await >= 1);
}

/// One part of the test below: reads the demo's `/bytes/N` as far as `allowed` says, and continues when it is raised.
async fn read_as_allowed(mut download: client::Stream, mut allowed: watch::Receiver<usize>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        within("leave to read on", allowed.wait_for(|allowed| body.len() < *allowed)).await.unwrap();
        let Some(mut piece) = within("a piece", download.recv_data()).await.unwrap() else { return body };
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
}

#[tokio::test]
async fn two_hundred_reloads_in_the_middle_of_fifty_downloads_cut_none() {
    const RELOADS: usize = 200;
    const CONNECTIONS: usize = 10;
    const DOWNLOADS_EACH: usize = 5;
    /// Each download may read that much more after each reload: less than a packet.
    const STEP: usize = 1_000;
    /// What a client lets litequic send ahead, and a body of which half is left when the last reload is done.
    const WINDOW: u32 = 16 << 10;
    const BYTES: usize = 2 * RELOADS * STEP;

    let (setup, origins) = (Setup::new(), [origin::demo().await, origin::demo().await]);
    let process = setup.start(origins[0]).await;
    let (allow, allowed) = watch::channel(STEP);
    let (mut connections, mut downloads) = (Vec::new(), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(WINDOW.into());
        let client = Client::connect(setup.udp, &setup.made.cert_pem, transport).await;
        for _ in 0..DOWNLOADS_EACH {
            let mut download = client.begin_get(&format!("/bytes/{BYTES}")).await;
            assert_eq!(client::header(&mut download).await.status(), 200);
            downloads.spawn(read_as_allowed(download, allowed.clone()));
        }
        connections.push(client);
    }

    for reload in 1..=RELOADS {
        // Whatever else is reloaded, the origin moves each time, and now and then the certificate is another.
        if reload % 50 == 0 {
            setup.project(&format!("..v{}", reload + 1), &make_self_signed(["localhost"]).unwrap());
        }
        let (headers, timeout) = (99 + reload, 60 + reload);
        let changed = format!("limits.max_headers = {headers}\ntimeouts.response_body = \"{timeout}s\"");
        setup.write(origins[reload % 2], &changed);
        if reload % 2 == 0 {
            process.signal("HUP");
        } else {
            assert_eq!(setup.reload().await.0, 200);
        }
        let told = format!("\"{} → {headers}\"", headers - 1);
        within("the reload", async {
            while !process.stderr().contains(&told) {
                sleep(LOOK_AGAIN / 4).await;
            }
        })
        .await;
        allow.send_modify(|allowed| *allowed += STEP);
    }
    assert_eq!(setup.metric("litequic_requests_open").await, (CONNECTIONS * DOWNLOADS_EACH) as u64);
    allow.send_replace(usize::MAX);
    let whole: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    while let Some(body) = downloads.join_next().await {
        assert!(body.unwrap() == whole, "a body differs");
    }
    for client in &connections {
        assert_eq!(client.quic.connection.close_reason(), None);
        assert_eq!(client.get("/bytes/1").await.body, [0]);
    }
    // The file's watch may have looked too, and found nothing new.
    assert!(setup.metric("litequic_reloads_total{result=\"ok\"}").await >= RELOADS as u64);
    assert_eq!(setup.metric("litequic_reloads_total{result=\"refused\"}").await, 0);
    assert_eq!(process.stderr().matches("\"key\":\"limits.max_headers\"").count(), RELOADS);
    assert_eq!(process.stderr().matches("\"key\":\"origin.url\"").count(), RELOADS);
}

#[tokio::test]
async fn a_certificate_behind_a_swapped_link_is_served_from_then_on() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let before = setup.client().await;
    let expiry = setup.metric("litequic_certificate_expiry_timestamp_seconds").await;
    assert!(expiry > 1_700_000_000);

    let renewed = make_self_signed(["localhost"]).unwrap();
    setup.project("..v2", &renewed);
    process.await_stderr("tls/tls.crt renewed, expires ");
    assert!(process.stderr().contains("\"key\":\"certificates[0]\""));
    let after = Client::over(setup.quic(&renewed).await.unwrap(), "localhost").await;
    assert_eq!(after.get("/").await.status, 200);
    assert!(setup.quic(&setup.made).await.is_err(), "the old certificate is still served");
    assert_eq!(before.get("/").await.status, 200);
}

#[tokio::test]
async fn a_faulty_file_changes_nothing_and_every_fault_is_told() {
    let (setup, origin) = (Setup::new(), saying("the old origin").await);
    let process = setup.start(origin.address).await;
    let client = setup.client().await;
    let closed = origin::closed_port();
    setup.write(closed, "limits.max_heders = 5\ntimeouts.idle = \"never\"");
    let (status, faults) = setup.reload().await;
    assert_eq!(status, 422, "{faults}");
    for fault in ["limits.max_heders = 5: unknown key", "timeouts.idle = \"never\": ", "\nnot reloaded\n"] {
        assert!(faults.contains(fault), "{faults}");
    }
    process.await_stderr("unknown key; did you mean max_headers?");
    process.await_stderr("timeouts.idle");

    // All or nothing: a certificate that cannot be served holds the new origin back.
    fs::write(setup.path("tls/..v1/tls.crt"), "no PEM").unwrap();
    setup.write(closed, "");
    let (status, faults) = setup.reload().await;
    assert_eq!(status, 422);
    assert!(faults.contains("tls.crt contains no certificate"), "{faults}");
    assert_eq!(client.get("/").await.text(), "the old origin");
    assert!(setup.metric("litequic_reloads_total{result=\"refused\"}").await >= 2);

    // Corrected, it is applied without a request.
    fs::write(setup.path("tls/..v1/tls.crt"), &setup.made.cert_pem).unwrap();
    let next = saying("the next origin").await;
    setup.write(next.address, "");
    process.await_stderr(&next.address.to_string());
    assert_eq!(client.get("/").await.text(), "the next origin");
}

#[tokio::test]
async fn limits_hold_for_what_begins_after_the_reload() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let before = setup.client().await;
    let many = || (0..20).fold(before.request(Method::GET, "/"), |request, n| request.header(format!("x-{n}"), "y"));
    assert_eq!(before.fetch(many(), "").await.status, 200);

    let answer = setup.change(origin.address, "limits.max_headers = 10\nlimits.max_streams = 1").await;
    assert_eq!(answer, (200, "limits.max_streams: 128 → 1\nlimits.max_headers: 99 → 10\n".into()));
    assert_eq!(before.fetch(many(), "").await.status, 431);
    assert_eq!(before.get("/").await.status, 200);

    // A connection keeps the transport parameters of its handshake; a new one gets the new ones.
    let moment = Duration::from_millis(200);
    let after = setup.quic(&setup.made).await.unwrap();
    for (connection, more_than_one) in [(&before.quic.connection, true), (&after.connection, false)] {
        let _first = timeout(moment, connection.open_bi()).await.unwrap().unwrap();
        assert_eq!(timeout(moment, connection.open_bi()).await.is_ok(), more_than_one);
    }

    setup.write(origin.address, "limits.max_connections = 1");
    assert_eq!(setup.reload().await.0, 200);
    assert!(setup.quic(&setup.made).await.is_err(), "two are held already");
    setup.write(origin.address, "");
    assert_eq!(setup.reload().await.0, 200);
    assert_eq!(setup.client().await.get("/").await.status, 200);
    drop(process);
}

#[tokio::test]
async fn clients_after_the_reload_get_other_transport_parameters() {
    let (setup, origin) = (Setup::new(), origin::demo().await);
    let process = setup.start(origin).await;
    let announced = async |wanted: &str| {
        let observer = Observer::default();
        let tls = client_config(&ServerTrust::Insecure).unwrap();
        let connection = quic::connect_client(setup.udp, "localhost", tls, DEADLINE, &observer).await.unwrap();
        let observed = observer.observed_state();
        let server = observed.server_parameters.unwrap();
        let mut parameters = server.compare_with(&observed.own_parameters);
        let (_, server, _) = parameters.find(|(name, ..)| *name == wanted).unwrap();
        drop(connection);
        server
    };
    for (key, changes, name, before, after) in [
        ("listen.migration = false", "listen.migration: true → false\n", "disable_active_migration", "0", "1"),
        ("", "listen.migration: false → true\n", "disable_active_migration", "1", "0"),
        (
            "litequic.max_mtu = 1440",
            "litequic.max_mtu: 1500 → 1440\n",
            "max_udp_payload_size",
            "65527 bytes",
            "1412 bytes",
        ),
        ("", "litequic.max_mtu: 1440 → 1500\n", "max_udp_payload_size", "1412 bytes", "65527 bytes"),
    ] {
        assert_eq!(announced(name).await, before);
        assert_eq!(setup.change(origin, key).await, (200, changes.into()));
        assert_eq!(announced(name).await, after);
    }
    drop(process);
}

#[tokio::test]
async fn a_reload_of_the_send_buffer_during_a_handshake_stalls_no_response() {
    let (setup, origin) = (Arc::new(Setup::new()), origin::demo().await);
    let process = setup.start(origin).await;
    // A stream may have a quarter of it.
    for size in [8192, 256, 8192] {
        let reloading = Arc::clone(&setup);
        let reload = move || {
            reloading.write(origin, &format!("limits.worker_send_buffer = \"{size} KiB\""));
            // Blocking, as a verifier is; litequic is another process.
            let mut admin = std::net::TcpStream::connect(reloading.admin).unwrap();
            admin.write_all(b"POST /reload HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            admin.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        };
        // After the server has begun the handshake, before it is done.
        let tls = client::tls_config_with(&setup.made.cert_pem, reload);
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let quic = Quic::with_config(setup.udp, "localhost", config).await.unwrap();
        let client = Client::over(quic, "localhost").await;
        assert_eq!(client.get("/bytes/1000").await.body.len(), 1_000);
        assert_eq!(client.get("/bytes/3000000").await.body.len(), 3_000_000);
    }
    drop(process);
}

#[tokio::test]
async fn readiness_and_the_drain_go_by_what_was_reloaded() {
    let (setup, closed) = (Setup::new(), origin::closed_port());
    let process = setup.start(closed).await;
    assert_eq!(ask(setup.admin, "GET /readyz").await.0, 200);
    setup.write(closed, "admin.ready_needs_origin = true\ntimeouts.drain_grace = \"1h 7s\"");
    assert_eq!(setup.reload().await.0, 200);
    // A finding stands for a second.
    until("/readyz fails", async || ask(setup.admin, "GET /readyz").await.0 == 503).await;
    process.signal("TERM");
    process.await_stderr("\"grace\":\"1 h 0 min\"");
    process.end_by("TERM").success();
}

/// The head of the answer over TCP to a request on `tls`.
async fn head_over(tls: &mut Tls) -> String {
    tls.say("GET /status/204 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    tls.head().await
}

#[tokio::test]
async fn http3_goes_off_and_on_again_and_cuts_no_download() {
    let (setup, origin) = (Setup::new(), origin::demo().await);
    let process = setup.start_with(origin, "listen.alt_svc_max_age = \"1h\"").await;
    let client = setup.client().await;
    let mut download = client.begin_get(DRIP).await;
    client::header(&mut download).await;
    let mut tls = Tls::connect(setup.udp, "localhost", credulous(&["http/1.1"])).await.unwrap();
    // The port of the client's host: a mapping in front may lead to another.
    let on = "\r\nalt-svc: h3=\":443\"; ma=3600\r\n";
    let head = head_over(&mut tls).await;
    assert!(head.contains(on), "{head}");

    let (status, answer) = setup.change(origin, "listen.alt_svc_max_age = \"1h\"\nlisten.http3 = false").await;
    assert_eq!((status, answer.contains("listen.http3: true → false\n")), (200, true), "{answer}");
    process.await_stderr("HTTP/3 is off");
    match setup.quic(&setup.made).await.map(drop) {
        Err(quinn::ConnectionError::ConnectionClosed(close)) => {
            assert_eq!(close.error_code, quinn::TransportErrorCode::CONNECTION_REFUSED);
        }
        other => panic!("{other:?}"),
    }
    assert!(setup.metric("litequic_handshakes_refused_total").await >= 1);
    // The open connection over TCP too.
    let head = head_over(&mut tls).await;
    assert!(head.contains("\r\nalt-svc: clear\r\n"), "{head}");
    assert_eq!(String::from_utf8(client::body(&mut download).await).unwrap(), whole_drip());
    // GOAWAY has ended what came after.
    assert_eq!(within("the end of the drained connection", client.quic.closed()).await, 0x100, "H3_NO_ERROR");

    let (status, answer) = setup.change(origin, "listen.alt_svc_max_age = \"1h\"").await;
    assert_eq!((status, answer.contains("listen.http3: false → true\n")), (200, true), "{answer}");
    assert_eq!(setup.client().await.get("/status/204").await.status, 204);
    let head = head_over(&mut tls).await;
    assert!(head.contains(on), "{head}");
}

#[tokio::test]
async fn an_order_turns_http3_off_until_a_reload_changes_the_key() {
    let (setup, origin) = (Setup::new(), origin::demo().await);
    let process = setup.start(origin).await;
    let admin = setup.admin.to_string();
    let order = |state: &'static str| {
        let ended = litequic(["ctl", "http3", state, "--admin", &admin]);
        ended.answer()
    };
    let off =
        "HTTP/3 is off, until a reload changes listen.http3: handshakes are refused, and open connections drain\n";
    assert_eq!(order("off"), off);
    process.await_stderr("HTTP/3 is off");
    assert!(setup.quic(&setup.made).await.is_err());
    let url = format!("https://{}/", process.address());
    let refused = litequic(["get", "--insecure", &url]);
    let expected = "the server refuses new QUIC connections at present (CONNECTION_REFUSED): it is full, drains or denies \
                    this client, or HTTP/3 is off\n";
    assert!(refused.code == Some(69) && refused.stderr.ends_with(expected), "{refused:?}");
    let (_, status) = ask(setup.admin, "GET /status").await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["http3"], serde_json::json!({ "on": false, "configured": true }));

    // A reload of another key leaves it off, and one of this key ends the order.
    let (_, answer) = setup.change(origin, "limits.max_streams = 50").await;
    assert!(answer.contains("limits.max_streams") && !answer.contains("http3"), "{answer}");
    assert!(setup.quic(&setup.made).await.is_err());
    assert_eq!(setup.change(origin, "listen.http3 = false").await.0, 200);
    assert_eq!(setup.change(origin, "listen.http3 = true").await.0, 200);
    assert_eq!(setup.client().await.get("/status/204").await.status, 204);

    assert_eq!(order("off"), off);
    assert_eq!(order("on"), "HTTP/3 is on, as configured\n");
    assert_eq!(setup.client().await.get("/status/204").await.status, 204);
    assert_eq!(ask(setup.admin, "POST /http3?state=maybe").await.0, 400);
}

#[tokio::test]
async fn the_log_follows_its_level() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    setup.write(origin.address, "log.level = \"debug\"");
    process.await_stderr("\"key\":\"log.level\"");
    // A file that is written with the same content is logged at debug level.
    setup.write(origin.address, "log.level = \"debug\"");
    process.await_stderr("reloaded: nothing has changed");
    setup.write(origin.address, "log.level = \"error\"");
    assert_eq!(setup.reload().await.0, 200);
    let ended = process.end_by("TERM");
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stderr.contains("received a signal to drain"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_reload_moves_the_access_log_without_losing_lines() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let client = setup.client().await;
    let mut asked = 0;
    let mut ask_once_more = async || {
        asked += 1;
        assert_eq!(client.get(&format!("/{asked}")).await.status.as_u16(), 200);
    };
    let log = |file: &str, field: &str| format!("access_log.path = \"{file}\"\naccess_log.fields = [\"{field}\"]\n");
    // No line of the first is needed.
    ask_once_more().await;
    let said = |file: &str| fs::read_to_string(setup.path(file)).unwrap_or_default();
    // A request's line is written when its client has all, which may be after the client knows.
    let has_lines = async |file: &str, lines: usize| {
        until(&format!("{lines} lines in {file}"), async || said(file).lines().count() >= lines).await;
    };
    for (file, field, expected, lines) in [
        ("one.log", "method", "access_log.path: none → ", 2),
        ("one.log", "path", "access_log.fields: method → path\n", 4),
        ("two.log", "path", "two.log\n", 2),
    ] {
        let (status, answer) = setup.change(origin.address, &log(file, field)).await;
        assert!(status == 200 && answer.contains(expected) && !answer.contains("restart"), "{answer}");
        ask_once_more().await;
        ask_once_more().await;
        has_lines(file, lines).await;
    }
    setup.write(origin.address, &log("absent/three.log", "path"));
    let (status, answer) = setup.reload().await;
    assert!(
        status == 422 && answer.contains("access_log.path = \"absent/three.log\": cannot be written: "),
        "{status} {answer}"
    );
    assert!(answer.contains("No such file") && answer.ends_with("not reloaded\n"), "{answer}");
    ask_once_more().await;
    has_lines("two.log", 3).await;
    setup.write(origin.address, "");
    assert_eq!(setup.reload().await.0, 200);
    ask_once_more().await;
    process.end_by("TERM").success();
    assert_eq!(said("one.log"), "{\"method\":\"GET\"}\n{\"method\":\"GET\"}\n{\"path\":\"/4\"}\n{\"path\":\"/5\"}\n");
    assert_eq!(said("two.log"), "{\"path\":\"/6\"}\n{\"path\":\"/7\"}\n{\"path\":\"/8\"}\n");
}

/// `reload.on_change`, which a reload changes as well.
#[tokio::test]
async fn a_saved_file_waits_for_a_request_where_it_is_not_followed() {
    /// Longer than litequic waits for a file's last change.
    const UNFOLLOWED: Duration = Duration::from_secs(2);
    let origin = saying("").await;
    for on_change in ["none", "certificates"] {
        let setup = Setup::new();
        let key = format!("reload.on_change = {on_change:?}\n");
        let process = setup.start_with(origin.address, &key).await;
        // The line `ready`.
        process.await_stderr(&format!("\"reload\":{on_change:?}"));
        let renewed = make_self_signed(["localhost"]).unwrap();
        setup.write(origin.address, &format!("{key}timeouts.send = \"7s\""));
        setup.project("..v2", &renewed);
        if on_change == "certificates" {
            while setup.quic(&renewed).await.is_err() {
                sleep(LOOK_AGAIN).await;
            }
        } else {
            sleep(UNFOLLOWED).await;
            assert!(setup.quic(&renewed).await.is_err());
        }
        let (status, answer) = setup.reload().await;
        assert!(status == 200 && answer.contains("timeouts.send: 1m → 7s\n"), "{on_change}: {answer}");
        assert_eq!(answer.contains("renewed"), on_change == "none", "{answer}");
        // From now on by itself.
        setup.write(origin.address, "");
        let (_, answer) = setup.reload().await;
        assert!(answer.contains(&format!("reload.on_change: {on_change} → all\n")), "{answer}");
        setup.write(origin.address, "timeouts.send = \"8s\"");
        process.await_stderr("1m → 8s");
        let (_, answer) = setup.reload().await;
        let expected = "Z, when the change of litequic.toml was applied: 1 key\n";
        assert!(answer.starts_with("nothing has changed since ") && answer.ends_with(expected), "{answer}");
    }
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_the_rest_is_taken_on() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    assert_eq!(ask(setup.admin, "GET /reload").await.0, 405);
    let pending = "listen.workers: 1 → 2 (needs a restart or a hot upgrade: SIGUSR2)\n";
    let format = "log.format: auto → human (needs a restart or a hot upgrade: SIGUSR2)\n";
    let more = "listen.workers = 2\nlog.format = \"human\"\ntimeouts.send = \"7s\"";
    let answer = setup.change(origin.address, more).await;
    assert_eq!(answer, (200, format!("{pending}timeouts.send: 1m → 7s\n{format}")));
    process.await_stderr("needs a restart");
    // Logged again, for it still waits.
    assert_eq!(setup.reload().await, (200, format!("{pending}{format}")));
    assert_eq!(setup.metric("litequic_workers").await, 1);

    // Changed back: neither the status nor the next answer names what was never applied.
    setup.write(origin.address, "timeouts.send = \"7s\"");
    let deadline = Instant::now() + Duration::from_secs(20);
    while ask(setup.admin, "GET /status").await.1.contains("needs a restart") {
        assert!(Instant::now() < deadline, "{}", process.stderr());
        sleep(LOOK_AGAIN).await;
    }
    let (_, answer) = setup.reload().await;
    assert!(answer.ends_with("was applied: 1 key\n"), "{answer}");
}

#[tokio::test]
async fn rejected_files_that_are_changed_back_leave_the_status() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    assert_ne!(setup.change(origin.address, "limits.max_headers = \"many\"").await.0, 200);
    assert!(ask(setup.admin, "GET /status").await.1.contains("max_headers"));
    setup.write(origin.address, "");
    let deadline = Instant::now() + Duration::from_secs(20);
    while ask(setup.admin, "GET /status").await.1.contains("limits.max_headers = ") {
        assert!(Instant::now() < deadline, "{}", process.stderr());
        sleep(LOOK_AGAIN).await;
    }
}

#[tokio::test]
async fn without_a_socket_for_a_handover_only_a_restart_is_named() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let none = "admin.socket = \"\"\n";
    let process = setup.start_with(origin.address, none).await;
    let (status, answer) = setup.change(origin.address, &format!("{none}listen.workers = 2")).await;
    assert_eq!((status, answer.as_str()), (200, "listen.workers: 1 → 2 (needs a restart)\n"));
    process.await_stderr("\"needs a restart\"");
}

#[tokio::test]
async fn a_signal_without_a_change_says_so() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    process.signal("HUP");
    process.await_stderr("\"by\":\"SIGHUP\"");
}

#[tokio::test]
async fn ten_writes_are_one_reload() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let mut before = 99;
    // A machine that pauses between two writes for longer than litequic waits for the next one proves nothing: again.
    for burst in 1..=20 {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for write in 1..=10 {
            let text = setup.text(origin.address, &format!("limits.max_headers = {}", 20 * burst + write));
            fs::write(setup.path("litequic.toml"), text).unwrap();
            longest = longest.max(last.elapsed());
            last = Instant::now();
            sleep(BETWEEN_WRITES).await;
        }
        let after = 20 * burst + 10;
        process.await_stderr(&format!("→ {after}"));
        if longest < QUIET / 2 {
            assert!(process.stderr().contains(&format!("{before} → {after}")), "{}", process.stderr());
            return;
        }
        before = after;
    }
    panic!("the machine was never quick enough");
}

#[test]
fn without_a_file_the_certificates_are_read_anew() {
    let setup = Setup::new();
    let (cert, key) = (setup.path("tls/tls.crt"), setup.path("tls/tls.key"));
    let arguments = ["run", "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:9", "--cert", &cert, "--key", &key];
    let process = Process::start(arguments);
    process.address();
    process.signal("HUP");
    process.await_stderr("there is no configuration file to reload");
    setup.project("..v2", &make_self_signed(["localhost"]).unwrap());
    process.signal("HUP");
    process.await_stderr("tls.crt renewed, expires ");
    process.end_by("TERM").success();
}
